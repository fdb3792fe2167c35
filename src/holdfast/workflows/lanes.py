"""Light calls: those of a type are made one after the other by one thread, with one ticket.

To call another thread would take longer than such a call does. The thread writes down what came of them when none is
left; another one only has an eye on it, and sees to what waits when none has ended for a moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, Protocol

from holdfast.core.clock import Clock
from holdfast.workflows.at_hand import AtHand
from holdfast.workflows.bulkheads import TaskBulkheadManager
from holdfast.workflows.calling import Call
from holdfast.workflows.execution import ExecutionResult
from holdfast.workflows.pace import Pace
from holdfast.workflows.settling import Settling
from holdfast.workflows.task_call import Gone, TaskCall, Turn
from holdfast.workflows.threads import Threads

STALLED_S: Final = 0.002
"""After how long without an end of any call somebody else sees to what waits."""
PILE: Final = 64
"""So many results are worth a commit, whatever follows."""


class Maker(Protocol):
    """Who makes calls, light or not."""

    def turn(self, call: Call) -> Turn: ...
    def ended(self, call: Call, result: ExecutionResult) -> None: ...
    def fill(self, types: Iterable[str], *, at_once: bool = False) -> None: ...
    def flush(self) -> None: ...
    def write(self, again: Callable[[], bool]) -> None: ...
    def nudge(self) -> None: ...


class Lanes:
    """`calls` has the call that the thread of each type makes now; whoever changes it holds the lock of what is at
    hand."""

    def __init__(
        self,
        maker: Maker,
        at_hand: AtHand,
        pace: Pace,
        *,
        settling: Settling,
        slots: TaskBulkheadManager,
        writers: Threads,
        clock: Clock,
    ) -> None:
        self._maker = maker
        self._at_hand = at_hand
        self._lock, self._ready, self._running = at_hand.lock, at_hand.ready, at_hand.running
        self._pace = pace
        self._settling = settling
        self._slots = slots
        self._writers = writers
        self._clock = clock
        self.calls: dict[str, Call] = {}
        self.back_soon: set[str] = set()
        """The types whose thread writes, and may make what follows from that."""
        self._watched = False

    def follow(self, call: Call, ticket: TaskCall, answer: Any, run_s: float) -> Turn | Gone | None:
        """A light call has ended well: the next one of its type, to be made in its place. If none waits, what is to be
        written is written first, for then the next one may be what follows from it."""
        type = call.item.type
        with self._lock:
            if self.calls.get(type) is not call or self._at_hand.is_closed or not self._pace.is_light(type):
                return None
            if call.is_settled or call.key not in self._at_hand.held:
                return None
            self._running.pop(call.key, None)
            self._pace.note_end(type, run_s)
            following = self._take_next(call)
        self._settling.put(call.ended_well(answer, run_s))
        if following is None:
            self.back_soon.add(type)
            try:
                self._maker.write(partial(self._leave, call))
            finally:
                self.back_soon.discard(type)
            with self._lock:
                following = self._take_next(call)
            if self._ready.get(type):
                self.watch()
        else:
            self.heed(type)
        if following is None:
            self._leave(call)
            return self._gone(type)
        try:
            turn = self._maker.turn(following)
        except Exception as error:  # its guard is not there
            self._maker.ended(following, ExecutionResult(False, error=error))
            return self._gone(type)
        following.ticket, following.turn = ticket, call.turn + 1
        return turn

    def _gone(self, type: str) -> Gone:
        return Gone(partial(self._maker.fill, (type,)))

    def _take_next(self, call: Call) -> Call | None:
        """The next one for the thread that has made this one. We hold the lock."""
        type = call.item.type
        waiting = self._ready.get(type)
        if not waiting or self._at_hand.is_closed or self.calls.get(type) is not call:
            return None
        if not waiting[0].takes_the_place_of(call):
            return None
        following = self.calls[type] = waiting.popleft()
        following.began_at = self._clock.monotonic()
        self._running[following.key] = following
        return following

    def _leave(self, call: Call) -> bool:
        """The thread that has made this call makes no other one for now: what waits for it is others'."""
        type = call.item.type
        with self._lock:
            if self.calls.get(type) is not call:
                return True
            del self.calls[type]
            self.back_soon.discard(type)
        if self._ready.get(type):
            self._maker.fill((type,))
            self._slots.hurry()
        return True

    def heed(self, type: str) -> None:
        """Something waits to be written, and more is about to come."""
        if not self._pace.is_light(type) or len(self._settling) >= PILE:
            self._maker.nudge()
        elif not self._watched:
            self.watch()

    def watch(self) -> None:
        """What waits is done by a thread that is at work. Have an eye on that: it may be held up."""
        with self._lock:
            if self._watched:
                return
            self._watched = True
        if not self._writers.run(self._watching):
            self._watched = False

    def _watching(self) -> None:
        before, ends = -1, self._pace.ends
        while True:
            time.sleep(STALLED_S)
            before, ends = ends, self._pace.ends
            if before == ends:
                self._spread()
                self._maker.flush()  # what cannot be written now is for whoever looks next
            if self._is_behind or (self._settling.waits and before != ends):
                continue
            self._watched = False
            if ends == self._pace.ends and not self._is_behind:
                break
            with self._lock:  # something has come since: it may have taken us for watchful
                if self._watched:
                    break
                self._watched = True
        self._writers.about_to_be_free()

    @property
    def _is_behind(self) -> bool:
        """Whether calls wait for a thread that is at work."""
        return self._slots.is_behind() or any(self._ready.get(type) for type in tuple(self.calls))

    def _spread(self) -> None:
        """A call that was taken for light takes its time: what waits for its thread is others' now. A thread that
        writes, and that nothing waits for, is left alone: what follows from that is best made by it."""
        with self._lock:
            types = [type for type in self.calls if self._ready.get(type) or type not in self.back_soon]
            for type in types:
                del self.calls[type]
        self._maker.fill(types, at_once=True)
        self._slots.hurry()
