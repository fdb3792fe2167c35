"""Who waits for the end of a workflow, in this process: a thread, or a coroutine (`workflows/threaded.py`)."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from itertools import islice
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from holdfast.core.clock import Clock
from holdfast.core.forks import renew_in_forks
from holdfast.errors import PolicyError
from holdfast.machine.workflow import COMPLETE, WorkflowStatus
from holdfast.store.port import Store, Subscription
from holdfast.workflows.handle import WorkflowRun
from holdfast.workflows.records import WORKFLOW, WorkflowRecord
from holdfast.workflows.run import Run
from holdfast.workflows.serving import stranded
from holdfast.workflows.settling import ENDED, WAKE

POLL_S: Final = 0.5
"""How often somebody looks for all who wait, whatever is told."""
ALONE_S: Final = 5.0
"""How often everybody looks for himself, if that one does not."""
MOST_TOGETHER: Final = 500
FRESH_S: Final = 5.0
"""How long somebody who comes too late is told how a workflow has ended, as if he had waited for it."""
MOST_FRESH: Final = 1000


class Ended(NamedTuple):
    """A workflow that has ended, and its stages, where they are known."""

    record: WorkflowRecord
    run: Run | None


class Waiter:
    """Somebody who waits: whom to wake, and how it ended if that was told. `wake` says False if nobody waits there any
    more, who could not leave: a coroutine whose loop was closed."""

    __slots__ = ("began", "ended", "has_left", "id", "is_due", "is_new", "looked", "timeout", "wake")

    def __init__(self, id: str, timeout: float | timedelta | None, wake: Callable[[], object]) -> None:
        self.id = id
        self.timeout = _seconds(timeout)
        self.wake = wake
        self.ended: Ended | None = None
        self.began = self.looked = 0.0
        self.is_new, self.is_due, self.has_left = True, False, False


def _seconds(timeout: Any) -> float | None:
    if isinstance(timeout, timedelta):
        return timeout.total_seconds()
    if timeout is None or (isinstance(timeout, int | float) and not math.isnan(timeout)):
        return timeout
    raise PolicyError(f"timeout must be seconds, or a timedelta, got {timeout!r}; leave it out to wait for ever")


class Waiters:
    """`record` reads a workflow, `goes_on_here` says whether a worker of this process has it, as far as is known.

    What goes on in this process is told when it ends. Of what goes on elsewhere is only told that something has
    happened; one of those who wait then looks for all of them, so that a thousand are no more to the store than one.
    """

    def __init__(
        self, store: Store, record: Callable[[str], WorkflowRecord], goes_on_here: Callable[[str], bool], clock: Clock
    ) -> None:
        self._store = store
        self._record = record
        self._goes_on_here = goes_on_here
        self._clock = clock
        self._begin_process()
        renew_in_forks(self._begin_process)

    def _begin_process(self) -> None:
        """Also a forked one: those who wait in its parent do not look for it."""
        self._lock = threading.Lock()
        self._listens = False
        self._subscriptions: list[Subscription] = []
        self._waiters: dict[str, list[Waiter]] = {}
        self._leader: Waiter | None = None
        self._looked = -math.inf
        self._expected: WeakValueDictionary[str, WorkflowRun] = WeakValueDictionary()
        self._fresh: dict[str, tuple[float, Ended]] = {}

    def expect(self, runs: Iterable[WorkflowRun]) -> None:
        """Somebody may wait for these, as long as he keeps them."""
        with self._lock:
            for run in runs:
                self._expected[run.id] = run

    def wait(self, id: str, timeout: float | timedelta | None) -> Ended:
        """Raises TimeoutError, and WorkflowNotFoundError."""
        news, woken = threading.Event(), True
        waiter = Waiter(id, timeout, news.set)
        try:
            while not isinstance(found := self.look(waiter, woken=woken), Ended):
                woken = news.wait(found)
                news.clear()
            return found
        finally:
            self.leave(waiter)

    def look(self, waiter: Waiter, *, woken: bool) -> Ended | float:
        """How it has ended, or for how many seconds to wait for a call of `wake` before the next look. `woken`: one
        came, before that was over. Raises as `wait` does. Whoever has looked has to leave."""
        if waiter.is_new and (found := self._enter(waiter)) is not None:
            return found
        is_here = self._goes_on_here(waiter.id)  # until it is told
        if waiter.ended is not None:
            return waiter.ended
        leads, now = self._leads(waiter), self._clock.monotonic()
        is_late = not woken or now >= waiter.looked + POLL_S  # it may have gone on elsewhere, while much is told
        left = POLL_S if leads else ALONE_S
        if waiter.timeout is not None:
            left = min(left, waiter.began + waiter.timeout - now)
        is_alone = not woken and now >= self._looked + ALONE_S
        if left <= 0 or waiter.is_due or is_alone or (leads and (is_late or not is_here)):
            waiter.is_due, waiter.looked = False, now
            record = self._record(waiter.id)
            if record.status in COMPLETE:
                return Ended(record, None)
            if left <= 0:
                story = f"workflow {waiter.id} has not ended within {waiter.timeout:g} s; it is {record.status}"
                raise TimeoutError(story + self._stranded(waiter))
        if leads:
            self._look_for_others(waiter, everything=is_late)
        return left

    def _stranded(self, waiter: Waiter) -> str:
        """Why it cannot have ended, to one who has waited in earnest."""
        found = stranded(self._store, 1, waiter.id) if (waiter.timeout or 0) >= POLL_S else ()
        return "".join(f", and stage {one.stage!r} waits in vain: {one.reason}" for one in found)

    def _leads(self, waiter: Waiter) -> bool:
        with self._lock:
            if self._leader is None and not waiter.has_left:
                self._leader = waiter
            return self._leader is waiter

    def _look_for_others(self, leader: Waiter, *, everything: bool) -> None:
        """Have those look whose workflows have ended, or are gone. `everything`: also what goes on here."""
        with self._lock:
            ids = [id for id in self._waiters if id != leader.id]
        if not everything:
            ids = [id for id in ids if not self._goes_on_here(id)]
        for start in range(0, len(ids), MOST_TOGETHER):
            some = ids[start : start + MOST_TOGETHER]
            for id, record in zip(some, self._store.get(WORKFLOW, some), strict=True):
                if record is None or record.status in COMPLETE:
                    with self._lock:
                        waiters = [*self._waiters.get(id, ())]
                    for waiter in waiters:
                        waiter.is_due = True
                        self._wake(waiter)
        if everything:
            self._looked = self._clock.monotonic()

    def _enter(self, waiter: Waiter) -> Ended | None:
        """Have him woken from now on, unless it has ended already."""
        id, waiter.is_new = waiter.id, False
        waiter.began = waiter.looked = self._clock.monotonic()
        with self._lock:  # once: whoever asks again wants to know how it stands
            at, ended = self._fresh.pop(id, (0.0, None))
        if not self._goes_on_here(id):
            if ended is not None and waiter.began - at < FRESH_S:
                return ended
            record = self._record(id)
            if record.status in COMPLETE:  # as it is of most whose turn comes when others were waited for
                return Ended(record, None)
            waiter.is_due = True  # it may end until he is woken
        self._listen()
        with self._lock:
            if not waiter.has_left:  # as a coroutine may that was cancelled, while a thread looks for it
                self._waiters.setdefault(id, []).append(waiter)
        return None

    def _listen(self) -> None:
        """Other processes end workflows, too."""
        with self._lock:
            listens, self._listens = self._listens, True
        if not listens:
            try:
                for topic in (WAKE, ENDED):
                    self._subscriptions.append(self._store.subscribe(topic, self._hear))
            except BaseException:
                self.close()
                raise

    def leave(self, waiter: Waiter) -> None:
        """He waits no more."""
        following = self._left_to(waiter)
        while following is not None and following.wake() is False:
            following = self._left_to(following)

    def _left_to(self, waiter: Waiter) -> Waiter | None:
        """Who looks for all in the place of one who leaves, if that one did."""
        with self._lock:
            waiter.has_left = True
            self._fresh.pop(waiter.id, None)  # told while he was looking
            others = self._waiters.get(waiter.id, [])
            if waiter in others:
                others.remove(waiter)
                if not others:
                    del self._waiters[waiter.id]
            if self._leader is not waiter:
                return None
            self._leader = next((one for waiters in self._waiters.values() for one in waiters), None)
            return self._leader

    def _wake(self, waiter: Waiter) -> None:
        if waiter.wake() is False:
            self.leave(waiter)

    def tell(self, ended: Ended) -> None:
        """To those who wait for this one."""
        id = ended.record.id
        with self._lock:
            waiters = [*self._waiters.get(id, ())]
            for waiter in waiters:
                waiter.ended = ended
            if not waiters and id in self._expected and ended.record.status == WorkflowStatus.SUCCEEDED:
                self._keep(ended)
        for waiter in waiters:
            self._wake(waiter)

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
        with self._lock:
            self._expected.pop(id, None)
            self._fresh.pop(id, None)

    def close(self) -> None:
        """Stop listening."""
        while self._subscriptions:
            self._subscriptions.pop().close()
        with self._lock:
            self._listens = False
            self._fresh.clear()

    def _hear(self) -> None:
        leader = self._leader
        if leader is not None:
            self._wake(leader)
