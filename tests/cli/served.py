"""A server in a thread of the test, for commands that ask one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.app import Holdfast
from holdfast.server.run import listen, server


@contextmanager
def served(hold: Holdfast, **options: Any) -> Iterator[str]:
    """The address at which the Holdfast is served meanwhile."""
    listening, addresses, is_up = listen(port=0), list[str](), threading.Event()

    def told(url: str) -> None:
        addresses.append(url)
        is_up.set()

    serving = server(hold, listening, told=told, **options)
    thread = threading.Thread(target=serving.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        assert is_up.wait(30)
        yield addresses[0]
    finally:
        serving.should_exit = True
        thread.join(30)
        listening.close()
