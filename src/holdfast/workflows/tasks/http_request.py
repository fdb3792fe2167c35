"""One HTTP request, over the standard library: nothing to install, and the connection is ours to check.

The name is looked up once, every address it has is checked, and the peer of the connection is checked again before a
byte is sent; so neither a name that changes its mind nor a redirect leads into the own network. Proxies of the
environment are not used: they would look the name up themselves.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.core.context import remaining_time
from holdfast.core.deadline import Deadline
from holdfast.core.redact import is_secret_key, redact
from holdfast.errors import ConfigurationError, PermanentError
from holdfast.outbox.publishers.address import VARIABLE, Reach, public_only
from holdfast.workflows.cancel import current_task_token

BODY_CAP: Final = 10 * 1024 * 1024
_CHUNK: Final = 65_536
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True, slots=True)
class HttpResult:
    """An answer. `headers` have small letters, and `url` is where it came from in the end."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    url: str


def request(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    timeout: float = 30.0,
    reach: Reach = public_only,
    redirects: int = 0,
    cap: int = BODY_CAP,
    tls: ssl.SSLContext | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> HttpResult:
    """Make a request and read its answer, all within `timeout` and a surrounding deadline.

    Up to `redirects` redirects of GET and HEAD are followed; another server gets no header that may be a secret.
    Raises PermanentError for an address that `reach` forbids and for an answer above `cap` bytes, OSError and
    HTTPException as they come, CancelledError when the task is cancelled. An error is marked `not_sent` if the request
    surely never left.
    """
    deadline = Deadline.after(min(timeout, max(0.0, remaining_time())), clock)
    kept = dict(headers or {})
    while True:
        target = checked_url(url)
        answer = _exchange(method, target, kept, body, deadline, reach, cap, tls)
        if answer.status not in _REDIRECTS or method not in ("GET", "HEAD") or "location" not in answer.headers:
            return answer
        if redirects == 0:
            return answer
        redirects -= 1
        url = urljoin(url, _location(answer.headers["location"]))
        if _origin(checked_url(url)) != _origin(target):
            kept = {name: value for name, value in kept.items() if not is_secret_key(name)}


def checked_url(url: str) -> SplitResult:
    """Raises ConfigurationError for what is no plain HTTP address."""
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, fine = urlsplit(""), False
    if not fine or any(ord(char) <= 32 or ord(char) == 127 for char in url):
        raise ConfigurationError(f"url must be an http or https URL with a host, got {redact(url)!r}")
    if "@" in parts.netloc:
        raise ConfigurationError(
            f"url must not hold a user or password, got {redact(url)!r}; give an Authorization header"
        )
    return parts


def _path(target: SplitResult) -> str:
    """What is asked of the server: of letters that no request line can hold, the bytes."""
    path = (target.path or "/") + (f"?{target.query}" if target.query else "")
    return quote(path, safe=string.punctuation)


def _host(target: SplitResult) -> str:
    """The host as the server knows it. Raises ConfigurationError."""
    host = target.hostname or ""
    if host.isascii():
        return target.netloc
    try:
        name = host.encode("idna").decode()
    except UnicodeError as error:
        raise ConfigurationError(f"{host!r} is no name of a host") from error
    return name if target.port is None else f"{name}:{target.port}"


def _location(text: str) -> str:
    """A header is read as latin-1; an address in it with other letters is UTF-8."""
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return text


def _origin(parts: SplitResult) -> tuple[str, str | None, int]:
    return parts.scheme, parts.hostname, _port(parts)


def _port(parts: SplitResult) -> int:
    return parts.port or (443 if parts.scheme == "https" else 80)


def _exchange(
    method: str,
    target: SplitResult,
    headers: Mapping[str, str],
    body: bytes | None,
    deadline: Deadline,
    reach: Reach,
    cap: int,
    tls: ssl.SSLContext | None,
) -> HttpResult:
    token = current_task_token()
    token.raise_if_cancelled()
    stream = _opened(target, deadline, reach, tls)
    connection = http.client.HTTPConnection(target.hostname or "", _port(target))
    connection.sock = _Timed(stream, deadline)
    take_back = token.when_cancelled(lambda: _hang_up(stream))
    try:
        connection.request(method, _path(target), body, {"Host": _host(target), "Connection": "close", **headers})
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return HttpResult(response.status, found, _body(response, cap), target.geturl())
    except (OSError, http.client.HTTPException):
        token.raise_if_cancelled()
        raise
    finally:
        take_back()
        connection.close()
        stream.close()


def _opened(target: SplitResult, deadline: Deadline, reach: Reach, tls: ssl.SSLContext | None) -> socket.socket:
    """A connection that is ready for a request; nothing has been asked of the server yet."""
    host = target.hostname or ""
    try:
        stream = _connect(host, _port(target), deadline, reach)
        if target.scheme != "https":
            return stream
        try:
            return (tls or ssl.create_default_context()).wrap_socket(stream, server_hostname=host)
        except BaseException:
            stream.close()
            raise
    except Exception as error:
        error.not_sent = True  # type: ignore[attr-defined]  # what core.classify.was_not_sent asks for
        raise


def _hang_up(stream: socket.socket) -> None:
    try:
        # Not the method of a TLS socket: that one takes the session away from under the thread that reads.
        socket.socket.shutdown(stream, socket.SHUT_RDWR)
    except OSError:
        pass  # the server was faster


def _connect(host: str, port: int, deadline: Deadline, reach: Reach) -> socket.socket:
    """A connection to the first of a host's addresses that answers; all of them must be allowed."""
    try:
        rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise ConfigurationError(f"{host!r} is no name of a host") from error
    for row in rows:
        _check_address(host, row[4], reach)
    failure: OSError | None = None
    for family, kind, protocol, _, address in rows:
        stream = socket.socket(family, kind, protocol)
        try:
            _limit(stream, deadline)
            stream.connect(address)
            _check_address(host, stream.getpeername(), reach)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return stream
        except OSError as error:
            stream.close()
            failure = error
        except BaseException:
            stream.close()
            raise
    raise failure or OSError(f"the host {host!r} has no address")


def _check_address(host: str, address: Any, reach: Reach) -> None:
    ip = ip_address(str(address[0]).partition("%")[0])
    if not reach(host, ip):
        raise PermanentError(
            f"{host} has the address {ip}, which http tasks may not call; "
            f"allow it: builtin_tasks(reach=public_and('{ip}')), and in {VARIABLE} or webhook_reach where there is one"
        )


def _limit(stream: socket.socket, deadline: Deadline) -> None:
    left = deadline.remaining()
    if left <= 0:
        raise TimeoutError("the time for the request is over")
    stream.settimeout(left)


def _body(response: http.client.HTTPResponse, cap: int) -> bytes:
    kept = bytearray()
    while chunk := response.read1(_CHUNK):
        kept += chunk
        if len(kept) > cap:
            raise PermanentError(f"the answer has more than {cap} bytes; ask for less")
    if response.length:
        raise http.client.IncompleteRead(bytes(kept), response.length)
    return bytes(kept)


class _Timed:
    """A socket, as http.client uses one, whose every operation has only what is left of one time limit."""

    def __init__(self, stream: socket.socket, deadline: Deadline) -> None:
        self._stream = stream
        self._deadline = deadline

    def sendall(self, data: Any) -> None:
        _limit(self._stream, self._deadline)
        self._stream.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Incoming(self._stream, self._deadline))

    def close(self) -> None:
        """Asked for as soon as an answer says that it is the last one, before its body is read: whoever has opened the
        stream closes it."""


class _Incoming(io.RawIOBase):
    def __init__(self, stream: socket.socket, deadline: Deadline) -> None:
        self._stream = stream
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        _limit(self._stream, self._deadline)
        return self._stream.recv_into(buffer)
