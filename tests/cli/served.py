"""A server in a thread of the test, for commands that ask one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.app import Holdfast
from holdfast.server.run import listen, server


@contextmanager
def served(hold: Holdfast, heard: list[str] | None = None, **options: Any) -> Iterator[str]:
    """The address at which the Holdfast is served meanwhile; `heard` is what it was asked: `GET /api/v1/letters`."""
    listening, addresses, is_up = listen(port=0), list[str](), threading.Event()

    def told(url: str) -> None:
        addresses.append(url)
        is_up.set()

    serving = server(hold, listening, told=told, **options)
    if heard is not None:
        serving.config.app = hearing(serving.config.app, heard)
    thread = threading.Thread(target=serving.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        assert is_up.wait(30)
        yield addresses[0]
    finally:
        serving.should_exit = True
        thread.join(30)
        listening.close()


def hearing(app: Any, heard: list[str]) -> Any:
    """The application, noting what it is asked."""

    async def hears(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            heard.append(f"{scope['method']} {scope['path']}")
        await app(scope, receive, send)

    return hears
