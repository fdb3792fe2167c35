"""A new server or a new proxy for every attempt, in every client, over real sockets."""

from __future__ import annotations

import pytest

from holdfast.core.outcome import OutcomeKind
from holdfast.errors import PolicyError, PoolExhausted
from holdfast.failover.endpoint import Endpoint
from holdfast.failover.failover import Failover
from holdfast.failover.pool import EndpointPool
from holdfast.guard.guard import Guard
from holdfast.integrations.httpx import GuardTransport
from holdfast.machine.breaker import Breaker
from holdfast.machine.retry import Retry
from holdfast.machine.trip import consecutive
from holdfast.telemetry.events import AttemptCompleted
from tests.integrations.clients import LIBRARIES
from tests.integrations.servers import Drop, Reply, unused_port

THRICE = Retry(attempts=3, base=1, jitter="none")


def pool_of(*urls: str) -> EndpointPool:
    return EndpointPool(urls, choose="first", breaker=Breaker(consecutive(2), open_for=30))


@pytest.fixture
def dead() -> str:
    """The URL of a server that is not there."""
    return f"http://127.0.0.1:{unused_port()}"


def test_an_attempt_that_fails_is_repeated_at_the_next_server_without_a_pause(
    server, other_server, client_of, guard_of, clock
):
    server.script(Reply(503))
    client = client_of(guard_of(THRICE), pool=pool_of(server.url(), other_server.url()))
    assert client.get("http://orders/list?page=2").status == 200
    assert [request.path for request in (*server.requests, *other_server.requests)] == ["/list?page=2"] * 2
    assert clock.slept == []


def test_a_second_visit_waits(server, other_server, client_of, guard_of, clock):
    server.script(Drop(), Reply(200, b"back"))
    other_server.script(Reply(503))
    client = client_of(guard_of(THRICE), pool=pool_of(server.url(), other_server.url()))
    assert client.get("http://orders/").body == b"back"
    assert clock.slept == [2]


def test_the_server_is_addressed_by_its_own_name_and_the_caller_sees_his(server, client_of, guard_of):
    client = client_of(guard_of(), pool=pool_of(server.url("/v1/")))
    answer = client.get("http://orders/a%2Fb?q=%20x")
    assert server.requests[0].headers["Host"] == f"127.0.0.1:{server.server_port}"
    assert server.requests[0].path in ("/v1/a%2Fb?q=%20x", "/v1/a%2Fb?q=+x")
    assert answer.url.startswith("http://orders/a%2Fb")


def test_a_host_that_the_caller_chose_is_kept(server, client_of, guard_of):
    client = client_of(guard_of(), pool=pool_of(server.url()))
    client.get("http://orders/", headers={"Host": "shop.example"})
    assert server.requests[0].headers["Host"] == "shop.example"


def test_a_relative_redirect_stays_with_the_pool(server, other_server, client_of, guard_of):
    server.script(Reply(302, b"", {"Location": "/moved"}), Reply(503))
    client = client_of(guard_of(THRICE), pool=pool_of(server.url(), other_server.url()))
    options = {} if hasattr(client, "session") else {"follow_redirects": True}
    assert client.get("http://orders/start", **options).status == 200
    assert [request.path for request in server.requests] == ["/start", "/moved"]
    assert [request.path for request in other_server.requests] == ["/moved"]


def test_a_dead_server_is_taken_out_and_found_again(server, dead, client_of, guard_of, clock, recorder):
    pool = pool_of(dead, server.url())
    client = client_of(guard_of(THRICE), pool=pool)
    for _ in range(2):
        assert client.get("http://orders/").status == 200
    gone = Endpoint.of(dead).id
    assert pool.circuit(gone).state == "open"
    recorder.events.clear()
    assert client.get("http://orders/").status == 200
    assert [event.endpoint for event in recorder.of(AttemptCompleted)] == [Endpoint.of(server.url()).id]
    clock.advance(31)
    assert client.get("http://orders/").status == 200
    assert gone in [event.endpoint for event in recorder.of(AttemptCompleted)], "it was tested again"


def test_a_post_fails_over_only_when_it_never_left(server, other_server, dead, client_of, guard_of):
    client = client_of(guard_of(THRICE), pool=pool_of(dead, server.url(), other_server.url()))
    server.script(Reply(503, b"maybe done"))
    assert client.post("http://orders/").body == b"maybe done"
    assert (len(server.requests), len(other_server.requests)) == (1, 0)


def test_a_login_that_is_refused_does_not_switch(server, other_server, client_of, guard_of):
    server.script(Reply(401))
    client = client_of(guard_of(THRICE), pool=pool_of(server.url(), other_server.url()))
    assert client.get("http://orders/").status == 401
    assert other_server.requests == []


def test_when_nothing_is_left_the_pool_says_so_at_once(dead, client_of, guard_of, clock):
    client = client_of(guard_of(Retry(attempts=5, base=1, jitter="none")), pool=pool_of(dead))
    with pytest.raises(PoolExhausted) as raised:
        client.get("http://orders/")
    assert raised.value.retry_after == pytest.approx(30, abs=2)
    assert isinstance(raised.value.__cause__, client.connect_errors)


def test_each_attempt_goes_through_another_proxy(server, proxy, other_proxy, client_of, guard_of, clock):
    server.script(Reply(503))
    client = client_of(guard_of(THRICE), pool=pool_of(proxy.url(), other_proxy.url()), rotate="proxies")
    answer = client.get(server.url("/thing"))
    assert answer.headers["Via"] == f"proxy-{other_proxy.server_port}"
    assert [one.path for one in (*proxy.requests, *other_proxy.requests)] == [server.url("/thing")] * 2
    assert len(server.requests) == 2
    assert clock.slept == []


def test_a_proxys_own_failure_moves_the_request_to_the_next_proxy(server, proxy, other_proxy, client_of, guard_of):
    proxy.script(Reply(502, b"bad gateway"))
    other_proxy.script(Drop())
    client = client_of(guard_of(THRICE), pool=pool_of(proxy.url(), other_proxy.url()), rotate="proxies")
    assert client.get(server.url()).body == b"ok"
    assert (len(proxy.requests), len(other_proxy.requests), len(server.requests)) == (2, 1, 1)


def test_a_dead_proxy_is_taken_out_of_the_rotation(server, proxy, dead, client_of, guard_of, clock):
    pool = pool_of(dead, proxy.url())
    client = client_of(guard_of(THRICE), pool=pool, rotate="proxies")
    assert [client.post(server.url()).status for _ in range(3)] == [200] * 3, (
        "a request that never left may be repeated"
    )
    assert pool.circuit(Endpoint.of(dead).id).state == "open"
    assert len(proxy.requests) == 3


@pytest.mark.parametrize("options", [{}, {"classify": lambda error: OutcomeKind.TRANSIENT_FAILURE}])
def test_a_refused_tunnel_means_that_nothing_was_sent(proxy, other_proxy, client_of, guard_of, options):
    pool = pool_of(proxy.url(), other_proxy.url())
    client = client_of(guard_of(Retry(attempts=2), **options), pool=pool, rotate="proxies")
    proxy.script(Reply(403, b""))
    other_proxy.script(Reply(403, b""))
    with pytest.raises(Exception, match="403"):
        client.post("https://server.invalid/")
    assert [one.method for one in (*proxy.requests, *other_proxy.requests)] == ["CONNECT", "CONNECT"]


def test_a_proxy_that_dies_between_two_requests_is_replaced(server, proxy, other_proxy, client_of, guard_of):
    client = client_of(guard_of(THRICE), pool=pool_of(proxy.url(), other_proxy.url()), rotate="proxies")
    assert client.get(server.url()).status == 200
    proxy.kill()
    assert client.get(server.url()).headers["Via"] == f"proxy-{other_proxy.server_port}"


def test_a_proxys_credentials_are_for_the_proxy(server, proxy, client_of, guard_of):
    url = proxy.url().replace("http://", "http://me:secret@")
    client = client_of(guard_of(), pool=pool_of(url), rotate="proxies")
    assert client.get(server.url()).status == 200
    assert proxy.requests[0].headers["Proxy-Authorization"] == "Basic bWU6c2VjcmV0"
    assert not any("authorization" in name.lower() for name in server.requests[0].headers)


def test_connections_through_proxies_are_kept_and_closed(server, proxy, other_proxy, client_of, guard_of):
    server.script(Reply(503), Reply(200))
    client = client_of(guard_of(THRICE), pool=pool_of(proxy.url(), other_proxy.url()), rotate="proxies")
    client.get(server.url())
    assert (client.lent, client.kept) == (0, 2)


def test_a_guard_with_its_own_failover_needs_no_pool_here(server, other_server, client_of, guard_of):
    pool = pool_of(server.url(), other_server.url())
    guard = guard_of(THRICE, Failover(pool, attempts_per_endpoint=2))
    server.script(Reply(503), Reply(503))
    assert client_of(guard).get("http://orders/").status == 200
    assert (len(server.requests), len(other_server.requests)) == (2, 1)


def test_the_guard_itself_is_not_changed_by_a_clients_pool(server, client_of, guard_of):
    guard = guard_of(THRICE)
    client_of(guard, pool=pool_of(server.url())).get("http://orders/")
    assert [strategy.kind for strategy in guard.plan.strategies] == ["retry"]


def test_guards_that_are_switched_off_use_the_first_endpoint(server, client_of, guard_of):
    guard = guard_of(THRICE)
    client = client_of(guard, pool=pool_of(server.url()))
    guard.telemetry.switch(off=True)
    server.script(Reply(503))
    assert client.get("http://orders/").status == 503
    assert len(server.requests) == 1


def test_two_pools_for_one_client_are_refused(server):
    guard = Guard("api", THRICE, Failover(pool_of(server.url())))
    with pytest.raises(PolicyError, match="has a Failover over another pool already"):
        GuardTransport(guard, pool=pool_of(server.url()))


@pytest.mark.parametrize("library", sorted(LIBRARIES))
def test_the_transports_for_proxies_can_be_made_by_the_caller(server, proxy, guard_of, library):
    module, integration = LIBRARIES[library]
    made = []

    def connect(url):
        made.append(url)
        return module.HTTPTransport(proxy=module.Proxy(url, headers={"X-Tenant": "t1"}))

    pool = pool_of(proxy.url())
    transport = integration.GuardTransport(guard_of(), pool=pool, rotate="proxies", proxied=connect)
    with module.Client(transport=transport) as client:
        client.get(server.url())
        client.get(server.url())
    assert made == [proxy.url()]
    assert proxy.requests[1].headers["X-Tenant"] == "t1"


def test_an_endpoint_without_a_url_is_refused():
    with pytest.raises(PolicyError, match="endpoint 'a' has no URL"):
        GuardTransport(Guard("api"), pool=EndpointPool([Endpoint("a")]))


def test_an_unknown_way_to_rotate_is_refused():
    with pytest.raises(PolicyError, match="rotate must be one of servers, proxies, got 'round'"):
        GuardTransport(Guard("api"), rotate="round")
