"""Turn the figures of a run into tables, the bar, and the page in the documentation."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.outbox.rows import (
    BY_KEY,
    COUNTED_ROWS,
    DRAIN_ROWS,
    ENQUEUE_ROWS,
    GROWN_ROWS,
    GROWTH,
    LATENCY_ROWS,
    ROWS,
    SERVERS,
    TITLES,
    Row,
)
from benchmarks.outbox.run import OutboxWish
from benchmarks.report import figure, over, ratio
from benchmarks.store import report as store_report
from benchmarks.store.report import BAR, Drawn, Target, per_second
from benchmarks.store.run import Results

HERE = Path(__file__).parent
PEERS = ("effaced", "pgqueuer", "procrastinate", "dbos")
CALLS = ("what", "database", "floor", "in a Session", "ours", "per second", "ours of floor", *PEERS)
GROWN = ("what", "database", "fewest", "more", "most", "ratio")
COUNTS = ("what", "database", "figure", "ours", *PEERS)


@dataclass(frozen=True, slots=True)
class Line:
    """One row on one database with its figures."""

    row: Row
    store: str
    values: dict[str, float]
    counts: dict[str, dict[str, float]]
    errors: dict[str, str]

    @property
    def title(self) -> list[str]:
        return [self.row.title, TITLES[self.store]]

    @property
    def share(self) -> float | None:
        """Our speed as a share of the floor's."""
        return over(self.values.get("floor"), self.values.get("ours"))

    @property
    def sizes(self) -> list[float]:
        """From the smallest table to the largest."""
        labels = sorted(self.values, key=lambda label: int(label.replace(",", "")))
        return [self.values[label] for label in labels]

    def cell(self, label: str) -> str:
        return "error" if label in self.errors else figure(self.values.get(label))


def lines(results: Results) -> list[Line]:
    made = []
    for row in ROWS:
        for store in row.stores:
            found = {label: results.value(row.key, store, label) for label in results.labels(row.key, store)}
            values = {label: value for label, value in found.items() if value is not None}
            counts = {case[2]: c for case, c in results.counts.items() if case[:2] == (row.key, store)}
            errors = {case[2]: e for case, e in results.errors.items() if case[:2] == (row.key, store)}
            if values or counts or errors:
                made.append(Line(row, store, values, counts, errors))
    return made


def calls(measured: Iterable[Line], rows: tuple[Row, ...]) -> Drawn:
    table = [
        [
            *line.title,
            line.cell("floor"),
            line.cell("session"),
            line.cell("ours"),
            per_second(line.values.get("ours")),
            ratio(line.share),
            *(line.cell(label) for label in PEERS),
        ]
        for line in measured
        if line.row in rows
    ]
    return CALLS, table


def grown(measured: Iterable[Line]) -> Drawn:
    table = []
    for line in measured:
        if line.row in GROWN_ROWS and line.values:
            cells = [figure(value) for value in line.sizes]
            cells = cells if len(cells) > 2 else [*cells, *[""] * (3 - len(cells))]
            table.append([*line.title, *cells, ratio(growth(line))])
    return GROWN, table


def growth(line: Line) -> float | None:
    """The most that a larger table costs, over the smallest."""
    first, *more = line.sizes or [0.0]
    return over(max(more, default=None), first)


def counts(measured: Iterable[Line]) -> Drawn:
    table = [
        [*line.title, what, *(counted(line, label, what) for label in ("ours", *PEERS))]
        for line in measured
        if line.row in COUNTED_ROWS
        for what in line.row.limits
    ]
    return COUNTS, table


def counted(line: Line, label: str, what: str) -> str:
    found = line.counts.get(label, {}).get(what)
    return "" if found is None else f"{found:.2f}{' %' if what == 'cpu' else ''}"


def bar(measured: Iterable[Line]) -> list[Target]:
    return [target for line in measured for target in targets(line)]


def targets(line: Line) -> Iterator[Target]:
    """What is asked of a line."""
    row, ours = line.row, line.values.get("ours")
    if line.store in SERVERS:
        if row.share and line.share:
            yield Target(*line.title, "ours of floor", f"≥ {row.share:g}×", ratio(line.share), line.share >= row.share)
        in_session = over(line.values.get("session"), ours)
        if row.session_share and in_session:
            least = row.session_share
            yield Target(*line.title, "of floor in a Session", f"≥ {least:g}×", ratio(in_session), in_session >= least)
        if row.limit and line.share:
            took = 1 / line.share
            yield Target(*line.title, "ours / floor", f"≤ {row.limit:g}×", ratio(took), took <= row.limit)
        for peer, least in row.gains.items():
            gain = over(line.values.get(peer), ours)
            if gain:
                yield Target(*line.title, f"{peer} / ours", f"≥ {least:g}×", ratio(gain), gain >= least)
    if row.grows and (more := growth(line)):
        yield Target(*line.title, "most / fewest", f"≤ {GROWTH:g}×", ratio(more), more <= GROWTH)
    for what, most in row.limits.items():
        found = line.counts.get("ours", {}).get(what)
        if found is not None:
            yield Target(*line.title, what, f"≤ {most:g}", counted(line, "ours", what), found <= most)


def complaints(results: Results) -> list[str]:
    return store_report.complaints(results, BY_KEY, TITLES)


def tables(measured: list[Line]) -> dict[str, Drawn]:
    return {
        "drains": calls(measured, DRAIN_ROWS),
        "enqueues": calls(measured, ENQUEUE_ROWS),
        "latencies": calls(measured, LATENCY_ROWS),
        "grown": grown(measured),
        "counts": counts(measured),
        "bar": (BAR, [target.cells for target in bar(measured)]),
    }


def page(results: Results, wish: OutboxWish) -> str:
    """The Markdown page of a run."""
    return store_report.filled(
        HERE,
        results,
        wish,
        tables(lines(results)),
        complaints(results),
        entries=f"{wish.entries:,}",
        bulk=f"{wish.bulk:,}",
        sizes=", ".join(f"{size:,}" for size in wish.sizes),
    )
