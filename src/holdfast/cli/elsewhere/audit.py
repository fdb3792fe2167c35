"""The audit trail behind a server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from time import sleep
from typing import Any, Final
from uuid import UUID

from holdfast.audit.checkpoints import Checkpoint
from holdfast.audit.event import AuditEvent
from holdfast.audit.reading import Cursor
from holdfast.audit.rows import StoredEvent
from holdfast.audit.verify import Break, ChainVerification
from holdfast.cli.elsewhere.part import Part, tuple_of, why
from holdfast.cli.exits import Failed

LOOK_EVERY_S: Final = 0.2
_OF_AN_EVENT: Final = ("event_id", "event_type", "subject_ref", "occurred_at", "payload", "entry_id")


class RemoteAudit(Part):
    """The trail behind a server, which has its key."""

    def __init__(self, remote: Any) -> None:
        super().__init__(remote)
        self._export = ""

    def has_the_key(self) -> bool:
        """The server refuses what it has no key for."""
        return True

    def page(
        self,
        *,
        subject_ref: str | None = None,
        entry_id: UUID | None = None,
        since: datetime | None = None,
        after: Cursor | None = None,
        limit: int,
    ) -> list[StoredEvent]:
        """The oldest first; a server has the newest first, so all of them are fetched."""
        start = since if after is None else after[0] if since is None else max(since, after[0])
        found = self._all("/audit", subject=subject_ref, entry=entry_id, since=start)
        events = sorted(map(_event, found), key=lambda one: one.cursor)
        return [one for one in events if after is None or one.cursor > after][:limit]

    def verification(
        self, stream: str | None, told: Callable[[int, int], object]
    ) -> tuple[int, int, list[ChainVerification]]:
        """Have a stream, or all of them, verified, and wait for it: how many events are in order, in how many streams,
        and those that are broken. `told` how many events of how many it is at.

        Raises Failed if the server could not.
        """
        found = self._remote.post("/audit/verify", {"stream": stream, "reason": why()})
        while found["state"] == "running":
            sleep(LOOK_EVERY_S)
            found = self._remote.get(f"/audit/verify/{found['id']}")
            told(found["events"], found["events_total"])
        if found["error"]:
            raise Failed(found["error"])
        return found["events"], found["streams"], [_verification(one) for one in found["broken"]]

    def checkpoint(self) -> Sequence[Checkpoint]:
        taken = self._remote.post("/audit/checkpoints", {"reason": why()})
        self._export = taken["export"]
        return [tuple_of(Checkpoint, one) for one in taken["checkpoints"]]

    def export_checkpoints(self, taken: Sequence[Checkpoint]) -> str:
        """Those that were taken last, signed by the server if its trail has a key."""
        return self._export


def _event(document: dict[str, Any]) -> StoredEvent:
    event = AuditEvent.model_validate({name: document[name] for name in _OF_AN_EVENT})
    place = (document[name] for name in ("stream", "seq", "prior_hash", "event_hash"))
    return StoredEvent(event, *place)


def _verification(document: dict[str, Any]) -> ChainVerification:
    event, reason = document["first_broken_event_id"], document["reason"]
    return ChainVerification(
        False, None if event is None else UUID(event), document["stream"], document["events"],
        None if reason is None else Break(reason),
    )  # fmt: skip
