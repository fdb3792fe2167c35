"""Sagas as a pure machine: forwards in order, backwards in reverse, never both."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.machine import saga as machine
from holdfast.machine.saga import TRANSITIONS, Change, Plan, PlannedStep, SagaRecord, SagaState, StepState

CHAIN: Plan = (
    PlannedStep("reserve", (), compensable=True),
    PlannedStep("charge", ("reserve",), compensable=True),
    PlannedStep("ship", ("charge",), compensable=True),
)
PIVOTED: Plan = (
    PlannedStep("reserve", (), compensable=True),
    PlannedStep("charge", ("reserve",), pivot=True),
    PlannedStep("ship", ("charge",)),
)
DIAMOND: Plan = (
    PlannedStep("order", (), compensable=True),
    PlannedStep("left", ("order",), compensable=True),
    PlannedStep("right", ("order",), compensable=True),
    PlannedStep("ship", ("left", "right"), compensable=True),
)
ERASE: Plan = (PlannedStep("erase", (), pivot=True), PlannedStep("tell", ("erase",)))


def states(saga: SagaRecord) -> dict[str, str]:
    return {step.name: str(step.state) for step in saga.steps}


def after(plan: Plan, *done: str) -> SagaRecord:
    """A saga whose steps of these names have succeeded."""
    saga = machine.start(plan).saga
    for name in done:
        saga = machine.on_step_succeeded(plan, saga, name).saga
    return saga


def test_a_saga_begins_with_its_first_step_only() -> None:
    change = machine.start(CHAIN)
    assert change.calls == ("reserve",)
    assert states(change.saga) == {"reserve": "started", "charge": "waiting", "ship": "waiting"}


def test_each_step_begins_when_the_one_before_is_done() -> None:
    change = machine.on_step_succeeded(CHAIN, after(CHAIN), "reserve", {"id": 1})
    assert change.calls == ("charge",)
    assert change.saga.step("reserve").result == {"id": 1}


def test_the_last_success_completes_it() -> None:
    assert after(CHAIN, "reserve", "charge", "ship").state == SagaState.COMPLETED


def test_branches_run_side_by_side_and_are_joined() -> None:
    change = machine.on_step_succeeded(DIAMOND, after(DIAMOND), "order")
    assert change.calls == ("left", "right")
    change = machine.on_step_succeeded(DIAMOND, change.saga, "right")
    assert change.calls == ()
    assert machine.on_step_succeeded(DIAMOND, change.saga, "left").calls == ("ship",)


def test_a_step_that_is_given_up_is_undone_first_and_then_those_before_it() -> None:
    change = machine.on_step_abandoned(CHAIN, after(CHAIN, "reserve"), "charge", "CardDeclined")
    assert (change.saga.state, change.saga.reason) == (SagaState.COMPENSATING, "charge: CardDeclined")
    assert change.undos == ("charge",)
    assert states(change.saga)["ship"] == "skipped"
    change = machine.on_compensation_succeeded(CHAIN, change.saga, "charge")
    assert change.undos == ("reserve",)
    change = machine.on_compensation_succeeded(CHAIN, change.saga, "reserve")
    assert change.saga.state == SagaState.COMPENSATED


def test_a_step_without_compensation_is_passed_over_on_the_way_back() -> None:
    plan = (CHAIN[0], PlannedStep("look", ("reserve",)), PlannedStep("ship", ("look",)))
    change = machine.on_step_abandoned(plan, after(plan, "reserve", "look"), "ship", "E")
    assert change.undos == ("reserve",)


def test_a_call_under_way_is_waited_for_before_anything_in_front_of_it_is_undone() -> None:
    saga = after(DIAMOND, "order")
    change = machine.on_step_abandoned(DIAMOND, saga, "left", "E")
    assert (change.undos, states(change.saga)["right"]) == (("left",), "started")
    change = machine.on_compensation_succeeded(DIAMOND, change.saga, "left")
    assert change.undos == ()
    late = machine.on_step_succeeded(DIAMOND, change.saga, "right")
    assert (late.undos, late.saga.state) == (("right",), SagaState.COMPENSATING)
    assert machine.on_compensation_succeeded(DIAMOND, late.saga, "right").undos == ("order",)


def test_a_call_that_nobody_is_making_is_taken_back() -> None:
    saga = after(DIAMOND, "order")
    never = machine.on_step_abandoned(DIAMOND, saga, "left", "E", idle={"right": False})
    assert (never.cancels, states(never.saga)["right"]) == (("right",), "skipped")
    once = machine.on_step_abandoned(DIAMOND, saga, "left", "E", idle={"right": True})
    assert once.cancels == ("right",)
    assert set(once.undos) == {"left", "right"}


def test_a_failed_call_is_not_tried_again_once_the_saga_has_turned_round() -> None:
    saga = machine.on_step_abandoned(DIAMOND, after(DIAMOND, "order"), "left", "E").saga
    change = machine.on_step_returned(DIAMOND, saga, "right", called=True)
    assert (change.cancels, change.undos) == (("right",), ("right",))
    running = after(DIAMOND, "order")
    assert machine.on_step_returned(DIAMOND, running, "right", called=True) == Change(running)


def test_after_the_pivot_there_is_only_the_way_forward() -> None:
    saga = after(PIVOTED, "reserve", "charge")
    change = machine.on_step_abandoned(PIVOTED, saga, "ship", "E")
    assert (change.saga.state, change.undos) == (SagaState.STUCK, ())
    assert machine.on_cancel(PIVOTED, saga) == Change(saga)
    again = machine.on_resume(PIVOTED, change.saga)
    assert (again.saga.state, again.calls, again.saga.reason) == (SagaState.RUNNING, ("ship",), None)


def test_a_pivot_that_fails_lets_the_saga_turn_round() -> None:
    change = machine.on_step_abandoned(PIVOTED, after(PIVOTED, "reserve"), "charge", "CardDeclined")
    assert (change.saga.state, change.undos) == (SagaState.COMPENSATING, ("reserve",))


def test_a_pivot_in_the_first_place_is_stuck_when_it_is_given_up_and_never_undone() -> None:
    change = machine.on_step_abandoned(ERASE, after(ERASE), "erase", "E")
    assert change.saga.state == SagaState.STUCK
    assert machine.on_resume(ERASE, change.saga).calls == ("erase",)
    assert machine.on_cancel(ERASE, after(ERASE), idle={"erase": False}).saga.state == SagaState.COMPENSATED
    assert machine.on_cancel(ERASE, after(ERASE), idle={"erase": True}).saga.state == SagaState.RUNNING


def test_a_cancel_waits_for_a_pivot_that_is_being_called() -> None:
    asked = machine.on_cancel(PIVOTED, after(PIVOTED, "reserve"), "ChangedMind")
    assert (asked.saga.state, asked.saga.reason) == (SagaState.RUNNING, "ChangedMind")
    won = machine.on_step_succeeded(PIVOTED, asked.saga, "charge")
    assert (won.saga.state, won.saga.reason, won.calls) == (SagaState.RUNNING, None, ("ship",))
    lost = machine.on_step_returned(PIVOTED, asked.saga, "charge", called=True)
    assert (lost.saga.state, lost.cancels, lost.undos) == (SagaState.COMPENSATING, ("charge",), ("reserve",))
    given_up = machine.on_step_abandoned(PIVOTED, asked.saga, "charge", "E")
    assert (given_up.saga.state, given_up.saga.reason) == (SagaState.COMPENSATING, "ChangedMind")


def test_a_cancel_before_anything_was_called_leaves_nothing_to_undo() -> None:
    change = machine.on_cancel(CHAIN, after(CHAIN), idle={"reserve": False})
    assert (change.saga.state, change.cancels, change.undos) == (SagaState.COMPENSATED, ("reserve",), ())


def test_a_deadline_is_a_cancel() -> None:
    change = machine.on_deadline(CHAIN, after(CHAIN, "reserve"), idle={"charge": True})
    assert (change.saga.reason, change.undos) == (machine.DEADLINE, ("charge",))


def test_an_abandoned_compensation_leaves_the_saga_stuck_until_somebody_helps() -> None:
    saga = machine.on_step_abandoned(CHAIN, after(CHAIN, "reserve"), "charge", "E").saga
    change = machine.on_compensation_abandoned(CHAIN, saga, "charge", "Down")
    assert (change.saga.state, change.undos) == (SagaState.STUCK, ())
    assert machine.why(change.saga) == "compensation of charge: Down"
    again = machine.on_resume(CHAIN, change.saga)
    assert (again.saga.state, again.undos) == (SagaState.COMPENSATING, ("charge",))
    assert machine.on_compensation_succeeded(CHAIN, again.saga, "charge").undos == ("reserve",)


def test_a_compensation_that_succeeds_behind_a_stuck_saga_frees_it() -> None:
    saga = machine.on_step_abandoned(CHAIN, after(CHAIN, "reserve"), "charge", "E").saga
    stuck = machine.on_compensation_abandoned(CHAIN, saga, "charge", "Down").saga
    change = machine.on_compensation_succeeded(CHAIN, stuck, "charge")
    assert (change.saga.state, change.undos) == (SagaState.COMPENSATING, ("reserve",))


def test_what_comes_twice_changes_nothing() -> None:
    saga = after(CHAIN, "reserve")
    assert machine.on_step_succeeded(CHAIN, saga, "reserve") == Change(saga)
    assert machine.on_step_abandoned(CHAIN, saga, "reserve", "E") == Change(saga)
    back = machine.on_step_abandoned(CHAIN, saga, "charge", "E").saga
    done = machine.on_compensation_succeeded(CHAIN, back, "charge").saga
    assert machine.on_compensation_succeeded(CHAIN, done, "charge") == Change(done)
    assert machine.on_compensation_abandoned(CHAIN, done, "charge", "E") == Change(done)
    assert machine.on_resume(CHAIN, done) == Change(done)
    assert machine.on_cancel(CHAIN, done) == Change(done)


def test_a_forward_call_that_comes_back_after_it_was_undone_is_undone_again() -> None:
    saga = machine.on_step_abandoned(CHAIN, after(CHAIN), "reserve", "Timeout").saga
    saga = machine.on_compensation_succeeded(CHAIN, saga, "reserve").saga
    assert saga.state == SagaState.COMPENSATED
    late = machine.on_step_succeeded(CHAIN, saga, "reserve")
    assert (late.saga.state, late.undos, late.saga.step("reserve").undos) == (SagaState.COMPENSATING, ("reserve",), 2)
    assert machine.on_compensation_succeeded(CHAIN, late.saga, "reserve", undo=1) == Change(late.saga)
    assert machine.on_compensation_succeeded(CHAIN, late.saga, "reserve", undo=2).saga.state == SagaState.COMPENSATED


def test_only_listed_moves_of_a_saga_are_possible() -> None:
    with pytest.raises(ValueError, match="does not go from completed"):
        machine._moved(after(CHAIN, "reserve", "charge", "ship"), SagaState.STUCK, None)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    number = draw(st.integers(1, 6))
    names = [f"s{at}" for at in range(number)]
    pivot = draw(st.sampled_from([None, *range(number)]))
    steps = []
    for at, name in enumerate(names):
        before = names[:at] if pivot is None or at < pivot else names[pivot:at]
        after = tuple(sorted(draw(st.sets(st.sampled_from(before), max_size=2)))) if before else ()
        if at == pivot:
            after = tuple(names[:at])
        elif pivot is not None and at > pivot and not after:
            after = (names[pivot],)
        steps.append(PlannedStep(name, after, draw(st.booleans()), at == pivot))
    return tuple(steps)


class World:
    """Calls as an outbox would make them, told to the machine in any order."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.called: Counter[str] = Counter()
        self.happened: set[str] = set()
        self.undone: Counter[str] = Counter()
        self.live: dict[tuple[str, str], str] = {}
        self.seen: list[SagaState] = []
        self.order: list[str] = []
        self.undo_order: list[str] = []
        self.saga = SagaRecord(SagaState.RUNNING, ())
        self.take(machine.start(plan))

    def take(self, change: Change) -> None:
        if change.saga.state != self.saga.state:
            assert change.saga.state in TRANSITIONS[self.saga.state]
        self.saga = change.saga
        self.seen.append(change.saga.state)
        for name in change.cancels:
            assert self.live.pop(("call", name)) != "in_flight"
        for name in change.calls:
            assert ("call", name) not in self.live
            self.live["call", name] = "fresh"
            done = {step.name for step in self.saga.steps if step.state == StepState.DONE}
            assert done.issuperset(machine._planned(self.plan, name).after)
        for name in change.undos:
            assert ("undo", name) not in self.live
            assert ("call", name) not in self.live, "a compensation never overtakes its call"
            self.live["undo", name] = "fresh"
            if name not in self.undo_order:
                self.undo_order.append(name)

    def idle(self) -> dict[str, bool]:
        return {
            name: state == "failed"
            for (kind, name), state in self.live.items()
            if kind == "call" and state != "in_flight"
        }

    def act(self, at: int, what: str) -> None:
        plan, saga = self.plan, self.saga
        if what == "cancel":
            self.take(machine.on_cancel(plan, saga, idle=self.idle()))
            return
        if what == "resume":
            self.take(machine.on_resume(plan, saga))
            return
        if not self.live:
            return
        kind, name = sorted(self.live)[at % len(self.live)]
        if self.live[kind, name] != "in_flight":
            self.live[kind, name] = "in_flight"
            if kind == "call":
                self.called[name] += 1
            return
        if what == "fail":
            self.live[kind, name] = "failed"
            if kind == "call":
                self.take(machine.on_step_returned(plan, saga, name, called=True))
            return
        del self.live[kind, name]
        undo = saga.step(name).undos
        match kind, what:
            case "call", "succeed":
                self.happened.add(name)
                self.order.append(name)
                self.take(machine.on_step_succeeded(plan, saga, name))
            case "call", _:
                self.take(machine.on_step_abandoned(plan, saga, name, "E", idle=self.idle()))
            case _, "succeed":
                self.undone[name] += 1
                self.take(machine.on_compensation_succeeded(plan, saga, name, undo=undo))
            case _:
                self.take(machine.on_compensation_abandoned(plan, saga, name, "E", undo=undo))


EVENTS = st.tuples(st.integers(0, 5), st.sampled_from(["succeed"] * 6 + ["fail", "abandon", "cancel", "resume"]))


@settings(max_examples=400, deadline=None)
@given(plans(), st.lists(EVENTS, max_size=60))
def test_whatever_happens_a_saga_is_done_or_undone_and_never_both(plan: Plan, events: list[tuple[int, str]]) -> None:
    world = World(plan)
    for at, what in events:
        world.act(at, what)
        assert bool(world.live) == (world.saga.state in machine.ACTIVE) or world.saga.state == SagaState.STUCK
    for _ in range(200):  # from now on everything goes well
        if world.saga.state in machine.ENDED:
            break
        world.act(0, "resume" if world.saga.state == SagaState.STUCK else "succeed")
        world.act(0, "succeed")
    assert world.saga.state in machine.ENDED
    assert not world.live
    assert not {SagaState.COMPLETED, SagaState.COMPENSATED} <= set(world.seen)
    compensable = {step.name for step in plan if step.compensable}
    if world.saga.state == SagaState.COMPLETED:
        assert world.happened == {step.name for step in plan}
        assert not world.undone
    else:
        assert set(world.undone) == compensable & set(world.called)
        assert set(world.undone.values()) <= {1}
        assert not any(step.pivot and step.name in world.happened for step in plan)
        for name in world.undo_order:
            later = machine.descendants(plan, name) & set(world.undo_order)
            assert all(world.undo_order.index(one) < world.undo_order.index(name) for one in later)


@settings(max_examples=200, deadline=None)
@given(plans(), st.integers(0, 20), st.booleans())
def test_a_cancel_at_any_point_ends_it_one_way_or_the_other(plan: Plan, moment: int, in_flight: bool) -> None:
    world = World(plan)
    for _ in range(moment):
        world.act(0, "succeed")
    if in_flight:
        for at in range(len(world.live)):
            if world.live[sorted(world.live)[at]] != "in_flight":
                world.act(at, "succeed")
    world.act(0, "cancel")
    for _ in range(60):
        world.act(0, "succeed")
    assert world.saga.state in machine.ENDED
