"""Workflows for asyncio: the same names and rules. One thread hop per call, and no thread while a coroutine waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec

from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.hop import Hopping, hop
from holdfast.workflows.functions import WorkflowFunction
from holdfast.workflows.handle import WorkflowRun
from holdfast.workflows.records import WorkflowRecord
from holdfast.workflows.waiters import Ended, Waiter
from holdfast.workflows.workflows import Workflows

P = ParamSpec("P")


class AsyncWorkflowRun(Hopping[WorkflowRun]):
    """A workflow that was started."""

    def __init__(self, workflows: AsyncWorkflows, run: WorkflowRun) -> None:
        super().__init__(run)
        self._workflows = workflows

    @property
    def id(self) -> str:
        return self.sync.id

    async def record(self) -> WorkflowRecord:
        return await self._workflows.record(self.id)

    async def status(self) -> WorkflowStatus:
        return WorkflowStatus((await self.record()).status)

    async def result(self, timeout: float | timedelta | None = None) -> Any:
        """Wait for the end, and give what the workflow returned. To stop waiting does nothing to the workflow.

        Raises TimeoutError when it takes longer, TaskError when it did not succeed.
        """
        return await self._workflows.returned(self.id, timeout)

    describe = hop(WorkflowRun.describe)


def _run(
    method: Callable[Concatenate[Workflows, P], WorkflowRun],
) -> Callable[Concatenate[AsyncWorkflows, P], Coroutine[Any, Any, AsyncWorkflowRun]]:
    """A method that gives a handle: here it gives one whose methods are awaited."""
    call = hop(method)

    async def hopped(self: AsyncWorkflows, /, *args: P.args, **kwargs: P.kwargs) -> AsyncWorkflowRun:
        return AsyncWorkflowRun(self, await call(self, *args, **kwargs))

    update_wrapper(hopped, method)
    return hopped


class AsyncWorkflows(Hopping[Workflows]):
    """See `Workflows`; made of one: `AsyncWorkflows(hold.workflows)`. What is set up once, as tasks, workers and
    schedules are, is at `sync`."""

    start = _run(Workflows.start)
    fork = _run(Workflows.fork)
    get = _run(Workflows.get)
    cancel = _run(Workflows.cancel)
    pause = _run(Workflows.pause)
    resume = _run(Workflows.resume)
    restart = _run(Workflows.restart)
    retry = _run(Workflows.retry)
    skip = _run(Workflows.skip)
    jump = _run(Workflows.jump)
    cancel_stage = _run(Workflows.cancel_stage)
    add_instances = _run(Workflows.add_instances)

    signal = hop(Workflows.signal)
    approve = hop(Workflows.approve)
    reject = hop(Workflows.reject)

    find = hop(Workflows.find)
    counts = hop(Workflows.counts)
    record = hop(Workflows.record)
    summary = hop(Workflows.summary)
    workflow = hop(Workflows.workflow)
    stages = hop(Workflows.stages)
    work = hop(Workflows.work)
    log = hop(Workflows.log)
    state_at = hop(Workflows.state_at)
    stranded = hop(Workflows.stranded)
    place = hop(Workflows.place)
    describe = hop(Workflows.describe)
    prune = hop(Workflows.prune)
    start_waiting = hop(Workflows.start_waiting)

    async def start_many(
        self,
        workflow: WorkflowFunction[Any, Any] | str,
        inputs: Iterable[tuple[Any, ...] | Mapping[str, Any]],
        /,
        *,
        idempotency_keys: Sequence[str | None] | None = None,
    ) -> list[AsyncWorkflowRun]:
        """See `Workflows.start_many`."""
        runs = await asyncio.to_thread(self.sync.start_many, workflow, inputs, idempotency_keys=idempotency_keys)
        return [AsyncWorkflowRun(self, run) for run in runs]

    async def wait(self, id: str, timeout: float | timedelta | None = None) -> WorkflowRecord:
        """The workflow once it has ended. Raises TimeoutError."""
        return (await self._ended(id, timeout)).record

    async def returned(self, id: str, timeout: float | timedelta | None = None) -> Any:
        """What it has returned, once it has ended. Raises TimeoutError when it takes longer, TaskError when it did not
        succeed."""
        return await asyncio.to_thread(self.sync.answer_of, await self._ended(id, timeout))

    async def _ended(self, id: str, timeout: float | timedelta | None) -> Ended:
        loop, news, woken = asyncio.get_running_loop(), asyncio.Event(), True

        def wake() -> bool:
            try:
                loop.call_soon_threadsafe(news.set)
            except RuntimeError:
                return False  # the loop is closed, and nobody waits any more
            return True

        waiters, waiter = self.sync.waiters, Waiter(id, timeout, wake)
        try:
            while not isinstance(found := await asyncio.to_thread(waiters.look, waiter, woken=woken), Ended):
                try:
                    async with asyncio.timeout(found):
                        woken = await news.wait()
                except TimeoutError:
                    woken = False
                news.clear()
            return found
        finally:
            waiters.leave(waiter)
