"""Servers that really run: in a thread, on a free port of this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from holdfast import Holdfast
from holdfast.server.run import listen, server, url_of


@contextmanager
def server_of(hold: Holdfast, **options: Any) -> Iterator[str]:
    """The server on a free port of this machine, in a thread; its address."""
    listening, told, begun = listen(port=0), [], threading.Event()

    def heard(url: str) -> None:
        told.append(url)
        begun.set()

    made = server(hold, listening, told=heard, **options)
    thread = threading.Thread(target=made.run, kwargs={"sockets": [listening]}, name="test-server")
    thread.start()
    try:
        assert begun.wait(30), "the server did not begin"
        yield told[0]
    finally:
        made.should_exit = True
        thread.join(30)
        listening.close()
        assert not thread.is_alive(), "the server did not end"


@contextmanager
def serving(app: ASGIApp) -> Iterator[str]:
    """Any application on a free port of this machine, in a thread; its address."""
    listening = listen(port=0)
    made = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=made.run, kwargs={"sockets": [listening]}, name="test-server")
    thread.start()
    try:
        yield url_of(listening)
    finally:
        made.should_exit = True
        thread.join(30)
        listening.close()
