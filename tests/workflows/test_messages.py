"""Messages: what they say, what each does, and what becomes of one that cannot be handled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from holdfast.errors import DeadLetterError, PolicyError, SchemaError, WorkflowDefinitionError
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.port import Insert, Store, Swap
from holdfast.store.record import evolve
from holdfast.testing.clock import ManualClock
from holdfast.workflows import messages as m
from holdfast.workflows.acting import ACTS
from holdfast.workflows.burial import bell
from holdfast.workflows.config import HandlerConfig
from holdfast.workflows.multi_instance import MultiInstanceConfig
from holdfast.workflows.presence import MOST_CRASHES
from holdfast.workflows.records import ITEM, MESSAGE
from holdfast.workflows.result import TaskResult
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task_run import TaskExecution
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows
from tests.workflows.journal import Journal, stage, start

S = WorkflowStatus
FULL: dict[str, dict[str, Any]] = {
    "StartWaitingWorkflows": {"pipeline_config_id": "p", "purge_queue": True},
    "CancelWorkflow": {"user": "ann", "reason": "enough"},
    "JumpToStage": {"target_stage_ref_id": "b", "jump_context": {"x": [1]}, "jump_outputs": {"y": None}},
    "SignalStage": {"signal_name": "go", "signal_data": {"by": "ann"}, "persistent": False},
    "AddMultiInstance": {"instance_context": {"item": 1}},
    "CompleteTask": {"status": S.TERMINAL, "error": "no", "outputs": {"a": 1}},
    "ContinueParentStage": {"phase": "STAGE_BEFORE"},
}


@pytest.fixture
def journal(flows: Workflows) -> Journal:
    return Journal(flows)


def made(kind: type[m.Message], **more: Any) -> m.Message:
    target = {"stage_id": "a"} if issubclass(kind, m.StageMessage) else {}
    return kind(execution_id="w", **{**target, **FULL.get(kind.__name__, {}), **more})


def log(flows: Workflows, id: str) -> list[str]:
    return [entry.type for entry in flows.log(id)]


@pytest.mark.parametrize("kind", m.CLASSES.values(), ids=lambda kind: kind.__name__)
def test_a_message_is_frozen_and_comes_back_from_json_as_it_was(kind: type[m.Message]) -> None:
    message = made(kind, message_id="k", attempts=2, max_attempts=4, last_error="no", created_at=None)
    assert m.message_of(message.to_document()) == message
    assert (message.to_document()["schema"], message.to_document()["type"]) == (1, kind.__name__)
    with pytest.raises(FrozenInstanceError):
        message.attempts = 3  # type: ignore[misc]  # what is tested


def test_a_message_has_the_defaults_of_the_seed() -> None:
    message = m.StartStage(execution_id="w", stage_id="w.a")
    assert (message.attempts, message.max_attempts, message.last_error, message.created_at) == (0, 10, None, None)
    assert (message.ref, message.target) == ("a", "a")
    assert message.message_id != m.StartStage(execution_id="w", stage_id="w.a").message_id


def test_a_message_with_an_incarnation_has_a_logical_key() -> None:
    task = m.RunTask(execution_id="w", stage_id="w.a", task_id="w.a.0", incarnation=2, attempts=1)
    assert task.message_id == "w.a.0.2.1.RunTask"
    assert m.StartStage(execution_id="w", stage_id="a", incarnation=2).message_id == "w.a.2.0.StartStage"
    assert m.StartWorkflow(execution_id="w", incarnation=1).message_id == "w.1.0.StartWorkflow"


@pytest.mark.parametrize(
    ("kind", "fields", "said"),
    [
        (m.StartWorkflow, {"execution_id": ""}, "execution_id must be a text"),
        (m.StartStage, {"execution_id": "w", "stage_id": ""}, "stage_id must be a text"),
        (m.SignalStage, {"execution_id": "w", "signal_name": ""}, "signal_name must be a text"),
        (m.StartWorkflow, {"execution_id": "w", "message_id": "k" * 192}, "message_id must be a text of 1 to 191"),
        (m.StartWorkflow, {"execution_id": "w", "max_attempts": 0}, "max_attempts must be a whole number from 1"),
        (m.StartWorkflow, {"execution_id": "w", "attempts": -1}, "attempts must be a whole number from 0"),
        (m.StartWaitingWorkflows, {}, "execution_id must be a text"),
    ],
)
def test_a_message_that_cannot_be_is_refused_when_it_is_made(kind: Any, fields: Any, said: str) -> None:
    with pytest.raises(WorkflowDefinitionError, match=said):
        kind(**fields)


@pytest.mark.parametrize(
    "document", [None, {}, {"type": "Nothing"}, {"type": "StartWorkflow", "schema": 1}, {"type": ["x"]},
                 {"type": "StartWorkflow", "schema": 9, "execution_id": "w", "message_id": "k"},
                 {"type": "CompleteTask", "schema": 1, "execution_id": "w", "message_id": "k", "stage_id": "a",
                  "status": "WALKING"},
                 {"type": "StartStage", "schema": 1, "execution_id": "w", "message_id": "k"}],
)  # fmt: skip
def test_what_this_program_does_not_understand_is_no_message(document: Any) -> None:
    with pytest.raises(SchemaError):
        m.message_of(document)


def test_every_message_has_an_act_or_a_handler_or_says_that_it_has_none(flows: Workflows) -> None:
    """RunFinalizers and StartWaitingWorkflows are handled where finalizers and pipelines are."""
    assert set(m.CLASSES) - set(ACTS) - set(flows.delivery.handlers) <= {"RunFinalizers", "StartWaitingWorkflows"}


@pytest.fixture
def push(flows: Workflows, worker: WorkflowWorker) -> Callable[..., None]:
    def push(kind: type[m.Message], id: str, **fields: Any) -> None:
        assert flows.queue.push(kind(execution_id=id, **fields))
        worker.run_once()
        assert flows.dead.list() == []

    return push


def test_cancel_workflow_cancels(flows: Workflows, push: Any, journal: Journal) -> None:
    run = start(flows, stage("a", scheduled_time=datetime(2040, 1, 1, tzinfo=UTC)))
    push(m.CancelWorkflow, run.id, user="ann", reason="enough")
    shown = flows.workflow(run.id)
    assert (run.status, shown.canceled_by, shown.cancellation_reason) == (S.CANCELED, "ann", "enough")
    push(m.CancelWorkflow, run.id)  # it has ended: nothing to do


def test_cancel_stage_ends_one_stage_and_halts_what_comes_after(flows: Workflows, push: Any, journal: Journal) -> None:
    journal.answers["a"] = [TaskResult.suspend()]
    run = start(flows, stage("a"), stage("b", "a"), stage("c"))
    flows.worker().run_once()
    push(m.CancelStage, run.id, stage_id=f"{run.id}.a")
    assert flows.stages(run.id) == {"a": S.CANCELED, "b": S.SKIPPED, "c": S.SUCCEEDED}
    assert run.status is S.CANCELED


def test_skip_and_restart_do_what_an_operator_does(flows: Workflows, push: Any, journal: Journal) -> None:
    run = start(flows, stage("a"), stage("b", "a"))
    push(m.SkipStage, run.id, stage_id="b", user="ann")
    assert (run.status, journal.ran) == (S.SUCCEEDED, ["a"])
    push(m.RestartStage, run.id, stage_id="a")
    assert (run.status, journal.ran) == (S.SUCCEEDED, ["a", "a", "b"])


def test_pause_task_and_resume_stage_hold_a_workflow_and_let_it_go(
    flows: Workflows, push: Any, journal: Journal
) -> None:
    run = start(flows, stage("a"))
    flows.queue.push(m.PauseTask(execution_id=run.id, stage_id="a", user="ann"))
    assert flows.queue.push(m.ResumeStage(execution_id=run.id, stage_id="a"), delay=60)
    flows.worker().run_once()
    assert (run.status, journal.ran) == (S.PAUSED, [])
    push(m.ResumeStage, run.id, stage_id="a")  # a message is not held with its workflow
    assert (run.status, journal.ran) == (S.SUCCEEDED, ["a"])


def test_jump_to_stage_leaves_a_stage_that_waits(flows: Workflows, push: Any, journal: Journal) -> None:
    journal.answers["a"] = [TaskResult.suspend()]
    run = start(flows, stage("a"), stage("b", "a"), stage("c", "b"))
    flows.worker().run_once()
    push(m.JumpToStage, run.id, stage_id="a", target_stage_ref_id="c", jump_context={"by": "hand"})
    assert (run.status, journal.ran) == (S.SUCCEEDED, ["a", "c"])
    assert flows.stages(run.id) == {"a": S.SUCCEEDED, "b": S.SKIPPED, "c": S.SUCCEEDED}
    assert flows.workflow(run.id).stage("c").context["by"] == "hand"


def test_a_signal_finds_the_stage_that_it_is_for(flows: Workflows, push: Any, journal: Journal) -> None:
    journal.answers = {"a": [TaskResult.wait_signal("go", 60)], "b": [TaskResult.wait_signal("go", 60)]}
    run = start(flows, stage("a"), stage("b"))
    flows.worker().run_once()
    push(m.SignalStage, run.id, stage_id="b", signal_name="go")
    assert flows.stages(run.id) == {"a": S.SUSPENDED, "b": S.SUCCEEDED}
    push(m.SignalStage, run.id, signal_name="go")
    assert run.status is S.SUCCEEDED


def test_add_multi_instance_adds_one(flows: Workflows, push: Any, journal: Journal) -> None:
    config = MultiInstanceConfig(count=1, allow_dynamic=True, join_threshold=3)
    run = start(flows, stage("a", mi_config=config))
    push(m.AddMultiInstance, run.id, stage_id="a", instance_context={"n": 1})
    push(m.AddMultiInstance, run.id, stage_id="a", instance_context={"n": 2})
    assert run.status is S.SUCCEEDED
    assert len(journal.ran) == 3


def test_cancel_region_withdraws_the_region_of_a_stage(flows: Workflows, push: Any, journal: Journal) -> None:
    journal.answers = {"a": [TaskResult.suspend()], "b": [TaskResult.suspend()]}
    run = start(flows, stage("a", cancel_region={"b"}), stage("b"))
    flows.worker().run_once()
    push(m.CancelRegion, run.id, stage_id="a")
    assert flows.stages(run.id) == {"a": S.SUSPENDED, "b": S.SKIPPED}


def test_run_task_ends_the_pause_between_two_tries(flows: Workflows, push: Any, journal: Journal) -> None:
    journal.answers["a"] = [TaskResult.running({})]
    run = start(flows, stage("a"))
    flows.worker().run_once()
    assert run.status is S.RUNNING
    push(m.RunTask, run.id, stage_id="a", task_id=f"{run.id}.a.0", task_type="noted")
    assert (run.status, journal.ran) == (S.SUCCEEDED, ["a", "a"])


def test_a_task_that_ended_elsewhere_is_completed_by_message(flows: Workflows, push: Any, journal: Journal) -> None:
    journal.answers = {"a": [TaskResult.suspend()], "b": [TaskResult.suspend()]}
    run = start(flows, stage("a"), stage("b", "a"))
    flows.worker().run_once()
    push(m.CompleteTask, run.id, stage_id="a", outputs={"found": 7})
    assert flows.workflow(run.id).stage("a").outputs == {"found": 7}
    push(m.CompleteTask, run.id, stage_id="b", status=S.TERMINAL, error="it broke")
    assert (run.status, run.record.reason) == (S.TERMINAL, "it broke")


def test_a_stage_whose_task_ended_elsewhere_has_no_more_time_than_before(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock, push: Any, journal: Journal
) -> None:
    journal.answers["a"] = [TaskResult.suspend(), TaskResult.suspend()]
    both = [TaskExecution.create(name, "noted") for name in ("first", "second")]
    run = start(flows, StageExecution.create("noted", "a", "a", tasks=both, stage_timeout=100))
    worker.run_once()
    clock.advance(60)
    push(m.CompleteTask, run.id, stage_id="a")
    clock.advance(39)
    worker.run_once()
    assert flows.stages(run.id) == {"a": S.SUSPENDED}
    clock.advance(2)
    worker.run_once()
    assert (run.status, run.record.reason) == (S.TERMINAL, "stage 'a' took longer than 100 s")


def test_fire_timer_ends_a_wait(flows: Workflows, push: Any, journal: Journal) -> None:
    journal.answers["a"] = [TaskResult.sleep(timedelta(days=30))]
    run = start(flows, stage("a"), stage("b", "a", scheduled_time=datetime(2040, 1, 1, tzinfo=UTC)))
    flows.worker().run_once()
    push(m.FireTimer, run.id, stage_id="a")
    assert flows.stages(run.id) == {"a": S.SUCCEEDED, "b": S.BUFFERED}


@pytest.mark.parametrize(
    "kind", [m.CompleteWorkflow, m.CompleteStage, m.ContinueParentStage, m.StartStage, m.StartTask]
)
def test_what_the_engine_does_by_itself_is_no_harm_to_ask_for(
    flows: Workflows, push: Any, journal: Journal, kind: type[m.Message]
) -> None:
    journal.answers["a"] = [TaskResult.suspend()]
    run = start(flows, stage("a"), stage("b", "a"))
    flows.worker().run_once()
    before = flows.record(run.id)
    push(kind, run.id, **({"stage_id": "a"} if issubclass(kind, m.StageMessage) else {}))
    assert flows.record(run.id) == before
    assert flows.signal(run.id, "any")


def test_a_message_is_handled_once_however_often_it_is_pushed(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    run = start(flows, stage("a"))
    worker.run_once()
    again = m.RestartStage(execution_id=run.id, stage_id="a", message_id="once")
    assert [flows.queue.push(again) for _ in range(3)] == [True, False, False]
    worker.run_once()
    assert not flows.queue.push(again)
    assert (worker.run_once(), journal.ran) == (0, ["a", "a"])
    assert flows.store.is_message_processed("once")
    assert flows.queue.push(m.RestartStage(execution_id=run.id, stage_id="a"))  # another request


def test_a_message_waits_for_its_time(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock, journal: Journal
) -> None:
    run = start(flows, stage("a"))
    worker.run_once()
    flows.queue.push(m.RestartStage(execution_id=run.id, stage_id="a"), delay=timedelta(minutes=1))
    worker.run_once()
    assert (journal.ran, flows.queue.size()) == (["a"], 1)
    clock.advance(60)
    worker.run_once()
    assert (journal.ran, flows.queue.size()) == (["a", "a"], 0)
    with pytest.raises(PolicyError, match="delay"):
        flows.queue.push(m.RestartStage(execution_id=run.id, stage_id="a"), delay=-1)
    with pytest.raises(WorkflowDefinitionError, match="is no message"):
        flows.queue.push("RestartStage")  # type: ignore[arg-type]  # what is tested


def test_a_message_is_for_the_workers_of_its_workflow(flows: Workflows, store: Store, journal: Journal) -> None:
    run = start(flows, stage("a"), queue="night")
    flows.queue.push(m.SkipStage(execution_id=run.id, stage_id="a"))
    flows.worker().run_once()
    assert flows.queue.size() == 1
    flows.worker(queues=("night",)).run_once()
    assert (run.status, flows.stages(run.id), store.page(ITEM)) == (S.SUCCEEDED, {"a": S.SKIPPED}, [])


def test_a_message_that_cannot_be_handled_now_is_tried_again_and_then_dead(store: Store, clock: ManualClock) -> None:
    config = HandlerConfig(error_handling_min_delay_ms=1000, error_handling_jitter=0.0, handler_retry_delay_seconds=3)
    flows = Workflows(store, clock=clock, config=config)
    Journal(flows)
    worker = flows.worker()
    flows.queue.push(m.SignalStage(execution_id="later", signal_name="go", message_id="early", max_attempts=4))
    waits = []
    for _ in range(4):
        worker.run_once()
        waits += [item.due_at - store.now() for item in store.page(ITEM) if item.due_at is not None]
        clock.advance(3)
    assert waits == [1_000_000, 2_000_000, 3_000_000]  # never longer than handler_retry_delay_seconds
    [dead] = flows.dead.list()
    assert (dead.id, dead.type, dead.attempts, dead.max_attempts) == ("early", "SignalStage", 4, 4)
    assert dead.error == "WorkflowNotFoundError: there is no workflow 'later'"
    start(flows, stage("a"), id="later")
    flows.dead.replay("early")
    worker.run_once()
    assert (flows.dead.count(), "signal_kept" in log(flows, "later")) == (0, True)


@pytest.mark.parametrize("most", [1, 12, 30])
def test_a_message_is_tried_as_often_as_it_says_whatever_the_retries_of_the_engine(
    store: Store, clock: ManualClock, most: int
) -> None:
    flows = Workflows(store, clock=clock, config=HandlerConfig(error_handling_max_retries=2))
    Journal(flows)
    worker = flows.worker()
    flows.queue.push(m.StartWorkflow(execution_id="nowhere", max_attempts=most))
    for _ in range(most):
        assert flows.dead.count() == 0
        worker.run_once()
        clock.advance(15)
    assert [dead.attempts for dead in flows.dead.list()] == [most]


def test_a_message_that_nobody_can_read_is_dead_at_once_and_holds_up_nobody(
    flows: Workflows, store: Store, worker: WorkflowWorker, journal: Journal
) -> None:
    run = start(flows, stage("a"))
    for number, payload in enumerate(
        ("{broken", '{"type":"Nothing","schema":1}', "[]", '{"type":"StartStage","schema":99}')
    ):
        flows.queue.push(m.SkipStage(execution_id=run.id, stage_id="a", message_id=f"bad{number}"))
        [record] = store.get(MESSAGE, [f"bad{number}"])
        assert record is not None
        store.commit([Swap(MESSAGE, record, evolve(record, payload=payload))])
    worker.run_once()
    assert run.status is S.SUCCEEDED
    assert {dead.id for dead in flows.dead.list()} == {"bad0", "bad1", "bad2", "bad3"}
    assert all(str(dead.error).startswith("SchemaError") for dead in flows.dead.list())
    assert flows.dead.show("bad0").payload == {"text": "{broken"}


def test_a_message_without_a_handler_is_an_error_and_never_acknowledged(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock, journal: Journal
) -> None:
    run = start(flows, stage("a"))
    flows.delivery._acts.pop("SkipStage")
    flows.queue.push(m.SkipStage(execution_id=run.id, stage_id="a", message_id="k", max_attempts=2))
    worker.run_once()
    assert (flows.queue.size(), flows.store.is_message_processed("k")) == (1, False)
    clock.advance(60)
    worker.run_once()
    assert "has no handler for SkipStage" in str(flows.dead.show("k").error)
    assert not flows.store.is_message_processed("k")


def test_a_message_whose_workers_die_each_time_is_dead(flows: Workflows, store: Store, worker: WorkflowWorker) -> None:
    flows.queue.push(m.StartWorkflow(execution_id="w", message_id="k"))
    [item] = store.page(ITEM)
    store.commit([Swap(ITEM, item, evolve(item, crashes=MOST_CRASHES))])
    worker.run_once()
    assert f"{MOST_CRASHES} workers died" in str(flows.dead.show("k").error)


def test_an_item_whose_message_was_discarded_goes(flows: Workflows, store: Store, worker: WorkflowWorker) -> None:
    store.commit([Insert(ITEM, bell("gone", store.now(), "default"))])
    assert worker.run_once() == 1
    assert store.page(ITEM) == []


def test_a_push_joins_the_transaction_of_the_caller(flows: Workflows, store: Store, journal: Journal) -> None:
    if store.url.startswith("memory"):
        with pytest.raises(TypeError, match="no transactions to join"):
            flows.queue.push(m.StartWorkflow(execution_id="w"), connection=object())
        return
    engine = sa.create_engine(store.url.replace("postgresql:", "postgresql+psycopg:"), poolclass=sa.NullPool)
    message = m.StartWorkflow(execution_id="w", message_id="k")
    for end, size in (("rollback", 0), ("commit", 1)):
        with engine.connect() as connection:
            assert flows.queue.push(message, connection=connection)
            getattr(connection, end)()
        assert flows.queue.size() == size
    with engine.connect() as connection:
        assert not flows.queue.push(message, connection=connection)
    engine.dispose()


def test_too_many_early_signals_become_dead_items_that_can_be_replayed(store: Store, clock: ManualClock) -> None:
    flows = Workflows(store, clock=clock, config=HandlerConfig(signal_buffer_max=2))
    journal, worker = Journal(flows), flows.worker()
    journal.answers["a"] = [TaskResult.wait_signal("go", 3600)] * 3
    run = start(flows, stage("a", scheduled_time=clock.wall() + timedelta(hours=1)))
    assert [flows.signal(run.id, "go", n) for n in range(2)] == [False, False]
    with pytest.raises(DeadLetterError, match=r"keeps 2 signals already.*dead item"):
        flows.signal(run.id, "go", 2)
    flows.queue.push(m.SignalStage(execution_id=run.id, signal_name="go", signal_data=3, message_id="fourth"))
    worker.run_once()
    assert {dead.payload["signal_data"] for dead in flows.dead.list()} == {2, 3}
    clock.advance(3600)
    worker.run_once()
    assert flows.stages(run.id) == {"a": S.SUSPENDED}
    flows.dead.replay("fourth")
    worker.run_once()
    assert (run.status, flows.dead.count()) == (S.SUCCEEDED, 1)


def test_a_signal_that_nobody_waits_for_is_dropped_if_it_is_not_persistent(flows: Workflows, journal: Journal) -> None:
    run = start(flows, stage("a"))
    assert not flows.signal(run.id, "go", persistent=False)
    assert log(flows, run.id)[-1] == "signal_dropped"


def test_a_signal_with_an_id_is_sent_once(flows: Workflows, worker: WorkflowWorker, journal: Journal) -> None:
    journal.answers["a"] = [TaskResult.wait_signal("go", 60)] * 2
    run = start(flows, stage("a"))
    worker.run_once()
    assert flows.signal(run.id, "go", signal_id="s1")
    worker.run_once()
    assert flows.stages(run.id) == {"a": S.SUSPENDED}
    assert not flows.signal(run.id, "go", signal_id="s1")
    assert flows.stages(run.id) == {"a": S.SUSPENDED}
    assert flows.signal(run.id, "go", signal_id="s2")


def test_an_early_signal_for_a_stage_is_kept_for_that_stage(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    journal.answers = {ref: [TaskResult.wait_signal("go", 60)] for ref in "ab"}
    run = start(flows, stage("a"), stage("b"))
    assert not flows.signal(run.id, "go", stage="b")
    worker.run_once()
    assert flows.stages(run.id) == {"a": S.SUSPENDED, "b": S.SUCCEEDED}


def test_the_same_signal_too_many_is_one_dead_item(store: Store, clock: ManualClock) -> None:
    flows = Workflows(store, clock=clock, config=HandlerConfig(signal_buffer_max=0))
    Journal(flows)
    run = start(flows, stage("a"))
    for _ in range(2):
        with pytest.raises(DeadLetterError, match=rf"dead item {run.id}.s1.signal"):
            flows.signal(run.id, "go", signal_id="s1")
    assert flows.dead.count() == 1
    assert str(flows.dead.list()[0].error).startswith("DeadLetterError: workflow")
