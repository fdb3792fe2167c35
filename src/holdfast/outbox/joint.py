"""One worker for everything: dead letters and the outbox side by side, started and stopped as one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, fields
from time import monotonic

from holdfast.core.redact import redact
from holdfast.letters.worker import Worker, WorkReport
from holdfast.outbox.worker import OutboxWorker


@dataclass(slots=True)
class JointReport(WorkReport):
    """What one look at both brought."""

    outbox: int = 0
    """How many entries were called."""


class JointWorker:
    """Runs in threads (`start`, `stop`), as asyncio tasks (`await arun()`), or here (`run`); `run_once` for cron.

    `find_outbox` gives the outbox's worker, or None where the program makes no such calls. It is asked when the work
    begins, so what is registered up to then counts.
    """

    def __init__(self, letters: Worker, find_outbox: Callable[[], OutboxWorker | None]) -> None:
        self._letters = letters
        self._find_outbox = find_outbox
        self._outbox: OutboxWorker | None = None

    def start(self) -> JointWorker:
        """Work in threads of its own; a worker that runs already goes on."""
        outbox = self._take_outbox()
        if outbox is not None:
            outbox.start()
        self._letters.start()
        return self

    def run(self) -> None:
        """Work until `stop` is called from another thread."""
        outbox = self._take_outbox()
        if outbox is not None:
            outbox.start()
        try:
            self._letters.run()
        finally:
            if outbox is not None:
                outbox.stop()

    async def arun(self) -> None:
        """Work as a task until it is cancelled or `stop` is called; async functions are called on this loop."""
        outbox = self._take_outbox()
        async with asyncio.TaskGroup() as both:
            both.create_task(self._letters.arun())
            if outbox is not None:
                both.create_task(outbox.arun())

    def run_once(self) -> JointReport:
        """Look once and do what is due, of both. A part that fails is told of and leaves the others alone."""
        found = self._letters.run_once()
        report = JointReport(**{field.name: getattr(found, field.name) for field in fields(found)})
        outbox = self._take_outbox()
        if outbox is not None:
            try:
                report.outbox = outbox.run_once()
            except Exception as error:  # a database that is away
                report.troubles["outbox"] = redact(f"{type(error).__name__}: {error}")
        return report

    def stop(self, timeout: float | None = None) -> bool:
        """Begin nothing new and wait for what runs; False when that took longer than `timeout` seconds."""
        ends = None if timeout is None else monotonic() + timeout
        if self._outbox is not None:
            self._outbox.stop(0)  # both are told before either is waited for
        done = self._letters.stop(timeout)
        if self._outbox is None:
            return done
        return self._outbox.stop(None if ends is None else max(0.0, ends - monotonic())) and done

    def wake(self) -> None:
        """Look now."""
        self._letters.wake()
        if self._outbox is not None:
            self._outbox.wake()

    def _take_outbox(self) -> OutboxWorker | None:
        if self._outbox is None:
            self._outbox = self._find_outbox()
        return self._outbox
