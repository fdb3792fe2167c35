"""Connections that are lent out for one call and come back."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar


class Closable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)
SHARED_WITHIN_S: Final = 1.0
"""How long to wait for one that others have where no more can be had. It may be that none can be had at all."""


class Pool(Generic[C]):
    """At most `most` connections; whoever comes when all are lent waits, up to `patience` seconds.

    The one that came back last is lent first, so that a quiet process uses few. Where no more can be had, as the server
    has given out all that it has, those that there are have to do.
    """

    def __init__(self, connect: Callable[[], C], most: int, patience: float) -> None:
        self._connect = connect
        self._most = most
        self._patience = patience
        self._idle: deque[C] = deque()
        self._changed = threading.Condition()
        self._open = self._made = 0  # with those that are being made, and without
        self._waiting = 0

    def take(self) -> C:
        """A connection.

        Raises TimeoutError when none came back in time, and whatever connecting raises.
        """
        try:
            return self._idle.pop()
        except IndexError:
            return self._wait()

    def give(self, connection: C) -> None:
        """Take a connection back."""
        self._idle.append(connection)
        if self._waiting:  # Whoever waits looks once more after raising this number, so none is left behind.
            with self._changed:
                self._changed.notify()

    def drop(self, connection: C) -> None:
        """A connection that shall not come back."""
        with self._changed:
            self._open -= 1
            self._made -= 1
            self._changed.notify_all()  # one who could connect, and those who only share
        connection.close()

    def close(self) -> None:
        """Close what is not lent."""
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:
                return
            self.drop(connection)

    def _wait(self) -> C:
        give_up = time.monotonic() + self._patience
        with self._changed:
            while True:
                self._waiting += 1
                try:
                    if self._idle:
                        return self._idle.pop()
                    if self._open < self._most:
                        self._open += 1
                        break
                    left = give_up - time.monotonic()
                    if left <= 0:
                        raise TimeoutError(f"all {self._most} connections are in use")
                    self._changed.wait(left)
                except IndexError:
                    continue  # another thread was faster
                finally:
                    self._waiting -= 1
        try:
            connection = self._connect()
        except BaseException as error:
            with self._changed:
                self._open -= 1
                self._changed.notify()
            shared = self._share(give_up) if isinstance(error, Exception) else None
            if shared is None:
                raise
            return shared
        with self._changed:
            self._made += 1
        return connection

    def _share(self, give_up: float) -> C | None:
        """The next one that comes back; None where it takes too long, or all that were lent are lost."""
        give_up = min(give_up, time.monotonic() + SHARED_WITHIN_S)
        with self._changed:
            self._waiting += 1
            try:
                while self._made and time.monotonic() < give_up:
                    try:
                        return self._idle.pop()
                    except IndexError:
                        self._changed.wait(give_up - time.monotonic())
                return None
            finally:
                self._waiting -= 1
