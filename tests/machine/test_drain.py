"""How fast letters go out again: sizes, paces and trials."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.machine.drain import (
    LARGEST_BATCH,
    LARGEST_SHARE,
    SMALLEST_BATCH,
    TRIAL_WAITS_S,
    Batch,
    DomainRecord,
    Pace,
    Round,
    Share,
    begin_trial,
    is_paused,
    pause,
    recovered,
    resume,
    tell,
    told_upto,
    trial_due,
)

SECOND = 1_000_000
counts = st.integers(0, 200)
rounds = st.builds(
    Round, counts, counts, st.integers(0, 3), st.one_of(st.none(), st.floats(0.001, 100, allow_nan=False))
)


def test_a_batch_begins_with_fifty_and_shrinks_by_a_fifth_when_a_fifth_fails() -> None:
    assert Batch().size == 50
    assert Batch().after(50, 10) == Batch(40, 0)
    assert Batch().after(50, 9) == Batch(50, 0)


def test_three_clean_batches_make_the_next_five_larger() -> None:
    batch = Batch()
    for size in (50, 50, 55, 55, 55, 60):
        batch = batch.after(10, 0)
        assert batch.size == size


def test_a_failure_ends_the_row_of_clean_batches() -> None:
    assert Batch(50, 2).after(50, 1) == Batch(50, 0)


def test_an_empty_batch_says_nothing() -> None:
    assert Batch(30, 2).after(0, 0) == Batch(30, 2)


@given(st.lists(st.tuples(counts, counts), max_size=60))
def test_a_batch_stays_between_ten_and_a_hundred(history: list[tuple[int, int]]) -> None:
    batch = Batch()
    for done, failed in history:
        batch = batch.after(done, min(done, failed))
        assert SMALLEST_BATCH <= batch.size <= LARGEST_BATCH


def test_a_share_begins_with_one_and_is_what_is_through_in_a_moment() -> None:
    assert Share().size == 1
    assert Share().after(0.0).size == LARGEST_SHARE
    assert Share().after(0.01).size == 10
    assert Share().after(3.0).size == 1


def test_one_slow_entry_makes_the_next_share_a_single_one() -> None:
    share = Share().after(0.0)
    assert share.after(1.0).size == 1
    for _ in range(20):
        share = share.after(0.0)
    assert share.size == LARGEST_SHARE


@given(st.lists(st.floats(0, 1e6)))
def test_a_share_is_never_empty_and_never_large(history: list[float]) -> None:
    share = Share()
    for seconds in history:
        share = share.after(seconds)
        assert 1 <= share.size <= LARGEST_SHARE


def test_a_drain_begins_with_one_letter_and_doubles_while_all_goes_well() -> None:
    pace, widths = Pace(), []
    for _ in range(7):
        widths.append(pace.width)
        pace = pace.after(Round(pace.width, seconds=0.1), most=50)
    assert widths == [1, 2, 4, 8, 16, 32, 50]
    assert pace.rest_s == 0


def test_failures_halve_the_pace_and_it_grows_by_one_from_then_on() -> None:
    pace = Pace(16).after(Round(12, 4, seconds=0.1), most=50)
    assert (pace.width, pace.rest_s) == (8, 0.25)
    assert pace.after(Round(8, seconds=0.1), most=50).width == 9


def test_a_few_failures_hold_the_pace() -> None:
    assert Pace(20).after(Round(19, 1, seconds=0.1), most=50) == Pace(20, False, 0.1, 0)


def test_a_doubled_latency_halves_the_pace() -> None:
    pace = Pace(8, baseline=0.1).after(Round(8, seconds=0.2), most=50)
    assert (pace.width, pace.cautious, pace.troubles) == (4, True, 1)


def test_a_dependency_that_stays_slower_becomes_the_new_normal() -> None:
    pace = Pace(8, baseline=0.1)
    for _ in range(40):
        pace = pace.after(Round(pace.width, seconds=0.3), most=50)
    assert pace.troubles == 0
    assert pace.width > 8


def test_a_refusal_leaves_the_dependency_to_live_calls() -> None:
    pace = Pace(32).after(Round(31, 0, 1, 0.1), most=50)
    assert (pace.width, pace.rest_s) == (1, 0.25)


@given(st.lists(rounds, max_size=80), st.integers(1, 100))
def test_a_pace_never_stops_and_never_exceeds_its_bound(history: list[Round], most: int) -> None:
    pace = Pace()
    for seen in history:
        after = pace.after(seen, most)
        done = seen.succeeded + seen.failed + seen.returned
        assert 1 <= after.width <= max(most, 1)
        assert after.width <= pace.width * 2
        assert 0 <= after.rest_s <= 5
        if done and (seen.returned or seen.failed * 5 >= done):
            assert after.width <= max(1, pace.width // 2)
            assert after.rest_s > 0
        pace = after


def test_trials_come_every_minute_and_back_off_to_nine() -> None:
    found: DomainRecord | None = None
    now, waits = 0, []
    for _ in range(7):
        found = begin_trial(found, "payments", now)
        assert found is not None
        assert found.due_at is not None
        assert begin_trial(found, "payments", found.due_at - 1) is None
        waits.append((found.due_at - now) // SECOND)
        now = found.due_at
    assert waits == [*TRIAL_WAITS_S, 540, 540]


def test_a_domain_that_answers_again_begins_anew() -> None:
    found = begin_trial(begin_trial(None, "p", 0), "p", 60 * SECOND)
    after = recovered(found)
    assert after is not None
    assert trial_due(after, 0)
    assert after.trials == 0
    assert recovered(after) is None
    assert recovered(None) is None


def test_a_pause_holds_until_it_is_lifted_or_over() -> None:
    held = pause(None, "p", "ops", "calm", None)
    assert is_paused(held, 1 << 60)
    lifted = resume(held)
    assert lifted is not None
    assert not is_paused(lifted, 0)
    assert resume(lifted) is None
    timed = pause(lifted, "p", "ops", "calm", 100)
    assert is_paused(timed, 99)
    assert not is_paused(timed, 100)
    assert timed.version == 3


def test_only_one_host_tells_of_an_entry() -> None:
    told = tell(None, "p", None, (5, "a"))
    assert told_upto(told) == (5, "a")
    assert tell(told, "p", None, (9, "b")) is None
    again = tell(told, "p", (5, "a"), (9, "b"))
    assert told_upto(again) == (9, "b")
