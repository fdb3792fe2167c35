"""How HTTP is read from a connection: by httptools where it is installed, which takes half the time, else by h11.

What h11 refuses by itself, a head that never ends, is refused here for httptools.
"""

from __future__ import annotations

import asyncio
from typing import Final

MOST_HEAD_BYTES: Final = 1 << 16


def protocol() -> type[asyncio.Protocol] | str:
    """What uvicorn is to read connections with."""
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    except ModuleNotFoundError:
        return "h11"

    class Bounded(HttpToolsProtocol):
        """Closes connections that send more than `MOST_HEAD_BYTES` without a request, or a part of its body, in it."""

        _head = 0

        def data_received(self, data: bytes) -> None:
            self._head += len(data)
            super().data_received(data)
            if self._head > MOST_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The head of the request is too large.")

        def on_headers_complete(self) -> None:
            self._head = 0
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self._head = 0
            super().on_body(body)

        def on_message_complete(self) -> None:
            self._head = 0
            super().on_message_complete()

    return Bounded
