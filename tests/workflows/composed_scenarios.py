"""Scenarios of what is around a workflow: finalizers, sub-workflows, pipelines, schedules, breakers, retention."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any, Final

import sqlalchemy as sa

from holdfast.machine.breaker import Breaker
from holdfast.machine.finalizer import FINALIZER
from holdfast.machine.trip import consecutive
from holdfast.store.codec import instant
from holdfast.store.port import Delete, Swap
from holdfast.store.record import evolve
from holdfast.testing.workflow_kit import WorkflowTestKit
from holdfast.workflows.finalizers import get_finalizer_registry
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.messages import RunFinalizers, StartWaitingWorkflows
from holdfast.workflows.model import Workflow
from holdfast.workflows.records import EVENT, ITEM, PIPELINE, SERVING, STAGE, WORKFLOW
from holdfast.workflows.result import TaskResult
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task import Task
from holdfast.workflows.task_context import current_task
from holdfast.workflows.transactions import current_session
from holdfast.workflows.waiting import wait_signal
from tests.workflows.clients import Ends, S, client, started
from tests.workflows.journal import stage

ENTRIES: Final = sa.Table("entries", sa.MetaData(), sa.Column("key", sa.String(100)))
"""Nothing in it is unique: what is written twice is there twice."""


@task
def step(number: int) -> int:
    return number + 1


@task
def unpack(*names: str) -> None:
    here = current_task()
    assert here is not None
    for name in names:
        here.finalize(name)


@workflow
def tidy(*names: str) -> Any:
    return unpack(*names)


@workflow(limit=1)
def alone(number: int) -> Any:
    return wait_signal("go", after=step(number))


@workflow
def approved() -> Any:
    return wait_signal("approved")


@workflow
def patient() -> Any:
    return approved()


def states(kit: WorkflowTestKit) -> list[tuple[str, str]]:
    return [(one.name, one.state.value) for one in kit.workflows.finalizers.find()]


def statuses(kit: WorkflowTestKit) -> dict[str, int]:
    return {status.value: number for status, number in sorted(kit.workflows.counts().items())}


def finalizers_of_which_one_fails_at_first(kit: WorkflowTestKit) -> Ends:
    tries: list[int] = []
    called: set[str] = set()

    @kit.workflows.finalizers.add
    def shaky() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("busy")
        called.add("shaky")

    @kit.workflows.finalizers.add
    async def later() -> None:
        called.add("later")

    run = started(kit, tidy, "shaky", "later")
    kit.finish(run)
    kit.advance(3600)
    return [(run.status, (sorted(called), states(kit)))]


def hooks_of_a_task_that_is_cut(kit: WorkflowTestKit) -> Ends:
    called: set[str] = set()

    class Careful(Task):
        def execute(self, stage: StageExecution) -> TaskResult:
            return TaskResult.wait_signal("go") if stage.ref_id == "b" else TaskResult.success()

        def on_cancel(self, stage: StageExecution) -> TaskResult:
            called.add(f"cancel {stage.ref_id}")
            return TaskResult.success({"stopped": True})

        def on_cleanup(self, stage: StageExecution) -> None:
            called.add(f"cleanup {stage.ref_id}")

    kit.workflows.registry.register("noted", Careful)
    run = started(kit, Workflow.create("shop", "cut", [stage("a"), stage("b", "a")]))
    kit.run_until_idle()
    client(kit, lambda: kit.workflows.cancel(run.id))
    kit.run_until_idle()
    left = kit.workflows.workflow(run.id).stage("b").outputs
    return [(run.status, (sorted(called), left, states(kit)))]


def a_callback_or_who_stands_in_for_it(kit: WorkflowTestKit) -> Ends:
    closed: set[str] = set()

    def answer(stage: StageExecution) -> TaskResult:
        get_finalizer_registry().register(stage.id, "close", lambda: closed.add(stage.id))
        return TaskResult.success()

    kit.workflows.registry.register("noted", answer)
    kit.workflows.finalizers.add(lambda stage_id: closed.add(stage_id), "close")
    run = started(kit, Workflow.create("shop", "open", [stage("a")]))
    kit.finish(run)
    kit.run_until_idle()
    return [(run.status, (closed == {f"{run.id}.a"}, states(kit)))]


def finalizers_whose_item_is_lost(kit: WorkflowTestKit) -> Ends:
    broken = [True]

    @kit.workflows.finalizers.add
    def shaky() -> None:
        if broken:
            raise OSError("busy")

    run = started(kit, tidy, "shaky")
    kit.run_until_idle()
    assert states(kit) == [("shaky", "PENDING")]
    kit.store.commit([Delete(ITEM, item) for item in kit.store.page(ITEM)])
    broken.clear()
    message = RunFinalizers(execution_id=run.id, stage_id="unpack", message_id="k")
    client(kit, lambda: kit.workflows.queue.push(message))
    kit.run_until_idle()
    return [(run.status, states(kit))]


def a_workflow_in_a_workflow(kit: WorkflowTestKit) -> Ends:
    is_broken = [True]

    @task
    def book(number: int) -> int:
        if is_broken[0]:
            raise ValueError("no")
        return number

    @workflow
    def booking(number: int) -> Any:
        return book(step(number))

    run = started(kit, workflow(name="outer")(lambda: step(booking(1))))
    kit.run_until_idle()
    assert run.status is S.TERMINAL
    is_broken[0] = False
    client(kit, lambda: kit.workflows.retry(run.id))
    return [(S.SUCCEEDED, (kit.finish(run), statuses(kit)))]


def a_cancel_that_reaches_those_below(kit: WorkflowTestKit) -> Ends:
    run = started(kit, workflow(name="grand")(lambda: patient()))
    kit.run_until_idle()
    assert statuses(kit) == {"RUNNING": 3}
    client(kit, lambda: kit.workflows.cancel(run.id))
    kit.run_until_idle()
    return [(run.status, statuses(kit))]


def workflows_that_wait_in_line(kit: WorkflowTestKit) -> Ends:
    flows, runs = kit.workflows, [started(kit, alone, number, key=f"order-{number}") for number in range(5)]
    kit.run_until_idle()
    client(kit, lambda: flows.start_waiting("alone", limit=2))
    kit.run_until_idle()
    found = [statuses(kit)]
    [line] = kit.store.page(PIPELINE)
    kit.store.commit([Swap(PIPELINE, line, evolve(line, most=3))])  # room that nobody has made
    message = StartWaitingWorkflows(pipeline_config_id="alone", message_id="k")
    client(kit, lambda: flows.queue.push(message))
    kit.run_until_idle()
    found.append(statuses(kit))
    for run in runs:
        client(kit, partial(kit.signal, run, "go", 5))
    kit.run_until_idle()
    return [(S.SUCCEEDED, (found, statuses(kit)))]


def a_schedule_that_is_changed(kit: WorkflowTestKit) -> Ends:
    schedules = kit.workflows.schedules
    client(kit, lambda: schedules.add("daily", tidy, cron="@daily"))
    client(kit, lambda: schedules.add("daily", tidy, cron="@hourly"))
    assert kit.skip_time()
    client(kit, lambda: schedules.pause("daily"))
    assert not kit.skip_time()
    client(kit, lambda: schedules.resume("daily"))
    kit.advance(2 * 3600)
    client(kit, lambda: schedules.delete("daily"))
    kit.advance(3 * 3600)
    return [(S.SUCCEEDED, (statuses(kit), [entry.type for entry in schedules.log("daily")]))]


def schedules_that_overlap(kit: WorkflowTestKit) -> Ends:
    schedules, found = kit.workflows.schedules, []
    for overlap in ("skip", "queue", "cancel_previous"):
        client(kit, partial(schedules.add, overlap, approved, cron="@hourly", overlap=overlap))
    for _ in range(3):
        kit.advance(3600)
        found.append(statuses(kit))
    client(kit, lambda: kit.workflows.cancel(str(schedules.get("skip").last_run)))
    client(kit, lambda: schedules.run("skip"))
    kit.run_until_idle()
    words = {one.name: [entry.type for entry in schedules.log(one.name)] for one in schedules.all()}
    found.append(statuses(kit))
    for one in kit.workflows.find(limit=1000):
        if not one.status.is_complete:
            kit.workflows.cancel(one.id)
    return [(S.CANCELED, (found, words))]


def a_breaker_that_closes_early(kit: WorkflowTestKit) -> Ends:
    bank = kit.hold.guard("bank", Breaker(consecutive(1), open_for=86400))
    bank.outcome(_away)()

    @task(guard="bank")
    def pay() -> str:
        return "paid"

    run = started(kit, workflow(name="paying")(lambda: pay()))
    kit.run_until_idle()
    assert "task_parked pay" in kit.log(run)
    bank.circuit.command("reset")
    return [(S.SUCCEEDED, kit.finish(run))]


def workflows_that_ended_long_ago(kit: WorkflowTestKit) -> Ends:
    kit.workflows.finalizers.add(lambda: None, "remove")
    for number in range(3):
        kit.finish(started(kit, tidy, "remove", key=f"order-{number}"))
    kit.advance(timedelta(days=40))
    young = started(kit, tidy, key="young")
    kit.finish(young)
    kit.runs[:] = [young]
    client(kit, lambda: kit.workflows.prune(instant(kit.store.now()) - timedelta(days=30)))
    kept = {row.workflow for kind in (STAGE, EVENT, FINALIZER) for row in kit.store.page(kind)}
    kept |= {row.id for row in kit.store.page(WORKFLOW)}
    return [(young.status, kept == {young.id})]


def a_worker_that_is_stopped(kit: WorkflowTestKit) -> Ends:
    run = started(kit, approved)
    kit.run_until_idle()
    [process] = kit._crew
    kit._do(process, process.worker._shift.drain)
    if process in kit._crew:
        kit.crash()
    kit.signal(run, "approved", 5)
    result = kit.finish(run)
    kit.advance(600)
    late = [one for one in kit.store.page(SERVING) if one.due_at <= kit.store.now()]
    return [(S.SUCCEEDED, (result, late))]


def steps_that_commit_with_what_they_write(kit: WorkflowTestKit) -> Ends:
    with kit.hold.sessions() as session, session.begin():
        ENTRIES.create(session.connection())

    @task(effect="transactional")
    def book(number: int) -> int:
        here = current_task()
        assert here is not None
        current_session().execute(ENTRIES.insert().values(key=here.ref))
        return number + 1

    run = started(kit, workflow(name="books")(lambda: step(book(book(1)))))
    result = kit.finish(run)
    with kit.hold.sessions() as session:
        keys = list(session.scalars(sa.select(ENTRIES.c.key)))
    return [(S.SUCCEEDED, (result, keys))]


SCENARIOS: Final = (
    finalizers_of_which_one_fails_at_first, hooks_of_a_task_that_is_cut, a_callback_or_who_stands_in_for_it,
    finalizers_whose_item_is_lost, a_workflow_in_a_workflow, a_cancel_that_reaches_those_below,
    workflows_that_wait_in_line, a_schedule_that_is_changed, schedules_that_overlap, a_breaker_that_closes_early,
    workflows_that_ended_long_ago, a_worker_that_is_stopped, steps_that_commit_with_what_they_write,
)  # fmt: skip
_ON_SQLITE: Final = {steps_that_commit_with_what_they_write.__name__}


@contextmanager
def kit_for(name: str) -> Iterator[WorkflowTestKit]:
    """The kit that a scenario is played on: in memory, unless it needs sessions."""
    if name not in _ON_SQLITE:
        with WorkflowTestKit() as kit:
            yield kit
        return
    with TemporaryDirectory() as folder, WorkflowTestKit(f"sqlite:///{folder}/kit.db") as kit:
        yield kit


def _away() -> None:
    raise OSError("away")
