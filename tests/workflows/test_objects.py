"""How many objects Python's search for cycles looks at for each stage: with thousands of them side by side, it is these
that take time.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.store.port import Store
from holdfast.testing.clock import ManualClock
from holdfast.workflows import trace
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.records import ITEM, KINDS
from holdfast.workflows.run import Run
from holdfast.workflows.runs import Blueprints, Runs
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows
from tests.stores import fresh_store

WIDTH = 900


@task
def one(number: int) -> int:
    return number + 1


@task
def add(*numbers: int) -> int:
    return sum(numbers)


def fan(width: int) -> Any:
    @workflow(name=f"fan_{width}")
    def fan(number: int) -> Any:
        first = one(number)
        return add(*[one(first) for _ in range(width)])

    return fan


def searched() -> int:
    """How many objects the search for cycles looks at, after it has found out which ones it need not."""
    for _ in range(3):
        gc.collect()
    return len(gc.get_objects())


def searched_for_each(make: Callable[[], Any]) -> float:
    """For each of `WIDTH` things that are made."""
    make()
    before = searched()
    made = make()
    after = searched()
    assert made is not None
    return (after - before) / WIDTH


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[Store]:
    """One that keeps no records in memory itself."""
    with fresh_store("sqlite", tmp_path, KINDS, clock) as store:
        yield store


def test_a_stage_of_a_graph_is_three_objects_and_two_more_where_it_is_known_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert searched_for_each(lambda: fan(WIDTH).trace((0,), {})) < 5.5
    monkeypatch.setattr(trace, "MOST_STAGES", 10)
    assert searched_for_each(lambda: fan(WIDTH).trace((0,), {})) < 3.5


def test_a_stage_that_a_worker_has_in_memory_is_three_objects(flows: Workflows, worker: WorkflowWorker) -> None:
    handle = flows.start(fan(WIDTH), 0)
    while not handle.status.is_complete:
        worker.run_once()
    blueprints = Blueprints(flows.records)

    def read() -> Run | None:
        return Runs(flows.records, blueprints).read_with(handle.id, [f"one-{number + 2}" for number in range(WIDTH)])

    assert searched_for_each(read) < 3.5  # as it stands, and its task; nothing of what is stored


def test_a_call_that_waits_is_two_objects_and_what_came_of_it_one(flows: Workflows, worker: WorkflowWorker) -> None:
    id = flows.start(fan(2), 0).id
    (item,) = flows.records.page(ITEM)
    shift = worker._shift
    shift._runs.read([id])
    run, readying = shift._runs.get(id), shift._handing_out._readying
    assert run is not None
    assert searched_for_each(lambda: [readying.call(item, run) for _ in range(WIDTH)]) < 2.5
    call = readying.call(item, run)
    assert searched_for_each(lambda: [call.returned(number) for number in range(WIDTH)]) < 1.5
