"""A workflow, step by step in memory: whatever its graph and its tasks do, its end can be explained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InvalidStateTransitionError, TaskError
from holdfast.machine.by_hand import cancel
from holdfast.machine.computed_status import stage_status, workflow_status
from holdfast.machine.gates import UNDER_WAY, skip_by_hand
from holdfast.machine.graph import Edges, JoinType, SkipCause, SplitType, downstream
from holdfast.machine.instances import Stages, names_of
from holdfast.machine.jump import jump
from holdfast.machine.restart import failed, restart
from holdfast.machine.run import (
    Advance,
    Instances,
    Owner,
    Part,
    Plan,
    RunState,
    StagePlan,
    StageState,
    TaskPlan,
    Wait,
    Work,
)
from holdfast.machine.workflow import ACTIVE, COMPLETE, WorkflowStatus
from holdfast.store.codec import from_json

S = WorkflowStatus
TASK = TaskPlan(name="t", type="t")


class Chance:
    """A judge that decides by chance."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def branches(self, stage: StageState) -> list[str] | None:
        return [ref for ref in stage.plan.after if self.random.random() < 0.6] or list(stage.plan.after[:1])

    def skips(self, stage: StageState) -> SkipCause | None:
        return SkipCause.DISABLED if self.random.random() < 0.1 else None

    def instances(self, stage: StageState) -> list[Any]:
        return [None] * self.random.randrange(4)


class Engine:
    """Does in memory what a worker does with a store."""

    def __init__(self, plan: Plan, random: Random | None = None) -> None:
        self.plan = plan
        self.run = RunState()
        self.stages = {ref: StageState(one) for ref, one in plan.stages.items()}
        self.work: list[tuple[Work, int]] = []
        self.random = random or Random(0)
        self.now = 0
        self.judged = random is not None
        self.met: set[frozenset[str]] = set()
        """Stages that were under way at the same time."""

    def step(self, act: Callable[[Advance], None]) -> Advance:
        self.now += 1
        judge = {"judge": Chance(self.random)} if self.judged else {}
        step = Advance(self.plan, self.run, self.stages, self.now, **judge)
        act(step)
        if step.cancels:
            for ref in [ref for ref, one in self.stages.items() if one.status in ACTIVE - {S.NOT_STARTED}]:
                step.cancel_stage(ref)
            self.work.clear()
        else:
            self.work = [one for one in self.work if one[0].ref not in step.dropped]
            self.work += [(one, self.stages[one.ref].incarnation) for one in step.wanted()]
        assert self.run.live == sum(one.status in ACTIVE - {S.NOT_STARTED} for one in self.stages.values())
        busy = [ref for ref, one in self.stages.items() if one.status in UNDER_WAY]
        self.met |= {frozenset((one, other)) for one in busy for other in busy if one != other}
        return step

    def start(self) -> None:
        self.step(lambda step: step.start())

    def next(self, answer: Callable[[Work, Advance], None]) -> None:
        """Take up one thing that is to be done."""
        work, incarnation = self.work.pop(self.random.randrange(len(self.work)))
        stage = self.stages[work.ref]
        if stage.incarnation == incarnation and stage.status not in COMPLETE:
            self.step(lambda step: step.fire(work.kind, work.ref) if work.waits else answer(work, step))

    def drain(self, answer: Callable[[Work, Advance], None]) -> None:
        for _ in range(2000):
            if self.run.status in COMPLETE or not self.work:
                return
            self.next(answer)
        raise AssertionError("it goes on for ever")

    def statuses(self) -> dict[str, WorkflowStatus]:
        return {ref: one.status for ref, one in self.stages.items()}


def entries(step: Advance) -> list[dict[str, Any]]:
    """What the log says of a step."""
    return [from_json(one) if isinstance(one, str) else one for one in step.events]


def well(work: Work, step: Advance) -> None:
    step.succeed(work.ref, {}, {})


def failing(*refs: str) -> Callable[[Work, Advance], None]:
    def answer(work: Work, step: Advance) -> None:
        if work.ref in refs:
            step.fail(work.ref, {"type": "X", "message": "no"})
        else:
            well(work, step)

    return answer


def plan_of(requires: Mapping[str, tuple[str, ...]], **fields: Mapping[str, Any]) -> Plan:
    """A graph of stages with one task each; `fields` says what else there is to a stage."""
    after = downstream(requires)
    stages = {
        ref: StagePlan(ref=ref, before=before, after=tuple(after[ref]), **{"tasks": (TASK,), **fields.get(ref, {})})
        for ref, before in requires.items()
    }
    for ref, one in stages.items():
        mine = [part for part in stages.values() if part.parent == ref]
        kin = {owner: refs for owner in Owner if (refs := tuple(part.ref for part in mine if part.owner is owner))}
        watched = tuple(other.ref for other in stages.values() if other.milestone and other.milestone[0] == ref)
        stages[ref] = replace(one, children=kin, watched_by=watched)
    return Plan(Stages(stages), tuple(ref for ref, one in stages.items() if not one.before and one.parent is None))


@st.composite
def plans(draw: Any) -> Plan:
    """Any graph: joins, splits, flags, parts, gates."""
    number = draw(st.integers(1, 6))
    names = [f"s{n}" for n in range(number)]
    requires: dict[str, tuple[str, ...]] = {}
    fields: dict[str, dict[str, Any]] = {}
    flag = st.booleans()
    for at, ref in enumerate(names):
        before = tuple(one for one in names[:at] if draw(flag))
        requires[ref] = before
        fields[ref] = {
            "tasks": (TASK,) * draw(st.integers(0, 2)),
            "join": draw(st.sampled_from(JoinType)),
            "threshold": draw(st.integers(0, len(before))),
            "split": draw(st.sampled_from(SplitType)),
            "continue_on_failure": draw(flag),
            "fail_pipeline": draw(flag),
            "allow_sibling_stages_to_continue": draw(flag),
            "complete_other_branches_then_fail": draw(flag),
            "limit_s": draw(st.sampled_from((None, 5.0))),
            "scheduled_at": draw(st.sampled_from((None, None, 10))),
            "expires_at": draw(st.sampled_from((None, None, 10))),
            "instances": draw(
                st.one_of(st.none(), st.builds(Instances, st.integers(0, 2), flag, st.just(False), flag))
            ),
        }
        if fields[ref]["join"] is JoinType.MULTI_MERGE:
            fields[ref]["instances"] = None
        if at and draw(st.integers(0, 4)) == 0:
            fields[ref]["milestone"] = (
                names[draw(st.integers(0, at - 1))],
                draw(st.sampled_from((S.RUNNING, S.SUCCEEDED))),
            )
    _add_kin(draw, names, fields)
    whole = [one for one in names if not (several := fields[one]["instances"]) or several.sync_on_complete]
    for ref in [one for one in whole if draw(st.integers(0, 3)) == 0]:
        for owner in (Owner.STAGE_BEFORE, Owner.STAGE_AFTER, Owner.STAGE_ON_FAILURE):
            part = f"{ref}-{owner.value[-3:].lower()}"
            requires[part] = ()
            fields[part] = {"parent": ref, "owner": owner, "continue_on_failure": draw(flag)}
    return plan_of(requires, **fields)


def _add_kin(draw: Any, names: list[str], fields: dict[str, dict[str, Any]]) -> None:
    for kind in ("peers", "rivals"):
        group = [ref for ref in names if draw(st.integers(0, 2)) == 0]
        for ref in group:
            fields[ref][kind] = tuple(one for one in group if one != ref)
    if draw(st.booleans()):
        fields[names[-1]]["cancel_region"] = tuple(one for one in names[:-1] if draw(st.booleans()))


def by_chance(random: Random, names: list[str]) -> Callable[[Work, Advance], None]:
    def answer(work: Work, step: Advance) -> None:
        match random.choice(("well",) * 4 + ("fail", "stop", "cancel", "flaw", "wait", "again", "jump")):
            case "well":
                step.succeed(work.ref, {"at": work.at}, {})
            case "fail":
                step.fail(work.ref, {"type": "X", "message": "no"})
            case "stop":
                step.fail(work.ref, None, S.STOPPED)
            case "cancel":
                step.fail(work.ref, None, S.CANCELED)
            case "flaw":
                step.fail(work.ref, None, S.FAILED_CONTINUE)
            case "wait":
                step.suspend(work.ref, Wait(None, 1.0, random.random() < 0.5))
            case "again":
                step.again(work.ref, 1.0, {}, None)
            case "jump":
                jump(step, work.ref, random.choice(names), {}, {})

    return answer


def checked(engine: Engine) -> None:
    statuses = engine.statuses()
    assert engine.run.status in COMPLETE, (engine.run.status, statuses)
    assert all(status in COMPLETE for status in statuses.values()), statuses
    assert all(task.status in COMPLETE for one in engine.stages.values() for task in one.tasks)
    stages = list(engine.stages.values())
    alone = [one for one in stages if one.plan.instances and not one.plan.instances.sync_on_complete]
    on_their_own = {name for one in alone for name in names_of(one)}
    tops = [_Top(one) for one in stages if one.plan.parent is None or one.plan.ref in on_their_own]
    assert engine.run.status is workflow_status(tops), statuses


class _Top:
    def __init__(self, stage: StageState) -> None:
        self.status = stage.status
        self.allow_sibling_stages_to_continue = stage.plan.allow_sibling_stages_to_continue
        self.complete_other_branches_then_fail = stage.plan.complete_other_branches_then_fail


@settings(max_examples=400, deadline=None)
@given(plan=plans(), seed=st.integers(0, 10_000))
def test_every_workflow_comes_to_the_end_that_its_stages_explain(plan: Plan, seed: int) -> None:
    random = Random(seed)
    engine = Engine(plan, random)
    engine.start()
    names = [ref for ref, one in plan.stages.items() if one.parent is None]
    engine.drain(by_chance(random, names))
    checked(engine)
    for one in plan.stages.values():
        assert not any(frozenset((one.ref, peer)) in engine.met for peer in one.peers)


@settings(max_examples=200, deadline=None)
@given(plan=plans(), seed=st.integers(0, 10_000))
def test_what_has_failed_can_be_tried_again_until_all_is_well(plan: Plan, seed: int) -> None:
    random = Random(seed)
    engine = Engine(plan, random)
    engine.start()
    names = [ref for ref, one in plan.stages.items() if one.parent is None]
    engine.drain(by_chance(random, names))
    if engine.run.status is S.CANCELED:
        with pytest.raises(InvalidStateTransitionError):
            engine.step(lambda step: restart(step, [names[0]], "ann"))
        return
    for _ in range(20):
        step = engine.step(lambda step: None)
        if not (refs := failed(step)):
            return
        engine.step(lambda step, refs=refs: restart(step, refs, "ann"))  # type: ignore[misc]
        engine.drain(well)
        if not any(one.plan.limit_s for one in engine.stages.values()):
            break
    checked(engine)


@settings(max_examples=200, deadline=None)
@given(plan=plans(), seed=st.integers(0, 10_000), after=st.integers(0, 6))
def test_a_workflow_can_be_held_skipped_and_cancelled_anywhere(plan: Plan, seed: int, after: int) -> None:
    random = Random(seed)
    engine = Engine(plan, random)
    engine.start()
    names = [ref for ref, one in plan.stages.items() if one.parent is None]
    for _ in range(after):
        if engine.work and engine.run.status is S.RUNNING:
            engine.next(by_chance(random, names))
    if engine.run.status in COMPLETE:
        return
    engine.step(lambda step: step.pause("ann"))
    ref = random.choice(names)
    if engine.stages[ref].status not in COMPLETE:
        engine.step(lambda step: skip_by_hand(step, step.stage(ref), "ann"))
    if engine.run.status is S.PAUSED:
        engine.step(lambda step: step.go_on("ann"))
    engine.drain(by_chance(random, names))
    checked(engine)
    other = Engine(plan, random)
    other.start()
    if other.run.status in COMPLETE:
        return
    other.step(lambda step: step.cancel("no", "ann"))
    assert other.run.status in (S.CANCELED, S.TERMINAL)
    assert all(status in COMPLETE for status in other.statuses().values())


def test_a_join_that_waits_counts_a_branch_once_when_a_jump_runs_it_again() -> None:
    engine = Engine(plan_of({"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}))
    engine.start()
    engine.step(lambda step: step.succeed("a", {}, {}))
    engine.step(lambda step: step.succeed("b", {}, {}))
    engine.step(lambda step: jump(step, "c", "a", {}, {}))
    engine.work = [one for one in engine.work if one[0].ref == "a" and one[1] == 2]
    engine.step(lambda step: step.succeed("a", {}, {}))
    engine.step(lambda step: step.succeed("b", {}, {}))
    assert engine.stages["d"].status is S.NOT_STARTED
    engine.step(lambda step: step.succeed("c", {}, {}))
    assert engine.stages["d"].status is S.RUNNING


def test_a_jump_back_runs_the_parts_of_a_stage_again() -> None:
    part = {"parent": "a", "owner": Owner.STAGE_BEFORE}
    engine = Engine(plan_of({"a": (), "a-first": (), "b": ("a",)}, **{"a-first": part}))
    engine.start()
    jumped: list[str] = []

    def answer(work: Work, step: Advance) -> None:
        if work.ref == "b" and not jumped:
            jumped.append("b")
            jump(step, "b", "a", {}, {})
        else:
            well(work, step)

    engine.drain(answer)
    assert engine.run.status is S.SUCCEEDED
    assert engine.stages["a-first"].incarnation == 2


def parts_of(parent: str, **owners: Owner) -> dict[str, dict[str, Any]]:
    return {ref: {"parent": parent, "owner": owner} for ref, owner in owners.items()}


@pytest.mark.parametrize("owner", [Owner.STAGE_AFTER, Owner.STAGE_ON_FAILURE])
def test_a_jump_back_to_a_part_of_before_leaves_the_others_that_have_had_their_turn(owner: Owner) -> None:
    parts = parts_of("a", p=Owner.STAGE_BEFORE, q=Owner.STAGE_BEFORE, last=owner)
    engine = Engine(plan_of({"a": (), "p": (), "q": ("p",), "last": ("q",)}, **parts))
    engine.start()
    failed = owner is Owner.STAGE_ON_FAILURE
    while engine.stages["last"].status is not S.RUNNING:
        engine.next(failing("a") if failed else well)
    engine.step(lambda step: jump(step, "last", "p", {}, {}))
    engine.drain(well)
    checked(engine)
    assert engine.stages["a"].status is (S.TERMINAL if failed else S.SUCCEEDED)
    assert {ref: one.incarnation for ref, one in engine.stages.items()} == {"a": 1, "p": 2, "q": 1, "last": 2}


def test_a_part_that_is_a_merge_does_not_run_again_when_its_turn_is_over_or_never_comes() -> None:
    parts = parts_of("a", p=Owner.STAGE_BEFORE, q=Owner.STAGE_AFTER, fix=Owner.STAGE_ON_FAILURE)
    merge = parts.pop("fix") | {"join": JoinType.MULTI_MERGE}
    engine = Engine(plan_of({"a": (), "b": (), "p": (), "q": (), "fix": ("p", "q")}, fix=merge, **parts))
    engine.start()
    for ref in ("p", "a"):
        engine.step(lambda step, ref=ref: step.succeed(ref, {}, {}))  # type: ignore[misc]
    engine.step(lambda step: jump(step, "b", "fix", {}, {}))
    engine.step(lambda step: step.succeed("fix", {}, {}))
    engine.step(lambda step: step.succeed("q", {}, {}))
    checked(engine)
    assert engine.stages["fix"].incarnation == 1


def test_what_is_there_for_a_failure_does_not_wait_for_a_merge_that_can_run_no_more() -> None:
    parts = parts_of("b", p=Owner.STAGE_BEFORE, merge=Owner.STAGE_BEFORE, fix=Owner.STAGE_ON_FAILURE)
    parts["merge"]["join"] = JoinType.MULTI_MERGE
    engine = Engine(plan_of({"a": (), "b": (), "p": (), "merge": ("p",), "fix": ("merge",)}, b={"limit_s": 9}, **parts))
    engine.start()
    engine.step(lambda step: jump(step, "a", "merge", {}, {}))
    engine.step(lambda step: step.succeed("merge", {}, {}))
    engine.step(lambda step: step.fire("limit", "b"))
    assert engine.stages["fix"].status is S.RUNNING
    engine.drain(well)
    checked(engine)


def test_a_stage_waits_also_for_a_part_that_is_a_merge_and_began_before_it() -> None:
    parts = parts_of("b", merge=Owner.STAGE_BEFORE, slow=Owner.STAGE_BEFORE)
    parts["merge"]["join"] = JoinType.MULTI_MERGE
    requires = {"a": (), "x": (), "y": (), "b": ("y",), "merge": ("x", "y"), "slow": ()}
    engine = Engine(plan_of(requires, **parts))
    engine.start()
    engine.step(lambda step: jump(step, "a", "merge", {}, {}))
    for ref in ("merge", "y", "x", "merge"):
        engine.step(lambda step, ref=ref: step.succeed(ref, {}, {}))  # type: ignore[misc]
    assert engine.stages["b"].part is Part.BEFORE
    engine.drain(well)
    checked(engine)


def test_what_is_there_for_a_failure_runs_when_the_first_of_several_parts_fails() -> None:
    parts = parts_of("a", p=Owner.STAGE_BEFORE, q=Owner.STAGE_BEFORE, f=Owner.STAGE_ON_FAILURE)
    engine = Engine(plan_of({"a": (), "p": (), "q": ("p",), "f": ()}, **parts))
    engine.start()
    engine.drain(failing("p"))
    assert engine.statuses() == {"a": S.TERMINAL, "p": S.TERMINAL, "q": S.SKIPPED, "f": S.SUCCEEDED}
    assert engine.run.reason == "no"


def test_a_stage_waits_for_all_its_parts_when_some_begin_anew() -> None:
    parts = parts_of("a", p=Owner.STAGE_BEFORE, q=Owner.STAGE_BEFORE, r=Owner.STAGE_BEFORE)
    engine = Engine(plan_of({"a": (), "p": (), "q": ("p",), "r": ("q",)}, **parts))
    engine.start()
    engine.step(lambda step: step.succeed("p", {}, {}))
    engine.step(lambda step: jump(step, "q", "p", {}, {}))
    engine.step(lambda step: step.succeed("p", {}, {}))
    engine.step(lambda step: step.succeed("q", {}, {}))
    assert engine.stages["a"].part is Part.BEFORE
    engine.step(lambda step: step.succeed("r", {}, {}))
    assert engine.stages["a"].part is Part.TASKS


@pytest.mark.parametrize("join", JoinType)
def test_what_is_there_for_a_failure_does_not_wait_for_a_part_that_the_failure_cuts_off(join: JoinType) -> None:
    parts = {
        "late": {"parent": "a", "owner": Owner.STAGE_AFTER},
        "undo": {"parent": "a", "owner": Owner.STAGE_ON_FAILURE, "join": join},
        "tell": {"parent": "a", "owner": Owner.STAGE_ON_FAILURE},
    }
    engine = Engine(plan_of({"a": (), "late": (), "undo": ("late",), "tell": ()}, **parts))
    engine.start()
    engine.step(lambda step: step.fail("a", {"type": "X", "message": "no"}))
    engine.drain(well)
    assert engine.statuses() == {"a": S.TERMINAL, "late": S.SKIPPED, "undo": S.SKIPPED, "tell": S.SUCCEEDED}
    checked(engine)


def test_a_part_begins_when_its_stage_has_come_so_far_whatever_it_waits_for_itself() -> None:
    parts = parts_of("a", p=Owner.STAGE_BEFORE, q=Owner.STAGE_AFTER)
    engine = Engine(plan_of({"x": (), "u": (), "a": ("u",), "p": ("x",), "q": ("p",)}, **parts))
    engine.start()
    engine.step(lambda step: step.succeed("x", {}, {}))
    assert engine.stages["p"].status is S.NOT_STARTED
    engine.step(lambda step: step.succeed("u", {}, {}))
    engine.step(lambda step: step.succeed("p", {}, {}))
    assert engine.stages["q"].status is S.NOT_STARTED
    engine.step(lambda step: step.succeed("a", {}, {}))
    engine.step(lambda step: step.succeed("q", {}, {}))
    assert engine.run.status is S.SUCCEEDED


def test_a_stage_does_not_wait_for_a_part_that_was_withdrawn_before_its_turn() -> None:
    fields = parts_of("a", p=Owner.STAGE_BEFORE) | {"x": {"cancel_region": ("p",)}}
    engine = Engine(plan_of({"x": (), "u": (), "a": ("u",), "p": ()}, **fields))
    engine.start()
    engine.step(lambda step: step.succeed("x", {}, {}))
    engine.step(lambda step: step.succeed("u", {}, {}))
    assert engine.stages["a"].part is Part.TASKS
    engine.step(lambda step: step.succeed("a", {}, {}))
    assert engine.statuses() == {"x": S.SUCCEEDED, "u": S.SUCCEEDED, "a": S.SUCCEEDED, "p": S.SKIPPED}


@pytest.mark.parametrize("owner", [Owner.STAGE_BEFORE, Owner.STAGE_AFTER])
@pytest.mark.parametrize("status", [S.STOPPED, S.CANCELED])
def test_a_stage_is_stopped_or_cancelled_as_its_part_is(owner: Owner, status: WorkflowStatus) -> None:
    engine = Engine(plan_of({"a": (), "p": (), "f": ()}, **parts_of("a", p=owner, f=Owner.STAGE_ON_FAILURE)))
    engine.start()
    engine.drain(lambda work, step: step.fail("p", None, status) if work.ref == "p" else well(work, step))
    stages = engine.statuses()
    assert (stages["a"], stages["p"], stages["f"]) == (status, status, S.SKIPPED)
    after = owner is Owner.STAGE_AFTER
    tasks = [task.status for task in engine.stages["a"].tasks]
    assert stage_status([*tasks, *([] if after else [status])], [status] if after else []) is status


@pytest.mark.parametrize("leave", [skip_by_hand, lambda step, stage, by: step.skip(stage, SkipCause.WITHDRAWN, by)])
def test_a_merge_that_was_skipped_is_over_whatever_ends_before_it(leave: Any) -> None:
    plan = plan_of({"a": (), "b": (), "x": (), "m": ("a", "b"), "c": ("m", "x")}, m={"join": JoinType.MULTI_MERGE})
    engine = Engine(plan)
    engine.start()
    engine.step(lambda step: step.succeed("a", {}, {}))
    engine.step(lambda step: leave(step, step.stage("m"), "ann"))
    engine.step(lambda step: step.succeed("b", {}, {}))
    assert engine.stages["m"].status is S.SKIPPED
    assert engine.stages["c"].status is S.NOT_STARTED
    engine.step(lambda step: step.succeed("x", {}, {}))
    assert engine.stages["c"].status is S.RUNNING


def test_a_merge_that_may_run_again_has_told_nobody_when_a_jump_begins_it_anew() -> None:
    requires = {"r": (), "x": (), "a": ("r",), "b": ("r",), "s": ("a",), "m": ("a", "b"), "c": ("m", "x")}
    engine = Engine(plan_of(requires, m={"join": JoinType.MULTI_MERGE}))
    engine.start()
    for ref in ("x", "r", "a", "m"):
        engine.step(lambda step, ref=ref: step.succeed(ref, {}, {}))
    engine.step(lambda step: jump(step, "s", "r", {}, {}))
    engine.step(lambda step: step.succeed("r", {}, {}))
    engine.step(lambda step: step.fail("b", None, S.STOPPED))  # so that it runs once
    engine.step(lambda step: step.succeed("a", {}, {}))
    engine.step(lambda step: step.succeed("m", {}, {}))
    assert engine.stages["c"].status is S.RUNNING


def test_a_stage_that_waits_to_begin_anew_tells_those_that_begin_anew_later() -> None:
    engine = Engine(plan_of({"a": (), "b": ("a",), "c": ("b",), "d": ("a", "c"), "e": ("c",)}))
    engine.start()
    for ref in "abc":
        engine.step(lambda step, ref=ref: step.succeed(ref, {}, {}))  # type: ignore[misc]
    engine.step(lambda step: jump(step, "e", "b", {}, {}))
    assert engine.stages["c"].told == ["d"]  # which goes on, and counts it once
    engine.step(lambda step: jump(step, "b", "a", {}, {}))
    engine.drain(well)
    checked(engine)
    assert engine.stages["d"].edges == Edges(2, 2)


@pytest.mark.parametrize("owner", [Owner.STAGE_BEFORE, Owner.STAGE_AFTER])
def test_a_part_of_a_merge_knows_in_each_run_what_has_ended_outside(owner: Owner) -> None:
    requires = {"x": (), "a": (), "b": (), "m": ("a", "b"), "p": ("x",), "q": ("p",)}
    parts = parts_of("m", p=owner, q=owner)
    engine = Engine(plan_of(requires, m={"join": JoinType.MULTI_MERGE}, **parts))
    engine.start()
    engine.drain(well)
    checked(engine)
    assert [engine.stages[ref].incarnation for ref in ("m", "p", "q")] == [2, 2, 2]
    assert [engine.stages[ref].edges for ref in ("p", "q")] == [Edges(1, 1), Edges(1, 1)]


def test_a_merge_counts_all_its_jumps_and_tells_a_stage_once() -> None:
    requires = {"a": (), "b": (), "m": ("a", "b"), "s": ("m",), "x": (), "c": ("m", "x")}
    engine = Engine(plan_of(requires, m={"join": JoinType.MULTI_MERGE, "max_jumps": 1}))
    engine.start()
    for ref in ("a", "b", "m", "m"):
        engine.step(lambda step, ref=ref: step.succeed(ref, {}, {}))
    engine.step(lambda step: jump(step, "s", "m", {}, {}))
    engine.step(lambda step: jump(step, "m", "m", {}, {}))
    for _ in range(2):
        engine.step(lambda step: step.succeed("m", {}, {}))
    assert engine.stages["m"].jumps == 1
    assert engine.stages["c"].status is S.NOT_STARTED
    assert engine.stages["c"].edges == Edges(2, open=1)


@pytest.mark.parametrize("sources", [("a", "b"), ("a",)], ids=["it goes on for another one", "it is over"])
def test_a_merge_whose_end_withdraws_a_stage_before_it_goes_on_once(sources: tuple[str, ...]) -> None:
    requires: dict[str, tuple[str, ...]] = dict.fromkeys((*sources, "late"), ())
    merge = {"join": JoinType.MULTI_MERGE, "cancel_region": ("late",)}
    engine = Engine(plan_of({**requires, "m": (*sources, "late"), "z": ("m",)}, m=merge, late={"scheduled_at": 1000}))
    engine.start()
    for ref in sources:
        engine.step(lambda step, ref=ref: step.succeed(ref, {}, {}))  # type: ignore[misc]
    step = engine.step(lambda step: step.succeed("m", {}, {}))
    started = [one["stage"] for one in entries(step) if one["type"] == "stage_started"]
    assert started == (["m"] if len(sources) > 1 else ["z"])  # and not twice
    engine.drain(well)
    assert engine.stages["m"].incarnation == len(sources)
    assert engine.stages["z"].edges == Edges(1, 1)
    checked(engine)


def test_a_jump_leads_on_also_where_the_split_chooses_another_branch() -> None:
    class First:
        def branches(self, stage: StageState) -> list[str]:
            return ["b"]

        def skips(self, stage: StageState) -> None:
            return None

        def instances(self, stage: StageState) -> list[Any]:
            return stage.context["items"]

    fields = {"a": {"split": SplitType.OR}, "c": {"instances": Instances()}}
    plan = plan_of({"a": (), "b": ("a",), "c": ("a",)}, **fields)
    engine = Engine(plan._replace(stages=Stages(plan.stages)))
    engine.start()
    step = Advance(engine.plan, engine.run, engine.stages, 1, First())
    jump(step, "a", "c", {"items": [1, 2]}, {})
    assert engine.stages["b"].status is S.RUNNING
    assert names_of(engine.stages["c"]) == ["c#1.0", "c#1.1"]


@pytest.mark.parametrize("to", ["b", "c", "d", None])
def test_a_split_takes_the_first_branch_where_no_condition_holds_unless_its_task_jumps(to: str | None) -> None:
    class Nothing:
        def branches(self, stage: StageState) -> list[str]:
            return []

        def skips(self, stage: StageState) -> None:
            return None

        def instances(self, stage: StageState) -> list[Any]:
            return []

    requires = {"a": (), "b": ("a",), "c": ("a",), "d": ("c",)}
    engine = Engine(plan_of(requires, a={"split": SplitType.OR}))
    engine.start()
    step = Advance(engine.plan, engine.run, engine.stages, 1, Nothing())
    if to is None:
        step.succeed("a", {}, {})
    else:
        jump(step, "a", to, {}, {})
    assert [ref for ref, status in engine.statuses().items() if status is S.RUNNING] == [to or "b"]
    assert engine.stages["a"].activated == [to or "b"]


@pytest.mark.parametrize("join", [JoinType.AND, JoinType.OR])
@pytest.mark.parametrize("why", [SkipCause.PRUNED, SkipCause.UPSTREAM_FAILED, SkipCause.WITHDRAWN, SkipCause.EXPIRED])
def test_a_jump_begins_what_was_left_out_after_all(why: SkipCause, join: JoinType) -> None:
    requires = {"a": (), "b": (), "fix": ("a",), "then": ("fix",), "late": ("b", "then")}
    engine = Engine(plan_of(requires, late={"join": join}))
    engine.start()
    engine.step(lambda step: step.succeed("a", {}, {}))
    engine.step(lambda step: step.skip(step.touch("fix"), why, "so"))
    engine.step(lambda step: jump(step, "b", "fix", {}, {}))
    went_on = why is SkipCause.EXPIRED  # which is no reason to leave out what comes after it
    assert engine.stages["fix"].status is S.RUNNING
    assert engine.stages["then"].status is (S.RUNNING if went_on else S.NOT_STARTED)
    engine.drain(well)
    checked(engine)
    assert engine.statuses()["then"] is S.SUCCEEDED
    halted = why is SkipCause.UPSTREAM_FAILED  # late has heard of that before
    assert engine.statuses()["late"] is (S.SKIPPED if halted else S.SUCCEEDED)


@pytest.mark.parametrize("why", [SkipCause.MANUAL, SkipCause.DISABLED])
def test_a_jump_does_not_begin_what_nobody_wanted(why: SkipCause) -> None:
    engine = Engine(plan_of({"a": (), "b": ()}))
    engine.start()
    engine.step(lambda step: step.skip(step.touch("b"), why, "so"))
    step = engine.step(lambda step: jump(step, "a", "b", {}, {}))
    assert [one["found"] for one in entries(step) if one["type"] == "jumped"] == ["SKIPPED"]
    assert engine.statuses() == {"a": S.SUCCEEDED, "b": S.SKIPPED}
    checked(engine)


def test_what_meets_a_stage_that_a_jump_begins_after_all_waits_for_it() -> None:
    requires = {"a": (), "b": (), "fix": ("a",), "then": ("fix",), "late": ("b", "then")}
    engine = Engine(plan_of(requires))
    engine.start()
    engine.step(lambda step: step.succeed("a", {}, {}))
    engine.step(lambda step: step.skip(step.touch("fix"), SkipCause.PRUNED, "so"))
    assert engine.stages["late"].edges == Edges(2, dead=1)
    engine.step(lambda step: jump(step, "b", "fix", {}, {}))
    assert engine.stages["late"].edges == Edges(2, open=1)
    engine.step(lambda step: step.succeed("fix", {}, {}))
    engine.step(lambda step: step.succeed("then", {}, {}))
    assert engine.stages["late"].status is S.RUNNING


def test_what_goes_with_the_other_stage_of_a_choice_does_not_begin_anew_when_the_chosen_one_jumps() -> None:
    part = {"parent": "a", "owner": Owner.STAGE_AFTER}
    plan = plan_of({"a": (), "b": (), "part": ("b",)}, a={"rivals": ("b",)}, b={"rivals": ("a",)}, part=part)
    engine = Engine(plan)
    engine.start()
    engine.step(lambda step: jump(step, "b", "b", {}, {}))
    assert engine.statuses() == {"a": S.SKIPPED, "b": S.RUNNING, "part": S.SKIPPED}
    engine.drain(well)
    checked(engine)


def test_what_a_choice_lets_begin_and_its_jump_begins_anew_is_not_run_before_its_turn() -> None:
    requires = {"a": (), "one": ("a",), "other": ("a",), "last": ("a", "one")}
    engine = Engine(plan_of(requires, one={"rivals": ("other",)}, other={"rivals": ("one",)}))
    engine.start()
    engine.step(lambda step: step.succeed("a", {}, {}))
    step = engine.step(lambda step: jump(step, "other", "a", {}, {}))  # without "one", "last" could begin
    assert [one.ref for one in step.wanted()] == ["a"]
    assert engine.statuses() == {"a": S.RUNNING, "one": S.NOT_STARTED, "other": S.NOT_STARTED, "last": S.NOT_STARTED}
    engine.drain(well)
    checked(engine)


@pytest.mark.parametrize("begun", [True, False])
def test_a_jump_leads_also_to_the_other_stage_of_a_choice(*, begun: bool) -> None:
    fields = {"a": {"rivals": ("b",)}, "b": {"rivals": ("a",)}}
    engine = Engine(plan_of({"a": (), "b": () if begun else ("c",), "c": ()}, **fields))
    engine.start()
    engine.step(lambda step: jump(step, "a", "b", {}, {}))
    assert engine.statuses() == {"a": S.SUCCEEDED, "b": S.RUNNING, "c": S.RUNNING}
    engine.drain(well)
    checked(engine)
    assert engine.statuses()["b"] is S.SUCCEEDED


def test_a_part_of_a_stage_that_stays_left_out_does_not_begin_anew_with_what_a_jump_begins() -> None:
    part = {"parent": "b", "owner": Owner.STAGE_BEFORE}
    engine = Engine(plan_of({"a": (), "b": (), "fix": (), "part": ("fix",)}, part=part))
    engine.start()
    engine.step(lambda step: step.skip(step.touch("b"), SkipCause.PRUNED, "so"))
    engine.step(lambda step: step.skip(step.touch("fix"), SkipCause.PRUNED, "so"))
    engine.step(lambda step: jump(step, "a", "fix", {}, {}))
    assert engine.statuses() == {"a": S.SUCCEEDED, "b": S.SKIPPED, "fix": S.RUNNING, "part": S.SKIPPED}
    engine.drain(well)
    checked(engine)


def test_a_jump_leaves_out_a_stage_that_nobody_wants() -> None:
    engine = Engine(plan_of({"a": (), "b": ("a",), "c": ("b",), "d": ("c",)}))
    engine.start()
    engine.step(lambda step: skip_by_hand(step, step.stage("c"), "ann"))
    engine.step(lambda step: jump(step, "a", "c", {}, {}))
    assert engine.stages["c"].skip_cause == SkipCause.MANUAL
    assert engine.stages["d"].status is S.RUNNING


def test_a_workflow_says_which_stage_has_decided_how_it_ends() -> None:
    def ended(*ends: Callable[[Advance], Any]) -> tuple[str, str | None]:
        flags = {"allow_sibling_stages_to_continue": True, "complete_other_branches_then_fail": True}
        engine = Engine(plan_of({"a": (), "b": (), "c": ()}, a=flags, b=flags, c=flags))
        engine.start()
        for end in ends:
            engine.step(end)
        engine.drain(well)
        return engine.run.status.value, engine.run.reason

    def canceled(step: Advance) -> None:
        cancel(step, "a", "ann", "too late")

    def stopped(step: Advance) -> None:
        step.end_stage("b", S.STOPPED)

    def failed(step: Advance) -> None:
        step.fail("c", {"type": "X", "message": "no"})

    assert ended(canceled) == ("CANCELED", "canceled by ann: too late")
    assert ended(lambda step: step.fail("a", None, S.CANCELED)) == ("CANCELED", "stage 'a' was cancelled")
    assert ended(stopped) == ("TERMINAL", "stage 'b' failed")
    assert ended(stopped, canceled) == ("CANCELED", "canceled by ann: too late")
    assert ended(stopped, canceled, failed) == ("TERMINAL", "no")
    assert ended(canceled, lambda step: step.cancel("enough", "bob")) == ("CANCELED", "enough")


@pytest.mark.parametrize(
    "flags",
    [
        {"allow_sibling_stages_to_continue": True},
        {"fail_pipeline": False, "complete_other_branches_then_fail": True},
    ],
    ids=lambda flags: [*flags][-1],
)
def test_an_instance_that_nothing_waits_for_fails_as_its_stage_says(flags: dict[str, bool]) -> None:
    engine = Engine(plan_of({"n": (), "b": ()}, n={**flags, "instances": Instances(sync_on_complete=False)}))
    engine.start()
    engine.step(lambda step: step.fail("n#1.0", {"type": "X", "message": "no"}))
    assert engine.statuses()["b"] is S.RUNNING
    engine.drain(well)
    checked(engine)
    assert (engine.statuses()["b"], engine.run.status) == (S.SUCCEEDED, S.TERMINAL)


def test_a_workflow_still_says_so_when_another_stage_begins_anew_and_an_instance_is_lost() -> None:
    goes_on = {"allow_sibling_stages_to_continue": True}
    alone = {**goes_on, "instances": Instances(sync_on_complete=False)}
    engine = Engine(plan_of({"n": (), "a": (), "b": (), "c": ()}, n=alone, a=goes_on, b=goes_on))
    engine.start()
    for ref in ("n#1.0", "a", "b"):
        engine.step(lambda step, ref=ref: step.fail(ref, {"type": "X", "message": f"no {ref}"}))  # type: ignore[misc]
    assert engine.run.reason == "no n#1.0"
    engine.step(lambda step: restart(step, ["b"], "ann"))
    engine.drain(well)
    assert (engine.run.status, engine.run.reason) == (S.TERMINAL, "no a")


def test_a_workflow_that_was_cancelled_whole_keeps_that_reason() -> None:
    engine = Engine(plan_of({"a": (), "b": ()}))
    engine.start()
    engine.step(lambda step: (step.cancel("enough", "bob"), step.end_stage("a", S.CANCELED)))
    assert (engine.run.status, engine.run.reason) == (S.CANCELED, "enough")


def test_cancelling_a_workflow_does_not_make_it_fail_by_way_of_a_part() -> None:
    part = {"parent": "a", "owner": Owner.STAGE_BEFORE}
    engine = Engine(plan_of({"a": (), "0-first": ()}, **{"0-first": part}))
    engine.start()
    engine.step(lambda step: step.cancel("no", "ann"))
    assert engine.run.status is S.CANCELED
    assert engine.statuses() == {"a": S.CANCELED, "0-first": S.CANCELED}


def test_only_a_stage_that_has_ended_and_is_whole_can_be_restarted() -> None:
    part = {"parent": "a", "owner": Owner.STAGE_BEFORE}
    engine = Engine(plan_of({"a": (), "first": ()}, first=part))
    engine.start()
    with pytest.raises(TaskError, match="RUNNING"):
        engine.step(lambda step: restart(step, ["a"], "ann"))
    with pytest.raises(TaskError, match="part of 'a'"):
        engine.step(lambda step: restart(step, ["first"], "ann"))


def test_a_jump_leads_to_a_stage_before_its_time_also_when_that_waits_for_another_one() -> None:
    fields = {"c": {"scheduled_at": 1000, "peers": ("m",)}, "m": {"peers": ("c",)}}
    engine = Engine(plan_of({"a": (), "b": ("a",), "c": ("b",), "m": ()}, **fields))
    engine.start()
    step = engine.step(lambda step: jump(step, "a", "c", {}, {}))
    assert (engine.stages["c"].status, step.work) == (S.BUFFERED, [])
    engine.step(lambda step: step.succeed("m", {}, {}))
    assert engine.stages["c"].status is S.RUNNING
    engine.drain(well)
    checked(engine)


def test_a_restart_leads_to_a_stage_after_its_time_also_when_that_waits_for_another_one() -> None:
    engine = Engine(plan_of({"c": (), "m": ()}, c={"expires_at": 1, "peers": ("m",)}, m={"peers": ("c",)}))
    engine.start()
    engine.step(lambda step: step.succeed("c", {}, {}))
    step = engine.step(lambda step: restart(step, ["c"], "ann"))
    assert (engine.stages["c"].status, step.work) == (S.BUFFERED, [])
    engine.step(lambda step: step.succeed("m", {}, {}))
    assert engine.stages["c"].status is S.RUNNING
    engine.drain(well)
    checked(engine)


def test_a_restart_runs_everything_after_the_stage_again_and_nothing_else() -> None:
    engine = Engine(plan_of({"a": (), "x": (), "b": ("a",), "c": ("b", "x")}))
    engine.start()
    engine.drain(well)
    engine.step(lambda step: restart(step, ["b"], "ann"))
    assert engine.run.status is S.RUNNING
    ran: list[str] = []

    def noted(work: Work, step: Advance) -> None:
        ran.append(work.ref)
        well(work, step)

    engine.drain(noted)
    assert (engine.run.status, ran) == (S.SUCCEEDED, ["b", "c"])
    assert {ref: one.incarnation for ref, one in engine.stages.items()} == {"a": 1, "x": 1, "b": 2, "c": 2}


def test_a_stage_that_is_resumed_to_be_called_again_tells_who_waits_for_the_one_it_withdraws() -> None:
    rival = {"peers": ("b",), "rivals": ("b",), "scheduled_at": 1000}
    waiting = {"milestone": ("a", S.RUNNING)}
    engine = Engine(plan_of({"a": (), "b": (), "c": ()}, a=rival, b={"peers": ("a",), "rivals": ("a",)}, c=waiting))
    engine.start()
    engine.step(lambda step: step.suspend("b", Wait("go", None, calls=True)))
    engine.step(lambda step: step.resume("b", "go", None))
    assert engine.statuses() == {"a": S.SKIPPED, "b": S.RUNNING, "c": S.SKIPPED}  # what it waited for never comes
    engine.drain(well)
    checked(engine)


@pytest.mark.parametrize(
    ("owner", "order"), [(Owner.STAGE_BEFORE, "xpqc"), (Owner.STAGE_AFTER, "xcpq"), (Owner.STAGE_ON_FAILURE, "xc")]
)
@pytest.mark.parametrize("by", ["a restart", "a jump"])
def test_parts_of_a_stage_that_has_ended_do_not_begin_anew_with_what_they_have_waited_for(
    by: str, owner: Owner, order: str
) -> None:
    requires = {"x": (), "c": (), "p": ("x",), "q": ("p",), "y": ("x",)}
    engine = Engine(plan_of(requires, **parts_of("c", p=owner, q=owner)))
    engine.start()
    for ref in order if by == "a jump" else order + "y":
        engine.step(lambda step, ref=ref: step.succeed(ref, {"left": ref}, {}))  # type: ignore[misc]
    ended = {ref: (engine.stages[ref].status, engine.stages[ref].outputs) for ref in "cpq"}
    step = engine.step(lambda step: jump(step, "y", "x", {}, {}) if by == "a jump" else restart(step, ["x"], "ann"))
    assert [[*one["reset"]] for one in entries(step) if "reset" in one] == [["x", "y"]]
    engine.drain(well)
    checked(engine)
    assert {ref: (engine.stages[ref].status, engine.stages[ref].outputs) for ref in ended} == ended


def test_a_restart_starts_no_stage_that_the_end_of_another_one_has_withdrawn() -> None:
    quick: dict[str, Any] = {"tasks": ()}
    requires: dict[str, tuple[str, ...]] = {"a": (), "b": ("a",), "late": ()}
    engine = Engine(plan_of(requires, a=quick, b={**quick, "cancel_region": ("late",)}))
    engine.start()
    assert engine.statuses() == {"a": S.SUCCEEDED, "b": S.SUCCEEDED, "late": S.SKIPPED}
    step = engine.step(lambda step: restart(step, ["a", "late"], "ann"))
    assert [one["stage"] for one in entries(step) if one["type"] == "stage_started"] == ["a", "b"]
    assert engine.stages["late"].skip_cause == SkipCause.WITHDRAWN
    checked(engine)


def test_a_restart_after_a_failure_takes_up_what_the_failure_cut_off() -> None:
    engine = Engine(plan_of({"a": (), "b": (), "c": ("b",)}))
    engine.start()
    engine.step(lambda step: step.fail("a", {"type": "X", "message": "no"}))
    assert engine.statuses() == {"a": S.TERMINAL, "b": S.CANCELED, "c": S.SKIPPED}
    engine.step(lambda step: restart(step, ["a"], "ann"))
    engine.drain(well)
    assert engine.run.status is S.SUCCEEDED
    assert set(engine.statuses().values()) == {S.SUCCEEDED}
