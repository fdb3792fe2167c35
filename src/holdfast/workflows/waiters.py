"""Who waits for the end of a workflow, in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from holdfast.core.clock import Clock
from holdfast.machine.workflow import COMPLETE, WorkflowStatus
from holdfast.store.port import Store, Subscription
from holdfast.workflows.handle import WorkflowRun
from holdfast.workflows.records import WorkflowRecord
from holdfast.workflows.run import Run
from holdfast.workflows.settling import ENDED, WAKE

POLL_S: Final = 0.5
"""How often to look, whatever is told."""
FRESH_S: Final = 5.0
"""How long somebody who comes too late is told how a workflow has ended, as if he had waited for it."""
MOST_FRESH: Final = 1000


class Ended(NamedTuple):
    """A workflow that has ended, and its stages, where they are known."""

    record: WorkflowRecord
    run: Run | None


class Waiter:
    """Somebody who waits: whether to look, and how it ended if that was told."""

    __slots__ = ("ended", "news")

    def __init__(self) -> None:
        self.news = False
        self.ended: Ended | None = None


class Waiters:
    """`record` reads a workflow, `goes_on_here` says whether a worker of this process has it, as far as is known."""

    def __init__(
        self, store: Store, record: Callable[[str], WorkflowRecord], goes_on_here: Callable[[str], bool], clock: Clock
    ) -> None:
        self._store = store
        self._record = record
        self._goes_on_here = goes_on_here
        self._clock = clock
        self._changed = threading.Condition()
        self._subscriptions: list[Subscription] = []
        self._waiters: dict[str, list[Waiter]] = {}
        self._expected: WeakValueDictionary[str, WorkflowRun] = WeakValueDictionary()
        self._fresh: dict[str, tuple[float, Ended]] = {}

    def expect(self, runs: Iterable[WorkflowRun]) -> None:
        """Somebody may wait for these, as long as he keeps them."""
        with self._changed:
            for run in runs:
                self._expected[run.id] = run

    def wait(self, id: str, timeout: float | None) -> Ended:
        """Raises TimeoutError, and WorkflowNotFoundError."""
        with self._changed:  # once: whoever asks again wants to know how it stands
            at, ended = self._fresh.pop(id, (0.0, None))
        if not self._goes_on_here(id):
            if ended is not None and self._clock.monotonic() - at < FRESH_S:
                return ended
            record = self._record(id)
            if record.status in COMPLETE:  # as it is of most whose turn comes when others were waited for
                return Ended(record, None)
        if not self._subscriptions:  # other processes end workflows, too
            self._subscriptions = [self._store.subscribe(topic, self._hear) for topic in (WAKE, ENDED)]
        waiter = Waiter()
        with self._changed:
            self._waiters.setdefault(id, []).append(waiter)
        try:
            return self._told_or_found(id, waiter, timeout)
        finally:
            with self._changed:
                others = self._waiters[id]
                others.remove(waiter)
                if not others:
                    del self._waiters[id]

    def _told_or_found(self, id: str, waiter: Waiter, timeout: float | None) -> Ended:
        looked = began = self._clock.monotonic()
        # What goes on in this process is told when it ends; others only say that something has happened.
        record, in_time = None if self._goes_on_here(id) else self._record(id), True
        while record is None or record.status not in COMPLETE:
            now = self._clock.monotonic()
            left = POLL_S if timeout is None else min(POLL_S, began + timeout - now)
            if left <= 0:
                record = self._record(id)
                if record.status in COMPLETE:
                    break
                raise TimeoutError(f"workflow {id} has not ended within {timeout:g} s; it is {record.status}")
            with self._changed:
                if not waiter.news:
                    in_time = self._changed.wait(left)
                waiter.news = False
            is_here = self._goes_on_here(id)  # until it is told
            if waiter.ended is not None:
                return waiter.ended
            # It may have gone on elsewhere, while much is told of others.
            if not in_time or now >= looked + POLL_S or not is_here:
                record, looked = self._record(id), now
        return Ended(record, None)

    def tell(self, ended: Ended) -> None:
        """To those who wait for this one."""
        with self._changed:
            waiters = self._waiters.get(ended.record.id, ())
            for waiter in waiters:
                waiter.ended, waiter.news = ended, True
            if waiters:
                self._changed.notify_all()
            elif ended.record.id in self._expected and ended.record.status == WorkflowStatus.SUCCEEDED:
                self._keep(ended)

    def _keep(self, ended: Ended) -> None:
        """For who comes in a moment: of many that were started together, all but the first have ended by then."""
        fresh, now = self._fresh, self._clock.monotonic()
        fresh.pop(ended.record.id, None)
        fresh[ended.record.id] = now, ended
        for id, (at, _) in [*islice(fresh.items(), 2)]:  # more go than come
            if now - at >= FRESH_S or len(fresh) > MOST_FRESH:
                del fresh[id]

    def forget(self, id: str) -> None:
        """It was changed here and goes on: nothing that is told of an end before that counts, nor what is told late."""
        with self._changed:
            self._expected.pop(id, None)
            self._fresh.pop(id, None)

    def close(self) -> None:
        """Stop listening."""
        while self._subscriptions:
            self._subscriptions.pop().close()
        with self._changed:
            self._fresh.clear()

    def _hear(self) -> None:
        with self._changed:
            for waiters in self._waiters.values():
                for waiter in waiters:
                    waiter.news = True
            self._changed.notify_all()
