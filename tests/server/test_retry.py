"""A rotator's retry policy, breakers and attempt metrics over HTTP, with every error that they can answer."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from holdfast import Breaker, Holdfast
from holdfast.failover.pool import EndpointPool
from holdfast.failover.rotation import ProxyRotator
from holdfast.guard.retry_policy import RetryPolicy
from holdfast.machine.trip import ratio
from holdfast.server.routes.retry import FIELDS, RESETS_PER_MINUTE
from holdfast.testing.clock import ManualClock
from tests.server.clients import API, PASSWORD, app_of, client_of, holding

PROXIES = ["http://a:1", "http://b:2"]


class Answer:
    def __init__(self, status_code: int) -> None:
        self.status_code = status_code


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def hold(tmp_path: Path, clock: ManualClock) -> Iterator[Holdfast]:
    with holding(tmp_path, clock) as made:
        yield made


@pytest.fixture
def rotator(hold: Holdfast, clock: ManualClock) -> ProxyRotator:
    policy = RetryPolicy(max_attempts=2, base_delay=0.1)
    return hold.add_pool("proxies", ProxyRotator(PROXIES, policy, clock=clock, telemetry=hold.telemetry))


def send(rotator: ProxyRotator, clock: ManualClock, *statuses: int) -> None:
    """A request whose attempts are answered so, after a second each."""
    answers = iter(statuses)

    def answer(proxy: Any) -> Answer:
        clock.advance(1)
        return Answer(next(answers))

    rotator.request(answer)


def open_all(rotator: ProxyRotator, clock: ManualClock) -> None:
    for _ in range(5):
        send(rotator, clock, 503, 503)


def token_of(hold: Holdfast, name: str, scope: str) -> str:
    _, secret = hold.access.create_token(name, [scope])
    return secret


def error_of(answer: Any) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    shown = answer.json()
    assert shown["message"]
    assert isinstance(shown["details"], dict)
    return answer.status_code, shown["error"]


def test_the_policy_is_nine_fields_with_when_and_which(client: TestClient, rotator: ProxyRotator) -> None:
    answer = client.get("retry/policy")
    shown = answer.json()
    assert set(shown) == {*FIELDS, "updated_at", "version"}
    assert len(FIELDS) == 9
    assert (shown["max_attempts"], shown["base_delay"], shown["timeout"]) == (2, 0.1, None)
    assert shown["retry_status_codes"] == [502, 503, 504]
    assert answer.headers["ETag"] == f'"{shown["version"]}"'


def test_a_change_is_partial_and_raises_the_version(
    client: TestClient, rotator: ProxyRotator, clock: ManualClock
) -> None:
    before = client.get("retry/policy").json()
    clock.advance(60)
    after = client.put("retry/policy", json={"max_attempts": 5, "timeout": 8.0}).json()
    assert after["version"] == before["version"] + 1
    assert datetime.fromisoformat(after["updated_at"]) - datetime.fromisoformat(before["updated_at"]) == timedelta(
        minutes=1
    )
    same = {name: before[name] for name in FIELDS if name not in ("max_attempts", "timeout")}
    assert {name: after[name] for name in same} == same
    assert (rotator.policy.max_attempts, rotator.policy.timeout) == (5, 8.0)
    assert client.get("retry/policy").json() == after


def test_null_clears_the_timeout_and_absence_keeps_it(client: TestClient, rotator: ProxyRotator) -> None:
    client.put("retry/policy", json={"timeout": 8})
    assert client.put("retry/policy", json={"jitter": True}).json()["timeout"] == 8
    assert client.put("retry/policy", json={"timeout": None}).json()["timeout"] is None


def test_a_program_that_changes_the_policy_itself_raises_the_version_too(
    client: TestClient, rotator: ProxyRotator
) -> None:
    before = client.get("retry/policy").json()["version"]
    rotator.policy = RetryPolicy(max_attempts=1)
    assert client.get("retry/policy").json()["version"] == before + 1


@pytest.mark.parametrize(
    "change",
    [
        {"max_attempts": 0}, {"max_attempts": 11}, {"max_attempts": None}, {"max_attempts": "many"},
        {"base_delay": 0}, {"base_delay": 61}, {"multiplier": 1}, {"multiplier": 11},
        {"max_backoff_delay": 0}, {"max_backoff_delay": 301}, {"backoff_strategy": "hope"}, {"jitter": "perhaps"},
        {"retry_status_codes": [404]}, {"retry_status_codes": [600]}, {"retry_status_codes": "503"},
        {"retry_status_codes": None}, {"timeout": 0}, {"timeout": -1}, {"retry_non_idempotent": None},
        {"surprise": 1}, {"max_attempts": 4, "base_delay": -1}, {"max_attempts": 4, "version": 9}, [], "x", 7,
    ],
)  # fmt: skip
def test_a_policy_that_cannot_be_changes_nothing(client: TestClient, rotator: ProxyRotator, change: Any) -> None:
    before = rotator.policy_in_force
    assert error_of(client.put("retry/policy", json=change)) == (422, "policy_invalid")
    assert rotator.policy_in_force is before


@pytest.mark.parametrize("body", ["", "{", "NaN", "null", '{"base_delay": 1e400}', '{"base_delay": NaN}'])
def test_what_is_no_document_is_refused(client: TestClient, rotator: ProxyRotator, body: str) -> None:
    answer = client.put("retry/policy", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert rotator.policy_in_force.version == 1


def test_if_match_names_the_version_that_is_changed(client: TestClient, rotator: ProxyRotator) -> None:
    etag = client.get("retry/policy").headers["ETag"]
    first = client.put("retry/policy", json={"max_attempts": 4}, headers={"If-Match": etag})
    assert first.status_code == 200
    late = client.put("retry/policy", json={"max_attempts": 9}, headers={"If-Match": etag})
    assert error_of(late) == (412, "policy_conflict")
    assert late.json()["details"] == {"version": 2}
    assert rotator.policy.max_attempts == 4
    again = client.put("retry/policy", json={"max_attempts": 9}, headers={"If-Match": first.headers["ETag"]})
    assert again.status_code == 200


@pytest.mark.parametrize(
    ("header", "status"), [("*", 200), ("1", 200), ('W/"1"', 200), ("nonsense", 412), ("9" * 40, 412)]
)
def test_if_match_may_be_written_in_several_ways(
    client: TestClient, rotator: ProxyRotator, header: str, status: int
) -> None:
    answer = client.put("retry/policy", json={"max_attempts": 4}, headers={"If-Match": header})
    assert answer.status_code == status


def test_the_version_may_be_named_in_the_query_too(client: TestClient, rotator: ProxyRotator) -> None:
    assert error_of(client.put("retry/policy?version=7", json={"max_attempts": 4})) == (412, "policy_conflict")
    assert client.put("retry/policy?version=1", json={"max_attempts": 4}).status_code == 200


def test_of_many_changes_of_one_version_exactly_one_is_made(client: TestClient, rotator: ProxyRotator) -> None:
    def change(attempts: int) -> int:
        answer = client.put("retry/policy", json={"max_attempts": attempts}, headers={"If-Match": "1"})
        return int(answer.status_code)

    with ThreadPoolExecutor(8) as threads:
        statuses = list(threads.map(change, range(3, 11)))
    assert sorted(statuses) == [200] + [412] * 7
    assert rotator.policy.max_attempts == 3 + statuses.index(200)


def test_new_requests_use_the_new_policy(client: TestClient, rotator: ProxyRotator, clock: ManualClock) -> None:
    client.put("retry/policy", json={"max_attempts": 1})
    send(rotator, clock, 503)
    assert client.get("metrics/retries").json()["total_retries"] == 1


def test_breakers_of_used_endpoints_are_listed(client: TestClient, rotator: ProxyRotator, clock: ManualClock) -> None:
    assert client.get("circuit-breakers").json() == {"circuit_breakers": []}
    open_all(rotator, clock)
    shown = client.get("circuit-breakers").json()["circuit_breakers"]
    assert {one["proxy_id"] for one in shown} == {"a:1", "b:2"}
    one = client.get(f"circuit-breakers/{quote('a:1', safe='')}").json()
    assert set(one) == {
        "proxy_id", "state", "failure_count", "failure_threshold", "window_duration", "timeout_duration",
        "next_test_time", "last_state_change",
    }  # fmt: skip
    assert (one["state"], one["failure_count"], one["failure_threshold"]) == ("open", 5, 5)
    assert (one["window_duration"], one["timeout_duration"]) == (60, 30)
    opened = datetime.fromisoformat(one["last_state_change"])
    assert datetime.fromisoformat(one["next_test_time"]) - opened == timedelta(seconds=30)


def test_a_change_of_the_policy_is_in_the_audit_trail_with_its_fields(
    hold: Holdfast, client: TestClient, rotator: ProxyRotator
) -> None:
    version = client.get("retry/policy").json()["version"]
    said = {"max_attempts": 2, "jitter": False, "reason": "too many calls"}
    assert client.put("retry/policy", params={"version": version}, json=said).status_code == 200
    (event,) = hold.audit.read("operator:local")
    told = {name: value for name, value in event.payload.items() if name.startswith("with_")}
    assert told == {"with_version": str(version), "with_max_attempts": "2", "with_jitter": "False"}


def test_a_reset_closes_a_breaker_and_is_in_the_audit_trail(
    hold: Holdfast, client: TestClient, rotator: ProxyRotator, clock: ManualClock
) -> None:
    open_all(rotator, clock)
    shown = client.post("circuit-breakers/a:1/reset", json={"reason": "it is back"}).json()
    assert (shown["state"], shown["failure_count"], shown["next_test_time"]) == ("closed", 0, None)
    assert client.post("circuit-breakers/b:2/reset").status_code == 200  # a body may be left out
    first, second = (event.payload for event in hold.audit.read("operator:local"))
    assert (first["act"], first["on_id"], first["reason"]) == ("pools.reset_breaker", "a:1", "it is back")
    assert second["on_id"] == "b:2"


def test_a_breaker_that_is_not_there_is_404(client: TestClient, rotator: ProxyRotator) -> None:
    assert error_of(client.get("circuit-breakers/c:3")) == (404, "breaker_not_found")
    assert error_of(client.post("circuit-breakers/c:3/reset")) == (404, "breaker_not_found")


def test_a_caller_may_reset_ten_a_minute(client: TestClient, rotator: ProxyRotator, clock: ManualClock) -> None:
    open_all(rotator, clock)
    for _ in range(RESETS_PER_MINUTE):
        assert client.post("circuit-breakers/a:1/reset").status_code == 200
    answer = client.post("circuit-breakers/a:1/reset")
    assert error_of(answer) == (429, "rate_limited")
    assert int(answer.headers["Retry-After"]) == 6
    clock.advance(6)
    assert client.post("circuit-breakers/a:1/reset").status_code == 200


def test_each_caller_has_ten_of_its_own(hold: Holdfast, rotator: ProxyRotator, clock: ManualClock) -> None:
    open_all(rotator, clock)
    hold.access.add_user("ada", PASSWORD, "operator")
    app = app_of(hold)
    ada, bob = (client_of(app, token=token_of(hold, name, "*:*")) for name in ("ada's", "bob's"))
    for _ in range(RESETS_PER_MINUTE):
        assert ada.post(f"{API}/circuit-breakers/a:1/reset").status_code == 200
    assert ada.post(f"{API}/circuit-breakers/a:1/reset").status_code == 429
    assert bob.post(f"{API}/circuit-breakers/a:1/reset").status_code == 200


def test_a_pool_with_another_rule_says_where_its_breakers_are_shown(hold: Holdfast, client: TestClient) -> None:
    pool = EndpointPool(PROXIES, breaker=Breaker(ratio(0.5, 10, 60)))
    pool.circuit("a:1")
    hold.add_pool("odd", ProxyRotator(pool, telemetry=hold.telemetry))
    answer = client.get("circuit-breakers")
    assert error_of(answer) == (409, "not_countable")
    assert "/pools" in answer.json()["message"]


@pytest.mark.parametrize("path", ["circuit-breakers/metrics", "metrics/circuit-breakers"])
def test_moves_of_breakers_have_two_addresses(
    client: TestClient, rotator: ProxyRotator, clock: ManualClock, path: str
) -> None:
    open_all(rotator, clock)
    shown = client.get(path).json()
    assert {(one["proxy_id"], one["from_state"], one["to_state"]) for one in shown["events"]} == {
        ("a:1", "closed", "open"), ("b:2", "closed", "open"),
    }  # fmt: skip
    assert shown["events_count"] == 2
    assert (shown["hours"], shown["covered_hours"], shown["retention_hours"]) == (24, 24, 24)


def test_moves_before_the_hours_asked_for_are_left_out(
    client: TestClient, rotator: ProxyRotator, clock: ManualClock
) -> None:
    open_all(rotator, clock)
    clock.advance(3 * 3600)
    assert client.get("circuit-breakers/metrics?hours=1").json()["events"] == []
    assert len(client.get("circuit-breakers/metrics?hours=4").json()["events"]) == 2


def test_attempts_are_summed_up(client: TestClient, rotator: ProxyRotator, clock: ManualClock) -> None:
    send(rotator, clock, 200)
    send(rotator, clock, 503, 200)
    assert client.get("metrics/retries").json() == {
        "total_requests": 2, "total_retries": 3, "extra_attempts": 1, "success_by_attempt": {"0": 1, "1": 1},
        "circuit_breaker_events_count": 0, "retention_hours": 24,
    }  # fmt: skip


def test_attempts_by_the_hour(client: TestClient, rotator: ProxyRotator, clock: ManualClock) -> None:
    send(rotator, clock, 503, 200)
    clock.advance(3600)
    send(rotator, clock, 200)
    shown = client.get("metrics/retries/timeseries?hours=24").json()
    assert [(one["total_requests"], one["total_retries"], one["success_rate"]) for one in shown["data_points"]] == [
        (1, 2, 0.5), (1, 1, 1.0),
    ]  # fmt: skip
    assert shown["data_points"][0]["avg_latency"] == pytest.approx(1)


def test_attempts_by_proxy(client: TestClient, rotator: ProxyRotator, clock: ManualClock) -> None:
    open_all(rotator, clock)
    shown = client.get("metrics/retries/by-proxy").json()["proxies"]
    assert shown["a:1"] == {
        "total_attempts": 5, "success_count": 0, "failure_count": 5, "avg_latency": pytest.approx(1),
        "circuit_breaker_opens": 1,
    }  # fmt: skip


def test_an_answer_says_what_retention_covers(client: TestClient, rotator: ProxyRotator, clock: ManualClock) -> None:
    shown = client.get("metrics/retries/timeseries?hours=168").json()
    assert (shown["hours"], shown["covered_hours"]) == (168, 24)
    hour = clock.wall().replace(minute=0, second=0, microsecond=0)
    assert datetime.fromisoformat(shown["covered_from"]) == hour - timedelta(hours=24)


HOURLY = [
    "circuit-breakers/metrics", "metrics/circuit-breakers", "metrics/retries/timeseries", "metrics/retries/by-proxy",
]  # fmt: skip


@pytest.mark.parametrize("path", HOURLY)
@pytest.mark.parametrize("hours", [0, -1, 169, 10**40])
def test_hours_out_of_range_are_422(client: TestClient, rotator: ProxyRotator, path: str, hours: int) -> None:
    assert error_of(client.get(f"{path}?hours={hours}")) == (422, "hours_out_of_range")


@pytest.mark.parametrize("path", HOURLY)
def test_the_first_and_the_last_hour_that_can_be_asked_for(
    client: TestClient, rotator: ProxyRotator, path: str
) -> None:
    assert {client.get(f"{path}?hours={hours}").status_code for hours in (1, 168)} == {200}
    assert client.get(f"{path}?hours=soon").status_code == 422


READS = [
    "retry/policy", "circuit-breakers", "circuit-breakers/a:1", "metrics/retries", *HOURLY,
]  # fmt: skip
CHANGES = [("PUT", "retry/policy", {"max_attempts": 2}), ("POST", "circuit-breakers/a:1/reset", {})]


@pytest.mark.parametrize("path", READS)
def test_without_a_rotator_nothing_is_ready(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert error_of(answer) == (503, "not_ready")
    assert "add_pool" in answer.json()["message"]


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
def test_without_a_rotator_nothing_can_be_changed(client: TestClient, method: str, path: str, body: Any) -> None:
    assert error_of(client.request(method, path, json=body)) == (503, "not_ready")


def test_a_rotator_can_be_named_and_the_first_is_meant_otherwise(hold: Holdfast, client: TestClient) -> None:
    hold.add_pool("plain", EndpointPool(PROXIES))
    for name, attempts in (("one", 1), ("two", 2)):
        hold.add_pool(name, ProxyRotator(PROXIES, RetryPolicy(max_attempts=attempts), telemetry=hold.telemetry))
    assert client.get("retry/policy").json()["max_attempts"] == 1
    assert client.get("retry/policy?pool=two").json()["max_attempts"] == 2
    for name in ("plain", "nobody"):
        assert error_of(client.get(f"retry/policy?pool={name}")) == (404, "rotator_not_found")


@pytest.mark.parametrize("path", READS)
def test_whoever_is_not_known_is_401(hold: Holdfast, rotator: ProxyRotator, path: str) -> None:
    hold.access.add_user("ada", PASSWORD, "admin")
    assert error_of(client_of(app_of(hold)).get(f"{API}/{path}")) == (401, "unauthorized")


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
def test_whoever_is_not_known_changes_nothing(
    hold: Holdfast, rotator: ProxyRotator, method: str, path: str, body: Any
) -> None:
    hold.access.add_user("ada", PASSWORD, "admin")
    client = client_of(app_of(hold))
    client.headers["X-Holdfast-CSRF"] = client.get(f"{API}/session").json()["csrf"]
    assert error_of(client.request(method, f"{API}/{path}", json=body)) == (401, "unauthorized")
    assert rotator.policy_in_force.version == 1


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
def test_changes_are_switched_off_while_nobody_could_sign_in(
    hold: Holdfast, rotator: ProxyRotator, method: str, path: str, body: Any
) -> None:
    client = client_of(app_of(hold, required=True))
    client.headers["X-Holdfast-CSRF"] = client.get(f"{API}/session").json()["csrf"]
    assert error_of(client.request(method, f"{API}/{path}", json=body)) == (503, "admin_disabled")
    assert error_of(client.get(f"{API}/retry/policy")) == (401, "unauthorized")
    assert rotator.policy_in_force.version == 1


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
def test_a_viewer_may_look_and_change_nothing(
    hold: Holdfast, rotator: ProxyRotator, method: str, path: str, body: Any
) -> None:
    token = token_of(hold, "viewer", "*:read")
    client = client_of(app_of(hold), token=token)
    assert client.get(f"{API}/retry/policy").status_code == 200
    assert error_of(client.request(method, f"{API}/{path}", json=body)) == (403, "forbidden")
