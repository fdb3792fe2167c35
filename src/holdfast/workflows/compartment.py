"""One compartment of a bulkhead: the slots, the threads and the figures of one task type."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from holdfast.core.clock import Clock
from holdfast.core.context import Scope
from holdfast.guard.bulkhead import Slots
from holdfast.workflows.execution import Limits
from holdfast.workflows.task_loop import TaskLoop
from holdfast.workflows.threads import Threads

if TYPE_CHECKING:
    from holdfast.workflows.task_call import TaskCall

SHORTEST_RETRY_S: Final = 0.1
"""No refusal asks for another try before that: it costs nothing, so it could go on for ever."""
_LONGEST_RETRY_S: Final = 30.0
_UNKNOWN_RETRY_S: Final = 1.0


class Compartment:
    """Room for the calls of one type; `freed` is told of a slot that comes back after its call was given up."""

    def __init__(
        self,
        task_type: str,
        limits: Limits,
        clock: Clock,
        loop: TaskLoop,
        threads: Threads,
        freed: Callable[[str], object] | None = None,
    ) -> None:
        self.task_type = task_type
        self.freed = freed
        self.limits = limits
        self.clock = clock
        self.scope = Scope("", clock)
        """Where calls come from that nothing is around."""
        self.loop = loop
        self.slots = Slots(limits.max_concurrent, limits.max_queue_size)
        self.threads = threads
        self.lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self._calls: set[TaskCall] = set()
        self._is_closed = False
        self._empty: threading.Event | None = None
        self._mean_run_s: float | None = None

    def enter(self, call: TaskCall) -> None:
        """Run the call now, or when its turn comes, or refuse it."""
        slots = self.slots
        with self.lock:
            if call.is_over:
                return  # its time was up before it came here
            is_closed = self._is_closed
            if not is_closed:
                self._calls.add(call)
        if is_closed:
            call.refuse("was shut down")
            return
        if slots.take():
            call.granted = True
        elif not slots.enter(call):
            call.refuse(f"is full: {self.limits.max_concurrent} running, {self.limits.max_queue_size} waiting")
            return
        if call.granted and not call.wake() and slots.leave(call):
            slots.give()

    def forget(self, call: TaskCall) -> None:
        """Its caller has been told how it ended."""
        with self.lock:
            self._calls.discard(call)
            if not self._calls and self._empty is not None:
                self._empty.set()

    def close(self) -> None:
        """Let nobody in any more."""
        with self.lock:
            self._is_closed = True

    def unfinished(self) -> list[TaskCall]:
        """Calls whose callers wait."""
        with self.lock:
            return list(self._calls)

    def empty(self) -> threading.Event:
        """Set once no caller waits any more; for a compartment that nobody enters."""
        with self.lock:
            self._empty = self._empty or threading.Event()
            if not self._calls:
                self._empty.set()
            return self._empty

    @property
    def free(self) -> int:
        """How many calls would run at once if they came now."""
        return max(0, self.slots.limit - self.slots.in_use - len(self.slots.waiting))

    @property
    def retry_after(self) -> float:
        """About how long it takes until a call ends."""
        mean = self._mean_run_s
        if mean is None:
            return _UNKNOWN_RETRY_S
        return min(_LONGEST_RETRY_S, max(SHORTEST_RETRY_S, mean / self.limits.max_concurrent))

    def note_run(self, run_s: float) -> None:
        mean = self._mean_run_s
        self._mean_run_s = run_s if mean is None else mean + (run_s - mean) / 8

    def stats(self) -> dict[str, int]:
        """`active` and `queued` are of this moment, and so is `abandoned`: the part of the active ones that nobody
        waits for any more. The others count since the start.
        """
        counts = self.counts
        return {
            "active": self.slots.in_use,
            "queued": len(self.slots.waiting),
            "max_concurrent": self.limits.max_concurrent,
            "max_queue_size": self.limits.max_queue_size,
            "completed": counts["completed"],
            "failed": counts["failed"],
            "rejected": counts["rejected"],
            "timed_out": counts["timed_out"],
            "abandoned": counts["abandoned"],
        }
