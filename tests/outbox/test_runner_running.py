"""How calls run: concurrently, within limits, cut off when they take too long, and put away when the runner stops."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.context import remaining_time
from holdfast.errors import Conflict
from holdfast.guard.circuit import Breaker
from holdfast.guard.guard import Guard
from holdfast.guard.timeout import Timeout
from holdfast.outbox.backoff import BackoffPolicy
from holdfast.outbox.events import EntryCalled, RunnerTroubled, SettleLost
from holdfast.outbox.operation import CallContext, Done, Operation, RetryAfter
from tests.databases import Database, fresh_database
from tests.databases import database as database
from tests.outbox.runner_kit import Desk, until

SECOND = timedelta(seconds=1)
LEASE = BackoffPolicy(lease=timedelta(seconds=30))


@pytest.fixture
def desk(tmp_path: Path) -> Any:
    with fresh_database("sqlite", tmp_path) as database:
        yield Desk(database.sessions)


class Gate:
    """Calls wait here until they are let through; who waits is known."""

    def __init__(self) -> None:
        self.waiting: dict[Any, asyncio.Event] = {}
        self.most = 0

    async def wait(self, context: CallContext) -> Any:
        opened = self.waiting[context.entry_id] = asyncio.Event()
        self.most = max(self.most, len(self.waiting))
        try:
            await opened.wait()
        finally:
            del self.waiting[context.entry_id]

    def open(self) -> None:
        for opened in self.waiting.values():
            opened.set()


async def test_the_slowest_call_holds_back_nobody(database: Database) -> None:
    desk, gate = Desk(database.sessions), Gate()
    slow, *quick = desk.put_many(5)
    desk.mail.answers = lambda context: gate.wait(context) if context.entry_id == slow else None
    running = asyncio.create_task(desk.runner().run_once())
    await until(lambda: desk.statuses(quick) == ["succeeded"] * 4)
    assert desk.get(slow).status == "in_flight"
    gate.open()
    assert await running == 5
    assert desk.get(slow).status == "succeeded"


async def test_calls_run_at_the_same_time_up_to_the_limit(desk: Desk) -> None:
    gate = Gate()
    desk.put_many(7)
    desk.mail.answers = gate.wait
    running = asyncio.create_task(desk.runner(concurrency=3).run_once())
    while not running.done():
        await until(lambda: len(gate.waiting) == 3 or len(desk.mail.called) == 7 or running.done())
        gate.open()
        await asyncio.sleep(0)
    assert (gate.most, await running) == (3, 7)


async def test_a_target_gets_no_more_calls_at_a_time_than_its_operation_says(tmp_path: Path) -> None:
    with fresh_database("sqlite", tmp_path) as database:
        desk, gate = Desk(database.sessions, concurrency=2), Gate()
        desk.mail.answers = gate.wait
        ids = desk.put_many(6)
        runner = desk.runner(batch_size=3)
        # Two batches of one runner share the limit.
        batches = [asyncio.create_task(runner.run_once()) for _ in range(2)]
        await until(lambda: len(gate.waiting) == 2)
        while not all(batch.done() for batch in batches):
            gate.open()
            await asyncio.sleep(0)
        assert gate.most == 2
        assert desk.statuses(ids) == ["succeeded"] * 6


async def test_calls_that_never_wait_share_a_task(desk: Desk) -> None:
    tasks: set[Any] = set()
    desk.mail.answers = lambda context: tasks.add(asyncio.current_task())
    desk.put_many(20)
    await desk.runner().run_once()
    assert len(tasks) == 1


async def test_no_call_sees_what_another_one_has_set(desk: Desk) -> None:
    tenant: contextvars.ContextVar[Any] = contextvars.ContextVar("tenant", default=None)
    seen: list[Any] = []

    def answer(context: CallContext) -> None:
        seen.append(tenant.get())
        tenant.set(context.entry_id)

    desk.mail.answers = answer
    ids = desk.put_many(4)
    await desk.runner().run_once()
    assert seen == [None] * 4
    assert desk.statuses(ids) == ["succeeded"] * 4


async def test_a_sync_function_runs_in_a_thread(tmp_path: Path) -> None:
    threads: list[Any] = []

    def call(target: Any, context: CallContext) -> Done:
        threads.append(threading.current_thread())
        return Done({"n": context.attempt})

    with fresh_database("sqlite", tmp_path) as database:
        desk = _desk_calling(database, call)
        id = desk.put_one()
        runner = desk.runner()
        await runner.run_once()
        runner.close()
        assert desk.get(id).result == {"n": 1}
        assert threads[0] is not threading.main_thread()


@pytest.mark.parametrize("error", [StopIteration(), ValueError("x"), TimeoutError()])
async def test_a_sync_function_may_raise_anything(tmp_path: Path, error: Exception) -> None:
    def call(target: Any, context: CallContext) -> Done:
        raise error

    with fresh_database("sqlite", tmp_path) as database:
        desk = _desk_calling(database, call)
        id = desk.put_one()
        runner = desk.runner()
        await runner.run_once()
        runner.close()
        assert desk.get(id).status == "failed"


def _desk_calling(database: Database, call: Any, **options: Any) -> Desk:
    desk = Desk(database.sessions)
    desk.operations._operations["send"] = Operation(name="send", call=call, sensitive=False, **options)
    return desk


async def test_a_call_that_takes_too_long_has_failed(desk: Desk) -> None:
    gate = Gate()
    slow, quick = desk.put_many(2)
    desk.mail.answers = lambda context: gate.wait(context) if context.entry_id == slow else None
    running = asyncio.create_task(desk.runner(timeout=5 * SECOND).run_once())
    await until(lambda: gate.waiting)
    await desk.clock.advance_async(4.9)
    assert gate.waiting
    await desk.clock.advance_async(0.1)
    assert await running == 2
    entry = desk.get(slow)
    assert (entry.status, entry.attempts, entry.last_error) == ("failed", 1, "TimeoutError")
    assert desk.after(slow) == 30 * SECOND
    assert desk.get(quick).status == "succeeded"


async def test_calls_that_begin_later_have_their_whole_time(desk: Desk) -> None:
    gate = Gate()
    first, second = desk.put_many(2)
    desk.mail.answers = gate.wait
    running = asyncio.create_task(desk.runner(timeout=5 * SECOND, concurrency=1).run_once())
    await until(lambda: gate.waiting)
    await desk.clock.advance_async(4)
    gate.open()
    await until(lambda: second in gate.waiting)
    await desk.clock.advance_async(4)
    assert second in gate.waiting
    await desk.clock.advance_async(1)
    await running
    assert desk.statuses([first, second]) == ["succeeded", "failed"]


async def test_an_answer_that_comes_after_the_limit_still_counts(desk: Desk) -> None:
    started = asyncio.Event()

    async def stubborn(context: CallContext) -> Done:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return Done({"late": True})
        raise AssertionError

    desk.mail.answers = stubborn
    ids = desk.put_many(2)
    running = asyncio.create_task(desk.runner(timeout=SECOND, concurrency=1).run_once())
    for _ in ids:
        await started.wait()
        started.clear()
        await desk.clock.advance_async(1)
    await running
    assert desk.statuses(ids) == ["succeeded"] * 2


async def test_the_limit_bounds_guards_below(desk: Desk) -> None:
    left: list[float] = []
    inner = Guard("inner", Timeout(total=60), clock=desk.clock, telemetry=desk.hub)

    async def answer(context: CallContext) -> None:
        assert context.deadline is not None
        left.append(context.deadline.remaining())
        left.append(await inner.acall(_left))

    async def _left() -> float:
        return remaining_time()

    desk.mail.answers = answer
    desk.put_one()
    await desk.runner(timeout=7 * SECOND).run_once()
    assert left == [7, 7]


async def test_an_operations_guard_wraps_the_call_and_its_refusal_is_no_attempt(tmp_path: Path) -> None:
    with fresh_database("sqlite", tmp_path) as database:
        desk = Desk(database.sessions)
        guards = {"mail": Guard("mail", Breaker(), clock=desk.clock, telemetry=desk.hub)}
        desk = Desk(database.sessions, clock=desk.clock, guard=guards.get)
        guards["mail"].circuit.isolate(desk.clock.monotonic())
        id = desk.put_one()
        await desk.runner().run_once()
        entry = desk.get(id)
        assert (entry.status, entry.attempts, entry.last_error) == ("failed", 0, "CircuitOpen")
        assert desk.mail.called == []
        guards["mail"].circuit.reset(desk.clock.monotonic())
        desk.clock.advance(3600)
        await desk.runner().run_once()
        assert desk.get(id).status == "succeeded"


async def test_a_cancellation_that_a_call_makes_itself_is_an_ordinary_failure(desk: Desk) -> None:
    async def answer(context: CallContext) -> None:
        raise asyncio.CancelledError

    desk.mail.answers = answer
    id, other = desk.put_one(), desk.erase()
    assert await desk.runner().run_once() == 2
    assert (desk.get(id).status, desk.get(id).last_error) == ("failed", "CancelledError")
    assert desk.get(other).status == "succeeded"


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
async def test_what_is_no_exception_goes_further_after_the_others_are_settled(
    desk: Desk, kind: type[BaseException]
) -> None:
    bad, *others = desk.put_many(5)

    def answer(context: CallContext) -> None:
        if context.entry_id == bad:
            raise kind

    desk.mail.answers = answer
    with pytest.raises(kind):
        await desk.runner().run_once()
    assert desk.statuses(others) == ["succeeded"] * 4
    assert desk.get(bad).status == "in_flight"
    assert desk.after(bad) == timedelta(minutes=5)


async def test_a_cancelled_run_settles_releases_and_waits(database: Database) -> None:
    desk, gate = Desk(database.sessions), Gate()
    done, running_one, unstarted = desk.put_many(3)
    desk.mail.answers = lambda context: None if context.entry_id == done else gate.wait(context)
    run = asyncio.create_task(desk.runner(concurrency=1, grace=5 * SECOND).run_once())
    await until(lambda: running_one in gate.waiting)
    run.cancel()
    await until(lambda: desk.get(unstarted).status == "pending")
    assert desk.get(unstarted).attempts == 0
    assert desk.get(done).status == "succeeded"
    assert not run.done()
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert desk.get(running_one).status == "succeeded"


async def test_a_call_that_outlasts_the_grace_keeps_its_lease(desk: Desk) -> None:
    gate = Gate()
    desk.mail.answers = gate.wait
    id = desk.put_one()
    run = asyncio.create_task(desk.runner(grace=5 * SECOND).run_once())
    await until(lambda: gate.waiting)
    run.cancel()
    await asyncio.sleep(0)
    await desk.clock.advance_async(5)
    with pytest.raises(asyncio.CancelledError):
        await run
    entry = desk.get(id)
    assert (entry.status, entry.attempts) == ("in_flight", 1)
    assert not gate.waiting


async def test_a_second_cancellation_ends_the_grace(desk: Desk) -> None:
    gate = Gate()
    desk.mail.answers = gate.wait
    id = desk.put_one()
    run = asyncio.create_task(desk.runner().run_once())
    await until(lambda: gate.waiting)
    for _ in range(2):
        run.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await run
    assert desk.get(id).status == "in_flight"


async def test_a_run_that_is_cancelled_while_it_claims_gives_everything_back(desk: Desk) -> None:
    ids = desk.put_many(3)
    run = asyncio.create_task(desk.runner().run_once())
    await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    entries = [desk.get(id) for id in ids]
    assert [(entry.status, entry.attempts) for entry in entries] == [("pending", 0)] * 3
    assert desk.mail.called == []


async def test_claims_are_renewed_while_calls_run(database: Database) -> None:
    desk, gate = Desk(database.sessions), Gate()
    desk.mail.answers = gate.wait
    id, unstarted = desk.put_many(2)
    run = asyncio.create_task(desk.runner(backoff=LEASE, concurrency=1).run_once())
    await until(lambda: gate.waiting)
    for _ in range(2):
        await desk.clock.advance_async(10)
        await until(lambda: desk.after(id) == desk.after(unstarted) == 30 * SECOND)
    assert desk.outbox.claim_batch() == ()
    gate.open()
    await until(lambda: unstarted in gate.waiting)
    gate.open()
    assert await run == 2


async def test_a_batch_that_is_done_soon_renews_nothing(desk: Desk) -> None:
    renewals: list[Any] = []
    original = desk.outbox.renewing
    desk.outbox.renewing = lambda *args: renewals.append(args) or original(*args)  # type: ignore[method-assign, func-returns-value]
    desk.put_many(3)
    await desk.runner(backoff=LEASE).run_once()
    await desk.clock.advance_async(100)
    assert renewals == []


async def test_a_call_whose_claim_was_lost_is_cancelled_and_changes_nothing(database: Database) -> None:
    desk, gate = Desk(database.sessions), Gate()
    desk.mail.answers = gate.wait
    id, unstarted = desk.put_many(2)
    run = asyncio.create_task(desk.runner(backoff=LEASE, concurrency=1).run_once())
    await until(lambda: gate.waiting)
    held = desk.mail.contexts[0].heartbeat
    assert held is not None
    held()
    # Its lease runs out while the process sleeps, and another runner takes over.
    _expire(desk)
    (one, other) = desk.outbox.claim_batch()
    await desk.clock.advance_async(10)
    assert await run == 2
    with pytest.raises(Conflict):
        held()
    assert (one.entry_id, other.entry_id) == (id, unstarted)
    assert [(desk.get(one).status, desk.get(one).claim_token) for one in (id, unstarted)] == [
        ("in_flight", one.claim_token)
    ] * 2
    assert desk.mail.called == [id]
    assert (desk.trail.events, desk.pager.abandoned) == ([], [])
    assert sum(isinstance(event, SettleLost) for event in desk.events) == 2


async def test_a_late_settle_changes_nothing(database: Database) -> None:
    """A late failure must not flip what another runner has brought to its end."""
    desk, gate = Desk(database.sessions), Gate()

    async def late(context: CallContext) -> None:
        await gate.wait(context)
        raise OSError

    desk.mail.answers = late
    id = desk.put_one()
    run = asyncio.create_task(desk.runner(max_attempts=1).run_once())
    await until(lambda: gate.waiting)
    _expire(desk)
    (taken,) = desk.outbox.claim_batch()
    assert desk.outbox.mark_succeeded(taken, on_subject_complete=lambda: None)
    gate.open()
    await run
    assert (desk.get(id).status, desk.get(id).last_error) == ("succeeded", None)
    assert (desk.trail.events, desk.pager.abandoned) == ([], [])


def _expire(desk: Desk) -> None:
    table, past = desk.outbox.tables.outbox, desk.clock.wall() - SECOND
    desk.outbox.run(lambda session: session.execute(table.update().values(next_attempt_at=past)))


async def test_a_database_that_is_away_for_a_lease_means_that_claims_are_lost(desk: Desk) -> None:
    gate = Gate()
    desk.mail.answers = gate.wait
    desk.put_one()

    def renewing(*args: Any) -> Any:
        raise ConnectionError("the database is away")

    desk.outbox.renewing = renewing  # type: ignore[method-assign]
    run = asyncio.create_task(desk.runner(backoff=LEASE, timeout=29 * SECOND).run_once())
    await until(lambda: gate.waiting)
    await desk.clock.advance_async(20)
    assert gate.waiting
    assert sum(isinstance(event, RunnerTroubled) for event in desk.events) == 2
    await desk.clock.advance_async(10)
    await run
    assert not gate.waiting


async def test_telemetry_tells_of_every_call(desk: Desk) -> None:
    good, bad, later = desk.put_many(3)
    answers = {good: None, bad: 7, later: RetryAfter(SECOND)}
    desk.mail.answers = lambda context: answers[context.entry_id]
    await desk.runner().run_once()
    called = {event.entry_id: event.outcome for event in desk.events if isinstance(event, EntryCalled)}
    assert called == {str(good): "succeeded", str(bad): "abandoned", str(later): "refunded"}
    names = sorted({event.event_name for event in desk.events})
    assert names == ["outbox.abandoned", "outbox.called", "outbox.claimed", "outbox.refunded"]
