"""What a task may answer."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, cast

import pytest

from holdfast.errors import PolicyError, TaskError
from holdfast.machine.workflow import WorkflowStatus
from holdfast.workflows.result import ANSWERS, TaskResult, as_result

S = WorkflowStatus


@pytest.mark.parametrize(
    ("result", "status"),
    [
        (TaskResult.success(), S.SUCCEEDED),
        (TaskResult.running(), S.RUNNING),
        (TaskResult.terminal("x"), S.TERMINAL),
        (TaskResult.failed_continue("x"), S.FAILED_CONTINUE),
        (TaskResult.skipped(), S.SKIPPED),
        (TaskResult.canceled(), S.CANCELED),
        (TaskResult.stopped(), S.STOPPED),
        (TaskResult.suspend(), S.SUSPENDED),
        (TaskResult.sleep(5), S.SUSPENDED),
        (TaskResult.wait_signal("go"), S.SUSPENDED),
        (TaskResult.jump_to("a"), S.REDIRECT),
        (TaskResult.redirect("a"), S.REDIRECT),
    ],
)
def test_each_verb_means_a_status(result: TaskResult, status: WorkflowStatus) -> None:
    assert result.status is status


def test_outputs_and_context_are_kept_apart() -> None:
    result = TaskResult.success({"out": 1}, {"in": 2})
    assert (result.outputs, result.context) == ({"out": 1}, {"in": 2})
    result = TaskResult.failed_continue("half of it", {"out": 1})
    assert (result.outputs, result.error) == ({"out": 1}, "half of it")
    assert TaskResult.running({"page": 2}).context == {"page": 2}
    assert TaskResult.suspend({"page": 2}).context == {"page": 2}


def test_an_error_may_be_an_exception() -> None:
    assert TaskResult.terminal(ValueError("no")).error == "ValueError: no"
    assert TaskResult.terminal(KeyError()).error == "KeyError"


def test_a_redirect_without_a_target_is_terminal() -> None:
    for result in (TaskResult.redirect(), TaskResult(S.REDIRECT), TaskResult.builder(S.REDIRECT).build()):
        assert result.status is S.TERMINAL
        assert "jump_to" in (result.error or "")


def test_a_jump_takes_context_and_outputs_along() -> None:
    result = TaskResult.jump_to("again", {"round": 2}, {"seen": [1]})
    assert (result.target_stage_ref_id, result.context, result.outputs) == ("again", {"round": 2}, {"seen": [1]})


def test_a_result_cannot_be_changed_from_either_side() -> None:
    mine = {"list": [1]}
    result = TaskResult.success(mine)
    mine["list"].append(2)
    assert result.outputs == {"list": [1]}
    with pytest.raises(FrozenInstanceError):
        result.status = S.TERMINAL  # type: ignore[misc]
    with pytest.raises(TypeError):
        result.outputs["new"] = 1  # type: ignore[index]


@pytest.mark.parametrize(
    ("make", "error", "story"),
    [
        (lambda: TaskResult.success({"a": [{"b": object()}]}), TypeError, r"outputs\.a\[0\]\.b is a object"),
        (lambda: TaskResult.running({"a": float("inf")}), ValueError, r"context\.a is inf"),
        (lambda: TaskResult.success({"a": {1: 2}}), TypeError, r"outputs\.a has the key 1"),
        (lambda: TaskResult.success(cast(Any, [1])), TypeError, "outputs is a list; give a dict"),
        (lambda: TaskResult.success().merge_outputs({"x": {1, 2}}), TypeError, r"outputs\.x is a set"),
        (lambda: TaskResult.builder(S.SUCCEEDED).context({"x": b""}).build(), TypeError, r"context\.x is a bytes"),
    ],
)
def test_what_is_not_json_is_named_at_once(make: Any, error: type[Exception], story: str) -> None:
    with pytest.raises(error, match=story):
        make()


def test_outputs_are_merged_and_the_new_ones_win() -> None:
    before = TaskResult.success({"a": 1, "b": 1}, {"c": 1})
    after = before.merge_outputs({"b": 2})
    assert (after.outputs, after.context) == ({"a": 1, "b": 2}, {"c": 1})
    assert before.outputs == {"a": 1, "b": 1}


def test_a_builder_puts_it_together() -> None:
    built = (
        TaskResult.builder(S.FAILED_CONTINUE).outputs({"a": 1}).outputs({"b": 2}).context({"c": 3}).error("x").build()
    )
    assert built == TaskResult.failed_continue("x", {"a": 1, "b": 2}, {"c": 3})
    assert TaskResult.builder(S.REDIRECT).target("a").build() == TaskResult.jump_to("a")


def test_a_sleep_ends_at_a_time_or_after_a_span() -> None:
    berlin = datetime(2026, 7, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    assert TaskResult.sleep(berlin).wake_at == datetime(2026, 7, 1, 10, tzinfo=UTC)
    assert TaskResult.sleep(datetime(2026, 7, 1)).wake_at == datetime(2026, 7, 1, tzinfo=UTC)  # noqa: DTZ001
    assert TaskResult.sleep(timedelta(minutes=1)).wake_after == TaskResult.sleep(60).wake_after == 60.0
    with pytest.raises(PolicyError, match="above 0, got -1"):
        TaskResult.sleep(-1)
    with pytest.raises(PolicyError, match=r"at most 1e\+09 seconds, .* got 8\.64e\+13"):
        TaskResult.sleep(timedelta.max)


def test_a_wait_for_a_signal_may_end_without_one() -> None:
    forever = TaskResult.wait_signal("go")
    assert (forever.signal, forever.wakes, forever.on_timeout) == ("go", False, None)
    bounded = TaskResult.wait_signal("go", timedelta(hours=1))
    assert (bounded.wake_after, bounded.on_timeout) == (3600.0, S.TERMINAL)
    assert TaskResult.wait_signal("go", 5, on_timeout=S.SKIPPED).on_timeout is S.SKIPPED
    with pytest.raises(ValueError, match="on_timeout must be one of"):
        TaskResult.wait_signal("go", 5, on_timeout=S.RUNNING)
    with pytest.raises(ValueError, match="name of a signal"):
        TaskResult.wait_signal("")


@pytest.mark.parametrize("status", sorted({*S} - ANSWERS))
def test_a_task_cannot_answer_what_is_not_its_to_say(status: WorkflowStatus) -> None:
    with pytest.raises(ValueError, match=f"got .*{status}"):
        TaskResult(status)


def test_only_who_is_suspended_waits() -> None:
    with pytest.raises(ValueError, match="only a suspended task can wait"):
        TaskResult(S.SUCCEEDED, wake_after=1.0)


def test_a_plain_answer_stands_for_a_success() -> None:
    assert as_result(None, "t") == TaskResult.success()
    assert as_result({"a": 1}, "t") == TaskResult.success({"a": 1})
    result = TaskResult.skipped()
    assert as_result(result, "t") is result
    with pytest.raises(TaskError, match="task 't' returned a int; return a TaskResult"):
        as_result(7, "t")
