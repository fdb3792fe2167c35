"""The worker of the outbox: claims and calls whatever is due, sleeps while nothing is, and stops without losing a call.

It wakes when entries are committed, in this process or, where the database can tell, in any other; it looks by itself
in between, ever more slowly while there is nothing to do, because a wake-up may be missed.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from holdfast.core.check import check_seconds
from holdfast.core.redact import redact
from holdfast.core.working import Working
from holdfast.errors import PolicyError
from holdfast.outbox.batch import Claimed
from holdfast.outbox.runner import SagaRunner

T = TypeVar("T")
_ABREAST: Final = 3
_log: Final = logging.getLogger("holdfast.outbox")


class Closable(Protocol):
    def close(self) -> None: ...


Listen = Callable[[Callable[[], object]], Closable]
"""How to hear of commits in other processes: has a function called after each, until it is closed."""


@dataclass(frozen=True, slots=True)
class OutboxWorkerPolicy:
    """How often it looks by itself: between `poll_s` and `idle_s` seconds. `lanes` batches may be under way at once, so
    that slow calls of one do not keep others waiting; another one is begun when a batch takes longer than `patience_s`.
    Of full batches three are under way, so that the database claims and settles while calls are made.
    Chores (deadlines of sagas, say) are done every `chores_s`.
    """

    poll_s: float = 1.0
    idle_s: float = 5.0
    lanes: int = 4
    patience_s: float = 0.25
    chores_s: float = 10.0

    def __post_init__(self) -> None:
        for name in ("poll_s", "idle_s", "patience_s", "chores_s"):
            check_seconds(f"OutboxWorkerPolicy.{name}", getattr(self, name), "give seconds")
        if self.lanes < 1:
            raise PolicyError(f"OutboxWorkerPolicy.lanes must be at least 1, got {self.lanes}")


class OutboxWorker(Working):
    """Runs in a thread (`start`, `stop`, or a `with` block), as an asyncio task (`await arun()`), or here (`run`);
    `run_once` for cron.

    `closing` is awaited in the end on a loop of the worker's own; on a loop of the program's, closing is up to it.
    """

    def __init__(
        self,
        runner: SagaRunner,
        *,
        listen: Listen | None = None,
        chores: Mapping[str, Callable[[], Any]] | None = None,
        closing: Callable[[], Awaitable[object]] | None = None,
        policy: OutboxWorkerPolicy | None = None,
    ) -> None:
        self._runner = runner
        self._listen = listen
        self._chores = dict(chores or {})
        self._closing = closing
        self._policy = OutboxWorkerPolicy() if policy is None else policy
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._nudge: Callable[[], object] | None = None

    def start(self) -> OutboxWorker:
        """Work in a thread of its own; a worker that runs already goes on."""
        if self._thread is None or not self._thread.is_alive():
            self._stopping.clear()
            thread = threading.Thread(target=self.run, name="holdfast-outbox", daemon=True)
            thread.start()
            self._thread = thread  # not before: whoever stops it meanwhile could not join it
        return self

    def run(self) -> None:
        """Work in this thread until `stop` is called from another one."""
        asyncio.run(self._to_the_end(self._arun(alone=True)))

    def run_once(self) -> int:
        """Do the chores and whatever is due now, and end: for cron. How many entries were called."""
        return asyncio.run(self._to_the_end(self.arun_once()))

    async def _to_the_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it on a loop that ends with it, and with it the connections that were made there."""
        try:
            return await work
        finally:
            if self._closing is not None:
                try:
                    await self._closing()
                except Exception as error:  # a broker that is away: there is nothing left to close
                    _log.warning("outbox worker: closing failed: %s", redact(f"{type(error).__name__}: {error}"))

    async def arun_once(self) -> int:
        """The same as a task."""
        await self._do_all_chores()
        called = await self._runner.run_once()
        if called == self._runner.batch_size:
            abreast = min(_abreast(self._runner), self._policy.lanes)
            ended = await asyncio.gather(*(self._empty() for _ in range(abreast)), return_exceptions=True)
            for one in ended:
                if isinstance(one, BaseException):
                    raise one
                called += one
        return called

    async def _empty(self) -> int:
        """Full batches, until there is one that is not."""
        called = 0
        while not self._stopping.is_set():
            number = await self._runner.run_once()
            called += number
            if number < self._runner.batch_size:  # what was put back may be due again, and would never end
                break
        return called

    def stop(self, timeout: float | None = None) -> bool:
        """Begin nothing new, settle what returns, give back what has not begun; False if that took longer."""
        self._stopping.set()
        self.wake()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)
            return not thread.is_alive()
        return True

    def wake(self) -> None:
        """Look now. From any thread."""
        nudge = self._nudge
        if nudge is not None:
            nudge()

    async def arun(self) -> None:
        """Work as a task until it is cancelled or `stop` is called."""
        await self._arun(alone=False)

    async def _arun(self, *, alone: bool) -> None:
        """`alone`: the loop has nothing to do but this."""
        loop, woken = asyncio.get_running_loop(), _Woken()

        def nudge() -> None:
            try:
                loop.call_soon_threadsafe(woken.set)
            except RuntimeError:  # the loop has ended
                pass

        self._nudge = nudge
        closing: list[Callable[[], object]] = [self._runner.outbox.signals.add(nudge)]
        if self._listen is not None:
            try:
                closing.append((await asyncio.to_thread(self._listen, nudge)).close)
            except Exception as error:  # polling does without
                _log.warning("outbox worker: no wake-ups from other processes: %s", redact(str(error)))
        chores = asyncio.create_task(self._do_chores())
        lanes = _Lanes(self._runner, self._policy, alone)
        try:
            await self._look(lanes, woken)
        finally:
            chores.cancel()
            await lanes.close()
            self._nudge = None
            for close in closing:
                close()

    async def _look(self, lanes: _Lanes, woken: _Woken) -> None:
        wait = self._policy.poll_s
        while not self._stopping.is_set():
            woken.clear()
            found = await lanes.work(woken)
            if found or self._stopping.is_set():
                wait = self._policy.poll_s
                continue
            in_time = await woken.within(wait)
            wait = self._policy.poll_s if in_time else min(self._policy.idle_s, wait * 2)

    async def _do_chores(self) -> None:
        while True:
            await self._do_all_chores()
            await asyncio.sleep(self._policy.chores_s)

    async def _do_all_chores(self) -> None:
        for name, chore in self._chores.items():
            try:
                await asyncio.to_thread(chore)
            except Exception as error:  # a database that is away, a chore's own fault: the worker outlives it
                _log.warning("outbox worker: %s failed: %s", name, redact(f"{type(error).__name__}: {error}"))


class _Woken(asyncio.Event):
    """An event that can be waited for within a time without a task, which would be two turns of the loop more."""

    _late = False

    async def within(self, seconds: float) -> bool:
        """Whether it was set in that time."""
        timer = asyncio.get_running_loop().call_later(seconds, self._end)
        self._late = False
        try:
            await self.wait()
        finally:
            timer.cancel()
        return not self._late

    def _end(self) -> None:
        self._late = not self.is_set()
        self.set()


class _Lanes:
    """Batches under way. `alone`: the loop has nothing else to do, so a claim may be made on it while none is."""

    def __init__(self, runner: SagaRunner, policy: OutboxWorkerPolicy, alone: bool) -> None:
        self._runner = runner
        self._policy = policy
        self._alone = alone
        self._abreast = _abreast(runner)
        self._running: set[asyncio.Task[int]] = set()

    async def work(self, woken: _Woken) -> bool:
        """Begin a batch and wait for it, but not for long; whether there was, or is, anything to do in it."""
        await self._make_room(woken)
        self._reap()
        if len(self._running) >= self._policy.lanes:
            return True
        ready: Claimed | None = None
        if self._alone and not self._running:
            try:
                ready = self._runner.claim()
            except Exception as error:  # a database that is away
                _log.warning("outbox worker: a batch failed: %s", redact(f"{type(error).__name__}: {error}"))
                return False
            if ready is not None and not ready.entries and not ready.checks:
                return False
        full = asyncio.Event()

        def claimed(number: int) -> None:
            if number >= self._runner.batch_size:
                full.set()

        def ended(batch: asyncio.Task[int]) -> None:
            if not batch.cancelled() and batch.exception() is None and batch.result():
                woken.set()  # what waited for one of its entries may be due now

        batch = asyncio.create_task(self._runner.run_batch(claimed, ready))
        batch.add_done_callback(ended)
        self._running.add(batch)
        there_is_more = asyncio.create_task(full.wait())
        waited = {batch, there_is_more} if len(self._running) < self._abreast else {batch}
        await asyncio.wait(waited, timeout=self._policy.patience_s, return_when=asyncio.FIRST_COMPLETED)
        there_is_more.cancel()
        return self._reap() > 0 if batch.done() else True

    async def _make_room(self, woken: _Woken) -> None:
        if len(self._running) >= self._policy.lanes:
            nudged = asyncio.create_task(woken.wait())
            await asyncio.wait({*self._running, nudged}, return_when=asyncio.FIRST_COMPLETED)
            nudged.cancel()
        elif len(self._running) >= self._abreast:
            patience = self._policy.patience_s
            await asyncio.wait(self._running, timeout=patience, return_when=asyncio.FIRST_COMPLETED)

    def _reap(self) -> int:
        """How many entries the batches had that have ended. A batch that failed had none."""
        ended = {batch for batch in self._running if batch.done()}
        self._running -= ended
        number = 0
        for batch in ended:
            if batch.cancelled():
                continue
            error = batch.exception()
            if error is None:
                number += batch.result()
            elif isinstance(error, Exception):
                _log.warning("outbox worker: a batch failed: %s", redact(f"{type(error).__name__}: {error}"))
            else:
                raise error
        return number

    async def close(self) -> None:
        """A batch that is cancelled settles what has returned and gives back what has not begun."""
        for batch in self._running:
            batch.cancel()
        if self._running:
            await asyncio.wait(self._running)
        self._reap()


def _abreast(runner: SagaRunner) -> int:
    """How many full batches are under way at once."""
    return 1 if runner.outbox.sessions.has_one_writer else _ABREAST
