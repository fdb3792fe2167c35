"""Models as JSON documents, and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import SchemaError
from holdfast.guard.retry_policy import RetryPolicy
from holdfast.machine.graph import JoinType, SkipCause, SplitType
from holdfast.machine.workflow import WorkflowStatus
from holdfast.workflows.model import Workflow, WorkflowType
from holdfast.workflows.multi_instance import MultiInstanceConfig
from holdfast.workflows.result import TaskResult
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task_run import TaskExecution
from holdfast.workflows.trigger import PausedDetails, Trigger

AT = datetime(2026, 1, 1, 12, 30, 15, 123456, tzinfo=UTC)


def full_task() -> TaskExecution:
    return TaskExecution(
        name="t", implementing_class="shell", status=WorkflowStatus.RUNNING, version=3, start_time=AT, end_time=AT,
        loop_start=True, loop_end=True, stage_start=True, stage_end=True, task_exception_details={"error": ["x"]},
        position=4, attempt=2, retry_policy=RetryPolicy(max_attempts=5, jitter=True), retry_timeouts=True, timeout=2.5,
    )  # fmt: skip


def full_stage() -> StageExecution:
    return StageExecution(
        ref_id="a", type="deploy", name="A", status=WorkflowStatus.SKIPPED, version=2, context={"x": [1, {"y": None}]},
        outputs={"z": 1.5}, tasks=[full_task()], requisite_stage_ref_ids={"b", "c"}, start_time=AT, end_time=AT,
        start_time_expiry=AT, scheduled_time=AT, join_type=JoinType.N_OF_M, join_threshold=2, split_type=SplitType.OR,
        split_conditions={"d": "x == 1"}, mi_config=MultiInstanceConfig(count=3, join_threshold=2), mutex_key="m",
        deferred_choice_group="g", milestone_ref_id="b", milestone_status=WorkflowStatus.RUNNING, cancel_region={"e"},
        output_reducers={"z": "sum"}, continue_on_failure=True, fail_pipeline=False, enabled="x", stage_timeout=60.0,
        allow_sibling_stages_to_continue=True, complete_other_branches_then_fail=True, manual_skip=True, max_jumps=3,
        verification={"required": ["z"]}, incarnation=2, skip_cause=SkipCause.MANUAL, pending_upstreams=1,
        engine_state={"merges": 1}, parent_stage_id="p",
    )  # fmt: skip


def full_workflow() -> Workflow:
    return Workflow(
        type=WorkflowType.ORCHESTRATION, application="shop", name="fulfil", status=WorkflowStatus.PAUSED, version=9,
        stages=[full_stage()], context={"k": "v"}, trigger=Trigger("cron", "ann", {"p": 1}, {"q": 2}, ["r"]),
        start_time=AT, end_time=AT, start_time_expiry=AT, is_canceled=True, canceled_by="bob",
        cancellation_reason="why",
        paused=PausedDetails("ann", AT, "bob", AT, "lunch"), pipeline_config_id="pc", is_limit_concurrent=True,
        max_concurrent_executions=2, keep_waiting_pipelines=False, config_version="c", origin="api",
        idempotency_key="ik", code_version="v1", parent_workflow_id="pw", queue="q", priority=5,
        dead_letter=False, forked_from=("w-1", "pay"),
    )  # fmt: skip


def full_result() -> TaskResult:
    return TaskResult.wait_signal("go", 5, on_timeout=WorkflowStatus.SKIPPED, context={"a": 1}).merge_outputs({"b": 2})


FULL: list[Callable[[], Any]] = [full_task, full_stage, full_workflow, full_result]


@pytest.mark.parametrize("make", FULL)
def test_a_document_says_everything_and_is_json(make: Callable[[], Any]) -> None:
    model = make()
    document = json.loads(json.dumps(model.to_document()))
    assert type(model).from_document(document) == model
    assert {*document} == {"schema", *(one.name for one in fields(model))}


@pytest.mark.parametrize("make", FULL[:3])
def test_no_field_of_the_examples_has_its_default(make: Callable[[], Any]) -> None:
    model, plain = make(), type(make())()
    same = {one.name for one in fields(model) if getattr(model, one.name) == getattr(plain, one.name)}
    assert same <= {"synthetic_stage_owner"}


@pytest.mark.parametrize("kind", [TaskExecution, StageExecution, Workflow])
def test_a_document_that_says_little_means_the_defaults(kind: Any) -> None:
    assert kind.from_document({"schema": 1, "id": "1"}) == kind(id="1")


@pytest.mark.parametrize("make", FULL)
def test_keys_that_nobody_knows_are_left_out(make: Callable[[], Any]) -> None:
    document = {**make().to_document(), "invented_later": 1}
    assert not hasattr(type(make()).from_document(document), "invented_later")


@pytest.mark.parametrize("make", FULL)
def test_a_status_that_nobody_knows_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(SchemaError, match=r"status is 'EXPLODED', which is none of NOT_STARTED"):
        type(make()).from_document({**make().to_document(), "status": "EXPLODED"})


@pytest.mark.parametrize("make", FULL)
@pytest.mark.parametrize(
    ("schema", "story"), [(2, "has schema 2, .* upgrade holdfast"), (None, "got None"), ("1", "'1'")]
)
def test_a_schema_that_nobody_knows_is_refused(make: Callable[[], Any], schema: Any, story: str) -> None:
    with pytest.raises(SchemaError, match=story):
        type(make()).from_document({**make().to_document(), "schema": schema})


def test_what_is_no_document_is_refused() -> None:
    with pytest.raises(SchemaError, match="the document of a stage"):
        StageExecution.from_document([])  # type: ignore[arg-type]


def test_an_unknown_join_is_left_for_readiness_to_judge() -> None:
    document = {**full_stage().to_document(), "join_type": "XOR"}
    assert StageExecution.from_document(document).join_type == "XOR"


def test_a_policy_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    document = full_task().to_document()
    document["retry_policy"]["invented_later"] = 1
    assert TaskExecution.from_document(document).retry_policy == RetryPolicy(max_attempts=5, jitter=True)


@pytest.mark.parametrize(
    ("value", "error", "story"),
    [
        ({"x": [{"y": object()}]}, TypeError, r"stage 'a'\.context\.x\[0\]\.y is a object, which is not JSON"),
        ({"x": float("nan")}, ValueError, r"stage 'a'\.context\.x is nan"),
        ({"x": {1: 2}}, TypeError, r"stage 'a'\.context\.x has the key 1"),
    ],
)
def test_what_is_not_json_is_named(value: dict[str, Any], error: type[Exception], story: str) -> None:
    with pytest.raises(error, match=story):
        Workflow(stages=[StageExecution(ref_id="a", context=value)]).to_document()


def test_times_are_microseconds_in_documents_and_aware_outside() -> None:
    stage = StageExecution(start_time=AT, end_time=datetime(2026, 1, 1))  # noqa: DTZ001
    document = stage.to_document()
    assert document["start_time"] == 1_767_270_615_123_456
    read = StageExecution.from_document(document)
    assert (read.start_time, read.end_time) == (AT, datetime(2026, 1, 1, tzinfo=UTC))


def test_a_document_is_a_copy() -> None:
    stage = StageExecution(context={"list": [1]})
    document = stage.to_document()
    stage.context["list"].append(2)
    assert document["context"] == {"list": [1]}


def test_parts_may_be_kept_apart() -> None:
    assert "stages" not in full_workflow().to_document(with_stages=False)
    assert "tasks" not in full_stage().to_document(with_tasks=False)


def test_a_workflow_that_was_read_is_whole() -> None:
    made = Workflow.create(
        "shop", "fulfil", [StageExecution(ref_id="a"), StageExecution(ref_id="b", requisite_stage_ref_ids={"a"})]
    )
    read = Workflow.from_document(made.to_document())
    assert [one.ref_id for one in read.stage("b").upstream_stages()] == ["a"]


numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text("abcä\n"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text("xyz", min_size=1), values, max_size=3))
def test_any_json_comes_back_as_it_was(context: dict[str, Any]) -> None:
    stage = StageExecution(ref_id="a", context=context)
    assert StageExecution.from_document(json.loads(json.dumps(stage.to_document()))).context == context
