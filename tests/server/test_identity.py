"""Who is asking, and how they can prove it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request
from starlette.requests import HTTPConnection

from holdfast import Holdfast
from holdfast.access.rights import ROLES, Identity, Role
from holdfast.errors import StoreUnavailable
from holdfast.server.api import create_app
from holdfast.server.identity import LOCAL
from holdfast.testing.clock import ManualClock
from tests.server.clients import API, ELSEWHERE, PASSWORD, client_of, holding, sign_in


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def hold(tmp_path: Path, clock: ManualClock) -> Iterator[Holdfast]:
    with holding(tmp_path, clock) as hold:
        yield hold


def who(client: Any, **options: Any) -> tuple[str | None, str | None]:
    answer = client.get(f"{API}/session", **options)
    assert answer.status_code == 200, answer.text
    return answer.json()["name"], answer.json()["via"]


def test_while_there_are_no_accounts_this_machine_may_do_everything_and_others_nothing(hold: Holdfast) -> None:
    app = create_app(hold)
    assert who(client_of(app)) == ("local", "loopback")
    assert client_of(app).get(f"{API}/letters").status_code == 200
    other = client_of(app, client=ELSEWHERE)
    assert who(other) == (None, None)
    answer = other.get(f"{API}/letters")
    assert (answer.status_code, answer.json()["error"]) == (401, "unauthorized")
    assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_the_first_account_closes_a_server_that_was_open(hold: Holdfast, clock: ManualClock) -> None:
    client = client_of(create_app(hold))
    assert who(client) == ("local", "loopback")
    hold.access.add_user("ada", PASSWORD, "admin")
    clock.advance(5)
    assert who(client) == (None, None)
    hold.access.remove_user("ada")
    clock.advance(60)
    assert who(client) == (None, None)  # until it is started again


def test_a_server_with_accounts_is_closed_from_the_first_request(hold: Holdfast) -> None:
    hold.access.create_token("ci", role="viewer")
    assert client_of(create_app(hold)).get(f"{API}/letters").status_code == 401


def test_signing_in_can_be_required_before_there_are_accounts_and_be_left_out_after(hold: Holdfast) -> None:
    assert who(client_of(create_app(hold, required=True))) == (None, None)
    hold.access.add_user("ada", PASSWORD, "admin")
    assert who(client_of(create_app(hold, required=False))) == ("local", "loopback")


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"])
def test_what_a_proxy_on_this_machine_hands_on_is_not_from_this_machine(hold: Holdfast, header: str) -> None:
    assert who(client_of(create_app(hold)), headers={header: "203.0.113.7"}) == (None, None)


def test_a_token_says_who_asks_from_anywhere(hold: Holdfast) -> None:
    token, text = hold.access.create_token("ci", ["letters:read"])
    client = client_of(create_app(hold), client=ELSEWHERE, token=text)
    assert who(client) == (f"token:ci/{token.id}", "token")
    assert client.get(f"{API}/letters").status_code == 200
    answer = client.get(f"{API}/status")
    assert (answer.status_code, answer.json()["details"]) == (403, {"right": "system:read"})
    hold.access.revoke_token(token.id)
    assert client.get(f"{API}/letters").status_code == 401


@pytest.mark.parametrize(
    "header",
    ["Bearer nonsense", "Bearer ", "Bearer", "Basic YWRhOnB3", "nonsense", "Bearer hf_000000000000_" + "0" * 64],
)
def test_a_wrong_token_is_nobody_even_on_this_machine(hold: Holdfast, header: str) -> None:
    assert who(client_of(create_app(hold)), headers={"Authorization": header}) == (None, None)


def test_two_tokens_in_one_request_are_none(hold: Holdfast) -> None:
    _, text = hold.access.create_token("ci", role="viewer")
    twice = [("Authorization", f"Bearer {text}"), ("Authorization", f"Bearer {text}")]
    assert who(client_of(create_app(hold)), headers=twice) == (None, None)


def test_a_wrong_token_is_not_mended_by_a_session(hold: Holdfast) -> None:
    hold.access.add_user("ada", PASSWORD, "admin")
    client = client_of(create_app(hold))
    sign_in(client, "ada")
    assert who(client) == ("ada", "session")
    assert who(client, headers={"Authorization": "Bearer nonsense"}) == (None, None)


def test_a_session_says_who_asks_until_its_user_is_disabled(hold: Holdfast) -> None:
    hold.access.add_user("root", PASSWORD, "admin")
    hold.access.add_user("ada", PASSWORD, "viewer")
    client = client_of(create_app(hold), client=ELSEWHERE)
    sign_in(client, "ada")
    assert who(client) == ("ada", "session")
    hold.access.disable("ada")
    assert who(client) == (None, None)


def test_a_program_may_say_itself_who_asks(hold: Holdfast) -> None:
    def identify(request: HTTPConnection) -> Identity | None:
        name = request.headers.get("x-employee")
        return None if name is None else Identity(name, ROLES[Role.OPERATOR], "hook")

    app = create_app(hold, required=True, identify=identify)
    client = client_of(app, client=ELSEWHERE)
    assert who(client, headers={"X-Employee": "eva"}) == ("eva", "hook")
    assert client.get(f"{API}/letters", headers={"X-Employee": "eva"}).status_code == 200
    assert who(client) == (None, None)


def test_a_program_may_refuse_what_rights_would_allow(hold: Holdfast) -> None:
    def authorize(identity: Identity, right: str, request: Request) -> bool:
        return not right.startswith("letters:")

    client = client_of(create_app(hold, authorize=authorize))
    assert client.get(f"{API}/letters").status_code == 403
    assert client.get(f"{API}/status").status_code == 200


class Away:
    """A store that has gone."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __getattr__(self, verb: str) -> Any:
        def fail(*args: Any, **kwargs: Any) -> Any:
            raise StoreUnavailable(f"{self.url}: gone")

        return fail


def test_nobody_is_let_in_while_the_store_is_away_and_probes_are_answered(hold: Holdfast, clock: ManualClock) -> None:
    client = client_of(create_app(hold))
    assert who(client) == ("local", "loopback")
    _, text = hold.access.create_token("ci", role="viewer")
    clock.advance(5)
    away: Any = Away(hold.store.url)
    hold.access._store = away
    hold.access._tokens._store = away
    for headers in ({}, {"Authorization": f"Bearer {text}"}):
        answer = client.get(f"{API}/letters", headers=headers)
        assert (answer.status_code, answer.json()["error"]) == (503, "store_away")
        assert answer.headers["Retry-After"] == "1"
    assert client.get(f"{API}/health").status_code == 200


def test_it_can_be_mounted_in_another_application(hold: Holdfast) -> None:
    hold.access.add_user("ada", PASSWORD, "admin")
    outer = FastAPI()
    outer.mount("/holdfast", create_app(hold))
    client = client_of(outer)
    answer = client.post(
        f"/holdfast{API}/session", json={"name": "ada", "password": PASSWORD}, headers={"X-Holdfast-CSRF": "1"}
    )
    assert "Path=/holdfast;" in answer.headers["Set-Cookie"] + ";"
    assert client.get(f"/holdfast{API}/session").json()["name"] == "ada"
    assert client.get(f"/holdfast{API}/session").headers["Cache-Control"] == "no-store"


def test_what_an_application_around_it_keeps_of_a_request_stays_and_proves_nothing(hold: Holdfast) -> None:
    seen: list[Any] = []
    inner = create_app(hold, required=True)

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        state = scope["state"] = {"identity": LOCAL, "own": 7}
        await inner(scope, receive, send)
        seen.append(state)

    assert client_of(outer).get(f"{API}/letters").status_code == 401
    assert seen == [{"identity": LOCAL, "own": 7}]
