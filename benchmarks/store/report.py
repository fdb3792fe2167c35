"""Turn the figures of a run into tables, the bar, and the page in the documentation."""

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.report import Table, figure, machine, markdown_table, over, peer_versions, ratio
from benchmarks.store.rows import (
    BREAKER_ROWS,
    BY_KEY,
    GROWTH,
    LETTER_ROWS,
    REPLAY,
    ROWS,
    SHARED_ROWS,
    SHARING,
    TITLES,
    Row,
)
from benchmarks.store.run import Results, StoreWish, Wish

HERE = Path(__file__).parent
MINE = ("ours", "floor", "raw", "bare", "grown", "unshared")
CALLS = ("method", "store", "floor", "ours", "calls / s", "best peer", "which", "ours of floor", "peer / ours")
GROWN = ("method", "store", "letters only", "with the done ones", "ratio")
COUNTS = ("method", "store", "ours", "floor", "baldur")
SHARED = ("call", "store", "alone", "shared", "ratio", "peer", "which")
BAR = ("row", "store", "what", "bar", "measured", "")
REPLAYS = ("store", "", "a letter", "letters / s", "acquire + complete", "ratio")
Drawn = tuple[tuple[str, ...], Table]


class Compared(NamedTuple):
    """A ratio: the median, and between what half of the samples are."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def short(self) -> str:
        return ratio(self.value)

    @property
    def cell(self) -> str:
        if self.low is None or self.high is None:
            return self.short
        return f"{self.short} ({ratio(self.low)[:-1]}–{ratio(self.high)[:-1]})"


class Target(NamedTuple):
    row: str
    store: str
    what: str
    bar: str
    measured: str
    met: bool

    @property
    def cells(self) -> list[str]:
        return [self.row, self.store, self.what, self.bar, self.measured, "met" if self.met else "missed"]


@dataclass(frozen=True, slots=True)
class Line:
    """One row on one store with its figures."""

    row: Row
    store: str
    figures: dict[str, list[float]]
    counts: dict[str, dict[str, float]]
    errors: dict[str, str]

    @property
    def values(self) -> dict[str, float]:
        return {label: median(figures) for label, figures in self.figures.items()}

    def compared(self, above: str, below: str) -> Compared | None:
        """How many times as long one takes as the other, in samples that were taken one after the other."""
        one, other = self.figures.get(above), self.figures.get(below)
        if not one or not other:
            return None
        if len(one) != len(other):  # one of them is so slow that it was called once
            return Compared(median(one) / median(other))
        ratios = sorted(a / b for a, b in zip(one, other, strict=True))
        return Compared(median(ratios), ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4])

    @property
    def title(self) -> list[str]:
        return [self.row.title, TITLES[self.store]]

    @property
    def is_sql(self) -> bool:
        return self.store.startswith(("sqlite", "postgres"))

    @property
    def best(self) -> tuple[str, float] | None:
        peers = {label: value for label, value in self.values.items() if label not in MINE}
        return min(peers.items(), key=lambda item: item[1], default=None)

    @property
    def gain(self) -> Compared | None:
        return self.compared(self.best[0], "ours") if self.best else None

    @property
    def share(self) -> Compared | None:
        """Our speed as a share of the floor's."""
        return self.compared("floor", "ours")

    @property
    def growth(self) -> Compared | None:
        return self.compared("grown", "ours")

    def cell(self, label: str) -> str:
        return "error" if label in self.errors else figure(self.values.get(label))

    def sent(self, label: str) -> str:
        """What a call sends: statements, or commands with those that a script runs in brackets."""
        counts = self.counts.get(label)
        if not counts:
            return ""
        inner = counts.get("inner")
        return number(counts["sent"]) + (f" ({number(inner)})" if inner else "")


def number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def per_second(value: float | None) -> str:
    return f"{1e6 / value:,.0f}" if value else ""


def lines(results: Results) -> list[Line]:
    made = []
    for row in ROWS:
        for store in row.stores:
            figures = results.all(row.key, store)
            counts = {case[2]: c for case, c in results.counts.items() if case[:2] == (row.key, store)}
            errors = {case[2]: e for case, e in results.errors.items() if case[:2] == (row.key, store)}
            if figures or errors:
                made.append(Line(row, store, figures, counts, errors))
    return made


def calls(measured: list[Line], rows: tuple[Row, ...]) -> Drawn:
    table = [
        [
            *line.title,
            line.cell("floor"),
            line.cell("ours"),
            per_second(line.values.get("ours")),
            figure(line.best[1]) if line.best else "",
            line.best[0] if line.best else "",
            line.share.short if line.share else "",
            line.gain.short if line.gain else "",
        ]
        for line in measured
        if line.row in rows
    ]
    return CALLS, table


def grown(measured: list[Line]) -> Drawn:
    table = [
        [*line.title, line.cell("ours"), line.cell("grown"), line.growth.cell if line.growth else ""]
        for line in measured
        if "grown" in line.values
    ]
    return GROWN, table


def counts(measured: list[Line]) -> Drawn:
    table = [
        [*line.title, *(line.sent(label) for label in ("ours", "floor", "baldur"))] for line in measured if line.counts
    ]
    return COUNTS, table


def shared(measured: list[Line]) -> Drawn:
    table = [
        [
            *line.title,
            line.cell("unshared"),
            line.cell("ours"),
            share.cell if (share := sharing(line)) else "",
            figure(line.best[1]) if line.best else "",
            line.best[0] if line.best else "",
        ]
        for line in measured
        if line.row in SHARED_ROWS
    ]
    return SHARED, table


def sharing(line: Line) -> Compared | None:
    return line.compared("ours", "unshared")


def replays(measured: list[Line]) -> Drawn:
    table = []
    for line in measured:
        if line.row.key == "replay":
            ours = line.values.get("ours")
            pair = one_by_one(measured, line.store)
            table.append(
                [TITLES[line.store], "", figure(ours), per_second(ours), figure(pair), ratio(over(pair, ours))]
            )
    return REPLAYS, table


def one_by_one(measured: list[Line], store: str) -> float | None:
    """What an acquire and a complete take, one letter after the other."""
    found = [
        line.values["ours"]
        for line in measured
        if line.store == store and line.row.key in ("acquire", "complete") and "ours" in line.values
    ]
    return sum(found) if len(found) == 2 else None


def bar(measured: list[Line]) -> list[Target]:
    return [target for line in measured for target in targets(line, measured)]


def targets(line: Line, measured: list[Line]) -> Iterator[Target]:
    """What is asked of a line."""
    row, store = line.title
    least = line.row.redis if line.store == "redis" else line.row.write if line.is_sql else None
    if least and (share := line.share):
        yield Target(row, store, "ours of floor", f"≥ {least:g}×", share.cell, share.value >= least)
    most = line.row.read if line.is_sql else None
    if most and (took := line.compared("ours", "floor")):
        raw = line.compared("ours", "raw")
        story = took.cell + (f"; raw rows {raw.short}" if raw else "")
        yield Target(row, store, "ours / floor", f"≤ {most:g}×", story, took.value <= most)
    wanted = line.row.gain if line.store.startswith("postgres") else None
    if wanted and (gain := line.gain):
        yield Target(row, store, "best peer / ours", f"≥ {wanted:g}×", gain.cell + reach(line), gain.value >= wanted)
    if growth := line.growth:
        yield Target(row, store, "with the done letters", f"≤ {GROWTH:g}×", growth.cell, growth.value <= GROWTH)
    if extra := sharing(line):
        yield Target(row, store, "shared / alone", f"< {SHARING:g}×", extra.cell, extra.value < SHARING)
    yield from sent_targets(line)
    if line.row.key == "replay":
        pace = over(one_by_one(measured, line.store), line.values.get("ours"))
        if pace:
            yield Target(row, store, "of acquire + complete", f"≥ {REPLAY:g}×", ratio(pace), pace >= REPLAY)


def reach(line: Line) -> str:
    """What the raw code reaches over the same peer: nobody can do better."""
    raw = {label: line.compared(line.best[0], label) for label in ("floor", "bare")} if line.best else {}
    return "".join(f"; {label} {found.short}" for label, found in raw.items() if found)


def sent_targets(line: Line) -> Iterator[Target]:
    ours, more = line.counts.get("ours"), line.counts.get("grown")
    if not ours:
        return
    if line.store == "redis" and more:
        both = f"{line.sent('ours')}, {line.sent('grown')}"
        yield Target(*line.title, "commands, and with the done letters", "the same", both, ours == more)
    if line.row.key == "capture" or (
        line.store == "redis" and line.row.key in ("acquire", "acquire-by-id", "failure", "success", "slot")
    ):
        what = "statements" if line.store == "sqlite" else "round trips"
        yield Target(*line.title, what, "1", number(ours["sent"]), ours["sent"] == 1)


def complaints(results: Results, by_key: Mapping[str, Any] = BY_KEY, titles: Mapping[str, str] = TITLES) -> list[str]:
    return results.complaints + [
        f"{label}, {by_key[key].title} on {titles[store]}: {error}"
        for (key, store, label), error in results.errors.items()
    ]


def tables(measured: list[Line]) -> dict[str, Drawn]:
    return {
        "letters": calls(measured, LETTER_ROWS),
        "breakers": calls(measured, BREAKER_ROWS),
        "capture": calls(measured, (BY_KEY["capture"],)),
        "grown": grown(measured),
        "counts": counts(measured),
        "shared": shared(measured),
        "replays": replays(measured),
        "bar": (BAR, [target.cells for target in bar(measured)]),
    }


def raw(results: Results, trouble: list[str]) -> dict[str, Any]:
    """Every sample of a run."""

    def named(case: tuple[str, str, str]) -> dict[str, str]:
        return dict(zip(("row", "store", "label"), case, strict=True))

    return {
        "samples": [{**named(case), "figures": figures} for case, figures in results.figures.items()],
        "counts": [{**named(case), **counts} for case, counts in results.counts.items()],
        "took": results.took,
        "trouble": trouble,
    }


def page(results: Results, wish: StoreWish) -> str:
    """The Markdown page of a run."""
    return filled(
        HERE,
        results,
        wish,
        tables(lines(results)),
        complaints(results),
        size=f"{wish.letters:,}",
        done=f"{wish.done:,}",
        redis_done=f"{wish.redis_done:,}",
    )


def filled(
    folder: Path, results: Results, wish: Wish, drawn: dict[str, Drawn], trouble: list[str], **sizes: str
) -> str:
    """The page of a folder with what every such page says: the machine, the run, its tables and the verdict."""
    judged = drawn["bar"][1]
    met = sum(row[-1] == "met" for row in judged)
    servers = {"SQLite": sqlite3.sqlite_version, **results.servers}
    took = ", ".join(f"{seconds:.0f} s of {what}" for what, seconds in results.took.items())
    rounds = f"{wish.rounds} rounds of {wish.samples} samples of {wish.seconds * 1e3:.0f} ms; {took}"
    return (
        (folder / "page.md")
        .read_text()
        .format(
            machine=machine(),
            date=f"{datetime.now(UTC):%Y-%m-%d}",
            settings=rounds,
            versions=peer_versions(folder),
            servers=", ".join(f"{name} {version}" for name, version in servers.items()),
            verdict=f"{met} of the {len(judged)} targets below are met.",
            trouble="\n".join(f"- {line}" for line in trouble or ["None."]),
            **sizes,
            **{
                name: markdown_table(*table) if table[1] else "Not measured in this run."
                for name, table in drawn.items()
            },
        )
    )
