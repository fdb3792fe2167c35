"""What clients and workers do to workflows, so that each change of the store that the engine can make is made by one.

A scenario is played on a `WorkflowTestKit`, whose processes may die at any point: it must come to the same end. Clients
die as well, and ask again. Those of what is around a workflow are in `composed_scenarios.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from holdfast.errors import DeadLetterError, TransientError
from holdfast.store.port import Delete
from holdfast.testing.workflow_kit import WorkflowTestKit
from holdfast.workflows.config import HandlerConfig
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.messages import SkipStage, StartWorkflow
from holdfast.workflows.records import WORKFLOW
from holdfast.workflows.waiting import sleep, wait_signal
from tests.workflows import composed_scenarios as composed
from tests.workflows.clients import Ends, S, client, started


@task
def step(number: int) -> int:
    return number + 1


@task
async def add(*numbers: int) -> int:
    return sum(numbers)


@workflow
def diamond(number: int) -> Any:
    first = step(number)
    left, right = step(step(first)), step(first)
    return add(left, right)


def a_diamond(kit: WorkflowTestKit) -> Ends:
    run = started(kit, diamond, 1)
    return [(S.SUCCEEDED, kit.finish(run))]


def a_timer_and_a_signal(kit: WorkflowTestKit) -> Ends:
    @workflow
    def patient() -> Any:
        slept = sleep(timedelta(days=30))
        return [step(1), wait_signal("ok", after=[slept])]

    run = started(kit, patient)
    kit.advance(timedelta(days=31))
    client(kit, lambda: kit.signal(run, "ok", 5))
    return [(S.SUCCEEDED, kit.finish(run))]


def a_signal_that_comes_early(kit: WorkflowTestKit) -> Ends:
    run = started(kit, workflow(name="early")(lambda: wait_signal("ok")))
    client(kit, lambda: kit.signal(run, "ok", 5))
    return [(S.SUCCEEDED, kit.finish(run))]


def a_pause_and_a_cancel(kit: WorkflowTestKit) -> Ends:
    run = started(kit, workflow(name="held")(lambda: step(sleep(60))))
    kit.run_until_idle()
    client(kit, lambda: kit.workflows.pause(run.id))
    kit.advance(3600)
    assert run.status is S.PAUSED
    client(kit, lambda: kit.workflows.resume(run.id))
    client(kit, lambda: kit.workflows.cancel(run.id))
    kit.run_until_idle()
    return [(run.status, None)]


def a_failure_that_is_retried(kit: WorkflowTestKit) -> Ends:
    is_broken = [True]

    @task
    def shaky(number: int) -> int:
        if is_broken[0]:
            raise ValueError("no")
        return number

    run = started(kit, workflow(name="shaky")(lambda: shaky(step(1))))
    kit.run_until_idle()
    assert run.status is S.TERMINAL
    is_broken[0] = False
    client(kit, lambda: kit.workflows.retry(run.id))
    return [(S.SUCCEEDED, kit.finish(run))]


def a_retry_after_a_while(kit: WorkflowTestKit) -> Ends:
    tries: list[int] = []

    @task
    def shaky() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise TransientError("not yet", retry_after=60)
        return "done"

    run = started(kit, workflow(name="later")(lambda: shaky()))
    return [(S.SUCCEEDED, kit.finish(run))]


def a_dead_worker_is_buried(kit: WorkflowTestKit) -> Ends:
    run = started(kit, diamond, 1)
    kit.crash_at(5)  # when its first step is to be written down
    return [(S.SUCCEEDED, kit.finish(run))]


def a_task_that_is_interrupted(kit: WorkflowTestKit) -> Ends:
    calls: list[int] = []

    @task
    def quits() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return "done"

    run = started(kit, workflow(name="quits")(lambda: quits()))
    for process in list(kit._crew):
        try:
            kit.run_until_idle()
        except KeyboardInterrupt:
            kit._do(process, process.worker._shift._ownership.give_back)  # what it does about it, before it ends
            kit.crash()
    return [(S.SUCCEEDED, kit.finish(run))]


def a_workflow_that_was_deleted(kit: WorkflowTestKit) -> Ends:
    run = started(kit, workflow(name="gone")(lambda: step(1)))
    kit.runs.remove(run)
    kit.store.commit([Delete(WORKFLOW, run.record)])
    kit.run_until_idle()
    return []


def a_message_that_nobody_can_handle(kit: WorkflowTestKit) -> Ends:
    flows, message = kit.workflows, StartWorkflow(execution_id="none", message_id="k", max_attempts=2)
    client(kit, lambda: flows.queue.push(message))
    kit.advance(3600)
    assert flows.dead.count() == 1
    client(kit, lambda: flows.dead.replay("k"))
    kit.advance(3600)
    client(kit, lambda: flows.dead.discard("k"))
    return [(S.NOT_STARTED, flows.dead.count())]


def a_signal_too_many(kit: WorkflowTestKit) -> Ends:
    run = started(kit, workflow(name="full")(lambda: wait_signal("other")))
    kit.workflows.configs = replace(kit.workflows.configs, handler=HandlerConfig(signal_buffer_max=0))

    def send() -> None:
        try:
            kit.workflows.signal(run.id, "go", signal_id="s")
        except DeadLetterError:
            pass

    client(kit, send)
    dead = kit.workflows.dead.count()
    client(kit, lambda: kit.workflows.cancel(run.id))
    return [(run.status, dead)]


def several_starts_at_once(kit: WorkflowTestKit) -> Ends:
    flow = workflow(name="several")(lambda number: step(number))
    first = kit.start(flow, 0)
    kit.finish(first)  # so that its definition is known
    given = [{"number": 1}, {"number": 2}]
    client(kit, lambda: kit.workflows.start_many(flow, given, idempotency_keys=["one", "two"]))
    kit.run_until_idle()
    return [(S.SUCCEEDED, kit.workflows.counts() == {S.SUCCEEDED: 3})]


def a_transaction_of_the_store(kit: WorkflowTestKit) -> Ends:
    run = started(kit, workflow(name="skipped")(lambda: step(sleep(60))))
    kit.run_until_idle()

    def ask() -> None:
        with kit.workflows.store.transaction() as transaction:
            transaction.push_message(SkipStage(execution_id=run.id, stage_id="step", message_id="k"))

    client(kit, ask)
    kit.finish(run)
    kit.advance(timedelta(days=30))
    client(kit, kit.workflows.recovery.forget_marks)
    assert not kit.workflows.store.is_message_processed("k")
    return [(run.status, None)]


def tasks_that_have_a_rate(kit: WorkflowTestKit) -> Ends:
    kit.workflows.rates.limit_task("step", 1, per=60, burst=3)
    kit.workflows.rates.limit_queue("default", 1, per=60)
    run = started(kit, workflow(name="rated")(lambda: [step(1), step(2)]))
    return [(S.SUCCEEDED, kit.finish(run))]


def a_crowd_and_somebody_behind_it(kit: WorkflowTestKit) -> Ends:
    wide = started(kit, workflow(name="wide")(lambda: [step(number) for number in range(12)]))  # more than are claimed
    other = started(kit, workflow(name="other")(lambda: step(1)), key="order-8")
    return [(S.SUCCEEDED, kit.finish(run)) for run in (wide, other)]


SCENARIOS: dict[str, Callable[[WorkflowTestKit], Ends]] = {
    play.__name__: play
    for play in (
        a_diamond, a_timer_and_a_signal, a_signal_that_comes_early, a_pause_and_a_cancel, a_failure_that_is_retried,
        a_retry_after_a_while, a_dead_worker_is_buried, a_task_that_is_interrupted, a_workflow_that_was_deleted,
        a_message_that_nobody_can_handle, a_signal_too_many, several_starts_at_once,
        a_transaction_of_the_store, tasks_that_have_a_rate, a_crowd_and_somebody_behind_it, *composed.SCENARIOS,
    )
}  # fmt: skip
