"""The outbox behind a server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from holdfast.cli.elsewhere.part import Part, tuple_of, why
from holdfast.cli.exits import Failed, NotFound, WrongUsage
from holdfast.errors import ConfigurationError
from holdfast.machine.outbox_entry import REQUEUE, OutboxStatus
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.many import Outcome
from holdfast.outbox.queues import PausedQueue
from holdfast.outbox.settle import Attempt

_NOBODY: UUID = UUID(int=0)


class RemoteOutbox(Part):
    """The entries behind a server, which masks them. What is done to several is done to one after the other."""

    def __init__(self, remote: Any) -> None:
        super().__init__(remote)
        self.operations = RemoteOperations(remote)
        self._pruning: Iterator[int] = iter(())
        self._counted: list[dict[str, Any]] = []

    def find(
        self, *, limit: int, after: UUID | None = None, newest_first: bool = False, **wanted: Any
    ) -> Sequence[OutboxEntry]:
        if newest_first:
            page = self._remote.pages("/outbox", limit, None if after is None else str(after), **wanted)
            return [_entry(one) for one in page["items"][:limit]]
        found = [_entry(one) for asked in _each(wanted) for one in self._all("/outbox", **asked)]
        return sorted(found, key=lambda one: one.entry_id)[:limit]

    def get(self, id: UUID) -> OutboxEntry | None:
        try:
            shown = self._remote.get(f"/outbox/{id}")
        except NotFound:
            return None
        self.operations.known[shown["operation"]] = shown["known"]
        return _entry(shown)

    def attempts(self, id: UUID) -> Sequence[Attempt]:
        history = self._remote.get(f"/outbox/{id}")["history"]
        return [tuple_of(Attempt, one, entry_id=id, claim_token=_NOBODY) for one in history]

    def list_abandoned(self, *, limit: int) -> Sequence[OutboxEntry]:
        return self.find(limit=limit, status=OutboxStatus.ABANDONED)

    def list_scheduled(self, *, limit: int) -> Sequence[OutboxEntry]:
        found = [_entry(one) for one in self._all("/outbox", status=OutboxStatus.SCHEDULED)]
        return sorted(found, key=lambda one: (one.next_attempt_at or one.enqueued_at, one.entry_id))[:limit]

    def tally(self, *by: str, **wanted: Any) -> dict[tuple[str | None, ...], int]:
        """By operation and target; those that were abandoned are counted by the server."""
        if set(wanted.get("status", ())) == set(REQUEUE.sources):
            where = {name: value for name, value in wanted.items() if name != "status"}
            calls = self._remote.get("/outbox/requeue/preview", **where)["calls"]
            self.operations.known |= {one["operation"]: one["known"] for one in calls}
            return {(one["operation"], one["target"]): one["entries"] for one in calls}
        if not by and set(wanted) == {"queue"}:
            queues = {one["queue"]: one["waiting"] for one in self._remote.get("/outbox/facets")["queues"]}
            return {(): queues[wanted["queue"]]} if queues.get(wanted["queue"]) else {}
        if by == ("queue", "status") and not wanted:
            self._counted = self._remote.get("/outbox/counts")["queues"]
            each = ((one["queue"], one["by_status"]) for one in self._counted)
            return {(queue, status): number for queue, numbers in each for status, number in numbers.items()}
        if by != ("operation", "target"):
            raise self._needs_store()
        found = [one for asked in _each(wanted) for one in self._all("/outbox", **asked)]
        return dict(Counter((one["operation"], one["resolver"]) for one in found))

    def ids(self, **wanted: Any) -> Sequence[UUID]:
        return sorted(UUID(one["entry_id"]) for asked in _each(wanted) for one in self._all("/outbox", **asked))

    def requeue(self, ids: Sequence[UUID]) -> Sequence[OutboxEntry]:
        return self._act(ids, "requeue")

    def cancel(self, ids: Sequence[UUID]) -> Sequence[OutboxEntry]:
        return self._act(ids, "cancel")

    def verify_again(self, ids: Sequence[UUID]) -> Sequence[OutboxEntry]:
        return self._act(ids, "verify")

    def requeue_matching(self, where: dict[str, Any], outcome: Outcome, told: Callable[[int], object]) -> None:
        """All that match, some at a time. Raises Failed if others match by now than were agreed to."""
        after, body = None, {**where, "expected": outcome.matched, "reason": why()}
        while True:
            done = self._remote.post("/outbox/requeue", {**body, "after": after})
            outcome.changed += done["requeued"]
            outcome.refused |= {UUID(one["entry_id"]): one["why"] for one in done["refused"]}
            told(outcome.changed + len(outcome.refused))
            after = done["next"]
            if after is None:
                return

    def pause(self, queue: str, *, by: str | None = None, reason: str | None = None) -> bool:
        if not (reason or "").strip():
            raise WrongUsage("a server wants to know why: --reason TEXT")
        return bool(self._remote.post("/outbox/queues/pause", {"queue": queue, "reason": reason})["changed"])

    def resume(self, queue: str) -> bool:
        return bool(self._remote.post("/outbox/queues/resume", {"queue": queue})["changed"])

    def paused(self) -> tuple[PausedQueue, ...]:
        queues = self._remote.get("/outbox/facets")["queues"]
        return tuple(tuple_of(PausedQueue, one, reason=one["paused_reason"]) for one in queues if one["paused"])

    def oldest_due(self, queue: str) -> datetime | None:
        """As it was when entries were counted by queue and status."""
        found = {one["queue"]: one["oldest_due"] for one in self._counted}
        return None if found.get(queue) is None else datetime.fromisoformat(found[queue])

    def prunable(self, older_than: timedelta) -> int:
        number: int = self._remote.get("/outbox/prune/preview", older_than_days=older_than.days)["matched"]
        self._pruning = self._delete("/outbox/prune", number, older_than_days=older_than.days)
        return number

    def prune(self, older_than: timedelta, *, limit: int) -> int:
        """Some of those that `prunable` has counted, as many as the server deletes at a time."""
        return next(self._pruning, 0)

    def _act(self, ids: Sequence[UUID], act: str) -> list[OutboxEntry]:
        """Raises ConfigurationError for what is refused, as the outbox does where several are meant."""
        try:
            return [_entry(self._remote.post(f"/outbox/{id}/{act}", {"reason": why()})) for id in ids]
        except Failed as refused:
            raise ConfigurationError(refused.message) from None


class RemoteOperations(Part):
    """The operations that a server knows. It has masked what is sensitive, and refuses what it cannot do."""

    def __init__(self, remote: Any) -> None:
        super().__init__(remote)
        self.known: dict[str, bool] = {}

    def find(self, name: str) -> str | None:
        return name if self.known.get(name, True) else None

    def is_sensitive(self, name: str) -> bool:
        return False


def _each(wanted: dict[str, Any]) -> list[dict[str, Any]]:
    """What is asked for, once for each of several statuses or verifications: a server takes one of each."""
    asked = [wanted]
    for name in ("status", "verification"):
        several = wanted.get(name)
        if isinstance(several, Collection) and not isinstance(several, str):
            asked = [{**one, name: value} for one in asked for value in several]
    return asked


def _entry(document: dict[str, Any]) -> OutboxEntry:
    return OutboxEntry.model_validate({name: document[name] for name in OutboxEntry.model_fields if name in document})
