"""A bulkhead and a circuit around one call: which comes first, and what each hears of how it ended."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast.errors import BulkheadFullError, TaskTimeoutError, TransientError
from holdfast.machine.breaker import CircuitState
from holdfast.testing.clock import ManualClock
from holdfast.workflows.bulkheads import execute_with_resilience
from holdfast.workflows.circuits import WorkflowCircuitFactory
from holdfast.workflows.config import ResilienceConfig
from tests.workflows.gates import PATIENCE_S, Gate, Pending, made, until

FAILURES_TO_OPEN = 5
COOLDOWN_S = 30.0


@pytest.fixture
def clock():
    return ManualClock(auto=False)


@pytest.fixture
def manager(clock):
    manager = made(clock, http=(2, 1, 1000.0))
    yield manager
    manager.shutdown(wait=False, cancel=True)
    clock.advance(100_000.0)


@pytest.fixture
def circuit(clock):
    return WorkflowCircuitFactory(ResilienceConfig(), clock=clock).get_circuit("workflow_123", "http")


@pytest.fixture
def gate():
    gate = Gate("through")
    yield gate
    gate.open()


def refused():
    raise ConnectionError("the dependency is down")


async def refused_async():
    refused()


def opened(manager, circuit, func=refused):
    for _ in range(FAILURES_TO_OPEN):
        with pytest.raises(ConnectionError):
            execute_with_resilience(manager, circuit, "http", func, ())
    assert circuit.state is CircuitState.OPEN


def test_the_result_is_returned_and_errors_are_raised_as_they_are(manager, circuit):
    assert execute_with_resilience(manager, circuit, "http", divmod, (7, 2)) == (3, 1)
    assert execute_with_resilience(manager, None, "http", int, ("11",), {"base": 2}) == 3
    error = ValueError("no such order")

    def fail():
        raise error

    with pytest.raises(ValueError, match="no such order") as caught:
        execute_with_resilience(manager, circuit, "http", fail, ())
    assert caught.value is error


@pytest.mark.parametrize("func", [refused, refused_async])
def test_an_open_circuit_is_transient_and_the_function_does_not_run(manager, circuit, func):
    opened(manager, circuit, func)
    ran = []
    with pytest.raises(TransientError, match="Circuit breaker open") as caught:
        execute_with_resilience(manager, circuit, "http", ran.append, (1,))
    assert 0 < caught.value.retry_after <= COOLDOWN_S
    assert not ran
    answer = manager.execute("http", ran.append, (1,), circuit=circuit)
    assert answer.rejected
    stats = manager.get_all_stats()["http"]
    assert (stats["rejected"], stats["failed"]) == (0, FAILURES_TO_OPEN), "the bulkhead had room"
    assert manager.free_slots("http") == 2


def test_a_full_bulkhead_is_transient_and_takes_no_probe(manager, circuit, clock, gate):
    opened(manager, circuit)
    clock.advance(COOLDOWN_S)
    held = [Pending(manager, "http", gate) for _ in range(3)]
    gate.entered(2)
    with pytest.raises(BulkheadFullError) as caught:
        execute_with_resilience(manager, circuit, "http", int, ())
    assert isinstance(caught.value, TransientError)
    assert caught.value.retry_after > 0
    gate.open()
    for one in held:
        one.result()
    assert execute_with_resilience(manager, circuit, "http", int, ()) == 0, "the probe was still to be had"
    assert circuit.state is CircuitState.CLOSED


def test_a_call_asks_the_circuit_when_it_has_a_slot_and_not_before(manager, circuit, gate):
    held = [Pending(manager, "http", gate) for _ in range(2)]
    gate.entered(2)
    waiting = Pending(manager, "http", int, circuit=circuit)
    for _ in range(FAILURES_TO_OPEN):
        circuit.settle(circuit.admit(), ConnectionError("elsewhere"))
    gate.open()
    answer = waiting.result()
    assert answer.rejected
    assert "Circuit breaker open" in str(answer.error)
    for one in held:
        one.result()


def test_timeouts_are_raised_and_open_the_circuit(manager, circuit, clock):
    gates = [Gate() for _ in range(FAILURES_TO_OPEN)]
    for gate in gates:
        raised = []

        def call(gate=gate, raised=raised):
            try:
                execute_with_resilience(manager, circuit, "http", gate, (), timeout=5.0)
            except TaskTimeoutError as error:
                raised.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        gate.entered()
        clock.wait_for_sleepers()
        clock.advance(5.0)
        thread.join(PATIENCE_S)
        assert len(raised) == 1
        gate.open()
        until(lambda: manager.free_slots("http") == 2)
    assert circuit.state is CircuitState.OPEN, "and what the threads came to later has not counted as success"


def test_a_call_that_expires_in_the_queue_says_nothing_of_the_dependency(manager, circuit, clock, gate):
    held = [Pending(manager, "http", gate) for _ in range(2)]
    gate.entered(2)
    for _ in range(FAILURES_TO_OPEN):
        waiting = Pending(manager, "http", refused, circuit=circuit, timeout=5.0)
        clock.wait_for_sleepers()
        clock.advance(5.0)
        assert waiting.result().timed_out
    assert circuit.state is CircuitState.CLOSED
    gate.open()
    for one in held:
        one.result()


@pytest.mark.parametrize("abandon", [False, True])
def test_a_cancelled_probe_goes_back(manager, circuit, clock, abandon):
    opened(manager, circuit)
    clock.advance(COOLDOWN_S)
    begun = threading.Event()

    async def hung():
        begun.set()
        await asyncio.Event().wait()

    probe = Pending(manager, "http", hung, circuit=circuit)
    assert begun.wait(PATIENCE_S)
    with pytest.raises(TransientError, match="Circuit breaker open"):
        execute_with_resilience(manager, circuit, "http", int, ())
    probe.call.cancel("the workflow was cancelled", abandon=abandon)
    assert isinstance(probe.result().error, asyncio.CancelledError)
    assert execute_with_resilience(manager, circuit, "http", int, ()) == 0
    assert circuit.state is CircuitState.CLOSED


def test_a_permit_that_comes_after_its_caller_has_gone_is_given_back(manager):
    class Slow:
        """A circuit that is asked while the caller walks away."""

        def __init__(self):
            self.asked, self.answers = threading.Event(), threading.Event()
            self.settled = []

        def admit(self):
            self.asked.set()
            assert self.answers.wait(PATIENCE_S)
            return "permit"

        def settle(self, permit, error):
            self.settled.append((permit, type(error)))

    slow, ran = Slow(), []
    call = Pending(manager, "http", lambda: ran.append(1), circuit=slow)
    assert slow.asked.wait(PATIENCE_S)
    call.call.cancel("the worker ends", abandon=True)
    call.result()
    slow.answers.set()
    until(lambda: manager.free_slots("http") == 2)
    assert slow.settled == [("permit", asyncio.CancelledError)]
    assert not ran


def test_a_circuit_that_fails_to_settle_costs_no_slot(manager, caplog):
    class Broken:
        def admit(self):
            return None

        def settle(self, permit, error):
            raise RuntimeError("the circuit is broken")

    assert execute_with_resilience(manager, Broken(), "http", int, ()) == 0
    until(lambda: manager.free_slots("http") == 2)
    assert "the circuit is broken" in caplog.text


@pytest.mark.parametrize(
    ("error", "state"), [(SystemExit, CircuitState.OPEN), (KeyboardInterrupt, CircuitState.CLOSED)]
)
def test_a_call_that_leaves_the_program_has_failed_and_one_that_is_interrupted_has_not(manager, circuit, error, state):
    def leave():
        raise error

    for _ in range(FAILURES_TO_OPEN):
        with pytest.raises(error):
            execute_with_resilience(manager, circuit, "http", leave, ())
    assert circuit.state is state
    until(lambda: manager.free_slots("http") == 2)
    assert manager.get_all_stats()["http"]["failed"] == (FAILURES_TO_OPEN if state is CircuitState.OPEN else 0)
