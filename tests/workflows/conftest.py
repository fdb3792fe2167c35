"""An engine on every store that has one, at a time that stands still until it is moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, Hub
from holdfast.store.port import Store
from holdfast.testing.clock import ManualClock
from holdfast.workflows.records import KINDS
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows
from tests.stores import fresh_store, fresh_url

ENGINES = ("memory", "sqlite", "postgres")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=ENGINES)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Store]:
    with fresh_store(request.param, tmp_path, KINDS, clock) as store:
        yield store


@pytest.fixture
def flows(store: Store, clock: ManualClock) -> Workflows:
    return Workflows(store, clock=clock)


@pytest.fixture
def worker_of(flows: Workflows) -> Iterator[Callable[..., WorkflowWorker]]:
    made: list[WorkflowWorker] = []

    def make(**options: Any) -> WorkflowWorker:
        made.append(flows.worker(**options))
        return made[-1]

    yield make
    for worker in made:
        worker.close()


@pytest.fixture
def worker(worker_of: Callable[..., WorkflowWorker]) -> WorkflowWorker:
    return worker_of()


@pytest.fixture(params=["sqlite", "postgres"])
def hold(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Holdfast]:
    """A whole application, on each database that has everything."""
    with fresh_url(request.param, tmp_path) as url:
        with Holdfast(url, telemetry=Hub(), background=False, clock=clock) as hold:
            yield hold


@pytest.fixture
def crew(hold: Holdfast) -> Iterator[WorkflowWorker]:
    """A worker of that application; make it after its tasks' guards."""
    worker = hold.workflows.worker()
    yield worker
    worker.close()
