"""One worker for everything: dead letters and what else is to be done, side by side, started and stopped as one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from time import monotonic
from typing import Any, Protocol

from holdfast.core.redact import redact
from holdfast.core.working import Working
from holdfast.letters.worker import Worker, WorkReport


class Part(Protocol):
    """A worker for one of the things that are to be done."""

    def start(self) -> Any: ...
    async def arun(self) -> None: ...
    def run_once(self) -> int: ...
    def stop(self, timeout: float | None = None) -> bool: ...
    def wake(self) -> None: ...


@dataclass(slots=True)
class JointReport(WorkReport):
    """What one look at all of them brought."""

    outbox: int = 0
    """How many entries were called."""
    workflows: int = 0
    """How many tasks were run."""


class JointWorker(Working):
    """Runs in threads (`start`, `stop`, or a `with` block), as asyncio tasks (`await arun()`), or here (`run`);
    `run_once` for cron.

    `find` gives the worker of each part by its name, `outbox` or `workflows`, or None where the program has nothing to
    do there. It is asked when the work begins, so what is registered up to then counts.
    """

    def __init__(self, letters: Worker, find: Mapping[str, Callable[[], Part | None]]) -> None:
        self._letters = letters
        self._find = dict(find)
        self._parts: dict[str, Part] = {}

    def start(self) -> JointWorker:
        """Work in threads of its own; a worker that runs already goes on."""
        for part in self._take().values():
            part.start()
        self._letters.start()
        return self

    def run(self) -> None:
        """Work until `stop` is called from another thread."""
        parts = self._take()
        for part in parts.values():
            part.start()
        try:
            self._letters.run()
        finally:
            for part in parts.values():
                part.stop()

    async def arun(self) -> None:
        """Work as a task until it is cancelled or `stop` is called; async functions are called on this loop."""
        async with asyncio.TaskGroup() as all_of_them:
            all_of_them.create_task(self._letters.arun())
            for part in self._take().values():
                all_of_them.create_task(part.arun())

    def run_once(self) -> JointReport:
        """Look once and do what is due, of each. A part that fails is told of and leaves the others alone."""
        found = self._letters.run_once()
        report = JointReport(**{field.name: getattr(found, field.name) for field in fields(found)})
        for name, part in self._take().items():
            try:
                setattr(report, name, part.run_once())
            except Exception as error:  # a database that is away
                report.troubles[name] = redact(f"{type(error).__name__}: {error}")
        return report

    def stop(self, timeout: float | None = None) -> bool:
        """Begin nothing new and wait for what runs; False when that took longer than `timeout` seconds."""
        ends = None if timeout is None else monotonic() + timeout
        for part in self._parts.values():
            part.stop(0)  # all are told before any is waited for
        done = self._letters.stop(timeout)
        for part in self._parts.values():
            done = part.stop(None if ends is None else max(0.0, ends - monotonic())) and done
        return done

    def wake(self) -> None:
        """Look now."""
        self._letters.wake()
        for part in self._parts.values():
            part.wake()

    def _take(self) -> dict[str, Part]:
        for name, find in self._find.items():
            if name not in self._parts and (part := find()) is not None:
                self._parts[name] = part
        return self._parts
