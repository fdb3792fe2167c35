"""An endpoint, and what its last calls came to."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from holdfast.errors import PolicyError

REMEMBERED: Final = 100


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One of several places that can answer a call: a proxy, a replica, a region.

    `id` names it in metrics and events; `url` and `target` (a client, a connection) are for the guarded function.
    """

    id: str
    url: str | None = field(default=None, repr=False)  # may carry credentials
    region: str | None = None
    weight: float = 1.0
    target: Any = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.id or not isinstance(self.id, str):
            raise PolicyError(f"Endpoint.id must be a name, got {self.id!r}; it is how metrics speak of the endpoint")
        weight: object = self.weight
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < math.inf:
            raise PolicyError(
                f"Endpoint.weight must be a finite number, 0 or more, got {weight!r}; "
                "use 0 for a reserve that is only taken when nothing else is left"
            )

    @classmethod
    def of(cls, given: Endpoint | str) -> Endpoint:
        """An endpoint as it is; a URL becomes one that is named by host and port, anything else one of that name."""
        if isinstance(given, Endpoint):
            return given
        if not isinstance(given, str):
            raise PolicyError(
                f"an endpoint must be an Endpoint or a text, got {given!r}; use Endpoint('name', target=...)"
            )
        if "://" not in given:
            return cls(given)
        return cls(urlsplit(given).netloc.rpartition("@")[2] or given, given)

    def __str__(self) -> str:
        return self.id


class Statistics:
    """The last 100 calls of an endpoint. `latency` is their mean, 0 while unknown."""

    __slots__ = ("_good", "_latencies", "latency", "success_rate")

    def __init__(self) -> None:
        self._good: deque[bool] = deque(maxlen=REMEMBERED)
        self._latencies: deque[float] = deque(maxlen=REMEMBERED)
        self.success_rate = 0.5  # nobody knows yet
        self.latency = 0.0

    @property
    def calls(self) -> int:
        return len(self._good)

    def add(self, good: bool, latency: float) -> None:
        self._good.append(good)
        self._latencies.append(latency)
        self.success_rate = sum(self._good) / len(self._good)
        self.latency = sum(self._latencies) / len(self._latencies)
