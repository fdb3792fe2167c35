"""What a half comes to: its totals, and its course in slices of time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast import CircuitState
from holdfast.demo.run import Answer, Call, Half


@dataclass(frozen=True, slots=True)
class Totals:
    """The figures of the summary. Times are in seconds; `wasted` is what callers waited for no fresh answer."""

    calls: int
    fresh: int
    fallback: int
    failed: int
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
        """The share of callers with an answer, fresh or not."""
        return (self.fresh + self.fallback) / max(1, self.calls)


@dataclass(frozen=True, slots=True)
class Slice:
    """A short stretch: calls by their start, arrivals by their own time. Shares and p99 are None without calls."""

    start: float
    end: float
    answered: float | None
    fresh: float | None
    p99: float | None
    load: float


def totals(half: Half, until: float = math.inf) -> Totals:
    """The figures of a half, as far as they were known at the time `until`."""
    calls = [call for call in half.calls if call.end <= until]
    took = sorted(call.took for call in calls)
    outage = half.outage
    opened = [change for change in half.changes if change.at <= until]
    return Totals(
        calls=len(calls),
        fresh=sum(call.answer is Answer.FRESH for call in calls),
        fallback=sum(call.answer is Answer.FALLBACK for call in calls),
        failed=sum(call.answer is Answer.FAILED for call in calls),
        p50=quantile(took, 0.50),
        p99=quantile(took, 0.99),
        reached=sum(at <= until for at in half.arrivals),
        offered_in_outage=sum(outage.start <= call.start < min(outage.end, until) for call in half.calls),
        reached_in_outage=sum(outage.start <= at < min(outage.end, until) for at in half.arrivals),
        wasted=sum(call.took for call in calls if call.answer is not Answer.FRESH),
        retries=sum(at <= until for at in half.retries),
        refusals=dict(half.refusals),
        opened=sum(change.state is CircuitState.OPEN for change in opened),
        changes=len(opened),
    )


def course(half: Half, slices: int, until: float = math.inf) -> list[Slice]:
    """The half cut into equal slices; what was not known at `until` is left out, so the last one is still filling."""
    width = half.seconds / slices
    by_start: list[list[Call]] = [[] for _ in range(slices)]
    for call in half.calls:
        if call.end <= until:
            by_start[_place(call.start, width, slices)].append(call)
    arrived = [0] * slices
    for at in half.arrivals:
        if at <= until:
            arrived[_place(at, width, slices)] += 1
    shown = slices if until >= half.seconds else math.ceil(until / width)
    return [_slice(n * width, (n + 1) * width, by_start[n], arrived[n] / width) for n in range(shown)]


def state_at(half: Half, moment: float) -> CircuitState:
    """The breaker's state."""
    state = CircuitState.CLOSED
    for change in half.changes:
        if change.at <= moment:
            state = change.state
    return state


def state_in(half: Half, start: float, end: float) -> CircuitState:
    """The state to show for a slice: a probe is short, and must not be lost between two slices."""
    seen = {state_at(half, start), *(change.state for change in half.changes if start < change.at <= end)}
    return CircuitState.HALF_OPEN if CircuitState.HALF_OPEN in seen else state_at(half, end)


def quantile(ordered: Sequence[float], q: float) -> float:
    """The nearest-rank quantile of sorted values; 0 for none."""
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)] if ordered else 0.0


def _place(moment: float, width: float, slices: int) -> int:
    # What arrives after the end (a late retry) belongs to the last slice.
    return min(int(moment / width + 1e-9), slices - 1)


def _slice(start: float, end: float, calls: list[Call], load: float) -> Slice:
    if not calls:
        return Slice(start, end, None, None, None, load)
    fresh = sum(call.answer is Answer.FRESH for call in calls) / len(calls)
    answered = sum(call.answer is not Answer.FAILED for call in calls) / len(calls)
    return Slice(start, end, answered, fresh, quantile(sorted(call.took for call in calls), 0.99), load)
