"""The pool: who is available, who is tested, who is told."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.outcome import Evidence
from holdfast.errors import PolicyError
from holdfast.failover.endpoint import Endpoint
from holdfast.failover.member import Shed, Ticket
from holdfast.failover.pool import EndpointPool
from holdfast.failover.tour import Tour
from holdfast.machine.breaker import Breaker, CircuitState
from holdfast.machine.trip import consecutive, count
from holdfast.telemetry.events import CircuitStateChanged
from holdfast.telemetry.hub import Hub
from holdfast.testing.clock import ManualClock

SUCCESS, FAILURE, NEUTRAL = Evidence


def pool_of(clock: ManualClock, *endpoints: Any, **options: Any) -> EndpointPool:
    options = {"choose": "first", "breaker": Breaker(consecutive(1), open_for=10), "rng": lambda: 0.5, **options}
    return EndpointPool(endpoints or ("a", "b", "c"), clock=clock, telemetry=Hub(clock=clock), **options)


def take(pool: EndpointPool, tour: Any = None, *, idempotent: bool = True) -> Ticket:
    ticket = pool.admit(tour, idempotent=idempotent)
    assert isinstance(ticket, Ticket)
    return ticket


def fail(pool: EndpointPool, name: str) -> None:
    """Open an endpoint's circuit."""
    circuit = pool.circuit(name)
    permit = circuit.admit(pool.clock.monotonic())
    circuit.finish(permit, FAILURE, pool.clock.monotonic())  # type: ignore[arg-type]
    assert circuit.state is CircuitState.OPEN


def test_looking_takes_nothing(clock: ManualClock) -> None:
    pool = pool_of(clock)
    fail(pool, "b")
    fail(pool, "c")
    clock.advance(10)
    for _ in range(5):
        assert not pool.waits(Tour())
        pool.snapshot()
    assert {name: circuit.state for name, circuit in pool.circuits().items()} == {"b": "open", "c": "open"}


def test_only_the_chosen_endpoint_is_acquired(clock: ManualClock) -> None:
    pool = pool_of(clock)
    take(pool)
    assert list(pool.circuits()) == ["a"]
    assert [row["in_flight"] for row in pool.snapshot()] == [1, 0, 0]


def test_a_shut_endpoint_is_passed_over(clock: ManualClock) -> None:
    pool = pool_of(clock)
    fail(pool, "a")
    assert take(pool).endpoint.id == "b"


def test_a_due_endpoint_is_tested_even_when_others_are_healthy(clock: ManualClock) -> None:
    pool = pool_of(clock)
    fail(pool, "c")
    clock.advance(10)
    ticket = take(pool)
    assert (ticket.endpoint.id, ticket.is_probe) == ("c", True)
    pool.settle(ticket, SUCCESS)
    assert pool.circuit("c").state is CircuitState.CLOSED


def test_a_recovering_primary_is_tested_while_it_is_down(clock: ManualClock) -> None:
    pool = pool_of(clock)
    fail(pool, "a")
    seen = []
    for _ in range(25):
        ticket = take(pool)
        seen.append(ticket.endpoint.id)
        pool.settle(ticket, FAILURE if ticket.endpoint.id == "a" else SUCCESS)
        clock.advance(1)
    assert seen.count("a") == 2  # once per open time


def test_a_half_open_endpoint_takes_one_call_at_a_time(clock: ManualClock) -> None:
    pool = pool_of(clock, breaker=Breaker(consecutive(1), open_for=10, successes=3, out_of=5))
    fail(pool, "a")
    clock.advance(10)
    probe = take(pool)
    assert probe.endpoint.id == "a"
    assert {take(pool).endpoint.id for _ in range(5)} == {"b"}
    pool.settle(probe, SUCCESS)
    assert take(pool).endpoint.id == "a"


def test_at_most_one_probe_of_the_pool_is_under_way_while_others_are_healthy(clock: ManualClock) -> None:
    pool = pool_of(clock)
    fail(pool, "b")
    fail(pool, "c")
    clock.advance(10)
    probe = take(pool)
    assert probe.is_probe
    assert take(pool).endpoint.id == "a"
    pool.settle(probe, FAILURE)
    assert {take(pool).endpoint.id} == {"b", "c"} - {probe.endpoint.id}


def test_an_endpoint_that_hangs_in_every_test_does_not_keep_the_others_from_theirs(clock: ManualClock) -> None:
    pool = pool_of(clock)
    fail(pool, "b")
    fail(pool, "c")
    clock.advance(10)
    tested = []
    for _ in range(4):
        tested.append(take(pool).endpoint.id)  # never settled
        clock.advance(10)
    assert tested == ["b", "c", "b", "c"]


def test_with_nothing_healthy_several_recovering_endpoints_are_used_at_once(clock: ManualClock) -> None:
    pool = pool_of(clock)
    for name in "abc":
        fail(pool, name)
    clock.advance(10)
    assert {take(pool).endpoint.id for _ in range(3)} == {"a", "b", "c"}
    assert isinstance(pool.admit(), Shed)


def test_a_call_that_cannot_be_repeated_is_no_probe(clock: ManualClock) -> None:
    pool = pool_of(clock, "a", "b")
    fail(pool, "a")
    clock.advance(10)
    assert take(pool, idempotent=False).endpoint.id == "b"
    fail(pool, "b")
    shed = pool.admit(idempotent=False)
    assert isinstance(shed, Shed)
    assert "recovering ones take idempotent calls only" in str(shed)
    assert pool.circuit("a").state is CircuitState.OPEN


def test_a_call_that_cannot_be_repeated_gives_back_a_probe_that_it_got_by_a_race(clock: ManualClock) -> None:
    def meanwhile() -> float:
        if pool.circuit("a").state is CircuitState.CLOSED:
            fail(pool, "a")
            clock.advance(10)
        return 0.0

    pool = pool_of(clock, "a", "b", choose="p2c", rng=meanwhile)
    assert take(pool, idempotent=False).endpoint.id == "b"
    assert take(pool).endpoint.id == "a"


def test_a_call_that_failed_once_prefers_healthy_endpoints_over_testing(clock: ManualClock) -> None:
    pool = pool_of(clock, "a", "b", "c", "d")
    fail(pool, "b")
    fail(pool, "c")
    clock.advance(10)
    tour: Tour[Any] = Tour()
    route = []
    for _ in range(4):
        ticket = take(pool, tour)
        route.append(ticket.endpoint.id)
        pool.settle(ticket, FAILURE)
    assert route == ["b", "a", "d", "c"]


def test_a_neutral_result_returns_the_probes_permit_at_once(clock: ManualClock) -> None:
    pool = pool_of(clock, "a")
    fail(pool, "a")
    clock.advance(10)
    pool.settle(take(pool), NEUTRAL)
    assert take(pool).is_probe
    assert pool.snapshot()[0]["calls"] == 0


def test_a_pool_with_nothing_available_says_when_the_next_test_is(clock: ManualClock) -> None:
    pool = pool_of(clock)
    for name in "abc":
        fail(pool, name)
        clock.advance(2)
    shed = pool.admit()
    assert isinstance(shed, Shed)
    assert shed.retry_after == pytest.approx(4)
    assert [endpoint.id for endpoint in shed.endpoints] == ["a", "b", "c"]


def test_an_isolated_endpoint_promises_no_test(clock: ManualClock) -> None:
    pool = pool_of(clock, "a")
    pool.circuit("a").command("isolate")
    clock.advance(1000)
    shed = pool.admit()
    assert isinstance(shed, Shed)
    assert shed.retry_after is None


def test_a_disabled_breaker_makes_its_endpoint_an_ordinary_one(clock: ManualClock) -> None:
    pool = pool_of(clock)
    fail(pool, "a")
    pool.circuit("a").command("disable")
    ticket = take(pool, idempotent=False)
    assert (ticket.endpoint.id, ticket.is_probe) == ("a", False)


def test_endpoints_come_and_go_with_their_state(clock: ManualClock) -> None:
    pool = pool_of(clock, "a")
    fail(pool, "a")
    pool.add(Endpoint("b", region="eu"))
    assert take(pool).endpoint.id == "b"
    pool.remove("a")
    pool.add("a")
    assert [endpoint.id for endpoint in pool.endpoints] == ["b", "a"]
    assert list(pool.circuits()) == ["b"]
    assert pool.circuit("a").state is CircuitState.CLOSED


def test_a_call_under_way_may_finish_at_an_endpoint_that_was_removed(clock: ManualClock) -> None:
    pool = pool_of(clock, "a")
    ticket = take(pool)
    pool.remove("a")
    pool.settle(ticket, FAILURE)
    assert pool.snapshot() == []
    shed = pool.admit()
    assert isinstance(shed, Shed)
    assert str(shed) == "the pool has no endpoints"


def test_an_id_that_is_taken_or_unknown_is_refused(clock: ManualClock) -> None:
    pool = pool_of(clock, "a")
    with pytest.raises(PolicyError, match="has an endpoint 'a' already"):
        pool.add("a")
    with pytest.raises(KeyError, match="no endpoint 'z'"):
        pool.remove("z")
    with pytest.raises(KeyError):
        pool.circuit("z")


def test_scores_follow_the_last_calls_of_each_endpoint(clock: ManualClock) -> None:
    pool = pool_of(clock, "a", Endpoint("b", region="eu"), "c", breaker=Breaker(count(1000)), region="eu")
    for name, seconds, evidence in [("a", 4, SUCCESS), ("b", 2, SUCCESS), ("b", 2, FAILURE)]:
        tour: Tour[Any] = Tour()
        while (ticket := take(pool, tour)).endpoint.id != name:
            pool.settle(ticket, NEUTRAL)
        clock.advance(seconds)
        pool.settle(ticket, evidence)
    assert pool.scores() == pytest.approx({"a": 0.7, "b": (0.7 * 0.5 + 0.3 * 0.5) * 1.1, "c": 0.65})


def test_best_goes_to_the_highest_score(clock: ManualClock) -> None:
    pool = pool_of(clock, choose="best", breaker=Breaker(count(1000)))
    pool.settle(take(pool), FAILURE)
    assert take(pool).endpoint.id == "b"


def test_the_snapshot_shows_every_endpoint(clock: ManualClock) -> None:
    pool = pool_of(clock, Endpoint("a", region="eu", weight=2), "b")
    fail(pool, "b")
    changed = clock.wall()
    ticket = take(pool)
    clock.advance(3)
    pool.settle(ticket, SUCCESS)
    first, second = pool.snapshot()
    assert first == {
        "id": "a", "region": "eu", "weight": 2, "state": "closed", "available": True, "retry_after": None,
        "failure_count": 0, "last_state_change": changed, "in_flight": 0, "calls": 1, "success_rate": 1.0,
        "latency": 3.0, "score": 0.7,
    }  # fmt: skip
    assert (second["state"], second["available"], second["retry_after"]) == ("open", False, 7)
    assert (second["success_rate"], second["latency"], second["last_state_change"]) == (None, None, changed)


def test_a_listener_of_the_pool_hears_its_circuits_and_telemetry_does_too(clock: ManualClock) -> None:
    hub, all_events, of_pool = Hub(clock=clock), [], []
    hub.register(lambda event: all_events.append(event))
    one = EndpointPool(["a"], clock=clock, telemetry=hub, breaker=Breaker(consecutive(1)))
    other = EndpointPool(["b"], clock=clock, telemetry=hub, breaker=Breaker(consecutive(1)))
    one.listen(lambda event: of_pool.append(event))
    fail(one, "a")
    fail(other, "b")
    assert [(type(event), event.name) for event in all_events] == [
        (CircuitStateChanged, "a"),
        (CircuitStateChanged, "b"),
    ]
    assert [event.name for event in of_pool] == ["a"]


def test_active_trials_use_the_same_permits(clock: ManualClock) -> None:
    pool = pool_of(clock)
    for name in "abc":
        fail(pool, name)
    clock.advance(10)
    tested = []
    for trial in pool.trials():
        with trial as endpoint:
            tested.append(endpoint.id)
            if endpoint.id == "b":
                raise OSError("still down")
            if endpoint.id == "c":
                assert isinstance(pool.admit(Tour(limit=None), idempotent=True), Ticket)  # only a is open to callers
    assert tested == ["a", "b", "c"]
    assert [row["state"] for row in pool.snapshot()] == ["closed", "open", "closed"]


def test_a_trial_that_is_cancelled_or_not_entered_gives_its_permit_back(clock: ManualClock) -> None:
    pool = pool_of(clock, "a")
    fail(pool, "a")
    clock.advance(10)
    with pytest.raises(KeyboardInterrupt):
        for trial in pool.trials():
            with trial:
                raise KeyboardInterrupt
    for _trial in pool.trials():
        pass
    with pytest.raises(RuntimeError, match="entered once"):
        _trial.__enter__()
    assert take(pool).is_probe
    assert list(pool.trials()) == []


def test_unbound_pools_take_the_first_guards_ports_and_keep_them(clock: ManualClock) -> None:
    pool = EndpointPool(["a"])
    pool.bind(clock, lambda: 0.5, Hub(clock=clock))
    pool.bind(ManualClock(), lambda: 0.1, Hub())
    assert pool.clock is clock


def test_many_threads_never_share_a_probe(clock: ManualClock) -> None:
    pool = pool_of(clock, "a")
    fail(pool, "a")
    clock.advance(10)
    start, admitted = threading.Barrier(8), []

    def ask() -> None:
        start.wait()
        admitted.extend(ticket for _ in range(50) if isinstance(ticket := pool.admit(), Ticket))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(admitted) == 1


STEP = st.one_of(
    st.tuples(st.just("admit"), st.booleans()),
    st.tuples(st.just("settle"), st.sampled_from(list(Evidence))),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 4.0, 10.0])),
)


@given(
    steps=st.lists(STEP, max_size=80),
    size=st.integers(1, 4),
    how=st.sampled_from(["first", "best", "weighted", "p2c"]),
    successes=st.integers(1, 3),
    draws=st.randoms(use_true_random=False),
)
def test_in_any_history_no_endpoint_has_two_probes_and_no_available_one_is_missed(
    steps: list[tuple[str, Any]], size: int, how: str, successes: int, draws: Any
) -> None:
    clock = ManualClock()
    names = [f"e{i}" for i in range(size)]
    policy = Breaker(count(2, window=30), open_for=10, successes=successes, out_of=successes + 1)
    pool = pool_of(clock, *names, choose=how, breaker=policy, rng=draws.random)
    out: list[Ticket] = []
    for step, value in steps:
        if step == "wait":
            clock.advance(value)
        elif step == "settle" and out:
            pool.settle(out.pop(draws.randrange(len(out))), value)
        elif step == "admit":
            usable = {row["id"] for row in pool.snapshot() if row["available"] and (value or row["state"] == "closed")}
            answer = pool.admit(idempotent=value)
            assert isinstance(answer, Ticket) == bool(usable)
            if isinstance(answer, Ticket):
                assert answer.endpoint.id in usable
                assert value or not answer.is_probe
                out.append(answer)
        now = clock.monotonic()
        for name, circuit in pool.circuits().items():
            held = [t for t in out if t.endpoint.id == name and t.permit.lease is not None and t.permit.lease > now]
            current = [t for t in held if t.permit.generation == circuit.generation]
            assert len(current) <= 1
    for ticket in out:
        pool.settle(ticket, NEUTRAL)
    assert all(row["in_flight"] == 0 for row in pool.snapshot())


@given(
    size=st.integers(1, 5),
    per_endpoint=st.integers(1, 3),
    limit=st.none() | st.integers(1, 5),
    attempts=st.integers(1, 20),
    draws=st.randoms(use_true_random=False),
)
def test_no_endpoint_is_visited_again_before_all_had_their_turn(
    size: int, per_endpoint: int, limit: int | None, attempts: int, draws: Any
) -> None:
    clock = ManualClock()
    pool = pool_of(clock, *(f"e{i}" for i in range(size)), choose="p2c", breaker=Breaker(count(1000)), rng=draws.random)
    tour: Tour[Any] = Tour(per_endpoint, limit)
    route: list[str] = []
    for _ in range(attempts):
        ticket = take(pool, tour)
        route.append(ticket.endpoint.id)
        pool.settle(ticket, FAILURE)
    visits = [route[i] for i in range(0, attempts, per_endpoint)]
    assert all(len(set(route[i : i + per_endpoint])) == 1 for i in range(0, attempts, per_endpoint))
    usable = size if limit is None else min(size, limit)
    for i in range(0, len(visits), usable):
        assert len(set(visits[i : i + usable])) == len(visits[i : i + usable])
    assert len(set(visits)) <= usable
    if usable > 1:
        assert all(one != following for one, following in pairwise(visits))
