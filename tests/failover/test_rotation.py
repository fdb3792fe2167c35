"""ProxyRotator: the request flow of the contract, in both colours."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.core.outcome import OutcomeKind, Verdict
from holdfast.errors import GuardTimeout, PolicyError, PoolExhausted
from holdfast.failover.endpoint import Endpoint
from holdfast.failover.pool import EndpointPool
from holdfast.failover.rotation import ProxyRotator
from holdfast.guard.guard import Guard
from holdfast.guard.retry_policy import RetryPolicy
from holdfast.machine.breaker import Breaker, CircuitState
from holdfast.machine.retry import Retry
from holdfast.machine.trip import consecutive, count
from holdfast.telemetry.attempts import RetryAttempt, RetryMetrics
from holdfast.telemetry.events import AttemptCompleted, CallCompleted
from holdfast.telemetry.hub import Hub
from holdfast.testing.clock import ManualClock
from tests.guard.colours import Interrupted


class Response:
    def __init__(self, status: int, **headers: str) -> None:
        self.status_code = status
        self.headers = headers
        self.closed = False

    def close(self) -> None:
        self.closed = True


class ReadTimeout(Exception):
    """Like the timeouts of HTTP libraries: no TimeoutError."""


class Via:
    """A rotator as the colours' helpers call a guard: `colour.call(via, fn, ...)`."""

    def __init__(self, rotator: ProxyRotator) -> None:
        self.call = rotator.request
        self.acall = rotator.arequest


class Net:
    """The proxies' behaviour: per proxy a list of steps, one per request (the last repeats)."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.steps: dict[str, list[Any]] = {}
        self.sent: list[str] = []

    def answer(self, proxy: Endpoint) -> tuple[float, Any]:
        self.sent.append(proxy.id)
        steps = self.steps.get(proxy.id, [Response(200)])
        step = steps.pop(0) if len(steps) > 1 else steps[0]
        return step if isinstance(step, tuple) else (0.0, step)

    def sender(self, colour: Any) -> Callable[..., Any]:
        def send(proxy: Endpoint, *args: Any) -> Any:
            seconds, answer = self.answer(proxy)
            if seconds:
                yield colour.sleep(self.clock, seconds)
            if isinstance(answer, BaseException):
                raise answer
            return answer

        return colour.fn(send)  # type: ignore[no-any-return]


@pytest.fixture
def net(clock: ManualClock) -> Net:
    return Net(clock)


@pytest.fixture
def rotator_of(clock: ManualClock, hub: Hub) -> Callable[..., ProxyRotator]:
    def make(policy: RetryPolicy | None = None, *, endpoints: Any = ("a", "b", "c"), **options: Any) -> ProxyRotator:
        options = {"choose": "first", "breaker": Breaker(count(1), open_for=10), **options}
        return ProxyRotator(endpoints, policy, clock=clock, telemetry=hub, rng=lambda: 0.5, **options)

    return make


def records(rotator: ProxyRotator) -> list[RetryAttempt]:
    return list(rotator.metrics.current_attempts)


def states(rotator: ProxyRotator) -> dict[str, str]:
    return {row["id"]: row["state"] for row in rotator.pool.snapshot()}


def test_a_request_is_sent_through_a_proxy_with_its_arguments(colour, rotator_of) -> None:
    seen: list[Any] = []
    send = colour.fn(lambda proxy, url, **options: seen.append((proxy.id, url, options)) or Response(200))
    response = colour.call(Via(rotator_of()), send, "https://example.org/", timeout=3)
    assert response.status_code == 200
    assert seen == [("a", "https://example.org/", {"timeout": 3})]


def test_a_retryable_status_goes_to_the_next_proxy(colour, rotator_of, net, clock) -> None:
    rotator = rotator_of()
    bad = Response(503)
    net.steps = {"a": [bad]}
    response = colour.call(Via(rotator), net.sender(colour))
    assert (response.status_code, net.sent, clock.slept) == (200, ["a", "b"], [])
    assert (bad.closed, response.closed) == (True, False)
    assert states(rotator) == {"a": "open", "b": "closed", "c": "closed"}
    assert [(one.attempt_number, one.proxy_id, one.outcome, one.status_code) for one in records(rotator)] == [
        (0, "a", "failure", 503),
        (1, "b", "success", 200),
    ]


def test_after_the_last_attempt_the_failing_response_is_returned(colour, rotator_of, net) -> None:
    net.steps = {name: [Response(502)] for name in "abc"}
    response = colour.call(Via(rotator_of()), net.sender(colour))
    assert (response.status_code, response.closed, net.sent) == (502, False, ["a", "b", "c"])


def test_after_the_last_attempt_the_last_exception_is_raised_as_itself(colour, rotator_of, net) -> None:
    last = ConnectionResetError("c")
    net.steps = {"a": [OSError("a")], "b": [OSError("b")], "c": [last]}
    with pytest.raises(ConnectionResetError) as caught:
        colour.call(Via(rotator_of()), net.sender(colour))
    assert caught.value is last


@pytest.mark.parametrize("status", [200, 204, 301, 400, 404, 429, 500, 501])
def test_any_other_status_is_returned_and_shows_that_the_proxy_lives(colour, rotator_of, net, status) -> None:
    rotator = rotator_of()
    net.steps = {"a": [Response(status)]}
    assert colour.call(Via(rotator), net.sender(colour)).status_code == status
    assert (net.sent, states(rotator)["a"]) == (["a"], "closed")
    assert [(one.outcome, one.status_code) for one in records(rotator)] == [("success", status)]
    assert rotator.pool.snapshot()[0]["success_rate"] == 1.0


def test_429_with_retry_after_waits_as_told_and_counts_as_alive(colour, rotator_of, net, clock) -> None:
    rotator = rotator_of()
    net.steps = {"a": [Response(429, **{"Retry-After": "4"})]}
    assert colour.call(Via(rotator), net.sender(colour)).status_code == 200
    assert (net.sent, clock.slept, states(rotator)["a"]) == (["a", "b"], [4], "closed")
    assert [(one.outcome, one.status_code, one.delay_before) for one in records(rotator)] == [
        ("failure", 429, 0),
        ("success", 200, 4),
    ]


@pytest.mark.parametrize("status", [401, 407])
def test_auth_failures_are_returned_without_a_switch_and_count_for_nothing(colour, rotator_of, net, status) -> None:
    rotator = rotator_of()
    net.steps = {"a": [Response(status)]}
    assert colour.call(Via(rotator), net.sender(colour)).status_code == status
    assert (net.sent, states(rotator)["a"]) == (["a"], "closed")
    assert [(one.outcome, one.status_code) for one in records(rotator)] == [("failure", status)]
    assert rotator.pool.snapshot()[0]["calls"] == 0


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ConnectionRefusedError("refused"), "failure"),
        (RuntimeError("protocol violation"), "failure"),
        (TimeoutError("slow"), "timeout"),
        (ReadTimeout("slow"), "timeout"),
    ],
)
def test_network_errors_and_timeouts_are_retried_and_counted(colour, rotator_of, net, error, outcome) -> None:
    rotator = rotator_of()
    net.steps = {"a": [error]}
    assert colour.call(Via(rotator), net.sender(colour)).status_code == 200
    assert (net.sent, states(rotator)["a"]) == (["a", "b"], "open")
    assert [one.outcome for one in records(rotator)] == [outcome, "success"]
    assert records(rotator)[0].reason == type(error).__name__


def test_a_programming_error_is_raised_at_once_and_counts_for_nothing(colour, rotator_of, net) -> None:
    rotator = rotator_of()
    net.steps = {"a": [TypeError("bug")]}
    with pytest.raises(TypeError):
        colour.call(Via(rotator), net.sender(colour))
    assert (net.sent, states(rotator)["a"]) == (["a"], "closed")


def test_an_error_that_carries_a_response_counts_like_it(colour, rotator_of, net) -> None:
    rotator = rotator_of()
    unavailable, missing = RuntimeError("503"), RuntimeError("404")
    unavailable.response = Response(503)  # type: ignore[attr-defined]
    missing.response = Response(404)  # type: ignore[attr-defined]
    net.steps = {"a": [unavailable], "b": [missing]}
    with pytest.raises(RuntimeError, match="404"):
        colour.call(Via(rotator), net.sender(colour))
    assert states(rotator) == {"a": "open", "b": "closed", "c": "closed"}
    assert [one.status_code for one in records(rotator)] == [503, 404]


@pytest.mark.parametrize("method", ["POST", "patch", "CONNECT"])
def test_a_non_idempotent_request_gets_one_attempt_and_its_failing_response(colour, rotator_of, net, method) -> None:
    rotator = rotator_of()
    net.steps = {"a": [Response(503)]}
    response = colour.call(Via(rotator), net.sender(colour), method=method)
    assert (response.status_code, response.closed, net.sent) == (503, False, ["a"])
    assert states(rotator)["a"] == "open"
    assert [(one.outcome, one.status_code) for one in records(rotator)] == [("failure", 503)]


def test_a_non_idempotent_request_keeps_the_type_of_its_exception(colour, rotator_of, net) -> None:
    net.steps = {"a": [ConnectionResetError("half way")]}
    with pytest.raises(ConnectionResetError):
        colour.call(Via(rotator_of()), net.sender(colour), method="POST")
    assert net.sent == ["a"]


def test_a_non_idempotent_request_that_never_left_may_go_elsewhere(colour, rotator_of, net) -> None:
    net.steps = {"a": [ConnectionRefusedError("nobody there")]}
    assert colour.call(Via(rotator_of()), net.sender(colour), method="POST").status_code == 200
    assert net.sent == ["a", "b"]


@pytest.mark.parametrize("method", ["GET", "head", "OPTIONS", "trace", "PUT", "Delete"])
def test_idempotent_methods_are_retried_in_any_case(colour, rotator_of, net, method) -> None:
    net.steps = {"a": [Response(503)]}
    assert colour.call(Via(rotator_of()), net.sender(colour), method=method).status_code == 200


def test_an_idempotency_key_makes_any_request_repeatable(colour, rotator_of, net) -> None:
    net.steps = {"a": [Response(503)]}
    assert colour.call(Via(rotator_of()), net.sender(colour), method="POST", idempotency_key="k1").status_code == 200


def test_retry_non_idempotent_lifts_the_rule(colour, rotator_of, net) -> None:
    net.steps = {"a": [Response(503)]}
    rotator = rotator_of(RetryPolicy(retry_non_idempotent=True))
    assert colour.call(Via(rotator), net.sender(colour), method="POST").status_code == 200


def test_a_request_that_may_be_repeated_by_policy_may_also_be_a_probe(colour, rotator_of, net, clock) -> None:
    rotator = rotator_of(endpoints=("a",))
    rotator.pool.circuit("a").command("trip")
    clock.advance(10)
    with pytest.raises(PoolExhausted):
        colour.call(Via(rotator), net.sender(colour), method="POST")
    lifted = RetryPolicy(retry_non_idempotent=True)
    assert colour.call(Via(rotator), net.sender(colour), method="POST", policy=lifted).status_code == 200


def test_a_request_may_bring_its_own_policy_and_none_means_the_rotators(colour, rotator_of, net) -> None:
    rotator = rotator_of(RetryPolicy(max_attempts=2), breaker=Breaker(count(100)))
    net.steps = {name: [Response(503), Response(500)] for name in "abc"}
    colour.call(Via(rotator), net.sender(colour), policy=None)
    assert net.sent == ["a", "b"]
    net.sent.clear()
    net.steps = {name: [Response(503)] for name in "abc"}
    colour.call(Via(rotator), net.sender(colour), policy=RetryPolicy(max_attempts=1))
    assert net.sent == ["a"]
    net.sent.clear()
    net.steps = {name: [Response(500)] for name in "abc"}
    own = RetryPolicy(max_attempts=3, retry_status_codes=[500])
    colour.call(Via(rotator), net.sender(colour), policy=own)
    assert net.sent == ["a", "b", "c"]
    assert {one.policy_id for one in records(rotator)} == {"global", "request"}


def test_a_new_policy_is_for_new_requests_only(colour, rotator_of, net) -> None:
    rotator = rotator_of(RetryPolicy(max_attempts=3))
    answers: list[Any] = []

    def send(proxy: Endpoint) -> Response:
        rotator.policy = RetryPolicy(max_attempts=1)
        answers.append(proxy.id)
        return Response(503)

    fn = colour.fn(send)
    colour.call(Via(rotator), fn)
    assert answers == ["a", "b", "c"]
    rotator.circuit_breakers["a"].reset()
    answers.clear()
    colour.call(Via(rotator), fn)
    assert answers == ["a"]


def test_backoff_comes_only_with_the_second_visit(colour, rotator_of, net, clock) -> None:
    rotator = rotator_of(RetryPolicy(max_attempts=5), endpoints=("a", "b"), breaker=Breaker(count(100)))
    net.steps = {name: [Response(503)] for name in "ab"}
    colour.call(Via(rotator), net.sender(colour))
    assert clock.slept == [2, 4, 8]
    assert [one.delay_before for one in records(rotator)] == [0, 0, 2, 4, 8]


def test_one_timeout_covers_all_rounds_and_names_the_result(colour, rotator_of, net, clock) -> None:
    rotator = rotator_of(RetryPolicy(max_attempts=10, timeout=10), breaker=Breaker(count(100)))
    net.steps = {name: [(4.0, OSError(f"{name} is down"))] for name in "abc"}
    began = clock.monotonic()
    with pytest.raises(GuardTimeout) as caught:
        colour.call(Via(rotator), net.sender(colour))
    assert clock.monotonic() - began == pytest.approx(10 if colour.is_async else 12)
    assert isinstance(caught.value.__cause__, OSError)
    assert net.sent == ["a", "b", "c"]
    assert [one.outcome for one in records(rotator)][:2] == ["failure", "failure"]
    if colour.is_async:
        assert records(rotator)[2].outcome == "timeout"


def test_a_backoff_that_does_not_fit_the_timeout_is_not_slept_away(colour, rotator_of, net, clock) -> None:
    rotator = rotator_of(
        RetryPolicy(max_attempts=5, base_delay=20, timeout=10), endpoints=("a",), breaker=Breaker(count(9))
    )
    net.steps = {"a": [OSError("down")]}
    with pytest.raises(GuardTimeout):
        colour.call(Via(rotator), net.sender(colour))
    assert clock.slept == []


def test_a_running_attempt_is_bound_by_the_timeout(colour, rotator_of, net, clock) -> None:
    rotator = rotator_of(RetryPolicy(timeout=10))
    late = Response(200)
    net.steps = {"a": [(25.0, late)]}
    began = clock.monotonic()
    with pytest.raises(GuardTimeout):
        colour.call(Via(rotator), net.sender(colour))
    if colour.is_async:
        assert clock.monotonic() - began == pytest.approx(10)
    else:
        assert late.closed
    assert [one.outcome for one in records(rotator)] == ["timeout"]
    assert states(rotator)["a"] == "open"


def test_with_abandon_a_sync_caller_returns_on_time() -> None:
    metrics = RetryMetrics()
    rotator = ProxyRotator(["a"], RetryPolicy(timeout=0.05), abandon=True, metrics=metrics, telemetry=Hub())
    release = threading.Event()
    with pytest.raises(GuardTimeout):
        rotator.request(lambda proxy: release.wait(10))
    release.set()


def test_nothing_available_is_refused_at_once_with_a_record_per_proxy(colour, rotator_of, net, clock) -> None:
    rotator = rotator_of(endpoints=("a", "b"))
    net.steps = {name: [Response(503)] for name in "ab"}
    with pytest.raises(PoolExhausted) as first:
        colour.call(Via(rotator), net.sender(colour))
    assert (net.sent, clock.slept) == (["a", "b"], [])
    clock.advance(3)
    net.sent.clear()
    before = len(records(rotator))
    with pytest.raises(PoolExhausted) as caught:
        colour.call(Via(rotator), net.sender(colour))
    assert (net.sent, caught.value.retry_after) == ([], pytest.approx(7))
    assert [(one.proxy_id, one.outcome, one.attempt_number) for one in records(rotator)[before:]] == [
        ("a", "circuit_open", 0),
        ("b", "circuit_open", 0),
    ]
    assert "after 2 rounds" in str(first.value)


def test_attempt_numbers_run_through_the_whole_request(colour, rotator_of, net, clock) -> None:
    rotator = rotator_of(RetryPolicy(max_attempts=4), breaker=Breaker(count(100)), attempts_per_endpoint=2)
    net.steps = {name: [(1.5, Response(503))] for name in "abc"}
    colour.call(Via(rotator), net.sender(colour))
    seen = records(rotator)
    assert [(one.attempt_number, one.failover_round, one.proxy_id) for one in seen] == [
        (0, 0, "a"), (1, 0, "a"), (2, 1, "b"), (3, 1, "b"),
    ]  # fmt: skip
    assert len({one.request_id for one in seen}) == 1
    assert [one.latency for one in seen] == [1.5] * 4
    assert rotator.metrics.get_summary()["total_requests"] == 1


def test_no_more_proxies_are_used_than_allowed(colour, rotator_of, net) -> None:
    rotator = rotator_of(RetryPolicy(max_attempts=4), breaker=Breaker(count(100)), max_proxy_attempts=2)
    net.steps = {name: [Response(503)] for name in "abc"}
    colour.call(Via(rotator), net.sender(colour))
    assert net.sent == ["a", "b", "a", "b"]


def test_circuit_events_are_recorded_open_to_half_open_included(colour, rotator_of, net, clock) -> None:
    rotator = rotator_of(endpoints=("a",))
    net.steps = {"a": [Response(503), Response(200)]}
    with pytest.raises(PoolExhausted):
        colour.call(Via(rotator), net.sender(colour))
    clock.advance(10)
    colour.call(Via(rotator), net.sender(colour))
    events = rotator.metrics.circuit_breaker_events
    assert [(one.proxy_id, one.from_state, one.to_state) for one in events] == [
        ("a", "closed", "open"), ("a", "open", "half_open"), ("a", "half_open", "closed"),
    ]  # fmt: skip
    assert rotator.metrics.get_by_proxy()["a"]["circuit_breaker_opens"] == 1


def test_metrics_belong_to_one_rotator_even_on_a_shared_hub(colour, rotator_of, net) -> None:
    one, other = rotator_of(), rotator_of(endpoints=("x",))
    net.steps = {"a": [Response(503)]}
    colour.call(Via(one), net.sender(colour))
    colour.call(Via(other), net.sender(colour))
    assert [record.proxy_id for record in records(one)] == ["a", "b"]
    assert [record.proxy_id for record in records(other)] == ["x"]
    assert other.metrics.circuit_breaker_events == []


def test_telemetry_hears_of_requests_and_attempts_too(colour, rotator_of, net, recorder, hub) -> None:
    hub.register(recorder)
    net.steps = {"a": [Response(503)]}
    colour.call(Via(rotator_of()), net.sender(colour))
    assert len(recorder.of(CallCompleted)) == 1
    assert [one.endpoint for one in recorder.of(AttemptCompleted)] == ["a", "b"]


def test_a_request_that_is_being_retried_is_visible_while_it_waits(colour, rotator_of, net) -> None:
    rotator = rotator_of(endpoints=("a",), breaker=Breaker(count(100)))
    live: list[Any] = []

    def send(proxy: Endpoint) -> Response:
        live.append([(one["attempt_number"], one["proxy_id"]) for one in rotator.metrics.get_live()])
        return Response(503)

    colour.call(Via(rotator), colour.fn(send))
    assert live == [[], [(1, "a")], [(2, "a")]]
    assert rotator.metrics.get_live() == []


def test_an_interrupted_request_counts_for_nothing(colour, rotator_of, net) -> None:
    rotator = rotator_of()
    net.steps = {"a": [Interrupted()]}
    with pytest.raises(Interrupted):
        colour.call(Via(rotator), net.sender(colour))
    assert (records(rotator), states(rotator)["a"], rotator.metrics.get_live()) == ([], "closed", [])


def test_the_breakers_of_used_proxies_can_be_seen_and_reset(colour, rotator_of, net) -> None:
    rotator = rotator_of(breaker=Breaker(count(1), open_for=10))
    assert rotator.circuit_breakers == {}
    net.steps = {"a": [Response(503)]}
    colour.call(Via(rotator), net.sender(colour))
    breakers = rotator.circuit_breakers
    assert {name: breaker.state for name, breaker in breakers.items()} == {"a": "open", "b": "closed"}
    assert rotator.circuit_breakers["a"] is breakers["a"]
    breakers["a"].reset()
    assert states(rotator)["a"] == CircuitState.CLOSED
    rotator.remove("a")
    rotator.add("a")
    assert list(rotator.circuit_breakers) == ["b"]


def test_proxies_may_be_given_as_urls_with_credentials_that_never_show(colour, rotator_of, net) -> None:
    rotator = rotator_of(endpoints=("http://user:secret@one:3128", "http://user:secret@two:3128"))
    net.steps = {"one:3128": [Response(503)]}
    urls: list[str | None] = []

    def send(proxy: Endpoint) -> Response:
        urls.append(proxy.url)
        return net.answer(proxy)[1]  # type: ignore[no-any-return]

    colour.call(Via(rotator), colour.fn(send))
    assert urls == ["http://user:secret@one:3128", "http://user:secret@two:3128"]
    assert "secret" not in repr(records(rotator)) + repr(rotator.pool.snapshot()) + repr(rotator.pool.endpoints)


def test_an_own_classifier_decides_instead(colour, rotator_of, net) -> None:
    rotator = rotator_of(
        result_classifier=lambda response: (
            Verdict(OutcomeKind.TRANSIENT_FAILURE) if response.status_code == 418 else None
        ),
        classify=lambda error: OutcomeKind.TERMINAL_FAILURE,
    )
    net.steps = {"a": [Response(418)], "b": [OSError("down")]}
    with pytest.raises(OSError, match="down"):
        colour.call(Via(rotator), net.sender(colour))
    assert net.sent == ["a", "b"]


def test_a_rotator_may_share_a_pool_with_others(colour, clock, hub, net) -> None:
    pool = EndpointPool(["a", "b"], choose="first", breaker=Breaker(consecutive(1)), clock=clock, telemetry=hub)
    one, other = (ProxyRotator(pool, clock=clock, telemetry=hub, name=name) for name in ("one", "other"))
    net.steps = {"a": [Response(503)]}
    colour.call(Via(one), net.sender(colour))
    net.sent.clear()
    colour.call(Via(other), net.sender(colour))
    assert net.sent == ["b"]
    assert len(other.metrics.circuit_breaker_events) == 1


def test_inside_another_retry_the_rotator_makes_one_attempt_and_defers(colour, rotator_of, net, clock, hub) -> None:
    rotator = rotator_of(breaker=Breaker(count(100)))
    net.steps = {name: [OSError("down")] for name in "abc"}
    send = net.sender(colour)
    outer = Guard("outer", Retry(attempts=2, base=0), clock=clock, telemetry=hub)

    def body() -> Any:
        return (yield colour.inner_call(Via(rotator), send))

    assert colour.run(outer, colour.fn(body)).kind is OutcomeKind.TRANSIENT_FAILURE
    assert net.sent == ["a", "a"]


def test_with_guards_switched_off_requests_go_to_the_first_proxy(colour, rotator_of, net, hub) -> None:
    rotator = rotator_of()
    hub.switch(True)
    colour.call(Via(rotator), net.sender(colour))
    assert net.sent == ["a"]
    assert records(rotator) == []


def test_a_rotator_that_is_switched_off_inside_another_still_uses_its_own_proxy(colour, rotator_of, net) -> None:
    outer, inner_hub = rotator_of(endpoints=("outer",)), Hub()
    inner = ProxyRotator(["a", "b"], telemetry=inner_hub)
    inner_hub.switch(True)
    send = net.sender(colour)

    def body(proxy: Endpoint) -> Any:
        return (yield colour.inner_call(Via(inner), send))

    colour.call(Via(outer), colour.fn(body))
    assert net.sent == ["a"]


def test_an_async_sender_in_a_sync_request_is_refused(rotator_of) -> None:
    async def send(proxy: Endpoint) -> None: ...

    with pytest.raises(TypeError, match="is async; use arequest"):
        rotator_of().request(send)


def test_a_policy_that_is_none_is_refused(rotator_of) -> None:
    with pytest.raises(PolicyError, match=r"ProxyRotator.policy must be a RetryPolicy, got 3"):
        rotator_of().policy = 3
    with pytest.raises(PolicyError, match=r"Failover.max_endpoints"):
        rotator_of(max_proxy_attempts=0)


def test_guards_of_passing_policies_do_not_pile_up(rotator_of, net) -> None:
    rotator = rotator_of()
    for n in range(200):
        rotator.request(lambda proxy: Response(200), policy=RetryPolicy(timeout=1 + n))
    assert len(rotator._guards) <= 64


def test_the_rotator_describes_itself_through_its_guard(rotator_of) -> None:
    kinds = [strategy.kind for strategy in rotator_of(RetryPolicy(timeout=5)).guard.plan.strategies]
    assert kinds == ["timeout", "retry", "failover"]


def test_a_post_that_its_proxy_never_took_goes_to_the_next_one(colour, rotator_of, net) -> None:
    class ProxyError(OSError):
        """As HTTP libraries call a tunnel that was refused."""

    net.steps = {"a": [ProxyError("no tunnel")]}
    assert colour.call(Via(rotator_of()), net.sender(colour), method="POST").status_code == 200
    assert net.sent == ["a", "b"]


def test_the_callers_own_mistakes_are_not_taken_to_every_proxy(colour, rotator_of, net) -> None:
    class InvalidURL(Exception):
        """As HTTP libraries call it."""

    rotator = rotator_of()
    net.steps = {"a": [InvalidURL("htp://")]}
    with pytest.raises(InvalidURL):
        colour.call(Via(rotator), net.sender(colour))
    assert (net.sent, states(rotator)["a"]) == (["a"], "closed")


async def test_concurrent_requests_probe_a_recovering_proxy_once(clock: ManualClock, hub: Hub) -> None:
    rotator = ProxyRotator(
        ["a", "b"], choose="first", breaker=Breaker(consecutive(1), open_for=10), clock=clock, telemetry=hub
    )
    rotator.pool.circuit("a").command("trip")
    clock.advance(10)
    release, sent = asyncio.Event(), []

    async def send(proxy: Endpoint) -> Response:
        sent.append(proxy.id)
        await release.wait()
        return Response(200)

    tasks = [asyncio.create_task(rotator.arequest(send)) for _ in range(10)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert sent.count("a") == 1
    release.set()
    await asyncio.gather(*tasks)
    assert rotator.pool.circuit("a").state is CircuitState.CLOSED
