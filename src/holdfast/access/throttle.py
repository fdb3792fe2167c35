"""A token bucket for each of many keys, of which only so many are remembered."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from holdfast.machine.bucket import TokenBucket

MOST_KEYS: Final = 10_000


class Throttle:
    """`rate_per_s` for each key, at most `burst` at once. The key that was longest not seen is forgotten first."""

    def __init__(self, rate_per_s: float, burst: int, *, most_keys: int = MOST_KEYS) -> None:
        TokenBucket(rate_per_s, burst)  # what cannot work is refused now
        self.rate_per_s = rate_per_s
        self.burst = burst
        self._most = most_keys
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, key: str, now: float) -> float:
        """0.0 if the key may go on, else the seconds until it may (nothing is taken)."""
        with self._lock:
            bucket = self._buckets.get(key)
            if bucket is None:
                bucket = self._buckets[key] = TokenBucket(self.rate_per_s, self.burst)
                if len(self._buckets) > self._most:
                    self._buckets.popitem(last=False)
            else:
                self._buckets.move_to_end(key)
            return bucket.take(now)

    def forgive(self, key: str) -> None:
        """Let the key begin anew."""
        with self._lock:
            self._buckets.pop(key, None)
