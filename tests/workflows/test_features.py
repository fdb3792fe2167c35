"""What else a stage can say: when it may start, how long it may take, and what it means to other stages."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.errors import TaskError, WorkflowDefinitionError
from holdfast.machine.graph import JoinType
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.codec import instant
from holdfast.store.port import Store
from holdfast.store.query import equal
from holdfast.testing.clock import ManualClock
from holdfast.workflows.model import Workflow
from holdfast.workflows.multi_instance import MultiInstanceConfig
from holdfast.workflows.owner import SyntheticStageOwner
from holdfast.workflows.records import ITEM, STAGE
from holdfast.workflows.result import TaskResult
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task import Task
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows
from tests.workflows.journal import Journal, stage, start

S = WorkflowStatus


@pytest.fixture
def journal(flows: Workflows) -> Journal:
    return Journal(flows)


def test_a_stage_with_a_time_starts_then(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, clock: ManualClock, store: Store
) -> None:
    later = instant(store.now()) + timedelta(hours=1)
    run = start(flows, stage("a"), stage("b", "a", scheduled_time=later), stage("c", scheduled_time=later))
    worker.run_once()
    assert (run.status, journal.ran) == (S.RUNNING, ["a"])
    assert flows.stages(run.id) == {"a": S.SUCCEEDED, "b": S.BUFFERED, "c": S.BUFFERED}
    clock.advance(3601)
    worker.run_once()
    assert (run.status, sorted(journal.ran)) == (S.SUCCEEDED, ["a", "b", "c"])


def test_a_stage_that_waits_for_its_time_can_be_cancelled_and_paused(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, clock: ManualClock, store: Store
) -> None:
    later = instant(store.now()) + timedelta(hours=1)
    run = start(flows, stage("a", scheduled_time=later))
    flows.pause(run.id)
    clock.advance(3601)
    assert worker.run_once() == 0
    flows.cancel(run.id)
    assert (run.status, flows.stages(run.id)) == (S.CANCELED, {"a": S.CANCELED})
    assert store.page(ITEM, equal(workflow=run.id)) == []


def test_a_stage_that_could_not_start_in_time_is_skipped_and_what_follows_runs(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, clock: ManualClock, store: Store
) -> None:
    journal.answers["a"] = [TaskResult.wait_signal("go")]
    soon = instant(store.now()) + timedelta(minutes=1)
    run = start(flows, stage("a"), stage("b", "a", start_time_expiry=soon), stage("c", "b"))
    worker.run_once()
    clock.advance(61)
    flows.signal(run.id, "go")
    worker.run_once()
    assert run.status is S.SUCCEEDED
    assert flows.stages(run.id) == {"a": S.SUCCEEDED, "b": S.SKIPPED, "c": S.SUCCEEDED}


def test_a_workflow_that_could_not_start_in_time_is_cancelled(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, store: Store
) -> None:
    past = instant(store.now()) - timedelta(seconds=1)
    run = start(flows, stage("a"), stage("b", "a"), start_time_expiry=past)
    assert (worker.run_once(), journal.ran) == (0, [])
    assert (run.status, run.record.reason) == (S.CANCELED, "it could not start in time")
    assert flows.stages(run.id) == {"a": S.CANCELED, "b": S.SKIPPED}


def test_a_stage_that_takes_too_long_fails(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, clock: ManualClock, store: Store
) -> None:
    journal.answers["a"] = [TaskResult.wait_signal("never")]
    run = start(flows, stage("a", stage_timeout=60), stage("b", "a"))
    worker.run_once()
    clock.advance(59)
    worker.run_once()
    assert run.status is S.RUNNING
    clock.advance(2)
    worker.run_once()
    assert (run.status, run.record.reason) == (S.TERMINAL, "stage 'a' took longer than 60 s")
    assert store.page(ITEM, equal(workflow=run.id)) == []


def test_the_time_of_a_stage_covers_its_retries_and_parts(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, clock: ManualClock
) -> None:
    journal.answers |= {"first": [TaskResult.running()] * 50, "sorry": []}
    whole = stage("whole", stage_timeout=60, continue_on_failure=True)
    first = stage("first", parent_stage_id=whole.id, synthetic_stage_owner=SyntheticStageOwner.STAGE_BEFORE)
    sorry = stage("sorry", parent_stage_id=whole.id, synthetic_stage_owner=SyntheticStageOwner.STAGE_ON_FAILURE)
    run = start(flows, whole, first, sorry, stage("next", "whole"))
    for _ in range(30):
        worker.run_once()
        clock.advance(3)
    assert (run.status, journal.ran[-2:], "whole" in journal.ran) == (S.SUCCEEDED, ["sorry", "next"], False)
    assert flows.stages(run.id) == {
        "whole": S.FAILED_CONTINUE, "first": S.CANCELED, "sorry": S.SUCCEEDED, "next": S.SUCCEEDED
    }  # fmt: skip


def test_a_stage_that_ends_in_time_leaves_no_timer_behind(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, store: Store
) -> None:
    journal.answers["z"] = [TaskResult.wait_signal("go")]
    run = start(flows, stage("a", stage_timeout=60), stage("z"))
    worker.run_once()
    assert flows.stages(run.id)["a"] is S.SUCCEEDED
    assert [(item.ref, item.kind) for item in store.page(ITEM, equal(workflow=run.id))] == [("z", "wait")]


def test_a_signal_does_not_take_the_limit_of_a_stage_away(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, clock: ManualClock
) -> None:
    journal.answers["a"] = [TaskResult.wait_signal("go"), TaskResult.wait_signal("again")]
    run = start(flows, stage("a", stage_timeout=60))
    worker.run_once()
    flows.signal(run.id, "go")
    worker.run_once()
    clock.advance(61)
    worker.run_once()
    assert run.status is S.TERMINAL


def test_stages_with_one_mutex_key_are_never_under_way_together(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    journal.answers |= {ref: [TaskResult.wait_signal(ref)] for ref in "abc"}
    run = start(flows, *(stage(ref, mutex_key="till") for ref in "abc"))
    for ref in "abc":
        worker.run_once()
        under_way = [one for one, status in flows.stages(run.id).items() if status is S.SUSPENDED]
        assert under_way == [ref]
        flows.signal(run.id, ref)
    worker.run_once()
    assert (run.status, journal.ran) == (S.SUCCEEDED, ["a", "a", "b", "b", "c", "c"])


def test_a_stage_waits_for_its_milestone_without_a_timer(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, store: Store
) -> None:
    journal.answers["gate"] = [TaskResult.wait_signal("open")]
    run = start(flows, stage("gate"), stage("a", milestone_ref_id="gate", milestone_status=S.SUCCEEDED))
    worker.run_once()
    assert flows.stages(run.id)["a"] is S.BUFFERED
    assert [item.ref for item in store.page(ITEM, equal(workflow=run.id))] == ["gate"]
    flows.signal(run.id, "open")
    worker.run_once()
    assert (run.status, journal.ran) == (S.SUCCEEDED, ["gate", "gate", "a"])


@pytest.mark.parametrize("first", [(), ("a",)])
def test_a_stage_that_begins_in_the_step_in_which_it_was_to_wait_leaves_no_timer_behind(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, store: Store, first: Any
) -> None:
    later = instant(store.now()) + timedelta(days=365)
    gates = {"milestone_ref_id": "z", "milestone_status": S.RUNNING, "start_time_expiry": later}
    run = start(flows, stage("a"), stage("b", *first, **gates), stage("z", *first))
    worker.run_once()
    assert (run.status, store.page(ITEM)) == (S.SUCCEEDED, [])


def test_a_milestone_that_was_passed_leaves_its_stage_out(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    run = start(
        flows, stage("gate"), stage("b", "gate"), stage("a", "b", milestone_ref_id="gate", milestone_status=S.RUNNING)
    )
    worker.run_once()
    assert (run.status, journal.ran, flows.stages(run.id)["a"]) == (S.SUCCEEDED, ["gate", "b"], S.SKIPPED)


def test_a_good_end_withdraws_the_stages_of_its_region(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, store: Store
) -> None:
    journal.answers |= {"slow": [TaskResult.wait_signal("never")], "fast": [TaskResult.wait_signal("go")]}
    run = start(
        flows, stage("slow"), stage("fast", cancel_region={"slow", "more"}), stage("more", "slow"),
        stage("end", "fast", "more"),
    )  # fmt: skip
    worker.run_once()
    flows.signal(run.id, "go")
    worker.run_once()
    assert run.status is S.SUCCEEDED
    assert flows.stages(run.id) == {"slow": S.SKIPPED, "fast": S.SUCCEEDED, "more": S.SKIPPED, "end": S.SUCCEEDED}
    assert store.page(ITEM, equal(workflow=run.id)) == []


def test_what_has_begun_and_is_withdrawn_in_the_same_step_leaves_nothing_to_do(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, store: Store
) -> None:
    none = several("none", cancel_region={"slow"}, count_from_context="number")
    run = start(flows, stage("slow", stage_timeout=45.0), none, stage("last", "none"), context={"number": 0})
    assert flows.stages(run.id) == {"slow": S.SKIPPED, "none": S.SUCCEEDED, "last": S.RUNNING}
    assert [one.ref for one in store.page(ITEM, equal(workflow=run.id))] == ["last"]
    worker.run_once()
    assert (run.status, journal.ran, store.page(ITEM)) == (S.SUCCEEDED, ["last"], [])


def test_the_first_event_decides_a_deferred_choice(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, store: Store
) -> None:
    journal.answers |= {"paid": [TaskResult.wait_signal("paid")], "late": [TaskResult.sleep(3600)]}
    choice = {"deferred_choice_group": "payment"}
    run = start(
        flows, stage("paid", **choice), stage("late", **choice), stage("ship", "paid"), stage("remind", "late"),
        stage("end", "ship", "remind", join_type=JoinType.OR),
    )  # fmt: skip
    worker.run_once()
    flows.signal(run.id, "paid")
    worker.run_once()
    assert run.status is S.SUCCEEDED
    assert journal.ran[-2:] == ["ship", "end"]
    assert flows.stages(run.id)["late"] is flows.stages(run.id)["remind"] is S.SKIPPED
    causes = {one.ref: one.state for one in store.page(STAGE, equal(workflow=run.id))}
    assert "withdrawn" in causes["late"]
    assert "pruned" in causes["remind"]


def test_a_signal_that_makes_a_workflow_fail_at_once_is_taken(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, store: Store
) -> None:
    journal.answers |= {"paid": [TaskResult.wait_signal("paid")], "late": [TaskResult.sleep(3600)]}
    choice = {"deferred_choice_group": "payment"}
    fails = stage("fails", "late", "ready", mi_config=MultiInstanceConfig(count_from_context="unknown"))
    run = start(flows, stage("paid", **choice), stage("late", **choice), stage("ready"), fails)
    worker.run_once()
    assert flows.signal(run.id, "paid")  # withdraws "late", so that the next one can begin
    assert (run.status, store.page(ITEM, equal(workflow=run.id))) == (S.TERMINAL, [])


@pytest.mark.parametrize(
    "stages",
    [
        lambda: [stage("a", milestone_ref_id="b"), stage("b", "a")],
        lambda: [stage("a", milestone_ref_id="b"), stage("b", milestone_ref_id="a")],
        lambda: _whole_and_part({"mutex_key": "k"}, {"mutex_key": "k"}),
        lambda: _whole_and_part({}, {"milestone_ref_id": "whole"}),
        lambda: _part_for_another(SyntheticStageOwner.STAGE_AFTER),
        lambda: _part_for_another(SyntheticStageOwner.STAGE_ON_FAILURE),
        lambda: _part_of_another(SyntheticStageOwner.STAGE_ON_FAILURE),
        lambda: _nested("k", None, "k"),
        lambda: [*_whole_and_part({"mutex_key": "k"}, {"milestone_ref_id": "b"}), stage("b", mutex_key="k")],
        lambda: [*_nested("k", "m"), *_nested("m", "k", first="other")],
        lambda: [stage("x", milestone_ref_id="whole1"), *_nested(None, None, None, after="x")],  # a part of its part
        lambda: [stage("x", "z", mutex_key="k"), stage("z"), *_hurried("k", milestone_ref_id="x")],
        lambda: [one for key, its in ("km", "mn", "nk") for one in _nested(key, None, its, first=key)],
    ],
)
def test_stages_that_would_wait_for_each_other_are_refused(flows: Workflows, journal: Journal, stages: Any) -> None:
    with pytest.raises(WorkflowDefinitionError, match="wait for each other") as refused:
        start(flows, *stages())
    assert refused.value.code == "cycle"


def _whole_and_part(whole: Any, part: Any) -> Any:
    one = stage("whole", **whole)
    return [one, stage("part", parent_stage_id=one.id, synthetic_stage_owner=SyntheticStageOwner.STAGE_BEFORE, **part)]


def _part_for_another(owner: SyntheticStageOwner) -> list[StageExecution]:
    """A part that waits for one whose turn comes when it has ended itself."""
    whole, first = _whole_and_part({}, {"milestone_ref_id": "last"})
    return [whole, first, stage("last", parent_stage_id=whole.id, synthetic_stage_owner=owner)]


def _part_of_another(owner: SyntheticStageOwner) -> list[StageExecution]:
    """A part that waits for a part of one whose turn comes when it has ended itself."""
    whole, first, last = _part_for_another(owner)
    inner = stage("inner", parent_stage_id=last.id, synthetic_stage_owner=SyntheticStageOwner.STAGE_BEFORE)
    first.milestone_ref_id = inner.ref_id
    return [whole, first, last, inner]


def _hurried(key: str, **part: Any) -> list[StageExecution]:
    """A stage that does not wait for all before it, and a part of a part of it."""
    first, inner, last = _nested(key, None, None)
    hurried = stage("whole", "x", "z", mutex_key=key, join_type=JoinType.DISCRIMINATOR, id=first.id)
    owned = {"parent_stage_id": inner.id, "synthetic_stage_owner": SyntheticStageOwner.STAGE_BEFORE}
    return [hurried, inner, stage(last.ref_id, **owned, **part)]


def _nested(*keys: str | None, first: str = "whole", after: Any = ()) -> list[StageExecution]:
    """A stage, a part of it, a part of that …, with these mutex keys."""
    made = [stage(first, *after, mutex_key=keys[0])]
    for number, key in enumerate(keys[1:]):
        owned = {"parent_stage_id": made[-1].id, "synthetic_stage_owner": SyntheticStageOwner.STAGE_BEFORE}
        made.append(stage(f"{first}{number}", mutex_key=key, **owned))
    return made


def test_a_part_may_have_the_key_of_a_stage_that_it_cannot_meet(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    run = start(flows, stage("a", mutex_key="k"), *_nested("m", None, "k", after="a"))
    crossed = start(flows, *_nested("k", "m"), *_nested("m", "k", first="other", after=["whole"]))
    deeper = start(flows, *_nested(None, "k", "m"), *_nested(None, "m", "k", first="other", after=["whole"]))
    worker.run_once()
    assert (run.status, crossed.status, deeper.status) == (S.SUCCEEDED, S.SUCCEEDED, S.SUCCEEDED)


def several(ref: str, *before: str, cancel_region: Any = (), **config: Any) -> Any:
    return stage(ref, *before, cancel_region=set(cancel_region), mi_config=MultiInstanceConfig(**config))


def test_a_stage_runs_once_for_each_item_of_a_list_and_the_next_one_sees_what_each_left(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    seen: list[Any] = []

    class Ships(Task):
        def execute(self, stage: StageExecution) -> TaskResult:
            return TaskResult.success({"shipped": stage.context["item"], "number": stage.context["instance"]})

    class Looks(Task):
        def execute(self, stage: StageExecution) -> TaskResult:
            seen.extend(stage.context["each_instances"])
            return TaskResult.success()

    flows.registry.register("ships", Ships)
    flows.registry.register("looks", Looks)
    each, last = several("each", "a", collection_from_context="boxes"), stage("last", "each")
    each.tasks[0].implementing_class, last.tasks[0].implementing_class = "ships", "looks"
    journal.answers["a"] = [TaskResult.success({"boxes": ["x", "y", "z"]})]
    run = start(flows, stage("a"), each, last)
    worker.run_once()
    assert run.status is S.SUCCEEDED
    assert seen == [{"shipped": box, "number": number} for number, box in enumerate("xyz")]


def test_a_part_of_a_part_and_the_instances_of_a_part_see_what_the_stage_sees(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    seen: list[tuple[str, Any]] = []

    def looks(stage: StageExecution) -> TaskResult:
        seen.append((stage.ref_id, stage.context.get("boxes")))
        return TaskResult.success()

    flows.registry.register("looks", looks)
    whole = stage("whole", "a")
    before = {"synthetic_stage_owner": SyntheticStageOwner.STAGE_BEFORE}
    each = stage("each", mi_config=MultiInstanceConfig(count=1), parent_stage_id=whole.id, **before)
    deep = stage("deep", parent_stage_id=each.id, **before)
    for one in (each, deep):
        one.tasks[0].implementing_class = "looks"
    journal.answers["a"] = [TaskResult.success({"boxes": ["x"]})]
    run = start(flows, stage("a"), whole, each, deep)
    worker.run_once()
    assert run.status is S.SUCCEEDED
    assert seen == [("deep", ["x"]), ("each", ["x"])]


def test_enough_instances_end_a_stage_and_the_rest_is_cancelled_if_asked(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, store: Store
) -> None:
    journal.answers["m"] = [TaskResult.success(), TaskResult.success(), TaskResult.wait_signal("never")]
    run = start(flows, several("m", count=3, join_threshold=2, cancel_remaining=True), stage("z", "m"))
    worker.run_once()
    assert (run.status, journal.ran.count("m"), journal.ran[-1]) == (S.SUCCEEDED, 3, "z")
    assert store.page(ITEM, equal(workflow=run.id)) == []
    ends = [one.status for one in store.page(STAGE, equal(workflow=run.id)) if "#" in one.ref]
    assert sorted(ends) == ["CANCELED", "SUCCEEDED", "SUCCEEDED"]


def test_an_instance_that_fails_fails_its_stage_and_ends_the_others(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, store: Store
) -> None:
    journal.answers["m"] = [TaskResult.wait_signal("go"), TaskResult.terminal("no")]
    run = start(flows, stage("a"), several("m", "a", count_from_context="n"), context={"n": 2})
    worker.run_once()
    assert (run.status, run.record.reason) == (S.TERMINAL, "no")
    assert store.page(ITEM, equal(workflow=run.id)) == []
    flows.retry(run.id)
    worker.run_once()
    assert (run.status, journal.ran.count("m")) == (S.SUCCEEDED, 4)


def test_instances_can_be_added_while_a_stage_runs(flows: Workflows, worker: WorkflowWorker, journal: Journal) -> None:
    run = start(flows, several("m", allow_dynamic=True), stage("z", "m"))
    worker.run_once()
    assert (run.status, journal.ran) == (S.RUNNING, [])
    journal.answers["m"] = [TaskResult.wait_signal("go")]
    flows.add_instances(run.id, "m", {"order": 1}, by="ann")
    worker.run_once()
    flows.add_instances(run.id, "m", {"order": 2}, {"order": 3})
    worker.run_once()
    assert (run.status, journal.ran) == (S.RUNNING, ["m"] * 3)
    flows.signal(run.id, "go")
    worker.run_once()
    assert (run.status, journal.ran) == (S.SUCCEEDED, ["m"] * 4 + ["z"])
    with pytest.raises(TaskError, match="takes no more instances"):
        flows.add_instances(run.id, "m", {})
    with pytest.raises(TaskError, match="allow_dynamic"):
        flows.add_instances(run.id, "z", {})


def test_nobody_waits_for_instances_that_are_not_synchronised_but_the_workflow(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    journal.answers["m"] = [TaskResult.wait_signal("go")]
    run = start(flows, several("m", count=1, sync_on_complete=False), stage("z", "m"))
    worker.run_once()
    assert (run.status, journal.ran) == (S.RUNNING, ["m", "z"])
    flows.signal(run.id, "go")
    worker.run_once()
    assert run.status is S.SUCCEEDED


@pytest.mark.parametrize(
    ("context", "config", "story"),
    [
        ({"n": "two"}, {"count_from_context": "n"}, "'n' instances, which is no number of them: 'two'"),
        (
            {"n": 10**12},
            {"count_from_context": "n"},
            "would have 1000000000000 instances, and may have 100000; let each",
        ),
        ({}, {"collection_from_context": "boxes"}, "each of 'boxes', which is no list: None"),
        ({"n": 1}, {"count_from_context": "n", "join_threshold": 2}, "2 instances must end well, and only 1 can"),
    ],
)
def test_a_number_of_instances_that_cannot_be_fails_the_stage_and_says_why(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, context: Any, config: Any, story: str
) -> None:
    run = start(flows, several("m", **config), context=context)
    worker.run_once()
    assert run.status is S.TERMINAL
    assert story in (run.record.reason or "")


def test_cancelling_a_workflow_ends_its_instances(flows: Workflows, worker: WorkflowWorker, journal: Journal) -> None:
    journal.answers["m"] = [TaskResult.wait_signal("go")] * 3
    run = start(flows, several("m", count=3))
    worker.run_once()
    flows.cancel(run.id)
    assert (run.status, run.record.live, flows.stages(run.id)) == (S.CANCELED, 0, {"m": S.CANCELED})


def test_one_workflow_is_not_started_twice(flows: Workflows, journal: Journal) -> None:
    made = Workflow.create("shop", "made", [stage("a")])
    flows.start(made)
    with pytest.raises(WorkflowDefinitionError, match="was started already") as refused:
        flows.start(made)
    assert refused.value.code == "id_taken"
