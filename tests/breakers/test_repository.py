"""Every ruling on the breaker repository, on every store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import pytest

from holdfast.backends.memory import MemoryStore
from holdfast.breakers.data import CircuitBreakerStateData, CircuitBreakerStateEnum
from holdfast.breakers.repository import CircuitBreakerStateRepository
from holdfast.testing.clock import ManualClock

Breakers = CircuitBreakerStateRepository


class Reading(MemoryStore):
    """Counts what is read by id."""

    reads = 0

    def get(self, kind, ids):
        self.reads += 1
        return super().get(kind, ids)


NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
STATES = ("closed", "open", "half_open")


def state_of(breakers: Breakers, name: str = "api") -> CircuitBreakerStateData:
    found = breakers.get_by_service_name(name)
    assert found is not None
    return found


def half_open(breakers: Breakers, name: str = "api", limit: int = 3) -> None:
    """Half-open with one slot taken."""
    breakers.get_or_create(name)
    breakers.update_state(name, "open")
    assert breakers.try_acquire_half_open_slot(name, limit, 60) == (True, "open", "half_open")


def test_a_new_breaker_is_closed_and_has_seen_nothing(breakers, clock):
    made = breakers.get_or_create("api")
    now = clock.wall()
    assert made == CircuitBreakerStateData("api", id="api", created_at=now, updated_at=now)
    assert made.is_closed
    assert not made.is_open
    assert not made.is_half_open
    assert state_of(breakers) == made


def test_get_or_create_finds_what_is_there_and_changes_nothing(breakers, clock):
    breakers.record_failure("api")
    clock.advance(5)
    assert breakers.get_or_create("api").failure_count == 1
    assert state_of(breakers).updated_at == clock.wall() - timedelta(seconds=5)


def test_a_breaker_that_is_not_there_is_none_false_or_nothing(breakers):
    assert breakers.get_by_service_name("api") is None
    assert breakers.update_state("api", "open") is False
    assert breakers.update_metadata("api", {}) is False
    assert breakers.clear_manual_control("api") is False
    assert breakers.reset("api") is False
    assert breakers.delete_state("api") is False
    assert breakers.atomic_reset("api") == (False, "", "")
    assert breakers.release_half_open_slot("api", 0) is False
    breakers.reset_half_open_count("api")
    assert breakers.get_all_states() == []
    assert breakers.get_open_states() == []


@pytest.mark.parametrize("name", [None, 7, b"api", ("api",), 1.5])
def test_an_id_of_any_type_is_just_not_there(breakers, name: Any):
    assert breakers.get_by_service_name(name) is None
    assert breakers.update_state(name, "open") is False
    assert breakers.delete_state(name) is False
    assert breakers.atomic_reset(name) == (False, "", "")


def test_a_name_that_is_no_text_cannot_be_stored(breakers):
    with pytest.raises(TypeError, match="service_name must be a text, got 7"):
        breakers.get_or_create(7)


@pytest.mark.parametrize("name", ["a b/c:d", "schöne Grüße", "", "x" * 180, "nul\0"])
def test_odd_names_are_kept(breakers, name: str):
    breakers.record_failure(name)
    assert state_of(breakers, name).failure_count == 1


def test_what_is_handed_out_is_a_copy(breakers):
    made = breakers.get_or_create("api")
    breakers.update_metadata("api", {"tags": ["a"]})
    made.state = "open"
    state_of(breakers).metadata["tags"].append("b")
    assert state_of(breakers).is_closed
    assert state_of(breakers).metadata == {"tags": ["a"]}


class TestUpdateState:
    def test_it_says_any_state_from_any_state(self, breakers):
        breakers.get_or_create("api")
        for state in (*STATES, *reversed(STATES)):
            assert breakers.update_state("api", state) is True
            assert state_of(breakers).state == state

    def test_enum_members_are_states_and_unknown_ones_are_refused(self, breakers):
        breakers.get_or_create("api")
        assert breakers.update_state("api", CircuitBreakerStateEnum.OPEN)
        assert state_of(breakers).is_open
        for wrong in ("ajar", "", "OPEN", None):
            with pytest.raises(ValueError, match="is no state of a breaker; use closed, open, half_open"):
                breakers.update_state("api", wrong)
        with pytest.raises(ValueError, match="is no state"):
            breakers.set_manual_control("new", "ajar")
        assert breakers.get_by_service_name("new") is None

    def test_none_keeps_a_value_and_zero_is_one(self, breakers, clock):
        breakers.get_or_create("api")
        at = clock.wall()
        given = {"failure_count": 4, "success_count": 2, "opened_at": at, "last_failure_at": at}
        breakers.update_state("api", "open", half_open_request_count=1, **given)
        breakers.update_state("api", "half_open")
        kept = state_of(breakers)
        assert (kept.failure_count, kept.success_count, kept.half_open_request_count) == (4, 2, 1)
        assert (kept.opened_at, kept.last_failure_at) == (at, at)
        breakers.update_state("api", "half_open", failure_count=0, success_count=0, half_open_request_count=0)
        emptied = state_of(breakers)
        assert (emptied.failure_count, emptied.success_count, emptied.half_open_request_count) == (0, 0, 0)

    def test_last_failure_is_honoured_and_a_naive_time_is_utc(self, breakers):
        breakers.get_or_create("api")
        breakers.update_state("api", "open", last_failure_at=NOON.replace(tzinfo=None), opened_at=NOON)
        assert state_of(breakers).last_failure_at == NOON
        assert state_of(breakers).opened_at == NOON

    def test_closing_clears_opened_at_and_leaves_metadata_and_manual_fields(self, breakers, clock):
        breakers.atomic_force_open("api", "because", 7)
        breakers.update_metadata("api", {"team": "pay"})
        breakers.update_state("api", "closed", opened_at=clock.wall())
        after = state_of(breakers)
        assert after.opened_at is None
        assert after.metadata == {"team": "pay"}
        assert (after.manually_controlled, after.controlled_by_id, after.control_reason) == (True, 7, "because")

    def test_resetting_the_half_open_count_wins_and_clears_the_watermark(self, breakers):
        half_open(breakers)
        breakers.update_state("api", "open", half_open_request_count=2, reset_half_open_count=True)
        assert state_of(breakers).half_open_request_count == 0
        assert state_of(breakers).half_open_window_started_at is None

    def test_an_open_breaker_of_unknown_age_counts_as_opened_long_ago(self, breakers):
        breakers.get_or_create("api")
        breakers.update_state("api", "open")
        assert state_of(breakers).opened_at is None
        answer = breakers.try_acquire_half_open_slot("api", 1, 60, recovery_timeout_seconds=1e6)
        assert answer == (True, "open", "half_open")


class TestRecording:
    def test_failures_and_successes_count_one_each_and_never_change_the_state(self, breakers, clock):
        for state in STATES:
            breakers.get_or_create(state)
            breakers.update_state(state, state)
            for _ in range(9):
                breakers.record_failure(state)
            clock.advance(1)
            seen = breakers.record_success(state)
            assert (seen.state, seen.failure_count, seen.success_count) == (state, 9, 1)
            assert seen.last_failure_at == clock.wall() - timedelta(seconds=1)
            assert seen == state_of(breakers, state)

    def test_they_create_what_is_missing(self, breakers, clock):
        assert breakers.record_failure("a").failure_count == 1
        assert breakers.record_success("b").success_count == 1
        assert breakers.record_success_with_close_check("c", 1).state.success_count == 1
        assert breakers.record_failure_with_open_check("d", 5).state.failure_count == 1
        assert [state.service_name for state in breakers.get_all_states()] == ["a", "b", "c", "d"]

    def test_a_result_of_an_older_generation_is_ignored(self, breakers):
        began = breakers.get_or_create("api").generation
        breakers.record_failure_with_open_check("api", 1, generation=began)
        half_open_at = state_of(breakers).generation + 1
        breakers.try_acquire_half_open_slot("api", 1, 60)
        before = state_of(breakers)
        assert before.generation == half_open_at
        assert not breakers.record_success_with_close_check("api", 1, generation=began).did_close
        assert not breakers.record_failure_with_open_check("api", 1, generation=began).did_open
        assert breakers.record_failure("api", generation=began) == before
        assert breakers.record_success("api", generation=began) == before
        assert breakers.record_success_with_close_check("api", 1, generation=half_open_at).did_close

    @pytest.mark.parametrize("threshold", [2, 1, 0, -5])
    def test_half_open_the_success_that_reaches_the_threshold_closes(self, breakers, clock, threshold):
        breakers.record_failure("api")
        half_open(breakers)
        for _ in range(max(1, threshold) - 1):
            assert not breakers.record_success_with_close_check("api", threshold).did_close
        attempt = breakers.record_success_with_close_check("api", threshold)
        assert attempt.did_close
        assert attempt.state == state_of(breakers)
        closed = attempt.state
        assert (closed.state, closed.failure_count, closed.success_count) == ("closed", 0, 0)
        assert (closed.opened_at, closed.half_open_request_count, closed.half_open_window_started_at) == (None, 0, None)
        assert closed.last_failure_at == clock.wall()

    @pytest.mark.parametrize("state", ["closed", "open"])
    def test_a_success_counts_in_every_state_and_closes_only_half_open(self, breakers, state):
        breakers.get_or_create("api")
        breakers.update_state("api", state)
        attempt = breakers.record_success_with_close_check("api", 1)
        assert (attempt.did_close, attempt.state.state, attempt.state.success_count) == (False, state, 1)

    @pytest.mark.parametrize("threshold", [3, 1, 0])
    def test_closed_the_failure_that_reaches_the_threshold_opens(self, breakers, clock, threshold):
        for _ in range(max(1, threshold) - 1):
            assert not breakers.record_failure_with_open_check("api", threshold).did_open
        attempt = breakers.record_failure_with_open_check("api", threshold)
        assert attempt.did_open
        assert attempt.state == state_of(breakers)
        assert (attempt.state.state, attempt.state.failure_count) == ("open", max(1, threshold))
        assert attempt.state.opened_at == attempt.state.last_failure_at == clock.wall()
        again = breakers.record_failure_with_open_check("api", threshold)
        assert (again.did_open, again.state.failure_count) == (False, max(1, threshold) + 1)

    def test_half_open_one_failure_opens_with_empty_counters(self, breakers, clock):
        half_open(breakers)
        breakers.record_success("api")
        clock.advance(10)
        attempt = breakers.record_failure_with_open_check("api", 99)
        assert attempt.did_open
        opened = attempt.state
        assert (opened.failure_count, opened.success_count, opened.half_open_request_count) == (0, 0, 0)
        assert opened.half_open_window_started_at is None
        assert opened.opened_at == clock.wall()

    def test_every_change_of_state_raises_the_generation_by_one(self, breakers):
        seen = [breakers.get_or_create("api").generation]
        breakers.record_failure_with_open_check("api", 1)
        seen.append(state_of(breakers).generation)
        breakers.try_acquire_half_open_slot("api", 2, 60)
        seen.append(state_of(breakers).generation)
        breakers.try_acquire_half_open_slot("api", 2, 60)
        breakers.record_success("api")
        breakers.record_success_with_close_check("api", 1)
        seen.append(state_of(breakers).generation)
        breakers.atomic_force_open("api")
        breakers.atomic_force_open("api")
        seen.append(state_of(breakers).generation)
        breakers.reset("api")
        seen.append(state_of(breakers).generation)
        breakers.reset("api")
        breakers.update_state("api", "open")
        seen.append(state_of(breakers).generation)
        assert seen == [0, 1, 2, 3, 4, 5, 6]


class TestManualControl:
    @pytest.mark.parametrize("state", STATES)
    def test_it_creates_and_pins(self, breakers, clock, state):
        until = clock.wall() + timedelta(minutes=5)
        assert breakers.set_manual_control("api", state, 42, "drill", until) is True
        pinned = state_of(breakers)
        assert (pinned.state, pinned.manually_controlled, pinned.controlled_by_id) == (state, True, 42)
        assert (pinned.control_reason, pinned.manual_override_expires_at) == ("drill", until)
        assert pinned.opened_at == (clock.wall() if state == "open" else None)

    @pytest.mark.parametrize("who", [0, 7, "7", "ann", "", None])
    def test_who_it_was_keeps_its_type(self, breakers, who):
        breakers.set_manual_control("api", "open", who)
        assert state_of(breakers).controlled_by_id == who
        assert type(state_of(breakers).controlled_by_id) is type(who)

    def test_an_absent_expiry_overwrites_an_old_one(self, breakers, clock):
        breakers.set_manual_control("api", "open", expires_at=clock.wall() + timedelta(minutes=1))
        breakers.set_manual_control("api", "open")
        assert state_of(breakers).manual_override_expires_at is None
        breakers.atomic_force_open("api")
        breakers.atomic_force_close("api")
        assert state_of(breakers).manual_override_expires_at is None

    def test_pinning_clears_the_half_open_window(self, breakers):
        half_open(breakers)
        breakers.set_manual_control("api", "half_open")
        assert state_of(breakers).half_open_request_count == 0
        assert state_of(breakers).half_open_window_started_at is None

    def test_a_pin_is_active_until_just_before_its_expiry(self, clock):
        now = clock.wall()
        pinned = CircuitBreakerStateData("api", manually_controlled=True, manual_override_expires_at=now)
        assert not pinned.pin_active(now)
        assert pinned.pin_active(now - timedelta(microseconds=1))
        assert pinned.pin_active((now - timedelta(seconds=1)).replace(tzinfo=None))
        assert CircuitBreakerStateData("api", manually_controlled=True).pin_active(now)
        assert not CircuitBreakerStateData("api", manual_override_expires_at=now).pin_active(now - timedelta(1))

    def test_clearing_leaves_state_and_counters(self, breakers):
        breakers.record_failure("api")
        breakers.atomic_force_open("api", "drill", 7)
        assert breakers.clear_manual_control("api") is True
        cleared = state_of(breakers)
        assert (cleared.state, cleared.failure_count, cleared.manually_controlled) == ("open", 1, False)
        assert (cleared.controlled_by_id, cleared.control_reason, cleared.manual_override_expires_at) == (
            None,
            "",
            None,
        )

    def test_clearing_may_preserve_the_reason(self, breakers):
        breakers.atomic_force_open("api", "drill", 7)
        breakers.clear_manual_control("api", preserve_reason=True)
        assert state_of(breakers).control_reason == "drill"

    @pytest.mark.parametrize("before", STATES)
    def test_force_open_keeps_counters_and_stamps_the_time(self, breakers, clock, before):
        breakers.record_failure("api")
        breakers.update_state("api", before, success_count=3, half_open_request_count=2)
        assert breakers.atomic_force_open("api", "drill", "ann") == (True, before, "open")
        forced = state_of(breakers)
        assert (forced.failure_count, forced.success_count, forced.half_open_request_count) == (1, 3, 0)
        assert forced.opened_at == clock.wall()
        assert forced.manual_override_expires_at == clock.wall() + timedelta(minutes=90)
        assert forced.pin_active(clock.wall())

    def test_forcing_creates_what_is_missing(self, breakers):
        assert breakers.atomic_force_open("a") == (True, "closed", "open")
        assert breakers.atomic_force_close("b") == (True, "closed", "closed")
        assert state_of(breakers, "b").manually_controlled

    @pytest.mark.parametrize("ttl", [None, 0, -1])
    def test_without_a_time_to_live_a_pin_has_no_expiry(self, breakers, ttl):
        breakers.atomic_force_open("a", ttl_minutes=ttl)
        breakers.atomic_force_close("b", ttl_minutes=ttl)
        assert state_of(breakers, "a").manual_override_expires_at is None
        assert state_of(breakers, "b").manual_override_expires_at is None
        assert state_of(breakers, "a").pin_active(datetime(9999, 1, 1, tzinfo=UTC))

    def test_an_endless_time_to_live_ends_with_the_calendar(self, breakers):
        breakers.atomic_force_open("api", ttl_minutes=10**15)
        expires = state_of(breakers).manual_override_expires_at
        assert expires is not None
        assert expires.year == 9999

    def test_force_close_empties_counters_and_keeps_the_last_failure(self, breakers, clock):
        at = clock.wall()
        breakers.record_failure_with_open_check("api", 1)
        clock.advance(1)
        assert breakers.atomic_force_close("api", "fixed", 7) == (True, "open", "closed")
        forced = state_of(breakers)
        assert (forced.failure_count, forced.success_count, forced.opened_at) == (0, 0, None)
        assert forced.last_failure_at == at
        assert (forced.manually_controlled, forced.control_reason, forced.controlled_by_id) == (True, "fixed", 7)

    def test_a_breaker_forced_closed_only_counts_until_the_pin_lifts_itself(self, breakers, clock):
        breakers.atomic_force_close("api", ttl_minutes=90)
        for _ in range(3):
            assert not breakers.record_failure_with_open_check("api", 2).did_open
        assert state_of(breakers).failure_count == 3
        clock.advance(90 * 60)
        assert breakers.record_failure_with_open_check("api", 2).did_open

    def test_a_half_open_pin_is_a_trial_that_ends_by_itself(self, breakers):
        for name, finish in (("good", breakers.record_success_with_close_check), ("bad", None)):
            breakers.set_manual_control(name, "half_open")
            assert breakers.try_acquire_half_open_slot(name, 1, 60) == (True, "half_open", "half_open")
            assert breakers.try_acquire_half_open_slot(name, 1, 60) == (False, "half_open", "half_open")
            if finish is not None:
                assert finish(name, 1).did_close
            else:
                assert breakers.record_failure_with_open_check(name, 1).did_open
        # It is over: neither does what became of it bind anybody.
        assert breakers.record_failure_with_open_check("good", 1).did_open
        assert breakers.try_acquire_half_open_slot("bad", 1, 60) == (True, "open", "half_open")

    def test_reset_clears_everything_but_metadata(self, breakers, clock):
        made_at = clock.wall()
        breakers.record_failure("api")
        breakers.update_metadata("api", {"team": "pay"})
        breakers.atomic_force_open("api", "drill", 7)
        clock.advance(1)
        generation = state_of(breakers).generation
        assert breakers.reset("api") is True
        fresh = CircuitBreakerStateData("api", id="api", created_at=made_at, updated_at=clock.wall())
        fresh.metadata, fresh.generation = {"team": "pay"}, generation + 1
        assert state_of(breakers) == fresh

    def test_atomic_reset_clears_the_pin_and_keeps_the_reason(self, breakers):
        breakers.atomic_force_open("api", "drill", 7)
        assert breakers.atomic_reset("api", "over", 8) == (True, "open", "closed")
        after = state_of(breakers)
        assert (after.manually_controlled, after.controlled_by_id, after.control_reason) == (False, None, "over")
        assert breakers.record_failure_with_open_check("api", 1).did_open

    def test_an_expired_pin_loses_only_its_flag_to_the_sweep(self, breakers, clock):
        breakers.atomic_force_open("expired", "drill", ttl_minutes=1)
        breakers.atomic_force_open("pinned", "drill", ttl_minutes=2)
        breakers.atomic_force_open("endless", "drill", ttl_minutes=None)
        clock.advance(60)
        assert breakers.clear_expired_pins() == 1
        assert breakers.clear_expired_pins() == 0
        swept = state_of(breakers, "expired")
        assert (swept.manually_controlled, swept.control_reason, swept.state) == (False, "drill", "open")
        assert state_of(breakers, "pinned").manually_controlled
        assert state_of(breakers, "endless").manually_controlled


class TestHalfOpenSlots:
    def test_a_missing_breaker_is_made_closed_and_gives_none(self, breakers):
        assert breakers.try_acquire_half_open_slot("api", 3, 60) == (False, "closed", "closed")
        assert state_of(breakers).is_closed

    def test_an_open_breaker_becomes_half_open_and_keeps_its_history(self, breakers, clock):
        breakers.record_failure_with_open_check("api", 1)
        opened_at = clock.wall()
        breakers.record_success("api")
        clock.advance(30)
        assert breakers.try_acquire_half_open_slot("api", 3, 60) == (True, "open", "half_open")
        trial = state_of(breakers)
        assert (trial.half_open_request_count, trial.success_count, trial.failure_count) == (1, 0, 1)
        assert (trial.opened_at, trial.half_open_window_started_at) == (opened_at, clock.wall())

    def test_no_more_slots_than_the_limit(self, breakers, clock):
        half_open(breakers)
        began = clock.wall()
        clock.advance(5)
        assert breakers.try_acquire_half_open_slot("api", 3, 60) == (True, "half_open", "half_open")
        assert breakers.try_acquire_half_open_slot("api", 3, 60) == (True, "half_open", "half_open")
        assert breakers.try_acquire_half_open_slot("api", 3, 60) == (False, "half_open", "half_open")
        assert state_of(breakers).half_open_request_count == 3
        assert state_of(breakers).half_open_window_started_at == began

    def test_a_full_window_is_stuck_only_when_it_is_older_than_the_timeout(self, breakers, clock):
        half_open(breakers, limit=1)
        breakers.record_success("api")
        clock.advance(60)
        assert breakers.try_acquire_half_open_slot("api", 1, 60) == (False, "half_open", "half_open")
        clock.advance(0.000001)
        assert breakers.try_acquire_half_open_slot("api", 1, 60) == (True, "half_open", "half_open")
        fresh = state_of(breakers)
        assert (fresh.half_open_request_count, fresh.success_count) == (1, 0)
        assert fresh.half_open_window_started_at == clock.wall()
        assert breakers.try_acquire_half_open_slot("api", 1, 60)[0] is False

    def test_a_window_below_the_limit_is_never_stuck(self, breakers, clock):
        half_open(breakers)
        breakers.record_success("api")
        clock.advance(3600)
        assert breakers.try_acquire_half_open_slot("api", 3, 60)[0] is True
        assert (state_of(breakers).half_open_request_count, state_of(breakers).success_count) == (2, 1)

    def test_without_a_watermark_a_full_window_is_stuck_and_another_gets_one(self, breakers, clock):
        breakers.get_or_create("api")
        breakers.update_state("api", "half_open", half_open_request_count=2)
        assert breakers.try_acquire_half_open_slot("api", 3, 60)[0] is True
        assert state_of(breakers).half_open_window_started_at == clock.wall()
        breakers.reset_half_open_count("api")
        breakers.update_state("api", "half_open", half_open_request_count=3)
        assert breakers.try_acquire_half_open_slot("api", 3, 60)[0] is True
        assert state_of(breakers).half_open_request_count == 1

    @pytest.mark.parametrize("limit", [0, -1])
    def test_a_limit_of_none_rejects_without_a_transition(self, breakers, limit):
        breakers.get_or_create("api")
        breakers.update_state("api", "open")
        assert breakers.try_acquire_half_open_slot("api", limit, 60) == (False, "open", "open")
        breakers.update_state("api", "half_open")
        assert breakers.try_acquire_half_open_slot("api", limit, 60) == (False, "half_open", "half_open")

    def test_the_recovery_timeout_is_checked_in_the_same_step(self, breakers, clock):
        breakers.record_failure_with_open_check("api", 1)
        ask = lambda: breakers.try_acquire_half_open_slot("api", 1, 60, recovery_timeout_seconds=30)  # noqa: E731
        clock.advance(29.9)
        assert ask() == (False, "open", "open")
        clock.advance(0.1)
        assert ask() == (True, "open", "half_open")
        breakers.record_failure_with_open_check("api", 1)
        assert ask() == (False, "open", "open")

    def test_a_pinned_open_breaker_leaks_no_trial_until_its_pin_expires(self, breakers, clock):
        breakers.atomic_force_open("api", ttl_minutes=1)
        ask = lambda: breakers.try_acquire_half_open_slot("api", 1, 1, recovery_timeout_seconds=3600)  # noqa: E731
        clock.advance(59)
        assert ask() == (False, "open", "open")
        clock.advance(1)
        assert ask() == (True, "open", "half_open")
        breakers.record_failure_with_open_check("api", 1)
        assert ask() == (False, "open", "open")

    def test_a_trial_is_allowed_after_an_expired_pin_that_was_swept(self, breakers, clock):
        breakers.atomic_force_open("api", ttl_minutes=1)
        clock.advance(60)
        breakers.clear_expired_pins()
        answer = breakers.try_acquire_half_open_slot("api", 1, 1, recovery_timeout_seconds=3600)
        assert answer == (True, "open", "half_open")

    def test_a_pin_without_expiry_admits_nothing_ever(self, breakers, clock):
        breakers.set_manual_control("api", "open")
        clock.advance(10**6)
        assert breakers.try_acquire_half_open_slot("api", 1, 1) == (False, "open", "open")

    def test_a_closed_breaker_has_no_slots(self, breakers):
        breakers.atomic_force_close("api")
        assert breakers.try_acquire_half_open_slot("api", 1, 1) == (False, "closed", "closed")

    def test_a_slot_comes_back_when_its_trial_told_nothing(self, breakers):
        half_open(breakers, limit=1)
        generation = state_of(breakers).generation
        assert breakers.release_half_open_slot("api", generation - 1) is False
        assert breakers.release_half_open_slot("api", generation) is True
        assert breakers.release_half_open_slot("api", generation) is False
        assert breakers.try_acquire_half_open_slot("api", 1, 60) == (True, "half_open", "half_open")

    def test_emptying_the_window_leaves_the_state(self, breakers):
        half_open(breakers)
        breakers.reset_half_open_count("api")
        emptied = state_of(breakers)
        assert (emptied.state, emptied.half_open_request_count) == ("half_open", 0)
        assert emptied.half_open_window_started_at is None


class TestListing:
    def test_all_states_come_by_name(self, breakers):
        for name in ("b", "a", "Z", "ä", "c-1"):
            breakers.get_or_create(name)
        assert [state.service_name for state in breakers.get_all_states()] == ["Z", "a", "b", "c-1", "ä"]

    def test_open_states_come_by_age_and_those_of_unknown_age_first(self, breakers, clock):
        for name in ("late", "early", "x", "y", "closed", "half"):
            breakers.get_or_create(name)
        at = clock.wall()
        breakers.update_state("late", "open", opened_at=at)
        breakers.update_state("early", "open", opened_at=at - timedelta(hours=1))
        breakers.update_state("y", "open")
        breakers.update_state("x", "open")
        half_open(breakers, "half")
        names = ["x", "y", "early", "late"]
        assert [state.service_name for state in breakers.get_open_states()] == names
        for limit in range(6):
            assert [state.service_name for state in breakers.get_open_states(limit)] == names[:limit]
        assert breakers.get_open_states(-1) == []

    def test_a_breaker_that_moves_leaves_the_list_of_open_ones(self, breakers):
        breakers.record_failure_with_open_check("api", 1)
        assert len(breakers.get_open_states()) == 1
        breakers.try_acquire_half_open_slot("api", 1, 60)
        assert breakers.get_open_states() == []
        breakers.record_failure_with_open_check("api", 1)
        assert len(breakers.get_open_states()) == 1
        assert breakers.delete_state("api") is True
        assert breakers.delete_state("api") is False
        assert breakers.get_open_states() == []


def test_metadata_is_json_or_refused_with_nothing_written(breakers):
    class Colour(Enum):
        RED = "red"

    breakers.get_or_create("api")
    assert breakers.update_metadata("api", {"a": (1, None), "b": Colour.RED, "c": "\0"})
    kept = {"a": [1, None], "b": "red", "c": "\ufffd"}
    for wrong, error in (({"a": object()}, TypeError), ({"a": float("nan")}, ValueError)):
        with pytest.raises(error):
            breakers.update_metadata("api", wrong)
    assert state_of(breakers).metadata == kept


def test_without_a_clock_times_are_the_stores(store, clock: ManualClock):
    breakers = CircuitBreakerStateRepository(store)
    assert breakers.get_or_create("api").created_at == clock.wall()


def test_a_change_of_state_or_pin_wakes_whoever_follows(store, breakers):
    woken: list[str] = []
    heard = lambda: woken.append("!")  # noqa: E731
    subscription = store.subscribe("breakers", heard)
    steps = [
        (lambda: breakers.record_failure_with_open_check("api", 1), 1),
        (lambda: breakers.record_failure("api"), 0),
        (lambda: breakers.try_acquire_half_open_slot("api", 2, 60), 1),
        (lambda: breakers.try_acquire_half_open_slot("api", 2, 60), 0),
        (lambda: breakers.record_success_with_close_check("api", 1), 1),
        (lambda: breakers.atomic_force_close("api"), 1),
        (lambda: breakers.clear_manual_control("api"), 1),
        (lambda: breakers.get_or_create("other"), 0),
        (lambda: breakers.delete_state("api"), 1),
    ]
    for step, expected in steps:
        woken.clear()
        step()
        assert len(woken) == expected
    subscription.close()


def test_who_changes_a_breaker_alone_reads_it_once(clock):
    store = Reading(clock)
    breakers = Breakers(store)
    for _ in range(3):
        breakers.record_failure("api")
    assert breakers.record_failure_with_open_check("api", 4).did_open
    assert store.reads == 1


def test_what_others_count_is_counted_also_by_who_has_counted_before(store):
    breakers, others = Breakers(store), Breakers(store)
    for number in range(1, 6):
        assert breakers.record_failure("api").failure_count == 2 * number - 1
        assert others.record_failure("api").failure_count == 2 * number
    others.set_manual_control("api", "open")
    assert not breakers.try_acquire_half_open_slot("api", 3, 60)[0]


def test_a_breaker_that_was_forgotten_and_made_anew_owes_nothing_to_the_old_one(store, clock):
    breakers, others = Breakers(store), Breakers(store)
    assert breakers.record_failure("api").failure_count == 1
    assert others.delete_state("api")
    clock.advance(0.001)
    others.record_success("api")
    assert breakers.record_failure("api").failure_count == 1
    assert (state_of(breakers).success_count, state_of(breakers).created_at) == (1, clock.wall())


def test_of_very_many_breakers_some_are_read_again(store):
    breakers = Breakers(store)
    breakers.record_failure("first")
    breakers._seen.update((f"other-{n}", state) for n, state in enumerate([*breakers._seen.values()] * 1000))
    breakers.record_failure("second")
    assert [*breakers._seen] == ["second"]
    assert breakers.record_failure("first").failure_count == 2
