"""Which of the available endpoints to call: pure choices over scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final, TypeVar

from holdfast.errors import PolicyError

M = TypeVar("M")

SUCCESS_SHARE: Final = 0.7
LATENCY_SHARE: Final = 0.3
HOME_BONUS: Final = 1.1


class Choose(StrEnum):
    """How to choose. All but `first` and `weighted` look at the score."""

    FIRST = "first"  # in list order: a primary and its reserves
    BEST = "best"  # the highest score; every caller takes the same one
    WEIGHTED = "weighted"  # by chance, in proportion to the endpoints' weights
    P2C = "p2c"  # the better of two random ones


def check_choice(name: str) -> Choose:
    """Raises PolicyError for an unknown way to choose."""
    try:
        return Choose(name)
    except ValueError:
        raise PolicyError(f"EndpointPool.choose must be one of {', '.join(Choose)}, got {name!r}; use 'p2c'") from None


def score(success_rate: float, latency: float, highest_latency: float, at_home: bool = False) -> float:
    """How good an endpoint is, from 0 to 1; `highest_latency` is that of the slowest endpoint."""
    slowness = latency / highest_latency if highest_latency > 0 else 0.0
    points = SUCCESS_SHARE * success_rate + LATENCY_SHARE * (1.0 - slowness)
    return min(1.0, points * HOME_BONUS) if at_home else points


def pick(
    choose: Choose,
    candidates: Sequence[M],
    score_of: Callable[[M], float],
    weight_of: Callable[[M], float],
    rng: Callable[[], float],
) -> M:
    """One of the candidates, which must not be empty; of equal ones the first."""
    if choose is Choose.FIRST or len(candidates) == 1:
        return candidates[0]
    if choose is Choose.BEST:
        return max(candidates, key=score_of)
    if choose is Choose.WEIGHTED:
        return _weighted(candidates, weight_of, rng)
    # Drawn independently: in a pool of two, two different ones would be all, and everybody would take the better.
    first, second = sorted((int(rng() * len(candidates)), int(rng() * len(candidates))))
    return max(candidates[first], candidates[second], key=score_of)


def _weighted(candidates: Sequence[M], weight_of: Callable[[M], float], rng: Callable[[], float]) -> M:
    drawn = rng() * sum(weight_of(one) for one in candidates)
    for one in candidates:
        drawn -= weight_of(one)
        if drawn < 0:
            return one
    # Only reserves of weight 0 are left, or the last draw was lost in rounding.
    return max(candidates, key=weight_of)
