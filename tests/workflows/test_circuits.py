"""Circuits of tasks: whose they are, what opens them, and what becomes of a probe."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import pickle
import threading
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest

from holdfast.backends.memory import MemoryStore
from holdfast.breakers.breakers import Breakers
from holdfast.errors import (
    BulkheadFull,
    BulkheadFullError,
    CircuitOpen,
    CircuitOpenError,
    ConcurrencyError,
    ConfigurationError,
    PermanentError,
    PolicyError,
    TaskTimeoutError,
    TransientError,
)
from holdfast.machine.breaker import CircuitState
from holdfast.store.port import Store
from holdfast.telemetry.events import CircuitStateChanged, GuardEvent
from holdfast.telemetry.hub import Hub
from holdfast.testing.clock import ManualClock
from holdfast.workflows.circuits import WorkflowCircuit, WorkflowCircuitFactory
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.resilience import BulkheadConfig, ResilienceConfig
from holdfast.workflows.workflows import Workflows

CLOSED, OPEN, HALF_OPEN = CircuitState


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def factory_of(clock: ManualClock, *, hub: Hub | None = None, **fields: Any) -> WorkflowCircuitFactory:
    return WorkflowCircuitFactory(ResilienceConfig(**fields), clock=clock, telemetry=hub or Hub(clock=clock))


def fail(circuit: WorkflowCircuit, times: int = 1, error: BaseException | None = None) -> None:
    for _ in range(times):
        circuit.settle(circuit.admit(), error or ValueError("no"))


def succeed(circuit: WorkflowCircuit, times: int = 1) -> None:
    for _ in range(times):
        circuit.settle(circuit.admit(), None)


def opened(factory: WorkflowCircuitFactory, workflow_id: str = "w1", task_type: str = "http") -> WorkflowCircuit:
    circuit = factory.get_circuit(workflow_id, task_type)
    fail(circuit, factory.config.failures_to_open)
    assert circuit.state is OPEN
    return circuit


def test_workflows_and_task_types_have_circuits_of_their_own(clock: ManualClock) -> None:
    factory = factory_of(clock)
    broken = opened(factory)
    assert factory.get_circuit("w1", "http") is broken
    for other in (factory.get_circuit("w2", "http"), factory.get_circuit("w1", "shell")):
        succeed(other)
        assert other.state is CLOSED


def test_two_factories_do_not_interfere(clock: ManualClock) -> None:
    opened(factory_of(clock))
    succeed(factory_of(clock).get_circuit("w1", "http"))


def test_the_default_threshold_needs_five_failures_of_ten_calls(clock: ManualClock) -> None:
    circuit = factory_of(clock).get_circuit("w1", "http")
    fail(circuit, 4)
    assert circuit.state is CLOSED
    fail(circuit)
    assert circuit.state is OPEN


@pytest.mark.parametrize(
    ("threshold", "window", "failures", "calls"),
    [
        (Fraction(5, 10), None, 5, 10),
        (Fraction(3, 10), None, 3, 10),
        (Fraction(1, 3), None, 4, 10),  # rounded up: three of ten is less than a third
        (Fraction(3, 20), None, 3, 20),
        (Fraction(1, 2), 4, 2, 4),
        (Fraction(1, 1), 3, 3, 3),
        (0.3, None, 3, 10),
    ],
)
def test_it_opens_as_soon_as_that_share_of_the_last_calls_failed(
    clock: ManualClock, threshold: Fraction, window: int | None, failures: int, calls: int
) -> None:
    factory = factory_of(clock, circuit_failure_threshold=threshold, circuit_window=window)
    circuit = factory.get_circuit("w1", "http")
    fail(circuit, failures - 1)
    succeed(circuit, calls - failures + 1)  # the window is full, and the next result pushes the first failure out
    fail(circuit)
    assert circuit.state is (CLOSED if failures > 1 else OPEN)
    fresh = factory.get_circuit("w2", "http")
    succeed(fresh, calls)
    fail(fresh, failures - 1)
    assert fresh.state is CLOSED
    fail(fresh)
    assert fresh.state is OPEN


def test_a_refusal_is_a_transient_error_with_what_is_left_of_the_cooldown(clock: ManualClock) -> None:
    circuit = opened(factory_of(clock, circuit_cooldown_seconds=60))
    clock.advance(20)
    with pytest.raises(TransientError, match="Circuit breaker open") as refused:
        circuit.admit()
    assert refused.value.retry_after == pytest.approx(40)
    assert "workflow:w1:http" in str(refused.value)
    assert isinstance(refused.value.__cause__, ValueError)
    again = pickle.loads(pickle.dumps(refused.value))
    assert (str(again), again.retry_after) == (str(refused.value), refused.value.retry_after)


@pytest.mark.parametrize(
    "error",
    [
        ValueError(), TransientError("busy"), PermanentError("bad"), TaskTimeoutError(), TimeoutError(), OSError(),
        SystemExit(1),
    ],
)  # fmt: skip
def test_every_exception_is_a_failure(clock: ManualClock, error: BaseException) -> None:
    circuit = factory_of(clock).get_circuit("w1", "http")
    fail(circuit, 5, error)
    assert circuit.state is OPEN


NEUTRAL = [
    asyncio.CancelledError(),
    concurrent.futures.CancelledError(),
    BulkheadFullError("no slot"),
    CircuitOpenError("inner"),
    ConcurrencyError("lease lost"),
    CircuitOpen("inner"),
    BulkheadFull("inner"),
    KeyboardInterrupt(),
    GeneratorExit(),
    LookupError("listed"),
]


def listing(clock: ManualClock) -> WorkflowCircuitFactory:
    return WorkflowCircuitFactory(ResilienceConfig(), clock=clock, telemetry=Hub(clock=clock), ignored=(LookupError,))


@pytest.mark.parametrize("error", NEUTRAL, ids=lambda error: type(error).__name__)
def test_what_says_nothing_of_the_dependency_is_neutral(clock: ManualClock, error: BaseException) -> None:
    circuit = listing(clock).get_circuit("w1", "http")
    fail(circuit, 4)
    fail(circuit, 20, error)
    assert circuit.state is CLOSED
    fail(circuit)  # the window still holds the four
    assert circuit.state is OPEN


@pytest.mark.parametrize("error", NEUTRAL, ids=lambda error: type(error).__name__)
def test_a_neutral_probe_gives_its_turn_to_the_next(clock: ManualClock, error: BaseException) -> None:
    circuit = opened(listing(clock))
    clock.advance(30)
    fail(circuit, 3, error)
    assert circuit.state is HALF_OPEN
    succeed(circuit)
    assert circuit.state is CLOSED


def test_half_open_lets_exactly_one_probe_through(clock: ManualClock) -> None:
    circuit = opened(factory_of(clock))
    clock.advance(30)
    probe = circuit.admit()
    for _ in range(5):
        with pytest.raises(TransientError, match="Circuit breaker open") as refused:
            circuit.admit()
        assert refused.value.retry_after == 30
    circuit.settle(probe, None)
    assert circuit.state is CLOSED


def test_of_threads_that_come_together_one_is_the_probe(clock: ManualClock) -> None:
    circuit = opened(factory_of(clock))
    clock.advance(30)
    start, admitted = threading.Barrier(8), []

    def come() -> None:
        start.wait()
        try:
            admitted.append(circuit.admit())
        except TransientError:
            pass

    threads = [threading.Thread(target=come) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(admitted) == 1


def test_a_good_probe_closes_and_clears(clock: ManualClock) -> None:
    circuit = opened(factory_of(clock))
    clock.advance(30)
    succeed(circuit)
    fail(circuit, 4)
    assert circuit.state is CLOSED


def test_a_failed_probe_opens_for_a_full_cooldown(clock: ManualClock) -> None:
    circuit = opened(factory_of(clock))
    clock.advance(45)
    fail(circuit)
    assert circuit.state is OPEN
    with pytest.raises(TransientError) as refused:
        circuit.admit()
    assert refused.value.retry_after == pytest.approx(30)


def test_a_probe_that_is_never_settled_runs_out_when_no_task_may_run_longer(clock: ManualClock) -> None:
    limits = (("http", BulkheadConfig(timeout_seconds=100)),)
    circuit = opened(factory_of(clock, bulkheads=limits))
    clock.advance(30)
    lost = circuit.admit()
    clock.advance(99)
    with pytest.raises(TransientError):
        circuit.admit()
    clock.advance(1)
    probe = circuit.admit()
    circuit.settle(lost, None)  # too late: its turn was given away
    assert circuit.state is HALF_OPEN
    circuit.settle(probe, None)
    assert circuit.state is CLOSED


def test_a_probe_that_takes_longer_than_the_cooldown_still_decides(clock: ManualClock) -> None:
    circuit = opened(factory_of(clock, circuit_cooldown_seconds=5))
    clock.advance(5)
    probe = circuit.admit()
    for _ in range(10):
        clock.advance(5)
        with pytest.raises(TransientError) as refused:
            circuit.admit()
        assert refused.value.retry_after == 5
    circuit.settle(probe, None)
    assert circuit.state is CLOSED


def test_a_result_from_before_the_opening_is_ignored(clock: ManualClock) -> None:
    circuit = factory_of(clock).get_circuit("w1", "http")
    early = circuit.admit()
    fail(circuit, 5)
    clock.advance(30)
    probe = circuit.admit()
    circuit.settle(early, None)
    assert circuit.state is HALF_OPEN
    circuit.settle(probe, ValueError())
    assert circuit.state is OPEN


def test_no_circuit_is_made_for_what_has_never_failed(clock: ManualClock) -> None:
    factory = factory_of(clock)
    for _ in range(20):
        passage = factory.passage("w1", "http")
        passage.settle(passage.admit(), None)
    assert len(factory) == 0


def test_a_circuit_counts_from_the_first_failure_on(clock: ManualClock) -> None:
    factory = factory_of(clock)
    for number in range(factory.config.failures_to_open):
        assert factory.get_circuit("w1", "http").state is CLOSED if number else len(factory) == 0
        passage = factory.passage("w1", "http")
        passage.settle(passage.admit(), ValueError("no"))
    assert factory.get_circuit("w1", "http").state is OPEN
    with pytest.raises(TransientError, match="Circuit breaker open"):
        factory.passage("w1", "http").admit()
    factory.passage("w2", "http").admit()


def test_calls_that_began_before_the_first_failure_count_until_the_circuit_opens(clock: ManualClock) -> None:
    factory = factory_of(clock)
    needed = factory.config.failures_to_open
    begun = [factory.passage("w1", "http") for _ in range(needed + 1)]
    permits = [passage.admit() for passage in begun]
    for passage, permit in zip(begun[:needed], permits, strict=False):
        passage.settle(permit, ValueError("no"))
    circuit = factory.get_circuit("w1", "http")
    assert circuit.state is OPEN
    clock.advance(factory.config.circuit_cooldown_seconds)
    probe = circuit.admit()
    begun[-1].settle(permits[-1], ValueError("no"))  # of an earlier round: the probe decides
    assert circuit.state is HALF_OPEN
    circuit.settle(probe, None)
    assert circuit.state is CLOSED


def test_an_isolated_circuit_says_when_to_ask_again(clock: ManualClock) -> None:
    circuit = factory_of(clock).get_circuit("w1", "http")
    circuit.live.command("isolate")
    with pytest.raises(TransientError, match=r"Circuit breaker open.*isolated") as refused:
        circuit.admit()
    assert refused.value.retry_after == 30


def test_call_returns_and_raises_what_the_function_does(clock: ManualClock) -> None:
    circuit = factory_of(clock, circuit_window=2).get_circuit("w1", "http")
    assert circuit.call(divmod, 7, 2) == (3, 1)
    assert circuit.call(int, "ff", base=16) == 255
    with pytest.raises(ZeroDivisionError):
        circuit.call(divmod, 1, 0)
    assert circuit.state is OPEN
    with pytest.raises(TransientError, match="Circuit breaker open"):
        circuit.call(pytest.fail, "must not be called")


async def test_an_attempt_around_async_code_counts_its_end(clock: ManualClock) -> None:
    circuit = opened(factory_of(clock))
    clock.advance(30)

    async def answer() -> str:
        with circuit.attempt():
            await asyncio.sleep(0)
            return "ok"

    assert await answer() == "ok"
    assert circuit.state is CLOSED
    with pytest.raises(TypeError, match="attempt"):
        circuit.call(answer)  # type: ignore[unused-coroutine]  # it is refused


async def test_a_cancelled_task_returns_its_probe(clock: ManualClock) -> None:
    circuit = opened(factory_of(clock))
    clock.advance(30)
    begun = asyncio.Event()

    async def hang() -> None:
        with circuit.attempt():
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(hang())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    succeed(circuit)
    assert circuit.state is CLOSED


def test_scope_task_type_shares_a_circuit_between_workflows(clock: ManualClock) -> None:
    factory = factory_of(clock, circuit_scope="task_type")
    broken = opened(factory)
    assert factory.get_circuit("w2", "http") is broken
    assert factory.get_circuit("w1", "shell") is not broken
    assert factory.clear_workflow_circuits("w1") == 0
    assert factory.get_circuit("w1", "http") is broken


def test_a_function_as_scope_names_the_dependency(clock: ManualClock) -> None:
    names = {"charge": "payments", "refund": "payments", "mail": None}
    factory = factory_of(clock, circuit_scope=lambda workflow_id, task_type: names[task_type])
    broken = opened(factory, "w1", "charge")
    assert factory.get_circuit("w2", "refund") is broken
    assert broken.name == "dependency:payments"
    assert factory.get_circuit("w1", "mail") is not factory.get_circuit("w2", "mail")
    assert factory.clear_workflow_circuits("w1") == 1


@pytest.mark.parametrize("name", ["", 7, b"x"])
def test_a_scope_that_gives_no_name_is_refused(clock: ManualClock, name: Any) -> None:
    factory = factory_of(clock, circuit_scope=lambda workflow_id, task_type: name)
    with pytest.raises(ConfigurationError, match=r"circuit_scope .* 'http'"):
        factory.get_circuit("w1", "http")


def test_no_two_circuits_have_one_name(clock: ManualClock) -> None:
    factory = factory_of(clock)
    names = {factory.get_circuit(*key).name for key in [("a", "b:c"), ("a:b", "c"), ("a%3Ab", "c")]}
    assert len(names) == 3


def test_what_is_ignored_must_be_exception_types() -> None:
    with pytest.raises(ConfigurationError, match="'LookupError'"):
        WorkflowCircuitFactory(ignored=("LookupError",))  # type: ignore[arg-type]


def test_the_cache_keeps_what_was_used_last(clock: ManualClock) -> None:
    factory = factory_of(clock, circuit_cache_size=3)
    fail(factory.get_circuit("w0", "http"), 4)
    for n in range(1, 10):
        factory.get_circuit(f"w{n}", "http")
        factory.get_circuit("w0", "http")
        assert len(factory) <= 3
    assert sorted(factory.workflow_ids()) == ["w0", "w8", "w9"]
    fail(factory.get_circuit("w0", "http"))
    assert factory.get_circuit("w0", "http").state is OPEN


def test_a_new_circuit_learns_although_open_ones_fill_the_cache(clock: ManualClock) -> None:
    factory = factory_of(clock, circuit_cache_size=1)
    opened(factory, "broken")
    for _ in range(5):
        fail(factory.get_circuit("w1", "http"))
    assert factory.get_circuit("w1", "http").state is OPEN


def test_the_cache_never_forgets_an_open_circuit(clock: ManualClock) -> None:
    factory = factory_of(clock, circuit_cache_size=2)
    for n in range(4):
        opened(factory, f"broken{n}")
    clock.advance(30)
    probe = factory.get_circuit("broken0", "http").admit()
    for n in range(50):
        factory.get_circuit(f"w{n}", "http")
        assert len(factory) <= 6
    states = [factory.get_circuit(f"broken{n}", "http").state for n in range(4)]
    assert states == [HALF_OPEN, OPEN, OPEN, OPEN]
    factory.get_circuit("broken0", "http").settle(probe, None)
    assert factory.get_circuit("broken0", "http").state is CLOSED


def test_a_thousand_open_circuits_do_not_make_the_next_one_expensive(clock: ManualClock) -> None:
    factory = factory_of(clock, circuit_cache_size=1, circuit_window=1)
    for n in range(1_000):
        opened(factory, f"broken{n}")
    looked = []
    keep = WorkflowCircuit.is_at_rest

    class Counted(WorkflowCircuit):
        __slots__ = ()

        @property
        def is_at_rest(self) -> bool:
            looked.append(self)
            return bool(keep.__get__(self))

    for circuit in factory.circuits():
        circuit.__class__ = Counted
    factory.get_circuit("w1", "http")
    assert 0 < len(looked) <= 16
    assert all(circuit.state is OPEN for circuit in looked)


def test_a_circuit_that_a_call_holds_is_found_again_after_it_was_dropped(clock: ManualClock) -> None:
    factory = factory_of(clock, circuit_cache_size=1, circuit_window=1)
    held = factory.get_circuit("w1", "http")
    running = held.admit()
    factory.get_circuit("w2", "http")
    assert factory.workflow_ids() == ["w2"]
    held.settle(running, ValueError())
    assert factory.get_circuit("w1", "http") is held
    assert held.state is OPEN


def test_a_circuit_that_opens_after_it_was_dropped_is_kept_again(clock: ManualClock) -> None:
    factory = factory_of(clock, circuit_cache_size=1, circuit_window=1)
    held = factory.get_circuit("w1", "http")
    running = held.admit()
    factory.get_circuit("w2", "http")
    held.settle(running, ValueError())
    del held, running
    gc.collect()
    assert factory.get_circuit("w1", "http").state is OPEN


def test_a_dropped_circuit_that_nobody_holds_is_gone(clock: ManualClock) -> None:
    factory = factory_of(clock, circuit_cache_size=1)
    fail(factory.get_circuit("w1", "http"), 4)
    factory.get_circuit("w2", "http")
    gc.collect()
    fail(factory.get_circuit("w1", "http"), 4)
    assert factory.get_circuit("w1", "http").state is CLOSED


def test_the_circuits_of_a_finished_workflow_are_dropped_open_or_not(clock: ManualClock) -> None:
    factory = factory_of(clock)
    broken = opened(factory)
    factory.get_circuit("w1", "shell")
    other = factory.get_circuit("w2", "http")
    assert factory.clear_workflow_circuits("w1") == 2
    assert factory.circuits() == [other]
    assert factory.workflow_ids() == ["w2"]
    assert factory.clear_workflow_circuits("w1") == 0
    fresh = factory.get_circuit("w1", "http")
    assert fresh is not broken
    assert fresh.state is CLOSED


def test_a_held_circuit_of_a_finished_workflow_does_not_come_back(clock: ManualClock) -> None:
    factory = factory_of(clock, circuit_cache_size=1)
    held = factory.get_circuit("w1", "http")
    factory.get_circuit("w2", "http")
    factory.clear_workflow_circuits("w1")
    assert factory.get_circuit("w1", "http") is not held


@pytest.mark.parametrize("pruned", [False, True])
def test_a_worker_drops_the_circuits_of_workflows_that_have_ended_elsewhere(
    store: Store, clock: ManualClock, pruned: bool
) -> None:
    @task
    def refused() -> None:
        raise TransientError("down", retry_after=1)

    one = workflow(name="one")(lambda: refused())
    here, elsewhere = Workflows(store, clock=clock), Workflows(store, clock=clock)
    run, other = here.start(one), here.start(one)
    worker = here.worker()
    for _ in range(6):
        worker.run_once()
        clock.advance(1)
    kept = worker._shift._circuits
    assert sorted(kept.workflow_ids()) == sorted([run.id, other.id])
    elsewhere.cancel(run.id)
    clock.advance(1)
    if pruned:
        assert elsewhere.prune(clock.wall()).pruned == 1
    for _ in range(2):
        clock.advance(60)
        worker._shift.look()
    assert kept.workflow_ids() == [other.id]
    worker._shift.drain()


def test_many_workflows_leave_nothing_behind(clock: ManualClock) -> None:
    factory = factory_of(clock, circuit_cache_size=10)
    for n in range(1_000):
        opened(factory, f"w{n}")
        factory.clear_workflow_circuits(f"w{n}")
    assert (len(factory), factory.workflow_ids(), len(factory._held)) == (0, [], 0)


class Told:
    quiet = True
    wants = (CircuitStateChanged,)

    def __init__(self) -> None:
        self.events: list[Any] = []

    def on_event(self, event: GuardEvent) -> None:
        self.events.append(event)


def test_a_change_is_told_under_a_bounded_name_with_the_workflow_beside_it(clock: ManualClock) -> None:
    hub, told = Hub(clock=clock), Told()
    hub.register(told)
    factory = factory_of(clock, hub=hub)
    opened(factory, "w1")
    opened(factory, "w2")
    assert [(event.name, event.to_state, event.tags) for event in told.events] == [
        ("workflow:http", "open", {"workflow_id": "w1"}),
        ("workflow:http", "open", {"workflow_id": "w2"}),
    ]


def test_figures_say_why_it_is_open(clock: ManualClock) -> None:
    figures = opened(factory_of(clock)).figures()
    assert (figures["workflow_id"], figures["state"], figures["rule"]) == ("w1", "open", "k_of_n(5, 10)")


@pytest.fixture
def processes(clock: ManualClock) -> Iterator[list[tuple[WorkflowCircuitFactory, Breakers]]]:
    """Two factories that share a store, as two processes would."""
    store, both = MemoryStore(), []
    for _ in range(2):
        hub = Hub(clock=clock)
        breakers = Breakers(store, clock=clock, hub=hub, background=False)
        both.append((WorkflowCircuitFactory(clock=clock, telemetry=hub, breakers=breakers), breakers))
    yield both
    for _, breakers in both:
        breakers.close()


def test_shared_circuits_are_isolated_per_workflow_too(
    processes: list[tuple[WorkflowCircuitFactory, Breakers]],
) -> None:
    (here, mine), (there, theirs) = processes
    same, other = there.get_circuit("w1", "http"), there.get_circuit("w2", "http")
    opened(here)
    for breakers in (mine, theirs):
        assert breakers.sharing.sync()
    assert (same.state, other.state) == (OPEN, CLOSED)
    assert mine.status().shared == ("workflow:w1:http",)
    here.clear_workflow_circuits("w1")
    assert mine.status().shared == ()


def test_a_circuit_that_cannot_be_shared_is_refused_every_time(clock: ManualClock) -> None:
    breakers = Breakers(MemoryStore(), clock=clock, hub=Hub(clock=clock), background=False)
    factory = WorkflowCircuitFactory(clock=clock, telemetry=Hub(clock=clock), breakers=breakers)
    for _ in range(2):
        with pytest.raises(PolicyError, match="cannot be shared"):
            factory.get_circuit("w1", "x" * 500)
    breakers.close()


def test_a_circuit_that_opens_after_it_was_dropped_is_shared_again(clock: ManualClock) -> None:
    breakers = Breakers(MemoryStore(), clock=clock, hub=Hub(clock=clock), background=False)
    config = ResilienceConfig(circuit_cache_size=1, circuit_window=1)
    factory = WorkflowCircuitFactory(config, clock=clock, telemetry=Hub(clock=clock), breakers=breakers)
    held = factory.get_circuit("w1", "http")
    running = held.admit()
    factory.get_circuit("w2", "http")
    assert breakers.status().shared == ("workflow:w2:http",)
    held.settle(running, ValueError())
    assert breakers.status().shared == ("workflow:w1:http",)
    breakers.close()
