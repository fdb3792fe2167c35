"""The thread that shares: it hears of others by itself, stops when it is told, and outlives a restart of the store."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from holdfast.backends.memory import MemoryStore
from holdfast.breakers.breakers import Breakers
from holdfast.breakers.events import SharingChanged
from holdfast.breakers.sharing import Sharing
from holdfast.core.clock import SYSTEM_CLOCK
from holdfast.core.outcome import Evidence
from holdfast.errors import StoreUnavailable
from holdfast.guard.circuit import LiveCircuit
from holdfast.machine.breaker import CLOSED, OPEN, Breaker
from holdfast.machine.breaker_record import BREAKER
from holdfast.machine.circuit import Permit
from holdfast.machine.trip import consecutive
from holdfast.telemetry.events import CircuitStateChanged, GuardEvent
from holdfast.telemetry.hub import Hub
from holdfast.testing.clock import ManualClock
from tests.services import postgres, redis
from tests.stores import SHARED_STORES, STORES, Place, fresh_place

PATIENCE_S = 10.0
# `make torture` has the machine to itself and holds sharing to its word; elsewhere a loaded machine may take its time.
HEARD_S = 1.0 if "SIZE" in os.environ else PATIENCE_S
RECONVERGED_S = 2.0 if "SIZE" in os.environ else PATIENCE_S


class Live:
    """A process with a circuit and a thread that shares it; what it hears can be waited for."""

    def __init__(self, store: Any, policy: Breaker | None = None, **options: Any) -> None:
        self.hub = Hub()
        self.events: Queue[GuardEvent] = Queue()
        self.hub.register(self.events.put)
        self.circuit = LiveCircuit("api", policy or Breaker(consecutive(1), open_for=0.2), SYSTEM_CLOCK, self.hub)
        self.sharing = Sharing(store, hub=self.hub, **options)
        self.sharing.attach(self.circuit)

    def wait_for(self, kind: type[GuardEvent], **fields: Any) -> float:
        """Until it hears such an event; how long that took."""
        began = time.monotonic()
        while True:
            event = self.events.get(timeout=PATIENCE_S)
            if isinstance(event, kind) and all(getattr(event, name) == value for name, value in fields.items()):
                return time.monotonic() - began

    def call(self, evidence: Evidence) -> bool:
        """A call, if it is admitted."""
        permit = self.circuit.admit(time.monotonic())
        if isinstance(permit, Permit):
            self.circuit.finish(permit, evidence, time.monotonic())
        return isinstance(permit, Permit)

    def admitted(self) -> Permit:
        """The permit of the first call that is admitted."""
        give_up = time.monotonic() + PATIENCE_S
        while not isinstance(permit := self.circuit.admit(time.monotonic()), Permit):
            assert time.monotonic() < give_up
            threading.Event().wait(0.005)
        return permit

    def call_until_closed(self) -> None:
        give_up = time.monotonic() + PATIENCE_S
        while self.circuit.state is not CLOSED:
            assert time.monotonic() < give_up
            self.call(Evidence.SUCCESS)
            threading.Event().wait(0.005)


def run(program: str, *words: str) -> str:
    """What a program of its own says."""
    done = subprocess.run(
        [sys.executable, "-m", program, *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(params=STORES)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Live, Live]]:
    with fresh_place(request.param, tmp_path, (BREAKER,)) as place:
        stores = [MemoryStore()] * 2 if place.name == "memory" else [place.open(), place.open()]
        one, other = (Live(store) for store in stores)
        yield one, other
        one.sharing.close()
        other.sharing.close()
        for store in stores:
            store.close()


@pytest.mark.torture
def test_others_hear_of_a_trip_and_of_a_recovery_within_a_second(pair):
    one, other = pair
    one.call(Evidence.FAILURE)
    assert other.wait_for(CircuitStateChanged, to_state="open", cause="fleet_opened") < HEARD_S
    other.call_until_closed()
    assert one.wait_for(CircuitStateChanged, to_state="closed", cause="fleet_closed") < HEARD_S


def test_an_idle_breaker_is_looked_at_rarely_where_the_store_tells_of_changes(pair):
    one, other = pair
    tells = not one.sharing.store.url.startswith("mariadb")
    often, resting, settled = 0.5, 2.0 if tells else 0.5, 10.0 if tells else 0.5
    for process in pair:
        assert process.sharing.sync()
        assert process.sharing.pause == settled
    one.call(Evidence.FAILURE)
    other.wait_for(CircuitStateChanged, cause="fleet_opened")
    for process in pair:
        assert process.sharing.sync()
        assert process.sharing.pause == resting
    probe = other.admitted()
    assert other.sharing.sync()
    assert other.sharing.pause == often  # leave to probe must be kept alive
    other.circuit.finish(probe, Evidence.SUCCESS, time.monotonic())
    one.wait_for(CircuitStateChanged, cause="fleet_closed")
    for process in pair:
        assert process.sharing.sync()
        assert process.sharing.sync()
        assert process.sharing.pause == settled


def test_a_store_that_is_away_is_looked_for_often():
    class Leaving(MemoryStore):
        is_away = False

        def get(self, kind, ids):
            if self.is_away:
                raise StoreUnavailable("away")
            return super().get(kind, ids)

    store = Leaving()
    live = Live(store)
    assert live.sharing.sync()
    assert live.sharing.pause == 10.0
    store.is_away = True
    assert not live.sharing.sync()
    assert live.sharing.pause == 0.5
    live.sharing.close()


def test_it_hears_without_a_wake_up_too():
    class Mute(MemoryStore):
        def subscribe(self, topic, callback):
            subscription = super().subscribe("nothing", callback)
            subscription.is_prompt = False
            return subscription

    store = Mute()
    one, other = Live(store, poll=0.05), Live(store, poll=0.05)
    one.call(Evidence.FAILURE)
    other.wait_for(CircuitStateChanged, cause="fleet_opened")
    one.sharing.close()
    other.sharing.close()


def test_a_store_without_wake_ups_is_shared_all_the_same():
    class Deaf(MemoryStore):
        def subscribe(self, topic, callback):
            raise OSError("LISTEN is not allowed here")

    store = Deaf()
    one, other = Live(store, poll=0.05), Live(store, poll=0.05)
    one.call(Evidence.FAILURE)
    other.wait_for(CircuitStateChanged, cause="fleet_opened")
    one.sharing.close()
    other.sharing.close()


def test_whoever_wakes_it_may_be_interrupted_by_another_wake_up():
    """As the collector or a signal may settle a probe while the same thread is waking the sharing, or is it."""
    sharing = Sharing(MemoryStore(), background=False)
    woken = threading.Event()

    def wake():
        def again(frame, event, argument):
            sharing._wake()
            return again

        sys.settrace(again)
        sharing._wake()
        sys.settrace(None)
        woken.set()

    threading.Thread(target=wake, daemon=True).start()
    assert woken.wait(PATIENCE_S)


def test_a_store_that_hangs_is_seen_to_be_away_and_no_call_waits_for_it():
    class Hanging(MemoryStore):
        def get(self, *args):
            asked.set()
            assert over.wait(PATIENCE_S)
            return super().get(*args)

    asked, over, clock = threading.Event(), threading.Event(), ManualClock()
    over.set()
    sharing = Sharing(Hanging(), clock=clock)
    circuit = LiveCircuit("api", Breaker(consecutive(1), open_for=1.0), clock, Hub())
    sharing.attach(circuit)
    assert sharing.sync()
    over.clear()
    asked.clear()
    sharing._wake()
    assert asked.wait(PATIENCE_S)
    clock.advance(5.1)
    assert not sharing.is_connected
    circuit.finish(circuit.gate, Evidence.FAILURE, clock.monotonic())
    clock.advance(1)
    probe = circuit.admit(clock.monotonic())
    assert isinstance(probe, Permit)
    circuit.finish(probe, Evidence.SUCCESS, clock.monotonic())
    assert circuit.state is CLOSED
    over.set()
    sharing.close()


def test_nothing_runs_until_a_circuit_is_attached_and_nothing_after_closing(begun_threads):
    sharing = Sharing(MemoryStore())
    circuit = LiveCircuit("api", Breaker(), SYSTEM_CLOCK, Hub())
    assert not begun_threads()
    sharing.attach(circuit)
    assert len(begun_threads()) == 1
    sharing.close()
    assert not begun_threads()
    sharing.attach(circuit)
    assert len(begun_threads()) == 1
    sharing.close()
    assert circuit.remote is None


def test_an_operator_is_heard_by_every_process():
    store = MemoryStore()
    operator, one = Breakers(store), Live(store)
    operator.atomic_force_open("api", "drill")
    one.wait_for(CircuitStateChanged, to_state="open")
    operator.atomic_reset("api")
    one.wait_for(CircuitStateChanged, to_state="closed")
    one.sharing.close()
    operator.close()


def test_breakers_share_circuits_and_say_how_it_goes():
    hub = Hub()
    with_thread = Breakers(MemoryStore(), hub=hub, quorum=2)
    circuit = LiveCircuit("api", Breaker(), SYSTEM_CLOCK, hub)
    with_thread.share(circuit)
    assert with_thread.status().shared == ("api",)
    with_thread.close()
    assert with_thread.status().shared == ()


@pytest.mark.torture
@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("name", ["redis", "postgres"])
def test_a_restart_of_the_store_is_survived_and_calls_do_not_notice(name, crash):
    server: Any = (redis if name == "redis" else postgres).private_server()
    url = server.fresh() if name == "redis" else server.fresh_database()
    stores: list[Any] = [Place(name, url, (BREAKER,)).open() for _ in range(2)]
    if name == "postgres":
        stores[0].create_tables()
    one, other = (Live(store, Breaker(consecutive(1), open_for=60.0)) for store in stores)
    assert one.sharing.sync()
    assert other.sharing.sync()
    slowest = 0.0
    server.stop(crash=crash)
    one.wait_for(SharingChanged, is_connected=False)
    for _ in range(100):
        began = time.monotonic()
        assert one.call(Evidence.SUCCESS)
        slowest = max(slowest, time.monotonic() - began)
    assert slowest < HEARD_S
    one.call(Evidence.FAILURE)
    assert one.circuit.state is OPEN
    assert other.circuit.state is CLOSED
    server.start()
    took = other.wait_for(CircuitStateChanged, cause="fleet_opened")
    assert took < RECONVERGED_S
    assert one.wait_for(SharingChanged, is_connected=True) < RECONVERGED_S
    for process in (one, other):
        process.sharing.close()
    for store in stores:
        store.close()
    server.stop()


def test_a_forked_child_probes_and_votes_only_for_itself(tmp_path):
    with fresh_place("sqlite", tmp_path, (BREAKER,)) as place:
        assert run("tests.breakers.forked_early", place.url) == "its own\n"


def test_a_child_forked_amid_other_threads_decisions_can_decide():
    assert run("tests.breakers.forked_busy") == "decided\n"


@pytest.mark.parametrize("name", SHARED_STORES)
def test_a_forked_child_shares_as_a_process_of_its_own(name, tmp_path):
    with fresh_place(name, tmp_path, (BREAKER,)) as place:
        assert run("tests.breakers.forked", place.name, place.url) == "shared\n"
