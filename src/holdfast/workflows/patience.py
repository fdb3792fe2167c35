"""How often, and after which waits, something is decided again that somebody else was faster with."""

from __future__ import annotations

import random
from collections.abc import Callable

from holdfast.core.clock import Clock
from holdfast.workflows.config import HandlerConfig


class Patience:
    """For one change: the retries of `concurrency_*`, then those of `error_handling_*`.

    `in_place` is for workers: only the first, and at once. They must not stand still, and have a queue to go back to.
    """

    def __init__(
        self,
        config: HandlerConfig,
        clock: Clock,
        *,
        in_place: bool = False,
        rng: Callable[[], float] = random.random,
    ) -> None:
        first = config.concurrency_max_retries
        self._delays = [(config.concurrency_backoff, k) for k in range(first)]
        self._sleeps = not in_place
        if self._sleeps:
            self._delays += [(config.error_handling_backoff, k) for k in range(config.error_handling_max_retries)]
        self._delays.reverse()
        self._clock = clock
        self._rng = rng

    def lost(self) -> bool:
        """Wait until the next try; False at once when it was the last one."""
        if not self._delays:
            return False
        backoff, k = self._delays.pop()
        if self._sleeps:
            self._clock.sleep(backoff.delay(k, self._rng))
        return True
