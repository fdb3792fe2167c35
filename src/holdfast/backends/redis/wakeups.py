"""Who wants to be told of commits: one thread that listens from the first subscription on, and comes back by itself.

A store tells its own subscribers when it has committed; the thread hears what other stores published.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Any, Final

from holdfast.backends.redis.link import Connection, Link, packed
from holdfast.errors import StoreError, StoreUnavailable

_LOG: Final = logging.getLogger("holdfast.store")
_CONFIRM_S: Final = 1.0
_QUIET_S: Final = 15.0  # then the connection is tried
_PAUSES_S: Final = (0.05, 0.1, 0.25, 0.5)

Callback = Callable[[], object]


class Wakeups:
    """Calls back when a channel is published to. Never raises for a server that is away; it goes on trying."""

    def __init__(self, link: Link, root: bytes) -> None:
        self._link = link
        self._root = root
        self._name = os.urandom(8).hex().encode()
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._listeners: dict[bytes, list[Callback]] = {}
        self._listener: _Listener | None = None
        self._is_closing = False

    @property
    def origin(self) -> bytes:
        """Who publishes: this store in this process."""
        return b"%b:%d" % (self._name, os.getpid())

    def subscribe(self, channel: bytes, callback: Callback) -> Wakeup:
        with self._own_lock():
            self._listeners.setdefault(channel, []).append(callback)
            listener = self._running()
        listener.hear(channel)
        return Wakeup(self, channel, callback)

    def unsubscribe(self, channel: bytes, callback: Callback) -> None:
        with self._own_lock():
            callbacks = self._listeners.get(channel, [])
            if callback in callbacks:
                callbacks.remove(callback)

    def resume(self) -> None:
        """Listen again after `close` or in a forked process, if there is anybody to tell."""
        if any(self._listeners.values()) and not self._is_closing:
            with self._own_lock():
                self._running()

    def close(self) -> None:
        listener = self._listener
        if listener is not None and listener.is_alive():
            self._is_closing = True  # the bell may take a new connection, which is no reason to listen again
            try:
                listener.stop()
            finally:
                self._is_closing = False

    def hears(self, channel: bytes) -> bool:
        """Whether the server has said that it will tell of this channel."""
        listener = self._listener
        return listener is not None and listener.is_alive() and listener.hears(channel)

    def channels(self) -> set[bytes]:
        return set(self._listeners)

    def tell(self, channel: bytes) -> None:
        for callback in tuple(self._listeners.get(channel, ())):
            try:
                callback()
            except Exception:
                _LOG.exception("a callback of %s failed", channel.decode("utf-8", "replace"))

    def _own_lock(self) -> threading.Lock:
        if self._pid != os.getpid():
            self._pid, self._lock = os.getpid(), threading.Lock()  # the parent's may be held by a thread of the parent
        return self._lock

    def _running(self) -> _Listener:
        if self._listener is None or not self._listener.is_alive():
            self._listener = _Listener(self._link, self, self._root + os.urandom(8).hex().encode())
            self._listener.start()
        return self._listener


class Wakeup:
    """One subscription."""

    def __init__(self, wakeups: Wakeups, channel: bytes, callback: Callback) -> None:
        self._wakeups = wakeups
        self._channel = channel
        self._callback = callback

    @property
    def is_prompt(self) -> bool:
        return self._wakeups.hears(self._channel)

    def close(self) -> None:
        self._wakeups.unsubscribe(self._channel, self._callback)


class _Listener(threading.Thread):
    """The only one that touches its connection. It is told of new channels through one of its own, `bell`."""

    def __init__(self, link: Link, wakeups: Wakeups, bell: bytes) -> None:
        super().__init__(name="holdfast-redis-wakeups", daemon=True)
        self._link = link
        self._wakeups = wakeups
        self._bell = bell
        self._stopped = threading.Event()
        self._changed = threading.Condition()
        self._heard: set[bytes] = set()
        self._known: set[bytes] = set()
        self._pid = os.getpid()

    def is_alive(self) -> bool:
        return self._pid == os.getpid() and super().is_alive()

    def hear(self, channel: bytes) -> None:
        """Listen to a channel too; waits a little for the server's word that it does."""
        with self._changed:
            if channel in self._heard:
                return
        self._ring()
        with self._changed:
            self._changed.wait_for(lambda: channel in self._heard, _CONFIRM_S)

    def hears(self, channel: bytes) -> bool:
        with self._changed:
            return channel in self._heard

    def stop(self) -> None:
        self._stopped.set()
        self._ring()
        if threading.current_thread() is not self:
            self.join(_CONFIRM_S)

    def run(self) -> None:
        failures = 0
        while not self._stopped.is_set():
            try:
                connection = self._link.connect()
            except StoreUnavailable:
                self._stopped.wait(_PAUSES_S[min(failures, len(_PAUSES_S) - 1)])
                failures += 1
                continue
            failures = 0
            try:
                self._listen(connection)
            except Exception as error:  # whatever broke the connection, the answer is a new one
                _LOG.debug("listening to %s again after %r", self._link.url, error)
                self._stopped.wait(_PAUSES_S[0])
            finally:
                with self._changed:
                    deaf, self._heard = self._heard, set()
                for channel in () if self._stopped.is_set() else deaf:
                    self._wakeups.tell(channel)  # who relies on being told looks for itself from now on
                connection.disconnect()

    def _ring(self) -> None:
        try:
            self._link.read(b"PUBLISH", self._bell, b"")
        except StoreError:
            pass  # the thread is reconnecting, and will look for itself

    def _listen(self, connection: Connection) -> None:
        asked = {self._bell}
        connection.send_packed_command(packed(b"SUBSCRIBE", self._bell), check_health=False)
        tried = False
        while not self._stopped.is_set():
            if connection.can_read(_QUIET_S):
                tried = False
                if self._take(connection.read_response()) == self._bell and (new := self._wakeups.channels() - asked):
                    connection.send_packed_command(packed(b"SUBSCRIBE", *new), check_health=False)
                    asked |= new
            elif tried:
                return
            else:
                connection.send_packed_command(packed(b"PING"), check_health=False)
                tried = True

    def _take(self, message: Any) -> bytes:
        """The channel of a message."""
        if not isinstance(message, list) or message[0] not in (b"subscribe", b"message"):
            return b""
        channel: bytes = message[1]
        if message[0] == b"message":
            if message[2] != self._wakeups.origin:
                self._wakeups.tell(channel)
            return channel
        if channel in self._known:
            self._wakeups.tell(channel)  # there was a pause in listening, and what was published then was missed
        with self._changed:
            self._known.add(channel)
            self._heard.add(channel)
            self._changed.notify_all()
        return channel
