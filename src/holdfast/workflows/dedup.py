"""A Bloom filter over message ids: what this process has certainly not seen need not be looked up.

It is a cache and decides nothing: the database does. It knows the ids that were marked here since the last reset, and
nothing of other processes.
"""

from __future__ import annotations

import math
import threading
from functools import cache
from hashlib import blake2b
from typing import Final

from holdfast.workflows.default import Default

EXPECTED_ITEMS: Final = 100_000
FALSE_POSITIVE_RATE: Final = 0.001
RESET_ABOVE: Final = 0.7

_LARGEST_BYTES: Final = 1 << 30


class BloomDeduplicator:
    """Says of an id "certainly not marked here", or "perhaps". Any number of threads may use it.

    At `expected_items` ids it is half full and says "perhaps" to `false_positive_rate` of the others; 0.7 full means
    1.7 times as many ids, and some three percent.

    Raises ValueError for parameters that cannot work.
    """

    __slots__ = ("_bits", "_hashes", "_items", "_lock", "_set", "_size", "expected_items", "false_positive_rate")

    def __init__(self, expected_items: int = EXPECTED_ITEMS, false_positive_rate: float = FALSE_POSITIVE_RATE) -> None:
        _check(expected_items, false_positive_rate)
        self.expected_items = expected_items
        self.false_positive_rate = float(false_positive_rate)
        size = -expected_items * math.log(false_positive_rate) / math.log(2) ** 2
        if size / 8 > _LARGEST_BYTES:
            raise ValueError(
                f"BloomDeduplicator of {expected_items} items would take {size / 8:.3g} bytes; expect fewer items and "
                f"reset it, or allow a higher false_positive_rate"
            )
        self._size = math.ceil(size)
        self._hashes = max(1, math.ceil(self._size / expected_items * math.log(2)))
        self._lock = threading.Lock()
        self._clear()

    def maybe_seen(self, message_id: str) -> bool:
        """False if the id was certainly not marked since the last reset; True if it may have been."""
        bits = self._bits  # read once: a reset puts another in its place
        return all(bits[at >> 3] & 1 << (at & 7) for at in self._places(message_id))

    def mark_seen(self, message_id: str) -> None:
        """Remember an id."""
        places = self._places(message_id)
        with self._lock:
            bits = self._bits
            for at in places:
                bit = 1 << (at & 7)
                if not bits[at >> 3] & bit:
                    bits[at >> 3] |= bit
                    self._set += 1
            self._items += 1

    def reset(self) -> None:
        """Forget every id."""
        with self._lock:
            self._clear()

    @property
    def items_added(self) -> int:
        """How often an id was marked since the last reset."""
        return self._items

    @property
    def size_bytes(self) -> int:
        """The memory that it takes, whatever it holds."""
        return len(self._bits)

    @property
    def fill_ratio(self) -> float:
        """The share of bits that are set. They are counted as they are set, so this costs nothing."""
        return self._set / self._size

    @property
    def estimated_false_positive_rate(self) -> float:
        """How often it says "perhaps" to an id that was never marked, as full as it is now."""
        return self.fill_ratio**self._hashes

    def should_reset(self, threshold: float = RESET_ABOVE) -> bool:
        """Whether it is fuller than that.

        Raises ValueError for a threshold that is no share.
        """
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold must be from 0 to 1, got {threshold!r}; use {RESET_ABOVE}")
        return self.fill_ratio > threshold

    def _clear(self) -> None:
        self._bits = bytearray((self._size + 7) // 8)
        self._set = 0
        self._items = 0

    def _places(self, message_id: str) -> list[int]:
        # One digest gives two numbers, and these all the places.
        digest = int.from_bytes(blake2b(message_id.encode("utf-8", "surrogatepass"), digest_size=16).digest())
        first, step, size = digest >> 64, digest & 0xFFFFFFFFFFFFFFFF, self._size
        return [(first + k * step) % size for k in range(self._hashes)]


class DeduplicatorHolder:
    """The one deduplicator of an engine, made when it is first asked for."""

    __slots__ = ("__weakref__", "_lock", "_made")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: BloomDeduplicator | None = None

    def get(self, expected_items: int | None = None, false_positive_rate: float | None = None) -> BloomDeduplicator:
        """The deduplicator; what is not given is as it is, or 100,000 items and 0.001 the first time.

        Raises ValueError for parameters that cannot work, or are not those it was made with.
        """
        with self._lock:
            if self._made is None:
                items = EXPECTED_ITEMS if expected_items is None else expected_items
                rate = FALSE_POSITIVE_RATE if false_positive_rate is None else false_positive_rate
                self._made = BloomDeduplicator(items, rate)
            made = self._made
        asked = {"expected_items": expected_items, "false_positive_rate": false_positive_rate}
        for name, value in asked.items():
            if value is not None and value != getattr(made, name):
                raise ValueError(
                    f"the deduplicator has {name}={getattr(made, name)!r}, got {value!r}; leave it out, or make a "
                    f"BloomDeduplicator of your own"
                )
        return made


def get_deduplicator(expected_items: int | None = None, false_positive_rate: float | None = None) -> BloomDeduplicator:
    """That of the first engine of this process, `hold.workflows.deduplicator`; without an engine, that of the program.

    See `DeduplicatorHolder.get`.
    """
    return _default().get().get(expected_items, false_positive_rate)


def offer_default(holder: DeduplicatorHolder) -> None:
    """Be the holder of programs that have no engine at hand, if there is no other."""
    _default().offer(holder)


@cache
def _default() -> Default[DeduplicatorHolder]:
    return Default(DeduplicatorHolder)


def _check(expected_items: object, false_positive_rate: object) -> None:
    if isinstance(expected_items, bool) or not isinstance(expected_items, int) or expected_items < 1:
        raise ValueError(
            f"BloomDeduplicator.expected_items must be a whole number of at least 1, got {expected_items!r}; "
            f"use {EXPECTED_ITEMS}"
        )
    rate = false_positive_rate
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < 1:
        raise ValueError(
            f"BloomDeduplicator.false_positive_rate must be above 0 and below 1, got {rate!r}; "
            f"use {FALSE_POSITIVE_RATE}"
        )
