"""What is done in one go comes to the same as what is done at length."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InvalidStateTransitionError, TaskError
from holdfast.machine.gates import skip_by_hand
from holdfast.machine.graph import JoinType, SplitType
from holdfast.machine.instances import Stages
from holdfast.machine.jump import jump
from holdfast.machine.restart import restart
from holdfast.machine.run import Advance, Owner, Plan, StagePlan, StageState, Wait
from holdfast.machine.workflow import COMPLETE, TRANSITIONS, WorkflowStatus
from holdfast.store.codec import objects_to_json, plain_to_json
from tests.machine.test_run import TASK, Engine, by_chance, entries, plan_of, plans

S = WorkflowStatus


def at_length(plan: Plan) -> Plan:
    """The same graph, of which no stage is taken for an ordinary one."""
    stages = {}
    for ref, one in plan.stages.items():
        stages[ref] = StagePlan(**{name: getattr(one, name) for name in _GIVEN})
        object.__setattr__(stages[ref], "is_plain", False)
    return Plan(Stages(stages), plan.roots)


_GIVEN = [name for name in StagePlan.__slots__ if name not in ("works", "word", "is_plain")]


def told(step: Advance) -> list[Any]:
    return [
        entries(step),
        step.work,
        sorted(step.changed),
        step.dropped,
        step.cancels,
        step.cleanups,
        [*step.announced],
    ]


def standing(stage: StageState) -> dict[str, Any]:
    slots = {name: getattr(stage, name) for name in StageState.__slots__ if name not in ("plan", "tasks")}
    tasks = [{name: getattr(task, name) for name in type(task).__slots__} for task in stage.tasks]
    return slots | {"tasks": tasks}


class Way:
    """One of the two. Both take the same turns, by the same chance."""

    def __init__(self, plan: Plan, seed: int) -> None:
        self.engine = Engine(plan, Random(seed))
        self.random = Random(seed)
        self._any = by_chance(self.random, list(plan.stages))
        self.step = self.engine.step(lambda step: step.start())

    def turn(self) -> str:
        """Take a turn; gives the name of the error if it is refused."""
        try:
            is_idle = not self.engine.work
            self.step = self.engine.step(self._ask if is_idle or self.random.random() < 0.1 else self._work)
        except (TaskError, InvalidStateTransitionError) as error:
            return type(error).__name__
        return ""

    def _work(self, step: Advance) -> None:
        """What has come of some tasks, in one step, as a worker stores it."""
        engine, random = self.engine, self.random
        for number in range(min(random.choice((1, 1, 1, 2, 3)), len(engine.work))):
            work, incarnation = engine.work.pop(random.randrange(len(engine.work)))
            stage = engine.stages[work.ref]
            if stage.incarnation != incarnation or stage.status in COMPLETE or engine.run.status in COMPLETE:
                continue
            if work.waits:
                step.fire(work.kind, work.ref)
            elif (
                number or random.random() < 0.6
            ):  # what begins stages anew comes first: the engine stamps work at the end
                step.succeed(work.ref, {"at": work.at}, {})
            else:
                self._any(work, step)

    def _ask(self, step: Advance) -> None:
        """What somebody asks for."""
        random, ref = self.random, self.random.choice(list(step.plan.stages))
        match random.choice(("restart", "skip", "finalizer", "cancel")):
            case "restart":
                restart(step, [ref], "ann")
            case "skip" if step.stage(ref).status not in COMPLETE:
                skip_by_hand(step, step.touch(ref), "ann")
            case "finalizer":
                step.add_finalizer(ref, "clean", step.stage(ref).incarnation)
            case "cancel" if random.random() < 0.1 and step.run.status not in COMPLETE:
                step.cancel("enough", "ann")


def compared(plan: Plan, seed: int) -> None:
    """Take the same turns both ways."""
    ways = one, other = Way(plan, seed), Way(at_length(plan), seed)
    for _ in range(60):
        assert told(one.step) == told(other.step)
        for ref in one.engine.stages:
            assert standing(one.engine.stages[ref]) == standing(other.engine.stages[ref]), ref
        for name in type(one.engine.run).__slots__:
            assert getattr(one.engine.run, name) == getattr(other.engine.run, name), name
        assert one.engine.work == other.engine.work
        refused, again = (way.turn() for way in ways)
        assert refused == again
        if refused:
            break  # what a step has done until it was refused is thrown away


@st.composite
def ordinary_plans(draw: Any) -> Plan:
    """Graphs in which most stages are ordinary ones."""
    requires: dict[str, tuple[str, ...]] = {}
    fields: dict[str, dict[str, Any]] = {}
    for at in range(draw(st.integers(2, 7))):
        ref = f"s{at}"
        requires[ref] = tuple(one for one in requires if draw(st.integers(0, 2)) == 0)
        special: dict[str, Any] = {
            "split": SplitType.OR, "join": draw(st.sampled_from(JoinType)), "tasks": (TASK, TASK), "limit_s": 5.0,
            "allow_sibling_stages_to_continue": True, "continue_on_failure": True, "fail_pipeline": False,
        }  # fmt: skip
        chosen = draw(st.sampled_from([*special, *[""] * 12]))
        fields[ref] = {chosen: special[chosen]} if chosen else {}
    return plan_of(requires, **fields)


@settings(max_examples=300, deadline=None)
@given(plan=plans(), seed=st.integers(0, 10_000))
def test_any_workflow_goes_the_same_way_in_one_go_and_at_length(plan: Plan, seed: int) -> None:
    compared(plan, seed)


@settings(max_examples=600, deadline=None)
@given(plan=ordinary_plans(), seed=st.integers(0, 10_000))
def test_so_does_one_of_ordinary_stages(plan: Plan, seed: int) -> None:
    compared(plan, seed)


def test_a_chain_of_ordinary_stages_is_done_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(plan_of({"a": (), "b": ("a",), "c": ("b",)}))
    engine.start()
    monkeypatch.setattr(Advance, "end_task", None)
    engine.drain(lambda work, step: step.succeed(work.ref, {"result": work.ref}, {}))
    assert engine.run.status is S.SUCCEEDED
    assert {one.outputs["result"] for one in engine.stages.values()} == {"a", "b", "c"}


@pytest.mark.parametrize("ref", ["a", 'a "quoted" one', "näme\n", "😀"])
def test_the_log_of_what_is_done_in_one_go_has_the_text_that_the_encoder_makes(ref: str) -> None:
    plan = plan_of({"first": (), ref: ("first",)})
    ways = [Engine(plan), Engine(at_length(plan))]
    texts = []
    for way in ways:
        way.start()
        steps = [way.step(lambda step, one=one: step.succeed(one, {}, {})) for one in ("first", ref)]  # type: ignore[misc]
        texts.append([objects_to_json(step.events) for step in steps])
    assert texts[0] == texts[1]
    assert texts[0][0] == plain_to_json(entries(steps[0]))


@pytest.mark.parametrize(
    "fields",
    [
        {"tasks": (TASK, TASK)},
        {"tasks": ()},
        {"join": JoinType.MULTI_MERGE},
        {"join": JoinType.DISCRIMINATOR},
        {"join": JoinType.N_OF_M},
        {"split": SplitType.OR},
        {"limit_s": 1.0},
        {"scheduled_at": 0},
        {"expires_at": 0},
        {"peers": ("b",)},
        {"rivals": ("b",)},
        {"watched_by": ("b",)},
        {"cancel_region": ("b",)},
        {"milestone": ("b", S.RUNNING)},
        {"parent": "b", "owner": Owner.STAGE_BEFORE},
        {"children": {Owner.STAGE_AFTER: ("b",)}},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_stage_with_anything_to_it_is_no_ordinary_one(fields: dict[str, Any]) -> None:
    assert StagePlan(ref="a", tasks=(TASK,)).is_plain
    assert not StagePlan(**{"ref": "a", "tasks": (TASK,), **fields}).is_plain


@pytest.mark.parametrize(
    ("change", "ends"),
    [
        (lambda one: setattr(one["a"], "flawed", True), S.FAILED_CONTINUE),
        (lambda one: setattr(one["a"].tasks[0], "status", S.RUNNING), S.SUCCEEDED),
        (lambda one: setattr(one["b"], "fired", 1), S.SUCCEEDED),
    ],
    ids=["a part has failed", "its task was stored as running", "the next one has begun before"],
)
def test_a_stage_that_is_not_as_it_was_at_first_goes_on_at_length(change: Any, ends: WorkflowStatus) -> None:
    plan = plan_of({"a": (), "b": ("a",)})
    engines = [Engine(plan), Engine(at_length(plan))]
    steps = []
    for engine in engines:
        engine.start()
        change(engine.stages)
        steps.append(engine.step(lambda step: step.succeed("a", {}, {})))
    assert engines[0].stages["a"].status is ends
    assert told(steps[0]) == told(steps[1])
    assert [standing(one) for one in engines[0].stages.values()] == [
        standing(one) for one in engines[1].stages.values()
    ]


def test_the_answer_of_a_stage_that_has_ended_in_the_same_step_changes_nothing() -> None:
    engine = Engine(plan_of({"a": (), "b": ("a",), "c": ()}))
    engine.start()
    engine.step(lambda step: (step.cancel_stage("a"), step.succeed("a", {}, {})))
    assert engine.statuses() == {"a": S.CANCELED, "b": S.SKIPPED, "c": S.RUNNING}


def test_a_stage_that_a_jump_has_begun_does_not_begin_again_when_the_last_one_before_it_ends() -> None:
    engine = Engine(plan_of({"a": (), "b": (), "c": ("a", "b")}))
    engine.start()
    engine.step(lambda step: jump(step, "a", "c", {}, {}))
    step = engine.step(lambda step: step.succeed("b", {}, {}))
    assert [one["type"] for one in entries(step)] == ["task_ended", "stage_ended"]
    assert engine.statuses() == {"a": S.SUCCEEDED, "b": S.SUCCEEDED, "c": S.RUNNING}


def test_a_stage_that_waits_cannot_succeed() -> None:
    engine = Engine(plan_of({"a": ()}))
    engine.start()
    engine.step(lambda step: step.suspend("a", Wait("go", None)))
    with pytest.raises(InvalidStateTransitionError, match="SUSPENDED"):
        engine.step(lambda step: step.succeed("a", {}, {}))


def test_what_is_done_in_one_go_is_in_the_table_of_transitions() -> None:
    assert S.RUNNING in TRANSITIONS[S.NOT_STARTED]
    assert S.SUCCEEDED in TRANSITIONS[S.RUNNING]


def test_a_stage_that_waits_or_was_asked_to_be_skipped_goes_on_at_length() -> None:
    engine = Engine(plan_of({"a": (), "b": ("a",)}))
    engine.start()
    engine.step(lambda step: step.suspend("a", Wait("go", None)))
    engine.step(lambda step: setattr(step.touch("b"), "unwanted", True))
    engine.step(lambda step: step.resume("a", "go", 1))
    assert engine.statuses() == {"a": S.SUCCEEDED, "b": S.SKIPPED}
    assert engine.run.status is S.SUCCEEDED
