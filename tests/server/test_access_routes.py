"""Signing in and out, users and tokens, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from holdfast import Holdfast
from holdfast.access.access import PER_ADDRESS, PER_NAME
from holdfast.access.rights import RIGHTS
from holdfast.server.api import create_app
from holdfast.testing.clock import ManualClock
from tests.server.clients import API, ELSEWHERE, PASSWORD, app_of, client_of, holding, sign_in

OTHER = "staple staple staple"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def hold(tmp_path: Path, clock: ManualClock) -> Iterator[Holdfast]:
    with holding(tmp_path, clock) as hold:
        hold.access.add_user("root", PASSWORD, "admin")
        hold.access.add_user("ada", PASSWORD, "operator")
        yield hold


@pytest.fixture
def app(hold: Holdfast) -> FastAPI:
    return create_app(hold)


@pytest.fixture
def root(app: FastAPI) -> TestClient:
    """An admin who has signed in."""
    client = client_of(app)
    sign_in(client, "root")
    return client


def begin(client: TestClient, name: str, password: str = PASSWORD, **headers: str) -> Any:
    return client.post(
        f"{API}/session", json={"name": name, "password": password}, headers={"X-Holdfast-CSRF": "1", **headers}
    )


def test_nobody_is_told_how_to_sign_in(app: FastAPI) -> None:
    shown = client_of(app).get(f"{API}/session").json()
    assert shown.pop("csrf")
    assert shown == {"name": None, "via": None, "rights": [], "expires_at": None, "sign_in_required": True}


def test_who_signs_in_is_told_what_they_may_do(app: FastAPI) -> None:
    client = client_of(app)
    answer = begin(client, "ada")
    shown = answer.json()
    assert (answer.status_code, shown["name"], shown["via"]) == (200, "ada", "session")
    assert shown["rights"] == [right for right in RIGHTS if right.endswith((":read", ":operate"))]
    assert client.get(f"{API}/session").json() == shown


def test_the_cookie_is_out_of_reach_of_scripts_and_of_other_sites(app: FastAPI) -> None:
    cookie = SimpleCookie(begin(client_of(app), "ada").headers["Set-Cookie"])
    assert set(cookie) == {"holdfast"}
    found = cookie["holdfast"]
    assert (found["httponly"], found["samesite"], found["path"]) == (True, "strict", "/")
    assert (found["secure"], found["domain"], found["max-age"]) == ("", "", "43200")


@pytest.mark.parametrize(
    ("scheme", "headers", "options"),
    [
        ("https", {}, {}),
        ("http", {"X-Forwarded-Proto": "https"}, {}),
        ("http", {"X-Forwarded-Proto": "http, HTTPS"}, {}),
        ("http", {"Forwarded": 'for=203.0.113.7;proto="https", for=10.0.0.1'}, {}),
        ("http", {"Origin": "https://console.example.com"}, {}),
        ("http", {}, {"https": True}),
    ],
)
def test_over_https_only_the_cookie_counts_that_no_other_host_can_set(
    hold: Holdfast, scheme: str, headers: dict[str, str], options: dict[str, bool]
) -> None:
    app = create_app(hold, hosts=["console.example.com"], **options)
    base_url = f"{scheme}://console.example.com"
    answer = begin(client_of(app, client=ELSEWHERE, base_url=base_url), "ada", **headers)
    cookie = SimpleCookie(answer.headers["Set-Cookie"])
    assert set(cookie) == {"__Host-holdfast"}
    found = cookie["__Host-holdfast"]
    assert (found["secure"], found["path"], found["domain"]) == (True, "/", "")
    for name, expected in (("__Host-holdfast", "ada"), ("holdfast", None)):
        bare = client_of(app, client=ELSEWHERE, base_url=base_url)
        shown = bare.get(f"{API}/session", headers={"Cookie": f"{name}={found.value}", **headers}).json()
        assert shown["name"] == expected


@pytest.mark.parametrize("headers", [{}, {"X-Forwarded-Proto": "http"}, {"Forwarded": "for=1.2.3.4;proto=http"}])
def test_over_http_the_plain_cookie_is_all_that_a_browser_takes(hold: Holdfast, headers: dict[str, str]) -> None:
    app = create_app(hold)
    client = client_of(app, client=ELSEWHERE)
    assert set(SimpleCookie(begin(client, "ada", **headers).headers["Set-Cookie"])) == {"holdfast"}
    assert client.get(f"{API}/session", headers=headers).json()["name"] == "ada"


def test_a_wrong_password_and_an_unknown_name_get_the_same_answer(app: FastAPI) -> None:
    client = client_of(app)
    answers = [begin(client, "ada", OTHER), begin(client, "nobody", OTHER)]
    assert [answer.status_code for answer in answers] == [401, 401]
    assert answers[0].content == answers[1].content
    assert "Set-Cookie" not in answers[0].headers


def test_signing_in_needs_a_header_that_other_sites_cannot_send(app: FastAPI) -> None:
    answer = client_of(app).post(f"{API}/session", json={"name": "ada", "password": PASSWORD})
    assert (answer.status_code, answer.json()["error"]) == (403, "csrf")


def test_too_many_attempts_are_told_to_wait(app: FastAPI) -> None:
    client = client_of(app)
    assert {begin(client, "ada", OTHER).status_code for _ in range(PER_NAME[1])} == {401}
    answer = begin(client, "ada")
    assert (answer.status_code, answer.json()["error"], answer.headers["Retry-After"]) == (
        429,
        "too_many_attempts",
        "6",
    )


def test_one_address_cannot_try_many_names(app: FastAPI) -> None:
    client = client_of(app, client=ELSEWHERE)
    tried = [begin(client, f"user{at}", OTHER).status_code for at in range(PER_ADDRESS[1] + 1)]
    assert tried == [401] * PER_ADDRESS[1] + [429]
    assert begin(client_of(app), "ada").status_code == 200


def test_who_signs_out_is_nobody_and_the_cookie_opens_nothing(app: FastAPI) -> None:
    client = client_of(app)
    sign_in(client, "ada")
    value = client.cookies["holdfast"]
    answer = client.delete(f"{API}/session")
    assert answer.status_code == 204
    assert client.get(f"{API}/session").json()["name"] is None
    assert client_of(app).get(f"{API}/session", headers={"Cookie": f"holdfast={value}"}).json()["name"] is None


def test_signing_out_needs_what_the_session_told(app: FastAPI) -> None:
    client = client_of(app)
    sign_in(client, "ada")
    assert client.delete(f"{API}/session", headers={"X-Holdfast-CSRF": "1"}).status_code == 403
    assert client.get(f"{API}/session").json()["name"] == "ada"


def test_signing_in_again_ends_the_session_before(app: FastAPI, hold: Holdfast) -> None:
    client = client_of(app)
    csrf = sign_in(client, "ada")
    before = client.cookies["holdfast"]
    assert begin(client, "root", **{"X-Holdfast-CSRF": csrf}).status_code == 200
    assert client.get(f"{API}/session").json()["name"] == "root"
    assert hold.access.find_session(before) is None


def test_one_gives_oneself_another_password_with_the_old_one(app: FastAPI) -> None:
    client = client_of(app)
    sign_in(client, "ada")
    change = f"{API}/session/password"
    wrong = client.post(change, json={"old": OTHER, "new": OTHER})
    assert (wrong.status_code, wrong.json()["error"]) == (403, "wrong_password")
    short = client.post(change, json={"old": PASSWORD, "new": "short"})
    assert (short.status_code, short.json()["error"]) == (422, "invalid_password")
    assert client.post(change, json={"old": PASSWORD, "new": OTHER}).status_code == 204
    assert client.get(f"{API}/session").json()["name"] is None
    assert begin(client, "ada", PASSWORD).status_code == 401
    assert begin(client, "ada", OTHER).status_code == 200


def test_a_token_has_no_password_to_change(app: FastAPI, hold: Holdfast) -> None:
    _, text = hold.access.create_token("ci", role="admin")
    answer = client_of(app, token=text).post(f"{API}/session/password", json={"old": PASSWORD, "new": OTHER})
    assert answer.status_code == 401


def test_an_admin_keeps_users(root: TestClient, app: FastAPI) -> None:
    made = root.post(f"{API}/access/users/bob", json={"password": OTHER, "role": "viewer"})
    assert (made.status_code, made.json()["role"], made.json()["created_by"]) == (201, "viewer", "root")
    assert PASSWORD not in made.text
    assert "$argon2" not in made.text
    names = [user["name"] for user in root.get(f"{API}/access/users").json()["items"]]
    assert names == ["ada", "bob", "root"]
    assert root.post(f"{API}/access/users/bob/role", json={"role": "operator"}).json()["role"] == "operator"
    assert root.post(f"{API}/access/users/bob/password", json={"password": PASSWORD}).status_code == 200
    assert begin(client_of(app), "bob", PASSWORD).status_code == 200
    assert root.post(f"{API}/access/users/bob/disable", json={}).json()["is_disabled"]
    assert begin(client_of(app), "bob", PASSWORD).status_code == 401
    assert not root.post(f"{API}/access/users/bob/enable", json={}).json()["is_disabled"]
    assert root.post(f"{API}/access/users/bob/remove", json={}).status_code == 200
    assert root.get(f"{API}/access/users/bob").json()["error"] == "user_not_found"


@pytest.mark.parametrize(
    ("path", "body", "status", "error"),
    [
        ("users/ada", {"password": OTHER, "role": "viewer"}, 409, "access_taken"),
        ("users/Eve", {"password": OTHER, "role": "viewer"}, 422, "invalid_request"),
        ("users/local", {"password": OTHER, "role": "admin"}, 422, "invalid_value"),
        ("users/eve", {"password": "short", "role": "viewer"}, 422, "invalid_request"),
        ("users/eve", {"password": OTHER, "role": "king"}, 422, "invalid_request"),
        ("users/eve", {"password": OTHER, "role": "viewer", "isAdmin": True}, 422, "invalid_request"),
        ("users/eve/disable", {}, 404, "user_not_found"),
        ("users/root/disable", {}, 409, "access_last_admin"),
        ("users/root/role", {"role": "viewer"}, 409, "access_last_admin"),
        ("users/root/remove", {}, 409, "access_last_admin"),
        ("tokens/none/revoke", {}, 404, "token_not_found"),
        ("tokens", {"name": "ci"}, 422, "invalid_value"),
        ("tokens", {"name": "ci", "scopes": ["ships:sail"]}, 422, "invalid_value"),
        ("tokens", {"name": "ci", "scopes": []}, 422, "invalid_request"),
        ("tokens", {"name": "ci", "role": "viewer", "expires_in_s": 0}, 422, "invalid_request"),
    ],
)
def test_what_cannot_or_must_not_be_is_refused_with_its_reason(
    root: TestClient, hold: Holdfast, path: str, body: dict[str, Any], status: int, error: str
) -> None:
    before = (hold.access.users(), hold.access.tokens())
    answer = root.post(f"{API}/access/{path}", json=body)
    assert (answer.status_code, answer.json()["error"]) == (status, error)
    assert (hold.access.users(), hold.access.tokens()) == before
    assert body.get("password", "-") not in answer.text


def test_the_last_admin_can_be_forced_out(root: TestClient) -> None:
    assert root.post(f"{API}/access/users/root/role", json={"role": "viewer", "force": True}).status_code == 200
    assert root.get(f"{API}/access/users").status_code == 401  # the session has ended


def test_a_token_is_shown_once_and_works_until_it_is_revoked(root: TestClient, app: FastAPI) -> None:
    made = root.post(f"{API}/access/tokens", json={"name": "ci", "scopes": ["access:read"], "expires_in_s": 60}).json()
    client = client_of(app, client=ELSEWHERE, token=made["secret"])
    listed = client.get(f"{API}/access/tokens")
    assert listed.status_code == 200
    assert made["secret"].rpartition("_")[2] not in listed.text
    [token] = listed.json()["items"]
    assert (token["id"], token["is_live"], token["created_by"]) == (made["token"]["id"], True, "root")
    revoked = root.post(f"{API}/access/tokens/{token['id']}/revoke", json={"reason": "rotated"})
    assert (revoked.json()["revoked_by"], revoked.json()["is_live"]) == ("root", False)
    assert client.get(f"{API}/access/tokens").status_code == 401


def test_a_token_cannot_make_one_that_can_do_more(app: FastAPI, hold: Holdfast) -> None:
    _, text = hold.access.create_token("deputy", ["access:admin", "letters:read"])
    client = client_of(app, token=text)
    answer = client.post(f"{API}/access/tokens", json={"name": "more", "role": "admin"})
    assert (answer.status_code, answer.json()["error"]) == (403, "access_beyond_rights")
    assert client.post(f"{API}/access/tokens", json={"name": "less", "scopes": ["letters:read"]}).status_code == 201


def test_who_goes_leaves_tokens_that_are_named(root: TestClient, hold: Holdfast) -> None:
    token, _ = hold.access.create_token("ci", role="viewer", by="ada")
    assert root.post(f"{API}/access/users/ada/disable", json={}).json()["live_tokens"] == [token.id]
    hold.access.revoke_token(token.id)
    assert root.post(f"{API}/access/users/ada/remove", json={}).json()["live_tokens"] == []


def test_the_roles_are_told(root: TestClient) -> None:
    told = root.get(f"{API}/access/roles").json()
    assert told["roles"]["admin"] == list(RIGHTS)
    assert set(told["roles"]["viewer"]) == {f"{one}:read" for one in told["resources"]}


def test_the_trail_says_who_gave_what_to_whom_and_no_secret(root: TestClient, hold: Holdfast) -> None:
    secret = root.post(
        f"{API}/access/tokens", json={"name": "ci", "scopes": ["letters:*"], "reason": "nightly replays"}
    ).json()["secret"]
    root.post(f"{API}/access/users/bob", json={"password": OTHER, "role": "viewer"})
    root.post(f"{API}/access/users/root/remove", json={})
    rows = [dict(event.payload) for event in hold.audit.read("operator:root")]
    acts = [payload["act"] for payload in rows]
    for act in (
        "session.sign_in", "access.create_token", "access.token_added", "access.add_user", "access.user_added",
        "access.remove_user",
    ):  # fmt: skip
        assert act in acts
    [added] = [payload for payload in rows if payload["act"] == "access.token_added"]
    assert (added["on_scopes"], added["reason"]) == ("letters:*", "nightly replays")
    [asked] = [payload for payload in rows if payload["act"] == "access.create_token"]
    assert (asked["with_scopes"], asked["with_expires_in_s"]) == ("letters:*", str(90 * 86400))
    assert secret.rpartition("_")[2] not in str(rows)
    assert OTHER not in str(rows)


def test_who_may_decide_about_accounts_only_cannot_get_every_right_by_way_of_a_user(tmp_path):
    with holding(tmp_path) as hold:
        hold.access.add_user("root", PASSWORD, "admin")
        hold.access.add_user("vic", PASSWORD, "viewer")
        _, secret = hold.access.create_token("clerk", ["access:admin", "access:read"])
        clerk = client_of(app_of(hold, required=True), token=secret)
        for path, body in (
            ("users/eve", {"password": PASSWORD, "role": "admin"}),
            ("users/vic/role", {"role": "admin"}),
            ("users/root/password", {"password": f"{PASSWORD} two"}),
            ("users/root/disable", {"force": True}),
            ("users/root/remove", {"force": True}),
        ):
            answer = clerk.post(f"{API}/access/{path}", json=body)
            assert (answer.status_code, answer.json()["error"]) == (403, "access_beyond_rights"), path
        assert [user.name for user in hold.access.users()] == ["root", "vic"]
