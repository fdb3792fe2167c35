"""How many dead letters are kept, and what gives way when there are more."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from holdfast.errors import PolicyError

if TYPE_CHECKING:
    from holdfast.letters.repository import FailedOperationRepository

_SHARERS: Final = 16  # so many processes may fill the store between two looks without passing the cap by much


class Overflow(StrEnum):
    """What happens to a letter that finds no room."""

    DROP_OLDEST = "drop_oldest"
    REJECT = "reject"
    COMPRESS_OLDEST = "compress_oldest"


class Rejection(StrEnum):
    """Why a letter was not kept."""

    DOMAIN_CAPACITY = "domain_capacity_exceeded"
    TOTAL_CAPACITY = "dlq_capacity_exceeded"


@dataclass(frozen=True, slots=True)
class Capacity:
    """At most so many active letters in all and in one domain; `overflow` says what gives way."""

    total: int = 100_000
    per_domain: int = 20_000
    overflow: Overflow | str = Overflow.DROP_OLDEST

    def __post_init__(self) -> None:
        for name in ("total", "per_domain"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise PolicyError(f"Capacity.{name} must be a whole number of at least 1, got {value!r}")
        try:
            object.__setattr__(self, "overflow", Overflow(self.overflow))
        except ValueError:
            names = ", ".join(Overflow)
            raise PolicyError(f"Capacity.overflow must be one of {names}, got {self.overflow!r}") from None


class Room:
    """Sees to it that there is room for one more letter.

    The store counts; this only remembers how many letters may surely come before it has to look again.
    """

    def __init__(self, repository: FailedOperationRepository, capacity: Capacity) -> None:
        self._repository = repository
        self.capacity = capacity
        self._lock = threading.Lock()
        self._sure: dict[str | None, int] = {}
        self.evicted = 0
        self.is_crowded = False

    def make(self, domain: str, *, may_evict: bool = True) -> Rejection | None:
        """Make room for a letter of this domain, or say why there is none.

        Where nothing may go the cap is passed, rather than a failure lost: `is_crowded` says so.
        """
        if self._is_sure(domain):
            return None
        self.is_crowded = False
        checks = (
            (None, self.capacity.total, Rejection.TOTAL_CAPACITY),
            (domain, self.capacity.per_domain, Rejection.DOMAIN_CAPACITY),
        )
        for scope, cap, reason in checks:
            here = self._repository.count_all() if scope is None else self._repository.count_by_domain(scope)
            if here >= cap:
                if self.capacity.overflow is Overflow.REJECT:
                    return reason
                if may_evict:
                    here -= self._evict(here - cap + 1 + cap // 100, scope)
                self.is_crowded = self.is_crowded or (may_evict and here >= cap)
            with self._lock:
                self._sure[scope] = max(0, cap - here - 1) // _SHARERS
        return None

    def _is_sure(self, domain: str) -> bool:
        with self._lock:
            if self._sure.get(None, 0) <= 0 or self._sure.get(domain, 0) <= 0:
                return False
            self._sure[None] -= 1
            self._sure[domain] -= 1
            return True

    def _evict(self, count: int, domain: str | None) -> int:
        """Letters that went; none when all are in flight."""
        if self.capacity.overflow is Overflow.COMPRESS_OLDEST:
            gone = self._repository.compress_and_evict_oldest(count, domain)
        else:
            gone = self._repository.evict_oldest(count, domain)
        with self._lock:
            self.evicted += gone
        return gone
