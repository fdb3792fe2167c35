"""Connections to the server: taken for one command, given back, and honest about what became of it.

A command that did not go out as a whole was not done and is sent once more. Of one whose answer is missing nobody
knows: a read is repeated, a write never is.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final, Protocol, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

from holdfast.backends.redis.scripts import Script
from holdfast.core.redact import redact
from holdfast.errors import MissingExtra, StoreError, StoreUnavailable

_CONNECT_S: Final = 5.0
_ANSWER_S: Final = 5.0
_IDLE: Final = 64  # connections that are kept
_DETOURS: Final = 3
_WRITE: Final = "write redis://host:6379/0, and a / in a password as %2F"
_SECRETS: Final = frozenset({"password", "username", "ssl_password"})
_AWAY: Final = frozenset(
    {"READONLY", "CLUSTERDOWN", "MASTERDOWN", "MOVED", "TRYAGAIN", "ASK", "NOAUTH", "OOM", "MISCONF", "BUSY"}
)


class Connection(Protocol):
    """What is used of redis-py's connections."""

    def connect(self) -> None: ...
    def disconnect(self) -> None: ...
    def can_read(self, timeout: float) -> bool: ...
    def send_packed_command(self, command: list[bytes], check_health: bool) -> None: ...
    def read_response(self) -> Any: ...


def packed(*command: bytes) -> list[bytes]:
    """A command as it goes over the wire."""
    return [b"*%d\r\n" % len(command) + b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in command])]


def _redis() -> Any:
    try:
        import redis
        import redis.connection
        import redis.exceptions
        import redis.retry
    except ImportError as error:
        raise MissingExtra("the Redis store needs redis-py: pip install 'holdfast[redis]'") from error
    return redis


class Link:
    """Thread-safe, and usable on both sides of a fork. `on_connect` is called when a connection has been made."""

    def __init__(self, url: str, on_connect: Callable[[], object] = lambda: None) -> None:
        self._redis = _redis()
        self.url = public_url(url)
        self._options, self._class = self._parse(url)
        self._on_connect = on_connect
        self._moved: dict[str, Any] = {}
        self._idle: list[Connection] = []
        self._pid = os.getpid()
        errors = self._redis.exceptions
        self._slow = errors.TimeoutError
        self._lost = (errors.ConnectionError, errors.TimeoutError, OSError)
        self._refusals = (errors.BusyLoadingError, errors.AuthenticationError)  # though redis-py calls them lost

    def read(self, *command: bytes) -> Any:
        """The answer to a command that may be done twice."""
        return self._run(command, repeat=True)

    def call(self, script: Script, key: bytes, *arguments: bytes, writes: bool) -> Any:
        """Run a script; the server is given it anew when it does not know it.

        Raises StoreUnavailable also when it is not known whether a script that writes was run.
        """
        try:
            return self._run((b"EVALSHA", script.digest, b"1", key, *arguments), repeat=not writes)
        except self._redis.exceptions.NoScriptError:
            return self._run((b"EVAL", script.text, b"1", key, *arguments), repeat=not writes)

    def connect(self) -> Connection:
        """A connection of the caller's own. Raises StoreUnavailable."""
        try:
            connection: Connection = self._class(**{**self._options, **self._moved})
            connection.connect()
        except self._lost as error:
            if self._moved:
                self._moved = {}  # the node that the cluster sent us to is gone; the first one knows the next
                return self.connect()
            raise self._unavailable(error) from error
        except self._redis.exceptions.RedisError as error:
            raise self._unavailable(error) from error
        return connection

    def close(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.disconnect()

    def _run(self, command: tuple[bytes, ...], *, repeat: bool) -> Any:
        message = packed(*command)
        tries = detours = 0
        while True:
            connection = self._take()
            sent = False
            try:
                connection.send_packed_command(message, check_health=False)
                sent = True
                answer = connection.read_response()
            except self._redis.exceptions.ResponseError as error:
                self._idle.append(connection)
                if not self._redirected(error) or detours == _DETOURS:
                    raise self._refused(error) from error
                detours += 1
            except self._lost as error:
                connection.disconnect()
                self.close()  # the others are as old, and as dead
                refused = isinstance(error, self._refusals)
                if tries or refused or isinstance(error, self._slow) or (sent and not repeat):
                    raise self._unavailable(error, unknown=sent and not repeat and not refused) from error
                tries = 1
            except BaseException:
                connection.disconnect()  # its answer would be taken for that of the next command
                raise
            else:
                if len(self._idle) < _IDLE:
                    self._idle.append(connection)
                else:
                    connection.disconnect()
                return answer

    def _take(self) -> Connection:
        if self._pid != os.getpid():
            self._pid, self._idle = os.getpid(), []  # those belong to the parent
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                made = self.connect()
                self._on_connect()
                return made
            try:
                if not connection.can_read(0):
                    return connection
            except self._lost:
                pass
            connection.disconnect()  # the server has closed it

    def _redirected(self, error: Exception) -> bool:
        """Follow a cluster to the node that has our keys; they all share one slot, so there is one such node."""
        # Not all versions of redis-py know the error outside of clusters.
        if not isinstance(error, self._redis.exceptions.MovedError) and not str(error).startswith("MOVED "):
            return False
        host, _, port = str(error).rpartition(" ")[2].rpartition(":")
        self._moved = {"host": host or self._options.get("host", "localhost"), "port": int(port)}
        self.close()
        return True

    def _refused(self, error: Exception) -> Exception:
        if isinstance(error, self._redis.exceptions.NoScriptError):
            return cast("Exception", error)
        code = getattr(error, "status_code", None) or str(error).partition(" ")[0]
        if code in _AWAY or type(error).__name__ in ("ReadOnlyError", "ClusterDownError", "OutOfMemoryError"):
            return self._unavailable(error)
        return StoreError(f"{self.url} refused a command: {_line(error)}")

    def _unavailable(self, error: BaseException, *, unknown: bool = False) -> StoreUnavailable:
        if unknown:
            story = (
                "lost the connection before the answer came; the change may have been made, so read before repeating"
            )
            return StoreUnavailable(f"{self.url}: {story} ({_line(error)})")
        return StoreUnavailable(f"cannot use {self.url}: {_line(error)}; check the address, and that the server runs")

    def _parse(self, url: str) -> tuple[dict[str, Any], Callable[..., Any]]:
        path = urlsplit(url).path.strip("/")
        if not url.startswith("unix://") and path and not path.isdecimal():
            shown = "the path" if "@" in path else repr(path)  # which may begin in the password
            raise ValueError(f"{self.url}: {shown} is no database number; {_WRITE}")
        try:
            _ = urlsplit(url).port
        except ValueError:  # which may quote a part of the password
            raise ValueError(f"{self.url}: the port is no number up to 65535; {_WRITE}") from None
        options = {
            "protocol": 2,
            "socket_connect_timeout": _CONNECT_S,
            "socket_timeout": _ANSWER_S,
            "socket_keepalive": True,
            **self._redis.connection.parse_url(url),
            # It would repeat writes.
            "retry": self._redis.retry.Retry(self._redis.backoff.NoBackoff(), 0),
        }
        kind = options.pop("connection_class", self._redis.connection.Connection)
        if url.startswith("unix://"):
            options.pop("socket_keepalive")
        try:
            kind(**options)
        except TypeError as error:
            raise ValueError(f"{self.url}: {_line(error)}; leave that option out") from error
        return options, kind


def public_url(url: str) -> str:
    """The URL without user, password and what else is secret in it."""
    parts = urlsplit(url)
    if "@" in parts.path + parts.query + parts.fragment:
        return redact(url, None)  # a password that was not quoted
    query = urlencode([(name, value) for name, value in parse_qsl(parts.query) if name not in _SECRETS])
    place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    return f"{place}?{query}" if query else place


def _line(error: BaseException) -> str:
    return redact(" ".join(str(error).split())) or type(error).__name__
