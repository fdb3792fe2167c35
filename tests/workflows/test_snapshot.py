"""Snapshots: deep-frozen, and deaf to what happens later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.machine.workflow import WorkflowStatus
from holdfast.workflows.snapshot import StageStateSnapshot, TaskStateSnapshot, frozen, thawed
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task_run import TaskExecution

AT = datetime(2026, 1, 1, tzinfo=UTC)


def live() -> StageExecution:
    return StageExecution(
        id="1", ref_id="a", status=WorkflowStatus.RUNNING, version=3, start_time=AT,
        context={"list": [1, {"deep": [2]}], "dict": {"b": 1, "a": {"c": 3}}}, outputs={"ids": [7]},
        tasks=[TaskExecution(id="t", name="t", version=2, task_exception_details={"causes": ["x"]})],
    )  # fmt: skip


def test_a_snapshot_says_what_the_seed_promises() -> None:
    snapshot = live().state_snapshot()
    assert isinstance(snapshot, StageStateSnapshot)
    assert (snapshot.status, snapshot.version, snapshot.phase_version) == ("RUNNING", 3, ("RUNNING", 3))
    assert (snapshot.id, snapshot.ref_id, snapshot.start_time, snapshot.incarnation) == ("1", "a", AT, 1)
    assert snapshot.outputs == {"ids": (7,)}
    assert isinstance(snapshot.tasks[0], TaskStateSnapshot)
    assert snapshot.tasks[0].phase_version == ("NOT_STARTED", 2)


def test_later_changes_do_not_show() -> None:
    stage = live()
    snapshot = stage.state_snapshot()
    stage.context["list"][1]["deep"].append(9)
    stage.context["dict"]["a"]["c"] = 9
    stage.outputs["new"] = 9
    stage.tasks[0].task_exception_details["causes"].append("y")
    stage.tasks.append(TaskExecution())
    stage.status = WorkflowStatus.SUCCEEDED
    stage.version = 4
    assert snapshot == live().state_snapshot()


def refuses_writes(value: Any) -> None:
    if isinstance(value, Mapping):
        with pytest.raises(TypeError):
            value["new"] = 1  # type: ignore[index]
        for item in value.values():
            refuses_writes(item)
    elif isinstance(value, tuple):
        for item in value:
            refuses_writes(item)
    else:
        assert not isinstance(value, list | set | bytearray)


def test_nothing_in_it_can_be_changed() -> None:
    snapshot = live().state_snapshot()
    with pytest.raises(FrozenInstanceError):
        snapshot.version = 9  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        snapshot.tasks[0].attempt = 9  # type: ignore[misc]
    for values in (snapshot.context, snapshot.outputs, snapshot.tasks[0].task_exception_details):
        refuses_writes(values)


def test_the_order_of_keys_is_kept_and_does_not_matter() -> None:
    one = StageExecution(id="1", context={"b": 1, "a": {"d": 1, "c": 2}}).state_snapshot()
    other = StageExecution(id="1", context={"a": {"c": 2, "d": 1}, "b": 1}).state_snapshot()
    assert one == other
    assert hash(one) == hash(other)
    assert list(one.context) == ["b", "a"]


def test_what_can_only_be_shared_is_named() -> None:
    with pytest.raises(TypeError, match=r"stage 'a'\.context\.x\[1\]\.y is a object"):
        StageExecution(ref_id="a", context={"x": [1, {"y": object()}]}).state_snapshot()


def test_a_thawed_copy_is_json_and_free() -> None:
    stage = live()
    copy = thawed(stage.state_snapshot().context)
    assert json.loads(json.dumps(copy)) == stage.context
    copy["list"].append(1)
    assert stage.context["list"] == live().context["list"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=10,
)


@given(json_values)
def test_any_json_freezes_and_thaws(value: Any) -> None:
    refuses_writes(frozen(value))
    assert thawed(frozen(value)) == value
