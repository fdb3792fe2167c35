"""The run in words: one line per event, at the time at which it was known."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.demo.dependency import PATIENCE, Stretch
from holdfast.demo.figures import closed_at, drained_in, quantile
from holdfast.demo.half import Answer, Change, Half
from holdfast.demo.keeping import FAILURES_TO_OPEN, OPEN_FOR
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
    lines += _letters(half)
    return sorted(lines, key=lambda line: line.at)


def _looking_back(half: Half, stretch: Stretch) -> str:
    """What the calls that ended in a stretch came to."""
    ended = [call for call in half.calls if stretch.start <= call.end < stretch.end]
    answers = [call.answer for call in ended]
    fallback, kept = answers.count(Answer.FALLBACK), answers.count(Answer.KEPT)
    lost = sum(call.is_order and call.answer is Answer.FAILED for call in ended)
    waited = sum(call.took for call in ended if call.answer is not Answer.FRESH)
    parts = [f"{len(ended) - answers.count(Answer.FAILED)} of {len(ended)} answered"]
    if fallback:
        parts.append(f"{fallback} by fallback")
    if kept:
        parts.append(f"{kept} kept")
    if lost:
        parts.append(f"{lost} orders lost")
    if waited >= 10:
        parts.append(f"{waited:.0f} s waited in vain")
    else:
        parts.append(f"p99 {1000 * quantile(sorted(call.took for call in ended), 0.99):.0f} ms")
    return f"{stretch.spell.name}: {', '.join(parts)}"


def _letters(half: Half) -> list[Line]:
    """The dead letters' way: the first one, and after the recovery the first replay and the last."""
    if not half.letters:
        return []
    closed, drained = closed_at(half), drained_in(half)
    kept = f"an order failed: kept as a dead letter in {half.store}, to be placed later"
    lines = [Line(half.letters[0].kept, kept)]
    if closed is not None:
        begun = [at for letter in half.letters for at in letter.tries if at >= closed]
        lines += [Line(at, "dead letters drain: one first, then more while all goes well") for at in sorted(begun)[:1]]
        if drained is not None:
            whole = f"all {len(half.letters)} placed in {half.rounds} rounds, {drained:.1f} s after the breaker closed"
            lines.append(Line(closed + drained, whole))
    return lines


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
