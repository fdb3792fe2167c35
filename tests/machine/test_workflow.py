"""The states of workflows, stages and tasks, against the table they were ruled by."""

from __future__ import annotations

import pickle
from itertools import product

import pytest

from holdfast.errors import InvalidStateTransitionError
from holdfast.machine.workflow import (
    ACTIVE,
    COMPLETE,
    CONTINUABLE,
    FAILURE,
    HALTED,
    SUCCESSFUL,
    TRANSITIONS,
    WorkflowStatus,
    moved,
)

RULED = {
    "NOT_STARTED": "RUNNING CANCELED SKIPPED BUFFERED TERMINAL",
    "BUFFERED": "NOT_STARTED RUNNING CANCELED SKIPPED",
    "RUNNING": "SUCCEEDED SKIPPED FAILED_CONTINUE TERMINAL STOPPED CANCELED PAUSED SUSPENDED REDIRECT",
    "PAUSED": "RUNNING CANCELED STOPPED TERMINAL",
    "SUSPENDED": "RUNNING CANCELED STOPPED TERMINAL",
    "REDIRECT": "RUNNING SUCCEEDED CANCELED",
    "SUCCEEDED": "",
    "SKIPPED": "",
    "FAILED_CONTINUE": "",
    "TERMINAL": "",
    "STOPPED": "",
    "CANCELED": "",
}


def test_the_table_is_the_ruled_one() -> None:
    assert {status.value: {after.value for after in to} for status, to in TRANSITIONS.items()} == {
        before: set(after.split()) for before, after in RULED.items()
    }


@pytest.mark.parametrize(("before", "after"), list(product(WorkflowStatus, WorkflowStatus)))
def test_a_move_is_allowed_if_the_table_has_it_or_nothing_changes(
    before: WorkflowStatus, after: WorkflowStatus
) -> None:
    if before is after or after.value in RULED[before].split():
        assert moved("stage 'a'", before, after) is after
    else:
        with pytest.raises(InvalidStateTransitionError, match=f"stage 'a' cannot go from {before} to {after}"):
            moved("stage 'a'", before, after)


def test_the_sets_are_the_ruled_ones() -> None:
    assert {"SUCCEEDED", "SKIPPED"} == SUCCESSFUL
    assert {"TERMINAL", "STOPPED", "CANCELED"} == HALTED
    assert {"SUCCEEDED", "SKIPPED", "FAILED_CONTINUE", "TERMINAL", "STOPPED", "CANCELED"} == COMPLETE
    assert {"TERMINAL", "STOPPED", "FAILED_CONTINUE"} == FAILURE
    assert {"SUCCEEDED", "FAILED_CONTINUE", "SKIPPED", "REDIRECT"} == CONTINUABLE
    assert {"NOT_STARTED", "RUNNING", "PAUSED", "SUSPENDED", "REDIRECT", "BUFFERED"} == ACTIVE


def test_buffered_and_redirect_count_as_active() -> None:
    assert WorkflowStatus.BUFFERED.is_active
    assert WorkflowStatus.REDIRECT.is_active


@pytest.mark.parametrize("status", WorkflowStatus)
def test_a_status_answers_by_the_sets(status: WorkflowStatus) -> None:
    assert status.is_complete == (status in COMPLETE) == (not status.is_active)
    assert status.is_successful == (status in SUCCESSFUL)
    assert status.is_halt == (status in HALTED)
    assert status.is_failure == (status in FAILURE)


@pytest.mark.parametrize("status", sorted(COMPLETE))
def test_nothing_leads_out_of_an_end(status: WorkflowStatus) -> None:
    assert not TRANSITIONS[status]


def test_a_refusal_says_where_one_can_go_and_survives_pickling() -> None:
    with pytest.raises(InvalidStateTransitionError) as caught:
        moved("task 't'", WorkflowStatus.REDIRECT, WorkflowStatus.PAUSED)
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.what, error.before, error.after) == ("task 't'", "REDIRECT", "PAUSED")
    assert error.allowed == ("CANCELED", "RUNNING", "SUCCEEDED")
    assert str(error).endswith("it can go to CANCELED, RUNNING, SUCCEEDED")
