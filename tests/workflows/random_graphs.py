"""Random workflows, as hypothesis draws them: graphs with all kinds of joins, and what each task answers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from holdfast.errors import TransientError, WorkflowDefinitionError
from holdfast.machine.graph import JoinType, SplitType
from holdfast.machine.workflow import WorkflowStatus
from holdfast.testing.clock import ManualClock
from holdfast.workflows.model import Workflow
from holdfast.workflows.multi_instance import MultiInstanceConfig
from holdfast.workflows.owner import SyntheticStageOwner
from holdfast.workflows.result import TaskResult
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.sub_workflow import SubWorkflow
from holdfast.workflows.task_context import current_task
from holdfast.workflows.task_run import TaskExecution

REFS = "abcdef"
PARTS = "pqr"
SIGNALS = ("go", "stop")
CHILD = "child"
"""The name of a workflow that stages start, and where the script has its answers."""
TIDY = "tidy"
"""The name of a finalizer."""
S = WorkflowStatus

_ANSWERS: dict[str, Callable[[], Any]] = {
    "running": TaskResult.running,
    "terminal": lambda: TaskResult.terminal("no"),
    "failed_continue": lambda: TaskResult.failed_continue("no"),
    "stopped": TaskResult.stopped,
    "canceled": TaskResult.canceled,
    "skipped": TaskResult.skipped,
    "sleep": lambda: TaskResult.sleep(60.0),
    "go": lambda: TaskResult.wait_signal("go"),
    "stop": lambda: TaskResult.wait_signal("stop", timeout=30.0),
    "late": lambda: TaskResult.wait_signal("go", timeout=30.0, on_timeout=S.FAILED_CONTINUE),
    "items": lambda: TaskResult.success({"n": 2, "items": [1, 2]}),
    "child": lambda: SubWorkflow(CHILD),
    "detached": lambda: SubWorkflow(CHILD, wait=False),
    "hasty": lambda: SubWorkflow(CHILD, timeout=40.0),
    "success": lambda: TaskResult.success({"n": 1}),
}


def answered(word: str) -> TaskResult:
    """What a task does that was told this word."""
    if word == "transient":
        raise TransientError("not now", retry_after=5.0)
    if word == "error":
        raise ValueError("broken")
    if word.startswith("jump "):
        return TaskResult.jump_to(word.removeprefix("jump "))
    if word == "tidy":
        here = current_task()
        assert here is not None
        here.finalize(TIDY)
        return TaskResult.success()
    return _ANSWERS[word]()


@st.composite
def scripts(draw: st.DrawFn) -> dict[str, list[str]]:
    """What the first calls of each stage's task answer; all others succeed."""
    words = st.sampled_from([*_ANSWERS, "transient", "error", "tidy", *(f"jump {ref}" for ref in REFS + PARTS)])
    script = {ref: draw(st.lists(words, max_size=3)) for ref in REFS + PARTS}
    return script | {CHILD: draw(st.lists(st.sampled_from(["success", "go", "error", "tidy"]), max_size=4))}


def child() -> Workflow:
    """What a stage starts: two stages, one after the other."""
    first, then = (StageExecution.create("acts", ref, ref, context={"script": CHILD}) for ref in "ab")
    for one in (first, then):
        one.add_task(TaskExecution.create("acts", "acts"))
    then.requisite_stage_ref_ids = {"a"}
    return Workflow.create("shop", CHILD, [first, then])


def _in(seconds: float) -> datetime:
    """A time, for a clock that has just begun."""
    return ManualClock().wall() + timedelta(seconds=seconds)


@st.composite
def stages(draw: st.DrawFn, ref: str, before: list[str]) -> StageExecution:
    needs = set(draw(st.lists(st.sampled_from(before), max_size=3, unique=True))) if before else set[str]()
    flags: dict[str, Any] = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "continue_on_failure": st.just(True),
                "fail_pipeline": st.just(False),
                "allow_sibling_stages_to_continue": st.just(True),
                "stage_timeout": st.just(45.0),
                "mutex_key": st.just("m"),
                "deferred_choice_group": st.just("choice"),
                "cancel_region": st.sets(st.sampled_from(before), max_size=2) if before else st.just(set[str]()),
                "milestone_ref_id": st.sampled_from(before) if before else st.none(),
                "milestone_status": st.sampled_from([S.RUNNING, S.SUCCEEDED]),
                "enabled": st.sampled_from(["n == 1", False]),
                "scheduled_time": st.sampled_from([_in(10), _in(50)]),
                "start_time_expiry": st.sampled_from([_in(5), _in(30)]),
                "max_jumps": st.just(2),
                "mi_config": st.builds(
                    MultiInstanceConfig,
                    **draw(st.sampled_from([{"count": st.just(2)}, {"collection_from_context": st.just("items")}])),
                    join_threshold=st.integers(0, 1),
                    cancel_remaining=st.booleans(),
                    allow_dynamic=st.booleans(),
                    sync_on_complete=st.booleans(),
                ),
            },
        )
    )
    # Most stages are plain, or nothing would ever get far.
    fields = {name: value for name, value in flags.items() if draw(st.integers(0, 3)) == 0}
    if needs:
        join = draw(st.sampled_from(JoinType))
        fields |= {"join_type": join, "join_threshold": draw(st.integers(0, len(needs))) if join == "N_OF_M" else 0}
    tasks = [TaskExecution.create("acts", "acts") for _ in range(draw(st.integers(1, 2)))]
    return StageExecution.create("acts", ref, ref, tasks=tasks, requisite_stage_ref_ids=needs, **fields)


@st.composite
def workflows(draw: st.DrawFn) -> Workflow | None:
    """A graph that can run; None for one that is refused at once. Others are when they start."""
    made: list[StageExecution] = []
    for ref in REFS[: draw(st.integers(1, len(REFS)))]:
        made.append(draw(stages(ref, [one.ref_id for one in made])))
    for one in made:
        after = [other.ref_id for other in made if one.ref_id in other.requisite_stage_ref_ids]
        if after and draw(st.integers(0, 2)) == 0:
            one.split_type = SplitType.OR
            one.split_conditions = {ref: draw(st.sampled_from(["n == 1", "n == 2"])) for ref in after}
    if draw(st.booleans()):
        for ref in PARTS[: draw(st.integers(1, len(PARTS)))]:
            parent = draw(st.sampled_from(made[:1] if draw(st.booleans()) else made))
            part = draw(stages(ref, [one.ref_id for one in made if one is not parent]))
            part.requisite_stage_ref_ids &= {*PARTS} if draw(st.integers(0, 3)) else {*REFS, *PARTS}
            part.join_threshold = min(part.join_threshold, len(part.requisite_stage_ref_ids))
            part.parent_stage_id = parent.id
            part.synthetic_stage_owner = draw(st.sampled_from(SyntheticStageOwner))
            made.append(part)
    pipeline: dict[str, Any] = {}
    if draw(st.integers(0, 2)) == 0:
        pipeline = {"pipeline_config_id": "line", "is_limit_concurrent": True, "max_concurrent_executions": 1}
    try:
        return Workflow.create("shop", "random", made, **pipeline)
    except WorkflowDefinitionError:
        return None
