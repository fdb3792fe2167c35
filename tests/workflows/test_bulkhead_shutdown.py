"""The end of a bulkhead manager: nothing new, nothing lost, nobody left waiting."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast.testing.clock import ManualClock
from holdfast.workflows.cancel import current_task_token
from tests.workflows.gates import PATIENCE_S, Gate, Pending, made, until


@pytest.fixture
def gate():
    gate = Gate("done")
    yield gate
    gate.open()


def test_what_runs_is_waited_for_and_what_waits_is_given_back(gate):
    manager = made()
    running = [Pending(manager, "http", gate) for _ in range(2)]
    gate.entered(2)
    waiting = Pending(manager, "http", gate)
    ended = []
    closing = threading.Thread(target=lambda: ended.append(manager.shutdown()))
    closing.start()
    refused = waiting.result()
    assert refused.rejected
    assert "was shut down" in str(refused.error)
    assert not ended
    gate.open()
    closing.join(PATIENCE_S)
    assert ended == [True]
    assert [one.result().result for one in running] == ["done", "done"]


def test_afterwards_every_call_is_refused(gate):
    manager = made()
    manager.shutdown()
    for task_type in ("http", "never heard of"):
        assert manager.free_slots(task_type) == 0
        assert manager.execute_with_timeout(task_type, gate).rejected
        assert Pending(manager, task_type, gate).result().rejected


def test_a_wait_for_the_end_may_be_limited(gate):
    clock = ManualClock(auto=False)
    manager = made(clock)
    running = Pending(manager, "http", gate)
    gate.entered()
    ended = []
    closing = threading.Thread(target=lambda: ended.append(manager.shutdown(timeout=5.0)))
    closing.start()
    clock.wait_for_sleepers(2)  # this thread, and the one that watches the call
    clock.advance(5.0)
    closing.join(PATIENCE_S)
    assert ended == [False]
    gate.open()
    assert running.result().success, "it was left to run"


def test_it_need_not_be_waited_for_at_all(gate):
    manager = made()
    running = Pending(manager, "http", gate)
    gate.entered()
    assert not manager.shutdown(wait=False)
    gate.open()
    assert running.result().success


def test_with_cancel_the_running_calls_are_asked_to_stop():
    manager, begun = made(), threading.Semaphore(0)

    def patient():
        begun.release()
        current_task_token().wait()
        current_task_token().raise_if_cancelled()

    async def patient_async():
        begun.release()
        await asyncio.Event().wait()

    running = [Pending(manager, "http", one) for one in (patient, patient_async)]
    for _ in running:
        assert begun.acquire(timeout=PATIENCE_S)
    assert manager.shutdown(cancel=True)
    assert all(isinstance(one.result().error, asyncio.CancelledError) for one in running)


def test_abandoned_calls_are_not_waited_for(gate):
    manager = made()
    hung = Pending(manager, "http", gate)
    gate.entered()
    hung.call.cancel("no use", abandon=True)
    assert manager.shutdown()


def test_it_takes_its_threads_with_it():
    before = set(threading.enumerate())
    with made() as manager:

        async def nothing():
            pass

        assert manager.execute_with_timeout("http", int).success
        assert Pending(manager, "http", nothing).result().success
        assert set(threading.enumerate()) - before
    until(lambda: not set(threading.enumerate()) - before)
