"""What the server remembers of guards and breakers for those who look: from its start, or the first question."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeVar

from fastapi import FastAPI, Request

from holdfast.app import Holdfast
from holdfast.breakers.finding import find_breakers
from holdfast.server.figures import Figures
from holdfast.server.transitions import MOST_BREAKERS, Transitions

T = TypeVar("T")
BEAT_S: Final = 5.0
_LOG: Final = logging.getLogger("holdfast.server")
_MAKING: Final = threading.Lock()


class Watch:
    """Figures of guards and transitions of breakers, while it is open."""

    def __init__(self, hold: Holdfast) -> None:
        self._hold = hold
        self.figures = Figures()
        self.transitions = Transitions()

    def open(self) -> None:
        """Begin to listen; again is nothing."""
        self._hold.telemetry.register(self.figures)
        self._hold.telemetry.register(self.transitions)

    def close(self) -> None:
        """Stop listening; what was counted stays."""
        self._hold.telemetry.unregister(self.figures)
        self._hold.telemetry.unregister(self.transitions)

    def beat(self) -> None:
        """Fetch what guards have counted, and look at the stored breakers. A store that is away is not looked at."""
        self._hold.telemetry.flush()
        try:
            found = find_breakers(self._hold.store, limit=MOST_BREAKERS)
        except Exception as error:  # whatever is wrong with the store, those who ask it will be told
            _LOG.debug("breakers were not looked at: %s", error)
        else:
            told = frozenset(self._hold.breakers.status().shared)
            self.transitions.look((state for _, state in found), told)


def kept_in(app: FastAPI, name: str, make: Callable[[], T]) -> T:
    """What the app keeps under a name, made when it is first asked for."""
    with _MAKING:
        found: T | None = getattr(app.state, name, None)
        if found is None:
            found = make()
            setattr(app.state, name, found)
        return found


def watch_of(request: Request) -> Watch:
    """The app's watch. In an app that is mounted in another one, and has no start, it begins at the first question."""
    watch = kept_in(request.app, "watch", lambda: Watch(request.app.state.hold))
    watch.open()
    return watch


@asynccontextmanager
async def watching(app: FastAPI) -> AsyncIterator[None]:
    """Watch while the app runs."""
    watch = kept_in(app, "watch", lambda: Watch(app.state.hold))
    watch.open()
    beating = asyncio.create_task(_beat(watch))
    try:
        yield
    finally:
        beating.cancel()
        with suppress(asyncio.CancelledError):
            await beating
        watch.close()


async def _beat(watch: Watch) -> None:
    while True:
        await asyncio.to_thread(watch.beat)
        await asyncio.sleep(BEAT_S)
