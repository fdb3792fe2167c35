"""Workflows, stages and tasks as users build and read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Retry
from holdfast.errors import (
    ConfigurationError,
    InvalidStateTransitionError,
    PolicyError,
    WorkflowDefinitionError,
    WorkflowError,
    WorkflowNotFoundError,
)
from holdfast.machine.graph import JoinType, PredicatePhase, SkipCause, SplitType, evaluate_readiness
from holdfast.machine.workflow import COMPLETE, WorkflowStatus
from holdfast.testing import ManualClock
from holdfast.workflows.functions import task
from holdfast.workflows.model import Workflow, WorkflowType
from holdfast.workflows.multi_instance import MultiInstanceConfig
from holdfast.workflows.owner import SyntheticStageOwner
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task_run import TaskExecution

S = WorkflowStatus
AT = datetime(2026, 1, 1, 12, tzinfo=UTC)


def stage(ref_id: str, *before: str, **fields: Any) -> StageExecution:
    return StageExecution(ref_id=ref_id, type="test", name=ref_id, requisite_stage_ref_ids=set(before), **fields)


def workflow(*stages: StageExecution) -> Workflow:
    return Workflow.create("shop", "fulfil", stages)


def refs(stages: list[StageExecution]) -> list[str]:
    return [one.ref_id for one in stages]


def refusal(*stages: StageExecution, **known: Any) -> WorkflowDefinitionError:
    with pytest.raises(WorkflowDefinitionError) as caught:
        Workflow.create("shop", "fulfil", stages, **known)
    return caught.value


def test_a_workflow_is_built_as_in_the_seed() -> None:
    made = Workflow(application="my_app", name="pipeline", config_version="a1b2c3d4e5f67890")
    assert (made.application, made.name, made.config_version) == ("my_app", "pipeline", "a1b2c3d4e5f67890")
    assert made.phase_version == ("NOT_STARTED", 0)


def test_a_workflow_has_the_ruled_defaults() -> None:
    made = Workflow()
    assert (made.type, made.status, made.stages, made.context) == (WorkflowType.PIPELINE, S.NOT_STARTED, [], {})
    assert (made.trigger.type, made.trigger.user) == ("manual", "anonymous")
    assert (made.trigger.parameters, made.trigger.payload, made.trigger.artifacts) == ({}, {}, [])
    assert (made.is_canceled, made.is_limit_concurrent, made.keep_waiting_pipelines) == (False, False, True)
    assert (made.paused, made.idempotency_key, made.queue, made.priority) == (None, None, "default", 0)


def test_a_stage_has_the_ruled_defaults() -> None:
    made = StageExecution()
    assert (made.join_type, made.join_threshold, made.split_type) == (JoinType.AND, 0, SplitType.AND)
    assert (made.continue_on_failure, made.fail_pipeline, made.enabled, made.manual_skip) == (False, True, True, False)
    assert not made.allow_sibling_stages_to_continue
    assert not made.complete_other_branches_then_fail
    assert (made.max_jumps, made.incarnation, made.skip_cause, made.engine_state) == (10, 1, None, {})


def test_ids_sort_in_the_order_in_which_things_are_made() -> None:
    made = [Workflow() for _ in range(5)]
    assert [one.id for one in made] == sorted({one.id for one in made})
    clock = ManualClock()
    first = Workflow.create("shop", "fulfil", clock=clock)
    clock.advance(1)
    assert first.id < Workflow.create("shop", "fulfil", clock=clock).id


def test_tasks_run_in_the_order_of_their_positions_and_not_of_their_ids() -> None:
    tasks = [TaskExecution(id=name, name=name) for name in ("z", "a", "m")]
    made = stage("s", tasks=tasks)
    assert [task.name for task in made.tasks] == ["z", "a", "m"]
    assert [task.position for task in made.tasks] == [0, 1, 2]
    order, at = [], made.next_task()
    while at is not None:
        order.append(at.name)
        at = made.next_task(at)
    assert order == ["z", "a", "m"]


def test_positions_that_are_given_decide() -> None:
    made = stage("s", tasks=[TaskExecution(name="late", position=7), TaskExecution(name="first", position=2)])
    added = made.add_task(TaskExecution(name="last"))
    assert [task.name for task in made.tasks] == ["first", "late", "last"]
    assert added.position == 8


def test_two_tasks_in_one_place_are_refused() -> None:
    error = refusal(stage("s", tasks=[TaskExecution(position=1), TaskExecution(position=1)]))
    assert error.code == "duplicate_position"


@pytest.mark.parametrize(
    ("stages", "code", "members"),
    [
        ([stage("a"), stage("a")], "duplicate_ref", ("a",)),
        ([stage("a", "a")], "self_edge", ("a",)),
        ([stage("a", "gone")], "unknown_ref", ("gone",)),
        ([stage("a", "b"), stage("b", "a")], "cycle", ("a", "b")),
        ([stage("a"), stage("b", "a", join_type="N_OF_M", join_threshold=2)], "unreachable_join", ("b",)),
        ([stage("a", join_type="XOR")], "unknown_join_type", ("a",)),
        ([stage("a", split_type="XOR")], "unknown_split_type", ("a",)),
        ([stage("a", join_type=None)], "unknown_join_type", ("a",)),
        ([stage("a", split_type=None)], "unknown_split_type", ("a",)),
        ([stage("")], "empty_ref", ()),
        ([stage("a#1")], "bad_ref", ("a#1",)),
        ([stage("a"), stage("b#1.0", "a")], "bad_ref", ("b#1.0",)),
        ([stage("a", cancel_region={"gone"})], "unknown_ref", ("gone",)),
        ([stage("a", milestone_ref_id="gone")], "unknown_ref", ("gone",)),
        ([stage("a", split_conditions={"b": "x"}), stage("b")], "unknown_ref", ("b",)),
        ([stage("a", parent_stage_id="1", synthetic_stage_owner="STAGE_BEFORE")], "unknown_ref", ("1",)),
        ([stage("a", parent_stage_id="1")], "half_synthetic", ("a",)),
        ([stage("a", id="1"), stage("b", id="1")], "duplicate_id", ("1",)),
        ([stage("a"), stage("b", max_jumps=-1)], "bad_max_jumps", ("b",)),
        ([stage("a", max_jumps=1.5)], "bad_max_jumps", ("a",)),
        ([stage("a", max_jumps=True)], "bad_max_jumps", ("a",)),
        ([stage("a"), stage("b", milestone_ref_id="a", milestone_status="DONE")], "unknown_milestone_status", ("b",)),
        ([stage("a", parent_stage_id="1", synthetic_stage_owner="BEFORE")], "unknown_owner", ("a",)),
        ([stage("a", enabled="open(")], "bad_expression", ("a",)),
        ([stage("a", enabled=3)], "bad_expression", ("a",)),
        ([stage("a", scheduled_time="2030-01-01T08:00:00Z")], "bad_time", ("a",)),
        ([stage("a", start_time_expiry=3600)], "bad_time", ("a",)),
        ([stage("a", split_type="OR", split_conditions={"b": "x >"}), stage("b", "a")], "bad_expression", ("a",)),
        ([stage("a", split_conditions={"b": "x"}), stage("b", "a")], "unused_conditions", ("a",)),
    ],
)
def test_what_can_never_run_is_refused_at_once(
    stages: list[StageExecution], code: str, members: tuple[str, ...]
) -> None:
    error = refusal(*stages)
    assert (error.code, tuple(sorted(error.members))) == (code, members)


@pytest.mark.parametrize("whole", [None, "b"], ids=["a stage", "a part of another one"])
def test_a_stage_may_not_wait_for_a_part_of_another_one(whole: str | None) -> None:
    def part(ref: str, whole: str, *before: str) -> StageExecution:
        return stage(ref, *before, id=ref, parent_stage_id=whole, synthetic_stage_owner="STAGE_BEFORE")

    stages = [stage("a", id="a"), stage("b", id="b"), part("p", "a"), part("q", "a", "p")]
    workflow(*stages)
    error = refusal(*stages, stage("late", "p") if whole is None else part("late", whole, "p"))
    assert (error.code, error.members) == ("foreign_part", ("late", "p"))


def test_a_word_that_is_known_may_be_given_as_a_text() -> None:
    made = stage("b", "a", milestone_ref_id="a", milestone_status="RUNNING")
    part = stage("c", parent_stage_id=made.id, synthetic_stage_owner="STAGE_AFTER")
    workflow(stage("a"), made, part)
    assert made.milestone_status is WorkflowStatus.RUNNING
    assert made.after_stages() == [part]


def test_a_policy_of_another_kind_is_refused_where_it_is_written() -> None:
    with pytest.raises(
        ConfigurationError, match=r"retry must be a Retry or a RetryPolicy, got 3; use Retry\(attempts="
    ):
        task(retry=3)(lambda order: order)
    with pytest.raises(ConfigurationError, match="task 'pay': retry_policy must be a RetryPolicy, got"):
        TaskExecution.create("pay", "pay", retry_policy=Retry(attempts=3))


def test_a_threshold_counts_for_the_join_that_uses_it_only() -> None:
    workflow(stage("a"), stage("b", "a", join_threshold=5))


def test_a_stage_may_be_told_never_to_jump() -> None:
    workflow(stage("a", max_jumps=0))


@pytest.mark.parametrize("queue", ["", 7, None])
def test_a_queue_that_cannot_be_named_is_refused(queue: Any) -> None:
    with pytest.raises(WorkflowDefinitionError, match=f"queue must be a text, got {queue!r}") as caught:
        Workflow.create("shop", "fulfil", [stage("a")], queue=queue)
    assert caught.value.code == "bad_queue"


@pytest.mark.parametrize("priority", [2, -2, 0.5, True, "1"])
def test_a_priority_that_no_worker_asks_for_is_refused(priority: Any) -> None:
    with pytest.raises(WorkflowDefinitionError, match=f"priority must be 1, 0 or -1, got {priority!r}") as caught:
        Workflow.create("shop", "fulfil", [stage("a")], priority=priority)
    assert caught.value.code == "bad_priority"
    for known in (1, 0, -1):
        Workflow.create("shop", "fulfil", [stage("a")], priority=known)


@pytest.mark.parametrize("id", ["", "a/b", "a\nb", "\ud800", "x" * 192, "..", "a.b", "dead", 7, None])
def test_an_id_that_no_address_can_have_or_that_could_be_taken_for_a_stages_is_refused(id: Any) -> None:
    with pytest.raises(WorkflowDefinitionError, match="choose another one, or leave it out") as caught:
        Workflow.create("shop", "fulfil", [stage("a")], id=id)
    assert (caught.value.code, len(str(caught.value)) < 300) == ("bad_id", True)


def test_an_id_may_be_what_people_call_things() -> None:
    for id in ("order-7", "2026-11-18", "Größe 7", "a?b#c%2F", "x" * 191, "dead-7"):
        Workflow.create("shop", "fulfil", [stage("a")], id=id)


def test_a_plain_workflow_is_checked_when_it_is_asked_for() -> None:
    made = Workflow(stages=[stage("a", "b"), stage("b", "a")])
    with pytest.raises(WorkflowDefinitionError, match=r"a → b → a|b → a → b"):
        made.validate()


def test_unknown_types_are_refused_where_they_are_known() -> None:
    made = stage("a", tasks=[TaskExecution(name="t", implementing_class="shell")])
    error = refusal(made, tasks={"http"})
    assert error.code == "unknown_task_type"
    assert "registry.register('shell', builtin_tasks()['shell'])" in str(error)
    Workflow.create("shop", "fulfil", [made], tasks={"shell"}, stage_types=set())
    error = refusal(stage("b"), stage_types={"deploy"})
    assert error.code == "unknown_stage_type"
    assert "'test'" in str(error)


def test_a_text_is_no_list_of_stages() -> None:
    with pytest.raises(WorkflowDefinitionError, match="got the text 'abc'"):
        StageExecution(ref_id="a", requisite_stage_ref_ids="abc")  # type: ignore[arg-type]


def test_neighbours_are_found_by_name() -> None:
    made = workflow(stage("d", "b", "c"), stage("a"), stage("c", "a"), stage("b", "a"))
    assert made.stage("b").ref_id == "b"
    assert refs(made.stage("d").upstream_stages()) == ["b", "c"]
    assert refs(made.stage("a").downstream_stages()) == ["b", "c"]
    assert refs(made.stage("d").ancestors()) == ["a", "b", "c"]
    assert refs(made.stage("a").ancestors()) == []
    assert refs(made.initial_stages()) == ["a"]
    with pytest.raises(WorkflowNotFoundError, match="no stage 'x'; there are a, b, c, d"):
        made.stage("x")
    assert made.stage_by_id(made.stage("c").id).ref_id == "c"


def test_ancestors_of_a_long_chain_are_found() -> None:
    names = [f"{at:05}" for at in range(3000)]
    chain = [stage(name, *names[at - 1 : at]) for at, name in enumerate(names)]
    assert refs(workflow(*chain).stage(names[-1]).ancestors()) == names[:-1]


def parts_of_a_stage() -> Workflow:
    main = stage("main", "root", id="M")
    owned: dict[str, Any] = {"parent_stage_id": "M"}
    return workflow(
        stage("root"),
        main,
        stage("prepare", synthetic_stage_owner=SyntheticStageOwner.STAGE_BEFORE, **owned),
        stage("tidy", synthetic_stage_owner=SyntheticStageOwner.STAGE_AFTER, **owned),
        stage("mend", synthetic_stage_owner=SyntheticStageOwner.STAGE_ON_FAILURE, **owned),
        stage("next", "main"),
    )


def test_stages_that_belong_to_another_come_before_and_after_its_tasks() -> None:
    made = parts_of_a_stage()
    main = made.stage("main")
    assert refs(main.before_stages()) == ["prepare"]
    assert refs(main.after_stages()) == ["tidy"]
    assert refs(main.on_failure_stages()) == ["mend"]
    assert made.stage("tidy").parent() is main
    assert refs(made.top_level_stages()) == ["root", "main", "next"]
    assert refs(made.initial_stages()) == ["root"]
    assert refs(made.stage("prepare").ancestors()) == ["root"]
    assert refs(main.ancestors()) == ["root", "prepare"]
    assert refs(made.stage("tidy").ancestors()) == ["root", "prepare", "main"]
    assert refs(made.stage("next").ancestors()) == ["root", "prepare", "main", "mend", "tidy"]


def test_a_stage_without_a_workflow_says_so() -> None:
    with pytest.raises(WorkflowError, match="stage 'a' is part of no workflow"):
        stage("a").upstream_stages()
    made = Workflow()
    assert made.add_stage(stage("a")).workflow is made


def test_a_status_moves_as_the_table_allows() -> None:
    made = stage("a")
    made.status = S.RUNNING
    made.status = S.SUCCEEDED
    with pytest.raises(InvalidStateTransitionError, match="stage 'a' cannot go from SUCCEEDED to NOT_STARTED"):
        made.status = S.NOT_STARTED
    assert made.status is S.SUCCEEDED
    for model in (Workflow(name="w"), TaskExecution(name="t")):
        with pytest.raises(InvalidStateTransitionError):
            model.status = S.SUCCEEDED


def test_a_status_may_be_given_as_a_text_if_it_is_one() -> None:
    assert StageExecution(status="RUNNING").status is S.RUNNING  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="DONE"):
        StageExecution(status="DONE")  # type: ignore[arg-type]


@pytest.mark.parametrize("status", sorted(COMPLETE))
def test_the_only_way_back_is_a_new_incarnation(status: WorkflowStatus) -> None:
    done = TaskExecution(name="t", status=S.TERMINAL, attempt=3, task_exception_details={"error": "x"}, end_time=AT)
    made = stage(
        "a", status=status, tasks=[done], context={"in": 1}, outputs={"out": 2}, version=4, start_time=AT, end_time=AT,
        skip_cause=SkipCause.MANUAL, engine_state={"merges": 2, "activated": ["b"], "jumps": 3},
    )  # fmt: skip
    made.reset()
    assert (made.phase_version, made.incarnation) == (("NOT_STARTED", 4), 2)
    assert (made.context, made.outputs, made.start_time, made.end_time) == ({"in": 1}, {}, None, None)
    assert (made.merges, made.activated, made.skip_cause, made.engine_state) == (0, None, None, {"jumps": 3})
    assert (done.status, done.attempt, done.task_exception_details, done.end_time) == (S.NOT_STARTED, 0, {}, None)


def test_every_row_has_a_version() -> None:
    made = workflow(stage("a", tasks=[TaskExecution(name="t", version=2)], version=3))
    made.version = 5
    assert made.phase_version == ("NOT_STARTED", 5)
    assert made.stage("a").phase_version == ("NOT_STARTED", 3)
    assert made.stage("a").tasks[0].phase_version == ("NOT_STARTED", 2)


def test_readiness_is_asked_of_the_models_themselves() -> None:
    made = workflow(stage("a"), stage("b", "a"))
    b = made.stage("b")
    assert evaluate_readiness(b, b.upstream_stages()).phase is PredicatePhase.NOT_READY
    made.stage("a").status = S.RUNNING
    made.stage("a").status = S.TERMINAL
    result = evaluate_readiness(stage=b, upstream_stages=b.upstream_stages(), jump_bypass=False)
    assert (result.phase, result.failed_upstream_ids) == (PredicatePhase.SKIP, (made.stage("a").id,))
    assert evaluate_readiness(stage("c", "a", join_type="XOR"), [made.stage("a")]).phase is PredicatePhase.UNDEFINED


def test_a_branch_that_was_not_chosen_leads_nowhere() -> None:
    made = workflow(stage("a", status=S.SUCCEEDED, engine_state={"activated": ["b"]}), stage("b", "a"), stage("c", "a"))
    phases = [evaluate_readiness(made.stage(ref), made.stage(ref).upstream_stages()).phase for ref in "bc"]
    assert phases == [PredicatePhase.READY, PredicatePhase.PRUNE]


def test_a_stage_comes_to_what_its_parts_say() -> None:
    made = parts_of_a_stage()
    main = made.stage("main")
    main.add_task(TaskExecution(name="t", status=S.SUCCEEDED))
    assert main.determine_status() is S.RUNNING
    for ref, status in (("prepare", S.SUCCEEDED), ("tidy", S.FAILED_CONTINUE)):
        made.stage(ref).status = S.RUNNING
        made.stage(ref).status = status
    assert main.determine_status() is S.FAILED_CONTINUE
    alone = stage("x", tasks=[TaskExecution(status=S.TERMINAL)], fail_pipeline=False)
    assert alone.determine_status() is alone.failure_status() is S.STOPPED


def test_a_workflow_comes_to_what_its_own_stages_say() -> None:
    made = parts_of_a_stage()
    assert made.determine_status() is S.RUNNING
    for one in made.top_level_stages():
        one.status = S.RUNNING
        one.status = S.SUCCEEDED
    assert made.determine_status() is S.SUCCEEDED


def test_a_time_limit_is_seconds_or_a_timedelta() -> None:
    assert StageExecution(stage_timeout=timedelta(minutes=1)).stage_timeout == 60.0  # type: ignore[arg-type]
    assert TaskExecution(timeout=5).timeout == 5.0
    with pytest.raises(PolicyError, match=r"StageExecution\.stage_timeout must be .* got 0"):
        StageExecution(stage_timeout=0)


@pytest.mark.parametrize(
    ("fields", "story"),
    [
        ({}, "must say how many"),
        ({"count": 2, "count_from_context": "n"}, "takes one of count, count_from_context"),
        ({"count": 0}, "count must be a whole number of at least 1, got 0"),
        ({"count": True}, "got True"),
        ({"count": 100_001}, "count must be at most 100000, got 100001"),
        ({"count": 2, "join_threshold": 3}, "at most count, got 3 of 2"),
        ({"count": 2, "join_threshold": -1}, "0 or more, got -1"),
        ({"collection_from_context": ""}, "must be a key of the context, got ''"),
    ],
)
def test_a_number_of_instances_that_cannot_be_is_refused(fields: dict[str, Any], story: str) -> None:
    with pytest.raises(PolicyError, match=story):
        MultiInstanceConfig(**fields)


def test_instances_may_be_added_later() -> None:
    made = MultiInstanceConfig(allow_dynamic=True, join_threshold=3)
    assert (made.count, made.sync_on_complete, made.cancel_remaining) == (None, True, False)
