"""Verifying the audit trail in the background: one verification at a time, whose progress can be asked for.

What was found is written into the trail, so that it says by itself until when it is known to be in order, and by whom.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from holdfast.audit.event import AuditEvent, AuditEventType
from holdfast.audit.sink import DatabaseAuditSink
from holdfast.audit.verify import ChainVerification
from holdfast.core.redact import redact
from holdfast.views.plain import iso

SUBJECT: Final = "audit:verification"
_KEPT: Final = 20
_LONGEST_NAME: Final = 200
_log: Final = logging.getLogger("holdfast.server")


class VerificationState(StrEnum):
    """How far a verification is."""

    RUNNING = "running"
    VERIFIED = "verified"
    BROKEN = "broken"
    FAILED = "failed"
    """It could not be ended: the store was away, or the server ended."""


@dataclass(frozen=True, slots=True)
class Verification:
    """A verification at one moment. `events` are those found in order so far, of about `events_total`."""

    id: str
    by: str
    stream: str | None
    started_at: datetime
    state: VerificationState = VerificationState.RUNNING
    finished_at: datetime | None = None
    streams: int = 0
    streams_total: int = 0
    events: int = 0
    events_total: int = 0
    broken: tuple[ChainVerification, ...] = field(default=())
    error: str = ""


class Verifications:
    """The last verifications of this server."""

    def __init__(self, sink: DatabaseAuditSink, now: Callable[[], datetime]) -> None:
        self._sink, self._now = sink, now
        self._lock = threading.Lock()
        self._kept: dict[str, Verification] = {}
        self._threads: dict[str, threading.Thread] = {}
        self.closing = threading.Event()

    def get(self, id: str) -> Verification | None:
        with self._lock:
            return self._kept.get(id)

    @property
    def running(self) -> Verification | None:
        """The one that is under way, if one is."""
        with self._lock:
            return self._running()

    def start(self, id: str, by: str, stream: str | None, streams: int, events: int) -> Verification:
        """Begin one; the one that is under way already, if one is."""
        begun = Verification(id, by, stream, self._now(), streams_total=streams, events_total=events)
        with self._lock:
            if (under_way := self._running()) is not None:
                return under_way
            self._kept[id] = begun
            for old in [*self._kept][:-_KEPT]:
                del self._kept[old]
                self._threads.pop(old, None)
            thread = threading.Thread(target=self._run, args=(begun,), name=f"holdfast-verify-{id}", daemon=True)
            self._threads[id] = thread
        thread.start()
        return begun

    def wait(self, id: str, timeout: float | None = None) -> Verification | None:
        """The verification, once it has ended, or the time is over."""
        thread = self._threads.get(id)
        if thread is not None:
            thread.join(timeout)
        return self.get(id)

    def close(self) -> None:
        """Let what is under way end at the next page."""
        self.closing.set()
        for thread in [*self._threads.values()]:
            thread.join(5.0)

    def _running(self) -> Verification | None:
        return next((one for one in self._kept.values() if one.state is VerificationState.RUNNING), None)

    def _run(self, begun: Verification) -> None:
        seen: dict[str, int] = {}

        def told(stream: str, events: int) -> None:
            if self.closing.is_set():
                raise InterruptedError("the server has ended")
            seen[stream] = events
            self._put(begun.id, events=sum(seen.values()), streams=len(seen) - 1)

        try:
            chain = self._sink.chain
            if begun.stream is None:
                results = chain.verify_all(told=told)
            else:
                results = [chain.verify(begun.stream, told=told)]
        except Exception as error:  # whatever the store raises, the verification has not been done
            _log.warning("the audit trail could not be verified", exc_info=error)
            self._put(begun.id, state=VerificationState.FAILED, finished_at=self._now(), error=redact(str(error)))
            return
        broken = tuple(one for one in results if not one.verified)
        found = self._put(
            begun.id,
            state=VerificationState.BROKEN if broken else VerificationState.VERIFIED,
            streams=len(results),
            streams_total=len(results),
            events=sum(one.events for one in results),
            broken=broken,
            finished_at=self._now(),
        )
        try:
            self._sink.append(_event(found))
        except Exception:  # it was verified all the same
            _log.exception("the audit trail was verified, and does not say so")

    def _put(self, id: str, **values: object) -> Verification:
        with self._lock:
            self._kept[id] = replace(self._kept[id], **values)  # type: ignore[arg-type]  # by name
            return self._kept[id]


def _event(found: Verification) -> AuditEvent:
    kind = AuditEventType.TRAIL_BROKEN if found.broken else AuditEventType.TRAIL_VERIFIED
    facts: dict[str, str | int | bool] = {
        "by": redact(found.by, _LONGEST_NAME), "events": found.events, "streams": found.streams,
        "broken": len(found.broken), "until": iso(found.started_at),
    }  # fmt: skip
    if found.stream is not None:
        facts["stream"] = found.stream
    return AuditEvent(event_type=kind, subject_ref=SUBJECT, payload=facts)
