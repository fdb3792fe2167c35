"""Writes what came of calls, in as few transactions as there can be, and none that fails strands another one."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from holdfast.audit.event import AuditEvent, AuditSink, JoiningSink
from holdfast.outbox.outbox import Outbox
from holdfast.outbox.runner_errors import error_name
from holdfast.outbox.settle import Settlement
from holdfast.outbox.verification import Verdict, Verification

T = TypeVar("T")
Write = Callable[[], Awaitable[list[bool]]]
Run = Callable[[Write], Awaitable[list[bool]]]
"""Does one write at a time."""
_log: Final = logging.getLogger("holdfast.outbox")


class AppendedOnce:
    """A sink that cannot join a transaction, which may be undone and repeated: it gets no event twice."""

    def __init__(self, sink: AuditSink) -> None:
        self._sink = sink
        self._kept: set[Any] = set()

    def append(self, event: AuditEvent) -> None:
        if event.event_id not in self._kept:
            self._sink.append(event)
            self._kept.add(event.event_id)

    def read(self, subject_ref: str) -> Sequence[AuditEvent]:
        return self._sink.read(subject_ref)


class Settler:
    """Settles together what has ended together; where that fails, one by one."""

    def __init__(
        self,
        outbox: Outbox,
        verification: Verification,
        sink: AuditSink | None,
        troubled: Callable[[str, Exception, Any], None],
    ) -> None:
        self._outbox = outbox
        self._verification = verification
        self._sink = sink
        self._joins = sink is None or isinstance(sink, JoiningSink)
        self._troubled = troubled

    async def settle(self, settlements: Sequence[Settlement], run: Run) -> list[bool | None]:
        """For each whether its claim still held; None if it could not be written, which leaves it to its lease."""
        sink = self._own_sink()
        return await self._write(
            settlements,
            run,
            lambda some: self._outbox.asettle(some, sink=sink),
            lambda one, error: self._troubled("settle", error, one.entry.entry_id),
        )

    async def judge(self, verdicts: Sequence[Verdict], run: Run) -> list[bool | None]:
        """The same for verdicts."""
        sink = self._own_sink()
        return await self._write(
            verdicts,
            run,
            lambda some: self._outbox.arun(self._verification.writing(some, sink)),
            lambda one, error: self._troubled("verify", error, one.call.entry.entry_id),
        )

    def _own_sink(self) -> AuditSink | None:
        return self._sink if self._joins or self._sink is None else AppendedOnce(self._sink)

    async def _write(
        self,
        all: Sequence[T],
        run: Run,
        write: Callable[[Sequence[T]], Awaitable[list[bool]]],
        failed: Callable[[T, Exception], None],
    ) -> list[bool | None]:
        try:
            return list(await run(lambda: write(all)))
        except Exception as error:
            if len(all) == 1:
                failed(all[0], error)
                return [None]
            _log.warning("%d entries could not be settled together (%s)", len(all), error_name(error))
        return [(await self._write([one], run, write, failed))[0] for one in all]
