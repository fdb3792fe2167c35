"""The http task against a real server: what is tried again, where it may go, what it publishes."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from asyncio import CancelledError
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.context import deadline
from holdfast.errors import CircuitOpen, ConfigurationError, PermanentError, TaskError, TransientError
from holdfast.guard.guard import Guard
from holdfast.machine.breaker import Breaker
from holdfast.machine.retry import Retry
from holdfast.machine.trip import consecutive
from holdfast.outbox.publishers.address import VARIABLE, public_and
from holdfast.testing.clock import ManualClock
from holdfast.workflows.cancel import TOKEN, TaskToken
from holdfast.workflows.registry import TaskRegistry
from holdfast.workflows.tasks.http import HttpCall, HttpTask
from holdfast.workflows.tasks.http_request import HttpResult, request
from tests.integrations.servers import Broken, Drop, Hang, Reply, Server, running, unused_port
from tests.workflows.tasks.stages import stage

LOCAL = public_and("127.0.0.1")
CERTIFICATE = Path(__file__).with_name("loopback.pem")
"""Of 127.0.0.1, signed by itself, with its key."""


@pytest.fixture
def server() -> Iterator[Server]:
    with running(Server()) as one:
        yield one


def sent(server: Server, **settings: Any) -> HttpResult:
    return HttpCall(url=server.url("/x"), **settings).send(reach=LOCAL)


def test_an_answer_is_published(server: Server) -> None:
    server.script(Reply(201, b"gr\xfc\xdfe", {"Content-Type": "text/plain; charset=latin-1", "Set-Cookie": "sid=1"}))
    response = HttpTask(reach=LOCAL).execute(stage(url=server.url("/x"))).outputs["response"]
    assert response["status"] == 201
    assert response["body"] == "grüße"
    assert response["headers"]["content-type"] == "text/plain; charset=latin-1"
    assert response["headers"]["set-cookie"] == "***"
    assert response["url"] == server.url("/x")


class UntilTheEnd(Reply):
    """Answer without saying how much it is: all until the connection ends."""

    def head(self, handler: Any, length: int) -> None:
        handler.send_response(self.status)
        handler.end_headers()
        handler.wfile.flush()
        handler.close_connection = True


@pytest.mark.parametrize(
    "reply", [Reply(200, b"x" * 100_000, {"Connection": "close"}), UntilTheEnd(200, b"x" * 100_000)]
)
def test_an_answer_that_is_the_last_of_its_connection_is_read_to_its_end(server: Server, reply: Reply) -> None:
    server.script(reply)
    assert sent(server).body == reply.body


def test_letters_in_a_url_are_sent_as_their_bytes(server: Server) -> None:
    server.script(Reply(302, headers={"Location": "/größe?q=ü".encode().decode("latin-1")}))
    found = HttpCall(url=server.url("/straße/%20?n=日本"), redirects=1).send(reach=LOCAL)
    assert [one.path for one in server.requests] == [
        "/stra%C3%9Fe/%20?n=%E6%97%A5%E6%9C%AC",
        "/gr%C3%B6%C3%9Fe?q=%C3%BC",
    ]
    assert found.status == 200


def test_a_host_of_other_letters_is_named_as_servers_know_it(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def found(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    HttpCall(url=f"http://日本.example:{server.server_port}/").send(reach=LOCAL)
    assert server.requests[0].headers["Host"] == f"xn--wgv71a.example:{server.server_port}"


def test_an_answer_is_never_the_settings_of_a_later_request(server: Server) -> None:
    published = HttpTask(reach=LOCAL).execute(stage(url=server.url())).outputs
    settings = {one.name for one in fields(HttpCall)}
    assert settings.isdisjoint(published)


def test_json_is_sent_and_read_as_json(server: Server) -> None:
    server.script(Reply(200, b'{"id": 7}', {"Content-Type": "application/problem+json"}))
    result = HttpTask(reach=LOCAL).execute(stage(url=server.url("/x"), method="post", json={"a": "ü"}))
    assert result.outputs["response"]["json"] == {"id": 7}
    [asked] = server.requests
    assert (asked.method, json.loads(asked.body), asked.headers["Content-Type"]) == (
        "POST",
        {"a": "ü"},
        "application/json",
    )


def test_what_is_called_json_and_is_none_is_an_error(server: Server) -> None:
    server.script(Reply(200, b"<html>", {"Content-Type": "application/json"}))
    with pytest.raises(TaskError, match="what it calls JSON and is none"):
        HttpTask(reach=LOCAL).execute(stage(url=server.url()))


def test_values_are_encoded_in_the_url_and_put_into_headers(server: Server) -> None:
    call = HttpCall(
        url=server.url("/orders/{id}?a=1"), params={"q": "a&b", "n": 2}, headers={"Authorization": "Bearer {key}"}
    )
    call.send({"id": "../admin?x#", "key": "k1"}, reach=LOCAL)
    [asked] = server.requests
    assert asked.path == "/orders/..%2Fadmin%3Fx%23?a=1&q=a%26b&n=2"
    assert asked.headers["Authorization"] == "Bearer k1"
    HttpCall(url=server.url("/a#part"), params={"n": 2}).send(reach=LOCAL)
    assert server.requests[-1].path == "/a?n=2"


def test_a_header_that_cannot_be_sent_is_refused_by_name(server: Server) -> None:
    with pytest.raises(ConfigurationError, match="the header 'X-A' has letters that no header can hold"):
        HttpCall(url=server.url(), headers={"X-A": "{x}"}).send({"x": "日本"}, reach=LOCAL)
    assert server.requests == []


def test_a_value_cannot_add_a_header(server: Server) -> None:
    with pytest.raises(ConfigurationError, match="the header 'X-A' has a line break"):
        HttpCall(url=server.url(), headers={"X-A": "{x}"}).send({"x": "1\r\nX-Admin: yes"}, reach=LOCAL)
    assert server.requests == []


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "get"])
@pytest.mark.parametrize("status", [502, 503, 504])
def test_an_idempotent_request_is_worth_another_try(server: Server, method: str, status: int) -> None:
    server.script(Reply(status, b"busy", {"Retry-After": "7"}))
    with pytest.raises(TransientError, match=f"was answered with {status}") as raised:
        sent(server, method=method)
    assert raised.value.retry_after == 7


@pytest.mark.parametrize("method", ["POST", "PATCH"])
@pytest.mark.parametrize("step", [Reply(502), Reply(503), Reply(504), Drop(), Broken()])
def test_a_post_is_not_made_twice(server: Server, method: str, step: Any) -> None:
    server.script(step)
    with pytest.raises(PermanentError):
        sent(server, method=method, body="x")
    assert len(server.requests) == 1


@pytest.mark.parametrize("step", [Reply(503), Drop(), Broken()])
def test_a_post_that_the_server_knows_by_its_key_may_be(server: Server, step: Any) -> None:
    server.script(step)
    with pytest.raises(TransientError):
        sent(server, method="POST", body="x", idempotent=True)


def test_a_request_that_never_left_is_worth_another_try(server: Server) -> None:
    call = HttpCall(url=f"http://127.0.0.1:{unused_port()}/", method="POST")
    with pytest.raises(TransientError, match="no connection"):
        call.send(reach=LOCAL)


@pytest.mark.parametrize("step", [Drop(), Broken()])
def test_a_get_that_breaks_off_is_worth_another_try(server: Server, step: Any) -> None:
    server.script(step)
    with pytest.raises(TransientError):
        sent(server)


def test_429_is_worth_another_try_when_it_says_when(server: Server) -> None:
    server.script(Reply(429, b"", {"Retry-After": "3"}), Reply(429, b""))
    with pytest.raises(TransientError) as raised:
        sent(server, method="POST")
    assert raised.value.retry_after == 3
    with pytest.raises(TaskError, match="429"):
        sent(server)


@pytest.mark.parametrize("status", [301, 400, 401, 404, 500, 501])
def test_any_other_status_fails_with_what_the_server_said(server: Server, status: int) -> None:
    server.script(Reply(status, b"password=hunter22 is wrong"))
    with pytest.raises(
        TaskError, match=f"GET http://127.0.0.1:[0-9]+/x was answered with {status}: password="
    ) as raised:
        sent(server)
    assert "hunter22" not in str(raised.value)


def test_other_statuses_can_be_expected(server: Server) -> None:
    server.script(Reply(404), Reply(503))
    assert sent(server, expected_statuses=[404]).status == 404
    assert sent(server, expected_statuses=[503]).status == 503


def test_every_request_carries_its_key(server: Server) -> None:
    HttpCall(url=server.url()).send(key="w.a.1.0", reach=LOCAL)
    HttpCall(url=server.url(), headers={"idempotency-key": "mine"}).send(key="w.a.1.0", reach=LOCAL)
    assert [asked.headers.get("Idempotency-Key") for asked in server.requests] == ["w.a.1.0", None]
    assert server.requests[1].headers["idempotency-key"] == "mine"


def test_a_server_that_says_nothing_is_left_in_time(server: Server) -> None:
    assert HttpCall(url=server.url()).timeout == 30
    server.script(Hang(), Hang(), Hang())
    with pytest.raises(TransientError, match="timed out"):
        sent(server, timeout=0.1)
    with pytest.raises(PermanentError, match="it may have been done, and a POST is not made twice"):
        sent(server, timeout=0.1, method="POST")
    with deadline(0.1), pytest.raises(TransientError):
        sent(server)


def test_a_cancelled_task_hangs_up() -> None:
    token = TaskToken()
    heard: list[bytes] = []

    def cancel(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(5)
            connection.recv(4096)
            token.cancel("the workflow was cancelled")
            heard.append(connection.recv(4096))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        canceller = threading.Thread(target=cancel, args=(listener,))
        canceller.start()
        reset = TOKEN.set(token)
        try:
            for _ in range(2):
                with pytest.raises(CancelledError, match="the workflow was cancelled"):
                    request("GET", f"http://127.0.0.1:{listener.getsockname()[1]}/", reach=LOCAL)
        finally:
            TOKEN.reset(reset)
            canceller.join()
    assert heard == [b""]


def test_a_server_that_trickles_does_not_get_more_time() -> None:
    clock = ManualClock()

    def trickle(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            try:
                connection.recv(4096)
                while True:
                    clock.advance(1)
                    connection.sendall(b"H")
            except OSError:
                pass  # the client has gone

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=trickle, args=(listener,))
        thread.start()
        with pytest.raises(TimeoutError, match="the time for the request is over"):
            request("GET", f"http://127.0.0.1:{listener.getsockname()[1]}/", reach=LOCAL, clock=clock)
        thread.join()


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "10.0.0.1", "169.254.169.254", "[::ffff:127.0.0.1]"]
)
def test_private_addresses_are_refused(server: Server, host: str) -> None:
    with pytest.raises(PermanentError, match=r"may not call; allow it: builtin_tasks\(reach=public_and\("):
        HttpTask().execute(stage(url=f"http://{host}:{server.server_port}/"))
    assert server.requests == []


def test_an_operator_can_open_and_close_the_way(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "127.0.0.1")
    HttpTask().execute(stage(url=server.url()))
    monkeypatch.setenv(VARIABLE, "public")
    with pytest.raises(PermanentError, match=f"may not call; .* and in {VARIABLE}"):
        HttpTask(reach=LOCAL).execute(stage(url=server.url()))
    assert len(server.requests) == 1


@pytest.mark.parametrize("task", [HttpTask, HttpTask()], ids=["class", "instance"])
def test_a_registry_binds_its_tasks_to_what_the_operator_lists(server: Server, task: Any) -> None:
    bound = TaskRegistry(reach=["127.0.0.1"])
    bound.register("http", task)
    bound.resolve("http").execute(stage(url=server.url()))
    elsewhere = TaskRegistry(reach=["10.0.0.0/8"])
    elsewhere.register("http", task)
    with pytest.raises(PermanentError, match="may not call"):
        elsewhere.resolve("http").execute(stage(url=server.url()))
    assert len(server.requests) == 1


def test_the_environment_goes_before_what_the_settings_list(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "10.0.0.0/8")
    registry = TaskRegistry(reach=["127.0.0.1"])
    registry.register("http", HttpTask(reach=LOCAL))
    with pytest.raises(PermanentError, match="may not call"):
        registry.resolve("http").execute(stage(url=server.url()))


def test_a_stage_cannot_allow_them(server: Server) -> None:
    with pytest.raises(PermanentError, match="may not call"):
        HttpTask().execute(stage(url=server.url(), reach=True, allow_private=True, allowed=["127.0.0.1"]))


def test_the_peer_itself_is_checked_before_anything_is_sent(server: Server) -> None:
    asked: list[str] = []

    def once(host: str, address: Any) -> bool:
        asked.append(f"{host} {address}")
        return len(asked) == 1

    with pytest.raises(PermanentError, match="may not call"):
        request("GET", server.url(), reach=once)
    assert asked == ["127.0.0.1 127.0.0.1"] * 2
    assert server.requests == []


def test_redirects_are_followed_when_asked_for(server: Server) -> None:
    server.script(Reply(302, b"", {"Location": "/b"}), Reply(302, b"", {"Location": "/b"}), Reply(200, b"here"))
    with pytest.raises(TaskError, match="302"):
        sent(server)
    found = sent(server, redirects=1)
    assert (found.body, found.url) == (b"here", server.url("/b"))


def test_a_post_is_never_redirected(server: Server) -> None:
    server.script(Reply(307, b"", {"Location": "/b"}))
    with pytest.raises(TaskError, match="307"):
        sent(server, method="POST", redirects=5)


def test_redirects_end(server: Server) -> None:
    server.script(*(Reply(302, b"", {"Location": "/x"}) for _ in range(4)))
    with pytest.raises(TaskError, match="302"):
        sent(server, redirects=2)
    assert len(server.requests) == 3


def test_a_redirect_does_not_lead_to_a_forbidden_address(server: Server) -> None:
    server.script(Reply(302, b"", {"Location": f"http://localhost:{server.server_port}/inside"}))
    with pytest.raises(PermanentError, match="localhost has the address"):
        request("GET", server.url(), reach=lambda host, address: host == "127.0.0.1", redirects=1)
    server.script(Reply(302, b"", {"Location": "file:///etc/passwd"}))
    with pytest.raises(ConfigurationError, match="http or https"):
        request("GET", server.url(), reach=LOCAL, redirects=1)


def test_another_server_gets_no_secret_header(server: Server) -> None:
    with running(Server()) as other:
        server.script(Reply(302, b"", {"Location": other.url("/b")}))
        headers = {"Authorization": "Bearer k1", "X-Api-Key": "k2", "Accept": "text/plain"}
        HttpCall(url=server.url(), headers=headers, redirects=1).send(reach=LOCAL)
        [asked] = other.requests
    assert server.requests[0].headers["Authorization"] == "Bearer k1"
    assert {"Authorization", "X-Api-Key"}.isdisjoint(asked.headers)
    assert asked.headers["Accept"] == "text/plain"


def test_an_answer_that_is_too_long_is_refused(server: Server) -> None:
    server.script(Reply(200, b"x" * 200))
    with pytest.raises(PermanentError, match="more than 100 bytes"):
        request("GET", server.url(), reach=LOCAL, cap=100)


def test_a_proxy_of_the_environment_is_not_used(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{unused_port()}")
    assert sent(server).status == 200


def test_tls_is_checked_against_the_name(server: Server) -> None:
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(CERTIFICATE)
    server.socket = own.wrap_socket(server.socket, server_side=True)
    trusting = ssl.create_default_context(cafile=CERTIFICATE)
    url = server.url("/x").replace("http:", "https:")
    assert request("GET", url, reach=LOCAL, tls=trusting).body == b"ok"
    with pytest.raises(TransientError, match=r"no connection: .*CERTIFICATE_VERIFY_FAILED"):
        HttpCall(url=url, method="POST").send(reach=LOCAL)
    with pytest.raises(TransientError, match=r"no connection: .*CERTIFICATE_VERIFY_FAILED"):
        HttpCall(url=url.replace("127.0.0.1", "localhost")).send(reach=public_and("localhost"), tls=trusting)
    assert len(server.requests) == 1


def test_a_guard_retries_what_may_be_made_twice(server: Server) -> None:
    guard = Guard("api", Retry(attempts=3), clock=ManualClock())
    server.script(Reply(503), Reply(503), Reply(200, b"done"))
    result = HttpTask(guards={"api": guard}.__getitem__, reach=LOCAL).execute(stage(url=server.url(), guard="api"))
    assert result.outputs["response"]["body"] == "done"
    assert len(server.requests) == 3


def test_a_guard_does_not_make_a_post_twice(server: Server) -> None:
    guard = Guard("api", Retry(attempts=3), clock=ManualClock())
    server.script(Reply(503))
    with pytest.raises(PermanentError, match="503"):
        HttpCall(url=server.url(), method="POST").send(guard=guard, reach=LOCAL)
    assert len(server.requests) == 1


def test_a_guard_that_gives_up_leaves_the_rest_to_the_engine(server: Server) -> None:
    guard = Guard("api", Retry(attempts=2), clock=ManualClock())
    server.script(Reply(503), Reply(503, b"", {"Retry-After": "9"}))
    with pytest.raises(TransientError) as raised:
        HttpCall(url=server.url()).send(guard=guard, reach=LOCAL)
    assert raised.value.retry_after == 9


def test_an_open_breaker_refuses_without_a_request(server: Server) -> None:
    guard = Guard("api", Breaker(consecutive(1)), clock=ManualClock())
    server.script(Drop())
    with pytest.raises(TransientError):
        HttpCall(url=server.url()).send(guard=guard, reach=LOCAL)
    with pytest.raises(CircuitOpen):
        HttpCall(url=server.url()).send(guard=guard, reach=LOCAL)
    assert len(server.requests) == 1


def test_a_forbidden_address_says_nothing_about_the_dependency(server: Server) -> None:
    guard = Guard("api", Retry(attempts=3), Breaker(consecutive(1)), clock=ManualClock())
    for _ in range(2):
        with pytest.raises(PermanentError, match="may not call"):
            HttpCall(url=server.url()).send(guard=guard)


def test_a_guard_must_be_known() -> None:
    with pytest.raises(ConfigurationError, match=r"make the task with HttpTask\(guards=hold.guard\)"):
        HttpTask().execute(stage(url="http://example.org/", guard="api"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "the http task needs 'url'"),
        ({"url": "ftp://example.org/"}, "url must be an http or https URL with a host"),
        ({"url": "http:///x"}, "url must be an http or https URL with a host"),
        ({"url": "http://example.org:99999/"}, "url must be an http or https URL with a host"),
        ({"url": "http://example.org/a b"}, "url must be an http or https URL with a host"),
        ({"url": "http://u:hunter22@example.org/"}, "url must not hold a user or password"),
        ({"url": "http://example.org/{x}"}, r"the placeholder \{x\} has no value"),
        ({"url": "http://example.org/", "method": "BREW"}, "method must be one of DELETE, GET"),
        ({"url": "http://example.org/", "method": 3}, "method must be a text"),
        ({"url": "http://example.org/", "headers": ["a"]}, "headers must be a mapping"),
        ({"url": "http://example.org/", "params": {"a": [1]}}, "params must be a mapping"),
        ({"url": "http://example.org/", "body": "x", "json": {}}, "body and json are both given"),
        ({"url": "http://example.org/", "timeout": 0}, "timeout must be a number"),
        ({"url": "http://example.org/", "redirects": -1}, "redirects must be 0..20, got -1"),
        ({"url": "http://example.org/", "idempotent": "yes"}, "idempotent must be true or false"),
        ({"url": "http://example.org/", "expected_statuses": 200}, "expected_statuses must be a list"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as raised:
        HttpTask().execute(stage(**settings))
    assert "hunter22" not in str(raised.value)
