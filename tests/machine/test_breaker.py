from __future__ import annotations

import copy
import dataclasses
import json
import math
import pickle
import tracemalloc
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.outcome import Evidence
from holdfast.errors import PolicyError
from holdfast.machine.breaker import TRANSITIONS, Breaker, CircuitBreakerState, CircuitState, Control, Trigger, diagram
from holdfast.machine.circuit import Change, Circuit, Permit, Refusal
from holdfast.machine.trip import consecutive, count, k_of_n, ratio, slow_ratio

CLOSED, OPEN, HALF_OPEN = CircuitState
SUCCESS, FAILURE, NEUTRAL = Evidence


def circuit_of(*rules: Any, now: float = 0.0, **options: Any) -> Circuit:
    return Circuit(Breaker(*rules, **options), now)


def opened(*rules: Any, now: float = 0.0, **options: Any) -> Circuit:
    """A circuit that its first failure opened at `now`."""
    circuit = circuit_of(*(rules or (consecutive(1),)), now=now, **options)
    circuit.settle(circuit.generation, FAILURE, now, duration=999.0, error=OSError("down"))
    assert circuit.state is OPEN
    return circuit


def probe(circuit: Circuit, now: float) -> Permit:
    permit = circuit.acquire(now)
    assert isinstance(permit, Permit)
    assert permit.lease is not None
    return permit


def refusal(circuit: Circuit, now: float) -> Refusal:
    answer = circuit.acquire(now)
    assert isinstance(answer, Refusal)
    return answer


def told(record: Refusal | Change | None) -> tuple[object, ...] | None:
    """All that a record says."""
    return None if record is None else tuple(getattr(record, name) for name in record.__slots__)


def settle_probe(circuit: Circuit, evidence: Evidence, now: float, **more: Any) -> None:
    circuit.settle(probe(circuit, now), evidence, now, **more)


def triggers(circuit: Circuit) -> list[Trigger]:
    return [change.trigger for change in circuit.take_changes()]


def freeze(value: Any) -> Any:
    """Everything that a circuit holds, as plain comparable data."""
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    if isinstance(value, Permit):
        return (value.generation, value.lease)
    if slots and not isinstance(value, str | Breaker):
        return {name: freeze(getattr(value, name)) for name in slots}
    if isinstance(value, list | tuple | deque):
        return [freeze(item) for item in value]
    if isinstance(value, dict):
        return [(freeze(key), freeze(item)) for key, item in value.items()]
    return value


# Opening


def test_a_circuit_starts_closed_in_its_first_generation() -> None:
    circuit = circuit_of(now=7.0)
    assert (circuit.state, circuit.generation, circuit.gate, circuit.dirty) == (CLOSED, 1, 1, False)
    assert (circuit.next_test, circuit.opened_by, circuit.rounds, circuit.changed_at) == (None, None, 0, 7.0)
    assert circuit.take_changes() == ()


def test_the_default_opens_at_the_fifth_failure_within_a_minute_for_thirty_seconds() -> None:
    circuit, error = circuit_of(), OSError("fifth")
    for at in range(4):
        circuit.settle(circuit.gate, FAILURE, float(at))
    assert circuit.state is CLOSED
    circuit.settle(circuit.gate, FAILURE, 60.0, error=error)
    assert (circuit.state, circuit.gate, circuit.next_test) == (OPEN, 0, 90.0)
    assert circuit.opened_by is error
    (change,) = circuit.take_changes()
    assert told(change) == (CLOSED, OPEN, Trigger.TRIPPED, 2, 60.0, 5, error)


def test_any_of_several_rules_trips() -> None:
    circuit = circuit_of(count(10), consecutive(2), slow_ratio(1.0, threshold=5, min_calls=1))
    circuit.settle(1, SUCCESS, 0.0, duration=6.0)
    assert circuit.state is OPEN
    assert refusal(circuit, 0.0).rule == "slow_ratio(1, threshold=5, min_calls=1, window=60)"
    circuit.reset(1.0)
    circuit.settle(circuit.gate, FAILURE, 1.0)
    circuit.settle(circuit.gate, FAILURE, 1.0)
    assert refusal(circuit, 1.0).rule == "consecutive(2)"


def test_a_plain_success_never_opens_a_circuit() -> None:
    circuit = circuit_of(ratio(0.5, min_calls=10))
    for _ in range(9):
        circuit.settle(1, FAILURE, 0.0)
    circuit.settle(1, SUCCESS, 0.0)
    assert circuit.state is CLOSED
    circuit.settle(1, FAILURE, 0.0)
    assert circuit.state is OPEN


def test_a_success_resets_the_streak_and_a_neutral_result_does_not() -> None:
    circuit = circuit_of(consecutive(2))
    for evidence in (FAILURE, SUCCESS, FAILURE, NEUTRAL):
        circuit.settle(1, evidence, 0.0)
    assert (circuit.state, circuit.failure_count(0.0)) == (CLOSED, 1)
    circuit.settle(1, FAILURE, 0.0)
    assert circuit.state is OPEN


def test_dirty_says_when_a_success_would_reset_a_streak() -> None:
    circuit = circuit_of(consecutive(3))
    seen = []
    for evidence in (SUCCESS, FAILURE, NEUTRAL, SUCCESS, SUCCESS, FAILURE):
        circuit.settle(1, evidence, 0.0)
        seen.append(circuit.dirty)
    assert seen == [False, True, True, False, False, True]
    circuit.reset(0.0)
    assert not circuit.dirty


def test_dirty_is_never_set_for_a_policy_that_ignores_successes() -> None:
    circuit = circuit_of(count(3))
    circuit.settle(1, FAILURE, 0.0)
    assert not circuit.dirty


def test_reading_the_failure_count_prunes_and_opening_keeps_it() -> None:
    circuit = circuit_of(count(3, window=10))
    for at in (0.0, 5.0):
        circuit.settle(1, FAILURE, at)
    assert [circuit.failure_count(now) for now in (5.0, 10.0, 10.5, 15.5)] == [2, 2, 1, 0]
    for _ in range(3):
        circuit.settle(1, FAILURE, 20.0)
    assert (circuit.state, circuit.failure_count(20.0), circuit.failure_count(31.0)) == (OPEN, 3, 0)


# While open


def test_a_refusal_carries_the_time_to_come_back_and_what_opened_the_circuit() -> None:
    circuit = opened(open_for=30)
    answer = refusal(circuit, 10.0)
    assert (answer.retry_after, answer.state, answer.rule) == (20.0, OPEN, "consecutive(1)")
    assert answer.cause is circuit.opened_by
    assert str(answer.cause) == "down"


def test_failures_while_open_neither_extend_the_open_time_nor_grow_the_count() -> None:
    circuit = circuit_of(count(2), open_for=30)
    permits = [circuit.acquire(0.0) for _ in range(9)]
    for number, permit in enumerate(permits):
        assert isinstance(permit, Permit)
        circuit.settle(permit, FAILURE, float(number))
        circuit.settle(circuit.generation if circuit.state is OPEN else 1, NEUTRAL, float(number))
    circuit.settle(circuit.generation, FAILURE, 20.0)
    assert (circuit.next_test, circuit.failure_count(20.0)) == (31.0, 2)


def test_a_late_success_of_a_call_from_before_the_trip_does_not_close() -> None:
    circuit = circuit_of(consecutive(1))
    slow = circuit.acquire(0.0)
    assert isinstance(slow, Permit)
    circuit.settle(1, FAILURE, 1.0)
    circuit.settle(slow, SUCCESS, 2.0)
    assert circuit.state is OPEN


def test_a_stale_success_does_not_close_a_half_open_circuit() -> None:
    circuit = circuit_of(consecutive(1), open_for=30)
    slow = circuit.acquire(0.0)
    assert isinstance(slow, Permit)
    circuit.settle(1, FAILURE, 0.0)
    probe(circuit, 30.0)
    circuit.settle(slow, SUCCESS, 31.0)
    circuit.settle(slow, FAILURE, 31.0)
    assert circuit.state is HALF_OPEN


# Half-open


def test_at_next_test_the_first_acquire_is_the_probe_and_others_are_refused() -> None:
    circuit = opened(open_for=30)
    assert refusal(circuit, 29.5).retry_after == 0.5
    permit = probe(circuit, 30.0)
    assert (circuit.state, permit.generation, permit.lease) == (HALF_OPEN, 3, 60.0)
    other = refusal(circuit, 31.0)
    assert (other.state, other.retry_after) == (HALF_OPEN, 29.0)
    assert other.cause is circuit.opened_by
    assert triggers(circuit) == [Trigger.TRIPPED, Trigger.PROBE_ADMITTED]


def test_a_successful_probe_closes_with_an_empty_window() -> None:
    circuit = opened(count(1, window=600), open_for=30)
    settle_probe(circuit, SUCCESS, 30.0)
    assert (circuit.state, circuit.gate, circuit.next_test, circuit.opened_by) == (CLOSED, 4, None, None)
    assert (circuit.failure_count(30.0), circuit.rounds) == (0, 0)


def test_a_failed_probe_reopens_for_a_fresh_full_time_with_its_own_error() -> None:
    circuit, error = opened(open_for=30), OSError("still down")
    permit = probe(circuit, 40.0)
    circuit.settle(permit, FAILURE, 45.0, error=error)
    assert (circuit.state, circuit.next_test, circuit.rounds) == (OPEN, 75.0, 1)
    assert refusal(circuit, 45.0).cause is error


def test_a_relapse_without_an_error_of_its_own_keeps_the_first_cause() -> None:
    circuit = opened(slow_ratio(0.5, threshold=5, min_calls=1), open_for=30)
    first = circuit.opened_by
    settle_probe(circuit, SUCCESS, 30.0, duration=6.0)
    assert circuit.state is OPEN
    assert circuit.opened_by is first is not None


def test_the_filter_peek_never_uses_up_the_probe() -> None:
    circuit = opened(open_for=30)
    before = freeze(circuit)
    assert told(circuit.peek(29.0)) == told(refusal(circuit, 29.0))
    assert [circuit.peek(30.0) for _ in range(5)] == [None] * 5
    assert freeze(circuit) == before
    probe(circuit, 30.0)


def test_a_cancelled_probe_returns_its_permit_and_closes_nothing() -> None:
    circuit = opened(open_for=30)
    settle_probe(circuit, NEUTRAL, 30.0)
    assert circuit.state is HALF_OPEN
    settle_probe(circuit, SUCCESS, 30.0)
    assert circuit.state is CLOSED


def test_a_refused_call_behind_the_breaker_neither_closes_it_nor_resets_the_streak() -> None:
    circuit = circuit_of(consecutive(2), open_for=30)
    for evidence in (FAILURE, NEUTRAL, FAILURE):
        circuit.settle(circuit.gate, evidence, 0.0)
    assert circuit.state is OPEN
    settle_probe(circuit, NEUTRAL, 30.0)
    assert circuit.state is HALF_OPEN


def test_a_probe_that_never_settles_gives_way_when_its_lease_ends() -> None:
    circuit = opened(open_for=30)
    lost = probe(circuit, 30.0)
    assert refusal(circuit, 59.5).retry_after == 0.5
    second = probe(circuit, 60.0)
    circuit.settle(lost, SUCCESS, 61.0)
    assert circuit.state is HALF_OPEN
    circuit.settle(second, SUCCESS, 61.0)
    assert circuit.state is CLOSED


def test_a_late_probe_counts_while_nobody_took_its_lease() -> None:
    circuit = opened(open_for=30)
    late = probe(circuit, 30.0)
    circuit.settle(late, SUCCESS, 1000.0)
    assert circuit.state is CLOSED


def test_a_probe_settled_twice_counts_once() -> None:
    circuit = opened(open_for=30, successes=2)
    permit = probe(circuit, 30.0)
    circuit.settle(permit, SUCCESS, 30.0)
    circuit.settle(permit, SUCCESS, 30.0)
    assert circuit.state is HALF_OPEN


def test_k_of_n_probes_close_at_k() -> None:
    circuit = opened(open_for=30, successes=2, out_of=4)
    for evidence in (FAILURE, SUCCESS, FAILURE):
        settle_probe(circuit, evidence, 30.0)
        assert circuit.state is HALF_OPEN
    settle_probe(circuit, SUCCESS, 30.0)
    assert circuit.state is CLOSED


def test_probes_reopen_as_soon_as_k_is_out_of_reach() -> None:
    circuit = opened(open_for=30, successes=3, out_of=4)
    settle_probe(circuit, FAILURE, 30.0)
    assert circuit.state is HALF_OPEN
    settle_probe(circuit, FAILURE, 30.0)
    assert circuit.state is OPEN


def test_up_to_n_probes_run_at_once_and_no_more_than_results_are_missing() -> None:
    circuit = opened(open_for=30, successes=3)
    permits = [probe(circuit, 30.0) for _ in range(3)]
    refusal(circuit, 30.0)
    circuit.settle(permits[0], SUCCESS, 31.0)
    refusal(circuit, 31.0)
    circuit.settle(permits[1], NEUTRAL, 31.0)
    probe(circuit, 31.0)
    refusal(circuit, 31.0)


def test_fewer_concurrent_probes_on_request() -> None:
    circuit = opened(open_for=30, successes=3, probes=1)
    permit = probe(circuit, 30.0)
    refusal(circuit, 30.0)
    circuit.settle(permit, SUCCESS, 30.0)
    probe(circuit, 30.0)


def test_under_a_ratio_rule_n_settled_probes_decide_by_its_rate() -> None:
    for results, state in (("FFSS", OPEN), ("FSSS", CLOSED), ("SSSF", CLOSED), ("SSFF", OPEN)):
        circuit = opened(ratio(0.5, min_calls=1), open_for=30, out_of=4)
        for letter in results:
            assert circuit.state is not CLOSED
            settle_probe(circuit, SUCCESS if letter == "S" else FAILURE, 30.0)
        assert circuit.state is state, results


def test_under_a_slow_rule_slow_probes_reopen_and_quick_ones_close() -> None:
    rule = slow_ratio(0.5, threshold=5, min_calls=1)
    for duration, state in ((5.5, OPEN), (5.0, CLOSED)):
        circuit = opened(rule, open_for=30)
        settle_probe(circuit, SUCCESS, 30.0, duration=duration)
        assert circuit.state is state


def test_with_both_kinds_of_rules_both_must_be_content_and_either_reopens() -> None:
    rules = consecutive(1), slow_ratio(0.5, threshold=5)
    circuit = opened(*rules, open_for=30)
    settle_probe(circuit, FAILURE, 30.0, duration=1.0)
    assert circuit.state is OPEN
    settle_probe(circuit, SUCCESS, 60.0, duration=6.0)
    assert circuit.state is OPEN
    settle_probe(circuit, SUCCESS, 90.0, duration=1.0)
    assert circuit.state is CLOSED


def test_half_open_has_a_maximum_time_measured_from_its_beginning() -> None:
    circuit = opened(open_for=30, half_open_for=10)
    late = probe(circuit, 30.0)
    assert told(circuit.peek(40.0)) == told(refusal(circuit, 40.0))
    assert (circuit.state, circuit.next_test, circuit.rounds, circuit.changed_at) == (OPEN, 70.0, 1, 40.0)
    circuit.settle(late, SUCCESS, 41.0)
    assert circuit.state is OPEN


def test_a_quiet_spell_after_half_open_expired_costs_the_next_caller_nothing() -> None:
    circuit = opened(open_for=30, half_open_for=10)
    probe(circuit, 30.0)
    circuit.take_changes()
    assert circuit.peek(500.0) is None
    probe(circuit, 500.0)
    assert triggers(circuit) == [Trigger.HALF_OPEN_EXPIRED, Trigger.PROBE_ADMITTED]
    assert (circuit.state, circuit.rounds) == (HALF_OPEN, 1)


def test_a_result_after_half_open_expired_is_ignored() -> None:
    circuit = opened(open_for=30, half_open_for=10)
    permit = probe(circuit, 30.0)
    circuit.settle(permit, SUCCESS, 40.0)
    assert circuit.state is OPEN


def test_the_open_time_may_depend_on_failed_rounds_since_the_last_close() -> None:
    asked = []

    def doubling(rounds: int) -> float:
        asked.append(rounds)
        return 10.0 * 2**rounds

    circuit, now = opened(open_for=doubling), 0.0
    lengths = []
    for _ in range(3):
        assert circuit.next_test is not None
        lengths.append(circuit.next_test - now)
        now = circuit.next_test
        permit = probe(circuit, now)
        assert permit.lease == now + lengths[-1]
        circuit.settle(permit, FAILURE, now)
    assert lengths == [10.0, 20.0, 40.0]
    assert asked == [0, 0, 1, 2, 3]  # the first is the check at construction
    settle_probe(circuit, SUCCESS, 1000.0)
    circuit.settle(circuit.gate, FAILURE, 1000.0)
    assert circuit.next_test == 1010.0


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, None, "soon"])
def test_an_open_time_that_turns_out_unusable_becomes_the_default(bad: Any) -> None:
    circuit = opened(open_for=lambda rounds: 5.0 if rounds == 0 else bad)
    settle_probe(circuit, FAILURE, 5.0)
    assert circuit.next_test == 35.0


def test_an_open_time_that_raises_becomes_the_default() -> None:
    circuit = opened(open_for=lambda rounds: 1.0 / (1 - rounds))
    settle_probe(circuit, FAILURE, 1.0)
    assert circuit.next_test == 31.0


def test_a_bare_generation_counts_when_closed_is_ignored_when_open_and_settles_the_probe_when_half_open() -> None:
    circuit = circuit_of(consecutive(1), open_for=30)
    circuit.settle(circuit.generation, FAILURE, 0.0)
    circuit.settle(circuit.generation, SUCCESS, 1.0)
    assert circuit.state is OPEN
    probe(circuit, 30.0)
    circuit.settle(circuit.generation, SUCCESS, 31.0)
    assert circuit.state is CLOSED


def test_a_bare_result_without_an_outstanding_probe_is_ignored() -> None:
    circuit = opened(open_for=30)
    settle_probe(circuit, NEUTRAL, 30.0)
    circuit.settle(circuit.generation, SUCCESS, 31.0)
    assert circuit.state is HALF_OPEN


# By hand


def test_isolation_refuses_everything_and_no_result_ends_it() -> None:
    circuit = circuit_of(consecutive(1))
    under_way = circuit.acquire(0.0)
    assert isinstance(under_way, Permit)
    circuit.isolate(0.0)
    for permit in (under_way, circuit.generation):
        circuit.settle(permit, SUCCESS, 1.0)
        circuit.settle(permit, FAILURE, 1.0)
    answer = refusal(circuit, 1e9)
    assert (answer.retry_after, answer.state, answer.rule) == (None, OPEN, "isolated")
    assert (circuit.control, circuit.next_test) == (Control.ISOLATED, None)


@pytest.mark.parametrize("release", [Circuit.close, Circuit.reset, Circuit.enable])
def test_isolation_ends_closed(release: Callable[[Circuit, float], None]) -> None:
    circuit = circuit_of()
    circuit.isolate(0.0)
    release(circuit, 5.0)
    assert (circuit.state, circuit.control) == (CLOSED, Control.AUTO)
    assert circuit.gate == circuit.generation


@pytest.mark.parametrize("instead", [Circuit.disable, Circuit.metrics_only])
def test_isolation_given_up_for_another_control_does_not_come_back(
    instead: Callable[[Circuit, float], None],
) -> None:
    circuit = circuit_of()
    circuit.isolate(0.0)
    instead(circuit, 1.0)
    circuit.enable(2.0)
    assert (circuit.state, circuit.control) == (CLOSED, Control.AUTO)


def test_isolating_an_open_circuit_is_no_transition_and_keeps_its_cause() -> None:
    circuit = opened(open_for=30)
    circuit.take_changes()
    circuit.isolate(1.0)
    circuit.isolate(2.0)
    assert circuit.take_changes() == ()
    assert refusal(circuit, 100.0).cause is circuit.opened_by is not None


@pytest.mark.parametrize("state", list(CircuitState))
def test_reset_closes_from_any_state_and_forgets(state: CircuitState) -> None:
    circuit = circuit_of(count(3), open_for=30)
    circuit.settle(1, FAILURE, 0.0)
    if state is not CLOSED:
        circuit.trip(0.0)
    if state is HALF_OPEN:
        probe(circuit, 30.0)
    assert circuit.state is state
    before = circuit.generation
    circuit.take_changes()
    circuit.reset(31.0)
    assert (circuit.state, circuit.failure_count(31.0), circuit.next_test) == (CLOSED, 0, None)
    assert circuit.generation > before
    assert triggers(circuit) == ([] if state is CLOSED else [Trigger.RESET])


def test_calls_under_way_during_a_reset_no_longer_count() -> None:
    circuit = circuit_of(consecutive(1))
    under_way = circuit.gate
    circuit.reset(1.0)
    circuit.settle(under_way, FAILURE, 2.0)
    assert circuit.state is CLOSED


def test_closing_a_closed_circuit_keeps_what_it_counted() -> None:
    circuit = circuit_of(count(3))
    circuit.settle(1, FAILURE, 0.0)
    circuit.close(1.0)
    assert (circuit.generation, circuit.failure_count(1.0)) == (1, 1)


def test_a_disabled_circuit_admits_everything_and_records_nothing() -> None:
    circuit = circuit_of(consecutive(1))
    before = circuit.gate
    circuit.disable(0.0)
    assert (circuit.gate, circuit.peek(0.0)) == (0, None)
    permit = circuit.acquire(0.0)
    assert isinstance(permit, Permit)
    circuit.settle(permit, FAILURE, 0.0)
    circuit.settle(before, FAILURE, 0.0)
    circuit.enable(1.0)
    circuit.settle(permit, FAILURE, 1.0)
    assert (circuit.state, circuit.failure_count(1.0), circuit.gate) == (CLOSED, 0, before)


def test_disabling_keeps_the_state_for_later() -> None:
    circuit = opened(open_for=30)
    circuit.disable(1.0)
    assert isinstance(circuit.acquire(2.0), Permit)
    circuit.enable(3.0)
    assert refusal(circuit, 3.0).retry_after == 27.0


def test_metrics_only_tallies_but_never_refuses_and_never_changes_state() -> None:
    circuit = circuit_of(count(2), open_for=30)
    circuit.metrics_only(0.0)
    for _ in range(5):
        permit = circuit.acquire(0.0)
        assert isinstance(permit, Permit)
        circuit.settle(permit, FAILURE, 0.0)
    assert (circuit.state, circuit.failure_count(0.0), circuit.gate) == (CLOSED, 2, 0)
    circuit.enable(1.0)
    circuit.settle(circuit.gate, FAILURE, 1.0)
    assert circuit.state is OPEN
    circuit.metrics_only(2.0)
    assert isinstance(circuit.acquire(2.0), Permit)
    assert circuit.state is OPEN


@pytest.mark.parametrize("control", [Circuit.disable, Circuit.metrics_only])
def test_half_open_does_not_expire_while_the_rules_are_not_in_control(
    control: Callable[[Circuit, float], None],
) -> None:
    circuit = opened(open_for=30, half_open_for=10)
    permit = probe(circuit, 30.0)
    control(circuit, 31.0)
    assert isinstance(circuit.acquire(50.0), Permit)
    circuit.settle(permit, FAILURE, 50.0)
    assert circuit.state is HALF_OPEN
    circuit.enable(51.0)
    assert refusal(circuit, 51.0).state is OPEN


def test_a_probe_settled_while_disabled_returns_its_lease() -> None:
    circuit = opened(open_for=30)
    permit = probe(circuit, 30.0)
    circuit.disable(31.0)
    circuit.settle(permit, SUCCESS, 31.0)
    circuit.enable(32.0)
    assert circuit.state is HALF_OPEN
    probe(circuit, 32.0)


def test_a_call_admitted_by_metrics_only_cannot_settle_a_probe_of_others() -> None:
    circuit = opened(open_for=30)
    probe(circuit, 30.0)
    circuit.metrics_only(30.0)
    standing = circuit.acquire(30.0)
    assert isinstance(standing, Permit)
    circuit.enable(30.0)
    circuit.settle(standing, SUCCESS, 31.0)
    assert circuit.state is HALF_OPEN


def test_a_circuit_can_be_tripped_by_hand() -> None:
    circuit, error = circuit_of(open_for=30), RuntimeError("drill")
    circuit.trip(10.0, error)
    circuit.trip(20.0)
    assert (circuit.state, circuit.next_test) == (OPEN, 40.0)
    assert refusal(circuit, 10.0).cause is error
    assert triggers(circuit) == [Trigger.TRIPPED_BY_HAND]


# Changes, figures, memory


def test_every_transition_is_handed_out_once_and_in_order() -> None:
    circuit = opened(open_for=30)
    settle_probe(circuit, FAILURE, 30.0)
    settle_probe(circuit, SUCCESS, 60.0)
    steps = [(str(c.from_state), str(c.to_state), c.generation, c.at) for c in circuit.take_changes()]
    assert steps == [
        ("closed", "open", 2, 0.0),
        ("open", "half_open", 3, 30.0),
        ("half_open", "open", 4, 30.0),
        ("open", "half_open", 5, 60.0),
        ("half_open", "closed", 6, 60.0),
    ]
    assert circuit.take_changes() == ()


def test_figures_show_the_numbers_behind_the_decision() -> None:
    circuit = circuit_of(count(2), ratio(0.5), open_for=30, successes=2)
    assert circuit.figures(0.0)["rules"]["count(2, window=60)"]["failures"] == 0
    for _ in range(2):
        circuit.settle(1, FAILURE, 0.0)
    probe(circuit, 30.0)
    figures = circuit.figures(40.0)
    assert (figures["state"], figures["rule"], figures["probes_held"]) == ("half_open", "count(2, window=60)", 1)
    assert figures["rules"]["count(2, window=60)"] == {"failures": 2, "threshold": 2, "window": 60.0}
    assert figures["rules"]["ratio(0.5, min_calls=10, window=60)"]["rate"] == 1.0
    json.dumps(figures)


def test_another_policy_keeps_the_state_and_the_tallies_of_equal_rules() -> None:
    circuit = circuit_of(count(3), open_for=30)
    circuit.settle(1, FAILURE, 0.0)
    circuit.adopt_policy(Breaker(count(3), open_for=5))
    assert circuit.failure_count(0.0) == 1
    circuit.adopt_policy(Breaker(consecutive(2), open_for=5))
    assert circuit.failure_count(0.0) == 0
    circuit.settle(1, FAILURE, 0.0)
    circuit.settle(1, FAILURE, 0.0)
    assert circuit.next_test == 5.0


def test_a_narrower_policy_in_the_middle_of_half_open_cannot_block_it() -> None:
    circuit = opened(open_for=30, successes=3)
    for _ in range(2):
        settle_probe(circuit, SUCCESS, 30.0)
    circuit.adopt_policy(Breaker(consecutive(1), open_for=30))
    settle_probe(circuit, SUCCESS, 31.0)
    assert circuit.state is CLOSED


def test_a_closed_circuit_that_never_failed_takes_at_most_150_bytes() -> None:
    policy, circuits = Breaker(), [None] * 2000
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(len(circuits)):
            circuits[number] = Circuit(policy, number + 0.5)  # type: ignore[call-overload]
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / len(circuits) <= 150
    assert not hasattr(circuits[0], "__dict__")


# Across a restart


def restored(snapshot: dict[str, Any], age: float = 0.0, **options: Any) -> tuple[Circuit, bool]:
    circuit = circuit_of(count(5, window=60), now=1000.0, **{"open_for": 30, **options})
    return circuit, circuit.restore(snapshot, age, 1000.0)


def test_a_restored_circuit_stays_open_for_what_remained() -> None:
    kept = json.loads(json.dumps(opened(open_for=30).snapshot(10.0)))
    assert kept["remaining_open"] == 20.0
    circuit, taken = restored(kept, age=5.0)
    assert (taken, circuit.state, circuit.next_test) == (True, OPEN, 1015.0)
    assert triggers(circuit) == [Trigger.RESTORED]


@pytest.mark.parametrize(
    ("remaining", "age", "left"),
    [(20.0, 25.0, 0.0), (9999.0, 0.0, 30.0), (20.0, -3600.0, 20.0), (-5.0, 0.0, 0.0), (math.nan, 0.0, 0.0)],
)
def test_the_remaining_open_time_is_clamped(remaining: float, age: float, left: float) -> None:
    circuit, taken = restored({"state": "open", "remaining_open": remaining}, age)
    assert taken
    assert circuit.next_test == 1000.0 + left


def test_half_open_is_restored_as_open_and_due_now() -> None:
    source = opened(open_for=30)
    settle_probe(source, FAILURE, 30.0)
    probe(source, 60.0)
    circuit, taken = restored(source.snapshot(60.0))
    assert (taken, circuit.state, circuit.next_test, circuit.rounds) == (True, OPEN, 1000.0, 1)
    probe(circuit, 1000.0)


def test_a_snapshot_older_than_open_time_plus_window_is_ignored() -> None:
    snapshot = {"state": "open", "remaining_open": 30.0}
    assert restored(snapshot, age=90.0)[1]
    circuit, taken = restored(snapshot, age=90.5)
    assert (taken, circuit.state) == (False, CLOSED)


def test_a_closed_snapshot_changes_nothing() -> None:
    circuit, taken = restored(circuit_of().snapshot(0.0))
    assert (taken, circuit.state, circuit.generation) == (False, CLOSED, 1)


@pytest.mark.parametrize("age", [0.0, 1e6])
def test_an_isolation_survives_a_restart_however_long_it_took(age: float) -> None:
    source = circuit_of()
    source.isolate(0.0)
    circuit, taken = restored(source.snapshot(5.0), age)
    assert taken
    assert refusal(circuit, 1000.0).retry_after is None


def test_a_disabled_circuit_is_restored_disabled() -> None:
    source = opened(open_for=30)
    source.disable(1.0)
    circuit, taken = restored(source.snapshot(10.0))
    assert (taken, circuit.control, circuit.state) == (True, Control.DISABLED, OPEN)
    assert circuit.peek(1000.0) is None


def test_live_state_wins_over_a_snapshot() -> None:
    circuit = opened(open_for=30)
    assert not circuit.restore({"state": "open", "remaining_open": 5.0}, 0.0, 1.0)
    assert circuit.next_test == 30.0


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"state": "ajar"},
        {"state": "open", "control": "mine"},
        {"state": "open", "remaining_open": "soon"},
        {"state": "open", "rounds": math.inf},
        {"state": "open", "rounds": None},
    ],
)
def test_a_broken_snapshot_is_ignored(broken: dict[str, Any]) -> None:
    circuit, taken = restored(broken)
    assert (taken, circuit.state, circuit.generation) == (False, CLOSED, 1)


# The policy and the table


@pytest.mark.parametrize(
    ("rules", "options", "message"),
    [
        ((5,), {}, r"Breaker\.rules must be trip rules, got 5; use count\(5"),
        ((), {"open_for": 0}, r"Breaker\.open_for must be .* got 0; use 30"),
        ((), {"open_for": math.nan}, r"Breaker\.open_for must be .* got nan"),
        ((), {"open_for": math.inf}, r"Breaker\.open_for must be .* got inf; .*isolate"),
        ((), {"open_for": True}, r"Breaker\.open_for must be .* got True"),
        ((), {"open_for": lambda rounds: -1.0}, r"Breaker\.open_for\(0\) must be .* got -1\.0"),
        ((), {"open_for": lambda: 30.0}, r"Breaker\.open_for\(0\) must give seconds, got TypeError"),
        ((), {"successes": 0}, r"Breaker\.successes must be .* got 0; use successes=1"),
        ((), {"successes": True}, r"Breaker\.successes must be .* got True"),
        ((), {"successes": 3, "out_of": 2}, r"Breaker\.out_of must be at least successes, got 2; use out_of=3"),
        ((), {"out_of": 2.5}, r"Breaker\.out_of must be .* got 2\.5"),
        ((), {"probes": 0}, r"Breaker\.probes must be .* got 0; use probes=1"),
        ((), {"out_of": 2, "probes": 3}, r"Breaker\.probes must be at most out_of, got 3; use probes=2"),
        ((), {"half_open_for": 0}, r"Breaker\.half_open_for must be .* got 0; use None"),
        ((), {"terminal_is_success": 1}, r"Breaker\.terminal_is_success must be True or False, got 1"),
        ((), {"name": ""}, r"Breaker\.name must be .* got ''; leave it out"),
        ((), {"id": 7}, r"Breaker\.id must be .* got 7; leave it out"),
    ],
)
def test_an_impossible_policy_is_refused_with_field_value_and_fix(
    rules: tuple[Any, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(PolicyError, match=message):
        Breaker(*rules, **options)


def test_a_policy_is_a_frozen_slotted_comparable_value() -> None:
    policy = Breaker(count(5), open_for=30, successes=2, name="payments")
    same = Breaker(count(5, window=60.0), open_for=30.0, successes=2, out_of=2, probes=2, name="payments")
    assert policy == same
    assert hash(policy) == hash(same)
    assert policy != Breaker(count(5), open_for=30, successes=2, name="orders")
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert not hasattr(policy, "__dict__")
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.open_for = 5.0  # type: ignore[misc]


def test_no_rules_means_five_failures_in_a_minute() -> None:
    assert Breaker() == Breaker(count(5, window=60))


def test_a_policy_heeds_success_as_much_as_its_keenest_rule() -> None:
    assert Breaker(count(5)).heeds_success == "never"
    assert Breaker(count(5), consecutive(3)).heeds_success == "after_failure"
    assert Breaker(consecutive(3), k_of_n(2, 3), count(5)).heeds_success == "always"


def test_a_policy_describes_itself_in_one_line() -> None:
    text = Breaker(count(5), consecutive(3), open_for=10, successes=2, out_of=3).describe()
    assert text == (
        "breaker: opens on count(5, window=60) or consecutive(3), for 10 s; closes when 2 of 3 probes succeed"
    )
    assert "10 probes stay below the rate" in Breaker(ratio(0.5), out_of=10).describe()
    assert "\n" not in Breaker(open_for=lambda rounds: 5.0).describe()


def test_the_states_of_both_seeds_are_one_enum() -> None:
    assert CircuitBreakerState is CircuitState
    assert [state.value for state in CircuitState] == ["closed", "open", "half_open"]


def test_every_state_can_be_left_for_closed_by_hand() -> None:
    for state in CircuitState:
        assert TRANSITIONS[state, Trigger.RESET] is CLOSED
        assert TRANSITIONS[state, Trigger.ISOLATED] is OPEN


def test_half_open_is_only_entered_by_a_probe() -> None:
    entries = [row for row, target in TRANSITIONS.items() if target is HALF_OPEN]
    assert entries == [(OPEN, Trigger.PROBE_ADMITTED)]


def test_the_diagram_is_the_table() -> None:
    lines = diagram().splitlines()
    assert lines[:2] == ["stateDiagram-v2", "    [*] --> closed"]
    assert len(lines) == 2 + len(TRANSITIONS)
    assert "    half_open --> open: half open expired" in lines


# Properties


RULE = st.one_of(
    st.builds(consecutive, st.integers(1, 3)),
    st.builds(count, st.integers(1, 3), st.sampled_from([5.0, 20.0])),
    st.builds(ratio, st.sampled_from([0.25, 0.5, 1.0]), st.integers(1, 3), st.just(20.0)),
    st.integers(1, 3).flatmap(lambda k: st.builds(k_of_n, st.just(k), st.integers(k, 5))),
    st.builds(slow_ratio, st.sampled_from([0.5, 1.0]), st.just(2.0), st.integers(1, 3), st.just(20.0)),
)


@st.composite
def policies(draw: st.DrawFn, half_open_for: tuple[float | None, ...] = (None, 3.0, 15.0)) -> Breaker:
    out_of = draw(st.integers(1, 4))
    return Breaker(
        *draw(st.lists(RULE, min_size=1, max_size=3)),
        open_for=draw(st.sampled_from([4.0, 10.0, lambda rounds: 4.0 + rounds])),
        out_of=out_of,
        successes=draw(st.integers(1, out_of)),
        probes=draw(st.integers(1, out_of)),
        half_open_for=draw(st.sampled_from(half_open_for)),
    )


GAP = st.integers(0, 12).map(lambda halves: halves / 2)
CALLS = st.one_of(
    st.tuples(st.just("acquire")),
    st.tuples(st.just("settle"), st.integers(0, 9), st.sampled_from(Evidence), st.sampled_from([0.0, 3.0])),
    st.tuples(st.just("bare"), st.sampled_from(Evidence)),
)
BY_HAND = st.sampled_from(["isolate", "close", "reset", "disable", "metrics_only", "enable", "trip"])
CALLS_ONLY = st.lists(st.tuples(GAP, CALLS), max_size=60)
EVERYTHING = st.lists(
    st.tuples(GAP, st.one_of(CALLS, CALLS, CALLS, BY_HAND.map(lambda verb: ("by hand", verb)))), max_size=60
)


class Run:
    """One circuit under a random trace; permits that are drawn but never settled are the leaked ones."""

    def __init__(self, policy: Breaker) -> None:
        self.circuit = Circuit(policy, 0.0)
        self.now = 0.0
        self.permits: list[Permit] = []

    def step(self, gap: float, action: tuple[Any, ...]) -> None:
        self.now += gap
        circuit = self.circuit
        match action:
            case ("acquire",):
                answer = circuit.acquire(self.now)
                if isinstance(answer, Permit):
                    self.permits.append(answer)
            case ("settle", index, evidence, duration):
                if self.permits:
                    circuit.settle(self.permits.pop(index % len(self.permits)), evidence, self.now, duration=duration)
            case ("bare", evidence):
                circuit.settle(circuit.generation, evidence, self.now)
            case ("by hand", verb):
                getattr(circuit, verb)(self.now)


@given(policies(), EVERYTHING)
def test_all_changes_are_in_the_table_chained_and_raise_the_generation(
    policy: Breaker, trace: list[tuple[float, tuple[Any, ...]]]
) -> None:
    run, state, generation, at = Run(policy), CLOSED, 1, 0.0
    for gap, action in trace:
        run.step(gap, action)
        for change in run.circuit.take_changes():
            assert change.from_state is state
            assert TRANSITIONS[change.from_state, change.trigger] is change.to_state
            assert change.from_state is not change.to_state
            assert change.generation > generation
            assert at <= change.at <= run.now
            state, generation, at = change.to_state, change.generation, change.at
        assert run.circuit.state is state
        assert run.circuit.generation >= generation


@given(policies(), EVERYTHING)
def test_the_gate_is_open_exactly_when_closed_under_automatic_control(
    policy: Breaker, trace: list[tuple[float, tuple[Any, ...]]]
) -> None:
    run = Run(policy)
    for gap, action in trace:
        run.step(gap, action)
        circuit = run.circuit
        free = circuit.state is CLOSED and circuit.control is Control.AUTO
        assert circuit.gate == (circuit.generation if free else 0)
        assert (circuit.outage is None) == (circuit.state is CLOSED)
        if circuit.state is OPEN:
            assert (circuit.next_test is None) == (circuit.control is Control.ISOLATED)


@given(policies(), EVERYTHING)
def test_never_more_probes_are_held_than_allowed(policy: Breaker, trace: list[tuple[float, tuple[Any, ...]]]) -> None:
    run = Run(policy)
    for gap, action in trace:
        run.step(gap, action)
        outage = run.circuit.outage
        if outage is not None:
            assert len(outage.leases) <= policy.probes
            assert len(outage.leases) + len(outage.probed) <= policy.out_of
            assert not outage.leases or run.circuit.state is HALF_OPEN


@given(policies(), EVERYTHING)
def test_peek_changes_nothing_and_agrees_with_acquire(
    policy: Breaker, trace: list[tuple[float, tuple[Any, ...]]]
) -> None:
    run = Run(policy)
    for gap, action in trace:
        run.step(gap, action)
        for later in (0.0, 3.5, 40.0):
            before = freeze(run.circuit)
            peeked = run.circuit.peek(run.now + later)
            assert freeze(run.circuit) == before
            answer = copy.deepcopy(run.circuit).acquire(run.now + later)
            assert told(peeked) == told(answer if isinstance(answer, Refusal) else None)


@given(policies(), EVERYTHING, st.sampled_from([SUCCESS, FAILURE]))
def test_results_of_an_older_generation_change_nothing(
    policy: Breaker, trace: list[tuple[float, tuple[Any, ...]]], evidence: Evidence
) -> None:
    run = Run(policy)
    for gap, action in trace:
        run.step(gap, action)
        stale = [permit for permit in run.permits if permit.generation < run.circuit.generation]
        if stale:
            with_result, without = copy.deepcopy(run.circuit), copy.deepcopy(run.circuit)
            with_result.settle(stale[0], evidence, run.now, duration=99.0)
            without.settle(0, NEUTRAL, run.now)  # time alone may end a half-open round
            assert freeze(with_result) == freeze(without)


@given(policies(), EVERYTHING)
def test_a_neutral_result_changes_nothing_but_its_own_lease(
    policy: Breaker, trace: list[tuple[float, tuple[Any, ...]]]
) -> None:
    run = Run(policy)
    for gap, action in trace:
        run.step(gap, action)
        for permit in run.permits:
            circuit, control = copy.copy(run.circuit), copy.copy(run.circuit)
            circuit.outage, control.outage = copy.copy(circuit.outage), copy.copy(control.outage)
            for twin in (circuit, control):
                if twin.outage is not None:
                    twin.outage.leases = dict(twin.outage.leases)
            circuit.settle(permit, NEUTRAL, run.now)
            control.settle(0, NEUTRAL, run.now)
            if control.outage is not None and permit.generation == control.generation:
                control.outage.leases.pop(permit, None)
            assert freeze(circuit) == freeze(control)


@given(policies(), CALLS_ONLY)
def test_results_while_open_never_move_next_test(policy: Breaker, trace: list[tuple[float, tuple[Any, ...]]]) -> None:
    run = Run(policy)
    for gap, action in trace:
        before = run.circuit.state, run.circuit.next_test, run.circuit.generation
        run.step(gap, action)
        if before[0] is OPEN and run.circuit.state is OPEN:
            assert (run.circuit.state, run.circuit.next_test, run.circuit.generation) == before


@given(policies(half_open_for=(None,)), CALLS_ONLY)
def test_a_leaked_probe_never_blocks_for_longer_than_its_lease(
    policy: Breaker, trace: list[tuple[float, tuple[Any, ...]]]
) -> None:
    run = Run(policy)
    for gap, action in trace:
        run.step(gap, action)
        answer = run.circuit.peek(run.now)
        if answer is not None:
            assert answer.retry_after is not None
            assert run.circuit.outage is not None
            assert 0 < answer.retry_after <= run.circuit.outage.opened_for
            assert run.circuit.peek(run.now + answer.retry_after) is None


@given(policies(), EVERYTHING, st.integers(0, 60))
def test_a_circuit_left_alone_recovers_with_good_probes(
    policy: Breaker, trace: list[tuple[float, tuple[Any, ...]]], idle: int
) -> None:
    run = Run(policy)
    for gap, action in trace:
        run.step(gap, action)
    circuit, now = run.circuit, run.now + idle
    circuit.enable(now)
    for _ in range(30):
        if circuit.state is CLOSED:
            break
        now += 1000.0 if isinstance(circuit.peek(now), Refusal) else 0.0
        settle_probe(circuit, SUCCESS, now, duration=0.0)
    assert circuit.state is CLOSED


@given(policies(), EVERYTHING)
def test_a_snapshot_survives_json_and_is_never_refused_longer_than_before(
    policy: Breaker, trace: list[tuple[float, tuple[Any, ...]]]
) -> None:
    run = Run(policy)
    for gap, action in trace:
        run.step(gap, action)
    snapshot = json.loads(json.dumps(run.circuit.snapshot(run.now)))
    again = Circuit(policy, 0.0)
    again.restore(snapshot, 0.0, 0.0)
    assert again.control is run.circuit.control
    assert (again.state is CLOSED) == (run.circuit.state is CLOSED)
    assert again.snapshot(0.0)["remaining_open"] == snapshot["remaining_open"]


class PlainBreaker:
    """A breaker written for reading: n failures in a window, one probe."""

    def __init__(self, n: int, window: float, open_for: float) -> None:
        self.n, self.window, self.open_for = n, window, open_for
        self.state = "closed"
        self.failures: list[float] = []
        self.next_test = math.inf
        self.probe_until = -math.inf

    def admits(self, now: float) -> bool:
        if self.state == "open" and now >= self.next_test:
            self.state, self.probe_until = "half_open", -math.inf
        if self.state == "half_open" and now >= self.probe_until:
            self.probe_until = now + self.open_for
            return True
        return self.state == "closed"

    def learn(self, now: float, failed: bool) -> None:
        if self.state == "half_open" and not failed:
            self.state, self.failures = "closed", []
            return
        if failed:
            self.failures.append(now)
        recent = [at for at in self.failures if now - at <= self.window]
        if failed and (self.state == "half_open" or len(recent) >= self.n):
            self.state, self.next_test = "open", now + self.open_for


@given(
    st.integers(1, 4),
    st.sampled_from([5.0, 20.0]),
    st.sampled_from([4.0, 10.0]),
    st.lists(st.tuples(GAP, st.sampled_from(["success", "failure", "leak"])), max_size=80),
)
def test_a_count_breaker_agrees_with_a_plain_model_call_by_call(
    n: int, window: float, open_for: float, calls: list[tuple[float, str]]
) -> None:
    circuit, model, now = circuit_of(count(n, window), open_for=open_for), PlainBreaker(n, window, open_for), 0.0
    for gap, result in calls:
        now += gap
        answer = circuit.acquire(now)
        assert isinstance(answer, Permit) == model.admits(now)
        if isinstance(answer, Permit) and result != "leak":
            circuit.settle(answer, Evidence(result), now)
            model.learn(now, result == "failure")
        assert circuit.state == model.state
        if circuit.state is OPEN:
            assert circuit.next_test == model.next_test


@given(policies(), st.lists(st.tuples(GAP, st.sampled_from([SUCCESS, FAILURE])), max_size=60))
def test_skipping_the_successes_that_a_policy_does_not_heed_changes_nothing(
    policy: Breaker, results: list[tuple[float, Evidence]]
) -> None:
    thorough, thrifty, now = Circuit(policy, 0.0), Circuit(policy, 0.0), 0.0
    for gap, evidence in results:
        now += gap
        answer = thorough.acquire(now)
        if isinstance(answer, Permit):
            thorough.settle(answer, evidence, now)
        gate = thrifty.gate
        if gate:
            heeds = policy.heeds_success
            skipped = heeds == "never" or (heeds == "after_failure" and not thrifty.dirty)
            if evidence is FAILURE or not skipped:
                thrifty.settle(gate, evidence, now)
        elif isinstance(other := thrifty.acquire(now), Permit):
            thrifty.settle(other, evidence, now)
        assert freeze(thorough) == freeze(thrifty)
