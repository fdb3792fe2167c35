"""Keeps the claims of a batch while its calls run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from holdfast.core.clock import Clock, TimerHandle
from holdfast.outbox.entry import OutboxEntry

BEATS: Final = 3

Renew = Callable[[Collection[OutboxEntry]], Awaitable[set[UUID]]]
"""Prolongs claims, and tells which of them are still held."""


class Heartbeat:
    """Renews all that `held()` gives three times in a lease, from a third of a lease on, so that a batch that
    is done sooner costs nothing. `lost(ids)` is told of claims that others have, or must be taken to have.
    """

    def __init__(
        self,
        held: Callable[[], Collection[OutboxEntry]],
        renew: Renew,
        lost: Callable[[Collection[UUID]], None],
        *,
        lease: timedelta,
        clock: Clock,
        troubled: Callable[[Exception], None],
    ) -> None:
        self._held = held
        self._renew = renew
        self._lost = lost
        self._lease = lease.total_seconds()
        self._clock = clock
        self._troubled = troubled
        self._task: asyncio.Task[Any] | None = None
        self._ended = False
        self._renewed_at = clock.monotonic()
        self._timer: TimerHandle = self._set()

    def _set(self) -> TimerHandle:
        return self._clock.call_at(self._clock.monotonic() + self._lease / BEATS, self._fire)

    def _fire(self) -> None:
        if self._ended:
            return
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._beat())
        self._timer = self._set()

    async def _beat(self) -> None:
        entries = self._held()
        if not entries:
            return
        ids = {entry.entry_id for entry in entries}
        asked_at = self._clock.monotonic()
        try:
            kept = await self._renew(entries)
        except Exception as error:  # the database may be back at the next beat
            self._troubled(error)
            if self._clock.monotonic() - self._renewed_at >= self._lease:
                self._lost(ids)
            return
        self._renewed_at = asked_at
        if gone := ids - kept:
            self._lost(gone)

    async def close(self) -> None:
        """Renew no more."""
        self._ended = True
        self._timer.cancel()
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task])
