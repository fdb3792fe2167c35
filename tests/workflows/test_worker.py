"""The life of a worker: it starts, is woken, idles quietly, stops, starts again, is frozen, and forks."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import AsyncWorkflows, Holdfast, StageExecution, TaskExecution, Workflow
from holdfast.core.clock import SYSTEM_CLOCK
from holdfast.errors import PolicyError
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store import paging
from holdfast.store.port import Insert, Store
from holdfast.store.query import equal
from holdfast.testing.clock import ManualClock
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.records import FINALIZE, ITEM, KINDS, WORKER, ItemRecord
from holdfast.workflows.workflows import Workflows
from tests.stores import fresh_store, make_place
from tests.workflows import frozen_process
from tests.workflows.gates import PATIENCE_S, Gate, until

ROOT = Path(__file__).parents[2]
S = WorkflowStatus


@task
def fine(number: int = 0) -> int:
    return number + 1


@workflow
def single() -> Any:
    return fine()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with fresh_store(request.param, tmp_path, KINDS) as store:
        yield store


@pytest.fixture
def flows(store: Store) -> Iterator[Workflows]:
    flows = Workflows(store)
    flows.register(fine)
    yield flows
    flows.close()


@pytest.mark.parametrize("queues", [(), [], "default"])
def test_a_worker_of_no_queue_is_refused(flows: Workflows, queues: Any) -> None:
    with pytest.raises(PolicyError, match=r"WorkflowWorker\.queues must name at least one queue"):
        flows.worker(queues=queues)


@pytest.mark.parametrize("queues", [(), [], "default"])
def test_a_worker_for_everything_is_refused_at_once_where_no_queue_is_named(queues: Any) -> None:
    with Holdfast("memory://", background=False) as hold, pytest.raises(PolicyError, match="at least one queue"):
        hold.worker(queues=queues)


def test_versions_that_are_one_text_are_refused(flows: Workflows) -> None:
    with pytest.raises(PolicyError, match=r"versions must be a list of texts, got '2026\.11'; use \['2026\.11'\]"):
        flows.worker(versions="2026.11")


@pytest.mark.parametrize("wrong", ["queus", "threads"])
def test_a_worker_for_everything_refuses_an_option_that_nothing_takes(wrong: str) -> None:
    with Holdfast("memory://", background=False) as hold:
        with pytest.raises(TypeError, match=rf"hold\.worker got '{wrong}', .* hold\.workflows\.worker"):
            hold.worker(**{wrong: 4})
        hold.worker(batch_size=4)


def test_a_worker_can_be_started_stopped_and_started_again(flows: Workflows, store: Store) -> None:
    worker = flows.worker()
    for _ in range(3):
        worker.start().start()
        assert flows.start(single).result(PATIENCE_S) == 1
        assert worker.stop(PATIENCE_S)
        assert worker.stop(0)
    assert store.page(WORKER) == []


def test_a_worker_works_for_a_block(flows: Workflows, store: Store) -> None:
    with flows.worker() as worker:
        assert flows.start(single).result(PATIENCE_S) == 1
    assert store.page(WORKER) == []
    assert worker.stop(0)


def test_a_worker_of_any_kind_works_for_a_block(tmp_path: Path) -> None:
    with Holdfast(f"sqlite:///{tmp_path}/store.db", background=False) as hold:
        hold.workflows.add(single)
        for worker in (hold.letters.worker(), hold.works.worker()):
            with worker as entered:
                thread = entered._thread
                assert thread is not None
                assert thread.is_alive()
            assert not thread.is_alive()
        with hold.worker():
            assert hold.workflows.start(single).result(PATIENCE_S) == 1


def test_a_worker_runs_tasks_that_its_program_names_only_later(tmp_path: Path) -> None:
    for url in ("memory://", f"sqlite:///{tmp_path}/store.db"):
        with Holdfast(url, background=False) as hold, hold.worker() as worker:
            assert hold.workflows.start(single).result(PATIENCE_S) == 1
            worker.stop(PATIENCE_S)
            hold.workflows.registry.register("late", lambda stage: {"late": True})
            worker.start()
            assert hold.workflows.start(single).result(PATIENCE_S) == 1


def test_a_worker_runs_tasks_of_models_that_its_program_registers_only_later() -> None:
    with Holdfast("memory://", background=False) as hold, hold.worker():
        hold.workflows.registry.register("late", lambda stage: {"late": True})
        stage = StageExecution.create("late", "late", "late", tasks=[TaskExecution.create("late", "late")])
        run = hold.workflows.start(Workflow.create("shop", "late", stages=[stage]))
        assert run.result(PATIENCE_S) == {"late": True}


async def test_a_worker_that_is_a_task_runs_what_its_program_names_only_later() -> None:
    with Holdfast("memory://", background=False) as hold:
        worker = hold.worker()
        work = asyncio.create_task(worker.arun())
        await asyncio.sleep(0)  # it has begun, without a part for workflows
        run = await AsyncWorkflows(hold.workflows).start(single)
        assert await run.result(PATIENCE_S) == 1
        worker.stop(0)
        await asyncio.wait_for(work, PATIENCE_S)


def test_a_worker_that_is_started_while_it_stops_works_on(flows: Workflows) -> None:
    gate = Gate("slow")
    worker = flows.worker().start()
    slow = flows.start(workflow(name="slow")(lambda: task(name="slow")(gate)()))
    gate.entered()
    assert not worker.stop(0)
    worker.start()
    assert flows.start(single).result(PATIENCE_S) == 1
    gate.open()
    assert slow.result(PATIENCE_S) == "slow"
    assert worker.stop(PATIENCE_S)


def test_stopping_gives_back_what_has_not_begun_and_keeps_its_lease_for_what_has(
    flows: Workflows, store: Store
) -> None:
    gate = Gate("done")
    slow = task(name="slow")(gate)
    worker = flows.worker(threads=1, beat_s=0.02, ttl_s=0.1).start()
    runs = [flows.start(workflow(name="slow")(lambda: slow())) for _ in range(3)]
    gate.entered()
    assert not worker.stop(0.3)  # three times its lease
    rival = Workflows(store)
    rival.register(slow)
    judge = rival.worker(threads=1, beat_s=0.02, ttl_s=0.1)
    assert judge.presence.bury() == 0
    assert len([item for item in store.page(ITEM) if item.owner is not None]) == 1
    gate.open()
    assert worker.stop(PATIENCE_S)
    assert runs[0].status is S.SUCCEEDED
    assert store.page(WORKER) == []
    judge.run_once()
    assert [run.result(0) for run in runs] == ["done"] * 3
    judge.close()


def test_a_worker_that_is_declared_dead_drops_what_it_has_and_works_on(flows: Workflows, store: Store) -> None:
    gate = Gate("late")
    calls: list[int] = []

    @task
    def slow() -> Any:
        calls.append(1)
        return gate() if len(calls) == 1 else "again"

    worker = flows.worker(beat_s=0.02, ttl_s=60).start()
    before = worker.presence.id
    run = flows.start(workflow(name="slow")(lambda: slow()))
    gate.entered()
    undertaker = flows.worker().presence

    def buried() -> bool:
        """As somebody does who thinks that it is dead. A beat may come between: then it lives, and is buried again."""
        [row] = store.get(WORKER, [before])
        if row is not None:
            undertaker._bury(row)
        return worker.presence.id != before

    until(buried)
    assert run.result(PATIENCE_S) == "again"
    gate.open()
    assert flows.start(single).result(PATIENCE_S) == 1
    assert worker.stop(PATIENCE_S)
    assert run.result(0) == "again"


def test_a_worker_that_is_declared_dead_leaves_the_finalizers_that_wait_to_others(
    store: Store, clock: ManualClock
) -> None:
    worker = Workflows(store, clock=clock).worker(ttl_s=3.0, beat_s=0.5)
    shift, cleaning = worker._shift, worker._shift._cleaning
    shift.look(woken=True)
    with shift.at_hand.reserved():
        assert shift._ownership.renew()
        cleaning._waiting.append(ItemRecord("i", 1, None, "default", 0, FINALIZE, "", "me", "w", "a", 1, 0, 1, 0))
        store.sweep(WORKER, equal(id=shift.presence.id))  # as somebody does who thinks that it is dead
        assert not shift._ownership.renew()
    assert cleaning.drop_waiting() == []
    worker.close()


def test_a_worker_in_doubt_looks_for_all_that_is_its_own(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "PAGE", 4)
    worker = Workflows(store, clock=clock).worker()
    shift = worker._shift
    owned = [
        ItemRecord(f"i{at}", 1, None, "default", 0, "run", "any", shift.presence.id, "w", "a", 1, 0, 1, 0)
        for at in range(9)
    ]
    store.commit([Insert(ITEM, one) for one in owned])
    shift._ownership.find_lost()
    assert all(map(shift.at_hand.holds, owned))
    shift.at_hand.lose()
    worker.close()


async def test_a_worker_that_is_cancelled_before_it_began_ends(flows: Workflows) -> None:
    worker = flows.worker()
    work = asyncio.ensure_future(worker.arun())
    await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(work, PATIENCE_S)


def test_a_start_wakes_an_idle_worker_at_once(flows: Workflows) -> None:
    worker = flows.worker(idle_s=3600).start()
    flows.start(single).result(PATIENCE_S)
    for _ in range(5):
        flows.start(single).result(PATIENCE_S)  # or it would look again in an hour
    assert worker.stop(PATIENCE_S)


def test_an_idle_worker_asks_at_most_once_a_second_and_has_no_row(store: Store, clock: ManualClock) -> None:
    counted = Counting(store)
    quiet = Workflows(counted, clock=clock)
    quiet.register(fine)
    quiet.schedule("rare", single, cron="@yearly")
    worker = quiet.worker()
    shift = worker._shift
    assert quiet.start(single)
    worker.run_once()
    shift.look(woken=True)
    asked: list[tuple[float, int]] = []
    seconds = 0.0
    while seconds < 200:  # at first it looks more often
        counted.calls.clear()
        wait = shift.look()
        assert wait > 0
        asked.append((seconds, counted.calls.total()))
        clock.advance(wait)
        seconds += wait
    for began, _ in asked:
        if began >= 3:
            assert sum(number for at, number in asked if began <= at < began + 10) <= 10, asked
    assert store.page(WORKER) == []
    worker.close()


@pytest.mark.parametrize("later", [0.0, 0.1, 0.3, 0.7])
def test_a_worker_with_nothing_to_do_takes_its_row_away_when_it_may_and_not_some_looks_later(
    store: Store, clock: ManualClock, later: float
) -> None:
    worker = Workflows(store, clock=clock).worker(ttl_s=3.0, beat_s=0.5)
    shift, seconds = worker._shift, 0.0
    shift.look(woken=True)
    while seconds < later:  # less and less often
        wait = shift.look()
        clock.advance(wait)
        seconds += wait
    with shift.at_hand.reserved():  # it has something to do
        assert shift._ownership.renew()
        wait, seconds = shift.look(), 0.0
    while store.page(WORKER):
        clock.advance(wait)
        seconds += wait
        wait = shift.look()
    assert 1.5 <= seconds <= 2.0
    worker.close()


def test_a_worker_whose_work_is_done_looks_less_and_less_often_from_then_on(store: Store, clock: ManualClock) -> None:
    counted = Counting(store)
    quiet = Workflows(counted, clock=clock)
    worker = quiet.worker()
    shift, seconds = worker._shift, 0.0
    with shift.at_hand.reserved():  # it has something to do
        shift.look(woken=True)
    while seconds < 13:
        wait = shift.look()
        clock.advance(wait)
        if seconds < 3 <= seconds + wait:
            counted.calls.clear()
        seconds += wait
    assert counted.calls.total() <= 10, counted.calls
    worker.close()


def test_a_forked_process_has_a_worker_of_its_own(tmp_path: Path) -> None:
    flows = frozen_process.flows_at(make_place("sqlite", tmp_path, KINDS).url)
    (tmp_path / "journal").touch()
    (tmp_path / "open").touch()
    worker = flows.worker().start()
    assert flows.start(frozen_process.pair, str(tmp_path)).result(PATIENCE_S) == [os.getpid()] * 2
    mine = worker.presence.id
    child = os.fork()
    if child == 0:
        try:
            worker.start()
            flows.start(frozen_process.pair, str(tmp_path)).result(PATIENCE_S)
            ok = worker.presence.id != mine and worker.stop(PATIENCE_S)
            os._exit(0 if ok else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert flows.start(frozen_process.pair, str(tmp_path)).result(PATIENCE_S) == [os.getpid()] * 2
    assert worker.presence.id == mine
    assert worker.stop(PATIENCE_S)


def test_a_process_that_is_forked_while_its_parent_works_can_start_workflows(tmp_path: Path) -> None:
    flows = frozen_process.flows_at(make_place("sqlite", tmp_path, KINDS).url)
    worker = flows.worker()
    shift, held, forked = worker._shift, threading.Event(), threading.Event()

    def work() -> None:
        with shift.at_hand.lock, shift._settling.writing, flows.waiters._lock:  # as threads do now and then
            held.set()
            forked.wait(PATIENCE_S)

    threading.Thread(target=work).start()
    held.wait(PATIENCE_S)
    child = os.fork()
    forked.set()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(round(PATIENCE_S))  # if it hangs
        run = flows.start(frozen_process.pair, str(tmp_path))
        os._exit(0 if flows.cancel(run.id).status is S.CANCELED else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    worker.close()


@pytest.mark.parametrize("name", ["sqlite", "postgres"])
def test_a_worker_that_was_frozen_for_three_leases_writes_nothing_late(tmp_path: Path, name: str) -> None:
    url = make_place(name, tmp_path, KINDS).url
    journal = tmp_path / "journal"
    journal.touch()
    flows = frozen_process.flows_at(url)
    frozen = _spawn(url, tmp_path)
    try:
        runs = [flows.start(frozen_process.pair, str(tmp_path)) for _ in range(4)]
        until(lambda: len(journal.read_text().splitlines()) == 8)
        _freeze(frozen, url)
        (tmp_path / "open").touch()
        SYSTEM_CLOCK.sleep(3 * 0.5)
        worker = flows.worker(beat_s=0.1, ttl_s=0.5).start()
        assert [run.result(PATIENCE_S) for run in runs] == [[os.getpid()] * 2] * 4
        assert worker.stop(PATIENCE_S)
        frozen.send_signal(signal.SIGCONT)
        assert flows.start(frozen_process.pair, str(tmp_path)).result(PATIENCE_S) == [frozen.pid] * 2  # it works on
    finally:
        frozen.send_signal(signal.SIGCONT)
        frozen.terminate()
        frozen.wait()
    assert flows._store.page(ITEM) == []
    assert [run.result(0) for run in runs] == [[os.getpid()] * 2] * 4
    flows._store.close()
    made = Counter(line.split()[1] for line in journal.read_text().splitlines())
    assert sorted(made.values()) == [1, 1, *[2] * 8]


def _freeze(process: subprocess.Popen[bytes], url: str) -> None:
    """Stop a process, but not in the middle of a transaction of SQLite's, which would hold up everybody."""
    while True:
        process.send_signal(signal.SIGSTOP)
        _, status = os.waitpid(process.pid, os.WUNTRACED)  # on a busy machine it goes on for a moment
        assert os.WIFSTOPPED(status)
        if not url.startswith("sqlite"):
            return
        mine = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=0.2, isolation_level=None)
        try:
            mine.execute("BEGIN IMMEDIATE")
            mine.execute("ROLLBACK")
            return
        except sqlite3.OperationalError:
            process.send_signal(signal.SIGCONT)
            SYSTEM_CLOCK.sleep(0.01)
        finally:
            mine.close()


def _spawn(url: str, folder: Path) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "tests.workflows.frozen_process", url, str(folder)]
    return subprocess.Popen(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})


class Counting:
    """A store, and how often each verb was used."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in ("get", "commit", "claim", "page", "tally", "sweep"):
            return found

        def counted(*args: Any, **options: Any) -> Any:
            self.calls[name] += 1
            return found(*args, **options)

        return counted
