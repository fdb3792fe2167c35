"""The run in words: one line per event, at the time at which it was known."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.demo.dependency import PATIENCE, Stretch
from holdfast.demo.figures import quantile
from holdfast.demo.run import FAILURES_TO_OPEN, OPEN_FOR, Answer, Change, Half
from holdfast.machine.breaker import Trigger


class Line(NamedTuple):
    at: float
    text: str


def story(half: Half) -> list[Line]:
    """What happened, in order."""
    lines: list[Line] = []
    for stretch in half.stretches:
        lines.append(Line(stretch.start, stretch.spell.begins))
        lines.append(Line(stretch.end, _looking_back(half, stretch)))
    lines += [Line(change.at, _told(half, number)) for number, change in enumerate(half.changes)]
    return sorted(lines, key=lambda line: line.at)


def _looking_back(half: Half, stretch: Stretch) -> str:
    """What the calls that ended in a stretch came to."""
    ended = [call for call in half.calls if stretch.start <= call.end < stretch.end]
    answers = [call.answer for call in ended]
    fallback = answers.count(Answer.FALLBACK)
    waited = sum(call.took for call in ended if call.answer is not Answer.FRESH)
    parts = [f"{len(ended) - answers.count(Answer.FAILED)} of {len(ended)} answered"]
    if fallback:
        parts.append(f"{fallback} by the fallback")
    if waited >= 10:
        parts.append(f"{waited:.0f} s waited for nothing")
    else:
        parts.append(f"p99 {1000 * quantile(sorted(call.took for call in ended), 0.99):.0f} ms")
    return f"{stretch.spell.name}: {', '.join(parts)}"


def _told(half: Half, number: int) -> str:
    change = half.changes[number]
    match change.cause:
        case Trigger.TRIPPED:
            down = half.outage.start <= change.at < half.outage.end
            instead = f", not after {PATIENCE:g} s" if down else ""
            return f"{FAILURES_TO_OPEN} failures in a row, breaker opens: answers at once{instead}"
        case Trigger.PROBE_ADMITTED:
            return "breaker half-open: one call goes through as a probe"
        case Trigger.RELAPSED:
            return f"the probe failed, breaker open for another {OPEN_FOR:g} s"
        case Trigger.RECOVERED:
            return f"the probe succeeded, breaker closes after {_shut_out(half, change):.1f} s: fresh answers"
        case _:
            return f"breaker: {change.state.replace('_', '-')} ({change.cause})"


def _shut_out(half: Half, closed: Change) -> float:
    """For how long the breaker had not been closed."""
    tripped = [change.at for change in half.changes if change.at < closed.at and change.cause == Trigger.TRIPPED]
    return closed.at - max(tripped, default=closed.at)
