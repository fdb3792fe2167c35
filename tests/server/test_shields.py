"""What is kept out, whoever asks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from holdfast import Holdfast
from holdfast.access.rights import ROLES, Identity, Role
from holdfast.server.api import create_app
from holdfast.server.shields import HEADERS, Limits
from holdfast.testing.clock import ManualClock
from tests.server.clients import API, BASE_URL, ELSEWHERE, PASSWORD, client_of, holding, sign_in

CHANGE = f"{API}/letters/domains/resume"
BODY = {"domain": "billing"}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def hold(tmp_path: Path, clock: ManualClock) -> Iterator[Holdfast]:
    with holding(tmp_path, clock) as hold:
        yield hold


@pytest.fixture
def app(hold: Holdfast) -> FastAPI:
    return create_app(hold, hosts=["console.example.com"])


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8400", "localhost:8400", "LOCALHOST", "localhost.", "[::1]:8400", "[::1]", "console.example.com:443"],
)
def test_a_server_answers_to_its_own_names(app: FastAPI, host: str) -> None:
    assert client_of(app).get(f"{API}/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "", "example.com", "x.console.example.com", "[::2]", "localhost@evil"],
)
def test_a_server_does_not_answer_to_a_name_that_was_made_to_lead_to_it(app: FastAPI, host: str) -> None:
    answer = client_of(app).get(f"{API}/health", headers={"Host": host})
    assert (answer.status_code, answer.json()["error"]) == (400, "unknown_host")
    assert answer.headers["Content-Type"] == "application/problem+json"


def test_every_name_is_let_in_only_when_that_is_asked_for(hold: Holdfast) -> None:
    assert (
        client_of(create_app(hold, hosts=["*"])).get(f"{API}/health", headers={"Host": "any.example"}).status_code
        == 200
    )


def test_every_answer_tells_browsers_what_not_to_do(app: FastAPI, hold: Holdfast) -> None:
    @app.get(f"{API}/broken")
    def broken() -> None:
        raise RuntimeError("a secret detail")

    client = client_of(app)
    answers = {
        200: client.get(f"{API}/health"),
        404: client.get(f"{API}/nowhere"),
        400: client.get(f"{API}/health", headers={"Host": "evil.example"}),
        403: client.post(CHANGE, json=BODY),
        422: client.get(f"{API}/letters?limit=0"),
        500: client.get(f"{API}/broken"),
    }
    for status, answer in answers.items():
        assert answer.status_code == status
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
        assert answer.headers["Cache-Control"] == "no-store"
    assert "secret detail" not in answers[500].text


def test_no_script_from_elsewhere_and_none_in_a_page_is_allowed() -> None:
    policy = HEADERS["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy


def test_what_is_no_part_of_the_api_may_be_kept_by_a_browser(app: FastAPI) -> None:
    assert client_of(app).get("/nowhere").headers.get("Cache-Control") != "no-store"


def test_a_body_above_the_limit_is_refused_before_anything_is_done(hold: Holdfast) -> None:
    client = client_of(create_app(hold, limits=Limits(body_bytes=100)))
    client.headers["X-Holdfast-CSRF"] = client.get(f"{API}/session").json()["csrf"]
    large = b'{"domain":"' + b"x" * 90 + b'"}'
    small = b'{"domain":"' + b"x" * 80 + b'"}'
    headers = {"Content-Type": "application/json"}
    assert client.post(CHANGE, content=small, headers=headers).status_code == 200
    said = client.post(CHANGE, content=large, headers=headers)
    streamed = client.post(CHANGE, content=iter([large[:60], large[60:]]), headers=headers)
    for answer in (said, streamed):
        assert (answer.status_code, answer.json()["error"]) == (413, "too_large")
    in_parts = client.post(CHANGE, content=iter([small[:60], small[60:]]), headers=headers)
    assert in_parts.status_code == 200


async def test_a_body_that_lies_about_its_length_is_counted(hold: Holdfast) -> None:
    """A server would cut it; another one in front of it might not."""
    app = create_app(hold, limits=Limits(body_bytes=100))
    parts = [{"type": "http.request", "body": b"x" * 60, "more_body": True} for _ in range(1000)]
    sent: list[Any] = []

    async def receive() -> Any:
        return parts.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    _, text = hold.access.create_token("ci", role="admin")
    headers = [(b"host", b"localhost"), (b"content-length", b"10"), (b"authorization", f"Bearer {text}".encode())]
    scope = {
        "type": "http", "method": "POST", "path": CHANGE, "raw_path": CHANGE.encode(), "query_string": b"",
        "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8400), "scheme": "http",
        "http_version": "1.1", "root_path": "", "asgi": {"version": "3.0"},
    }  # fmt: skip
    await app(scope, receive, send)
    assert sent[0]["status"] == 413
    assert len(parts) == 998  # no more is read than is needed to say no


def test_who_asks_too_often_is_told_when_to_go_on(hold: Holdfast, clock: ManualClock) -> None:
    _, one = hold.access.create_token("one", role="admin")
    _, two = hold.access.create_token("two", role="admin")
    app = create_app(hold, limits=Limits(reads=(0.5, 3), changes=(0.25, 1)))
    client, other = client_of(app, token=one), client_of(app, token=two)
    assert [client.get(f"{API}/letters").status_code for _ in range(4)] == [200, 200, 200, 429]
    answer = client.get(f"{API}/letters")
    assert (answer.json()["error"], answer.headers["Retry-After"]) == ("too_many_requests", "2")
    assert [client.post(CHANGE, json=BODY).status_code for _ in range(2)] == [200, 429]
    assert other.get(f"{API}/letters").status_code == 200
    clock.advance(2)
    assert client.get(f"{API}/letters").status_code == 200


def test_those_who_are_nobody_share_the_limit_of_their_address(hold: Holdfast) -> None:
    app = create_app(hold, required=True, limits=Limits(reads=(0.5, 2)))
    here, there = client_of(app), client_of(app, client=ELSEWHERE)
    tried = [here.get(f"{API}/letters", headers={"Authorization": f"Bearer {at}"}).status_code for at in range(3)]
    assert tried == [401, 401, 429]
    assert there.get(f"{API}/letters").status_code == 401


def test_another_machine_is_bounded_before_anybody_is_looked_up(hold: Holdfast) -> None:
    app = create_app(hold, limits=Limits(address=(0.5, 2)))
    tokens = [hold.access.create_token(f"t{at}", role="viewer")[1] for at in range(3)]
    seen = [client_of(app, client=ELSEWHERE, token=text).get(f"{API}/letters").status_code for text in tokens]
    assert seen == [200, 200, 429]
    assert client_of(app, token=tokens[2]).get(f"{API}/letters").status_code == 200


def test_a_whole_network_of_ipv6_addresses_is_one_machine(hold: Holdfast) -> None:
    app = create_app(hold, required=True, limits=Limits(address=(0.5, 2)))
    ask = [client_of(app, client=(f"2606:2800:220:1::{at}", 50_000)).get(f"{API}/letters") for at in range(3)]
    assert [answer.status_code for answer in ask] == [401, 401, 429]
    assert client_of(app, client=("2606:2800:220:2::1", 50_000)).get(f"{API}/letters").status_code == 401


def test_this_machine_without_accounts_is_not_limited(hold: Holdfast) -> None:
    client = client_of(create_app(hold, limits=Limits(reads=(0.5, 1), changes=(0.5, 1), address=(0.5, 1))))
    assert {client.get(f"{API}/letters").status_code for _ in range(5)} == {200}


def test_a_change_without_what_the_session_told_is_refused(hold: Holdfast) -> None:
    hold.access.add_user("ada", PASSWORD, "operator")
    client = client_of(create_app(hold))
    csrf = sign_in(client, "ada")
    other = client_of(create_app(hold))
    sign_in(other, "ada")
    assert client.post(CHANGE, json=BODY).status_code == 200
    for wrong in ("", "1", csrf[:-1], other.headers["X-Holdfast-CSRF"], "é"):
        answer = client.post(CHANGE, json=BODY, headers={"X-Holdfast-CSRF": wrong.encode()})
        assert (answer.status_code, answer.json()["error"]) == (403, "csrf")
    assert client.get(f"{API}/letters", headers={"X-Holdfast-CSRF": ""}).status_code == 200


def test_this_machine_has_to_repeat_the_processes_own_value(hold: Holdfast) -> None:
    client = client_of(create_app(hold))
    assert client.post(CHANGE, json=BODY).json()["error"] == "csrf"
    csrf = client.get(f"{API}/session").json()["csrf"]
    assert client.post(CHANGE, json=BODY, headers={"X-Holdfast-CSRF": csrf}).status_code == 200
    again = client_of(create_app(hold)).post(CHANGE, json=BODY, headers={"X-Holdfast-CSRF": csrf})
    assert again.status_code == 403  # another process


def test_a_token_needs_no_csrf_value(hold: Holdfast) -> None:
    _, text = hold.access.create_token("ci", ["letters:operate"])
    client = client_of(create_app(hold), client=ELSEWHERE, token=text)
    assert client.post(CHANGE, json=BODY).status_code == 200
    assert client.post(CHANGE, json=BODY, headers={"Origin": "https://evil.example"}).status_code == 200


def test_who_the_program_knows_has_to_repeat_it_too(hold: Holdfast) -> None:
    """Its proof may be a cookie that a browser adds by itself."""
    app = create_app(hold, required=True, identify=lambda request: Identity("eva", ROLES[Role.OPERATOR], "hook"))
    client = client_of(app, client=ELSEWHERE)
    assert client.post(CHANGE, json=BODY).json()["error"] == "csrf"
    csrf = client.get(f"{API}/session").json()["csrf"]
    assert client.post(CHANGE, json=BODY, headers={"X-Holdfast-CSRF": csrf}).status_code == 200


FOREIGN: list[dict[str, str]] = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "http://127.0.0.1:8401"},
    {"Origin": "http://127.0.0.1"},
    {"Origin": "http://["},
    {"Origin": "http://localhost:8400"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Origin": BASE_URL, "Sec-Fetch-Site": "cross-site"},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_a_change_that_another_sites_page_asks_for_is_refused(hold: Holdfast, headers: dict[str, str]) -> None:
    client = client_of(create_app(hold))
    client.headers["X-Holdfast-CSRF"] = client.get(f"{API}/session").json()["csrf"]
    answer = client.post(CHANGE, json=BODY, headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (403, "foreign_origin")
    signing = client.post(f"{API}/session", json={"name": "ada", "password": PASSWORD}, headers=headers)
    assert signing.json()["error"] == "foreign_origin"


@pytest.mark.parametrize(
    ("headers", "host"),
    [
        ({"Origin": BASE_URL, "Sec-Fetch-Site": "same-origin"}, "127.0.0.1:8400"),
        ({"Sec-Fetch-Site": "none"}, "127.0.0.1:8400"),
        ({"Origin": "https://console.example.com"}, "console.example.com"),
        ({"Origin": "https://console.example.com"}, "console.example.com:443"),
        ({"Origin": "http://localhost"}, "localhost:80"),
        ({}, "127.0.0.1:8400"),
    ],
    ids=str,
)
def test_a_change_from_the_servers_own_page_is_let_in(app: FastAPI, headers: dict[str, str], host: str) -> None:
    client = client_of(app)
    client.headers["X-Holdfast-CSRF"] = client.get(f"{API}/session").json()["csrf"]
    assert client.post(CHANGE, json=BODY, headers={**headers, "Host": host}).status_code == 200
