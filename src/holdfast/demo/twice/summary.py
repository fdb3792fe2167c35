"""Both halves side by side: as rows of text, and as a sentence."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.demo.twice.figures import Totals
from holdfast.demo.twice.half import Half


class Row(NamedTuple):
    what: str
    bare: str
    guarded: str


def heading(half: Half) -> str:
    return f"The same {half.seconds:g} s of trouble, twice (seed {half.seed})"


def rows(bare: Totals, guarded: Totals) -> list[Row]:
    """The summary, line by line."""
    lines = [
        Row("callers answered", *(f"{100 * t.answered:.1f} %" for t in (bare, guarded))),
        Row("  fresh / fallback / kept / failed", *(_answers(t) for t in (bare, guarded))),
        Row("orders lost for good", f"{bare.unplaced}", f"{guarded.unplaced}"),
        Row("  kept as dead letters / placed", "none kept", f"{guarded.letters} / {guarded.placed_later}"),
        Row("  placed after the breaker closed", "never", _seconds(guarded.drained_in)),
        Row("  replays / while it was open", "none", f"{guarded.replays} / {guarded.replays_while_open}"),
        Row("latency p50", _ms(bare.p50), _ms(guarded.p50)),
        Row("latency p99", _ms(bare.p99), _ms(guarded.p99)),
        Row("waited without a fresh answer", f"{bare.wasted:.0f} s", f"{guarded.wasted:.1f} s"),
        Row("calls made to the dependency", f"{bare.reached}", f"{guarded.reached}"),
        Row("  of them during the outage", f"{bare.reached_in_outage}", f"{guarded.reached_in_outage}"),
        Row("retries", f"{bare.retries}", f"{guarded.retries}"),
    ]
    for reason, times in guarded.refusals.items():
        lines.append(Row(f"refused, {reason.replace('_', ' ')}", "0", f"{times}"))
    lines.append(Row("breaker opened", "no breaker", f"{guarded.opened} times"))
    return lines


def closing(bare: Totals, guarded: Totals) -> str:
    """What the guard did, in two sentences."""
    kept_away = bare.reached_in_outage - guarded.reached_in_outage
    return (
        f"The guard answered {100 * guarded.answered:.1f} % of {guarded.calls} callers instead of "
        f"{100 * bare.answered:.1f} %, cut p99 from {_ms(bare.p99)} to {_ms(guarded.p99)}, kept {kept_away} of "
        f"{bare.reached_in_outage} calls away from the dependency while it was down, and saved callers "
        f"{bare.wasted - guarded.wasted:.0f} s of waiting for nothing. {_orders(bare, guarded)}"
    )


def _orders(bare: Totals, guarded: Totals) -> str:
    if guarded.drained_in is None:
        return f"It lost {guarded.unplaced} orders instead of {bare.unplaced}."
    return (
        f"Without it {bare.unplaced} orders were lost for good; with it {guarded.letters} were kept as dead letters, "
        f"and all of them placed within {guarded.drained_in:.1f} s after the breaker closed."
    )


def _answers(sums: Totals) -> str:
    return f"{sums.fresh} / {sums.fallback} / {sums.kept} / {sums.failed}"


def _seconds(seconds: float | None) -> str:
    return "never" if seconds is None else f"in {seconds:.1f} s"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms"
