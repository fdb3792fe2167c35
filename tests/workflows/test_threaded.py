"""Workflows from coroutines: the same names, arguments and results, never on the event loop's thread."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast.errors import TaskError
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.port import Store
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.threaded import AsyncWorkflows
from holdfast.workflows.waiters import POLL_S, Waiter
from holdfast.workflows.waiting import wait_signal
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows
from tests.workflows.gates import PATIENCE_S

SET_UP_ONCE = {
    "add", "answer_of", "change", "close", "heard", "keep", "register", "run_of", "schedule", "verifier", "wanted",
    "was_stored", "worker", "blueprint",
}  # fmt: skip
METHODS = [
    name
    for name, _ in inspect.getmembers(Workflows, inspect.isfunction)
    if not name.startswith("_") and name not in SET_UP_ONCE
]


@task
def plain(number: int) -> int:
    if number < 0:
        raise ValueError("too small")
    return number


@task
def asks(number: int) -> Any:
    return wait_signal("word")


@workflow
def single(number: int) -> Any:
    return plain(number)


@workflow
def asking(number: int) -> Any:
    return asks(number)


@pytest.fixture
def flows(store: Store) -> AsyncWorkflows:
    made = Workflows(store)
    made.register(plain, asks)
    return AsyncWorkflows(made)


@pytest.fixture
def worker(flows: AsyncWorkflows) -> Iterator[WorkflowWorker]:
    worker = flows.sync.worker().start()
    yield worker
    assert worker.stop(PATIENCE_S)


def all_wait(flows: AsyncWorkflows, number: int) -> asyncio.Event:
    """Set when so many wait, from now on."""
    loop, event, enter = asyncio.get_running_loop(), asyncio.Event(), flows.sync.waiters._enter

    def noting(waiter: Waiter) -> Any:
        found = enter(waiter)
        if len(flows.sync.waiters._waiters) == number:
            flows.sync.waiters._enter = enter  # type: ignore[method-assign]
            loop.call_soon_threadsafe(event.set)
        return found

    flows.sync.waiters._enter = noting  # type: ignore[method-assign]
    return event


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_an_asynchronous_twin_with_the_same_arguments(name: str) -> None:
    twin, method = getattr(AsyncWorkflows, name), getattr(Workflows, name)
    assert inspect.iscoroutinefunction(twin)
    assert inspect.signature(twin).parameters.keys() == inspect.signature(method).parameters.keys()


async def test_a_workflows_life_in_coroutines(flows: AsyncWorkflows, worker: WorkflowWorker) -> None:
    run = await flows.start(asking, 3, idempotency_key="k")
    assert (await flows.start(asking, 3, idempotency_key="k")).id == run.id
    await flows.signal(run.id, "word", "yes")
    assert await run.result(PATIENCE_S) == "yes"
    assert (await run.status(), await flows.stages(run.id)) == (
        WorkflowStatus.SUCCEEDED, {"asks": WorkflowStatus.SUCCEEDED},
    )  # fmt: skip
    assert (await (await flows.get(run.id)).record()).id == run.id
    assert (await run.describe()).name == "asking"
    assert f"{run!r}" == f"<AsyncWorkflowRun of <workflow {run.id}>>"


async def test_those_who_wait_for_many_are_told(flows: AsyncWorkflows, worker: WorkflowWorker) -> None:
    runs = await flows.start_many(single, [(number,) for number in range(20)])
    assert await asyncio.gather(*(run.result(PATIENCE_S) for run in runs)) == [*range(20)]


async def test_what_fails_and_what_takes_too_long_raises_where_it_is_awaited(
    flows: AsyncWorkflows, worker: WorkflowWorker
) -> None:
    with pytest.raises(TaskError, match="too small"):
        await (await flows.start(single, -1)).result(PATIENCE_S)
    run = await flows.start(asking, 1)
    with pytest.raises(TimeoutError, match=r"has not ended within 0\.01 s"):
        await run.result(0.01)
    await flows.cancel(run.id, "enough")
    with pytest.raises(TaskError, match="enough"):
        await run.result(PATIENCE_S)
    assert (await flows.wait(run.id)).status == "CANCELED"


async def test_no_thread_is_used_while_coroutines_wait(flows: AsyncWorkflows, worker: WorkflowWorker) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    runs = await flows.start_many(asking, [(number,) for number in range(10)])
    they_wait = all_wait(flows, len(runs))
    waiting = [asyncio.ensure_future(run.result(PATIENCE_S)) for run in runs]
    await they_wait.wait()
    for run in runs:  # by the only thread that there is
        await flows.signal(run.id, "word", run.id)
    assert await asyncio.gather(*waiting) == [run.id for run in runs]


async def test_what_another_process_ends_is_heard_of(flows: AsyncWorkflows, store: Store) -> None:
    run = await flows.start(single, 7)
    it_waits = all_wait(flows, 1)
    waiting = asyncio.ensure_future(run.result(PATIENCE_S))
    await it_waits.wait()
    other = Workflows(store)
    other.register(plain)
    await asyncio.to_thread(other.worker().run_once)
    assert await waiting == 7


async def test_who_stops_waiting_leaves_nothing_behind_and_the_workflow_goes_on(
    flows: AsyncWorkflows, worker: WorkflowWorker
) -> None:
    run = await flows.start(asking, 1)
    it_waits = all_wait(flows, 1)
    waiting = asyncio.ensure_future(run.result())
    await it_waits.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert flows.sync.waiters._waiters == {}
    await flows.signal(run.id, "word", "yes")
    assert await run.result(PATIENCE_S) == "yes"


async def test_who_is_cancelled_while_a_thread_looks_for_him_leaves_nothing_behind(
    flows: AsyncWorkflows, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await flows.start(asking, 1)
    looks, goes_on, has_looked = threading.Event(), threading.Event(), threading.Event()
    listen = flows.sync.waiters._listen

    def slowly() -> None:
        looks.set()
        goes_on.wait(PATIENCE_S)
        listen()
        has_looked.set()

    monkeypatch.setattr(flows.sync.waiters, "_listen", slowly)
    waiting = asyncio.ensure_future(run.result())
    await asyncio.to_thread(looks.wait, PATIENCE_S)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    goes_on.set()
    await asyncio.to_thread(has_looked.wait, PATIENCE_S)
    await asyncio.get_running_loop().shutdown_default_executor()
    assert flows.sync.waiters._waiters == {}


def test_an_end_is_told_although_somebodys_loop_is_closed(flows: AsyncWorkflows) -> None:
    run = flows.sync.start(single, 7)

    async def waits() -> Any:
        it_waits = all_wait(flows, 1)
        waiting = asyncio.ensure_future(flows.returned(run.id))
        await it_waits.wait()
        return waiting

    loop = asyncio.new_event_loop()
    left = loop.run_until_complete(waits())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    flows.sync.cancel(run.id)
    with pytest.raises(TaskError, match="CANCELED"):
        run.result(0)
    left._log_destroy_pending = False  # it is what this test is about
    left.get_coro().close()
    assert flows.sync.waiters._waiters == {}


def test_nobody_relies_on_coroutines_whose_loop_was_closed(flows: AsyncWorkflows) -> None:
    runs, waiters = [flows.sync.start(single, number) for number in range(3)], flows.sync.waiters

    async def wait() -> list[Any]:
        they_wait = all_wait(flows, 3)
        waiting = [asyncio.ensure_future(flows.returned(run.id)) for run in runs]
        await they_wait.wait()
        return waiting

    loop = asyncio.new_event_loop()
    left = loop.run_until_complete(wait())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    waiter = Waiter(runs[0].id, None, lambda: None)
    waiters.look(waiter, woken=True)
    waiters._hear()  # something has happened elsewhere
    assert waiters.look(waiter, woken=True) == POLL_S
    waiters.leave(waiter)
    assert waiters._waiters == {}
    for one in left:
        one._log_destroy_pending = False  # it is what this test is about
        one.get_coro().close()
