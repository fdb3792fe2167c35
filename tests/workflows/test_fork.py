"""Forks: a new run that takes over what another one has left, and runs the rest."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import StageNotFoundError, TaskError, WorkflowDefinitionError, WorkflowNotFoundError
from holdfast.machine.graph import JoinType, SplitType
from holdfast.machine.workflow import WorkflowStatus
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.multi_instance import MultiInstanceConfig
from holdfast.workflows.owner import SyntheticStageOwner
from holdfast.workflows.result import TaskResult
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows
from tests.workflows.journal import Journal, stage, start

S = WorkflowStatus
RAN: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    RAN.clear()


@task
def load(number: int) -> int:
    RAN.append("load")
    return number


@task
def double(number: int, by: int) -> int:
    RAN.append("double")
    return number * by


@task
def triple(number: int) -> int:
    RAN.append("triple")
    return number * 3


@task
def add(*numbers: int) -> int:
    RAN.append("add")
    return sum(numbers)


@workflow
def sums(number: int, by: int = 2) -> Any:
    loaded = load(number)
    return add(double(loaded, by), triple(loaded))


def test_a_fork_runs_a_stage_and_what_follows_with_what_the_others_have_left(
    flows: Workflows, worker: WorkflowWorker
) -> None:
    run = flows.start(sums, 10)
    worker.run_once()
    RAN.clear()
    forked = flows.fork(run.id, "double", by="ann")
    assert forked.id != run.id
    worker.run_once()
    assert (forked.result(0), RAN) == (50, ["double", "add"])
    assert (run.result(0), run.status) == (50, S.SUCCEEDED)


def test_a_fork_says_where_it_comes_from(flows: Workflows, worker: WorkflowWorker) -> None:
    run = flows.start(sums, 10)
    worker.run_once()
    forked = flows.fork(run.id, "double", by="ann")
    (entry,) = [one for one in flows.log(forked.id) if one.type == "forked"]
    assert entry.facts == {"origin": run.id, "begins_with": "double", "kept": ["load", "triple"], "by": "ann"}
    again = flows.fork(run.id, "double", by="ann", reason="wrong sum")
    assert [one.facts["reason"] for one in flows.log(again.id) if one.type == "forked"] == ["wrong sum"]
    assert flows.workflow(forked.id).forked_from == (run.id, "double")
    assert flows.workflow(run.id).forked_from is None
    assert {ref: one.status for ref, one in flows.state_at(forked.id, 1).stages.items()} == {
        "load": S.SUCCEEDED, "triple": S.SUCCEEDED, "double": S.RUNNING, "add": S.NOT_STARTED,
    }  # fmt: skip


def test_the_input_of_a_fork_can_be_changed(flows: Workflows, worker: WorkflowWorker) -> None:
    run = flows.start(sums, 10)
    worker.run_once()
    forked = flows.fork(run.id, "double", context={"by": 5})
    worker.run_once()
    assert forked.result(0) == 80
    with pytest.raises(WorkflowDefinitionError, match=r"no input 'bye'.*by, number"):
        flows.fork(run.id, "double", context={"bye": 5})


def test_what_failed_or_was_cut_off_runs_in_a_fork_whatever_it_begins_with(
    flows: Workflows, worker: WorkflowWorker
) -> None:
    journal = Journal(flows)
    journal.answers["b"] = [TaskResult.terminal("no")]
    run = start(flows, stage("a"), stage("b", "a"), stage("c", "b"), stage("d", "a", "c"))
    worker.run_once()
    assert run.status is S.TERMINAL
    journal.ran.clear()
    forked = flows.fork(run.id, "d")
    worker.run_once()
    assert (forked.status, journal.ran) == (S.SUCCEEDED, ["b", "c", "d"])


def test_a_run_that_was_cancelled_can_be_forked_and_one_that_runs_cannot(
    flows: Workflows, worker: WorkflowWorker
) -> None:
    run = flows.start(sums, 10)
    with pytest.raises(TaskError, match="is RUNNING; only one that has ended"):
        flows.fork(run.id, "load")
    flows.cancel(run.id)
    forked = flows.fork(run.id, "load")
    worker.run_once()
    assert (run.status, forked.result(0)) == (S.CANCELED, 50)


@pytest.mark.parametrize("ref", ["nowhere", "load#1.0"])
def test_a_stage_that_is_not_there_is_refused_with_those_that_are(
    flows: Workflows, worker: WorkflowWorker, ref: str
) -> None:
    run = flows.start(sums, 10)
    worker.run_once()
    with pytest.raises(StageNotFoundError, match=r"add, double, load, triple"):
        flows.fork(run.id, ref)
    with pytest.raises(WorkflowNotFoundError):
        flows.fork("nobody", "load")


def test_the_same_key_forks_once(flows: Workflows, worker: WorkflowWorker) -> None:
    run = flows.start(sums, 10)
    worker.run_once()
    first = flows.fork(run.id, "double", idempotency_key="fix-1")
    assert flows.fork(run.id, "double", idempotency_key="fix-1").id == first.id


def test_a_fork_with_new_code_keeps_what_comes_before_anything_new(flows: Workflows, worker: WorkflowWorker) -> None:
    run = flows.start(sums, 10)
    worker.run_once()

    @task
    def check(number: int) -> int:
        RAN.append("check")
        return number + 1

    @workflow(name="sums", version="2")
    def better(number: int, by: int = 2) -> Any:
        loaded = load(number)
        return add(double(loaded, by), triple(check(loaded)))

    RAN.clear()
    forked = flows.fork(run.id, "add", workflow=better)
    worker.run_once()
    assert (forked.result(0), sorted(RAN)) == (20 + 33, ["add", "check", "triple"])
    assert flows.workflow(forked.id).code_version == "2"


def test_a_fork_of_a_model_keeps_instances_parts_and_branches(flows: Workflows, worker: WorkflowWorker) -> None:
    journal = Journal(flows)
    many = stage("many", "pick", mi_config=MultiInstanceConfig(count=2))
    first = stage("first", synthetic_stage_owner=SyntheticStageOwner.STAGE_BEFORE, parent_stage_id=many.id)
    run = start(
        flows,
        stage("pick", split_type=SplitType.OR, split_conditions={"many": "1 == 1", "other": "1 == 2"}),
        many, first, stage("other", "pick"), stage("end", "many", "other", join_type=JoinType.OR),
    )  # fmt: skip
    worker.run_once()
    assert run.status is S.SUCCEEDED
    journal.ran.clear()
    forked = flows.fork(run.id, "end")
    worker.run_once()
    assert (forked.status, journal.ran) == (S.SUCCEEDED, ["end"])
    assert flows.stages(forked.id) == flows.stages(run.id)
    journal.ran.clear()
    again = flows.fork(run.id, "other")  # a branch that was not taken, asked for by name
    worker.run_once()
    assert (again.status, journal.ran) == (S.SUCCEEDED, ["other", "end"])


def test_a_fork_from_a_part_of_a_stage_names_the_stage(flows: Workflows, worker: WorkflowWorker) -> None:
    Journal(flows)
    whole = stage("whole")
    part = stage("part", synthetic_stage_owner=SyntheticStageOwner.STAGE_BEFORE, parent_stage_id=whole.id)
    run = start(flows, whole, part)
    worker.run_once()
    with pytest.raises(TaskError, match=r"'part' is a part of 'whole'; fork from that one"):
        flows.fork(run.id, "part")


def test_a_part_that_waits_for_a_stage_of_before_begins_in_a_fork(flows: Workflows, worker: WorkflowWorker) -> None:
    journal = Journal(flows)
    whole = stage("whole")
    part = stage("part", "first", synthetic_stage_owner=SyntheticStageOwner.STAGE_AFTER, parent_stage_id=whole.id)
    run = start(flows, stage("first"), whole, part)
    worker.run_once()
    journal.ran.clear()
    forked = flows.fork(run.id, "whole")
    worker.run_once()
    assert (forked.status, journal.ran) == (S.SUCCEEDED, ["whole", "part"])


def test_a_part_that_was_taken_over_does_not_hear_of_a_stage_that_runs_again(
    flows: Workflows, worker: WorkflowWorker
) -> None:
    journal = Journal(flows)
    whole = stage("whole")
    owned: Any = {"synthetic_stage_owner": SyntheticStageOwner.STAGE_AFTER, "parent_stage_id": whole.id}
    run = start(flows, stage("first"), whole, stage("part", "first", join_type=JoinType.MULTI_MERGE, **owned))
    worker.run_once()
    journal.ran.clear()
    forked = flows.fork(run.id, "first")
    worker.run_once()
    assert (journal.ran, flows.stages(forked.id)) == (["first"], flows.stages(run.id))


def test_a_fork_takes_the_way_of_a_stage_that_jumped_on(flows: Workflows, worker: WorkflowWorker) -> None:
    journal = Journal(flows)
    journal.answers["pick"] = [TaskResult.jump_to("other")]
    run = start(
        flows,
        stage("pick", split_type=SplitType.OR, split_conditions={"first": "1 == 2"}), stage("more"),
        stage("first", "pick", "more", join_type=JoinType.DISCRIMINATOR), stage("other", "more"),
    )  # fmt: skip
    worker.run_once()
    assert run.status is S.SUCCEEDED
    journal.answers["more"] = [TaskResult.stopped()]
    forked = flows.fork(run.id, "more")
    worker.run_once()
    assert flows.stages(forked.id)["first"] is S.SKIPPED  # as if its only branch had stopped in the first run


def test_a_fork_in_which_a_stage_fails_at_once_ends_with_all_that_began_beside_it(
    flows: Workflows, worker: WorkflowWorker
) -> None:
    journal = Journal(flows)
    several = stage("several", mi_config=MultiInstanceConfig(count_from_context="number"))
    run = start(flows, stage("before"), several, stage("after"))
    worker.run_once()
    assert run.status is S.TERMINAL  # nobody has said how many
    for ref in ("before", "after"):
        forked = flows.fork(run.id, ref)
        assert forked.status is S.TERMINAL
        assert flows.stages(forked.id) == {"before": S.CANCELED, "several": S.TERMINAL, "after": S.CANCELED}
        assert flows.work(forked.id) == []
    worker.run_once()
    assert journal.ran == []


def test_a_fork_that_ends_at_once_ends_with_the_instances_that_nobody_waits_for(flows: Workflows) -> None:
    Journal(flows)
    alone = stage("alone", mi_config=MultiInstanceConfig(count=2, sync_on_complete=False))
    run = start(flows, alone, stage("several", mi_config=MultiInstanceConfig(count_from_context="number")))
    flows.cancel(run.id)
    forked = flows.fork(run.id, "alone")
    assert forked.status is S.TERMINAL
    assert forked.record.live == 0
    assert flows.work(forked.id) == []


def test_a_fork_of_a_fork_and_a_retry_of_it_work_like_any_run(flows: Workflows, worker: WorkflowWorker) -> None:
    journal = Journal(flows)
    run = start(flows, stage("a"), stage("b", "a"))
    worker.run_once()
    journal.answers["b"] = [TaskResult.terminal("no")]
    once = flows.fork(run.id, "b")
    worker.run_once()
    assert once.status is S.TERMINAL
    flows.retry(once.id)
    worker.run_once()
    assert once.status is S.SUCCEEDED
    twice = flows.fork(once.id, "b")
    worker.run_once()
    assert (twice.status, journal.ran) == (S.SUCCEEDED, ["a", "b", "b", "b", "b"])


@workflow(limit=1)
def one_at_a_time(number: int) -> Any:
    return add(double(load(number), 2))


def test_a_fork_counts_among_those_of_its_pipeline(flows: Workflows, worker: WorkflowWorker) -> None:
    run = flows.start(one_at_a_time, 10)
    worker.run_once()
    forked = [flows.fork(run.id, "double") for _ in range(2)]
    assert [str(one.status) for one in forked] == ["RUNNING", "BUFFERED"]
    RAN.clear()
    worker.run_once()
    worker.run_once()
    assert [one.result(0) for one in forked] == [20, 20]
    assert RAN == ["double", "add", "double", "add"]


def test_a_fork_that_waits_in_line_takes_over_what_it_would_have_without(
    flows: Workflows, worker: WorkflowWorker
) -> None:
    run, before = flows.start(one_at_a_time, 10), flows.start(one_at_a_time, 1)
    worker.run_once()
    first = flows.start(one_at_a_time, 2)
    forked = flows.fork(run.id, "add", workflow=one_at_a_time, by="ann")
    assert (before.status, first.status, forked.status) == (S.SUCCEEDED, S.RUNNING, S.BUFFERED)
    assert flows.stages(forked.id)["load"] is S.SUCCEEDED
    flows.cancel(first.id)
    RAN.clear()
    worker.run_once()
    assert (forked.result(0), RAN) == (20, ["add"])


def test_a_fork_goes_by_the_limit_of_today_and_leaves_it_as_it_is(flows: Workflows, worker: WorkflowWorker) -> None:
    run = flows.start(one_at_a_time, 10)
    worker.run_once()
    flows.start_waiting("one_at_a_time", limit=3)
    forked = [flows.fork(run.id, "double") for _ in range(4)]
    assert [str(one.status) for one in forked] == ["RUNNING", "RUNNING", "RUNNING", "BUFFERED"]


def test_a_fork_remembers_the_configuration_that_it_was_started_with(flows: Workflows, worker: WorkflowWorker) -> None:
    run = flows.start(sums, 10)
    worker.run_once()
    for forked in (flows.fork(run.id, "double"), flows.fork(run.id, "double", workflow=sums)):
        assert flows.workflow(forked.id).config_version == flows.configs.fingerprint
