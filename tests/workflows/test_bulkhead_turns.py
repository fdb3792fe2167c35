"""Calls that are made in the place of one that has ended: by its thread, in its slot, and otherwise on their own."""

from __future__ import annotations

import threading

import pytest

from holdfast.testing.clock import ManualClock
from holdfast.workflows.cancel import current_task_token
from holdfast.workflows.task_call import Gone, Turn
from tests.workflows.gates import PATIENCE_S, Gate, Pending, made, until


@pytest.fixture
def clock():
    return ManualClock(auto=False)


@pytest.fixture
def manager(clock):
    manager = made(clock)
    yield manager
    manager.shutdown(wait=False, cancel=True)
    clock.advance(100_000.0)  # whoever still watches the time may go


@pytest.fixture
def gate():
    gate = Gate("late")
    yield gate
    gate.open()


class Line:
    """Calls one after the other, with one ticket; what each of them answered, and how those that fail end."""

    def __init__(self, manager, *works, **options):
        self.works = list(works)
        self.answers = []
        self.results = []
        self.told = threading.Event()
        self.call = manager.submit("http", self.works.pop(0), on_done=self._on_done, then=self._then, **options)

    def _then(self, ticket, value, run_s):
        if not self.works:
            return None
        self.answers.append((ticket.turn, value, run_s))
        return Turn(self.works.pop(0), self._on_done, None, self._then)

    def _on_done(self, result):
        self.results.append(result)
        self.told.set()

    def result(self):
        assert self.told.wait(PATIENCE_S), "the last one was never reported"
        [result] = self.results
        return result


def test_they_are_made_by_one_thread_in_one_slot(manager):
    line = Line(manager, *[threading.get_ident] * 5)
    last = line.result()
    assert [turn for turn, _, _ in line.answers] == [0, 1, 2, 3]
    assert {value for _, value, _ in line.answers} == {last.result}
    until(lambda: manager.free_slots("http") == 2)
    stats = manager.get_all_stats()["http"]
    assert (stats["completed"], stats["active"], stats["abandoned"]) == (5, 0, 0)


def test_each_has_a_time_limit_of_its_own(manager, clock, gate):
    first = Gate("first")
    line = Line(manager, first, gate, timeout=5.0)
    first.entered()
    clock.wait_for_sleepers()
    clock.advance(4.0)
    first.open()
    gate.entered()
    clock.advance(1.0)  # the time of the first one
    clock.wait_for_sleepers()
    clock.advance(3.9)
    assert not line.results
    clock.advance(0.1)
    last = line.result()
    assert last.timed_out
    assert last.run_s == 5.0
    assert manager.get_all_stats()["http"]["abandoned"] == 1
    gate.open()
    until(lambda: manager.free_slots("http") == 2)
    assert manager.get_all_stats()["http"]["abandoned"] == 0


def test_what_is_abandoned_is_followed_by_nothing(manager, clock, gate):
    line = Line(manager, gate, lambda: "never", timeout=5.0)
    gate.entered()
    clock.wait_for_sleepers()
    clock.advance(5.0)
    assert line.result().timed_out
    gate.open()
    until(lambda: manager.free_slots("http") == 2)
    assert len(line.works) == 1


def test_whoever_cuts_one_that_has_ended_leaves_the_next_one_alone(manager, gate):
    tokens = []

    def look():
        tokens.append(current_task_token())
        return gate()

    line = Line(manager, lambda: "quick", look)
    gate.entered()
    line.call.cancel("nobody wants the first one", turn=0)
    line.call.cancel("nobody wants the first one", abandon=True, turn=0)
    assert not tokens[0].cancelled
    assert not line.results
    line.call.cancel("nobody wants the second one", turn=1)
    assert tokens[0].reason == "nobody wants the second one"
    gate.open()
    assert line.result().result == "late"


def test_one_that_fails_is_told_of_by_itself_and_followed_by_nothing(manager):
    line = Line(manager, lambda: "well", lambda: 1 / 0, lambda: "never")
    assert isinstance(line.result().error, ZeroDivisionError)
    assert [value for _, value, _ in line.answers] == ["well"]
    assert len(line.works) == 1
    stats = manager.get_all_stats()["http"]
    assert (stats["completed"], stats["failed"]) == (1, 1)


def test_where_nobody_knows_what_follows_the_call_is_told_of_as_always(manager):
    def then(ticket, value, run_s):
        raise LookupError("no idea")

    assert Pending(manager, "http", lambda: 7, then=then).result().result == 7


def test_who_has_heard_of_the_last_one_already_is_told_when_its_slot_is_free(manager):
    free, told = [], threading.Event()

    def after():
        free.append(manager.free_slots("http"))
        told.set()

    last = Pending(manager, "http", lambda: 7, then=lambda ticket, value, run_s: Gone(after))
    assert told.wait(PATIENCE_S)
    assert free == [2]
    assert not last.results
    assert last.call.is_over
    last.call.expire()
    last.call.cancel("too late", abandon=True)
    assert not last.results
    stats = manager.get_all_stats()["http"]
    assert (stats["completed"], stats["abandoned"], stats["timed_out"]) == (1, 0, 0)
    assert manager.shutdown(timeout=0.0)  # nobody waits for anything


def test_each_is_in_a_context_of_its_own(manager):
    seen = []

    def look():
        seen.append(current_task_token())

    line = Line(manager, look, look)
    line.result()
    assert seen[0] is not seen[1]
