"""Turn the figures of a run into tables, the bar, and the page in the documentation."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.report import Table, machine, markdown_table
from benchmarks.server.rows import FLOODS, GROUPS, OPERATORS
from benchmarks.server.run import CONNECTIONS, HEALTH, TOKENS, Results, ServerWish, Traffic
from benchmarks.server.setup import TITLES
from benchmarks.store.report import BAR, Drawn, Target

HERE = Path(__file__).parent
ASKED = ("what", "store", "found", "p50 ms", "p95 ms", "bar", "")
READS = ("figure", *TITLES.values())
REPLAYS = ("store", "letters", "done at the kill", "resolved", "replayed twice", "seconds")
SOON_MS = 250.0
"""What a probe may take, 95 times of 100, while far more is asked of the server than it can do."""
OPERATOR_MS = 500.0
"""What an operator's page may take meanwhile. Up to a second people go on thinking of what they do; half of it is the
server's, the other half the network's and the browser's.
"""


def percentile(sorted_times: Sequence[float], share: float) -> float:
    return sorted_times[min(len(sorted_times) - 1, int(len(sorted_times) * share))]


def asked(results: Results, group: str) -> Drawn:
    table = []
    for row in GROUPS[group]:
        for store, title in TITLES.items():
            if times := sorted(results.figures.get((row.key, store), ())):
                p95, most = percentile(times, 0.95), row.most_ms[store]
                found = results.found.get((row.key, store))
                table.append([
                    row.title or row.path, title, "" if found is None else f"{found:.0f}",
                    f"{percentile(times, 0.5):.1f}", f"{p95:.1f}", f"≤ {most:g}", "met" if p95 <= most else "missed",
                ])  # fmt: skip
    return ASKED, table


def reads(results: Results, flood: str) -> Drawn:
    """What became of very many requests, a column for each store."""
    columns = {store: dict(_told(one)) for store in TITLES if (one := results.traffic.get((flood, store)))}
    names = dict.fromkeys(name for told in columns.values() for name in told)
    return READS, [[name, *(columns.get(store, {}).get(name, "") for store in TITLES)] for name in names]


def _told(one: Traffic) -> Iterator[tuple[str, str]]:
    yield "requests a second, asked for", f"{one.sent / one.took_s:,.0f}"
    for status, times in sorted(one.latencies.items()):
        yield f"{status}, a second", f"{len(times) / one.took_s:,.0f}"
        yield f"{status}, p50 / p95 / longest, ms", _spread(times)
    yield "without an answer", f"{one.unanswered + one.broken:,}"
    for name, times in one.meanwhile.items():
        whose = name if name == HEALTH else f"the operator's {name.removeprefix('a ')}"
        yield f"{whose}, p50 / p95 / longest, ms", _spread(sorted(times))
        yield f"{whose}, refused", f"{one.refused.get(name, 0):,} of {len(times):,}"
    yield "the server's share of a core", f"{one.server_cpu:.2f}"
    yield "the readers' share of a core", f"{one.client_cpu:.2f}"


def _spread(times: Sequence[float]) -> str:
    if not times:
        return ""
    return " / ".join(f"{percentile(times, share):,.0f}" for share in (0.5, 0.95, 1.0))


def replays(results: Results) -> Drawn:
    table = [
        [TITLES[store], f"{one.total:,}", f"{one.done_at_kill:,}", f"{one.resolved:,}", f"{one.again:,}",
         f"{one.took_s:.0f}"]
        for store, one in results.replayed.items()
    ]  # fmt: skip
    return REPLAYS, table


def bar(results: Results) -> list[Target]:
    """The project's own, summed up: of the rows of each group the one that is nearest to its bar, or beyond it."""
    return [*_pages(results), *_crowds(results), *_operations(results)]


def _pages(results: Results) -> Iterator[Target]:
    for group, rows in GROUPS.items():
        for store, title in TITLES.items():
            judged = [
                (percentile(sorted(times), 0.95) / row.most_ms[store], row, percentile(sorted(times), 0.95))
                for row in rows if (times := results.figures.get((row.key, store)))
            ]  # fmt: skip
            if judged:
                share, row, p95 = max(judged, key=lambda one: one[0])
                met = sum(one[0] <= 1 for one in judged)
                what = f"p95 ms, {met} of {len(judged)} within; nearest: {row.title or row.path}"
                yield Target(group, title, what, f"≤ {row.most_ms[store]:g}", f"{p95:.1f}", share <= 1)


def _crowds(results: Results) -> Iterator[Target]:
    for (flood, store), one in results.traffic.items():
        group, title = f"reads, {flood}", TITLES[store]
        health = _p95(one.meanwhile[HEALTH])
        yield Target(group, title, "/health, p95 ms", f"≤ {SOON_MS:g}", f"{health:.0f}", health <= SOON_MS)
        name, p95 = max(((name, _p95(one.meanwhile[name])) for name in OPERATORS), key=lambda found: found[1])
        what = f"the operator's pages, p95 ms; longest: {name}"
        yield Target(group, title, what, f"≤ {OPERATOR_MS:g}", f"{p95:.0f}", p95 <= OPERATOR_MS)
        refused = sum(one.refused.values())
        yield Target(group, title, "refused to the operator or the probe", "0", f"{refused:,}", refused == 0)
        lost = one.unanswered + one.broken
        yield Target(group, title, "requests without an answer", "0", f"{lost:,}", lost == 0)


def _p95(times: Sequence[float]) -> float:
    return percentile(sorted(times), 0.95) if times else float("inf")


def _operations(results: Results) -> Iterator[Target]:
    for store, one in results.replayed.items():
        is_done = one.state == "done" and one.failed == 0 and one.resolved == one.total
        yield Target("bulk", TITLES[store], "resolved after the kill", f"{one.total:,}", f"{one.resolved:,}", is_done)


def tables(results: Results) -> dict[str, Drawn]:
    return {
        **{group: asked(results, group) for group in GROUPS},
        **{f"reads_{flood}": reads(results, flood) for flood in FLOODS},
        "replays": replays(results),
        "bar": (BAR, [target.cells for target in bar(results)]),
    }


def raw(results: Results) -> dict[str, Any]:
    """Every figure, for programs."""
    return {
        "ms": {" on ".join(case): times for case, times in results.figures.items()},
        "traffic": {" on ".join(case): vars(one) for case, one in results.traffic.items()},
        "replayed": {store: vars(one) for store, one in results.replayed.items()},
        "complaints": results.complaints,
        "took": results.took,
    }


def page(results: Results, wish: ServerWish) -> str:
    """The Markdown page of a run."""
    drawn = tables(results)
    judged = drawn["bar"][1]
    servers: Mapping[str, str] = {"SQLite": sqlite3.sqlite_version, **results.servers}
    took = ", ".join(f"{seconds:.0f} s of {what}" for what, seconds in results.took.items())
    return (HERE / "page.md").read_text().format(
        machine=machine(),
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        servers=", ".join(f"{name} {version}" for name, version in servers.items()),
        settings=f"{wish.rounds * wish.samples} requests for each row, in {wish.rounds} rounds; {took}",
        rows=f"{wish.rows_kept:,}",
        bulk=f"{wish.bulk:,}",
        rate=f"{wish.rate:,}",
        load_s=f"{wish.load_s:g}",
        connections=CONNECTIONS,
        tokens=TOKENS,
        each=f"{wish.rate // TOKENS:,}",
        soon=f"{SOON_MS:g}",
        operator=f"{OPERATOR_MS:g}",
        verdict=f"{sum(row[-1] == 'met' for row in judged)} of the {len(judged)} targets below are met.",
        trouble="\n".join(f"- {line}" for line in results.complaints or ["None."]),
        **{name: _drawn(*table) for name, table in drawn.items()},
    )  # fmt: skip


def _drawn(head: tuple[str, ...], table: Table) -> str:
    return markdown_table(head, table) if table else "Not measured in this run."
