"""Threads that replay a round of letters together.

A thread that has nothing to do takes a few letters from the round, acquires them in one step and puts them where every
thread can pick one up. What ends is written down by the thread that asked for the round, as soon as it has ended: all
that ended while the last ones were written, in one step. So quick letters share their commits, a slow one waits for
nobody, and none waits for a slow one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from types import TracebackType
from typing import Final

from holdfast.letters.data import FailedOperationData, letter_of
from holdfast.letters.gates import Way
from holdfast.letters.replay import Replayer, ReplayOutcome, ReplayResult
from holdfast.letters.settling import Finished, Taken
from holdfast.machine.dead_letter import LetterRecord
from holdfast.machine.drain import Share

_STOPS: Final = "the worker stops"


class Crew:
    """Up to `size` threads; they end with the `with` block. `share` is what one of them takes at a time."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.share = Share()
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def start(self, job: Callable[[], None], number: int) -> list[Future[None]]:
        """Do the job in so many threads, or in all there are."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.size, thread_name_prefix="holdfast-replay")
        return [self._pool.submit(job) for _ in range(min(number, self.size))]


class Orders:
    """How the letters of a round are replayed; `stopped` says that no further one is begun."""

    __slots__ = ("trigger_of", "stopped", "by", "force")

    def __init__(
        self,
        trigger_of: Callable[[FailedOperationData], str],
        stopped: Callable[[], bool],
        by: int | str | None = None,
        force: bool = False,
    ) -> None:
        self.trigger_of = trigger_of
        self.stopped = stopped
        self.by = by
        self.force = force


def run_round(replayer: Replayer, crew: Crew, letters: Sequence[LetterRecord], orders: Orders) -> list[ReplayResult]:
    """Replay these letters of one domain, whose gates were asked: one of each entity at most, for they go out at once.

    When the domain is barred meanwhile no further one is begun.
    """
    if len(letters) > 1 and crew.size > 1:
        return _Round(replayer, crew, letters, orders).run()
    results: list[ReplayResult] = []
    why_over = ""
    for letter in letters:
        if why_over or orders.stopped():
            results.append(_left(letter, why_over or _STOPS))
            continue
        op = letter_of(letter)
        results.append(replayer.attempt(op, force=orders.force, trigger=orders.trigger_of(op), by=orders.by))
        why_over = _why_over(replayer, letter.domain, results[-1:])
    return results


def _left(letter: LetterRecord, reason: str) -> ReplayResult:
    return ReplayResult(letter.id, ReplayOutcome.SKIPPED, reason, letter.status, domain_barred=True)


def _why_over(replayer: Replayer, domain: str, results: Sequence[ReplayResult]) -> str:
    """Why no other letter of the domain would fare better; empty when one might."""
    if not any(one.outcome is ReplayOutcome.RETURNED for one in results):
        return ""
    standing = replayer.gates.standing(domain)
    return standing.reason if standing.way is Way.BARRED else ""


class _Round:
    def __init__(self, replayer: Replayer, crew: Crew, letters: Sequence[LetterRecord], orders: Orders) -> None:
        self._replayer = replayer
        self._crew = crew
        self._letters = letters
        self._orders = orders
        self._todo = deque(letters)
        self._ready: deque[Taken] = deque()  # acquired, and not begun
        self._taking = 0  # threads that are about to put something there
        self._changed = threading.Condition(threading.Lock())
        self._ended: SimpleQueue[Finished | None] = SimpleQueue()  # None: a thread has nothing more to do
        self._unsettled: list[Finished] = []
        self._held: list[Taken] = []
        self._working = 0
        self._why_over = ""
        self._results: dict[str, ReplayResult] = {}

    def run(self) -> list[ReplayResult]:
        """The results in the order of the letters. All that was begun is ended before a failure is raised."""
        threads = self._crew.start(self._work, len(self._letters))
        self._working = len(threads)
        try:
            try:
                self._settle_all()
            except BaseException:
                self._why_over = _STOPS
                self._settle_all()
                raise
        finally:
            self._replayer.let_go(self._held)
        for thread in threads:
            thread.result()
        why_left = self._why_over or _STOPS
        return [self._results.get(letter.id) or _left(letter, why_left) for letter in self._letters]

    def _settle_all(self) -> None:
        """Write down what ends, until every thread has nothing more to do."""
        while self._working:
            ended = [self._ended.get()]
            while not self._ended.empty():
                ended.append(self._ended.get())
            self._working -= ended.count(None)
            self._unsettled += [one for one in ended if one is not None]
            self._settle()
        while self._ready:  # no thread was left to begin them
            self._unsettled.append(self._ready.popleft().unused(_STOPS))
        self._settle()

    def _settle(self) -> None:
        finished = self._unsettled
        if finished:
            results = self._replayer.settle(finished, self._orders.by)
            self._unsettled = []
            self._replayer.let_go([one.taken for one in finished])
            self._results.update((one.id, one) for one in results)
            self._why_over = self._why_over or _why_over(self._replayer, self._letters[0].domain, results)

    def _work(self) -> None:
        try:
            while (taken := self._next()) is not None:
                if self._stopped():
                    self._ended.put(taken.unused(self._why_over or _STOPS))
                    continue
                finished = self._replayer.perform(taken)
                self._crew.share = self._crew.share.after(taken.asked_s + finished.took)
                self._ended.put(finished)
        finally:
            self._ended.put(None)

    def _next(self) -> Taken | None:
        """A letter to begin; None when there is no other."""
        while True:
            with self._changed:
                while self._taking and not self._ready and not self._todo:
                    self._changed.wait()
                if self._ready:
                    return self._ready.popleft()
                if not self._todo or self._stopped():
                    return None
                share = [self._todo.popleft() for _ in range(min(self._crew.share.size, len(self._todo)))]
                self._taking += 1
            self._take(share)

    def _take(self, share: Sequence[LetterRecord]) -> None:
        taken: list[Taken] = []
        try:
            ops = [letter_of(letter) for letter in share]
            taken, results = self._replayer.take(ops, self._orders.trigger_of, force=self._orders.force)
            self._results.update((one.id, one) for one in results)
        finally:
            with self._changed:
                self._held += taken
                self._ready.extend(taken)
                self._taking -= 1
                self._changed.notify_all()

    def _stopped(self) -> bool:
        return bool(self._why_over) or self._orders.stopped()
