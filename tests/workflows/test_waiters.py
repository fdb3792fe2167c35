"""Waiting for the end of a workflow: told where it goes on in this process, found where it does not."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from holdfast.backends.memory import MemoryStore
from holdfast.core.clock import SYSTEM_CLOCK
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.port import Store
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.records import WorkflowRecord
from holdfast.workflows.settling import WAKE
from holdfast.workflows.waiters import Waiters
from holdfast.workflows.workflows import Workflows
from tests.workflows.gates import PATIENCE_S

go_on = threading.Event()


@task
def holds(number: int) -> dict[str, Any]:
    go_on.wait(PATIENCE_S)
    return {"twice": 2 * number, "pair": (number, number)}


@task
def plain(number: int) -> int:
    return number


@workflow
def pair(number: int) -> Any:
    return [plain(number), holds(number)["pair"]]


def record(status: WorkflowStatus) -> WorkflowRecord:
    return WorkflowRecord(
        "w", 1, None, status.value, "w", "", "d", "default", 0, None, None, None, 0, 0, 1, None, None, None, "{}", "{}"
    )  # fmt: skip


def test_what_ends_in_this_process_is_told_as_it_is_stored(store: Store) -> None:
    flows = Workflows(store)
    flows.register(plain, holds)
    worker = flows.worker().start()
    go_on.clear()
    run = flows.start(pair, 3)
    threading.Timer(0.05, go_on.set).start()
    assert run.result(PATIENCE_S) == run.result(0) == [3, [3, 3]]
    assert worker.stop(PATIENCE_S)


def test_what_has_ended_elsewhere_is_found_however_much_is_told_of_others() -> None:
    store = MemoryStore()
    status = WorkflowStatus.RUNNING
    waiters = Waiters(store, lambda id: record(status), lambda id: True, SYSTEM_CLOCK)
    over = threading.Event()

    def tell() -> None:
        while not over.wait(0.01):
            store.commit([], wake=WAKE)

    teller = threading.Thread(target=tell)
    teller.start()
    try:
        status = WorkflowStatus.SUCCEEDED
        assert waiters.wait("w", PATIENCE_S).record.status == "SUCCEEDED"
    finally:
        over.set()
        teller.join()
        waiters.close()


def test_whoever_does_not_wait_is_told_what_is_stored_not_what_is_thought_of_it() -> None:
    status = WorkflowStatus.RUNNING
    waiters = Waiters(MemoryStore(), lambda id: record(status), lambda id: True, SYSTEM_CLOCK)
    with pytest.raises(TimeoutError, match="has not ended within 0 s; it is RUNNING"):
        waiters.wait("w", 0)
    status = WorkflowStatus.CANCELED
    assert waiters.wait("w", 0).record.status == "CANCELED"
    waiters.close()
