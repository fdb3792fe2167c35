"""The recording listener."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast import Breaker, CallCompleted, CircuitStateChanged, Guard, Hub, LoadShed, Retry, RetryScheduled
from holdfast.machine.trip import consecutive
from holdfast.telemetry.events import GuardEvent
from holdfast.testing import Flaky, Recorder, recording


def call(name: str = "x", outcome: str = "success") -> CallCompleted:
    return CallCompleted(name, "id", 0.1, outcome)  # type: ignore[arg-type]


def test_events_are_kept_in_order() -> None:
    hub = Hub()
    guard = Guard("x", Retry(attempts=2, base=0), Breaker(consecutive(2)), telemetry=hub)
    with recording(hub=hub) as recorder:
        guard.run(Flaky(OSError("down")))
        guard.run(Flaky("ok"))
    guard.run(Flaky("ok"))
    assert recorder.names() == [type(event).__name__ for event in recorder.events]
    assert recorder.count(CallCompleted) == 2
    assert recorder.count(RetryScheduled) == 1
    assert recorder.last(CircuitStateChanged).to_state == "open"
    assert recorder.last(LoadShed).reason == "circuit_open"
    assert recorder.count() == len(recorder.events)
    assert hub.listeners == ()


def test_only_wanted_kinds_are_kept() -> None:
    hub = Hub()
    with recording(CircuitStateChanged, LoadShed, hub=hub) as recorder:
        hub.emit(call())
        hub.emit(LoadShed("x", "id", "x", "circuit_open", 1.0))
    assert recorder.names() == ["LoadShed"]


def test_fields_choose_among_events() -> None:
    recorder = Recorder()
    for event in (call("a"), call("b", "timeout"), call("a", "timeout")):
        recorder.on_event(event)
    assert [event.operation_key for event in recorder.of(CallCompleted, outcome="timeout")] == ["b", "a"]
    assert recorder.count(CallCompleted, operation_key="a", outcome="timeout") == 1
    assert recorder.last(CallCompleted, operation_key="b").outcome == "timeout"
    assert recorder.count(GuardEvent, operation_key="a") == 2


def test_a_field_that_does_not_exist_is_a_mistake() -> None:
    with pytest.raises(TypeError, match="CallCompleted has no field 'outcom'; it has operation_key, call_id"):
        Recorder().count(CallCompleted, outcom="success")


def test_the_last_of_nothing_says_what_there_was() -> None:
    recorder = Recorder()
    with pytest.raises(AssertionError, match="no LoadShed was recorded, only: nothing"):
        recorder.last(LoadShed)
    recorder.on_event(call())
    with pytest.raises(AssertionError, match=r"no LoadShed\(reason='throttled'\) was recorded, only: CallCompleted"):
        recorder.last(LoadShed, reason="throttled")


def test_a_cleared_recorder_goes_on() -> None:
    recorder = Recorder()
    recorder.on_event(call())
    seen = recorder.events
    recorder.clear()
    assert recorder.count() == 0
    assert len(seen) == 1
    recorder.on_event(call("b"))
    assert repr(recorder) == "<Recorder: CallCompleted>"


class Asked(str):
    """A name that tells when a recorder compares it, which it does with its lock held."""

    def __new__(cls, name: str, asked: threading.Event) -> Asked:
        made = super().__new__(cls, name)
        made.asked = asked
        return made

    asked: threading.Event

    def __eq__(self, other: object) -> bool:
        self.asked.set()
        return str(self) == other

    __hash__ = str.__hash__


def test_a_thread_waits_for_events_of_others() -> None:
    recorder, asked = Recorder(), threading.Event()
    recorder.on_event(call("other"))

    def work() -> None:
        asked.wait(10)
        recorder.on_event(call("mine"))

    thread = threading.Thread(target=work)
    thread.start()
    found = recorder.wait_for(CallCompleted, patience=300, operation_key=Asked("mine", asked))
    assert [event.operation_key for event in found] == ["mine"]
    thread.join()


def test_waiting_in_vain_fails_the_test_with_what_was_heard() -> None:
    recorder = Recorder()
    recorder.on_event(call())
    assert recorder.wait_for(CallCompleted, patience=0) != []
    with pytest.raises(AssertionError, match=r"waited 0 s for 2 of CallCompleted, saw 1; recorded: CallCompleted\("):
        recorder.wait_for(CallCompleted, 2, patience=0)


async def test_a_task_waits_for_events_of_tasks_and_threads() -> None:
    recorder = Recorder()
    waiting = asyncio.ensure_future(recorder.wait_for_async(CallCompleted, 3))
    await asyncio.sleep(0)
    recorder.on_event(call())
    recorder.on_event(call())
    await asyncio.to_thread(recorder.on_event, call())
    assert len(await waiting) == 3


async def test_a_task_does_not_wait_for_what_is_there() -> None:
    recorder = Recorder()
    recorder.on_event(call())
    assert len(await recorder.wait_for_async(CallCompleted)) == 1


async def test_a_task_that_waits_in_vain_leaves_no_trace() -> None:
    recorder = Recorder()
    with pytest.raises(AssertionError, match=r"waited 0.001 s for 1 of LoadShed\(reason='x'\), saw 0"):
        await recorder.wait_for_async(LoadShed, patience=0.001, reason="x")
    waiting = asyncio.ensure_future(recorder.wait_for_async(LoadShed))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert recorder._sleepers == []


def test_a_loop_that_was_closed_does_not_disturb() -> None:
    recorder = Recorder()
    loop = asyncio.new_event_loop()
    task = loop.create_task(recorder.wait_for_async(CallCompleted))
    loop.run_until_complete(asyncio.sleep(0))
    hub = Hub()
    hub.register(recorder)
    task.cancel()
    sleepers = list(recorder._sleepers)
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()
    recorder._sleepers = sleepers
    hub.emit(call())
    assert (hub.listener_failures, recorder.count()) == (0, 1)
