"""Servers that really run: in a thread, on a free port of this machine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast import Holdfast
from holdfast.server.api import create_app
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


class Switchboard:
    """One address for many servers in turn. A browser that was there before has loaded the console already."""

    def __init__(self) -> None:
        self._app: ASGIApp | None = None
        self._loop = asyncio.new_event_loop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is not None:  # otherwise a page that is about to be closed, which no longer needs an answer
            await self._app(scope, receive, send)

    @contextmanager
    def open(self) -> Iterator[Switchboard]:
        """Listen."""
        listening = listen(port=0)
        self.url = url_of(listening)
        config = uvicorn.Config(self, lifespan="off", log_level="critical", timeout_graceful_shutdown=1)
        made = uvicorn.Server(config)
        serve = made.serve(sockets=[listening])
        thread = threading.Thread(target=self._loop.run_until_complete, args=(serve,), name="test-switchboard")
        thread.start()
        try:
            yield self
        finally:
            made.should_exit = True
            thread.join(30)
            self._loop.close()
            listening.close()

    @contextmanager
    def serves(self, hold: Holdfast, **options: Any) -> Iterator[str]:
        """A server for `hold` at the address, for a while; `options` are those of `create_app`."""
        app = create_app(hold, hosts=[urlsplit(self.url).netloc], **options)
        lifespan: AbstractAsyncContextManager[Any] = app.router.lifespan_context(app)
        self._run(lifespan.__aenter__())
        self._app = app
        try:
            yield self.url
        finally:
            self._app = None
            self._run(lifespan.__aexit__(None, None, None))

    def _run(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)
