from __future__ import annotations

import dataclasses
import math
import pickle
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import PolicyError
from holdfast.machine.tally import Tally
from holdfast.machine.trip import (
    TripRule,
    consecutive,
    count,
    k_of_n,
    ratio,
    slow_ratio,
)

# Halves are exact in binary, so that a boundary is a boundary.
GAPS = st.integers(0, 40).map(lambda halves: halves / 2)
RESULTS = st.lists(st.tuples(GAPS, st.booleans()), max_size=60)
RULES = (consecutive(3), count(3, window=10), ratio(0.5), k_of_n(2, 3), slow_ratio(0.5, threshold=1))


def feed(tally: Tally, now: float, failed: bool, duration: float = 0.0) -> bool:
    return tally.fail(now, duration) if failed else tally.succeed(now, duration)


def instants(results: list[tuple[float, bool]]) -> list[tuple[float, bool]]:
    now, seen = 100.0, []
    for gap, failed in results:
        now += gap
        seen.append((now, failed))
    return seen


# consecutive


@given(RESULTS, st.integers(1, 5))
def test_consecutive_trips_exactly_at_the_nth_failure_in_a_row(results: list[tuple[float, bool]], n: int) -> None:
    tally, streak = consecutive(n).tally(), 0
    for now, failed in instants(results):
        feed(tally, now, failed)
        streak = streak + 1 if failed else 0
        assert tally.failures(now) == tally.calls(now) == streak
        assert tally.tripped(now) == (streak >= n)


# count


@given(RESULTS, st.integers(1, 5), st.integers(1, 30))
def test_count_agrees_with_a_list_of_all_failures(results: list[tuple[float, bool]], n: int, window: int) -> None:
    tally, failures = count(n, window=window).tally(), []
    for now, failed in instants(results):
        feed(tally, now, failed)
        failures += [now] if failed else []
        alive = sum(now - at <= window for at in failures)
        assert tally.failures(now) == tally.calls(now) == min(n, alive)
        assert tally.tripped(now) == (alive >= n)


def test_a_failure_exactly_one_window_old_still_counts() -> None:
    tally = count(2, window=60).tally()
    tally.fail(0.0, 0.0)
    assert tally.failures(60.0) == 1
    tally.fail(60.0, 0.0)
    assert tally.tripped(60.0)


def test_a_failure_older_than_the_window_does_not_count() -> None:
    tally = count(2, window=60).tally()
    tally.fail(0.0, 0.0)
    tally.fail(60.5, 0.0)
    assert not tally.tripped(60.5)


def test_reading_the_failures_of_count_prunes() -> None:
    tally = count(5, window=10).tally()
    for at in (0.0, 1.0, 2.0):
        tally.fail(at, 0.0)
    assert [tally.failures(now) for now in (2.0, 10.0, 11.0, 12.0, 12.5)] == [3, 3, 2, 1, 0]


def test_success_changes_nothing_for_count() -> None:
    tally = count(2, window=10).tally()
    tally.fail(0.0, 0.0)
    assert tally.succeed(1.0, 0.0) is False
    tally.fail(2.0, 0.0)
    assert tally.tripped(2.0)


def test_count_keeps_no_more_failures_than_it_needs() -> None:
    tally = count(3, window=1000).tally()
    for at in range(500):
        tally.fail(float(at), 0.0)
    assert tally.failures(500.0) == 3


def test_a_count_tells_when_the_failures_that_still_matter_happened() -> None:
    tally = count(3, window=10).tally()
    for now in (0.0, 4.0, 5.0, 6.0):
        tally.fail(now, 0.0)
    assert tally.instants(6.0) == (4.0, 5.0, 6.0)
    assert tally.instants(15.0) == (5.0, 6.0)


@pytest.mark.parametrize("rule", [consecutive(3), ratio(0.5), k_of_n(2, 3), slow_ratio(0.5, threshold=1)], ids=str)
def test_a_rule_that_keeps_no_instants_tells_none(rule: TripRule) -> None:
    tally = rule.tally()
    tally.fail(1.0, 9.0)
    assert (tally.failures(1.0), tally.instants(1.0)) == (1, ())


# ratio


class BucketOracle:
    """The bucket rule said the slow way: every result keeps the start of its bucket."""

    def __init__(self, window: float) -> None:
        self.window = window
        self.rows: list[tuple[float, bool]] = []

    def add(self, now: float, against: bool) -> None:
        newest = self.rows[-1][0] if self.rows else -math.inf
        self.rows.append((now if now - newest >= self.window / 10 else newest, against))

    def alive(self, now: float) -> list[bool]:
        return [against for start, against in self.rows if now - start < self.window]


@given(RESULTS, st.integers(1, 10), st.sampled_from([0.1, 0.25, 0.5, 0.7, 1.0]), st.sampled_from([5, 10, 40]))
def test_ratio_agrees_with_a_brute_force_window(
    results: list[tuple[float, bool]], min_calls: int, r: float, window: int
) -> None:
    tally, oracle = ratio(r, min_calls, window).tally(), BucketOracle(window)
    for now, failed in instants(results):
        assert feed(tally, now, failed) == failed
        oracle.add(now, failed)
        alive = oracle.alive(now)
        assert tally.calls(now) == len(alive)
        assert tally.failures(now) == sum(alive)
        assert tally.tripped(now) == (len(alive) >= min_calls and sum(alive) / len(alive) >= r)


def test_a_bucket_leaves_whole_once_its_start_is_a_window_old() -> None:
    tally = ratio(0.5, min_calls=1, window=10).tally()
    for at in (0.0, 0.5, 0.75):
        tally.fail(at, 0.0)
    tally.fail(1.0, 0.0)
    assert tally.failures(9.75) == 4
    assert tally.failures(10.0) == 1
    assert tally.failures(11.0) == 0


def test_ratio_needs_min_calls() -> None:
    tally = ratio(0.5, min_calls=4, window=10).tally()
    for at in range(3):
        tally.fail(float(at), 0.0)
        assert not tally.tripped(float(at))
    tally.fail(3.0, 0.0)
    assert tally.tripped(3.0)


@pytest.mark.parametrize(("failures", "calls", "r"), [(1, 10, 0.1), (3, 10, 0.3), (7, 10, 0.7), (29, 100, 0.29)])
def test_a_rate_exactly_at_the_threshold_trips_without_rounding_trouble(failures: int, calls: int, r: float) -> None:
    tally = ratio(r, min_calls=calls).tally()
    for number in range(calls):
        feed(tally, 1.0, number >= calls - failures)
    assert tally.tripped(1.0)


@given(st.lists(st.floats(0, 1e6), max_size=300))
def test_a_ratio_tally_holds_a_bounded_number_of_buckets(times: list[float]) -> None:
    tally = ratio(0.5, window=60).tally()
    for now in sorted(times):
        tally.succeed(now, 0.0)
        assert len(tally._buckets) <= 11  # type: ignore[attr-defined]


# k of n


@given(RESULTS, st.integers(1, 8), st.integers(0, 8))
def test_k_of_n_agrees_with_the_last_n_results(results: list[tuple[float, bool]], k: int, more: int) -> None:
    n = k + more
    tally, all_results = k_of_n(k, n).tally(), []
    for now, failed in instants(results):
        feed(tally, now, failed)
        all_results.append(failed)
        last = all_results[-n:]
        assert tally.failures(now) == sum(last)
        assert tally.calls(now) == len(last)
        assert tally.tripped(now) == (sum(last) >= k)


def test_k_of_n_does_not_wait_until_n_calls_were_made() -> None:
    tally = k_of_n(2, 100).tally()
    tally.fail(0.0, 0.0)
    tally.fail(0.0, 0.0)
    assert tally.tripped(0.0)


# slow ratio


@given(st.lists(st.tuples(GAPS, st.booleans(), st.booleans()), max_size=60), st.integers(1, 6))
def test_slow_ratio_agrees_with_a_brute_force_window(results: list[tuple[float, bool, bool]], min_calls: int) -> None:
    tally, oracle, now = slow_ratio(0.5, threshold=2, min_calls=min_calls, window=20).tally(), BucketOracle(20), 0.0
    for gap, failed, slow in results:
        now += gap
        assert feed(tally, now, failed, duration=2.5 if slow else 2.0) == slow
        oracle.add(now, slow)
        alive = oracle.alive(now)
        assert tally.tripped(now) == (len(alive) >= min_calls and sum(alive) / len(alive) >= 0.5)


@pytest.mark.parametrize("failed", [True, False])
def test_a_call_over_the_threshold_is_slow_whatever_its_result(failed: bool) -> None:
    tally = slow_ratio(1.0, threshold=60, min_calls=1).tally()
    feed(tally, 0.0, failed, duration=60.5)
    assert tally.tripped(0.0)


@pytest.mark.parametrize("failed", [True, False])
def test_a_call_exactly_at_the_threshold_is_not_slow(failed: bool) -> None:
    tally = slow_ratio(1.0, threshold=60, min_calls=1).tally()
    feed(tally, 0.0, failed, duration=60.0)
    assert not tally.tripped(0.0)


# the values


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: consecutive(0), "consecutive.n"),
        (lambda: consecutive(True), "consecutive.n"),
        (lambda: consecutive(1.5), "consecutive.n"),
        (lambda: count(0), "count.n"),
        (lambda: count(5, window=0), "count.window"),
        (lambda: count(5, window=-1), "count.window"),
        (lambda: count(5, window=math.nan), "count.window"),
        (lambda: count(5, window=math.inf), "count.window"),
        (lambda: count(5, window=True), "count.window"),
        (lambda: count(5, window="60"), "count.window"),
        (lambda: ratio(0), "ratio.r"),
        (lambda: ratio(1.5), "ratio.r"),
        (lambda: ratio(math.nan), "ratio.r"),
        (lambda: ratio(True), "ratio.r"),
        (lambda: ratio(0.5, min_calls=0), "ratio.min_calls"),
        (lambda: ratio(0.5, window=0), "ratio.window"),
        (lambda: k_of_n(0, 5), "k_of_n.k"),
        (lambda: k_of_n(1, 0), "k_of_n.n"),
        (lambda: k_of_n(6, 5), "k_of_n.k"),
        (lambda: slow_ratio(2), "slow_ratio.r"),
        (lambda: slow_ratio(0.5, threshold=0), "slow_ratio.threshold"),
        (lambda: slow_ratio(0.5, min_calls=0), "slow_ratio.min_calls"),
        (lambda: slow_ratio(0.5, window=math.nan), "slow_ratio.window"),
    ],
)
def test_an_impossible_rule_is_refused_with_field_value_and_fix(make: Callable[[], TripRule], field: str) -> None:
    with pytest.raises(PolicyError, match=rf"^{field} must be .*, got .*; use ") as caught:
        make()
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_rule_is_a_frozen_slotted_comparable_value(rule: TripRule) -> None:
    assert pickle.loads(pickle.dumps(rule)) == rule
    assert hash(pickle.loads(pickle.dumps(rule))) == hash(rule)
    assert not hasattr(rule, "__dict__")
    name = dataclasses.fields(rule)[0].name  # type: ignore[arg-type]
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(rule, name, 99)


def test_rules_of_different_kinds_are_different() -> None:
    assert len({*RULES, consecutive(3)}) == len(RULES)


def test_the_text_of_a_rule_is_the_call_that_makes_it() -> None:
    makers = {make.__name__: make for make in (consecutive, count, ratio, k_of_n, slow_ratio)}
    assert all(eval(str(rule), makers) == rule for rule in RULES)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_figures_show_what_was_seen_beside_the_threshold(rule: TripRule) -> None:
    tally = rule.tally()
    assert tally.figures(0.0)["threshold"] > 0
    tally.fail(1.0, 5.0)
    figures = tally.figures(1.0)
    assert figures.get("failures", figures.get("slow")) == 1


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_each_tally_is_separate_and_has_no_dict(rule: TripRule) -> None:
    one, other = rule.tally(), rule.tally()
    one.fail(0.0, 99.0)
    assert (one.failures(0.0), other.failures(0.0)) == (1, 0)
    assert not hasattr(one, "__dict__")


def test_each_rule_says_when_a_success_matters_to_it() -> None:
    assert [rule.heeds_success for rule in RULES] == ["after_failure", "never", "always", "always", "always"]


@given(RESULTS)
def test_a_rule_that_never_heeds_success_tallies_the_same_without_them(
    results: list[tuple[float, bool]],
) -> None:
    with_all, failures_only = count(3, window=10).tally(), count(3, window=10).tally()
    for now, failed in instants(results):
        feed(with_all, now, failed)
        if failed:
            failures_only.fail(now, 0.0)
        assert with_all.figures(now) == failures_only.figures(now)


@given(RESULTS)
def test_a_rule_that_heeds_success_after_a_failure_may_miss_the_others(
    results: list[tuple[float, bool]],
) -> None:
    with_all, sparse, dirty = consecutive(3).tally(), consecutive(3).tally(), False
    for now, failed in instants(results):
        feed(with_all, now, failed)
        if failed or dirty:
            feed(sparse, now, failed)
        dirty = failed
        assert with_all.figures(now) == sparse.figures(now)
