"""What the original got wrong, and ours must not: where each of its traps is tested, and those with no better home."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast.backends.memory import MemoryStore
from holdfast.errors import (
    BulkheadFullError,
    CircuitOpenError,
    Conflict,
    TaskError,
    TransientError,
    WorkflowNotFoundError,
)
from holdfast.machine.breaker import Breaker
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.port import Change, Store, Swap
from holdfast.store.query import equal
from holdfast.store.record import evolve
from holdfast.testing import ManualClock, WorkflowTestKit, trip
from holdfast.workflows.bulkheads import TaskBulkheadManager, execute_with_resilience
from holdfast.workflows.circuits import WorkflowCircuitFactory
from holdfast.workflows.compartment import SHORTEST_RETRY_S
from holdfast.workflows.config import BulkheadConfig, ResilienceConfig
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.handle import WorkflowRun
from holdfast.workflows.messages import CancelWorkflow, SkipStage
from holdfast.workflows.model import Workflow
from holdfast.workflows.presence import MOST_CRASHES
from holdfast.workflows.records import ITEM, WORKFLOW
from holdfast.workflows.result import TaskResult
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task_context import current_task
from holdfast.workflows.task_run import TaskExecution
from holdfast.workflows.tasks.builtin import builtin_tasks
from holdfast.workflows.waiting import sleep, wait_signal
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows
from tests.workflows.journal import Journal, stage, start

S = WorkflowStatus
TESTS: Final = Path(__file__).parents[1]
TRAPS: Final = {
    1: ("finalizers in the memory of a process", "workflows/test_finalizers.py",
        "test_a_callback_runs_in_its_own_process_though_another_worker_ends_the_stage",
        "test_a_callback_whose_process_is_gone_is_replaced_or_seen_to_be_lost",
        "workflows/test_finalizers_kill.py", "test_finalizers_run_though_their_process_was_killed"),
    2: ("recovery is off, and waits for the dead", "workflows/test_recovery.py",
        "test_a_worker_recovers_by_itself", "test_the_work_of_the_dead_is_freed_first"),
    3: ("circuits of all workflows share one state", "workflows/test_circuits.py",
        "test_workflows_and_task_types_have_circuits_of_their_own",
        "test_shared_circuits_are_isolated_per_workflow_too"),
    4: ("a window of two", "workflows/test_circuits.py",
        "test_the_default_threshold_needs_five_failures_of_ten_calls"),
    5: ("half-open admits everybody", "workflows/test_circuits.py",
        "test_half_open_lets_exactly_one_probe_through", "test_of_threads_that_come_together_one_is_the_probe"),
    6: ("failures recorded as successes", "workflows/test_circuits.py", "test_every_exception_is_a_failure"),
    7: ("shared state that is never made", "workflows/test_circuits.py",
        "test_a_circuit_that_cannot_be_shared_is_refused_every_time"),
    8: ("a row number as the key", "workflows/test_messages.py",
        "test_a_message_with_an_incarnation_has_a_logical_key",
        "test_a_message_is_handled_once_however_often_it_is_pushed"),
    9: ("deduplication beside the transaction", "workflows/test_doors.py",
        "test_to_handle_a_message_is_one_transaction"),
    10: ("a filter that is scanned", "workflows/test_dedup.py", "test_health_figures_do_not_look_at_the_bits"),
    11: ("a skip that leaves NOT_STARTED", "workflows/test_functions.py",
         "test_a_failure_skips_what_comes_after_it_and_cancels_what_waits"),
    12: ("a wait that polls", "workflows/test_traps.py", "test_nothing_is_polled_behind_a_stage_that_is_buffered",
         "test_what_waits_behind_a_jump_is_started_by_the_jump_itself",
         "workflows/test_features.py", "test_a_stage_waits_for_its_milestone_without_a_timer"),
    13: ("drift that nobody sees", "workflows/test_config.py",
         "test_every_field_changes_the_fingerprint", "test_drift_names_what_has_changed_with_old_and_new",
         "test_who_asks_the_database_is_not_in_the_fingerprint", "test_a_version_of_the_users_own_is_no_drift"),
    14: ("one type starves all", "workflows/test_engine.py",
         "test_a_slow_type_takes_no_more_than_its_slots_and_holds_up_no_other"),
    15: ("figures that are missing", "workflows/test_bulkheads.py",
         "test_the_figures_have_every_listed_type_and_the_default"),
    16: ("a refusal that costs an attempt", "workflows/test_traps.py",
         "test_a_refusal_costs_no_attempt", "test_a_refusal_that_a_task_meets_inside_costs_no_attempt_either"),
    17: ("retry_after is not read", "workflows/test_functions.py",
         "test_a_transient_error_is_tried_again_after_its_own_time"),
    18: ("errors judged by their names", "workflows/test_task.py", "test_no_word_in_a_name_counts"),
    19: ("an order that follows ids", "workflows/test_model.py",
         "test_tasks_run_in_the_order_of_their_positions_and_not_of_their_ids"),
    20: ("snapshots that share", "workflows/test_snapshot.py", "test_later_changes_do_not_show"),
    21: ("a row without a version", "workflows/test_model.py",
         "test_every_row_has_a_version", "test_the_only_way_back_is_a_new_incarnation"),
    22: ("claim and plan apart", "workflows/test_doors.py",
         "test_a_stage_that_runs_has_an_item_after_every_single_commit"),
    23: ("a workflow below that gets strings, and no cancel", "workflows/test_traps.py",
         "test_what_a_workflow_below_is_given_keeps_its_types", "workflows/test_children.py",
         "test_a_cancelled_workflow_cancels_those_below_it",
         "test_a_stage_that_has_waited_long_enough_cancels_what_it_waited_for"),
    24: ("consume and resume apart", "workflows/test_doors.py",
         "test_taking_a_signal_and_going_on_is_one_transaction"),
    25: ("a sweep that moves what runs", "workflows/test_traps.py",
         "test_what_somebody_works_on_at_its_last_attempt_is_never_moved_to_the_dead", "workflows/test_messages.py",
         "test_a_message_is_tried_as_often_as_it_says_whatever_the_retries_of_the_engine"),
    26: ("a refused lease acknowledges", "workflows/test_traps.py",
         "test_a_worker_that_is_refused_a_task_leaves_it_to_its_owner_and_then_to_whoever_carries_on",
         "test_a_message_that_finds_its_workflow_taken_stays_in_the_queue", "workflows/test_messages.py",
         "test_a_message_without_a_handler_is_an_error_and_never_acknowledged"),
    27: ("processes make every error permanent", "workflows/test_isolation.py",
         "test_a_transient_error_stays_transient_with_what_it_carries"),
    28: ("a wait that polls", "workflows/tasks/test_waiting.py", "test_a_wait_is_one_timer_and_not_a_poll"),
    29: ("settings nobody reads", "workflows/test_config.py",
         "test_every_variable_sets_its_field_and_no_other", "test_a_bad_value_names_its_variable"),
    30: ("events beside their commit", "workflows/test_reading.py",
         "test_the_log_tells_where_everything_stood_at_every_number"),
    31: ("an unknown type succeeds", "workflows/test_models.py", "test_a_stage_with_nothing_to_do_is_refused"),
    32: ("engines that interfere", "workflows/test_traps.py", "test_two_engines_of_a_process_have_nothing_in_common",
         "workflows/test_dedup.py",
         "test_the_default_is_that_of_the_first_engine_and_no_engine_marks_what_another_has_seen",
         "workflows/test_finalizers.py", "test_two_engines_of_a_process_have_their_own_registries"),
    33: ("contexts copied into each stage", "workflows/test_merging.py",
         "test_a_wide_join_and_a_long_chain_stay_affordable"),
    34: ("a cancel that no wait sees", "workflows/test_traps.py",
         "test_somebody_without_a_worker_cancels_whatever_waits_at_once",
         "workflows/test_control.py", "test_a_paused_workflow_can_be_cancelled"),
    35: ("POST twice", "workflows/tasks/test_http.py", "test_a_post_is_not_made_twice"),
    36: ("a free slot cancels who waits for it", "workflows/test_traps.py",
         "test_a_free_slot_is_taken_by_who_waits_and_cancels_nobody", "workflows/test_pipelines.py",
         "test_whoever_ends_lets_the_next_one_in_line_begin"),
}  # fmt: skip
"""What each is, and the tests that show that ours has it not: names, after the file that they are in."""


def test_every_trap_has_a_test() -> None:
    assert sorted(TRAPS) == list(range(1, 37))


@pytest.mark.parametrize("number", TRAPS)
def test_the_tests_of_a_trap_are_there(number: int) -> None:
    _, *words = TRAPS[number]
    text, found = "", []
    for word in words:
        if word.endswith(".py"):
            text = (TESTS / word).read_text()
        else:
            assert re.search(rf"^\s*(async )?def {word}\(", text, re.MULTILINE), word
            found.append(word)
    assert found


def test_a_refusal_costs_no_attempt() -> None:
    attempts: list[int] = []

    @task(guard="bank")
    def charge() -> None:
        here = current_task()
        assert here is not None
        attempts.append(here.attempt)

    with WorkflowTestKit() as kit:
        guard = kit.hold.guard("bank", Breaker())
        run = kit.start(workflow(name="shut")(lambda: charge()))
        for _ in range(12):  # more often than a task is tried
            with trip(guard):
                kit.run_until_idle()
            kit.clock.advance(3600)
        kit.finish(run)
        assert kit.log(run).count("task_parked charge") == 12
    assert attempts == [1]


@pytest.mark.parametrize("by", ["bulkhead", "circuit"])
def test_a_refusal_that_a_task_meets_inside_costs_no_attempt_either(by: str) -> None:
    calls: list[tuple[int, int]] = []
    with WorkflowTestKit() as kit, TaskBulkheadManager(ResilienceConfig(), clock=kit.clock) as manager:
        circuits = WorkflowCircuitFactory(clock=kit.clock)

        def charge(stage: StageExecution) -> None:
            here = current_task()
            assert here is not None
            calls.append((here.attempt, stage.context["refusals"]))
            if by == "bulkhead" and len(calls) <= 12:
                raise BulkheadFullError("no slot", retry_after=60, context_update={"refusals": len(calls)})
            circuit = circuits.get_circuit(str(len(calls)), "bank")
            for _ in range(5 if len(calls) <= 12 else 0):
                circuit.settle(circuit.admit(), ConnectionError("down"))
            execute_with_resilience(manager, circuit, "bank", lambda: None, ())

        kit.workflows.registry.register("charge", charge)
        one = StageExecution.create(
            "charge", "a", "a", tasks=[TaskExecution.create("charge", "charge")], context={"refusals": 0}
        )
        run = kit.start(Workflow.create("shop", "refused", [one]))
        kit.finish(run)
        assert kit.log(run).count("task_parked a") == 12
    assert calls == [(1, number if by == "bulkhead" else 0) for number in range(13)]


@pytest.mark.parametrize("refusal", [BulkheadFullError, CircuitOpenError])
def test_a_refusal_that_asks_to_be_called_at_once_does_not_call_without_end(refusal: type[TransientError]) -> None:
    calls: list[int] = []

    def charge(stage: StageExecution) -> None:
        calls.append(1)
        if len(calls) <= 2:
            raise refusal("no slot", retry_after=0)

    with WorkflowTestKit() as kit:
        kit.workflows.registry.register("charge", charge)
        one = StageExecution.create("charge", "a", "a", tasks=[TaskExecution.create("charge", "charge")])
        kit.workflows.start(Workflow.create("shop", "refused", [one]))
        worker = kit.workflows.worker()
        for made in (1, 2, 3):
            worker.run_once()
            assert len(calls) == made
            kit.clock.advance(SHORTEST_RETRY_S)
        worker.close()


EVERY_TYPE: Final = {"int": 7, "float": 0.5, "yes": True, "none": None, "list": [1, "2", {"deep": [3]}], "dict": {}}


@pytest.mark.parametrize("made_as", ["function", "model", "stored model"])
def test_what_a_workflow_below_is_given_keeps_its_types(made_as: str) -> None:
    seen: list[Any] = []

    @task
    def note(settings: Any, number: int) -> Any:
        seen.append((settings, number))
        return settings

    @workflow
    def below(settings: Any, number: int = 1) -> Any:
        return note(settings, number)

    given = {"workflow": "below", "input": {"settings": EVERY_TYPE}, "input_from": {"number": "n"}}
    stage = StageExecution.create("s", "s", "s", tasks=[TaskExecution.create("s", "sub_workflow")], context=given)
    model = Workflow.create("shop", "above", [stage], context={"n": 2})
    with WorkflowTestKit() as kit:
        kit.workflows.registry.register("sub_workflow", builtin_tasks()["sub_workflow"])
        kit.workflows.add(below)
        if made_as == "function":
            assert kit.finish(kit.start(workflow(name="above")(lambda: below(EVERY_TYPE, 2)))) == EVERY_TYPE
        else:
            run = kit.start(model if made_as == "model" else Workflow.from_document(model.to_document()))
            kit.finish(run)
            assert kit.workflows.workflow(run.id).stage("s").outputs["result"] == EVERY_TYPE
    assert seen == [(EVERY_TYPE, 2)]
    assert [type(value) for value in seen[0][0].values()] == [type(value) for value in EVERY_TYPE.values()]


@pytest.mark.parametrize("made_as", ["function", "model"])
def test_a_free_slot_is_taken_by_who_waits_and_cancels_nobody(made_as: str) -> None:
    """With nothing said but the limit."""

    @workflow(limit=1)
    def alone() -> Any:
        return wait_signal("go")

    def model() -> Workflow:
        stage = StageExecution.create("s", "s", "s", tasks=[TaskExecution.create("s", "approve")])
        limits: dict[str, Any] = {"pipeline_config_id": "alone", "is_limit_concurrent": True}
        return Workflow.create("shop", "alone", [stage], **limits)

    with WorkflowTestKit() as kit:
        kit.workflows.registry.register("approve", lambda stage: None)
        runs = [kit.start(alone if made_as == "function" else model()) for _ in range(4)]
        for number, run in enumerate(runs):
            assert [one.status for one in runs[number + 1 :]] == [WorkflowStatus.BUFFERED] * (3 - number)
            if made_as == "function":
                kit.signal(run, "go")
                kit.run_until_idle()
            else:
                kit.workflows.skip(run.id, "s")
            assert run.status.is_complete
            assert run.status is not WorkflowStatus.CANCELED


def quiet_for(worker: WorkflowWorker, clock: ManualClock, run: WorkflowRun, seconds: float = 3600.0) -> None:
    """Nothing of a workflow happens, however often a worker looks, and nothing of it would ever be due."""
    before = run.record.version
    for _ in range(10):
        clock.advance(seconds / 10)
        assert worker.run_once() == 0
    assert run.record.version == before


def test_nothing_is_polled_behind_a_stage_that_is_buffered(
    flows: Workflows, worker: WorkflowWorker, store: Store, clock: ManualClock
) -> None:
    journal = Journal(flows)
    journal.answers["holds"] = [TaskResult.wait_signal("go")]
    run = start(flows, stage("holds", mutex_key="k"), stage("waits", mutex_key="k"), stage("behind", "waits"))
    worker.run_once()
    assert flows.stages(run.id) == {"holds": S.SUSPENDED, "waits": S.BUFFERED, "behind": S.NOT_STARTED}
    assert [(item.ref, item.due_at) for item in store.page(ITEM)] == [("holds", None)]
    quiet_for(worker, clock, run)
    flows.signal(run.id, "go")
    worker.run_once()
    assert (run.status, journal.ran) == (S.SUCCEEDED, ["holds", "holds", "waits", "behind"])


def test_what_waits_behind_a_jump_is_started_by_the_jump_itself(
    flows: Workflows, worker: WorkflowWorker, store: Store, clock: ManualClock
) -> None:
    """A stage is never found in REDIRECT: there is nothing that anybody could wait for."""
    journal = Journal(flows)
    journal.answers["b"] = [TaskResult.jump_to("a")]
    journal.answers["a"] = [TaskResult.success(), TaskResult.wait_signal("go")]
    run = start(flows, stage("a"), stage("b", "a"), stage("behind", "b"))
    worker.run_once()
    assert journal.ran == ["a", "b", "a"]
    assert flows.stages(run.id) == {"a": S.SUSPENDED, "b": S.NOT_STARTED, "behind": S.NOT_STARTED}
    assert [(item.ref, item.due_at) for item in store.page(ITEM)] == [("a", None)]
    states = [flows.state_at(run.id, seq) for seq in range(1, run.record.version + 1)]
    assert S.REDIRECT not in {one.status for state in states for one in state.stages.values()}
    quiet_for(worker, clock, run)
    flows.signal(run.id, "go")
    worker.run_once()
    assert (run.status, journal.ran[3:]) == (S.SUCCEEDED, ["a", "b", "behind"])


@pytest.mark.parametrize("kind", ["run", "message"])
def test_what_somebody_works_on_at_its_last_attempt_is_never_moved_to_the_dead(
    store: Store, clock: ManualClock, kind: str
) -> None:
    """Everybody else does meanwhile whatever could take it away."""
    flows, others = (Workflows(store, clock=clock) for _ in range(2))
    owners: list[str | None] = []

    def meanwhile() -> None:
        [item] = store.page(ITEM, equal(kind=kind))
        idle = others.worker()
        assert idle.run_once() == 0
        assert (idle.presence.bury(), idle.presence.adopt_orphans()) == (0, 0)
        idle.close()
        others.recovery.recover_pending_workflows()
        assert (store.page(ITEM, equal(kind=kind)), others.dead.list()) == ([item], [])
        owners.append(item.owner)

    @task
    def slow() -> str:
        meanwhile()
        return "done"

    def handle(message: CancelWorkflow, extra: Sequence[Change]) -> None:
        meanwhile()
        flows.change(message.execution_id, lambda run, step: None, extra=extra)

    for one in (flows, others):
        one.register(slow)
        one.delivery.handlers["CancelWorkflow"] = handle
    if kind == "run":
        run = flows.start(workflow(name="slowly")(lambda: slow()))
        [item] = store.page(ITEM)
        # The next failure, and the next death of a worker, would be the last that it may have.
        store.commit([Swap(ITEM, item, evolve(item, attempt=10, crashes=MOST_CRASHES - 1))])
    else:
        run = flows.start(workflow(name="waits")(lambda: wait_signal("never")))
        flows.worker().run_once()
        flows.queue.push(CancelWorkflow(execution_id=run.id, message_id="m", max_attempts=1))
    worker = flows.worker()
    me = worker.presence.id
    worker.run_once()
    worker.close()
    assert (owners, store.page(ITEM, equal(kind=kind)), flows.dead.list()) == ([me], [], [])
    assert run.result(0) == "done" if kind == "run" else flows.store.is_message_processed("m")


def test_a_worker_that_is_refused_a_task_leaves_it_to_its_owner_and_then_to_whoever_carries_on(
    flows: Workflows, worker_of: Callable[..., WorkflowWorker], store: Store, clock: ManualClock
) -> None:
    ran: list[str] = []

    @task
    def slow() -> str:
        here = current_task()
        assert here is not None
        ran.append(here.worker)
        if len(ran) == 1:
            [item] = store.page(ITEM)
            assert second.run_once() == 0  # it is somebody else's
            assert store.page(ITEM) == [item]  # and it is there
            clock.advance(60)  # its owner gives no sign of life
            assert second.run_once() == 1
        return here.worker

    run = flows.start(workflow(name="slowly")(lambda: slow()))
    first, second = worker_of(), worker_of()
    owner = first.presence.id
    first.run_once()
    assert ran == [owner, run.result(0)]
    assert run.result(0) != owner  # whose answer came too late
    assert store.page(ITEM) == []


def test_a_message_that_finds_its_workflow_taken_stays_in_the_queue(store: Store, clock: ManualClock) -> None:
    flows = Workflows(store, clock=clock)
    Journal(flows)
    run = start(flows, stage("a"))
    taken = Taken(store)
    late = Workflows(taken, clock=clock)  # type: ignore[arg-type]  # a store, but for commits
    flows.queue.push(SkipStage(execution_id=run.id, stage_id="a", message_id="m", max_attempts=1))
    worker = late.worker()
    for _ in range(20):  # more often than it may fail
        worker.run_once()
        assert (flows.queue.size(), flows.dead.count(), flows.store.is_message_processed("m")) == (1, 0, False)
        clock.advance(15)
    taken.is_free = True
    worker.run_once()
    worker.close()
    assert (flows.queue.size(), flows.stages(run.id)) == (0, {"a": S.SKIPPED})


class Taken:
    """A store on which somebody else is faster to change each workflow, until it `is_free`."""

    is_free = False

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, changes: Sequence[Change], **options: Any) -> None:
        if not self.is_free and any(isinstance(one, Swap) and one.kind is WORKFLOW for one in changes):
            raise Conflict("somebody was faster", ())
        self._store.commit(changes, **options)


def test_two_engines_of_a_process_have_nothing_in_common() -> None:
    """The same names for tasks, workflows, stages, finalizers, keys and messages, on two stores."""
    config = ResilienceConfig(
        bulkheads={"charge": BulkheadConfig(max_concurrent=1)}, circuit_scope="task_type", circuit_window=1
    )
    clock, told = ManualClock(), list[tuple[str, str]]()
    banks = {name: Workflows(MemoryStore(clock), clock=clock, config=config) for name in ("one", "two")}
    workers = {name: flows.worker() for name, flows in banks.items()}
    down = {"one"}
    runs: dict[str, WorkflowRun] = {}

    def make(name: str) -> None:
        @task(name="charge")
        def charge(order: int) -> str:
            here = current_task()
            assert here is not None
            assert here.registry is banks[name].finalizers
            here.finalize("close", of=name)
            if name == "one" and workers["two"].run_once():  # its only slot is taken, and the other's is free
                told.append(("two", "ran inside of one"))
            if name in down:
                raise TransientError("the bank is down", retry_after=1)
            return f"{name} {order}"

        @workflow(name="pay")
        def pay(order: int) -> Any:
            return charge(order)

        banks[name].finalizers.add(lambda of: told.append((name, of)), "close")
        banks[name].add(pay)
        runs[name] = banks[name].start("pay", 7, idempotency_key="order-7")
        banks[name].deduplicator.mark_seen(f"m-{name}")

    make("one")
    make("two")
    for _ in range(3):
        workers["one"].run_once()
        clock.advance(5)
    assert runs["one"].status is S.RUNNING  # its circuit is open
    assert runs["two"].result(0) == "two 7"
    assert "task_parked" in [entry.type for entry in banks["one"].log(runs["one"].id)]
    assert "task_parked" not in [entry.type for entry in banks["two"].log(runs["two"].id)]
    with pytest.raises(WorkflowNotFoundError):
        banks["two"].signal(runs["one"].id, "go")
    assert not banks["two"].deduplicator.maybe_seen("m-one")
    down.clear()
    clock.advance(60)
    for worker in workers.values():
        worker.run_once()
        worker.close()
    assert runs["one"].result(0) == "one 7"
    assert set(told) == {("two", "ran inside of one"), ("one", "one"), ("two", "two")}


WAITS: Final[dict[str, Callable[[], Any]]] = {
    "a signal": lambda: wait_signal("never"),
    "a signal with a limit": lambda: wait_signal("never", timeout=3600),
    "a time": lambda: sleep(86400),
    "a workflow below": lambda: below(),
    "the next try": lambda: fails(),
}


@task
def fails() -> None:
    raise TransientError("not now", retry_after=3600)


@workflow
def below() -> Any:
    return wait_signal("never")


@pytest.mark.parametrize("what", WAITS)
def test_somebody_without_a_worker_cancels_whatever_waits_at_once(
    flows: Workflows, worker: WorkflowWorker, store: Store, clock: ManualClock, what: str
) -> None:
    flows.add(below)
    run = flows.start(workflow(name="waits")(WAITS[what]))
    worker.run_once()
    [waiting] = flows.stages(run.id).values()
    assert waiting is (S.RUNNING if what == "the next try" else S.SUSPENDED)
    monitor = Workflows(store, clock=clock)  # of another process, which knows none of the tasks
    monitor.cancel(run.id, "enough", by="ann")
    assert (run.status, set(flows.stages(run.id).values())) == (S.CANCELED, {S.CANCELED})
    assert [item.kind for item in store.page(ITEM, equal(workflow=run.id))] == []
    with pytest.raises(TaskError, match="nothing waits for signal"):
        monitor.signal(run.id, "never")
    worker.run_once()
    assert [one.status for one in flows.find(parent=run.id)] == [S.CANCELED] * (what == "a workflow below")
    clock.advance(100_000)
    assert worker.run_once() == 0
