"""Calls that take too long or are not wanted any more: what the caller hears, and who keeps which slot."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

from holdfast.errors import BulkheadTimeoutError, TaskTimeoutError
from holdfast.testing.clock import ManualClock
from holdfast.workflows.cancel import current_task_token
from holdfast.workflows.compartment import Compartment
from holdfast.workflows.config import BulkheadConfig
from holdfast.workflows.task_call import TaskCall
from holdfast.workflows.task_loop import TaskLoop
from holdfast.workflows.threads import Alarms, Threads
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


class Hung:
    """A coroutine that begins and waits for ever; it may refuse to be cut."""

    def __init__(self, *, stubborn=False):
        self.begun = threading.Event()
        self.cut = threading.Event()
        self.let_go = threading.Event()
        self.stubborn = stubborn

    async def __call__(self):
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cut.set()
            if self.stubborn:
                await asyncio.to_thread(self.let_go.wait, PATIENCE_S)
            raise


def executed(manager, func, **options):
    """`execute_with_timeout` in another thread."""
    results = []
    thread = threading.Thread(target=lambda: results.append(manager.execute_with_timeout("http", func, **options)))
    thread.start()

    def result():
        thread.join(PATIENCE_S)
        [result] = results
        return result

    return result


def test_a_timeout_is_an_answer_and_not_raised(manager, clock, gate):
    result = executed(manager, gate, timeout=5.0)
    gate.entered()
    clock.wait_for_sleepers()
    clock.advance(5.0)
    answer = result()
    assert (answer.success, answer.timed_out, answer.rejected) == (False, True, False)
    assert isinstance(answer.error, BulkheadTimeoutError)
    assert isinstance(answer.error, TaskTimeoutError)
    assert "not done within 5 s" in str(answer.error)
    assert answer.run_s == 5.0


def test_without_a_limit_of_its_own_a_call_has_that_of_its_type(manager, clock, gate):
    hung = Pending(manager, "http", gate)
    gate.entered()
    clock.wait_for_sleepers()
    clock.advance(29.9)
    assert not hung.results
    clock.advance(0.1)
    assert hung.result().timed_out


def test_a_hung_thread_is_abandoned_and_keeps_its_slot_until_it_ends(manager, clock, gate):
    hung = Pending(manager, "http", gate, timeout=5.0)
    gate.entered()
    clock.wait_for_sleepers()
    clock.advance(5.0)
    assert hung.result().timed_out
    stats = manager.get_all_stats()["http"]
    assert (stats["active"], stats["abandoned"], stats["timed_out"]) == (1, 1, 1)
    assert manager.free_slots("http") == 1
    gate.open()
    until(lambda: manager.free_slots("http") == 2)
    stats = manager.get_all_stats()["http"]
    assert (stats["active"], stats["abandoned"], stats["timed_out"]) == (0, 0, 1)
    assert (stats["completed"], stats["failed"]) == (0, 0), "its late result goes nowhere"
    assert len(hung.results) == 1


def test_a_call_that_expires_in_the_queue_never_runs(manager, clock, gate):
    held = [Pending(manager, "http", gate) for _ in range(2)]
    gate.entered(2)
    ran = []
    waiting = Pending(manager, "http", lambda: ran.append(1), timeout=5.0)
    clock.wait_for_sleepers()
    clock.advance(5.0)
    answer = waiting.result()
    assert answer.timed_out
    assert "no slot came free within 5 s" in str(answer.error)
    assert (answer.wait_s, answer.run_s) == (5.0, 0.0)
    assert manager.get_all_stats()["http"]["queued"] == 0
    gate.open()
    for one in held:
        one.result()
    assert manager.execute_with_timeout("http", int).success
    assert not ran


def test_a_call_whose_turn_comes_too_late_never_runs(clock):
    """The slot comes free when its time is up, before anybody has told it so."""
    manager, ran = made(clock, http=(1, 1, 30.0)), []
    gate = Gate()

    def hold_on():
        gate()
        clock._now += 10.0  # without waking those that wait

    first = Pending(manager, "http", hold_on)
    gate.entered()
    second = Pending(manager, "http", lambda: ran.append(1), timeout=5.0)
    gate.open()
    assert first.result().success
    assert second.result().timed_out
    assert not ran


def test_a_call_whose_time_is_up_before_it_queues_is_forgotten(clock):
    room, results = Compartment("http", BulkheadConfig(1, 1), clock, TaskLoop(), Threads("http", 10.0)), []
    call = TaskCall(room, int, 5.0, results.append, None)
    call.expire()
    call.enter()
    assert [one.timed_out for one in results] == [True]
    assert room.free == 1
    assert room.empty().is_set()


def test_the_wait_and_the_run_are_told_apart(manager, clock, gate):
    held = [Pending(manager, "http", gate) for _ in range(2)]
    gate.entered(2)
    waiting = Pending(manager, "http", clock.advance, 3.0)
    clock.advance(4.0)
    gate.open()
    answer = waiting.result()
    assert (answer.wait_s, answer.run_s) == (4.0, 3.0)
    assert [one.result().run_s >= 4.0 for one in held] == [True, True]


def test_an_async_call_is_cut_when_its_time_is_up(manager, clock):
    hung = Hung()
    result = executed(manager, hung, timeout=5.0)
    assert hung.begun.wait(PATIENCE_S)
    clock.wait_for_sleepers()
    clock.advance(5.0)
    assert result().timed_out
    assert hung.cut.wait(PATIENCE_S)
    until(lambda: manager.free_slots("http") == 2)
    assert manager.get_all_stats()["http"]["abandoned"] == 0


def test_an_async_call_that_does_not_let_itself_be_cut_is_abandoned_too(manager, clock):
    hung = Hung(stubborn=True)
    pending = Pending(manager, "http", hung, timeout=5.0)
    assert hung.begun.wait(PATIENCE_S)
    clock.wait_for_sleepers()
    clock.advance(5.0)
    assert pending.result().timed_out
    assert hung.cut.wait(PATIENCE_S)
    assert manager.get_all_stats()["http"]["abandoned"] == 1
    hung.let_go.set()
    until(lambda: manager.get_all_stats()["http"]["abandoned"] == 0)


def test_a_task_that_looks_at_its_token_stops_when_its_time_is_up(manager, clock):
    begun, reasons = threading.Event(), []

    def patient():
        token = current_task_token()
        begun.set()
        token.wait(1000.0)
        reasons.append(token.reason)
        token.raise_if_cancelled()

    pending = Pending(manager, "http", patient, timeout=5.0)
    assert begun.wait(PATIENCE_S)
    clock.wait_for_sleepers(2)
    clock.advance(5.0)
    assert pending.result().timed_out
    until(lambda: manager.free_slots("http") == 2)
    [reason] = reasons
    assert "not done within 5 s" in reason


def test_what_fails_when_its_time_is_up_has_timed_out(manager, clock):
    """It read how much time was left, and gave up before the alarm came."""

    def gives_up():
        clock._now += 5.0
        raise TimeoutError("no time left for the socket")

    assert Pending(manager, "http", gives_up, timeout=5.0).result().timed_out


def test_a_cancelled_call_that_waits_never_runs(manager, gate):
    held = [Pending(manager, "http", gate) for _ in range(2)]
    gate.entered(2)
    ran = []
    waiting = Pending(manager, "http", lambda: ran.append(1))
    waiting.call.cancel("the workflow was cancelled")
    answer = waiting.result()
    assert isinstance(answer.error, asyncio.CancelledError)
    assert str(answer.error) == "the workflow was cancelled"
    assert not answer.rejected
    gate.open()
    for one in held:
        one.result()
    assert not ran


@pytest.mark.parametrize("is_async", [False, True])
def test_cancelling_a_running_call_reaches_it_in_either_colour(manager, is_async):
    hung, begun = Hung(), threading.Event()

    def patient():
        begun.set()
        assert current_task_token().wait(1000.0)
        current_task_token().raise_if_cancelled()

    pending = Pending(manager, "http", hung if is_async else patient)
    assert (hung.begun if is_async else begun).wait(PATIENCE_S)
    pending.call.cancel("the workflow was cancelled")
    assert isinstance(pending.result().error, asyncio.CancelledError)
    stats = manager.get_all_stats()["http"]
    assert (stats["failed"], stats["completed"]) == (0, 0), "cancellation is neither"


@pytest.mark.parametrize("abandon", [False, True])
def test_a_coroutine_that_is_cancelled_before_its_first_step_never_begins(manager, gate, abandon):
    async def blocks_the_loop():
        gate()

    blocking = Pending(manager, "http", blocks_the_loop)
    gate.entered()
    ran = []

    async def work():
        ran.append(1)

    second = Pending(manager, "http", work)
    second.call.cancel("the workflow was cancelled", abandon=abandon)
    gate.open()
    assert isinstance(second.result().error, asyncio.CancelledError)
    assert blocking.result().success
    until(lambda: manager.free_slots("http") == 2)
    assert not ran


def test_a_caller_may_walk_away_from_what_it_cancels(manager, gate):
    pending = Pending(manager, "http", gate)
    gate.entered()
    pending.call.cancel("the worker ends", abandon=True)
    assert isinstance(pending.result().error, asyncio.CancelledError)
    assert manager.get_all_stats()["http"]["abandoned"] == 1


def test_a_caller_that_is_interrupted_leaves_nothing_waiting(gate):
    class Interrupted(ManualClock):
        def wait(self, event, seconds):
            gate.entered()
            raise KeyboardInterrupt

    manager, tokens = made(Interrupted(auto=False)), []

    def work():
        tokens.append(current_task_token())
        return gate()

    with pytest.raises(KeyboardInterrupt):
        manager.execute_with_timeout("http", work)
    assert tokens[0].cancelled
    assert manager.get_all_stats()["http"]["abandoned"] == 1


def test_ten_thousand_calls_that_end_in_time_leave_nothing_behind(clock):
    alarms = Alarms(clock)

    class Ended:
        at = clock.monotonic() + 14_400.0
        is_over = True

        def expire(self):
            raise AssertionError("it had ended")

    for _ in range(10_000):
        assert alarms.watch(Ended())
    assert len(alarms) <= 256
    alarms.close()
    assert len(alarms) == 0


def test_a_shorter_limit_is_not_held_up_by_a_longer_one(manager, clock, gate):
    long = Pending(manager, "http", gate, timeout=1000.0)
    gate.entered()
    clock.wait_for_sleepers()
    short = Pending(manager, "http", gate, timeout=5.0)
    gate.entered()
    clock.advance(5.0)
    assert short.result().timed_out
    assert not long.results


def test_a_call_that_may_take_for_ever_takes_the_time_limits_of_nobody(gate):
    manager = made(http=(2, 1, 30.0))
    patient = Pending(manager, "http", gate, timeout=float(sys.maxsize))
    gate.entered()
    late = Gate("late")
    try:
        assert manager.execute_with_timeout("http", late, timeout=0.05).timed_out
        assert Pending(manager, "mail", late, timeout=0.05).result().timed_out
        gate.open()
        assert patient.result().success
    finally:
        late.open()
        manager.shutdown()
