"""A batch on its way: claimed, called concurrently, settled as results arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from holdfast.core.clock import Clock
from holdfast.errors import ResolverError
from holdfast.machine.outbox_entry import ABANDON, PARK, SUCCEED
from holdfast.outbox.calling import Call, Caller, Check, Cut
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.heartbeat import Heartbeat
from holdfast.outbox.hooks import Hooks, Notice
from holdfast.outbox.judge import Judge
from holdfast.outbox.lanes import Lanes, TargetLimits
from holdfast.outbox.operation import OperationRegistry, Targets
from holdfast.outbox.outbox import Outbox
from holdfast.outbox.reporting import Reporter
from holdfast.outbox.settle import Settlement
from holdfast.outbox.settler import Settler
from holdfast.outbox.verdict import GIVEN_UP
from holdfast.outbox.verification import Verification

T = TypeVar("T")


class Claimed(NamedTuple):
    """What a batch is made of."""

    entries: Sequence[OutboxEntry]
    checks: Sequence[tuple[OutboxEntry, Check]]
    results: dict[UUID, Any]
    """Of the entries on which others depend."""
    now: datetime | None
    """The server's time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What all batches of a runner have in common."""

    outbox: Outbox
    registry: Targets
    operations: OperationRegistry
    judge: Judge
    settler: Settler
    verification: Verification
    hooks: Hooks
    reporter: Reporter
    caller: Caller
    limits: TargetLimits
    clock: Clock
    lease: timedelta
    grace: float
    concurrency: int
    max_parks: int | None
    max_park_age: timedelta | None


class Batch:
    """One batch. `run` never raises what a call has raised; `fatal` is that which must go further."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._lanes = Lanes(parts.caller, parts.limits, parts.clock, parts.concurrency, self._note)
        self._database = asyncio.Lock()  # never two units at a time: a pool of one connection must do
        self._woken = asyncio.Event()
        self._stopping = False
        self._ended: list[Call] = []
        self._unstarted: list[Call] = []
        self._held: set[Call] = set()
        self._told: list[asyncio.Task[None]] = []
        self._claimed_at = (datetime.min.replace(tzinfo=UTC), 0.0)
        self.fatal: BaseException | None = None

    async def run(
        self,
        claim: Callable[[], Awaitable[Claimed]],
        done: Callable[[Claimed], None],
        ready: Claimed | None = None,
    ) -> int:
        """Claim, unless that is done already, call and settle; how many entries were claimed."""
        parts = self._parts
        claimed = await claim() if ready is None else ready
        done(claimed)
        if not claimed.entries and not claimed.checks:
            return 0
        assert claimed.now is not None
        self._claimed_at = claimed.now, parts.clock.monotonic()
        heart = Heartbeat(
            lambda: [call.entry for call in self._held],
            self._renew,
            self._lose,
            lease=parts.lease,
            clock=parts.clock,
            troubled=lambda error: parts.reporter.troubled("heartbeat", error),
        )
        try:
            self._begin(claimed)
            await self._settle_all()
        finally:
            await heart.close()
            await self._lanes.close()
        if self._told:
            await asyncio.wait(self._told)
        return len(claimed.entries)

    def stop(self) -> None:
        """Begin nothing more; what runs gets its grace, and then keeps its lease."""
        if self._stopping:
            self._lanes.cut_off(Cut.ENDED)
            return
        self._stopping = True
        self._unstarted += self._lanes.take_unstarted()
        self._woken.set()
        if self._parts.grace <= 0:
            self._lanes.cut_off(Cut.ENDED)
        else:
            clock = self._parts.clock
            clock.call_at(clock.monotonic() + self._parts.grace, lambda: self._lanes.cut_off(Cut.ENDED))

    def _begin(self, claimed: Claimed) -> None:
        parts, ready = self._parts, list[Call]()
        for entry in claimed.entries:
            call = self._call(entry)
            self._held.add(call)
            if entry.depends_on is not None:
                call.previous = claimed.results.get(entry.depends_on)
            call.exhausted = parts.judge.is_exhausted(call)
            if call.error is not None or call.unknown or call.exhausted:
                self._ended.append(call)
            else:
                ready.append(call)
        for entry, check in claimed.checks:
            call = self._call(entry, check)
            # Nobody here who could be asked: it stays held for a lease, and is asked after again.
            if parts.verification.is_exhausted(check):
                self._ended.append(call)
            elif call.error is None and not call.unknown and call.operation is not None and call.operation.verify:
                ready.append(call)
        if self._stopping:
            self._unstarted += ready
        else:
            self._lanes.add(ready)
        if self._ended or self._stopping or not ready:
            self._woken.set()

    def _call(self, entry: OutboxEntry, check: Check | None = None) -> Call:
        parts = self._parts
        call = Call(entry, parts.operations.find(str(entry.operation)), check=check)
        if call.operation is None:
            call.unknown = True
            return call
        targets = call.operation.targets or parts.registry
        try:
            call.target = targets.get(entry.resolver)
        except ResolverError as error:
            call.error, call.unknown = error, True
        except Exception as error:
            call.error = error
        return call

    def _note(self, call: Call) -> None:
        self._ended.append(call)
        if len(self._ended) == 1:  # whoever is woken by the first one finds the others
            self._woken.set()

    def _lose(self, ids: Collection[UUID]) -> None:
        """Others have these entries."""
        for call in self._held:
            if call.entry.entry_id not in ids:
                continue
            if call.started_at is None:
                call.cut = Cut.LOST
            elif call in self._lanes.running:
                call.cut_off(Cut.LOST)

    async def _renew(self, entries: Collection[OutboxEntry]) -> set[UUID]:
        outbox = self._parts.outbox
        return await self._run(lambda: outbox.arun(outbox.renewing(tuple(entries), self._parts.lease)))

    async def _run(self, act: Callable[[], Awaitable[T]]) -> T:
        async with self._database:
            return await act()

    async def _settle_all(self) -> None:
        while self._ended or self._unstarted or not self._lanes.is_idle:
            await self._woken.wait()
            self._woken.clear()
            await asyncio.sleep(0)  # what ends in this very turn is settled with it
            ended, self._ended = self._ended, []
            unstarted, self._unstarted = self._unstarted, []
            await self._settle([call for call in ended if not self._is_left(call)], unstarted)

    def _is_left(self, call: Call) -> bool:
        """Whether nothing is written of it."""
        if (call.error is None and call.cut is None) or not call.keeps_its_lease:
            return False
        if call.is_fatal:
            self.fatal = self.fatal or call.error
        if call.cut is Cut.LOST and call.check is None:
            self._parts.reporter.lost(call)
        self._forget(call)
        return True

    def _forget(self, call: Call) -> None:
        self._held.discard(call)

    async def _settle(self, ended: Sequence[Call], unstarted: Sequence[Call]) -> None:
        parts, now = self._parts, self._now()
        calls = [call for call in ended if call.check is None]
        settlements = [parts.judge.settlement(call, now, self._times) for call in calls]
        given_back = [call for call in unstarted if call.check is None]
        settlements += [parts.judge.release(call) for call in given_back]
        if settlements:
            written = await parts.settler.settle(settlements, self._run)
            self._after(list(zip([*calls, *given_back], settlements, written, strict=True)), now)
        checks = [parts.verification.verdict(call, now) for call in ended if call.check is not None]
        if checks:
            answers = zip(checks, await parts.settler.judge(checks, self._run), strict=True)
            verdicts = [verdict for verdict, held in answers if held]
            for verdict in verdicts:
                parts.reporter.verified(verdict)
            self._tell(
                Notice("on_unverified", one.call.entry, one.error or "", one.call.check.number)
                for one in verdicts
                if one.word == GIVEN_UP and one.call.check is not None
            )

    def _after(self, done: Sequence[tuple[Call, Settlement, bool | None]], now: datetime) -> None:
        """What follows once it is on disk."""
        parts = self._parts
        for call, _, held in done:
            self._forget(call)
            if held is False:
                parts.reporter.lost(call)
        settled = [(call, settlement) for call, settlement, held in done if held]
        overdue = [call.entry for call, one in settled if one.move is PARK and self._is_overdue(call.entry, now)]
        parts.reporter.settled(settled, overdue)
        notices = [Notice("on_overdue", entry, "Overdue", entry.attempts) for entry in overdue]
        for call, one in settled:
            if one.move is ABANDON:
                notices.append(Notice("on_abandoned", call.entry, one.given["last_error"], one.given["attempts"]))
        self._tell(notices)
        if not self._stopping:
            self._lanes.add(
                Call(call.entry, call.operation, call.target, Check(one.given["verify_at"], 1))
                for call, one in settled
                if one.move is SUCCEED and "verify_at" in one.given
            )

    def _is_overdue(self, entry: OutboxEntry, now: datetime) -> bool:
        parts = self._parts
        too_often = parts.max_parks is not None and entry.parks + 1 > parts.max_parks
        return too_often or (parts.max_park_age is not None and now - entry.enqueued_at > parts.max_park_age)

    def _tell(self, notices: Any) -> None:
        if notices := list(notices):
            self._told.append(asyncio.get_running_loop().create_task(self._parts.hooks.tell(notices)))

    def _now(self) -> datetime:
        """The server's time: what it was at the claim, and what has passed since then."""
        return self._at(self._parts.clock.monotonic())

    def _at(self, moment: float) -> datetime:
        then, started = self._claimed_at
        return then + timedelta(seconds=moment - started)

    def _times(self, call: Call) -> tuple[datetime | None, datetime]:
        if call.started_at is None:
            return None, self._now()
        return self._at(call.started_at), self._at(call.ended_at)
