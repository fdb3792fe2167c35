"""A process dies before or after each change of the store that the engine makes: nothing is lost, nothing is stuck."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import holdfast.workflows
from holdfast.machine.workflow import WorkflowStatus
from holdfast.testing.failpoints import CHANGING, Point, Side
from holdfast.testing.workflow_kit import WorkflowTestKit
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.presence import MOST_CRASHES
from holdfast.workflows.records import ITEM, WORKER
from tests.workflows.clients import Ends
from tests.workflows.composed_scenarios import kit_for
from tests.workflows.scenarios import SCENARIOS

FOLDER = Path(str(holdfast.workflows.__file__)).parent
HELPERS = ("holdfast.store.change", "holdfast.store.lease")


class Site(NamedTuple):
    """A place in the engine that changes the store."""

    module: str
    first: int
    last: int

    def holds(self, point: Point) -> bool:
        return point.name.rpartition(".")[0] == self.module and self.first <= point.line <= self.last


class Played(NamedTuple):
    points: list[Point]
    ends: Ends
    bodies: Counter[str]


@pytest.mark.parametrize("name", SCENARIOS)
def test_whichever_process_dies_at_whichever_change_everything_ends_as_without(name: str) -> None:
    assert crashed(name)


def test_every_change_that_the_engine_makes_is_died_at() -> None:
    died = [at for name in SCENARIOS for at in crashed(name)]
    missed = [
        (f"{site.module}.py:{site.first}", side.value)
        for site in sites()
        for side in Side
        if not any(site.holds(point) and side is tried for point, tried in died)
    ]
    assert not missed, f"add what makes these changes to tests/workflows/scenarios.py: {missed}"


def test_points_are_found_where_the_engine_changes_the_store() -> None:
    names = {site.module for site in sites()}
    assert {"starting", "settling", "presence", "ownership", "operating"} <= names
    every = [point for name in SCENARIOS for point, _ in crashed(name)]
    unknown = {point.name for point in every if not any(site.holds(point) for site in sites())}
    assert not unknown


@cache
def crashed(name: str) -> frozenset[tuple[Point, Side]]:
    """Play a scenario with a crash at each point; the points at which that was done."""
    plain, done = play(name), set()
    for point in plain.points:
        for side in Side:
            story = f"{name}: died {side.value} {point}"
            seen = play(name, point, side)
            assert seen.ends == plain.ends, story
            for ref, number in seen.bodies.items():  # what was under way is run again, and nothing else
                assert number <= plain.bodies[ref] + 1, story
            done.add((point, side))
    return frozenset(done)


def play(name: str, point: Point | None = None, side: Side = Side.BEFORE) -> Played:
    with kit_for(name) as kit:
        if point is not None:
            kit.crash_at(point.number, side)
        ends = SCENARIOS[name](kit)
        kit.run_until_idle()
        assert kit.store.page(ITEM) == kit.store.page(WORKER) == [], (point, side)
        for run in kit.runs:
            past = kit.workflows.state_at(run.id, run.record.version)
            assert past.status is run.status
            stages = kit.workflows.stages(run.id)
            assert {ref: past.stages[ref].status for ref in stages} == stages
        assert point is None or kit.points.deaths, "nobody died"
        return Played(kit.points.hits, ends, Counter(task.ref for task in kit.ran))


@cache
def sites() -> tuple[Site, ...]:
    """Every call of a changing verb in the engine's own text."""
    return tuple(site for path in sorted(FOLDER.rglob("*.py")) for site in _sites_of(path))


def _sites_of(path: Path) -> Iterator[Site]:
    module = ".".join(path.relative_to(FOLDER).with_suffix("").parts)
    tree = ast.parse(path.read_text())
    helpers = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in HELPERS
        for alias in node.names
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        is_verb = isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING and _is_store(node.func.value)
        if is_verb or (isinstance(node.func, ast.Name) and node.func.id in helpers):
            yield Site(module, node.lineno, node.end_lineno or node.lineno)


def _is_store(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name.lstrip("_") == "store"


@pytest.mark.parametrize("at", [0, 3, 29])
def test_a_task_that_kills_its_workers_fails_and_takes_nobody_along(at: int) -> None:
    with WorkflowTestKit() as kit:

        @task
        def step(number: int) -> int:
            if number == at:
                kit.points.is_dead = True  # at once, before anybody else can end
            return number

        runs = [kit.start(workflow(name="one")(lambda number: step(number)), number) for number in range(30)]
        kit.run_until_idle()
        failed = [number for number, run in enumerate(runs) if run.status is not WorkflowStatus.SUCCEEDED]
        assert failed == [at]
        assert runs[at].record.reason == f"{MOST_CRASHES} workers died while they ran it"
        assert kit.crashes == MOST_CRASHES
