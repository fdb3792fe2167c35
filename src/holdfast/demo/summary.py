"""Both halves side by side: as rows of text, as a sentence, as plain values."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, NamedTuple

from holdfast.demo.figures import Totals, totals
from holdfast.demo.run import Half


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
        Row("  fresh / fallback / failed", *(f"{t.fresh} / {t.fallback} / {t.failed}" for t in (bare, guarded))),
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
    """What the guard did, in one sentence."""
    kept_away = bare.reached_in_outage - guarded.reached_in_outage
    return (
        f"The guard answered {100 * guarded.answered:.1f} % of {guarded.calls} callers instead of "
        f"{100 * bare.answered:.1f} %, cut p99 from {_ms(bare.p99)} to {_ms(guarded.p99)}, kept {kept_away} of "
        f"{bare.reached_in_outage} calls away from the dependency while it was down, and saved callers "
        f"{bare.wasted - guarded.wasted:.0f} s of waiting for nothing."
    )


def as_json(bare: Half, guarded: Half, picture: str) -> dict[str, Any]:
    """The summary as plain values; times in seconds."""
    return {
        "seed": bare.seed,
        "seconds": bare.seconds,
        "bare": _plain(bare),
        "guarded": _plain(guarded),
        "picture": picture,
    }


def _plain(half: Half) -> dict[str, Any]:
    figures = totals(half)
    return {
        **{name: _rounded(value) for name, value in asdict(figures).items()},
        "answered": _rounded(figures.answered),
        "changes": [{"at": _rounded(at), "state": state.value, "cause": cause} for at, state, cause in half.changes],
    }


def _rounded(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms"
