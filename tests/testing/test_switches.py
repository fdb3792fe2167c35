"""`trip`, `disable` and `unchanged`, and scopes as such."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from holdfast import (
    Breaker,
    CircuitBreaker,
    CircuitBreakerStrategy,
    CircuitOpen,
    CircuitStateChanged,
    EndpointPool,
    Guard,
    Hub,
    InMemoryMetrics,
    PolicyError,
    ResiliencePipeline,
    ResiliencePipelineRegistry,
    Retry,
    default_hub,
    get_pipeline_registry,
    ratio,
    slow_ratio,
)
from holdfast.core.outcome import Evidence
from holdfast.guard.circuit import LiveCircuit
from holdfast.machine.trip import consecutive, count, k_of_n
from holdfast.testing import Flaky, ManualClock, Recorder, disable, recording, trip, unchanged
from tests.guard.colours import Colour

GuardOf = Callable[..., Guard]


def test_a_tripped_guard_refuses_until_the_block_ends(colour: Colour, guard_of: GuardOf) -> None:
    guard, fn = guard_of(Breaker(open_for=30)), colour.fn(["ok"])
    with trip(guard) as circuit:
        assert circuit is guard.circuit
        with pytest.raises(CircuitOpen) as refused:
            colour.call(guard, fn)
        assert refused.value.retry_after == 30
    assert colour.call(guard, fn) == "ok"
    assert fn.calls == 1


def test_a_tripped_circuit_recovers_through_its_probe(colour: Colour, guard_of: GuardOf, clock: ManualClock) -> None:
    guard, fn = guard_of(Breaker(open_for=30)), colour.fn(["ok"])
    with trip(guard) as circuit:
        clock.advance(30)
        assert colour.run(guard, fn).value == "ok"
        assert circuit.state == "closed"
    assert circuit.state == "closed"


def test_the_changes_are_told_once_each(guard_of: GuardOf) -> None:
    guard = guard_of(Breaker())
    with recording(CircuitStateChanged, hub=guard.telemetry) as recorder, trip(guard):
        pass
    told = [(event.from_state, event.to_state, event.cause) for event in recorder.of(CircuitStateChanged)]
    assert told == [("closed", "open", "tripped_by_hand"), ("open", "closed", "reset")]


@pytest.mark.parametrize(
    "rule",
    [consecutive(2), count(2, window=60), k_of_n(2, 4), ratio(0.5, 2, 60), slow_ratio(0.5, 1, 2)],
    ids=lambda rule: type(rule).__name__,
)
def test_failures_counted_before_count_afterwards(guard_of: GuardOf, clock: ManualClock, rule: Any) -> None:
    guard = guard_of(Breaker(rule, open_for=30))
    circuit = guard.circuit
    circuit.finish(circuit.generation, Evidence.FAILURE, clock.monotonic(), 5.0)
    with trip(guard):
        clock.advance(30)
        guard.run(Flaky("ok"))  # a probe that closes the circuit and empties its counts
    assert circuit.state == "closed"
    circuit.finish(circuit.generation, Evidence.FAILURE, clock.monotonic(), 5.0)
    assert circuit.state == "open"


def test_an_open_circuit_opens_anew_and_is_due_when_it_was(guard_of: GuardOf, clock: ManualClock) -> None:
    guard = guard_of(Breaker(consecutive(1), open_for=30))
    guard.run(Flaky(OSError("down")))
    clock.advance(29)
    with trip(guard) as circuit:
        assert circuit.next_test == clock.monotonic() + 30
        clock.advance(0.5)
    assert (circuit.state, circuit.next_test) == ("open", 1030.0)


def test_a_half_open_circuit_comes_back_open_and_due(guard_of: GuardOf, clock: ManualClock) -> None:
    guard = guard_of(Breaker(consecutive(1), open_for=30))
    guard.run(Flaky(OSError("down")))
    clock.advance(30)
    circuit = guard.circuit
    circuit.admit(clock.monotonic())
    assert circuit.state == "half_open"
    with trip(guard):
        assert circuit.state == "open"
    assert (circuit.state, circuit.next_test) == ("open", clock.monotonic())


@pytest.mark.parametrize("verb", ["disable", "metrics_only"])
def test_a_circuit_out_of_control_is_tripped_and_let_go_again(guard_of: GuardOf, verb: str) -> None:
    guard = guard_of(Breaker())
    guard.circuit.command(verb)
    control = guard.circuit.control
    with trip(guard):
        assert guard.run(Flaky("ok")).reason == "circuit_open"
    assert guard.circuit.control is control
    assert guard.run(Flaky("ok")).value == "ok"


def test_an_isolated_circuit_stays_isolated_and_silent(guard_of: GuardOf) -> None:
    guard = guard_of(Breaker())
    guard.circuit.command("isolate")
    with recording(hub=guard.telemetry) as recorder, trip(guard) as circuit:
        assert guard.run(Flaky("ok")).reason == "circuit_open"
    assert recorder.of(CircuitStateChanged) == []
    assert (circuit.control, circuit.state) == ("isolated", "open")


def test_what_an_operator_did_inside_is_undone(guard_of: GuardOf) -> None:
    guard = guard_of(Breaker())
    for verb in ("isolate", "disable", "close", "reset"):
        with trip(guard) as circuit:
            circuit.command(verb)
        assert (circuit.state, circuit.control) == ("closed", "auto")


def test_rules_that_were_replaced_inside_start_counting_anew(guard_of: GuardOf) -> None:
    guard = guard_of(Breaker(consecutive(2)))
    guard.run(Flaky(OSError("down")))
    with trip(guard):
        guard.replace(Breaker(count(2, window=60), ratio(0.5, 2, 60)))
    assert guard.run(Flaky(OSError("down"))).error is not None
    assert guard.circuit.state == "closed"


def test_trips_nest(guard_of: GuardOf, clock: ManualClock) -> None:
    guard = guard_of(Breaker(open_for=30))
    with trip(guard) as circuit:
        clock.advance(10)
        with trip(guard):
            assert circuit.next_test == 1040
        assert circuit.next_test == 1030
    assert circuit.state == "closed"


def test_everything_with_a_circuit_can_be_tripped(clock: ManualClock) -> None:
    hub = Hub()
    guard = Guard("guard", Breaker(), clock=clock, telemetry=hub)
    strategy = CircuitBreakerStrategy("strategy")
    pipeline = ResiliencePipeline([strategy], clock=clock, telemetry=hub)
    pool = EndpointPool(["a", "b"])
    targets: list[tuple[Any, LiveCircuit | None]] = [
        (guard, guard.circuit),
        (guard.circuit, guard.circuit),
        (guard(lambda: None), guard.circuit),
        (pipeline, strategy.circuit),
        (strategy, strategy.circuit),
        (pool.circuit("a"), pool.circuit("a")),
    ]
    by_hand = CircuitBreaker("proxy", telemetry=hub)
    targets.append((by_hand, by_hand.circuit))
    for target, circuit in targets:
        with trip(target) as tripped:
            assert tripped is circuit
            assert tripped.state == "open"
        assert tripped.state == "closed"


def test_a_name_is_looked_up_in_the_registry_given_or_in_the_process_wide_one() -> None:
    registry = ResiliencePipelineRegistry()
    registry.register("orders", lambda: ResiliencePipeline([CircuitBreakerStrategy("orders")]))
    with trip("orders", registry=registry) as circuit:
        assert circuit.name == "orders"
    guard = Guard("stock", Breaker(), telemetry=Hub())
    with trip("stock", registry={"stock": guard}) as circuit:
        assert circuit is guard.circuit
    name = "holdfast-test-of-trip"
    get_pipeline_registry().register(name, lambda: ResiliencePipeline([CircuitBreakerStrategy(name)]))
    with trip(name) as circuit:
        assert circuit.name == name


def test_an_unknown_name_is_a_key_error() -> None:
    for registry in (None, {}, ResiliencePipelineRegistry()):
        with pytest.raises(KeyError, match="nobody"), trip("nobody", registry=registry):
            pytest.fail("not reached")


@pytest.mark.parametrize("target", [Guard("bare", Retry(), telemetry=Hub()), ResiliencePipeline([]), None, 7])
def test_what_has_no_circuit_is_refused(target: Any) -> None:
    with pytest.raises(PolicyError, match="trip needs something with a Breaker"), trip(target):
        pytest.fail("not reached")


def test_a_disabled_guard_is_a_plain_call(colour: Colour, guard_of: GuardOf) -> None:
    guard = guard_of(Retry(attempts=3, base=0), Breaker(consecutive(1)))
    fn = colour.fn([OSError("down")])
    with disable(guard.telemetry) as hub:
        assert hub is guard.telemetry
        for _ in range(3):
            with pytest.raises(OSError, match="down"):
                colour.call(guard, fn)
    assert fn.calls == 3
    assert guard.circuit.state == "closed"
    assert colour.run(guard, fn).reason == "circuit_open"


def test_the_process_wide_hub_is_the_default() -> None:
    guard = Guard("wide", Retry(attempts=3, base=0))
    fn = Flaky(OSError("down"))
    with disable() as hub:
        assert hub is default_hub()
        assert guard.run(fn).attempts == 1
    assert guard.run(fn).attempts == 3


def test_disabling_nests_and_ends_when_the_block_fails() -> None:
    hub = Hub()
    with pytest.raises(ZeroDivisionError), disable(hub):
        with disable(hub):
            pass
        assert hub.off
        raise ZeroDivisionError
    assert (hub.off, hub.loud) == (False, False)


def test_other_threads_are_disabled_too(guard_of: GuardOf) -> None:
    guard, outcomes = guard_of(Retry(attempts=3, base=0)), []
    with disable(guard.telemetry):
        thread = threading.Thread(target=lambda: outcomes.append(guard.run(Flaky(OSError("down")))))
        thread.start()
        thread.join()
    assert outcomes[0].attempts == 1


def test_unchanged_puts_listeners_and_switch_back() -> None:
    hub, stays, goes, metrics = Hub(), Recorder(), Recorder(), InMemoryMetrics()
    for listener in (stays, goes, metrics):
        hub.register(listener)
    heard: list[Any] = []
    with unchanged(hub):
        hub.unregister(goes)
        hub.unregister(metrics)
        hub.register(heard.append)
        hub.register(InMemoryMetrics())
        hub.switch(off=True)
    assert set(hub.listeners) == {stays, goes, metrics}
    assert (hub.off, hub.loud) == (False, True)
    Guard("x", telemetry=hub).run(Flaky("ok"))
    assert heard == []
    assert metrics.snapshot()["call_count"] == 1


def test_a_scope_decorates_a_function() -> None:
    hub = Hub()

    @disable(hub)
    def is_off(extra: bool = True) -> bool:
        """Asks the hub."""
        return hub.off and extra

    assert is_off()
    assert not is_off(False)
    assert not hub.off
    assert (is_off.__name__, is_off.__doc__) == ("is_off", "Asks the hub.")


async def test_a_scope_decorates_an_async_function_until_that_has_ended() -> None:
    hub = Hub()

    @disable(hub)
    async def is_off() -> bool:
        await asyncio.sleep(0)
        return hub.off

    begun = is_off()
    assert not hub.off
    assert await begun
    assert not hub.off


def test_a_scope_can_be_used_again() -> None:
    hub = Hub()
    off = disable(hub)
    with off, off:
        assert hub.off
    assert not hub.off
    with off:
        assert hub.off


def test_generators_and_classes_are_not_decorated() -> None:
    def generator() -> Iterator[None]:
        yield

    async def async_generator() -> AsyncIterator[None]:
        yield

    for target in (generator, async_generator, Flaky):
        with pytest.raises(TypeError, match="only def and async def"):
            disable(Hub())(target)  # type: ignore[type-var]


def test_ending_a_trip_does_not_ask_for_the_open_time_under_the_circuits_lock():
    clock, circuits, asked = ManualClock(), [], []

    def open_for(rounds):
        asked.extend((rounds, circuit._lock._is_owned()) for circuit in circuits)
        return 10.0

    guard = Guard("shop", Breaker(consecutive(1), open_for=open_for), clock=clock, telemetry=Hub())
    circuits.append(guard.circuit)

    def fails():
        raise OSError

    for _ in range(3):
        guard.run(fails)
        clock.advance(10)
    with trip(guard):
        pass
    assert guard.circuit.rounds == 2
    assert 2 in dict(asked)
    assert not any(locked for _, locked in asked)
