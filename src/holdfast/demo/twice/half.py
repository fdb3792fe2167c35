"""What happened in one half of the demo, as its callers, its breaker and its store tell it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from holdfast import CircuitState
from holdfast.demo.twice.dependency import Stretch

RATE: Final = 120  # calls per second
ORDERS: Final = 4  # one call in so many is an order, the others ask for a price


class Answer(StrEnum):
    """What a caller got: the answer, the last known price, the promise that the order will be placed, or nothing."""

    FRESH = "fresh"
    FALLBACK = "fallback"
    KEPT = "kept"
    FAILED = "failed"


class Call(NamedTuple):
    """One call as its caller saw it."""

    start: float
    end: float
    answer: Answer
    is_order: bool

    @property
    def took(self) -> float:
        return self.end - self.start


class Change(NamedTuple):
    """The breaker moved."""

    at: float
    state: CircuitState
    cause: str


class Letter(NamedTuple):
    """An order that failed and was kept: when it was, when it was tried again, and when it was placed, if it was."""

    kept: float
    tries: tuple[float, ...]
    placed: float | None


@dataclass(frozen=True, slots=True)
class Half:
    """Everything that happened in one half.

    `placed` says how often each order was; `letters` come oldest first, and went out in `rounds`.
    """

    name: str
    seed: int
    seconds: float
    stretches: tuple[Stretch, ...]
    calls: tuple[Call, ...]
    arrivals: tuple[float, ...]
    placed: Mapping[int, int]
    changes: tuple[Change, ...] = ()
    retries: tuple[float, ...] = ()
    refusals: Mapping[str, int] = field(default_factory=dict)
    letters: tuple[Letter, ...] = ()
    rounds: int = 0

    @property
    def outage(self) -> Stretch:
        return next(stretch for stretch in self.stretches if stretch.spell.down)
