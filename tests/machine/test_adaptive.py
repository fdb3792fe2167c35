import math
import random
from itertools import pairwise
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import PolicyError
from holdfast.machine.adaptive import AdaptiveLimit, Limiter, class_rate, correlation, overloaded, variation

SERVICE_TIME = 0.05


class Server:
    """Serves `capacity` calls at once in SERVICE_TIME; more of them share its speed. `demand` calls always want in."""

    def __init__(self, capacity: int, limiter: Limiter, demand: int = 10_000, seed: int = 1) -> None:
        self.capacity = capacity
        self.limiter = limiter
        self.demand = demand
        self.now = 0.0
        self.random = random.Random(seed)

    def run(self, windows: int) -> list[int]:
        """The limit after each of so many windows of fifty calls."""
        limits = []
        for _ in range(windows):
            inflight = min(self.demand, self.limiter.limit)
            for _ in range(50):
                rtt = SERVICE_TIME * max(1.0, inflight / self.capacity) * self.random.uniform(0.9, 1.1)
                self.now += max(rtt / inflight, 1.01 / 50)
                self.limiter.sample(self.now, rtt, inflight)
            limits.append(self.limiter.limit)
        return limits


@pytest.mark.parametrize("capacity", [10, 30, 80, 150])
def test_the_limit_settles_around_the_capacity_of_an_overloaded_server(capacity):
    settled = Server(capacity, Limiter(AdaptiveLimit())).run(600)[200:]
    assert 0.6 * capacity <= median(settled) <= 1.6 * capacity
    assert max(settled) <= 2.5 * capacity


def test_the_limit_follows_a_server_that_degrades_and_recovers():
    server = Server(40, Limiter(AdaptiveLimit()))
    before = median(server.run(300)[150:])
    server.capacity = 10
    degraded = median(server.run(400)[150:])
    server.capacity = 40
    recovered = median(server.run(300)[100:])
    assert degraded <= 20
    assert before >= 25
    assert recovered >= 25


def test_a_baseline_learnt_during_overload_does_not_outlive_it():
    limiter = Limiter(AdaptiveLimit(initial=20))
    server = Server(5, limiter)
    server.run(200)
    assert limiter.baseline < 0.15
    server.capacity = 1000
    server.run(60)
    assert limiter.limit > 40


def test_the_limit_grows_to_its_maximum_while_calls_stay_fast_and_many():
    assert Server(10_000, Limiter(AdaptiveLimit(max=60))).run(100)[-1] == 60


def test_an_idle_limit_comes_down_to_the_ceiling_step_by_step():
    limits = Server(100, Limiter(AdaptiveLimit(initial=100, max=200)), demand=2).run(80)
    assert max(before - after for before, after in pairwise(limits)) <= 3
    assert limits[-1] == int(AdaptiveLimit().ceiling(2))


def test_a_window_needs_both_time_and_samples():
    limiter = Limiter(AdaptiveLimit())
    assert not any(limiter.sample(0.001 * n, 0.01, 20) for n in range(100)), "too early"
    assert limiter.sample(1.0, 0.01, 20)
    slow = Limiter(AdaptiveLimit())
    assert not any(slow.sample(float(n), 0.01, 20) for n in range(49)), "too few"
    assert slow.sample(49.0, 0.01, 20)


def test_a_window_lasts_twice_the_fastest_call_but_no_longer_than_the_maximum():
    limiter = Limiter(AdaptiveLimit(min_samples=1, window_max=4.0))
    assert [limiter.sample(now, 1.5, 20) for now in (0.0, 1.0, 3.9, 4.0)] == [False, True, False, True]
    limiter.sample(7.0, 60.0, 20)  # the window from 4.0 to 7.0; 60 s calls would make the next one 120 s long
    assert [limiter.sample(now, 60.0, 20) for now in (10.9, 11.0)] == [False, True]


def test_dropped_calls_are_no_samples():
    limiter = Limiter(AdaptiveLimit())
    assert not any(limiter.sample(float(n), 30.0, 20, dropped=True) for n in range(500))
    assert (limiter.limit, limiter.baseline) == (20, 0)


def test_a_limit_of_one_can_grow_again():
    assert Server(50, Limiter(AdaptiveLimit(initial=1))).run(40)[-1] > 10


def test_the_ceiling_is_a_multiple_of_what_is_in_flight_less_for_many():
    policy = AdaptiveLimit()
    assert [policy.ceiling(n) for n in (1, 10, 100, 1000)] == pytest.approx([5, 40, 300, 2000])
    assert policy.ceiling(10**6) == 10**6


def test_the_reject_rate_rises_linearly_over_the_queue():
    limiter = Limiter(AdaptiveLimit(initial=10, queue=(2, 3)))
    assert [limiter.reject_rate(n) for n in (0, 20, 25, 30, 99)] == [0, 0, 0.5, 1, 1]


def test_without_a_queue_everything_beyond_the_limit_is_refused():
    assert Limiter(AdaptiveLimit()).reject_rate(0) == 1


def test_a_queue_without_a_slope_refuses_at_its_maximum():
    limiter = Limiter(AdaptiveLimit(initial=10, queue=(1, 1)))
    assert [limiter.reject_rate(n) for n in (9, 10)] == [0, 1]


def test_the_least_urgent_class_is_shed_first():
    assert [class_rate(0.5, priority, 2) for priority in (0, 1)] == [0, 1]
    assert [class_rate(0.25, priority, 2) for priority in (0, 1)] == [0, 0.5]
    assert [class_rate(1.0, priority, 3) for priority in (0, 1, 2)] == [1, 1, 1]


@given(st.floats(0, 1), st.integers(1, 5))
def test_the_classes_together_are_shed_at_the_rate(rate, classes):
    rates = [class_rate(rate, priority, classes) for priority in range(classes)]
    assert rates == sorted(rates)
    assert sum(rates) / classes == pytest.approx(rate)


def test_a_changed_policy_moves_the_limit_into_its_bounds():
    limiter = Limiter(AdaptiveLimit(initial=50))
    limiter.change(AdaptiveLimit(initial=5, max=10))
    assert limiter.limit == 10
    limiter.change(AdaptiveLimit(min=30, initial=30))
    assert limiter.limit == 30


samples = st.tuples(st.floats(0, 5), st.floats(0, 100), st.integers(0, 500), st.booleans())


@given(st.integers(1, 10), st.integers(0, 200), st.lists(samples, max_size=300))
def test_no_samples_move_the_limit_out_of_its_bounds_or_by_more_than_a_step(low, span, script):
    policy = AdaptiveLimit(min=low, max=low + span, initial=low + span // 2, min_samples=1)
    limiter, now = Limiter(policy), 0.0
    for pause, rtt, inflight, dropped in script:
        now += pause
        before = limiter.limit
        changed = limiter.sample(now, rtt, inflight, dropped)
        assert changed == (limiter.limit != before)
        assert policy.min <= limiter.limit <= policy.max
        assert abs(limiter.limit - before) <= max(1.0, math.log10(before)) + 1


def test_equal_samples_give_equal_limits():
    assert Server(30, Limiter(AdaptiveLimit())).run(50) == Server(30, Limiter(AdaptiveLimit())).run(50)


def test_a_busy_window_keeps_a_bounded_number_of_samples():
    limiter = Limiter(AdaptiveLimit())
    for n in range(50_000):
        limiter.sample(n * 1e-6, 0.01, 20)
    assert len(limiter._rtts) <= 2048
    assert limiter.sample(2.0, 0.01, 20)
    assert limiter.baseline == pytest.approx(0.01)


def test_overload_shows_in_throughput_that_falls_or_does_not_follow():
    loads = range(1, 21)
    assert overloaded([(n, 100 - n, 0.1) for n in loads]), "falls"
    assert overloaded([(n, 100.0, n / 100) for n in loads]), "does not follow while calls get slower"
    assert not overloaded([(n, n * 10.0, 0.1) for n in loads]), "follows"
    assert not overloaded([(20, 200.0, 0.1)] * 20), "nothing varies"
    assert not overloaded([(n, 100 - n, 0.1) for n in range(9)]), "too early to tell"


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=30), st.floats(0.1, 10))
def test_a_value_correlates_with_its_own_multiple(values, factor):
    coefficient = correlation(values, [factor * value for value in values])
    assert coefficient == 0 or coefficient == pytest.approx(1, abs=1e-3)
    assert correlation(values, [7.0] * len(values)) == 0


def test_variation_is_relative_to_the_mean():
    assert variation([1.0, 3.0]) == 0.5
    assert variation([10.0, 30.0]) == 0.5
    assert variation([0.0, 0.0]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"min": 0}, "min must be at least 1, got 0"),
        ({"max": 0}, "max must be at least min, which is 1, got 0"),
        ({"initial": 500}, "initial must be from 1 to 200, got 500"),
        ({"window_min": 0}, "window_min"),
        ({"window_max": 0.5}, "window_max"),
        ({"min_samples": 0}, "min_samples"),
        ({"quantile": 0}, "quantile"),
        ({"baseline_age": 0}, "baseline_age"),
        ({"correlation_size": 1}, "correlation_size"),
        ({"ceiling_factor": 0.5}, "ceiling_factor"),
        ({"ceiling_decay": -1}, "ceiling_decay"),
        ({"queue": (3, 2)}, "queue must be .start, maximum."),
    ],
)
def test_an_impossible_limit_is_refused(arguments, message):
    with pytest.raises(PolicyError, match=rf"AdaptiveLimit\.{message}"):
        AdaptiveLimit(**arguments)
