"""One thread that keeps the leases of everything under way, for as long as there is anything."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol


class Held(Protocol):
    """What is held under a token, and turns `lost` when the lease has gone to somebody else."""

    id: str
    token: str
    lost: bool


class Hold:
    """A lease and its token."""

    __slots__ = ("id", "lost", "token")

    def __init__(self, id: str, token: str) -> None:
        self.id = id
        self.token = token
        self.lost = False


class Heart:
    """Calls `beat(id, token)` for everything held, each `every` seconds; False from it means that the lease is lost.

    It counts real seconds, for other hosts do not know of an injected clock.
    """

    def __init__(self, beat: Callable[[str, str], bool], every: float) -> None:
        self._beat = beat
        self._every = every
        self._lock = threading.Lock()
        self._held: dict[str, Held] = {}
        self._users = 0
        self._done: threading.Event | None = None
        self._process = os.getpid()

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Keep the thread over a batch: starting one for every letter would cost more than the letter."""
        self._check_process()
        with self._lock:
            self._users += 1
            if self._done is None:
                self._done = threading.Event()
                threading.Thread(target=self._run, args=(self._done,), name="holdfast-heartbeat", daemon=True).start()
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users and self._done is not None:
                    self._done.set()
                    self._done = None

    @contextmanager
    def holding(self, held: Held) -> Iterator[None]:
        with self.awake():
            self.hold([held])
            try:
                yield
            finally:
                self.let_go([held])

    def hold(self, all_held: Iterable[Held]) -> None:
        """Keep these leases, while somebody keeps the thread awake, until they are let go."""
        with self._lock:
            self._held.update((held.token, held) for held in all_held)

    def let_go(self, all_held: Iterable[Held]) -> None:
        with self._lock:
            for held in all_held:
                self._held.pop(held.token, None)

    def beat(self) -> None:
        """Extend all leases now. A store that is away is asked again at the next beat."""
        with self._lock:
            all_held = list(self._held.values())
        for held in all_held:
            try:
                if not held.lost and not self._beat(held.id, held.token):
                    held.lost = True
            except Exception:  # whatever it was, without this thread every lease would be lost
                continue

    def _check_process(self) -> None:
        """In a forked child there is no thread, and what is held is the parent's to keep alive."""
        if self._process != os.getpid():
            self._process, self._lock = os.getpid(), threading.Lock()
            self._held, self._users, self._done = {}, 0, None

    def _run(self, done: threading.Event) -> None:
        while not done.wait(self._every):
            self.beat()
