"""Real HTTP on 127.0.0.1: a server that does what its script says, and forward proxies.

server.script(Reply(503), Drop(), Reply(200, b"done"))     # one step per request, then 200 "ok" for ever
assert client.get(server.url("/thing")).status == 200
assert [request.path for request in server.requests] == ["/thing"] * 3
"""

from __future__ import annotations

import http.client
import socket
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

PATIENCE_S = 10.0  # how long a handler waits for a test that has gone wrong


class Request:
    """What arrived: `connection` is the client's port, so equal ones came over the same socket."""

    def __init__(self, method: str, path: str, headers: Mapping[str, str], body: bytes, connection: int) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body
        self.connection = connection


class Reply:
    """Answer properly."""

    def __init__(self, status: int = 200, body: bytes = b"ok", headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.body = body
        self.headers = dict(headers or {})

    def play(self, handler: Handler) -> None:
        self.head(handler, len(self.body))
        handler.wfile.write(self.body)

    def head(self, handler: Handler, length: int) -> None:
        handler.send_response(self.status)
        for name, value in self.headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(length))
        handler.end_headers()


class Drop:
    """Close the connection instead of answering."""

    def play(self, handler: Handler) -> None:
        hang_up(handler)


class Hang:
    """Say nothing until the test is over."""

    def __init__(self) -> None:
        self.reached = threading.Event()

    def play(self, handler: Handler) -> None:
        self.reached.set()
        handler.server.over.wait(PATIENCE_S)
        hang_up(handler)


class Broken(Reply):
    """Promise a body and hang up in the middle of it."""

    def play(self, handler: Handler) -> None:
        self.head(handler, len(self.body) + 10)
        handler.wfile.write(self.body)
        hang_up(handler)


class Stalled(Reply):
    """Send the first part of a body, and the rest when the test allows it."""

    def __init__(self) -> None:
        super().__init__(200, b"first")
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def play(self, handler: Handler) -> None:
        self.head(handler, len(self.body) * 2)
        handler.wfile.write(self.body)
        handler.wfile.flush()
        self.reached.set()
        self.go_on.wait(PATIENCE_S)
        handler.wfile.write(self.body)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server
    # One segment per answer: the client must not wait for a delayed acknowledgement.
    wbufsize = -1
    disable_nagle_algorithm = True

    def answer(self) -> None:
        body = self._body()
        self.server.requests.append(
            Request(self.command, self.path, dict(self.headers.items()), body, self.client_address[1])
        )
        try:
            self.server.play(self, body)
            self.wfile.flush()
        except OSError:
            self.close_connection = True  # the client gave up

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = (
        answer  # http.server's names
    )

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def log_message(self, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[Request] = []
        self.over = threading.Event()
        self._steps: deque[Any] = deque()
        self._open: set[socket.socket] = set()

    def script(self, *steps: Any) -> None:
        self._steps.extend(steps)

    def url(self, path: str = "") -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"

    def play(self, handler: Handler, body: bytes) -> None:
        step = self._steps.popleft() if self._steps else Reply()
        step.play(handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self._open.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # clients hang up, that is what they are tested for
            super().handle_error(request, client_address)

    def kill(self) -> None:
        """Stop listening and cut every connection, as a crash would."""
        self.over.set()
        self.shutdown()
        self.server_close()
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Proxy(Server):
    """A forward proxy for http:// URLs. A scripted step is its own answer; otherwise it forwards."""

    def play(self, handler: Handler, body: bytes) -> None:
        if self._steps:
            super().play(handler, body)
            return
        target = urlsplit(handler.path)
        onward = http.client.HTTPConnection(target.hostname or "", target.port, timeout=PATIENCE_S)
        try:
            kept = (name for name in handler.headers if not name.lower().startswith(("connection", "proxy-")))
            headers = {name: handler.headers[name] for name in kept}
            onward.request(handler.command, target.path or "/", body, headers)
            answer = onward.getresponse()
            Reply(answer.status, answer.read(), {"Via": f"proxy-{self.server_port}"}).play(handler)
        finally:
            onward.close()


def hang_up(handler: Handler) -> None:
    handler.wfile.flush()
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def running(server: Server) -> Iterator[Any]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.kill()
        thread.join(PATIENCE_S)


def unused_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
