"""The crash matrix: run a workflow once to learn at which points it is durable, then again with a crash before and
after each of them, and say which steps do not bear being run twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from holdfast.testing.failpoints import Point, Side
from holdfast.testing.workflow_kit import Effect, WorkflowTestKit
from holdfast.workflows.functions import WorkflowFunction

_PLAIN: Final = {
    "turns.claim": "claim", "settling._commit": "write down", "settling.write_within": "write down",
    "presence.show": "show up", "presence.leave": "leave",
}  # fmt: skip
"""What the points are called that every workflow goes through."""


class Observation(NamedTuple):
    """What was seen of one run."""

    points: list[Point]
    effects: list[Effect]
    runs: Counter[str]
    """How often the body of each step has run."""
    ends: list[tuple[str, str]]
    world: Any
    error: str | None = None


class Finding(NamedTuple):
    """A step that does not bear a crash."""

    step: str
    story: str

    def __str__(self) -> str:
        return f"{self.step}: {self.story}"


class Row(NamedTuple):
    """One run with a crash."""

    side: Side
    point: Point
    again: tuple[str, ...]
    """The steps whose bodies ran more often than without the crash."""
    findings: tuple[Finding, ...]


@dataclass
class CrashReport:
    """What the crashes have shown."""

    title: str
    plain: Observation
    rows: list[Row] = field(default_factory=list)

    @property
    def findings(self) -> list[Finding]:
        """Each once, in the order in which they were found."""
        promised = _breaches(self.plain)
        return list(dict.fromkeys([*promised, *(one for row in self.rows for one in row.findings)]))

    @property
    def ok(self) -> bool:
        return not self.findings

    @property
    def plans(self) -> Iterator[tuple[Point, Side]]:
        """The crashes to try."""
        return ((point, side) for point in self.plain.points for side in Side)

    def add(self, point: Point, side: Side, seen: Observation) -> None:
        again = tuple(step for step, number in seen.runs.items() if number > self.plain.runs[step])
        self.rows.append(Row(side, point, again, tuple(_found(self.plain, seen, again))))

    def table(self) -> str:
        """One line for each crash."""
        lines = [("crash", "step", "run again", "verdict")]
        for row in self.rows:
            name = _PLAIN.get(row.point.name, row.point.name)
            verdict = "; ".join(map(str, row.findings)) or "ok"
            lines.append((f"{row.side} {name}", ", ".join(row.point.steps), ", ".join(row.again), verdict))
        widths = [max(len(line[at]) for line in lines) for at in range(3)]
        shown = ["  ".join([*(text.ljust(width) for text, width in zip(line, widths, strict=False)), line[3]])
                 for line in lines]  # fmt: skip
        return "\n".join(line.rstrip() for line in [*shown, self.summary()])

    def summary(self) -> str:
        head = f"{self.title}: {len(self.plain.points)} durable points, {len(self.rows)} crashes"
        if self.ok:
            return f"{head}; every step bears them"
        return "\n".join([f"{head}; not idempotent:", *(f"  {one}" for one in self.findings)])

    def check(self) -> None:
        """Raises AssertionError, with the table, if a step does not bear a crash."""
        if not self.ok:
            raise AssertionError(self.table())


Scenario = Callable[[WorkflowTestKit], object]


def crash_matrix(
    scenario: Callable[..., object] | WorkflowFunction[Any, Any],
    *args: Any,
    world: Callable[[], Any] | None = None,
    **options: Any,
) -> CrashReport:
    """Run it once, and again with a crash before and after each change of the store that a worker makes.

    `scenario` is a `@workflow`, with its input, or a function that gets a `WorkflowTestKit` and does whatever a client
    would do. It makes its own world each time. `world` gives what must be the same after every run; `options` are
    those of the kit. Raises what the scenario raises without a crash.
    """
    play = _scenario_of(scenario, args)
    report = CrashReport(str(getattr(scenario, "__name__", "workflow")), _play(play, world, options, None))
    for point, side in report.plans:
        report.add(point, side, _play(play, world, options, (point, side)))
    return report


def observe(kit: WorkflowTestKit, error: BaseException | None = None) -> Observation:
    """What is to be seen of a run that is over."""
    ends = sorted((run.record.name, run.status.value) for run in kit.runs)
    runs = Counter(task.ref for task in kit.ran)
    # A copy, for what stands in for the world may be the same object in all runs.
    world = deepcopy(kit.world()) if kit.world is not None and error is None else None
    story = None if error is None else f"{type(error).__name__}: {error}"
    return Observation(list(kit.points.hits), list(kit.effects), runs, ends, world, story)


def _play(
    play: Scenario, world: Callable[[], Any] | None, options: dict[str, Any], plan: tuple[Point, Side] | None
) -> Observation:
    with WorkflowTestKit(**options) as kit:
        kit.world = world
        if plan is None:
            play(kit)
            return observe(kit)
        kit.crash_at(plan[0].number, plan[1])
        try:
            play(kit)
        except Exception as error:
            return observe(kit, error)
        return observe(kit)


def _scenario_of(scenario: Any, args: tuple[Any, ...]) -> Scenario:
    if isinstance(scenario, WorkflowFunction):
        return lambda kit: kit.finish(kit.start(scenario, *args))
    if not callable(scenario):
        raise TypeError(f"crash_matrix takes a @workflow or a function of a WorkflowTestKit, got {scenario!r}")
    return lambda kit: scenario(kit, *args)


def _breaches(plain: Observation) -> list[Finding]:
    return [
        Finding(effect.step, f"it is declared pure, and has the effect {effect.name!r}")
        for effect in plain.effects
        if effect.declared == "pure"
    ]


def _found(plain: Observation, seen: Observation, again: tuple[str, ...]) -> Iterator[Finding]:
    blamed = ", ".join(again) or "no step"
    yield from _repeated(plain, seen)
    if seen.error is not None:
        yield Finding(blamed, f"with the crash, {seen.error}")
    elif seen.ends != plain.ends:
        yield Finding(blamed, f"ended {_shown(seen.ends)} instead of {_shown(plain.ends)}")
    elif seen.world != plain.world:
        yield Finding(blamed, f"the world is {seen.world!r} instead of {plain.world!r}")


def _repeated(plain: Observation, seen: Observation) -> Iterator[Finding]:
    """Effects that happened more often than they should."""
    often, counts = Counter(map(_same, plain.effects)), Counter(map(_same, seen.effects))
    told: set[tuple[str, str]] = set()
    for one in seen.effects:
        number = counts[_same(one)]
        if number <= max(1, often[_same(one)]) or (one.step, one.name) in told:
            continue
        told.add((one.step, one.name))
        promise = "" if one.declared in (None, "at_least_once") else f", though it is declared {one.declared}"
        yield Finding(one.step, f"the effect {one.name!r} happened {_times(number)}{promise}")


def _same(effect: Effect) -> tuple[str, str]:
    """What effects have in common that are one and the same, whatever their keys are."""
    return effect.name, repr(effect.key)


def _times(number: int) -> str:
    return "twice" if number == 2 else f"{number} times"


def _shown(ends: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {status}" for name, status in ends) or "nothing"
