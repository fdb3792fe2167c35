"""Turn the figures of a run into tables, ratios, the bar, and the page in the documentation."""

import os
import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.rows import BOTH, LEAN_LIMIT, ROWS, Row
from benchmarks.run import HERE, Results

MINE = ("bare", "floor", "least", "lean", "ours", "bare (peers)")
RATIOS = ("peer / ours", "lean / floor", "ours / bare")
SUMMARY = ("row", "colour", "bare", "floor", "lean", "ours", "best peer", "which", *RATIOS)
LEAST = ("row", "colour", "floor", "least", "ours", "best peer", "peer / least", "ours / least")
BAR = ("row", "colour", "what", "bar", "measured", "")
Table = list[list[str]]


@dataclass(frozen=True, slots=True)
class Line:
    """One row of one colour with its figures."""

    row: Row
    colour: str
    values: dict[str, float]
    errors: dict[str, str]

    @property
    def title(self) -> list[str]:
        return [self.row.title, self.colour if self.row.is_call else ""]

    @property
    def peers(self) -> dict[str, float]:
        return {label: value for label, value in self.values.items() if label not in MINE}

    @property
    def best(self) -> tuple[str, float] | None:
        return min(self.peers.items(), key=lambda item: item[1], default=None)

    @property
    def gain(self) -> float | None:
        return over(self.best and self.best[1], self.values.get("ours"))

    @property
    def lean_ratio(self) -> float | None:
        return over(self.values.get("lean"), self.values.get("floor"))

    @property
    def bare_ratio(self) -> float | None:
        return over(self.values.get("ours"), self.values.get("bare"))

    def cell(self, label: str) -> str:
        if label in self.errors:
            return "error"
        return figure(self.values.get(label), self.row.unit)


def over(above: float | None, below: float | None) -> float | None:
    return above / below if above and below else None


def figure(value: float | None, unit: str = "µs") -> str:
    if value is None:
        return ""
    if unit != "µs":
        return f"{value:,.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
    return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3}f}"


def ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}×" if value < 10 else f"{value:.0f}×"


def lines(results: Results) -> list[Line]:
    """The measured rows, each with its peers' figures or those it borrows."""
    made = []
    for row in ROWS:
        for colour in row.colours:
            sources = dict.fromkeys(results.labels(row.key, colour), row.key)
            sources |= dict.fromkeys(results.labels(row.peers_of, colour) - set(MINE), row.peers_of)
            values = {label: results.value(key, colour, label) for label, key in sources.items()}
            errors = {case[2]: e for case, e in results.errors.items() if case[:2] == (row.key, colour)}
            if values or errors:
                made.append(Line(row, colour, values, errors))
    return made


def summary(measured: Iterable[Line]) -> Table:
    return [
        [
            *line.title,
            *(line.cell(label) for label in ("bare", "floor", "lean", "ours")),
            figure(line.best[1], line.row.unit) if line.best else "",
            line.best[0] if line.best else "",
            ratio(line.gain),
            ratio(line.lean_ratio),
            ratio(line.bare_ratio),
        ]
        for line in measured
    ]


def least(measured: Iterable[Line]) -> Table:
    """What context and metrics cost at the least, in the rows where that was measured."""
    table = []
    for line in measured:
        value = line.values.get("least")
        if value:
            cells = [line.cell(label) for label in ("floor", "least", "ours")]
            best = line.best[1] if line.best else None
            ratios = [ratio(over(best, value)), ratio(over(line.values.get("ours"), value))]
            table.append([*line.title, *cells, figure(best), *ratios])
    return table


def all_peers(measured: list[Line]) -> tuple[list[str], Table]:
    labels = {label for line in measured for label in line.peers}
    table = [
        [*line.title, *(line.cell(label) for label in sorted(labels))]
        for line in measured
        if line.row.peers_of is None and not labels.isdisjoint(line.values)
    ]
    return ["row", "colour", *sorted(labels)], table


def bar(measured: Iterable[Line]) -> Table:
    """Each target of each row, what was measured, and whether it is met."""
    table = []
    for line in measured:
        for what, target, text, met in targets(line):
            verdict = "met" if met else "missed" if text else "no figure"
            table.append([*line.title, what, target, text, verdict])
    return table


def targets(line: Line) -> Iterable[tuple[str, str, str, bool]]:
    """What is asked of a line: the name of the figure, its bar, the measured text, and whether it is met."""
    row, ours, gain, lean = line.row, line.values.get("ours"), line.gain, line.lean_ratio
    if line.best and row.gain:
        bar = f"≥ {row.gain:g}×" if row.gain > 1 else "> 1×"
        yield "best peer / ours", bar, ratio(gain), bool(gain and gain >= row.gain and gain > 1)
    if "floor" in line.values:
        yield "lean / floor", f"≤ {LEAN_LIMIT:g}×", ratio(lean), bool(lean and lean <= LEAN_LIMIT)
    if row.limit:
        yield "ours", f"≤ {row.limit:g} {row.unit}", figure(ours, row.unit), bool(ours and ours <= row.limit)


def complaints(results: Results) -> list[str]:
    rows = {row.key: row.title for row in ROWS}
    return results.complaints + [
        f"{label}, {rows[key]} ({colour}): {error}" for (key, colour, label), error in results.errors.items()
    ]


def raw(results: Results) -> dict[str, Any]:
    """Every sample of a run."""
    cases = [dict(zip(("row", "colour", "label"), case, strict=True)) for case in results.figures]
    samples = [{**case, "figures": v} for case, v in zip(cases, results.figures.values(), strict=True)]
    return {"machine": machine(), "samples": samples, "trouble": complaints(results)}


def markdown_table(head: Iterable[str], table: Table) -> str:
    head = list(head)
    rows = [head, ["---" if i < 2 else "---:" for i in range(len(head))], *table]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def text_table(head: Iterable[str], table: Table) -> str:
    columns = [
        [f"{cell:<{width}}" if index < 2 else f"{cell:>{width}}" for cell in column]
        for index, column in enumerate(zip(head, *table, strict=True))
        for width in [max(map(len, column))]
    ]
    return "\n".join("  ".join(row) for row in zip(*columns, strict=True))


def machine() -> str:
    """The processor, its cores and the interpreter; nothing that names the machine."""
    info = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*:\s*(.+)$", info.read_text() if info.exists() else "", re.MULTILINE)
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{[*names, platform.machine()][0]}, {os.cpu_count()} cores, {platform.system()}, {python}"


def peer_versions(folder: Path) -> str:
    """The peers and their versions, as listed in the folder."""
    return ", ".join((folder / "peers.txt").read_text().split()).replace("[binary]", "").replace("==", " ")


def page(results: Results, settings: str) -> str:
    """The Markdown page of a run."""
    measured = lines(results)
    judged = bar(measured)
    met = sum(row[-1] == "met" for row in judged)
    bare = [results.value("retry", colour, label) for colour in BOTH for label in ("bare", "bare (peers)")]
    template = (HERE / "page.md").read_text()
    return template.format(
        machine=machine(),
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        settings=settings,
        versions=peer_versions(HERE),
        summary=markdown_table(SUMMARY, summary(measured)),
        peers=markdown_table(*all_peers(measured)),
        bar=markdown_table(BAR, judged),
        least=markdown_table(LEAST, least(measured)),
        verdict=f"{met} of the {len(judged)} targets below are met.",
        bare=", ".join(figure(value) or "?" for value in bare),
        trouble="\n".join(f"- {line}" for line in complaints(results) or ["None."]),
    )
