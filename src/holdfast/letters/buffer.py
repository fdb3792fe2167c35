"""A bounded place for captured failures between the call that failed and the store: a thread writes them in batches."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, Generic, TypeVar

from holdfast.core.forks import renew_in_forks

T = TypeVar("T")

ROOM: Final = 1000
BATCH: Final = 100
DELAY_S: Final = 0.05
"""How many may wait, how many are written at once, and how long the first of them waits for others."""

_log: Final = logging.getLogger("holdfast")


class Buffer(Generic[T]):
    """Hands what it is given to `write`, in order, by a thread that lives while there is something to write.

    A process that ends in good order waits for that thread; one that is killed loses what waits here. A forked child
    begins with an empty buffer: the rest is its parent's.
    """

    def __init__(
        self, write: Callable[[Sequence[T]], object], *, room: int = ROOM, batch: int = BATCH, delay: float = DELAY_S
    ) -> None:
        self._write = write
        self._room, self._batch, self._delay = room, batch, delay
        self._waiting: deque[T] = deque()
        self._begin_process()
        renew_in_forks(self._after_fork)

    def __len__(self) -> int:
        """How many are not written yet."""
        return len(self._waiting)

    def add(self, item: T) -> bool:
        """Take it, to be written soon; False when there is no room, or nobody would wait for its writing."""
        with self._changed:
            if len(self._waiting) >= self._room or not self._has_thread():
                return False
            self._waiting.append(item)
            if len(self._waiting) >= self._batch:
                self._changed.notify_all()
            return True

    def flush(self) -> None:
        """Write, here and now, what waits; and wait for what is being written."""
        with self._writing:
            due = len(self._waiting)
            while due > 0 and (done := self._write_some()):
                due -= done

    def close(self) -> None:
        """Flush, and let the thread end. The buffer may be used again."""
        self.flush()
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with self._changed:
            self._closing = False

    def _begin_process(self) -> None:
        self._changed = threading.Condition()
        # Held while a batch is written and told of; re-entrant, because a listener may flush.
        self._writing = threading.RLock()
        self._underway = False
        self._thread: threading.Thread | None = None
        self._closing = False

    def _after_fork(self) -> None:
        self._waiting.clear()
        self._begin_process()

    def _has_thread(self) -> bool:
        """Whether there is a thread that writes, or one could be started."""
        # An interpreter that ends waits for the threads that it has, and would do so for ever if they got new work.
        if not threading.main_thread().is_alive():
            return False
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="holdfast-letters-buffer", daemon=False)
            try:
                thread.start()
            except RuntimeError:  # no more threads
                return False
            self._thread = thread
        return True

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or len(self._waiting) >= self._batch, self._delay)
                if not self._waiting:
                    self._thread = None
                    return
            with self._writing:
                self._write_some()

    def _write_some(self) -> int:
        """Write a batch and then forget it: who is interrupted leaves it to the next one. How many there were."""
        if self._underway:
            return 0  # a listener flushes from within
        with self._changed:
            batch = list(islice(self._waiting, self._batch))
        self._underway = True
        try:
            self._write(batch)
        except Exception:  # `write` sees to its own failures; the next batch must not suffer from ours
            _log.exception("%d dead letters could not be written", len(batch))
        finally:
            self._underway = False
        with self._changed:
            for item in batch:
                if self._waiting and self._waiting[0] is item:
                    self._waiting.popleft()
        return len(batch)
