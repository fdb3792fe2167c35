"""One worker for everything: dead letters and what else is to be done, side by side, started and stopped as one."""

from __future__ import annotations

import asyncio
import threading
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
    do there. It is asked when the work begins, and by `take_up`: what is registered later counts as well.
    """

    def __init__(self, letters: Worker, find: Mapping[str, Callable[[], Part | None]]) -> None:
        self._letters = letters
        self._find = dict(find)
        self._parts: dict[str, Part] = {}
        self._lock = threading.Lock()
        self._begin: Callable[[Part], object] | None = None
        """How a part begins to work, while this does."""

    def start(self) -> JointWorker:
        """Work in threads of its own; a worker that runs already goes on."""
        self._begin_all(lambda part: part.start())
        self._letters.start()
        return self

    def run(self) -> None:
        """Work until `stop` is called from another thread."""
        self._begin_all(lambda part: part.start())
        try:
            self._letters.run()
        finally:
            for part in self._end():
                part.stop()

    async def arun(self) -> None:
        """Work as a task until it is cancelled or `stop` is called; async functions are called on this loop."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as all_of_them:

            def create(part: Part) -> None:
                if self._begin is not None:  # else it was told to stop meanwhile
                    all_of_them.create_task(part.arun())

            def begin(part: Part) -> None:
                loop.call_soon_threadsafe(create, part)

            self._begin_all(begin)
            try:
                await self._letters.arun()
            finally:
                self._end()

    def take_up(self) -> None:
        """Let what the program has registered meanwhile be worked on, too. The letters' worker asks at each look."""
        with self._lock:
            if self._begin is not None:
                self._take(self._begin)

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
        parts = self._end()
        for part in parts:
            part.stop(0)  # all are told before any is waited for
        done = self._letters.stop(timeout)
        for part in parts:
            done = part.stop(None if ends is None else max(0.0, ends - monotonic())) and done
        return done

    def wake(self) -> None:
        """Look now."""
        self._letters.wake()
        for part in [*self._parts.values()]:
            part.wake()

    def _begin_all(self, begin: Callable[[Part], object]) -> None:
        with self._lock:
            parts = self._take()  # if one cannot be made, none begins
            self._begin = begin
            for part in parts.values():
                begin(part)

    def _end(self) -> list[Part]:
        """The parts, to which none is added from now on."""
        with self._lock:
            self._begin = None
            return [*self._parts.values()]

    def _take(self, begin: Callable[[Part], object] | None = None) -> dict[str, Part]:
        """All parts, with those that there are now. One that cannot be made, or cannot `begin`, keeps no other out."""
        failed: Exception | None = None
        for name, find in self._find.items():
            if name not in self._parts:
                try:
                    if (part := find()) is not None:
                        if begin is not None:
                            begin(part)
                        self._parts[name] = part
                except Exception as error:
                    failed = failed or error
        if failed is not None:
            raise failed
        return self._parts
