"""Turn the figures of a run into tables, the bar, and the page in the documentation."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.report import figure, over, ratio
from benchmarks.store import report as store_report
from benchmarks.store.report import BAR, Drawn, Target, per_second
from benchmarks.store.run import Results
from benchmarks.workflows.rows import (
    BY_KEY,
    COUNTED_ROWS,
    GROWN_ROWS,
    GROWTH,
    ROWS,
    STEP_ROWS,
    TITLES,
    WHOLE_ROWS,
    Row,
)
from benchmarks.workflows.run import WorkflowsWish

HERE = Path(__file__).parent
PEERS = ("dbos", "stabilize")
CALLS = ("what", "database", "floor", "group floor", "ours", "per second", "of floor", "of group floor", *PEERS)
GROWN = ("what", "database", "fewest", "more", "most", "ratio")
COUNTS = ("what", "database", "figure", "ours")
SPREAD = ("what", "database", "ours, best", "middle", "slowest", "floor / ours, middle", "dbos / ours, middle")


@dataclass(frozen=True, slots=True)
class Line:
    """One row on one database with its figures."""

    row: Row
    store: str
    values: dict[str, float]
    samples: dict[str, list[float]]
    counts: dict[str, dict[str, float]]
    errors: dict[str, str]

    @property
    def title(self) -> list[str]:
        return [self.row.title, TITLES[self.store]]

    def share(self, floor: str) -> float | None:
        """Our speed as a share of a floor's."""
        return over(self.values.get(floor), self.values.get("ours"))

    @property
    def sizes(self) -> dict[str, float]:
        """From the fewest to the most."""
        return {label: self.values[label] for label in sorted(self.values, key=lambda label: int(_size(label)))}

    def middle(self, label: str) -> float | None:
        """The middle one of all samples."""
        return median(self.samples[label]) if label in self.samples else None

    @property
    def counted(self) -> dict[str, float]:
        """What was counted of ours."""
        return {what: number for counts in self.counts.values() for what, number in counts.items()}

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
                made.append(Line(row, store, values, results.all(row.key, store), counts, errors))
    return made


def _size(label: str) -> str:
    return label.split()[0].replace(",", "")


def calls(measured: Iterable[Line], rows: tuple[Row, ...]) -> Drawn:
    table = [
        [
            *line.title,
            line.cell("floor"),
            line.cell("group floor"),
            line.cell("ours"),
            per_second(line.values.get("ours")),
            ratio(line.share("floor")),
            ratio(line.share("group floor")),
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
            cells = [figure(value) for value in line.sizes.values()]
            table.append([*line.title, *cells, *[""] * (3 - len(cells)), ratio(growth(line))])
    return GROWN, table


def growth(line: Line) -> float | None:
    """The most that more of it costs, over the fewest."""
    first, *more = line.sizes.values() or [0.0]
    return over(max(more, default=None), first)


def spread(measured: Iterable[Line]) -> Drawn:
    """How far our samples lie apart, and what the middle ones say."""
    table = []
    for line in measured:
        for label in line.sizes if line.row in GROWN_ROWS else ("ours",):
            if samples := line.samples.get(label):
                title = f"{line.row.title}: {label.split()[0]}" if line.row in GROWN_ROWS else line.row.title
                middle = line.middle(label)
                shares = [ratio(over(line.middle(other), middle)) for other in ("floor", "dbos")]
                cells = [figure(value) for value in (min(samples), middle, max(samples))]
                table.append([title, TITLES[line.store], *cells, *shares])
    return SPREAD, table


def counts(measured: Iterable[Line]) -> Drawn:
    table = [
        [*line.title, what, f"{number:.2f}"]
        for line in measured
        if line.row in COUNTED_ROWS
        for what, number in line.counted.items()
    ]
    return COUNTS, table


def bar(measured: Iterable[Line]) -> list[Target]:
    return [target for line in measured for target in targets(line)]


def targets(line: Line) -> Iterator[Target]:
    """What is asked of a line."""
    row, ours = line.row, line.values.get("ours")
    share = line.share("floor")
    if row.share and share:
        yield Target(*line.title, "ours of floor", f"≥ {row.share:g}×", ratio(share), share >= row.share)
    for peer, least in ((peer, by_store.get(line.store)) for peer, by_store in row.gains.items()):
        gain = over(line.values.get(peer), ours)
        if gain and least:
            yield Target(*line.title, f"{peer} / ours", f"≥ {least:g}×", ratio(gain), gain >= least)
    most_ms = row.most_ms.get(line.store)
    if most_ms and ours:
        yield Target(*line.title, "milliseconds", f"≤ {most_ms:g}", f"{ours / 1e3:.1f}", ours / 1e3 <= most_ms)
    if row.grows and (more := growth(line)):
        yield Target(*line.title, "most / fewest", f"≤ {GROWTH:g}×", ratio(more), more <= GROWTH)
    for what, limits in row.limits.items():
        found, most = line.counted.get(what), limits.get(line.store)
        if found is not None and most is not None:
            yield Target(*line.title, what, f"≤ {most:g}", f"{found:.2f}", found <= most)


def complaints(results: Results) -> list[str]:
    return store_report.complaints(results, BY_KEY, TITLES)


def tables(measured: list[Line]) -> dict[str, Drawn]:
    return {
        "steps": calls(measured, STEP_ROWS),
        "wholes": calls(measured, WHOLE_ROWS),
        "grown": grown(measured),
        "spread": spread(measured),
        "counts": counts(measured),
        "bar": (BAR, [target.cells for target in bar(measured)]),
    }


def page(results: Results, wish: WorkflowsWish) -> str:
    """The Markdown page of a run."""
    return store_report.filled(
        HERE,
        results,
        wish,
        tables(lines(results)),
        complaints(results),
        chain=f"{wish.chain:,}",
        crowd=f"{wish.crowd:,}",
        fans=", ".join(f"{size:,}" for size in wish.fans),
        kept=", ".join(f"{size:,}" for size in wish.kept),
    )
