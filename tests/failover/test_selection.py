"""Scores and choices."""

from __future__ import annotations

import random
from collections import Counter
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import PolicyError
from holdfast.failover.endpoint import Endpoint, Statistics
from holdfast.failover.selection import Choose, check_choice, pick, score


def choose(
    how: str, scores: dict[str, float], draws: list[float] | None = None, weights: dict[str, float] | None = None
) -> str:
    rng = cycle(draws or [0.0])
    return pick(Choose(how), list(scores), scores.__getitem__, (weights or {}).__getitem__, lambda: next(rng))


def test_the_score_weighs_success_rate_and_latency() -> None:
    assert score(1.0, 0.0, 2.0) == pytest.approx(1.0)
    assert score(1.0, 2.0, 2.0) == pytest.approx(0.7)
    assert score(0.5, 1.0, 2.0) == pytest.approx(0.35 + 0.15)


def test_without_history_the_rate_is_a_half_and_the_latency_nothing() -> None:
    unknown = Statistics()
    assert score(unknown.success_rate, unknown.latency, 3.0) == pytest.approx(0.65)
    assert score(unknown.success_rate, unknown.latency, 0.0) == pytest.approx(0.65)


def test_the_home_region_counts_a_tenth_more_up_to_one() -> None:
    assert score(0.5, 1.0, 2.0, at_home=True) == pytest.approx(0.55)
    assert score(1.0, 0.0, 2.0, at_home=True) == 1.0


@given(rate=st.floats(0, 1), latency=st.floats(0, 100), more=st.floats(0, 100), home=st.booleans())
def test_a_score_is_always_between_zero_and_one(rate: float, latency: float, more: float, home: bool) -> None:
    assert 0 <= score(rate, latency, latency + more, home) <= 1


def test_statistics_cover_the_last_hundred_calls() -> None:
    seen = Statistics()
    for _ in range(100):
        seen.add(False, 9.0)
    for _ in range(50):
        seen.add(True, 1.0)
    assert (seen.calls, seen.success_rate, seen.latency) == (100, 0.5, 5.0)
    for _ in range(50):
        seen.add(True, 1.0)
    assert (seen.success_rate, seen.latency) == (1.0, 1.0)


def test_first_takes_the_list_order() -> None:
    assert choose("first", {"a": 0.1, "b": 0.9}) == "a"


def test_best_takes_the_highest_score_and_ties_go_to_the_first() -> None:
    assert choose("best", {"a": 0.1, "b": 0.9, "c": 0.9}) == "b"


def test_p2c_takes_the_better_of_two_random_ones() -> None:
    scores = {"a": 0.1, "b": 0.5, "c": 0.9}
    assert choose("p2c", scores, [0.0, 0.4]) == "b"
    assert choose("p2c", scores, [0.9, 0.4]) == "c"
    assert choose("p2c", scores, [0.0, 0.1]) == "a"


def test_p2c_ties_go_to_the_earlier_one_whatever_the_draw() -> None:
    scores = {"a": 0.5, "b": 0.5}
    assert choose("p2c", scores, [0.9, 0.0]) == choose("p2c", scores, [0.0, 0.9]) == "a"


def test_p2c_does_not_herd_even_in_a_pool_of_two() -> None:
    rng = random.Random(7).random
    scores = {"a": 0.9, "b": 0.1}
    chosen = Counter(pick(Choose.P2C, list(scores), scores.__getitem__, lambda _: 1.0, rng) for _ in range(4000))
    assert chosen["b"] / 4000 == pytest.approx(0.25, abs=0.03)


def test_weighted_follows_the_weights() -> None:
    rng = random.Random(7).random
    weights = {"a": 3.0, "b": 1.0, "reserve": 0.0}
    chosen = Counter(pick(Choose.WEIGHTED, list(weights), lambda _: 0.5, weights.__getitem__, rng) for _ in range(4000))
    assert chosen["a"] / 4000 == pytest.approx(0.75, abs=0.03)
    assert "reserve" not in chosen


def test_a_reserve_of_weight_zero_is_taken_when_nothing_else_is_left() -> None:
    assert choose("weighted", {"r1": 0.5, "r2": 0.5}, [0.99], {"r1": 0.0, "r2": 0.0}) == "r1"


@given(
    how=st.sampled_from(list(Choose)),
    size=st.integers(1, 6),
    draws=st.lists(st.floats(0, 1, exclude_max=True), min_size=1),
)
def test_every_choice_is_one_of_the_candidates(how: Choose, size: int, draws: list[float]) -> None:
    names = [f"e{i}" for i in range(size)]
    scores = dict.fromkeys(names, 0.5)
    assert choose(how, scores, draws, dict.fromkeys(names, 1.0)) in names


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"EndpointPool.choose must be one of first, best, weighted, p2c, got 'luck'"):
        check_choice("luck")


def test_a_url_becomes_an_endpoint_named_by_host_and_port() -> None:
    endpoint = Endpoint.of("http://user:secret@proxy.example:3128/path")
    assert (endpoint.id, endpoint.url) == ("proxy.example:3128", "http://user:secret@proxy.example:3128/path")
    assert str(endpoint) == "proxy.example:3128"
    assert "secret" not in repr(endpoint)


def test_a_name_becomes_an_endpoint_without_url() -> None:
    assert Endpoint.of("primary") == Endpoint("primary")
    assert Endpoint.of(Endpoint("b", region="eu")).region == "eu"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"id": ""}, "Endpoint.id must be a name, got ''"),
        ({"id": "a", "weight": -1}, "Endpoint.weight must be .*got -1"),
        ({"id": "a", "weight": float("inf")}, "Endpoint.weight must be .*got inf"),
        ({"id": "a", "weight": True}, "Endpoint.weight must be .*got True"),
    ],
)
def test_an_impossible_endpoint_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        Endpoint(**options)  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match="an endpoint must be"):
        Endpoint.of(7)  # type: ignore[arg-type]
