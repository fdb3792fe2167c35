"""Workflows that are put together stage by stage: joins, splits, failures, jumps, parts of stages."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import TransientError, WorkflowDefinitionError
from holdfast.machine.graph import JoinType, SplitType
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.port import Store
from holdfast.testing.clock import ManualClock
from holdfast.workflows.messages import StartWorkflow
from holdfast.workflows.model import Workflow
from holdfast.workflows.multi_instance import MultiInstanceConfig
from holdfast.workflows.owner import SyntheticStageOwner
from holdfast.workflows.records import DEFINITION
from holdfast.workflows.result import TaskResult
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task import Task
from holdfast.workflows.task_context import current_task
from holdfast.workflows.task_run import TaskExecution
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows
from tests.workflows.journal import Journal, stage, start

S = WorkflowStatus


@pytest.fixture
def journal(flows: Workflows) -> Journal:
    return Journal(flows)


def test_a_diamond_runs_in_order(flows: Workflows, worker: WorkflowWorker, journal: Journal) -> None:
    run = start(flows, stage("a"), stage("b", "a"), stage("c", "a"), stage("d", "b", "c"))
    worker.run_once()
    assert run.status is S.SUCCEEDED
    assert (journal.ran[0], sorted(journal.ran[1:3]), journal.ran[3]) == ("a", ["b", "c"], "d")


def test_a_stage_sees_what_stages_before_it_have_left(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    seen: dict[str, Any] = {}

    class Looks(Task):
        def execute(self, stage: StageExecution) -> TaskResult:
            seen.update(own=dict(stage.context), a=stage.context["a"], none=stage.context.get("z", "nothing"))
            return TaskResult.success()

    flows.registry.register("looks", Looks)
    last = stage("c", "b", context={"mine": 1})
    last.tasks[0].implementing_class = "looks"
    run = start(flows, stage("a"), stage("b", "a"), last)
    worker.run_once()
    assert run.status is S.SUCCEEDED
    assert seen == {"own": {"mine": 1}, "a": 1, "none": "nothing"}


def test_the_first_of_two_opens_a_discriminator_once(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    run = start(flows, stage("a"), stage("b"), stage("c", "a", "b", join_type=JoinType.DISCRIMINATOR))
    worker.run_once()
    assert (run.status, journal.ran.count("c")) == (S.SUCCEEDED, 1)


def test_a_multi_merge_runs_for_each(flows: Workflows, worker: WorkflowWorker, journal: Journal) -> None:
    run = start(flows, stage("a"), stage("b"), stage("c", "a", "b", join_type=JoinType.MULTI_MERGE), stage("d", "c"))
    worker.run_once()
    assert run.status is S.SUCCEEDED
    assert (journal.ran.count("c"), journal.ran.count("d")) == (2, 1)


def test_two_of_three_are_enough_and_too_few_skip(flows: Workflows, worker: WorkflowWorker, journal: Journal) -> None:
    journal.answers["a"] = [TaskResult.stopped()]
    two = {"join_type": JoinType.N_OF_M, "join_threshold": 2}
    run = start(flows, stage("a"), stage("b"), stage("c"), stage("d", "a", "b", "c", **two))
    worker.run_once()
    assert (run.status, journal.ran.count("d")) == (S.SUCCEEDED, 1)
    journal.answers |= {"a": [TaskResult.stopped()], "b": [TaskResult.stopped()]}
    again = start(flows, stage("a"), stage("b"), stage("c"), stage("d", "a", "b", "c", **two))
    worker.run_once()
    assert flows.stages(again.id)["d"] is S.SKIPPED


def test_a_split_takes_the_branches_whose_condition_holds(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    conditions = {"b": "total > 100", "c": "total <= 100"}
    journal.answers["a"] = [TaskResult.success({"total": 150})]
    run = start(
        flows,
        stage("a", split_type=SplitType.OR, split_conditions=conditions),
        stage("b", "a"),
        stage("c", "a"),
        stage("d", "b", "c", join_type=JoinType.OR),
    )
    worker.run_once()
    assert flows.stages(run.id) == {"a": S.SUCCEEDED, "b": S.SUCCEEDED, "c": S.SKIPPED, "d": S.SUCCEEDED}


def test_a_disabled_stage_is_skipped_and_what_follows_runs(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    journal.answers["a"] = [TaskResult.success({"wanted": False})]
    run = start(flows, stage("a"), stage("b", "a", enabled="wanted"), stage("c", "b"))
    worker.run_once()
    assert (run.status, journal.ran) == (S.SUCCEEDED, ["a", "c"])


@pytest.mark.parametrize(
    ("flags", "statuses", "ends"),
    [
        ({}, [S.TERMINAL, S.SKIPPED, S.CANCELED], S.TERMINAL),
        ({"continue_on_failure": True}, [S.FAILED_CONTINUE, S.SUCCEEDED, S.SUSPENDED], S.RUNNING),
        ({"fail_pipeline": False}, [S.STOPPED, S.SKIPPED, S.SUSPENDED], S.RUNNING),
        ({"allow_sibling_stages_to_continue": True}, [S.TERMINAL, S.SKIPPED, S.SUSPENDED], S.RUNNING),
    ],
)
def test_what_a_failure_does_to_the_others(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, flags: Any, statuses: list[WorkflowStatus], ends: Any
) -> None:
    journal.answers |= {"a": [TaskResult.wait_signal("go"), TaskResult.terminal("no")], "w": [TaskResult.suspend()]}
    run = start(flows, stage("a", **flags), stage("b", "a"), stage("w"))
    worker.run_once()
    assert flows.signal(run.id, "go")
    worker.run_once()
    assert list(flows.stages(run.id).values()) == statuses
    assert run.status is ends


def test_a_jump_back_runs_the_way_again(flows: Workflows, worker: WorkflowWorker, journal: Journal) -> None:
    journal.answers["c"] = [TaskResult.jump_to("a", {"again": True})]
    run = start(flows, stage("a"), stage("b", "a"), stage("c", "b"), stage("d", "c"))
    worker.run_once()
    assert run.status is S.SUCCEEDED
    assert journal.ran == ["a", "b", "c", "a", "b", "c", "d"]


def test_a_jump_forward_leaves_out_what_is_between(flows: Workflows, worker: WorkflowWorker, journal: Journal) -> None:
    journal.answers["a"] = [TaskResult.jump_to("d")]
    run = start(flows, stage("a"), stage("b", "a"), stage("c", "b"), stage("d", "c"))
    worker.run_once()
    assert (run.status, journal.ran) == (S.SUCCEEDED, ["a", "d"])
    assert flows.stages(run.id)["b"] is S.SKIPPED


def test_a_jump_to_what_has_begun_beside_it_starts_nothing_and_the_log_says_so(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    journal.answers["a"] = [TaskResult.wait_signal("go"), TaskResult.jump_to("z")]
    run = start(flows, stage("a"), stage("b", "a"), stage("z"))
    worker.run_once()
    assert flows.signal(run.id, "go")
    worker.run_once()
    assert (run.status, sorted(journal.ran)) == (S.SUCCEEDED, ["a", "a", "b", "z"])
    assert [entry.facts.get("found") for entry in flows.log(run.id) if entry.type == "jumped"] == ["SUCCEEDED"]


def test_a_stage_may_not_jump_for_ever(flows: Workflows, worker: WorkflowWorker, journal: Journal) -> None:
    journal.answers["a"] = [TaskResult.jump_to("a")] * 20
    run = start(flows, stage("a"))
    worker.run_once()
    assert (run.status, len(journal.ran)) == (S.TERMINAL, 11)
    assert "10 times" in (flows.record(run.id).reason or "")


def test_the_parts_of_a_stage_run_before_and_after_its_tasks(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    whole = stage("whole")
    part = {"parent_stage_id": whole.id}
    run = start(
        flows,
        whole,
        stage("first", synthetic_stage_owner=SyntheticStageOwner.STAGE_BEFORE, **part),
        stage("last", synthetic_stage_owner=SyntheticStageOwner.STAGE_AFTER, **part),
        stage("sorry", synthetic_stage_owner=SyntheticStageOwner.STAGE_ON_FAILURE, **part),
        stage("next", "whole"),
    )
    worker.run_once()
    assert (run.status, journal.ran) == (S.SUCCEEDED, ["first", "whole", "last", "next"])


def test_a_failing_stage_runs_what_is_there_for_that(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    whole = stage("whole")
    sorry = stage("sorry", parent_stage_id=whole.id, synthetic_stage_owner=SyntheticStageOwner.STAGE_ON_FAILURE)
    journal.answers["whole"] = [TaskResult.terminal("no")]
    run = start(flows, whole, sorry)
    worker.run_once()
    assert (run.status, journal.ran) == (S.TERMINAL, ["whole", "sorry"])


def test_a_running_task_is_called_again_after_a_while(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, clock: ManualClock
) -> None:
    journal.answers["a"] = [TaskResult.running({"seen": 1}), TaskResult.running()]
    run = start(flows, stage("a"))
    for _ in range(4):
        worker.run_once()
        clock.advance(10)
    assert (run.status, journal.ran) == (S.SUCCEEDED, ["a", "a", "a"])


def test_a_suspended_task_is_called_again_with_the_signal(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    journal.answers["a"] = [TaskResult.wait_signal("go")]
    run = start(flows, stage("a"))
    worker.run_once()
    assert flows.stages(run.id)["a"] is S.SUSPENDED
    assert flows.signal(run.id, "go", 7)
    worker.run_once()
    assert (run.status, journal.ran) == (S.SUCCEEDED, ["a", "a"])


@pytest.mark.parametrize("asks", ["running", "sleep", "signal", "early signal"])
def test_what_asks_to_be_called_again_has_all_its_tries_left(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock, asks: str
) -> None:
    calls: list[int] = []

    def poll(stage: StageExecution) -> TaskResult | None:
        here = current_task()
        assert here is not None
        calls.append(here.attempt)
        if len(calls) > 12 + 9:
            return None
        if len(calls) > 12:
            raise TransientError("the line is bad", retry_after=60)
        if asks == "running":
            return TaskResult.running()
        return TaskResult.sleep(60) if asks == "sleep" else TaskResult.wait_signal("go")

    flows.registry.register("poll", poll)
    polled = StageExecution.create("poll", "a", "a", tasks=[TaskExecution.create("poll", "poll")])
    run = flows.start(Workflow.create("shop", "polled", [polled]))
    for _ in range(12 if asks == "early signal" else 0):
        assert not flows.signal(run.id, "go")
    for number in range(1, 24):
        worker.run_once()
        if asks == "signal" and number <= 12:
            assert flows.signal(run.id, "go")
        clock.advance(100)
    assert (run.status, calls) == (S.SUCCEEDED, list(range(1, 23)))


def test_a_task_that_asks_to_be_called_again_has_no_more_tries_than_others(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    calls: list[int] = []

    def poll(stage: StageExecution) -> TaskResult:
        calls.append(len(calls))
        if len(calls) == 9:
            return TaskResult.running()
        raise TransientError("the line is bad", retry_after=60)

    flows.registry.register("poll", poll)
    polled = StageExecution.create("poll", "a", "a", tasks=[TaskExecution.create("poll", "poll")])
    run = flows.start(Workflow.create("shop", "polled", [polled]))
    for _ in range(30):
        worker.run_once()
        clock.advance(100)
    assert (run.status, len(calls)) == (S.TERMINAL, 9 + 10)


@pytest.mark.parametrize("fields", [{}, {"continue_on_failure": True}])
def test_a_stage_of_which_nobody_can_say_whether_it_is_wanted_fails_and_not_the_one_before_it(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, fields: dict[str, Any]
) -> None:
    run = start(flows, stage("a"), stage("b", "a", enabled="a < 'text'", **fields), stage("c", "b"))
    worker.run_once()
    after = {"b": S.FAILED_CONTINUE, "c": S.SUCCEEDED} if fields else {"b": S.TERMINAL, "c": S.SKIPPED}
    assert flows.stages(run.id) == {"a": S.SUCCEEDED, **after}
    assert flows.workflow(run.id).stage("a").outputs == {"a": 1}
    assert run.status is (S.SUCCEEDED if fields else S.TERMINAL)


def test_a_stage_fails_for_good_if_nobody_can_say_whether_it_is_wanted_nor_where_it_goes_on(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    odd = {"enabled": "a < 'text'", "split_type": SplitType.OR, "split_conditions": {"c": "a < 'text'"}}
    run = start(flows, stage("a"), stage("b", "a", continue_on_failure=True, **odd), stage("c", "b"))
    worker.run_once()
    assert flows.stages(run.id) == {"a": S.SUCCEEDED, "b": S.TERMINAL, "c": S.SKIPPED}
    assert run.record.reason == "condition \"a < 'text'\": int and str have no order"


def test_a_stage_that_fails_before_it_has_begun_has_its_time_limit_and_is_seen_by_those_that_wait_for_it(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, clock: ManualClock
) -> None:
    journal.answers["undo"] = [TaskResult.suspend()]
    bad = stage("b", enabled="order < 'text'", stage_timeout=60)
    undo = stage("undo", parent_stage_id=bad.id, synthetic_stage_owner=SyntheticStageOwner.STAGE_ON_FAILURE)
    watches = stage("m", milestone_ref_id="b", milestone_status=S.RUNNING)
    run = start(flows, watches, bad, undo, context={"order": {}})
    worker.run_once()
    assert flows.stages(run.id) == {"m": S.SUCCEEDED, "b": S.RUNNING, "undo": S.SUSPENDED}
    clock.advance(100.0)
    worker.run_once()
    assert flows.stages(run.id) == {"m": S.SUCCEEDED, "b": S.TERMINAL, "undo": S.CANCELED}


@pytest.mark.parametrize("how", ["started", "stored", "skipped"])
def test_whoever_begins_a_workflow_or_moves_it_on_hears_nothing_of_a_condition_that_cannot_be_told(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, how: str
) -> None:
    journal.answers["a"] = [TaskResult.suspend()]
    bad = stage("b", *(["a"] if how == "skipped" else []), enabled="order < 'text'")
    made = Workflow.create("shop", "bad", [*([stage("a")] if how == "skipped" else []), bad], context={"order": {}})
    if how == "stored":
        flows.queue.push(StartWorkflow(execution_id=flows.store.store(made).id))
    else:
        flows.start(made)
    worker.run_once()
    if how == "skipped":
        flows.skip(made.id, "a")
    run = flows.get(made.id)
    assert (run.status, flows.stages(run.id)["b"]) == (S.TERMINAL, S.TERMINAL)
    assert run.record.reason == "condition \"order < 'text'\": dict and str have no order"


def test_what_cannot_be_run_is_refused_at_the_start(flows: Workflows, journal: Journal) -> None:
    odd = stage("a")
    odd.tasks[0].implementing_class = "unheard-of"
    with pytest.raises(WorkflowDefinitionError, match="unheard-of"):
        start(flows, odd)
    with pytest.raises(WorkflowDefinitionError, match="verification"):
        start(flows, stage("a", verification={"required": ["x"]}))
    with pytest.raises(WorkflowDefinitionError, match="begin"):
        flows.start(Workflow(application="shop", name="empty"))


def test_a_stage_with_nothing_to_do_is_refused(flows: Workflows, journal: Journal) -> None:
    with pytest.raises(WorkflowDefinitionError, match=r"'idle'.*'no-such-type'.*neither tasks nor parts") as caught:
        start(flows, stage("a"), StageExecution.create("no-such-type", "idle", "idle"))
    assert (caught.value.code, caught.value.members) == ("unknown_stage_type", ("idle",))


def test_a_stage_whose_only_part_is_for_its_failure_has_nothing_to_do(flows: Workflows, journal: Journal) -> None:
    whole = StageExecution.create("group", "whole", "whole")
    sorry = stage("sorry", parent_stage_id=whole.id, synthetic_stage_owner=SyntheticStageOwner.STAGE_ON_FAILURE)
    with pytest.raises(WorkflowDefinitionError, match="whole"):
        start(flows, whole, sorry)


def test_a_stage_of_parts_alone_runs(flows: Workflows, worker: WorkflowWorker, journal: Journal) -> None:
    whole = StageExecution.create("group", "whole", "whole")
    part = stage("part", parent_stage_id=whole.id, synthetic_stage_owner=SyntheticStageOwner.STAGE_BEFORE)
    run = start(flows, whole, part)
    worker.run_once()
    assert (run.status, journal.ran) == (S.SUCCEEDED, ["part"])


def test_a_join_combines_what_its_branches_left_as_its_reducers_say(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    seen: dict[str, int] = {}

    def look(stage: StageExecution) -> TaskResult:
        seen[stage.id.rpartition(".")[2]] = stage.context["total"]
        return TaskResult.success()

    flows.registry.register("looks", look)
    journal.answers |= {"a": [TaskResult.success({"total": 3})], "b": [TaskResult.success({"total": 4})]}
    join = stage("join", "a", "b", output_reducers={"total": "sum"})
    part = stage("part", parent_stage_id=join.id, synthetic_stage_owner=SyntheticStageOwner.STAGE_BEFORE)
    others = [part, join, stage("after", "join"), stage("plain", "a", "b")]
    for one in others:
        one.tasks[0].implementing_class = "looks"
    run = start(flows, stage("a"), stage("b"), *others)
    worker.run_once()
    assert run.status is S.SUCCEEDED
    assert seen == {"part": 7, "join": 7, "after": 7, "plain": 4}


def test_a_condition_sees_what_reducers_made(flows: Workflows, worker: WorkflowWorker, journal: Journal) -> None:
    journal.answers |= {"a": [TaskResult.success({"total": 3})], "b": [TaskResult.success({"total": 4})]}
    run = start(
        flows, stage("a"), stage("b"), stage("c", "a", "b", output_reducers={"total": "sum"}, enabled="total == 7")
    )
    worker.run_once()
    assert (run.status, flows.stages(run.id)["c"]) == (S.SUCCEEDED, S.SUCCEEDED)


def test_values_that_a_reducer_cannot_take_fail_the_join(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    journal.answers["a"] = [TaskResult.success({"total": "three"})]
    run = start(flows, stage("a"), stage("b", "a", output_reducers={"total": "sum"}))
    worker.run_once()
    assert list(flows.stages(run.id).values()) == [S.SUCCEEDED, S.TERMINAL]
    assert "sum needs numbers" in (flows.record(run.id).reason or "")


def test_a_reducer_that_nobody_knows_is_refused_with_its_stage(flows: Workflows, journal: Journal) -> None:
    with pytest.raises(WorkflowDefinitionError, match=r"'b'.*no reducer 'mix'") as caught:
        start(flows, stage("a"), stage("b", "a", output_reducers={"total": "mix"}))
    assert (caught.value.code, caught.value.members) == ("unknown_reducer", ("b",))


def test_equal_models_have_one_definition_and_ids_of_their_own(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, store: Store
) -> None:
    def model() -> list[StageExecution]:
        whole = stage("whole", mi_config=MultiInstanceConfig(count=2))
        owner = SyntheticStageOwner.STAGE_AFTER
        return [stage("a"), whole, stage("part", parent_stage_id=whole.id, synthetic_stage_owner=owner)]

    runs = [start(flows, *model()) for _ in range(3)]
    assert len(store.page(DEFINITION, limit=10)) == 1
    before = [flows.workflow(run.id) for run in runs]
    worker.run_once()
    for run, first in zip(runs, before, strict=True):
        found = flows.workflow(run.id)
        assert run.status is S.SUCCEEDED
        assert {one.ref_id: one.id for one in found.stages} == {
            ref: f"{run.id}.{ref}" for ref in ("a", "whole", "part", "whole#1.0", "whole#1.1")
        }
        assert {one.ref_id: one.id for one in first.stages}.items() <= {
            one.ref_id: one.id for one in found.stages
        }.items()
        assert [task.id for one in found.stages for task in one.tasks] == [f"{one.id}.0" for one in found.stages]
        parts = {
            one.ref_id: found.stage_by_id(one.parent_stage_id).ref_id for one in found.stages if one.parent_stage_id
        }
        assert parts == {"part": "whole", "whole#1.0": "whole", "whole#1.1": "whole"}


def test_a_task_sees_the_ids_that_are_shown_of_its_stage(flows: Workflows, worker: WorkflowWorker) -> None:
    seen: list[str] = []

    def look(stage: StageExecution) -> TaskResult:
        seen.extend((stage.id, *(task.id for task in stage.tasks)))
        return TaskResult.success()

    flows.registry.register("noted", look)
    run = start(flows, stage("a"))
    worker.run_once()
    assert seen == [f"{run.id}.a", f"{run.id}.a.0"]


def test_the_same_key_gives_the_first_of_equal_models(flows: Workflows, journal: Journal) -> None:
    first, second = (start(flows, stage("a"), idempotency_key="order-7") for _ in range(2))
    assert second.id == first.id
