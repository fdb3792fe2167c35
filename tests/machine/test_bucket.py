import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.errors import PolicyError
from holdfast.machine.bucket import Bucket, PeriodBucket, TokenBucket, bursty, smooth

rates = st.sampled_from([0.1, 0.3, 1.0, 3.0, 7.3, 100.0, 1e4])
bursts = st.sampled_from([1, 1.5, 2, 3, 10])
starts = st.sampled_from([0.0, 17.3, 1e7 + 0.1])
# Pauses and waits in units of the interval, so that every rate meets empty, full and half-full buckets.
pauses = st.sampled_from([0.0, 0.0, 0.25, 0.5, 1.0, 1 / 3, 2.0, 15.0])
steps = st.lists(
    st.tuples(st.sampled_from(["take", "reserve", "cancel"]), pauses, st.integers(0, 5), st.sampled_from([0, 1, 4.5])),
    max_size=60,
)


def drive(bucket: Bucket, start: float, unit: float, script) -> list[float]:
    """Run a script of calls; the moments at which a call was let through, cancelled ones left out."""
    now, passed, pending = start, [], []
    for action, pause, which, patience in script:
        now += pause * unit
        if action == "take":
            wait = bucket.take(now)
            assert wait >= 0
            if wait == 0:
                passed.append(now)
        elif action == "reserve":
            promised = bucket.reserve(now, patience * unit)
            if promised is not None:
                assert 0 <= promised <= patience * unit
                pending.append(now + promised)
        else:
            waiting = [slot for slot in pending if slot >= now]
            if waiting:
                slot = waiting[which % len(waiting)]
                pending.remove(slot)
                bucket.cancel(slot, now)
    return sorted(passed + pending)


@given(rates, bursts, starts, steps)
@example(
    1.0,
    1,
    0.0,
    [("take", 0, 0, 0)] + [("reserve", 0, 0, 4.5)] * 3 + [("cancel", 0.5, 0, 0)] + [("reserve", 0, 0, 4.5)] * 2,
)
def test_no_interval_ever_sees_more_than_burst_plus_rate_times_its_length(rate, burst, start, script):
    passed = drive(TokenBucket(rate, burst), start, 1 / rate, script)
    for first, begin in enumerate(passed):
        for last in range(first, len(passed)):
            allowed = burst + rate * (passed[last] - begin + 2e-8)
            assert last - first + 1 <= allowed * (1 + 1e-9)


class Quick(TokenBucket):
    """A bucket whose `take` begins with the lines that the fused path has."""

    __slots__ = ()

    def take(self, now: float) -> float:
        scope = {"bucket": self, "now": now, "taken_by_hand": lambda: super(Quick, self).take(now)}
        exec(TokenBucket.QUICK.replace("    no", "    wait = taken_by_hand()"), scope)
        return scope.get("wait", 0.0)


@given(rates, bursts, starts, steps)
def test_the_quick_lines_take_what_the_bucket_itself_would_have_taken(rate, burst, start, script):
    # `no` must not take either: whoever hears it asks the bucket.
    plain, quick = TokenBucket(rate, burst), Quick(rate, burst)
    assert drive(quick, start, 1 / rate, script) == drive(plain, start, 1 / rate, script)
    assert (quick.origin, quick.taken) == (plain.origin, plain.taken)


@given(st.integers(1, 4), st.sampled_from([0.1, 1.0, 0.3, 60.0]), starts, steps)
def test_no_period_ever_sees_more_than_its_permits(permits, per, start, script):
    bucket = bursty(permits, per)
    assert bucket.take(start) == 0
    passed = [start, *drive(bucket, start, per, script)]
    periods = [math.floor((moment - start) / per + 1e-6) for moment in passed]
    assert all(periods.count(period) <= permits for period in periods)


@given(rates, bursts, starts, st.integers(1, 200))
def test_a_caller_that_waits_as_told_gets_every_token_there_is(rate, burst, start, calls):
    bucket, now = TokenBucket(rate, burst), start
    for _ in range(calls):
        wait = bucket.take(now)
        if wait:
            now += wait
            assert bucket.take(now) == 0, "the time that was told is enough"
    assert now == start or calls >= burst + rate * (now - start) - 1 - 1e-6


@given(st.integers(1, 5), st.sampled_from([0.1, 1.0, 0.3]), starts, st.integers(1, 100))
def test_a_caller_that_waits_for_the_period_gets_every_permit(permits, per, start, calls):
    bucket, now = PeriodBucket(permits, per), start
    for _ in range(calls):
        wait = bucket.take(now)
        if wait:
            now += wait
            assert bucket.take(now) == 0
    assert math.floor((now - start) / per + 1e-6) == (calls - 1) // permits


@pytest.mark.parametrize("start", [0.0, 1e7])
def test_a_long_busy_time_does_not_make_the_rate_drift(start):
    bucket, now, passed = TokenBucket(1000, 2), start, 0
    for step in range(200_000):
        now = start + step * 0.00037
        passed += bucket.take(now) == 0
    assert passed == pytest.approx((now - start) * 1000, abs=2)


@given(rates, bursts, starts, st.integers(1, 30))
def test_reservations_are_spaced_by_the_interval(rate, burst, start, count):
    bucket = TokenBucket(rate, burst)
    waits = [bucket.reserve(start, math.inf) for _ in range(count)]
    assert waits == pytest.approx([max(0, n + 1 - burst) / rate for n in range(count)], abs=1e-7)


def test_it_starts_full_and_says_when_the_next_token_comes():
    bucket = TokenBucket(rate_per_s=10, burst=2)
    assert [bucket.take(5.0) for _ in range(3)] == pytest.approx([0, 0, 0.1])
    assert bucket.take(5.05) == pytest.approx(0.05)
    assert bucket.take(5.1) == 0


def test_a_refused_call_takes_nothing():
    bucket = TokenBucket(1, 1)
    bucket.take(0.0)
    assert [bucket.take(0.5) for _ in range(9)] == [0.5] * 9
    assert bucket.take(1.0) == 0


def test_tokens_rise_to_the_burst_and_not_beyond():
    bucket = TokenBucket(2, 4)
    assert bucket.tokens(0.0) == 4
    for _ in range(4):
        bucket.take(0.0)
    assert bucket.tokens(0.0) == 0
    assert bucket.tokens(1.25) == 2.5
    assert bucket.tokens(99.0) == 4


def test_a_wait_beyond_the_maximum_reserves_nothing():
    bucket = smooth(1)
    assert bucket.reserve(0.0, 0.0) == 0
    assert bucket.reserve(0.0, 0.9) is None
    assert bucket.reserve(0.0, 1.0) == 1.0
    assert bucket.reserve(0.0, 1.9) is None


def test_nobody_passes_those_who_wait():
    bucket = smooth(1)
    bucket.take(0.0)
    assert bucket.reserve(0.5, 10) == 0.5
    assert bucket.take(1.0) == pytest.approx(1.0)


@pytest.mark.parametrize("bucket", [smooth(1), bursty(1, 1.0)])
def test_a_cancelled_wait_gives_its_token_back(bucket: Bucket):
    bucket.take(0.0)
    assert bucket.reserve(0.25, 10) == 0.75
    bucket.cancel(1.0, 0.5)
    assert bucket.take(1.0) == 0


@pytest.mark.parametrize("bucket", [smooth(1), bursty(1, 1.0)])
def test_the_next_in_line_gets_the_very_slot_that_was_cancelled(bucket: Bucket):
    bucket.take(0.0)
    assert [bucket.reserve(0.0, 10) for _ in range(3)] == [1, 2, 3]
    bucket.cancel(1.0, 0.5)
    assert bucket.take(0.75) == 0.25
    assert [bucket.reserve(0.75, 10) for _ in range(2)] == [0.25, 3.25]


@pytest.mark.parametrize("bucket", [smooth(1), bursty(1, 1.0)])
def test_cancelling_everyone_leaves_no_trace(bucket: Bucket):
    bucket.take(0.0)
    slots = [0.0 + (bucket.reserve(0.0, 10) or 0) for _ in range(4)]
    for slot in (slots[1], slots[3], slots[0], slots[2]):
        bucket.cancel(slot, 0.5)
    assert bucket.tokens(1.0) == 1
    assert bucket.take(1.0) == 0
    assert bucket.take(1.0) == 1


@pytest.mark.parametrize("bucket", [smooth(1), bursty(1, 1.0)])
def test_a_slot_that_has_passed_cannot_be_given_back(bucket: Bucket):
    bucket.take(0.0)
    assert bucket.reserve(0.0, 10) == 1
    assert bucket.reserve(0.0, 10) == 2
    bucket.cancel(1.0, 2.5)
    assert bucket.take(2.5) == 0.5


def test_a_clock_that_differs_a_little_between_threads_is_no_trouble():
    bucket = TokenBucket(10, 3)
    assert [bucket.take(now) for now in (1.0, 0.9999, 1.00001)] == [0, 0, 0]
    assert bucket.take(0.9999) > 0


def test_changing_the_limits_keeps_the_bucket_as_full_as_it_was():
    bucket = TokenBucket(1, 10)
    for _ in range(5):
        bucket.take(0.0)
    bucket.change(2, 20, 0.0)
    assert (bucket.rate_per_s, bucket.burst, bucket.tokens(0.0)) == (2, 20, 10)
    bucket.change(2, 4, 100.0)
    assert bucket.tokens(100.0) == 4


def test_changing_the_limits_keeps_what_was_promised():
    bucket = smooth(1)
    bucket.take(0.0)
    assert bucket.reserve(0.0, 10) == 1
    bucket.change(2, 1, 0.0)
    assert bucket.reserve(0.0, 10) == pytest.approx(1.0)


def test_bursty_gives_the_whole_period_at_once():
    bucket = bursty(3, per=10.0)
    assert [bucket.take(2.0) for _ in range(4)] == [0, 0, 0, 10]
    assert bucket.tokens(11.9) == 0
    assert bucket.take(11.0) == 1
    assert [bucket.take(12.0) for _ in range(4)] == [0, 0, 0, 10]


def test_bursty_reserves_in_the_periods_to_come():
    bucket = bursty(2, per=1.0)
    assert [bucket.reserve(0.25, 10) for _ in range(5)] == [0, 0, 1, 1, 2]
    assert bucket.reserve(0.25, 1.5) is None
    assert bucket.reserve(0.25, 2.0) == 2
    assert bucket.take(1.5) == 1.75


def test_bursty_does_not_save_up_idle_periods():
    bucket = bursty(2, per=1.0)
    bucket.take(0.0)
    assert bucket.tokens(50.5) == 2


def test_bursty_keeps_its_share_when_changed():
    bucket = bursty(4, per=1.0)
    bucket.take(0.0)
    bucket.take(0.0)
    bucket.change(10, 2.0, 0.5)
    assert (bucket.rate_per_s, bucket.burst, bucket.tokens(0.5)) == (5, 10, 5)
    assert bucket.tokens(2.5) == 10


@pytest.mark.parametrize("rate", [0, -1, math.nan, math.inf])
def test_a_rate_must_be_possible(rate):
    with pytest.raises(PolicyError, match="rate_per_s must be a finite number above 0"):
        TokenBucket(rate, 1)


@pytest.mark.parametrize("burst", [0, 0.5, math.nan, math.inf])
def test_a_burst_holds_at_least_one_token(burst):
    with pytest.raises(PolicyError, match="burst must be a finite number of at least 1"):
        TokenBucket(1, burst)


@pytest.mark.parametrize(("permits", "per"), [(0, 1.0), (1, 0.0), (1, math.inf), (1, math.nan)])
def test_a_period_must_be_possible(permits, per):
    with pytest.raises(PolicyError, match="must be"):
        PeriodBucket(permits, per)
