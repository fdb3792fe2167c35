"""A stored breaker moves by its table only, whatever happens to it in whatever order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.machine import breaker_record as machine
from holdfast.machine.breaker import CLOSED, HALF_OPEN, OPEN, CircuitState
from holdfast.machine.breaker_record import TRANSITIONS, Act, BreakerRecord, new_breaker

SECOND = 1_000_000
START = 1_700_000_000 * SECOND


def breaker(**fields: Any) -> BreakerRecord:
    return new_breaker("api", START)._replace(**fields)


def test_every_state_can_be_forced_and_reset():
    for state in CircuitState:
        assert TRANSITIONS[state, Act.FORCE_OPEN] is OPEN
        assert TRANSITIONS[state, Act.FORCE_HALF_OPEN] is HALF_OPEN
        assert TRANSITIONS[state, Act.FORCE_CLOSED] is CLOSED
        assert TRANSITIONS[state, Act.RESET] is CLOSED


def test_only_a_trial_or_an_operator_leads_to_half_open():
    acts = {act for (state, act), target in TRANSITIONS.items() if target is HALF_OPEN}
    assert acts == {Act.TRIAL, Act.FORCE_HALF_OPEN}


def test_a_move_that_the_table_does_not_have_is_an_error():
    with pytest.raises(KeyError):
        machine.move(breaker(), Act.TRIAL, START)


def test_a_pin_binds_until_something_else_moves_the_breaker():
    pinned = machine.pin(breaker(), START, "open", None, "", None)
    assert machine.pin_in_force(pinned, START) is OPEN
    moved = machine.set_state(pinned, START, "closed")
    assert moved.manually_controlled
    assert machine.pin_in_force(moved, START) is None
    same = machine.set_state(pinned, START, "open", failure_count=3)
    assert machine.pin_in_force(same, START) is OPEN


def test_a_stale_result_writes_nothing():
    record = breaker(generation=4)
    assert machine.count_failure(record, START, 3) is None
    assert machine.count_success(record, START, 3) is None
    assert machine.succeed(record, START, 1, 3) is None
    assert machine.fail(record, START, 1, 3) is None
    assert machine.fail(record, START, 1, 4) is not None


def test_a_refused_trial_writes_nothing():
    assert machine.try_trial(breaker(), START, 3, 60 * SECOND) == (False, None)
    assert machine.try_trial(breaker(state="open"), START, 0, 60 * SECOND) == (False, None)


STEPS = {
    "failure": lambda record, now: machine.count_failure(record, now),
    "success": lambda record, now: machine.count_success(record, now),
    "fail": lambda record, now: machine.fail(record, now, 2),
    "succeed": lambda record, now: machine.succeed(record, now, 2),
    "late failure": lambda record, now: machine.fail(record, now, 1, record.generation - 1),
    "trial": lambda record, now: machine.try_trial(record, now, 2, 60 * SECOND, 30 * SECOND).after,
    "give back": lambda record, now: machine.give_back_trial(record, now, record.generation),
    "empty": machine.empty_window,
    "pin open": lambda record, now: machine.pin(record, now, "open", "1", "why", now + 45 * SECOND),
    "pin closed": lambda record, now: machine.pin(record, now, "closed", None, "why", None),
    "pin half-open": lambda record, now: machine.pin(record, now, "half_open", None, "why", now + 45 * SECOND),
    "force close": lambda record, now: machine.force_close(record, now, None, "", machine.expiry(now, 1)),
    "unpin": machine.unpin,
    "lift": machine.lift_expired_pin,
    "reset": machine.reset,
}


@given(st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 40)), max_size=30))
def test_whatever_happens_the_record_stays_sound(steps):
    record, now = breaker(), START
    for name, wait in steps:
        now += wait * SECOND
        pinned, before = machine.pin_in_force(record, now), record
        after = STEPS[name](record, now)
        if after is None:
            continue
        record = after
        moved = before.state != after.state
        assert after.version == before.version + 1
        assert after.generation == before.generation + moved
        assert after.open_order == (after.opened_at or 0)
        assert after.updated_at == now
        assert min(after.failure_count, after.success_count, after.half_open_request_count) >= 0
        if moved:
            table = {target for (state, _), target in TRANSITIONS.items() if state == before.state}
            assert after.circuit_state in table
            assert machine.is_news(before, after)
        if after.state == "closed":
            assert after.opened_at is None
        if after.state != "half_open":
            assert after.half_open_window_started_at is None
        assert after.half_open_request_count <= 2
        if moved and pinned in (OPEN, CLOSED):
            assert name.startswith(("pin", "force", "reset"))
