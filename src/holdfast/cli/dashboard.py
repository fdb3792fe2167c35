"""One frame of `holdfast top`: the overview as lines, how fast figures change, and what has changed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from holdfast.cli.output import STYLES, clean
from holdfast.cli.times import ago, span, until

LOOK_BACK_S: Final = 15.0
KEPT: Final = 50
LATE_S: Final = 60.0
TONES: Final = {"calm": "green", "attention": "yellow", "trouble": "red"}
SORTS: Final = ("waiting", "age", "name")
_LABEL: Final = 11
_NAME: Final = 28
_ALWAYS: Final = {
    "letters": ("pending", "replaying", "requires_review", "resolved"),
    "workflows": ("RUNNING", "SUCCEEDED", "TERMINAL"),
}

Figures = Mapping[str, Any]
"""The document of the overview, times as datetimes or as texts."""


class Change(NamedTuple):
    """Something that was otherwise a moment ago."""

    at: datetime
    text: str


class Course:
    """What was seen lately: figures of the last seconds, and changes."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, Figures]] = deque()
        self.changes: deque[Change] = deque(maxlen=KEPT)

    def see(self, figures: Figures, now: float) -> None:
        """Take in a look at the time `now`, in seconds of any clock."""
        if self._seen:
            at = moment(figures["at"])
            assert at is not None
            self.changes.extendleft(Change(at, text) for text in changes(self._seen[-1][1], figures))
        self._seen.append((now, figures))
        while len(self._seen) > 2 and now - self._seen[1][0] >= LOOK_BACK_S:
            self._seen.popleft()

    def rate(self, part: str, status: str) -> float | None:
        """By how much a second a figure changes; None where it is not known yet, or does not change."""
        if len(self._seen) < 2:
            return None
        (begun, first), (ended, last) = self._seen[0], self._seen[-1]
        difference = _by_status(last, part).get(status, 0) - _by_status(first, part).get(status, 0)
        return difference / (ended - begun) if difference and ended > begun else None


def frame(figures: Figures, course: Course, *, sort: str = SORTS[0], height: int = 40, keys: bool = False) -> Group:
    """The overview, at most `height` lines of it."""
    now = moment(figures["at"])
    assert now is not None
    head = Text.assemble(("Holdfast", "bold"), f"  {now:%H:%M:%S} UTC")
    if keys:
        head.append(f"  q quits, s sorts (by {sort})", style="dim")
    head.append(f"  {clean(figures['store'])}")
    said = figures["headline"]
    lines = [head, Text(clean(said["text"]), style=TONES.get(said["tone"], "")), Text("")]
    lines += _breakers(figures["breakers"], now)
    lines += _letters(figures["letters"], course, now, sort)
    lines += _outbox(figures, course)
    lines += _workflows(figures, course)
    lines += _events(figures, course, max(0, height - len(lines) - 2))
    return Group(*_cut(lines, height))


def changes(before: Figures, after: Figures) -> list[str]:
    """What differs, in words."""
    then, now = (_shut(one) for one in (before, after))
    told = [f"breaker {name} is {now[name]}" for name in now if then.get(name) != now[name]]
    told += [f"breaker {name} is closed" for name in then if name not in now]
    for part, noun in (("letters", "letter"), ("outbox", "entry"), ("workflows", "workflow")):
        counts, earlier = _by_status(after, part), _by_status(before, part)
        for status in sorted({*counts, *earlier}):
            if difference := counts.get(status, 0) - earlier.get(status, 0):
                told.append(f"{noun} {status.lower().replace('_', ' ')}: {counts.get(status, 0)} ({difference:+})")
    alive = after["workers"]["alive"]
    if alive != before["workers"]["alive"]:
        told.append(f"workers: {alive} alive ({alive - before['workers']['alive']:+})")
    return told


def moment(at: Any) -> datetime | None:
    """A time that may be a text, as a server sends it."""
    return datetime.fromisoformat(at) if isinstance(at, str) else at


def _shut(figures: Figures) -> dict[str, str]:
    held = {True: ", held by an operator", False: ""}
    items = figures["breakers"]["items"]
    return {one["name"]: f"{one['state'].replace('_', '-')}{held[one['pinned']]}" for one in items}


def _by_status(figures: Figures, part: str) -> Mapping[str, int]:
    found = figures[part]
    counts: Mapping[str, int] = {} if found is None else found["by_status"]
    return counts


def _breakers(found: Figures, now: datetime) -> list[Text]:
    order = ("open", "half_open", "closed")
    lines = [_line("breakers", _counts({state: found["by_state"].get(state, 0) for state in order}, None, ""))]
    for one in found["items"]:
        since = moment(one["since"])
        line = Text.assemble("  ", _name(one["name"]), (one["state"].replace("_", "-"), STYLES.get(one["state"], "")))
        line.append("" if since is None else f"  for {ago(since, now)}")
        if one["pinned"]:
            who = f" by {clean(one['by'])}" if one["by"] else ""
            ends = moment(one["until"])
            left = "" if ends is None else f", {until(ends, now)} left"
            line.append(f"  held{who}{left}: {clean(one['reason'])}", style="yellow")
        lines.append(line)
    return lines


def _letters(found: Figures, course: Course, now: datetime, sort: str) -> list[Text]:
    counts = {status: found["by_status"].get(status, 0) for status in _ALWAYS["letters"]}
    others = {status: number for status, number in found["by_status"].items() if status not in counts and number}
    lines = [_line("letters", _counts({**counts, **others}, course, "letters"))]
    keys: Mapping[str, Any] = {
        "waiting": lambda one: -one["pending"], "age": lambda one: -(one["oldest_age_s"] or 0.0),
        "name": lambda one: one["domain"],
    }  # fmt: skip
    for one in sorted(found["domains"], key=keys[sort]):
        line = Text.assemble("  ", _name(one["domain"]), f"{one['pending']:>8} wait")
        oldest = moment(one["oldest_at"])
        line.append("" if oldest is None else f"  the oldest for {ago(oldest, now)}")
        lines.append(line)
    if found["more_domains"]:
        lines.append(Text(f"  and {found['more_domains']} more domains", style="dim"))
    return lines


def _outbox(figures: Figures, course: Course) -> list[Text]:
    found = figures["outbox"]
    if found is None:
        return []
    late = found["lag_s"]
    lag = Text(f"{span(timedelta(seconds=late))} behind   " if late >= 1 else "", style="red" if late > LATE_S else "")
    lines = [_line("outbox", [lag, *_counts(found["by_status"], course, "outbox")])]
    lines += [
        Text.assemble("  ", _name(one["queue"]), ("paused", "yellow"), f": {clean(one['reason'] or '')}")
        for one in found["paused"]
    ]
    sagas = {state: number for state, number in figures["sagas"]["by_state"].items() if number}
    if sagas:
        lines.append(_line("sagas", _counts(sagas, None, "")))
    return lines


def _workflows(figures: Figures, course: Course) -> list[Text]:
    found, present = figures["workflows"], figures["workers"]
    counts = {status: found["by_status"].get(status, 0) for status in _ALWAYS["workflows"]}
    others = {status: number for status, number in found["by_status"].items() if status not in counts and number}
    parts = _counts({**counts, **others}, course, "workflows")
    if found["stranded"]:
        parts.append(Text(f"  {found['stranded']} stranded", style="red"))
    states = ", ".join(f"{number} {state}" for state, number in sorted(present["by_state"].items()))
    alive = f"{present['alive']} alive" + (f" ({states})" if states else "")
    return [_line("workflows", parts), _line("workers", [Text(alive, style="" if present["alive"] else "dim")])]


def _events(figures: Figures, course: Course, most: int) -> list[Text]:
    """What the server tells of, where there is one; else what was seen to change."""
    told: list[tuple[datetime | None, str]] = [(change.at, change.text) for change in course.changes]
    if figures.get("events"):
        told = [(moment(one.get("at")), _event_words(one)) for one in figures["events"]]
    if not told or most < 1:
        return []
    lines = [Text.assemble((f"{at:%H:%M:%S}  " if at else "          ", "dim"), clean(text)) for at, text in told]
    return [Text(""), *lines[:most]]


def _event_words(event: Mapping[str, Any]) -> str:
    name = str(event.get("event", "")).replace(".", " ").replace("_", " ")
    about = event.get("operation_key") or ""
    said = [f"{key}={event[key]}" for key in ("to_state", "outcome", "status", "reason") if event.get(key)]
    return " ".join([name, str(about), *said])


def _line(label: str, parts: Iterable[Text]) -> Text:
    return Text.assemble((f"{label:<{_LABEL}}", "bold"), *parts, no_wrap=True)


def _counts(counts: Mapping[str, int], course: Course | None, part: str) -> list[Text]:
    """Figures with their colours; nought is dim, and what changes says how fast."""
    parts = []
    for status, number in counts.items():
        words = f"{number:,} {status.lower().replace('_', ' ')}"
        text = Text(words, style=STYLES.get(status, "") if number else "dim")
        rate = None if course is None else course.rate(part, status)
        if rate is not None:
            text.append(f" ({rate:+.1f}/s)", style="dim")
        parts.append(text)
    return [Text("   ").join(parts)] if parts else []


def _name(name: str) -> Text:
    text = Text(clean(name))
    text.truncate(_NAME, overflow="ellipsis", pad=True)
    text.append("  ")
    return text


def _cut(lines: Sequence[Text], height: int) -> list[RenderableType]:
    kept = list(lines) if len(lines) <= height else [*lines[: height - 1], Text("…", style="dim")]
    for line in kept:
        line.no_wrap, line.overflow = True, "ellipsis"
    return [*kept]
