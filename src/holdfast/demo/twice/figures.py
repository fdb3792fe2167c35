"""What a half comes to: its totals, and its course in slices of time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast import CircuitState
from holdfast.demo.twice.half import Answer, Call, Half


@dataclass(frozen=True, slots=True)
class Totals:
    """The figures of the summary. Times are in seconds; `wasted` is what callers waited for no fresh answer.

    `letters` failed orders were kept, of which `placed_later` are placed now; the last one `drained_in` seconds after
    the breaker closed. `lost` orders were not kept.
    """

    calls: int
    fresh: int
    fallback: int
    kept: int
    failed: int
    lost: int
    letters: int
    placed_later: int
    drained_in: float | None
    replays: int
    replays_while_open: int
    p50: float
    p99: float
    reached: int
    offered_in_outage: int
    reached_in_outage: int
    wasted: float
    retries: int
    refusals: dict[str, int]
    opened: int
    changes: int

    @property
    def answered(self) -> float:
        """The share of callers with an answer: fresh, the last known one, or that the order will be placed."""
        return (self.fresh + self.fallback + self.kept) / max(1, self.calls)

    @property
    def unplaced(self) -> int:
        """Orders that failed and are not placed: lost, or waiting as dead letters."""
        return self.lost + self.letters - self.placed_later


@dataclass(frozen=True, slots=True)
class Slice:
    """A short stretch: calls by their start, arrivals by their own time. Shares and p99 are None without calls.

    `unplaced` orders had failed and were not placed at its end.
    """

    start: float
    end: float
    answered: float | None
    fresh: float | None
    p99: float | None
    load: float
    unplaced: int


def totals(half: Half) -> Totals:
    """The figures of a half."""
    calls, letters = half.calls, half.letters
    took = sorted(call.took for call in calls)
    outage = half.outage
    tries = [at for letter in letters for at in letter.tries]
    placed = [letter.placed for letter in letters if letter.placed is not None]
    return Totals(
        calls=len(calls),
        fresh=sum(call.answer is Answer.FRESH for call in calls),
        fallback=sum(call.answer is Answer.FALLBACK for call in calls),
        kept=sum(call.answer is Answer.KEPT for call in calls),
        failed=sum(call.answer is Answer.FAILED for call in calls),
        lost=sum(call.is_order and call.answer is Answer.FAILED for call in calls),
        letters=len(letters),
        placed_later=len(placed),
        drained_in=drained_in(half),
        replays=len(tries),
        replays_while_open=sum(state_at(half, at) is CircuitState.OPEN for at in tries),
        p50=quantile(took, 0.50),
        p99=quantile(took, 0.99),
        reached=len(half.arrivals),
        offered_in_outage=sum(outage.start <= call.start < outage.end for call in calls),
        reached_in_outage=sum(outage.start <= at < outage.end for at in half.arrivals),
        wasted=sum(call.took for call in calls if call.answer is not Answer.FRESH),
        retries=len(half.retries),
        refusals=dict(half.refusals),
        opened=sum(change.state is CircuitState.OPEN for change in half.changes),
        changes=len(half.changes),
    )


def course(half: Half, slices: int) -> list[Slice]:
    """The half cut into equal slices."""
    width = half.seconds / slices
    by_start: list[list[Call]] = [[] for _ in range(slices)]
    for call in half.calls:
        by_start[_place(call.start, width, slices)].append(call)
    arrived = [0] * slices
    for at in half.arrivals:
        arrived[_place(at, width, slices)] += 1
    debts = _debts(half)
    unplaced = [sum(step for at, step in debts if at <= (n + 1) * width) for n in range(slices)]
    return [_slice(n * width, (n + 1) * width, by_start[n], arrived[n] / width, unplaced[n]) for n in range(slices)]


def closed_at(half: Half) -> float | None:
    """When the breaker closed for the last time."""
    return max((change.at for change in half.changes if change.state is CircuitState.CLOSED), default=None)


def drained_in(half: Half) -> float | None:
    """How many seconds after the breaker closed the last dead letter was placed; None if one was not."""
    closed = closed_at(half)
    ends = [letter.placed for letter in half.letters]
    if closed is None or not ends or None in ends:
        return None
    return max(end for end in ends if end is not None) - closed


def state_at(half: Half, moment: float) -> CircuitState:
    """The breaker's state."""
    state = CircuitState.CLOSED
    for change in half.changes:
        if change.at <= moment:
            state = change.state
    return state


def _debts(half: Half) -> list[tuple[float, int]]:
    """When an order failed (1), and when one that had failed was placed after all (-1)."""
    debts = [(call.end, 1) for call in half.calls if call.is_order and call.answer is Answer.FAILED]
    debts += [(letter.kept, 1) for letter in half.letters]
    return debts + [(letter.placed, -1) for letter in half.letters if letter.placed is not None]


def quantile(ordered: Sequence[float], q: float) -> float:
    """The nearest-rank quantile of sorted values; 0 for none."""
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)] if ordered else 0.0


def _place(moment: float, width: float, slices: int) -> int:
    # What arrives after the end (a late retry) belongs to the last slice.
    return min(int(moment / width + 1e-9), slices - 1)


def _slice(start: float, end: float, calls: list[Call], load: float, unplaced: int) -> Slice:
    if not calls:
        return Slice(start, end, None, None, None, load, unplaced)
    fresh = sum(call.answer is Answer.FRESH for call in calls) / len(calls)
    answered = sum(call.answer is not Answer.FAILED for call in calls) / len(calls)
    p99 = quantile(sorted(call.took for call in calls), 0.99)
    return Slice(start, end, answered, fresh, p99, load, unplaced)
