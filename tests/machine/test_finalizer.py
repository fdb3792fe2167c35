"""The life of a finalizer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidStateTransitionError
from holdfast.machine import finalizer as machine
from holdfast.machine.finalizer import ATTEMPTS, TRANSITIONS, FinalizerRecord, FinalizerState

S = FinalizerState
Step = Callable[[FinalizerRecord], FinalizerRecord]
STEPS: dict[str, Step] = {
    "begin": lambda row: machine.begun(row, "me"),
    "succeed": lambda row: machine.succeeded(row, 7, 1),
    "fail": lambda row: machine.failed(row, "no", 7, 1),
    "lose": lambda row: machine.lost(row, "gone", 7),
    "renew": lambda row: machine.renewed(row, None, 1),
}


def fresh(**changes: object) -> FinalizerRecord:
    row = FinalizerRecord("f", 1, None, "w", "a", 1, 1, "named", "n", "{}", "PENDING", 0, None, None, 1, None, None)
    return row._replace(**changes)  # type: ignore[arg-type]  # fields of it


@given(st.lists(st.sampled_from(sorted(STEPS)), max_size=30))
def test_every_step_follows_the_table_or_is_refused(steps: list[str]) -> None:
    row = fresh()
    for name in steps:
        try:
            after = STEPS[name](row)
        except InvalidStateTransitionError:
            continue
        assert after.version == row.version + 1
        assert after.state in TRANSITIONS[S(row.state)] or (name, row.state) == ("renew", S.PENDING)
        assert (after.ended_at is not None) == (after.state in (S.DONE, S.FAILED, S.LOST))
        row = after


def test_a_failure_is_tried_again_three_times() -> None:
    row, tries = fresh(), 0
    while row.state == S.PENDING:
        row = machine.failed(machine.begun(row, "me"), "no", 7, 1)
        tries += 1
    assert (tries, row.state, row.attempts) == (ATTEMPTS, S.FAILED, 4)
    with pytest.raises(InvalidStateTransitionError, match="FAILED to RUNNING"):
        machine.begun(row, "me")


def test_hooks_of_tasks_come_first_and_then_what_was_registered_first() -> None:
    rows = [
        fresh(id="a", form="named", place=9), fresh(id="b", form="local", place=3),
        fresh(id="c", form="cleanup", place=1), fresh(id="d", form="cleanup", place=0), fresh(id="e", form="cancel"),
    ]  # fmt: skip
    assert [row.id for row in sorted(rows, key=machine.order_of)] == ["e", "d", "c", "b", "a"]
