"""What a runner says while it works: telemetry, and the log where somebody must look."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from holdfast.core.redact import redact
from holdfast.machine.outbox_entry import ABANDON, PARK, REFUND, SUCCEED
from holdfast.outbox.calling import Call
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.events import (
    BatchClaimed,
    EntryAbandoned,
    EntryCalled,
    EntryParked,
    EntryRefunded,
    EntryVerified,
    RunnerTroubled,
    SettleLost,
)
from holdfast.outbox.judge import outcome_of
from holdfast.outbox.runner_errors import error_name
from holdfast.outbox.settle import Settlement
from holdfast.outbox.verdict import PENDING
from holdfast.outbox.verification import Verdict
from holdfast.telemetry.events import GuardEvent
from holdfast.telemetry.hub import Hub

_log: Final = logging.getLogger("holdfast.outbox")


class Reporter:
    """Emits the events of `outbox/events.py`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def wants(self, kind: type[GuardEvent]) -> bool:
        """Whether anybody listens to such events, which are not made otherwise."""
        sinks = self._hub.loud_sinks + self._hub.quiet_sinks
        return any(sink.wants is None or issubclass(kind, sink.wants) for sink in sinks)

    def claimed(self, queues: Sequence[str], entries: Sequence[OutboxEntry]) -> None:
        if not entries or not self.wants(BatchClaimed):
            return
        # A row that was claimed no longer tells since when it was due; only of a first claim that is known.
        waits = [
            (entry.last_attempt_at - entry.enqueued_at).total_seconds()
            for entry in entries
            if entry.attempts == 1 and entry.last_attempt_at is not None
        ]
        self._hub.emit(BatchClaimed(",".join(queues), "", len(entries), max(0.0, *waits, 0.0)))

    def settled(self, calls: Sequence[tuple[Call, Settlement]], overdue: Sequence[OutboxEntry]) -> None:
        """These are on disk."""
        if self.wants(EntryCalled):
            for call, settlement in calls:
                self._called(call, settlement)
        late = {entry.entry_id for entry in overdue}
        for call, settlement in calls:
            move = settlement.move
            if move is SUCCEED:
                continue
            if move is ABANDON:
                self._abandoned(call.entry, settlement)
            elif move is PARK:
                entry, until = call.entry, settlement.given["next_attempt_at"].isoformat()
                told = (str(entry.entry_id), entry.resolver, until, entry.parks + 1, entry.entry_id in late)
                self._hub.emit(EntryParked(str(entry.operation), "", *told))
            elif move is REFUND:
                entry, given = call.entry, settlement.given
                why = (str(entry.entry_id), entry.resolver, given["last_error"], given["next_attempt_at"].isoformat())
                self._hub.emit(EntryRefunded(str(entry.operation), "", *why))

    def _called(self, call: Call, settlement: Settlement) -> None:
        entry = call.entry
        if call.started_at is not None:
            self._hub.emit(
                EntryCalled(
                    str(entry.operation),
                    "",
                    str(entry.entry_id),
                    entry.resolver,
                    outcome_of(settlement),
                    entry.attempts,
                    call.ended_at - call.started_at,
                    settlement.given.get("last_error"),
                )
            )

    def _abandoned(self, entry: OutboxEntry, settlement: Settlement) -> None:
        error, attempts = settlement.given["last_error"], settlement.given["attempts"]
        story = "entry %s was abandoned in attempt %d of %s at %s: %s"
        _log.warning(story, entry.entry_id, attempts, _shown(str(entry.operation)), _shown(entry.resolver), error)
        self._hub.emit(EntryAbandoned(str(entry.operation), "", str(entry.entry_id), entry.resolver, error, attempts))

    def lost(self, call: Call) -> None:
        entry = call.entry
        _log.warning("entry %s was taken over by another runner while it was called", entry.entry_id)
        told = (str(entry.entry_id), entry.resolver, entry.attempts)
        self._hub.emit(SettleLost(str(entry.operation), "", *told))

    def verified(self, verdict: Verdict) -> None:
        entry, check = verdict.call.entry, verdict.call.check
        if not verdict.word or check is None:
            return
        if verdict.word != PENDING:
            _log.info("entry %s at %s: read-back %s", entry.entry_id, _shown(entry.resolver), verdict.word)
        told = (str(entry.entry_id), entry.resolver, verdict.word, check.number, verdict.error)
        self._hub.emit(EntryVerified(str(entry.operation), "", *told))

    def troubled(self, part: str, error: Exception, entry_id: Any = None) -> None:
        # The message may hold values of somebody's; the class says enough to look for it.
        _log.warning("outbox: %s failed%s: %s", part, f" for {entry_id}" if entry_id else "", error_name(error))
        self._hub.emit(RunnerTroubled("outbox", "", part, error_name(error), str(entry_id) if entry_id else None))


def _shown(text: str) -> str:
    """A name that somebody's data may have given, without secrets and within its line."""
    return repr(redact(text))
