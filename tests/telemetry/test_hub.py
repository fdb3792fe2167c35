from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from holdfast.core.outcome import OutcomeKind
from holdfast.telemetry import hub as hub_module
from holdfast.telemetry.events import CallCompleted, CircuitStateChanged, GuardEvent, LoadShed, RetryScheduled, Severity
from holdfast.telemetry.hub import (
    BATCH,
    Hub,
    default_hub,
    default_metrics,
    emit,
    get_listeners,
    register_listener,
    unregister_listener,
)
from holdfast.telemetry.metrics import InMemoryMetrics
from tests.telemetry.clocks import NOON, StandingClock

SUCCESS, TIMEOUT, REJECTED = OutcomeKind.SUCCESS, OutcomeKind.TIMEOUT, OutcomeKind.REJECTED


def completed(operation: str = "pay") -> CallCompleted:
    return CallCompleted(operation, "c1", 0.1, SUCCESS)


def opened() -> CircuitStateChanged:
    return CircuitStateChanged("pay", "c1", "eu", "closed", "open")


class Ear:
    """A loud listener that remembers."""

    def __init__(self) -> None:
        self.heard: list[GuardEvent] = []

    def on_event(self, event: GuardEvent) -> None:
        self.heard.append(event)


class Ledger:
    """A quiet listener that remembers its batches."""

    quiet = True
    wants = frozenset({CircuitStateChanged})

    def __init__(self) -> None:
        self.calls: list[tuple[str, OutcomeKind, list[float]]] = []
        self.shed: Counter[tuple[str, str, str]] = Counter()
        self.heard: list[GuardEvent] = []

    def bind(self, flush: Callable[[], None]) -> None:
        self.flush = flush

    def on_calls(self, operation_key: str, kind: OutcomeKind, durations: Sequence[float]) -> None:
        self.calls.append((operation_key, kind, list(durations)))

    def on_shed(self, operation_key: str, name: str, reason: str, count: int) -> None:
        self.shed[operation_key, name, reason] += count

    def on_event(self, event: GuardEvent) -> None:
        self.heard.append(event)


def test_an_object_and_a_plain_callable_both_listen() -> None:
    hub, ear, heard = Hub(), Ear(), []
    hub.register(ear)
    hub.register(heard.append)
    event = completed()
    hub.emit(event)
    assert ear.heard == heard == [event]


def test_registering_twice_delivers_once_and_unregistering_twice_is_harmless() -> None:
    hub, ear = Hub(), Ear()
    for listener in (ear, ear, ear.heard.append, ear.on_event, ear.on_event):
        hub.register(listener)
    assert hub.listeners == (ear, ear.heard.append, ear.on_event)
    hub.unregister(ear.on_event)
    hub.unregister(ear.on_event)
    hub.unregister(ear)
    assert hub.listeners == (ear.heard.append,)


def test_two_equal_but_different_listeners_are_two() -> None:
    class Alike(Ear):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    hub, first, second = Hub(), Alike(), Alike()
    hub.register(first)
    hub.register(second)
    hub.emit(completed())
    assert len(first.heard) == len(second.heard) == 1


def test_what_cannot_listen_is_refused() -> None:
    with pytest.raises(TypeError, match="must be callable, or have on_event"):
        Hub().register(object())  # type: ignore[arg-type]


def test_a_failing_listener_reaches_neither_the_call_nor_the_others(caplog: pytest.LogCaptureFixture) -> None:
    def broken(event: GuardEvent) -> None:
        raise RuntimeError("disk full")

    hub, ear = Hub(), Ear()
    hub.register(broken)
    hub.register(ear)
    with caplog.at_level(logging.WARNING, "holdfast"):
        hub.emit(completed())
        hub.emit(completed())
    assert len(ear.heard) == 2
    assert hub.listener_failures == 2
    assert [record.name for record in caplog.records] == ["holdfast"], "logged once"
    assert "disk full" in caplog.text


def test_a_failing_aggregator_does_not_take_the_batch_from_the_others() -> None:
    class Broken(Ledger):
        def on_calls(self, *_: Any) -> None:
            raise RuntimeError("no")

    hub, ledger = Hub(), Ledger()
    hub.register(Broken())
    hub.register(ledger)
    hub.meter("pay").add(TIMEOUT, 1.0)
    hub.flush()
    assert ledger.calls == [("pay", TIMEOUT, [1.0])]
    assert hub.listener_failures == 1


def test_a_cancellation_raised_by_a_listener_is_not_swallowed() -> None:
    def interrupted(event: GuardEvent) -> None:
        raise KeyboardInterrupt

    hub = Hub()
    hub.register(interrupted)
    with pytest.raises(KeyboardInterrupt):
        hub.emit(completed())


def test_only_a_listener_that_needs_events_makes_the_hub_loud() -> None:
    hub, ear, ledger = Hub(), Ear(), Ledger()
    assert not hub.loud
    hub.register(ledger)
    assert not hub.loud
    hub.register(ear)
    assert hub.loud
    hub.unregister(ear)
    assert not hub.loud


def test_a_quiet_listener_hears_only_the_rare_events_it_wants() -> None:
    hub, ledger = Hub(), Ledger()
    hub.register(ledger)
    change = opened()
    hub.emit(completed())
    hub.emit(RetryScheduled("pay", "c1", 0, 1.0))
    hub.emit(change)
    assert ledger.heard == [change]


def test_a_loud_listener_may_name_what_it_wants_too() -> None:
    class Picky(Ear):
        wants = frozenset({LoadShed})

    hub, picky = Hub(), Picky()
    hub.register(picky)
    shed = LoadShed("pay", "c1", "eu", "circuit_open")
    hub.emit(completed())
    hub.emit(shed)
    assert picky.heard == [shed]


def test_what_the_meters_count_goes_to_loud_listeners_only() -> None:
    hub, metrics, ear = Hub(), InMemoryMetrics(), Ear()
    hub.register(metrics)
    hub.register(ear)
    hub.meter("pay").add(SUCCESS, 0.1)
    hub.emit_loud(completed())
    assert len(ear.heard) == 1
    assert metrics.snapshot()["call_count"] == 1


def test_a_severity_can_be_overridden_and_none_suppresses() -> None:
    ear = Ear()
    hub = Hub(severity_overrides={"guard.call_completed": Severity.DEBUG, "guard.load_shed": None})
    hub.register(ear)
    hub.emit(LoadShed("pay", "c1", "eu", "circuit_open"))
    hub.emit(completed())
    hub.emit(opened())
    assert [event.severity for event in ear.heard] == [Severity.DEBUG, Severity.ERROR]
    hub.set_severity("guard.call_completed", None)
    hub.emit(completed())
    assert len(ear.heard) == 2


def test_an_unknown_severity_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"guard\.load_shed must be one of debug, info, warning, error or None"):
        Hub(severity_overrides={"guard.load_shed": "loud"})  # type: ignore[dict-item]


def test_enrichers_add_tags_and_a_failing_one_is_isolated() -> None:
    def broken(event: GuardEvent) -> dict[str, str]:
        raise RuntimeError("no tags")

    ear = Ear()
    hub = Hub(enrichers=[lambda event: {"region": "eu", "team": "a"}, broken, lambda event: None])
    hub.add_enricher(lambda event: {"team": "b"})
    hub.register(ear)
    hub.emit(completed())
    assert ear.heard[0].tags == {"region": "eu", "team": "b"}
    assert hub.listener_failures == 1


def test_an_event_carries_the_time_of_its_delivery() -> None:
    hub, ear = Hub(clock=StandingClock()), Ear()
    hub.register(ear)
    hub.emit(completed())
    assert ear.heard[0].at == NOON


def test_a_listener_may_change_the_listeners_while_it_is_called() -> None:
    hub, ear = Hub(), Ear()

    def once(event: GuardEvent) -> None:
        hub.unregister(once)
        hub.register(ear)

    hub.register(once)
    hub.emit(completed())
    hub.emit(completed())
    assert len(ear.heard) == 1
    assert hub.listeners == (ear,)


def test_a_meter_is_one_per_operation_and_hands_over_full_batches() -> None:
    hub, ledger = Hub(), Ledger()
    hub.register(ledger)
    meter = hub.meter("pay")
    assert hub.meter("pay") is meter
    for _ in range(BATCH):
        meter.pending.append(0.5)
        if len(meter.pending) >= BATCH:
            meter.fold()
    assert [(key, kind, len(durations)) for key, kind, durations in ledger.calls] == [("pay", SUCCESS, BATCH)]
    assert meter.pending == []


def test_other_outcomes_and_refusals_are_batched_by_kind_and_reason() -> None:
    hub, ledger = Hub(), Ledger()
    hub.register(ledger)
    meter = hub.meter("pay")
    for _ in range(BATCH // 2):
        meter.add(REJECTED, 0.0)
        meter.add(TIMEOUT, 1.0)
    for reason in ("circuit_open", "rate_limited", "circuit_open"):
        meter.shed("eu", reason)
    ledger.flush()
    assert {kind: len(durations) for _, kind, durations in ledger.calls} == {
        REJECTED: BATCH // 2,
        TIMEOUT: BATCH // 2,
    }
    assert ledger.shed == {("pay", "eu", "circuit_open"): 2, ("pay", "eu", "rate_limited"): 1}


def test_without_an_aggregator_batches_are_dropped() -> None:
    hub = Hub()
    meter = hub.meter("pay")
    meter.pending.extend([0.1] * BATCH)
    meter.fold()
    late = Ledger()
    meter.pending.append(0.1)
    hub.register(late)
    hub.flush()
    assert late.calls == [], "what came before it registered is not its business"


def test_an_aggregator_gets_what_was_pending_when_it_leaves() -> None:
    hub, ledger = Hub(), Ledger()
    hub.register(ledger)
    hub.meter("pay").pending.append(0.1)
    hub.unregister(ledger)
    hub.meter("pay").pending.append(0.2)
    hub.flush()
    assert ledger.calls == [("pay", SUCCESS, [0.1])]


def test_operations_beyond_the_limit_share_a_meter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "MAX_METERS", 2)
    hub = Hub()
    hub.meter("a"), hub.meter("b")
    assert hub.meter("c") is hub.meter("d")
    assert hub.meter("c").operation_key == "other"
    assert hub.meter("a").operation_key == "a"


def test_no_call_is_lost_or_doubled_while_threads_append_and_fold() -> None:
    hub, metrics = Hub(), InMemoryMetrics()
    hub.register(metrics)
    meter, each, threads = hub.meter("pay"), 5000, 4
    start = threading.Barrier(threads + 1)

    def work() -> None:
        start.wait()
        for index in range(each):
            meter.pending.append(0.1)
            if len(meter.pending) >= BATCH:
                meter.fold()
            meter.add(TIMEOUT, 0.2)
            meter.shed("eu", "circuit_open")
            if index % 100 == 0:
                metrics.snapshot()

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    start.wait()
    for worker in workers:
        worker.join()
    seen = metrics.snapshot()
    assert seen["call_count"] == 2 * each * threads
    assert seen["counts_by_operation_outcome"] == {"pay/success": each * threads, "pay/timeout": each * threads}
    assert seen["shed_by_reason"] == {"circuit_open": each * threads}


def test_listeners_are_called_without_a_lock() -> None:
    """A listener that waits for another thread, which registers, would deadlock under a lock."""
    hub = Hub()

    def register_elsewhere(event: GuardEvent) -> None:
        helper = threading.Thread(target=hub.register, args=(Ear(),))
        helper.start()
        helper.join(10)
        assert not helper.is_alive()

    hub.register(register_elsewhere)
    hub.emit(completed())
    assert hub.listener_failures == 0
    assert len(hub.listeners) == 2


def test_the_process_wide_hub_has_a_recorder_and_takes_listeners() -> None:
    ear = Ear()
    register_listener(ear)
    try:
        assert ear in get_listeners()
        assert default_metrics() in get_listeners()
        before = default_metrics().snapshot()["call_count"]
        emit(completed())
        assert len(ear.heard) == 1
        assert default_metrics().snapshot()["call_count"] == before + 1
    finally:
        unregister_listener(ear)
    assert ear not in get_listeners()
    assert default_hub() is default_hub()


def test_threads_that_come_first_together_get_the_same_hub() -> None:
    program = """
import sys, threading
from holdfast.telemetry import hub
sys.setswitchinterval(1e-6)
start, seen = threading.Barrier(8), []
def first():
    start.wait()
    seen.append(hub.default_hub())
threads = [threading.Thread(target=first) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len(set(map(id, seen))) == 1, seen
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_the_hub_loads_neither_asyncio_nor_pydantic_nor_logging() -> None:
    program = """
import sys
import holdfast.telemetry.hub
assert not {"asyncio", "pydantic", "logging", "dataclasses"} & set(sys.modules), sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
