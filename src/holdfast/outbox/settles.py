"""Writing down what became of calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from inspect import iscoroutinefunction
from typing import Any

from sqlalchemy.orm import Session

from holdfast.audit.event import AuditSink
from holdfast.audit.sink import DatabaseAuditSink
from holdfast.backends.sql.join import Direct
from holdfast.machine.outbox_entry import ABANDON, FAIL, PARK, RELEASE, SUCCEED
from holdfast.outbox.checks import each, moment
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.place import Place
from holdfast.outbox.settle import Settlement, settle, statements_of
from holdfast.outbox.subject import LONGEST
from holdfast.store.codec import clean_text


class Settles(Place):
    """A settle by a claim that was lost changes nothing, and says so with False."""

    def settling(
        self, settlements: Sequence[Settlement], *, sink: AuditSink | None = None
    ) -> Callable[[Session | Direct], list[bool]]:
        """A settle of many as a unit of work, for `run` or `arun`."""
        return lambda to: settle(to, self.statements(to), settlements, sink=sink, followers=self.followers)

    async def asettle(self, settlements: Sequence[Settlement], *, sink: AuditSink | None = None) -> list[bool]:
        """A settle of many in the quickest way there is."""
        work = self.settling(settlements, sink=sink)
        joins = sink is None or (type(sink) is DatabaseAuditSink and sink.shares(self.sessions))
        number = statements_of(settlements) if joins else None
        if number is None:
            return await self.arun(work)
        return await self.sessions.arun_lean(work, alone=number == 1)

    def settle_batch(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Write what became of many calls, with their audit events, in one transaction; for each whether its claim
        still held."""
        return self.run(self.settling(settlements, sink=self.audit_sink)) if settlements else []

    def mark_failed(self, entry: OutboxEntry, *, error: str, next_attempt_at: datetime) -> bool:
        """To be tried again at that time. False, and nothing is changed, if the claim was lost."""
        given = {"last_error": _named(error), "next_attempt_at": moment("next_attempt_at", next_attempt_at)}
        return self._settle_one(Settlement(entry, FAIL, given))

    def mark_scheduled(self, entry: OutboxEntry, *, resume_at: datetime) -> bool:
        """Parked until that time, with a new budget of attempts. False if the claim was lost."""
        return self._settle_one(Settlement(entry, PARK, {"next_attempt_at": moment("resume_at", resume_at)}))

    def mark_abandoned(self, entry: OutboxEntry, *, error: str) -> bool:
        """Given up. False if the claim was lost."""
        given = {"last_error": _named(error), "attempts": _checked(entry).attempts}
        return self._settle_one(Settlement(entry, ABANDON, given, self._scrubs(entry)))

    def mark_succeeded(self, entry: OutboxEntry, *, on_subject_complete: Callable[[], None]) -> bool:
        """Done. False if the claim was lost.

        `on_subject_complete` is called in the open transaction when this was the last entry that its subject's
        operation lacked; what it raises undoes all of it.
        """
        given: Any = on_subject_complete
        if not callable(given) or iscoroutinefunction(given):
            raise ValueError(f"on_subject_complete must be a plain function, got {given!r}")
        once = _Once(on_subject_complete)
        scrubs = self._scrubs(_checked(entry))
        return self._settle_one(Settlement(entry, SUCCEED, {}, scrubs, grouped=True, on_complete=once))

    def release(self, entries: Sequence[OutboxEntry]) -> list[bool]:
        """Give claimed entries back whose calls were never begun: due at once, and without the attempt."""
        released = [Settlement(entry, RELEASE) for entry in each("entries", entries, OutboxEntry)]
        return self.run(self.settling(released)) if released else []

    def _settle_one(self, settlement: Settlement) -> bool:
        _checked(settlement.entry)
        return self.run(self.settling([settlement]))[0]

    def _scrubs(self, entry: OutboxEntry) -> bool:
        return self.operations.is_sensitive(str(entry.operation))


class _Once:
    """A transaction that the database undid is done again; what the caller did in it is not."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act
        self._is_done = False

    def __call__(self) -> None:
        if not self._is_done:
            self._act()
            self._is_done = True


def _named(error: Any) -> str:
    """Raises ValueError for what is no name of an error: its message may hold anything, and must not be stored."""
    if not isinstance(error, str) or not error:
        raise ValueError(f"error must be the name of an exception's class, got {error!r}; use type(error).__name__")
    return clean_text(error)[:LONGEST]


def _checked(entry: Any) -> OutboxEntry:
    if not isinstance(entry, OutboxEntry):
        raise ValueError(f"entry must be an OutboxEntry, got {entry!r}; give one that claim_batch gave")  # noqa: TRY004
    return entry
