"""Publishing to a real HTTP server."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import Any, NamedTuple

import httpx
import pytest

from holdfast.errors import PolicyError, ResolverError
from holdfast.outbox.envelope import CloudEvent
from holdfast.outbox.operation import RetryAfter
from holdfast.outbox.publishers import address
from holdfast.outbox.publishers.address import VARIABLE, AddressRefused, public_and
from holdfast.outbox.publishers.signature import new_secret, verify_webhook
from holdfast.outbox.publishers.webhook import WebhookFailed, WebhookPublisher, WebhookRefused
from holdfast.testing import ManualClock
from tests.outbox.publishers.messages import TRACE, a_message

SECRET = new_secret()
LOCAL = public_and("127.0.0.1")


class Got(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes
    peer: tuple[str, int]


class Receiver:
    """An HTTP server that answers what it is told to, and then 204."""

    def __init__(self) -> None:
        self.got: list[Got] = []
        self.answers: deque[tuple[int, dict[str, str]]] = deque()
        self.stuck = threading.Event()
        self.stuck.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.got.append(Got(self.path, dict(self.headers.items()), body, self.client_address))
                receiver.stuck.wait(10)
                status, headers = receiver.answers.popleft() if receiver.answers else (204, {})
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if status != 204:
                    self.send_header("content-length", "2")
                self.end_headers()
                if status != 204:
                    self.wfile.write(b"ok")

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 100

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/hooks?x=1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self.stuck.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
async def publisher(receiver: Receiver) -> AsyncIterator[WebhookPublisher]:
    publisher = WebhookPublisher(receiver.url, SECRET, reach=LOCAL, allow_http=True)
    yield publisher
    await publisher.close()


async def test_a_receiver_verifies_and_reads_the_envelope(receiver: Receiver, publisher: WebhookPublisher):
    message = a_message()
    assert await publisher.publish(message) is None
    (got,) = receiver.got
    assert verify_webhook(got.headers, got.body, SECRET) == message.id
    assert CloudEvent.from_headers(got.headers, got.body) == message.envelope
    assert got.path == "/hooks?x=1"
    assert got.headers["host"] == f"127.0.0.1:{receiver.port}"


async def test_the_binary_form_has_the_attributes_in_headers(receiver: Receiver):
    publisher = WebhookPublisher(receiver.url, SECRET, reach=LOCAL, allow_http=True, mode="binary")
    message = a_message()
    await publisher.publish(message)
    await publisher.close()
    (got,) = receiver.got
    assert got.body == message.body
    assert CloudEvent.from_headers(got.headers, got.body) == message.envelope


async def test_every_attempt_has_the_same_id_and_a_time_of_its_own(receiver: Receiver):
    clock = ManualClock()
    publisher = WebhookPublisher(receiver.url, SECRET, reach=LOCAL, allow_http=True, clock=clock)
    message = a_message()
    await publisher.publish(message)
    clock.advance(60)
    await publisher.publish(message)
    await publisher.close()
    first, second = (got.headers for got in receiver.got)
    assert first["webhook-id"] == second["webhook-id"] == message.id
    assert int(second["webhook-timestamp"]) - int(first["webhook-timestamp"]) == 60


async def test_several_secrets_give_several_signatures(receiver: Receiver):
    new = new_secret()
    publisher = WebhookPublisher(receiver.url, [new, SECRET], reach=LOCAL, allow_http=True)
    await publisher.publish(a_message())
    await publisher.close()
    (got,) = receiver.got
    for known in (new, SECRET):
        verify_webhook(got.headers, got.body, known)


async def test_of_the_entrys_headers_only_the_trace_goes_out(receiver: Receiver, publisher: WebhookPublisher):
    headers = {"traceparent": TRACE, "cookie": "session=1", "authorization": "Bearer x", "host": "evil"}
    await publisher.publish(a_message(headers=headers))
    sent = receiver.got[0].headers
    assert sent["traceparent"] == TRACE
    assert not {"cookie", "authorization"} & {name.lower() for name in sent}


async def test_connections_are_used_again(receiver: Receiver, publisher: WebhookPublisher):
    receiver.answers += [(200, {}), (204, {}), (200, {})]
    for _ in range(3):
        await publisher.publish(a_message())
    assert len({got.peer for got in receiver.got}) == 1


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
async def test_a_receiver_that_cannot_now_is_tried_again(receiver: Receiver, publisher: WebhookPublisher, status: int):
    receiver.answers.append((status, {}))
    with pytest.raises(WebhookFailed) as failed:
        await publisher.publish(a_message())
    assert failed.value.status == status
    assert not isinstance(failed.value, ResolverError)


@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_says_when(receiver: Receiver, publisher: WebhookPublisher, status: int):
    receiver.answers.append((status, {"retry-after": "120"}))
    assert await publisher.publish(a_message()) == RetryAfter(timedelta(seconds=120), f"Webhook{status}")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 1),
        ("999999999999999999999", 3600),
        ("Wed, 04 Mar 2026 05:08:00 GMT", 60),
        ("Wed, 04 Mar 2020 05:08:00 GMT", 1),
    ],
)
async def test_retry_after_may_be_a_date_and_is_kept_in_bounds(receiver: Receiver, text: str, seconds: int):
    clock = ManualClock()
    clock.advance((a_message().envelope.time.replace(second=0, microsecond=0) - clock.wall()).total_seconds() + 60)  # type: ignore[union-attr]  # it has one
    publisher = WebhookPublisher(receiver.url, SECRET, reach=LOCAL, allow_http=True, clock=clock)
    receiver.answers.append((503, {"retry-after": text}))
    answer = await publisher.publish(a_message())
    await publisher.close()
    assert answer == RetryAfter(timedelta(seconds=seconds), "Webhook503")


async def test_a_retry_after_that_says_nothing_is_passed_over(receiver: Receiver, publisher: WebhookPublisher):
    receiver.answers.append((503, {"retry-after": "soon"}))
    with pytest.raises(WebhookFailed):
        await publisher.publish(a_message())


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 413, 422])
async def test_a_receiver_that_refuses_gives_the_entry_up(receiver: Receiver, publisher: WebhookPublisher, status: int):
    receiver.answers.append((status, {"retry-after": "5"}))
    with pytest.raises(WebhookRefused, match=str(status)):
        await publisher.publish(a_message())


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed(receiver: Receiver, publisher: WebhookPublisher, status: int):
    receiver.answers.append((status, {"location": receiver.url}))
    with pytest.raises(WebhookRefused):
        await publisher.publish(a_message())
    assert len(receiver.got) == 1


async def test_a_receiver_that_does_not_answer_is_given_up_on_in_time(receiver: Receiver):
    receiver.stuck.clear()
    publisher = WebhookPublisher(receiver.url, SECRET, reach=LOCAL, allow_http=True, timeout=0.2)
    with pytest.raises((TimeoutError, httpx.TimeoutException)):
        await publisher.publish(a_message())
    await publisher.close()


async def test_a_receiver_that_is_not_there_is_tried_again(receiver: Receiver, publisher: WebhookPublisher):
    receiver.close()
    with pytest.raises(httpx.ConnectError):
        await publisher.publish(a_message())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "169.254.169.254", "2130706433", "0x7f000001"])
async def test_an_address_of_ones_own_network_is_refused_before_anything_is_sent(receiver: Receiver, host: str):
    publisher = WebhookPublisher(f"http://{host}:{receiver.port}/", SECRET, allow_http=True)
    with pytest.raises((AddressRefused, httpx.InvalidURL)):
        await publisher.publish(a_message())
    await publisher.close()
    assert receiver.got == []


async def test_the_name_stays_in_the_request_when_its_address_is_called(receiver: Receiver):
    url = f"http://localhost:{receiver.port}/"
    publisher = WebhookPublisher(url, SECRET, reach=public_and("localhost"), allow_http=True)
    await publisher.publish(a_message())
    await publisher.close()
    assert receiver.got[0].headers["host"] == f"localhost:{receiver.port}"


async def test_an_operator_can_open_and_close_the_way_for_publishers(receiver: Receiver, monkeypatch):
    monkeypatch.setenv(VARIABLE, "127.0.0.1")
    open_way = WebhookPublisher(receiver.url, SECRET, allow_http=True)
    await open_way.publish(a_message())
    await open_way.close()
    monkeypatch.setenv(VARIABLE, "public")
    closed = WebhookPublisher(receiver.url, SECRET, reach=LOCAL, allow_http=True)
    with pytest.raises(AddressRefused, match=VARIABLE):
        await closed.publish(a_message())
    await closed.close()
    assert len(receiver.got) == 1


async def test_a_name_that_changes_its_address_is_called_where_it_was_checked(receiver: Receiver, monkeypatch):
    asked: list[str] = []

    async def look_up(host: str, port: int) -> list[Any]:
        asked.append(host)
        return [ip_address("127.0.0.1" if len(asked) == 1 else "127.0.0.2")]

    monkeypatch.setattr(address, "_look_up", look_up)
    url = f"http://rebinding.example:{receiver.port}/"
    publisher = WebhookPublisher(url, SECRET, reach=LOCAL, allow_http=True)
    await publisher.publish(a_message())  # the name is in no DNS: a second look-up, by the client, would fail
    with pytest.raises(AddressRefused):
        await publisher.publish(a_message())
    await publisher.close()
    assert asked == ["rebinding.example"] * 2
    assert receiver.got[0].headers["host"] == f"rebinding.example:{receiver.port}"


async def test_the_reach_is_asked_about_every_request(receiver: Receiver):
    asked: list[str] = []

    def reach(host: str, address: Any) -> bool:
        asked.append(f"{host} {address}")
        return len(asked) == 1

    publisher = WebhookPublisher(receiver.url, SECRET, reach=reach, allow_http=True)
    await publisher.publish(a_message())
    with pytest.raises(AddressRefused):
        await publisher.publish(a_message())
    await publisher.close()
    assert asked == ["127.0.0.1 127.0.0.1"] * 2


async def test_a_client_of_the_callers_is_used_and_stays_open(receiver: Receiver):
    async with httpx.AsyncClient(headers={"x-mine": "1"}, follow_redirects=True) as client:
        publisher = WebhookPublisher(receiver.url, SECRET, reach=LOCAL, allow_http=True, client=client)
        await publisher.publish(a_message())
        await publisher.close()
        assert not client.is_closed
    assert receiver.got[0].headers["x-mine"] == "1"


async def test_without_a_reach_the_url_is_called_as_it_is(receiver: Receiver):
    publisher = WebhookPublisher(receiver.url, SECRET, reach=None, allow_http=True)
    await publisher.publish(a_message())
    await publisher.close()
    assert len(receiver.got) == 1


async def test_calls_at_the_same_time_all_arrive(receiver: Receiver, publisher: WebhookPublisher):
    messages = [a_message() for _ in range(20)]
    await asyncio.gather(*(publisher.publish(message) for message in messages))
    assert {got.headers["webhook-id"] for got in receiver.got} == {message.id for message in messages}


@pytest.mark.parametrize(
    ("url", "secrets", "story"),
    [
        ("http://shop.example/", SECRET, "must be https"),
        ("ftp://shop.example/", SECRET, "must be an http"),
        ("https:///x", SECRET, "with a host"),
        ("https://shop.example/", [], "at least one secret"),
        ("https://shop.example/", "short", "at least 16 bytes"),
    ],
    ids=["plain http", "another scheme", "no host", "no secret", "short secret"],
)
def test_a_webhook_that_cannot_be_safe_is_refused_when_it_is_made(url: str, secrets: Any, story: str):
    with pytest.raises(PolicyError, match=story):
        WebhookPublisher(url, secrets)
