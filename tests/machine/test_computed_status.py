"""What a stage and a workflow come to, as ruled."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.machine.computed_status import failure_status, stage_status, workflow_status
from holdfast.machine.workflow import COMPLETE, WorkflowStatus

S = WorkflowStatus
statuses = st.lists(st.sampled_from(S), max_size=5)


@dataclass
class Top:
    status: WorkflowStatus
    allow_sibling_stages_to_continue: bool = False
    complete_other_branches_then_fail: bool = False


def ruled(parts: list[S], after: list[S], failure: S) -> S:
    """Notes 2.6, word for word."""
    for group in (parts, after):
        if S.TERMINAL in group:
            return failure
        for status in (S.STOPPED, S.CANCELED, S.PAUSED, S.BUFFERED, S.SUSPENDED):
            if status in group:
                return status
        if not all(status.is_complete for status in group):
            return S.RUNNING
    if S.FAILED_CONTINUE in parts + after:
        return S.FAILED_CONTINUE
    return S.SUCCEEDED


@given(statuses, statuses, st.sampled_from([S.TERMINAL, S.FAILED_CONTINUE, S.STOPPED]))
def test_a_stage_comes_to_what_the_first_match_says(parts: list[S], after: list[S], failure: S) -> None:
    assert stage_status(parts, after, failure) is ruled(parts, after, failure)


@pytest.mark.parametrize(
    ("continue_on_failure", "fail_pipeline", "expected"),
    [
        (False, True, S.TERMINAL),
        (False, False, S.STOPPED),
        (True, True, S.FAILED_CONTINUE),
        (True, False, S.FAILED_CONTINUE),
    ],
)
def test_the_flags_decide_what_a_failure_is(continue_on_failure: bool, fail_pipeline: bool, expected: S) -> None:
    assert failure_status(continue_on_failure, fail_pipeline) is expected


def test_stages_after_the_tasks_are_not_looked_at_before_the_tasks_are_done() -> None:
    assert stage_status([S.RUNNING], [S.TERMINAL]) is S.RUNNING
    assert stage_status([S.SUCCEEDED], [S.NOT_STARTED]) is S.RUNNING


def tops(*stages: S) -> list[Top]:
    return [Top(status) for status in stages]


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        ((S.SUCCEEDED, S.FAILED_CONTINUE, S.SKIPPED), S.SUCCEEDED),
        ((S.SUCCEEDED, S.RUNNING), S.RUNNING),
        ((S.TERMINAL, S.RUNNING), S.TERMINAL),
        ((S.TERMINAL, S.CANCELED), S.TERMINAL),
        ((S.STOPPED, S.RUNNING), S.RUNNING),
        ((S.STOPPED, S.SKIPPED), S.SUCCEEDED),
        ((S.STOPPED, S.CANCELED), S.CANCELED),
        ((S.CANCELED, S.SUCCEEDED), S.CANCELED),
    ],
)
def test_a_workflow_comes_to_what_its_stages_say(stages: tuple[S, ...], expected: S) -> None:
    assert workflow_status(tops(*stages)) is expected


def test_a_jump_in_progress_ends_no_workflow() -> None:
    assert workflow_status(tops(S.SUCCEEDED, S.REDIRECT)) is S.RUNNING


def test_a_failure_that_lets_its_siblings_go_on_waits_for_them() -> None:
    failed = Top(S.TERMINAL, allow_sibling_stages_to_continue=True)
    assert workflow_status([failed, Top(S.RUNNING)]) is S.RUNNING
    assert workflow_status([failed, Top(S.SUCCEEDED)]) is S.TERMINAL


def test_a_stopped_branch_fails_the_workflow_in_the_end_if_it_says_so() -> None:
    stopped = Top(S.STOPPED, complete_other_branches_then_fail=True)
    assert workflow_status([stopped, Top(S.RUNNING)]) is S.RUNNING
    assert workflow_status([stopped, Top(S.SUCCEEDED)]) is S.TERMINAL


def test_a_cancel_that_came_too_late_leaves_a_success() -> None:
    assert workflow_status(tops(S.SUCCEEDED), is_canceled=True) is S.SUCCEEDED
    assert workflow_status(tops(S.SUCCEEDED, S.STOPPED), is_canceled=True) is S.CANCELED


@given(statuses)
def test_a_workflow_has_an_end_once_all_its_stages_have(stages: list[S]) -> None:
    if all(status in COMPLETE for status in stages):
        assert workflow_status(tops(*stages)).is_complete
