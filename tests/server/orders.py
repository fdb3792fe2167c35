"""A shop whose orders are workflows, for tests of the server and of the console."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from holdfast import Holdfast, Retry, task, workflow
from holdfast.core.clock import Clock
from holdfast.errors import PermanentError
from holdfast.workflows.messages import CancelWorkflow
from holdfast.workflows.model import Workflow
from holdfast.workflows.records import ITEM
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task_context import current_task
from holdfast.workflows.task_run import TaskExecution
from holdfast.workflows.waiting import wait_signal
from tests.server.clients import holding
from tests.stores import fresh_url

SECRET: Final = "hunter2"
ORDER: Final[dict[str, Any]] = {"order": {"id": 7, "password": SECRET}}


class Shop:
    """Its workflows: `fulfil` reserves, charges, waits for a yes and ships; `greet` greets."""

    def __init__(self, hold: Holdfast) -> None:
        self.hold = hold
        self.refuses = False
        """Whether the bank does, for now."""
        self.rejects = False
        """Whether it does for good."""
        self.charged: list[int] = []
        self.holds_files = True
        """Whether something still holds the file that `spool` wants to remove."""
        shop = self

        @task
        def reserve(order: dict[str, Any]) -> dict[str, Any]:
            return {"shelf": "A7", "token": SECRET}

        @task(retry=Retry(attempts=2, base=5, jitter="none"))
        def charge(order: dict[str, Any], reserved: dict[str, Any]) -> int:
            if shop.refuses:
                raise ConnectionError("the bank is away")
            if shop.rejects:
                raise PermanentError("the card is no card")
            shop.charged.append(order["id"])
            return 42

        @task
        def ship(paid: int, yes: Any) -> str:
            return f"shipped for {paid}"

        @workflow
        def fulfil(order: dict[str, Any]) -> Any:
            paid = charge(order, reserve(order))
            return ship(paid, wait_signal("approve", after=paid))

        @task
        def hello(name: str) -> str:
            return f"hello {name}"

        @workflow
        def greet(name: str = "world") -> Any:
            return hello(name)

        hold.workflows.add(fulfil)
        hold.workflows.add(greet)

    def order(self, id: int = 7, *, works: bool = True) -> str:
        """An order that is charged, unless the bank refuses, and waits for a yes."""
        run = self.hold.workflows.start("fulfil", order={"id": id, "password": SECRET})
        if works:
            self.work()
        return run.id

    def spool(self) -> str:
        """A workflow that is over, whose finalizer could not remove its file."""
        flows = self.hold.workflows

        @flows.finalizers.add
        def remove(path: str) -> None:
            if self.holds_files:
                raise OSError("busy")

        @task
        def write() -> None:
            here = current_task()
            assert here is not None
            here.finalize("remove", path="/spool/7")

        @workflow
        def spool() -> Any:
            return write()

        id = flows.start(spool).id
        for _ in range(10):
            self.work()
            self.hold.store.sweep(ITEM, (), {"due_at": self.hold.store.now()})
        return id

    def bury(self, *ids: str) -> None:
        """Messages that nobody can deliver: dead items with these ids."""
        for id in ids:
            self.hold.workflows.queue.push(
                CancelWorkflow(execution_id="nowhere", message_id=id, max_attempts=1, user="ann")
            )
        self.work()

    def work(self) -> None:
        """Do what is due."""
        worker = self.hold.workflows.worker()
        worker.run_once()
        worker.close()


@contextmanager
def shop_on(name: str, tmp_path: Path, clock: Clock | None = None) -> Iterator[Shop]:
    """The shop on a new store of that name."""
    with fresh_url(name, tmp_path) as url, holding(tmp_path, clock, url) as hold:
        yield Shop(hold)


def wide(number: int, name: str = "wide") -> Workflow:
    """A workflow of very many stages, ten in a layer."""
    stages = []
    for at in range(number):
        before = [f"s{at - 10}"] if at >= 10 else []
        if at >= 10 and at % 10 == 0:
            before.append(f"s{at - 9}")
        tasks = [TaskExecution.create("hello", "hello")]
        stages.append(StageExecution.create("test", f"s{at}", f"s{at}", requisite_stage_ref_ids=before, tasks=tasks))
    return Workflow.create("shop", name, stages)
