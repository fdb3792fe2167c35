"""A client of a broker that is made at first use, on the loop that uses it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

C = TypeVar("C")
_log: Final = logging.getLogger("holdfast")


class Lazy(Generic[C]):
    """One client for all calls on a loop: `make` is awaited once, however many wait for it, and its failure is theirs.

    A client that `is_alive` denies is replaced at the next use.
    """

    def __init__(
        self,
        make: Callable[[], Awaitable[C]],
        end: Callable[[C], Awaitable[object]],
        is_alive: Callable[[C], bool] = lambda client: True,
    ) -> None:
        self._make = make
        self._end = end
        self._is_alive = is_alive
        # Workers in several threads may share a publisher, and a connection works on one loop only.
        self._making: dict[asyncio.AbstractEventLoop, asyncio.Task[C]] = {}

    async def get(self) -> C:
        loop = asyncio.get_running_loop()
        making = self._making.get(loop)
        if making is not None and making.done() and not self._is_good(making):
            self._making.pop(loop, None)
            try:
                await self._finish(making)
            except Exception:
                _log.debug("a dead client could not be closed", exc_info=True)
            making = self._making.get(loop)
        if making is None:
            self._forget_dead_loops()
            making = self._making[loop] = loop.create_task(self._made())
            making.add_done_callback(_look)
        # Whoever is cancelled leaves the others' connection alone.
        return await asyncio.shield(making)

    async def close(self) -> None:
        """End this loop's client if there is one; the next use makes another."""
        making = self._making.pop(asyncio.get_running_loop(), None)
        if making is None:
            return
        if not making.done():
            making.cancel()
            await asyncio.wait([making])
        await self._finish(making)

    async def _made(self) -> C:
        return await self._make()

    async def _finish(self, making: asyncio.Task[C]) -> None:
        if not making.cancelled() and making.exception() is None:
            await self._end(making.result())

    def _is_good(self, making: asyncio.Task[C]) -> bool:
        return not making.cancelled() and making.exception() is None and self._is_alive(making.result())

    def _forget_dead_loops(self) -> None:
        for loop in [loop for loop in list(self._making) if loop.is_closed()]:
            self._making.pop(loop, None)


def _look(made: asyncio.Task[C]) -> None:
    """A failure that nobody waits for any longer is no news."""
    if not made.cancelled():
        made.exception()
