"""The worker: in a thread, on a loop, by hand; quiet when idle, and on many hosts."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from holdfast.errors import PolicyError, StoreUnavailable
from holdfast.guard.retry import Retry
from holdfast.letters.bulk import Bulk, LetterFilter
from holdfast.letters.events import WorkerTroubled
from holdfast.letters.worker import Worker, WorkerPolicy, WorkReport
from holdfast.store.port import Store
from holdfast.testing.clock import ManualClock
from tests.letters.replay_kit import Kit

PATIENCE_S = 20.0


def test_one_look_does_everything_that_is_due(store: Store, clock: ManualClock) -> None:
    kit = Kit(store, clock)
    kit.register()
    kit.letter("a")
    late = kit.letter("b", "MAX_RETRIES_TYPEERROR", expires_at=clock.wall())
    picked = kit.letter("c", "MAX_RETRIES_TYPEERROR")
    clock.advance(1)
    Bulk(kit.replayer).start(LetterFilter(entity_id="c"))
    report = Worker(kit.replayer).run_once()
    assert report.busy
    assert report.maintenance is not None
    assert report.maintenance.expired == 1
    assert [(bulk.state, bulk.succeeded) for bulk in report.bulks] == [("done", 1)]
    assert [drain.succeeded for drain in report.drained] == [1]
    assert (kit.status(late.id), kit.status(picked.id)) == ("expired", "resolved")
    assert not Worker(kit.replayer).run_once().busy


def test_a_due_retry_is_taken_up_and_the_worker_knows_when() -> None:
    kit = Kit()
    kit.register(guard=kit.make_guard(Retry(attempts=1)))
    letter = kit.letter()
    kit.broken = True
    worker = Worker(kit.replayer)
    report = worker.run_once()
    assert report.next_s == pytest.approx(30, abs=1)
    kit.broken = False
    kit.clock.advance(report.next_s or 0)
    worker.run_once()
    assert kit.status(letter.id) == "resolved"


def test_a_thread_drains_when_a_circuit_closes() -> None:
    kit = Kit(clock=ManualClock(auto=False))
    done = threading.Event()

    def charge(order_id: str, amount: int) -> None:
        done.set()

    kit.register(charge)
    kit.letter()
    kit.guard.circuit.command("isolate")
    worker = Worker(kit.replayer).start()
    try:
        kit.clock.wait_for_sleepers(1)
        kit.clock.advance(0.2)
        assert not done.is_set()
        kit.guard.circuit.command("close")  # the event wakes the worker; time stands still
        assert done.wait(PATIENCE_S)
    finally:
        assert worker.stop(PATIENCE_S)


def test_a_letter_that_comes_wakes_the_worker() -> None:
    kit = Kit(clock=ManualClock(auto=False))
    done = threading.Event()
    kit.register(lambda order_id, amount: done.set())
    worker = Worker(kit.replayer).start()
    try:
        kit.clock.wait_for_sleepers(1)
        kit.clock.advance(0.2)
        kit.letter(wake=True)
        assert done.wait(PATIENCE_S)
    finally:
        assert worker.stop(PATIENCE_S)


def test_a_stop_waits_for_what_runs_and_leaves_the_rest() -> None:
    kit = Kit(clock=ManualClock(auto=False))
    begun, go_on = threading.Event(), threading.Event()

    def charge(order_id: str, amount: int) -> None:
        kit.calls.append(order_id)
        begun.set()
        assert go_on.wait(PATIENCE_S)

    kit.register(charge)
    first, second = kit.letter("a"), kit.letter("b")
    worker = Worker(kit.replayer).start()
    assert begun.wait(PATIENCE_S)
    assert not worker.stop(0.0)
    go_on.set()
    assert worker.stop(PATIENCE_S)
    assert (kit.status(first.id), kit.status(second.id), kit.calls) == ("resolved", "pending", ["a"])
    assert kit.hub.listeners == (kit.events.append,)


def test_it_starts_again_after_a_stop() -> None:
    kit = Kit(clock=ManualClock(auto=False))
    worker = Worker(kit.replayer)
    assert worker.start().stop(PATIENCE_S)
    done = threading.Event()
    kit.register(lambda order_id, amount: done.set())
    kit.letter()
    worker.start()
    assert done.wait(PATIENCE_S)
    assert worker.stop(PATIENCE_S)


def test_a_stop_in_the_moment_between_two_looks_is_not_slept_over() -> None:
    worker = Worker(Kit(clock=ManualClock(auto=False)).replayer)  # in whose waits no time passes

    class JustTooLate(threading.Event):
        """Is set right after somebody has asked."""

        asked = False

        def is_set(self) -> bool:
            was = super().is_set()
            if not self.asked:
                self.asked = True
                worker.stop(0)
            return was

    worker._stop = JustTooLate()
    running = threading.Thread(target=worker.run, daemon=True)
    running.start()
    running.join(PATIENCE_S)
    assert not running.is_alive()


async def test_as_a_task_it_replays_async_functions_on_its_own_loop() -> None:
    kit = Kit(clock=ManualClock(auto=False))
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    async def charge(order_id: str, amount: int) -> None:
        done.set_result(asyncio.get_running_loop())

    kit.register(charge)
    letter = kit.letter()
    worker = Worker(kit.replayer)
    task = asyncio.create_task(worker.arun())
    assert await asyncio.wait_for(done, PATIENCE_S) is loop
    worker.stop()
    await asyncio.wait_for(task, PATIENCE_S)
    assert kit.status(letter.id) == "resolved"


async def test_a_cancelled_task_lets_what_runs_come_to_its_end() -> None:
    kit = Kit(clock=ManualClock(auto=False))
    begun, go_on = threading.Event(), threading.Event()

    def charge(order_id: str, amount: int) -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)

    kit.register(charge)
    letter = kit.letter()
    task = asyncio.create_task(Worker(kit.replayer).arun())
    await asyncio.to_thread(begun.wait, PATIENCE_S)
    task.cancel()
    asyncio.get_running_loop().call_soon(go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert kit.status(letter.id) == "resolved"


def test_a_worker_that_stops_leaves_the_loop_to_what_others_run_on_it() -> None:
    kit = Kit(clock=ManualClock(auto=False))
    begun, go_on = threading.Event(), threading.Event()

    async def charge(order_id: str, amount: int) -> None:
        begun.set()
        await asyncio.to_thread(go_on.wait, PATIENCE_S)

    kit.register(charge)
    letter = kit.letter("a", "MAX_RETRIES_TYPEERROR")  # left for a person, who replays it by hand
    by_hand = threading.Thread(target=kit.replayer.replay, args=(letter.id,), daemon=True)
    by_hand.start()
    assert begun.wait(PATIENCE_S)
    assert Worker(kit.replayer).start().stop(PATIENCE_S)
    go_on.set()
    by_hand.join(PATIENCE_S)
    assert not by_hand.is_alive()
    assert kit.status(letter.id) == "resolved"
    assert not any(thread.name == "holdfast-replay-loop" for thread in threading.enumerate())


def test_a_part_that_fails_leaves_the_others_alone_and_is_told() -> None:
    kit = Kit()
    kit.register()
    letter = kit.letter()

    def broken() -> None:
        raise StoreUnavailable("password=hunter2 refused")

    report = Worker(kit.replayer, chores={"spool": broken, "fine": lambda: 3}).run_once()
    assert report.chores == {"fine": 3}
    assert set(report.troubles) == {"spool"}
    [event] = kit.told(WorkerTroubled)
    assert event.part == "spool"
    assert "hunter2" not in event.error
    assert kit.status(letter.id) == "resolved"


def test_the_store_being_away_is_survived() -> None:
    kit = Kit()
    kit.register()
    letter = kit.letter()
    store: Any = kit.store
    tally = store.tally

    def away(*args: Any, **kwargs: Any) -> Any:
        raise StoreUnavailable("gone")

    worker = Worker(kit.replayer)
    store.tally = away
    assert "recovery" in worker.run_once().troubles
    store.tally = tally
    worker.run_once()
    assert kit.status(letter.id) == "resolved"


def test_an_idle_worker_looks_ever_more_rarely() -> None:
    worker = Worker(Kit().replayer)
    waits = [1.0]
    for _ in range(7):
        waits.append(worker.pause_s(WorkReport(), waits[-1]))
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]
    assert worker.pause_s(WorkReport(chores={"spool": 1}), 30) == 1
    assert worker.pause_s(WorkReport(next_s=7.0), 30) == 7
    assert worker.pause_s(WorkReport(next_s=0.0), 30) == 0.1


def test_an_idle_worker_is_silent() -> None:
    kit = Kit()
    kit.register()
    worker = Worker(kit.replayer)
    worker.run_once()
    writes: list[Any] = []
    store: Any = kit.store
    store.commit = lambda changes, **options: writes.append(changes)
    for _ in range(10):
        worker.run_once()
    assert (writes, kit.events) == ([], [])


def test_an_idle_look_asks_for_nothing_twice() -> None:
    kit = Kit()
    kit.register()
    worker = Worker(kit.replayer)
    worker.run_once()
    asked: list[str] = []
    store: Any = kit.store

    def counted(verb: str) -> Any:
        ask = getattr(store, verb)
        return lambda kind, *more, **options: (asked.append(f"{verb} {kind.name}"), ask(kind, *more, **options))[1]

    for verb in ("get", "page", "tally", "claim", "sweep"):
        setattr(store, verb, counted(verb))
    worker.run_once()
    assert sorted(asked) == ["get lease", "page letter_bulk", "tally letter"]


def test_several_workers_replay_each_letter_once() -> None:
    kit = Kit()
    counts: dict[str, int] = {}
    lock = threading.Lock()

    def charge(order_id: str, amount: int) -> None:
        with lock:
            counts[order_id] = counts.get(order_id, 0) + 1

    kit.register(charge)
    for n in range(200):
        kit.letter(f"o{n}")
    Bulk(kit.replayer).start(LetterFilter(domain="payments"))
    workers = [threading.Thread(target=Worker(kit.replayer).run_once) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    Worker(kit.replayer).run_once()
    assert counts == {f"o{n}": 1 for n in range(200)}


def test_a_policy_that_cannot_work_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"WorkerPolicy\.idle_s"):
        WorkerPolicy(idle_s=-1)
