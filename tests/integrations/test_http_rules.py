"""What is retried over HTTP, what is returned, and what a breaker learns from it, in every client."""

from __future__ import annotations

import io
from datetime import timedelta
from email.utils import format_datetime

import httpx
import pytest

from holdfast.core.outcome import OutcomeKind
from holdfast.errors import CircuitOpen, PolicyError
from holdfast.guard.guard import Guard
from holdfast.guard.retry_policy import RetryPolicy
from holdfast.integrations._exchange import http_guard
from holdfast.machine.breaker import Breaker
from holdfast.machine.retry import Retry
from holdfast.machine.trip import consecutive
from holdfast.telemetry.events import AttemptCompleted, CallCompleted
from holdfast.telemetry.hub import Hub
from holdfast.testing.clock import ManualClock
from tests.integrations.clients import CLIENTS
from tests.integrations.servers import Drop, Reply, unused_port

THRICE = Retry(attempts=3, base=1, jitter="none")


def test_a_retryable_status_is_retried_until_a_good_answer_comes(server, client_of, guard_of, clock):
    server.script(Reply(502), Reply(503), Reply(200, b"done"))
    answer = client_of(guard_of(THRICE)).get(server.url("/thing"))
    assert (answer.status, answer.body) == (200, b"done")
    assert [request.path for request in server.requests] == ["/thing"] * 3
    assert clock.slept == [1, 2]


def test_the_last_failing_response_is_returned_and_can_be_read(server, client_of, guard_of):
    server.script(*[Reply(503, b"still down")] * 3)
    answer = client_of(guard_of(THRICE)).get(server.url())
    assert (answer.status, answer.body) == (503, b"still down")
    assert len(server.requests) == 3


@pytest.mark.parametrize("status", [200, 204, 301, 400, 401, 404, 407, 409, 429, 500, 501])
def test_any_other_status_is_an_answer_and_is_returned_at_once(server, client_of, guard_of, status):
    server.script(Reply(status, b"" if status == 204 else b"so"))
    client = client_of(guard_of(THRICE))
    options = {"allow_redirects": False} if status == 301 and hasattr(client, "session") else {}
    assert client.get(server.url(), **options).status == status
    assert len(server.requests) == 1


def test_which_statuses_are_retried_can_be_chosen(server, client_of, guard_of):
    server.script(Reply(500), Reply(503))
    answer = client_of(guard_of(THRICE, retry_status_codes=[500])).get(server.url())
    assert answer.status == 503
    assert len(server.requests) == 2


def test_a_retry_policy_brings_its_own_statuses_and_its_timeout(server, client_of, guard_of, clock):
    policy = RetryPolicy(max_attempts=2, base_delay=3, retry_status_codes=(507,), timeout=20)
    server.script(Reply(507), Reply(200))
    guard = guard_of(policy)
    assert client_of(guard).get(server.url()).status == 200
    assert clock.slept == [3]
    assert "20 s" in " ".join(strategy.describe() for strategy in guard.plan.strategies)


def test_a_status_below_500_cannot_be_made_retryable_by_number():
    with pytest.raises(PolicyError, match=r"retry_status_codes must be 500\.\.599, got 429"):
        http_guard("api", retry_status_codes=[429])


def test_a_plain_guard_gets_the_http_rules_from_the_client(server, client_of, clock):
    server.script(Reply(503))
    guard = Guard("plain", THRICE, clock=clock, telemetry=Hub())
    assert client_of(guard).get(server.url()).status == 200
    assert len(server.requests) == 2
    assert guard.run(lambda: Reply(503)).is_success, "its other calls are judged as before"


def test_a_plain_guard_does_not_repeat_the_callers_mistakes(server, client_of, clock):
    tried = []
    guard = Guard("plain", Retry(base=0, on_retry=lambda *story: tried.append(story)), clock=clock, telemetry=Hub())
    with pytest.raises(Exception, match=r"(?i)header"):
        client_of(guard).request("PUT", server.url(), content=b"", headers={"X-Bad": "a\nb"})
    assert tried == []


def test_a_guards_own_classifier_is_used_instead_of_the_rules(server, client_of, guard_of):
    def judge(response):
        return OutcomeKind.TRANSIENT_FAILURE if response.status_code == 418 else None

    server.script(Reply(418), Reply(503))
    assert client_of(guard_of(THRICE, result_classifier=judge)).get(server.url()).status == 503
    assert len(server.requests) == 2


def test_a_connection_that_breaks_before_the_answer_is_retried(server, client_of, guard_of):
    server.script(Drop(), Drop())
    assert client_of(guard_of(THRICE)).get(server.url()).status == 200
    assert len(server.requests) == 3


def test_the_last_exception_is_the_clients_own_with_the_attempts_as_a_note(server, client_of, guard_of):
    server.script(Drop(), Drop(), Drop())
    client = client_of(guard_of(THRICE))
    with pytest.raises(client.network_errors) as raised:
        client.get(server.url())
    assert "3 attempts" in "".join(raised.value.__notes__)


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "get", "Delete"])
def test_idempotent_methods_are_retried(server, client_of, guard_of, method):
    server.script(Reply(503, b""), Reply(200, b""))
    assert client_of(guard_of(THRICE)).request(method, server.url()).status == 200
    assert len(server.requests) == 2


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_other_methods_get_one_attempt_and_their_response_is_returned(server, client_of, guard_of, recorder, method):
    server.script(Reply(503, b"no"))
    answer = client_of(guard_of(THRICE)).request(method, server.url(), content=b"x")
    assert (answer.status, answer.body, len(server.requests)) == (503, b"no", 1)
    assert [event.outcome for event in recorder.of(AttemptCompleted)] == [OutcomeKind.TRANSIENT_FAILURE]


def test_a_post_whose_connection_broke_is_not_retried_for_it_may_have_been_received(server, client_of, guard_of):
    server.script(Drop())
    client = client_of(guard_of(THRICE))
    with pytest.raises(client.network_errors):
        client.post(server.url())
    assert len(server.requests) == 1


def test_a_post_with_an_idempotency_key_is_retried_with_the_same_key_and_body(server, client_of, guard_of):
    server.script(Reply(503), Drop())
    answer = client_of(guard_of(THRICE)).post(server.url(), b"body", headers={"idempotency-key": "k1"})
    assert answer.status == 200
    assert [(r.headers["idempotency-key"], r.body) for r in server.requests] == [("k1", b"body")] * 3


def test_an_empty_idempotency_key_is_none(server, client_of, guard_of):
    server.script(Reply(503))
    assert client_of(guard_of(THRICE)).post(server.url(), headers={"Idempotency-Key": ""}).status == 503
    assert len(server.requests) == 1


def test_a_policy_can_lift_the_rule_for_methods(server, client_of, guard_of):
    server.script(Reply(503), Drop())
    policy = RetryPolicy(retry_non_idempotent=True)
    assert client_of(guard_of(policy)).post(server.url()).status == 200
    assert len(server.requests) == 3


def test_a_post_that_never_left_is_retried(client_of, guard_of, recorder, clock):
    client = client_of(guard_of(THRICE))
    with pytest.raises(client.connect_errors) as raised:
        client.post(f"http://127.0.0.1:{unused_port()}/")
    assert len(recorder.of(AttemptCompleted)) == 3
    assert raised.value.not_sent


def test_a_request_that_never_left_is_known_as_such_under_any_classifier(client_of, guard_of, recorder):
    client = client_of(guard_of(THRICE, classify=lambda error: OutcomeKind.TRANSIENT_FAILURE))
    with pytest.raises(client.connect_errors):
        client.post(f"http://127.0.0.1:{unused_port()}/")
    assert len(recorder.of(AttemptCompleted)) == 3


def test_a_body_that_can_be_sent_once_is_not_retried_after_it_was_sent(server, client_of, guard_of):
    server.script(Reply(503))
    client = client_of(guard_of(THRICE))
    assert client.request("PUT", server.url(), content=client.body_once(b"a", b"b")).status == 503
    assert [request.body for request in server.requests] == [b"ab"]


def test_not_even_a_policy_that_retries_everything_sends_half_a_body(server, client_of, guard_of, recorder):
    server.script(Drop())
    client = client_of(guard_of(Retry(attempts=3, base=0, safety="always"), Breaker(consecutive(1))))
    with pytest.raises(client.network_errors):
        client.request("PUT", server.url(), content=client.body_once(b"a", b"b"))
    assert [request.body for request in server.requests] == [b"ab"]
    assert recorder.names().count("CircuitStateChanged") == 1, "the failure counts against the dependency all the same"


def test_a_body_that_can_be_sent_once_is_retried_while_nobody_has_taken_it(client_of, guard_of, recorder):
    client = client_of(guard_of(THRICE))
    with pytest.raises(client.connect_errors):
        client.request("PUT", f"http://127.0.0.1:{unused_port()}/", content=client.body_once(b"a"))
    assert len(recorder.of(AttemptCompleted)) == 3


def test_retry_after_in_seconds_replaces_the_computed_wait(server, client_of, guard_of, clock):
    server.script(Reply(503, headers={"Retry-After": "7"}))
    assert client_of(guard_of(THRICE)).get(server.url()).status == 200
    assert clock.slept == [7]


def test_retry_after_as_a_date_counts_from_the_injected_clock(server, client_of, guard_of, clock):
    at = format_datetime(clock.wall() + timedelta(seconds=30), usegmt=True)
    server.script(Reply(503, headers={"Retry-After": at}))
    assert client_of(guard_of(THRICE)).get(server.url()).status == 200
    assert clock.slept == [30]


@pytest.mark.parametrize("value", ["soon", "-3", "nan"])
def test_a_retry_after_that_makes_no_sense_is_ignored(server, client_of, guard_of, clock, value):
    server.script(Reply(503, headers={"Retry-After": value}))
    assert client_of(guard_of(THRICE)).get(server.url()).status == 200
    assert clock.slept == [1]


def test_too_many_requests_is_retried_when_the_server_says_when(server, client_of, guard_of, clock):
    server.script(Reply(429, headers={"Retry-After": "5"}))
    guard = guard_of(THRICE, Breaker(consecutive(1)))
    assert client_of(guard).get(server.url()).status == 200
    assert clock.slept == [5]
    assert guard.circuit.state == "closed", "who limits us is alive"


def test_a_retryable_status_counts_against_the_dependency(server, client_of, guard_of):
    server.script(Reply(503), Reply(503))
    guard = guard_of(Retry(attempts=5, base=0), Breaker(consecutive(2)))
    with pytest.raises(CircuitOpen):
        client_of(guard).get(server.url())
    assert len(server.requests) == 2


@pytest.mark.parametrize("status", [400, 404, 500])
def test_any_other_status_shows_that_the_dependency_is_alive(server, client_of, guard_of, status):
    server.script(Reply(503), Reply(status), Reply(503))
    guard = guard_of(Retry(attempts=1), Breaker(consecutive(2)))
    client = client_of(guard)
    assert [client.get(server.url()).status for _ in range(3)] == [503, status, 503]
    assert guard.circuit.state == "closed"


@pytest.mark.parametrize("status", [401, 407])
def test_a_refused_login_says_nothing_about_the_dependency(server, client_of, guard_of, recorder, status):
    server.script(Reply(503), Reply(status), Reply(503))
    guard = guard_of(Retry(attempts=1), Breaker(consecutive(2)))
    client = client_of(guard)
    assert [client.get(server.url()).status for _ in range(3)] == [503, status, 503]
    assert guard.circuit.state == "open"
    assert recorder.of(CallCompleted)[1].outcome is OutcomeKind.TERMINAL_FAILURE


def test_a_request_the_client_cannot_make_is_not_retried(server, client_of, guard_of, recorder):
    guard = guard_of(THRICE, Breaker(consecutive(1)))
    with pytest.raises(Exception, match=r"(?i)header"):
        client_of(guard).get(server.url(), headers={"X-Bad": "a\nb"})
    assert server.requests == []
    assert guard.circuit.state == "closed"


def test_an_override_applies_to_the_requests_of_its_block(server, client_of, guard_of):
    server.script(Reply(503), Reply(503))
    guard = guard_of(THRICE)
    client = client_of(guard)
    with guard.override(Retry(attempts=1)):
        assert client.get(server.url()).status == 503
    assert client.get(server.url()).status == 200
    assert len(server.requests) == 3


def test_a_file_is_sent_again_from_where_it_began(server, guard_of):
    server.script(Reply(503), Reply(503))
    file = io.BytesIO(b"skip-this|the file")
    file.seek(10)
    client = CLIENTS["requests"](guard_of(THRICE))
    assert client.request("PUT", server.url(), content=file).status == 200
    assert [request.body for request in server.requests] == [b"the file"] * 3
    client.close()


@pytest.mark.parametrize("kind", ["httpx", "httpx-async", "httpx2", "httpx2-async"])
def test_a_multipart_form_is_sent_again_with_its_files(server, guard_of, kind):
    server.script(Reply(503))
    client = CLIENTS[kind](guard_of(THRICE))
    answer = client.request("PUT", server.url(), files={"f": io.BytesIO(b"the file")}, data={"a": "b"})
    assert answer.status == 200
    assert server.requests[0].body == server.requests[1].body
    assert b"the file" in server.requests[1].body
    client.close()


@pytest.mark.parametrize("kind", ["httpx", "httpx2"])
def test_a_multipart_form_with_a_file_that_cannot_be_rewound_is_sent_once(server, guard_of, kind):
    class Pipe:
        def __init__(self):
            self.parts = [b"the file", b""]

        def read(self, size=-1):
            return self.parts.pop(0)

    server.script(Reply(503))
    client = CLIENTS[kind](guard_of(THRICE))
    assert client.request("PUT", server.url(), files={"f": ("name", Pipe())}).status == 503
    assert len(server.requests) == 1
    client.close()


def test_an_error_made_from_a_response_counts_like_the_response():
    def fetch(status, **headers):
        def run():
            httpx.Response(status, headers=headers, request=httpx.Request("GET", "http://x/")).raise_for_status()

        return run

    guard = http_guard("api", clock=ManualClock(), telemetry=Hub())
    assert guard.run(fetch(503)).kind is OutcomeKind.TRANSIENT_FAILURE
    assert guard.run(fetch(404)).kind is OutcomeKind.TERMINAL_FAILURE
    assert guard.run(fetch(404)).evidence == "success"
    assert guard.run(fetch(401)).evidence == "neutral"
    assert guard.run(fetch(429)).kind is OutcomeKind.TERMINAL_FAILURE
    assert guard.run(fetch(429, **{"Retry-After": "4"})).retry_after == 4
