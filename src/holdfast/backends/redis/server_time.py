"""The server's clock, read without asking it each time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from holdfast.backends.redis.link import Link
from holdfast.errors import StoreUnavailable

_STALE_S: Final = 60.0
_AGAIN_S: Final = 1.0
_SHORT_S: Final = 0.002
_REPEATS: Final = 3


class ServerTime:
    """The server's time as a distance from this host's monotonic clock, measured anew every minute."""

    def __init__(self, link: Link, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._link = link
        self._monotonic = monotonic
        self._offset: int | None = None
        self._fresh_until = 0.0

    def now(self) -> int:
        """Microseconds. Raises StoreUnavailable if the server has never been asked and cannot be reached."""
        monotonic = self._monotonic()
        offset = self._offset
        if offset is None or monotonic >= self._fresh_until:
            offset = self._measure(offset)
            monotonic = self._monotonic()
        return offset + round(monotonic * 1e6)

    def _measure(self, known: int | None) -> int:
        # Meanwhile the other threads go on with what is known.
        self._fresh_until = self._monotonic() + _AGAIN_S
        try:
            sample = self._sample()
            # A round trip that connects first, or waits for a busy server, tells the time less well.
            for _ in range(_REPEATS):
                if sample[0] > _SHORT_S:
                    sample = min(sample, self._sample())
        except StoreUnavailable:
            if known is None:
                raise
            return known  # still good to within the drift of two clocks
        self._offset = sample[1]
        self._fresh_until = self._monotonic() + _STALE_S
        return self._offset

    def _sample(self) -> tuple[float, int]:
        """How long the server took to tell the time, and its distance from ours halfway."""
        before = self._monotonic()
        seconds, micros = self._link.read(b"TIME")
        after = self._monotonic()
        return after - before, int(seconds) * 1_000_000 + int(micros) - round((before + after) * 0.5e6)
