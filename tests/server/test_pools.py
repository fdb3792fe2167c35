"""Endpoint pools over HTTP: who is in them, and taking one out of use."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from holdfast import Breaker, Holdfast
from holdfast.core.outcome import Evidence
from holdfast.failover.endpoint import Endpoint
from holdfast.failover.pool import EndpointPool
from holdfast.failover.rotation import ProxyRotator
from holdfast.machine.trip import consecutive
from holdfast.testing.clock import ManualClock

WHY = {"reason": "maintenance"}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def pool(hold: Holdfast, clock: ManualClock) -> EndpointPool:
    endpoints = [Endpoint("a", "https://user:hunter2@a.example", region="eu", weight=2.0), "b"]
    return hold.add_pool("cdn", EndpointPool(endpoints, breaker=Breaker(consecutive(1), open_for=30), clock=clock))


def settle(pool: EndpointPool, clock: ManualClock, evidence: Evidence, seconds: float = 0.2) -> str:
    ticket = pool.admit()
    clock.advance(seconds)
    pool.settle(ticket, evidence, ConnectionError("token=s3cr3t") if evidence is Evidence.FAILURE else None)
    return ticket.endpoint.id


def members(shown: dict) -> dict[str, dict]:
    return {one["id"]: one for one in shown["members"]}


def test_without_pools_there_is_nothing_to_show(hold: Holdfast, ask) -> None:
    assert ask(hold, has_program=False).get("pools").json() == {"items": [], "has_program": False}


def test_members_are_shown_with_how_they_do(client: TestClient, pool: EndpointPool, clock: ManualClock) -> None:
    failed = settle(pool, clock, Evidence.FAILURE)
    ticket = pool.admit()
    shown = client.get("pools/cdn").json()
    found = members(shown)
    assert (shown["available"], shown["in_flight"], shown["is_rotator"]) == (1, 1, False)
    assert (found["a"]["region"], found["a"]["weight"]) == ("eu", 2)
    bad = found[failed]
    assert (bad["state"], bad["available"], bad["calls"], bad["success_rate"]) == ("open", False, 1, 0)
    assert bad["retry_after"] == pytest.approx(30)
    assert bad["latency"] == pytest.approx(0.2)
    assert bad["last_error"].startswith("ConnectionError")
    pool.settle(ticket, Evidence.SUCCESS)


def test_addresses_and_secrets_of_endpoints_are_not_shown(
    client: TestClient, pool: EndpointPool, clock: ManualClock
) -> None:
    settle(pool, clock, Evidence.FAILURE)
    for path in ("pools", "pools/cdn"):
        assert "hunter2" not in client.get(path).text
        assert "s3cr3t" not in client.get(path).text


def test_a_drained_endpoint_gets_no_calls_until_it_is_enabled(
    hold: Holdfast, client: TestClient, pool: EndpointPool, clock: ManualClock
) -> None:
    drained = client.post("pools/cdn/members/a/drain", json=WHY).json()
    assert (members(drained)["a"]["control"], members(drained)["a"]["available"]) == ("isolated", False)
    clock.advance(3600)
    assert {settle(pool, clock, Evidence.SUCCESS) for _ in range(20)} == {"b"}
    enabled = client.post("pools/cdn/members/a/enable", json={}).json()
    assert (members(enabled)["a"]["control"], members(enabled)["a"]["state"]) == ("auto", "closed")
    assert "a" in {settle(pool, clock, Evidence.SUCCESS) for _ in range(50)}
    written = [event.payload for event in hold.audit.read("operator:local")]
    assert [(one["act"], one["on_name"], one["on_endpoint"]) for one in written] == [
        ("pools.drain", "cdn", "a"), ("pools.enable", "cdn", "a"),
    ]  # fmt: skip


def test_calls_under_way_finish_when_their_endpoint_is_drained(
    client: TestClient, pool: EndpointPool, clock: ManualClock
) -> None:
    ticket = pool.admit()
    client.post(f"pools/cdn/members/{ticket.endpoint.id}/drain", json=WHY)
    assert members(client.get("pools/cdn").json())[ticket.endpoint.id]["in_flight"] == 1
    pool.settle(ticket, Evidence.SUCCESS)
    shown = members(client.get("pools/cdn").json())[ticket.endpoint.id]
    assert (shown["in_flight"], shown["control"]) == (0, "isolated")


def test_a_breaker_of_an_endpoint_can_be_reset(client: TestClient, pool: EndpointPool, clock: ManualClock) -> None:
    failed = settle(pool, clock, Evidence.FAILURE)
    answer = client.post(f"pools/cdn/members/{failed}/reset", json={})
    assert members(answer.json())[failed]["state"] == "closed"


def test_what_is_not_drained_cannot_be_enabled(client: TestClient, pool: EndpointPool, clock: ManualClock) -> None:
    failed = settle(pool, clock, Evidence.FAILURE)
    answer = client.post(f"pools/cdn/members/{failed}/enable", json={})
    assert (answer.status_code, answer.json()["error"]) == (409, "not_drained")
    assert pool.circuit(failed).state == "open"


def test_draining_needs_a_reason(client: TestClient, pool: EndpointPool) -> None:
    assert client.post("pools/cdn/members/a/drain", json={}).status_code == 422
    assert pool.circuit("a").control == "auto"


@pytest.mark.parametrize(
    ("path", "error"),
    [("pools/none/members/a/drain", "pool_not_found"), ("pools/cdn/members/z/drain", "endpoint_not_found")],
)
def test_unknown_pools_and_endpoints_are_404(client: TestClient, pool: EndpointPool, path: str, error: str) -> None:
    answer = client.post(path, json=WHY)
    assert (answer.status_code, answer.json()["error"]) == (404, error)
    assert client.get("pools/none").status_code == 404


def test_a_rotator_is_a_pool_too(hold: Holdfast, client: TestClient) -> None:
    hold.add_pool("proxies", ProxyRotator(["http://a:1", "http://b:2"], telemetry=hold.telemetry))
    (shown,) = client.get("pools").json()["items"]
    assert (shown["name"], shown["is_rotator"]) == ("proxies", True)
    assert [one["id"] for one in shown["members"]] == ["a:1", "b:2"]
    assert client.post("pools/proxies/members/a:1/drain", json=WHY).status_code == 200


def test_pools_and_endpoints_may_have_any_name(hold: Holdfast, client: TestClient) -> None:
    hold.add_pool("eu/west ☃", EndpointPool(["<b>a/b</b>"], telemetry=hold.telemetry))
    pool, endpoint = quote("eu/west ☃", safe=""), quote("<b>a/b</b>", safe="")
    assert client.get(f"pools/{pool}").json()["name"] == "eu/west ☃"
    drained = client.post(f"pools/{pool}/members/{endpoint}/drain", json=WHY).json()
    assert drained["members"][0]["control"] == "isolated"
