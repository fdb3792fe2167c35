"""Who may ask what: every route with the right that it needs, and every kind of caller at every route.

A new route fails here until somebody has decided who may use it and written that down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from holdfast import Holdfast
from holdfast.access.rights import RIGHTS, ROLES, Role, grants
from holdfast.server.api import create_app
from holdfast.server.routing import PUBLIC, RIGHT
from holdfast.server.shields import Limits
from holdfast.testing.clock import ManualClock
from tests.server.clients import API, ELSEWHERE, HERE, client_of, holding

ANYBODY: Final = PUBLIC
NEEDS: Final[dict[str, str]] = {
    "GET /health": ANYBODY,
    "GET /ready": ANYBODY,
    "GET /status": "system:read",
    "GET /session": ANYBODY,
    "POST /session": ANYBODY,
    "DELETE /session": ANYBODY,
    "POST /session/password": ANYBODY,
    "GET /access/roles": "access:read",
    "GET /access/users": "access:read",
    "GET /access/users/{name}": "access:read",
    "POST /access/users/{name}": "access:admin",
    "POST /access/users/{name}/password": "access:admin",
    "POST /access/users/{name}/role": "access:admin",
    "POST /access/users/{name}/disable": "access:admin",
    "POST /access/users/{name}/enable": "access:admin",
    "POST /access/users/{name}/remove": "access:admin",
    "GET /access/tokens": "access:read",
    "POST /access/tokens": "access:admin",
    "POST /access/tokens/{id}/revoke": "access:admin",
    "GET /events": "system:read",
    "GET /events/recent": "system:read",
    "GET /overview": "system:read",
    "GET /overview/series": "system:read",
    "GET /guards": "guards:read",
    "GET /guards/{name}": "guards:read",
    "GET /breakers": "breakers:read",
    "GET /breakers/{name}": "breakers:read",
    "POST /breakers/{name}/force-open": "breakers:operate",
    "POST /breakers/{name}/force-close": "breakers:operate",
    "POST /breakers/{name}/reset": "breakers:operate",
    "POST /breakers/{name}/clear": "breakers:operate",
    "GET /retry/policy": "pools:read",
    "PUT /retry/policy": "pools:operate",
    "GET /circuit-breakers": "pools:read",
    "GET /circuit-breakers/metrics": "pools:read",
    "GET /metrics/circuit-breakers": "pools:read",
    "GET /circuit-breakers/{id}": "pools:read",
    "POST /circuit-breakers/{id}/reset": "pools:operate",
    "GET /metrics/retries": "pools:read",
    "GET /metrics/retries/timeseries": "pools:read",
    "GET /metrics/retries/by-proxy": "pools:read",
    "GET /pools": "pools:read",
    "GET /pools/{name}": "pools:read",
    "POST /pools/{name}/members/{endpoint}/drain": "pools:operate",
    "POST /pools/{name}/members/{endpoint}/enable": "pools:operate",
    "POST /pools/{name}/members/{endpoint}/reset": "pools:operate",
    "GET /letters": "letters:read",
    "GET /letters/facets": "letters:read",
    "GET /letters/statistics": "letters:read",
    "GET /letters/retention": "letters:read",
    "GET /letters/fingerprints": "letters:read",
    "GET /letters/domains": "letters:read",
    "GET /letters/{id}": "letters:read",
    "GET /letters/archive/preview": "letters:read",
    "GET /letters/purge/preview": "letters:read",
    "POST /letters/archive": "letters:operate",
    "POST /letters/purge": "letters:admin",
    "POST /letters/{id}/replay": "letters:operate",
    "POST /letters/{id}/resolve": "letters:operate",
    "POST /letters/{id}/discard": "letters:operate",
    "POST /letters/{id}/reveal": "letters:reveal",
    "POST /letters/{id}/review": "letters:operate",
    "POST /letters/{id}/reopen": "letters:operate",
    "POST /letters/{id}/delete": "letters:admin",
    "POST /letters/domains/pause": "letters:operate",
    "POST /letters/domains/resume": "letters:operate",
    "POST /bulk/preview": "bulk:read",
    "POST /bulk": "bulk:operate",
    "GET /bulk": "bulk:read",
    "GET /bulk/{id}": "bulk:read",
    "POST /bulk/{id}/abort": "bulk:operate",
    "GET /outbox": "outbox:read",
    "GET /outbox/facets": "outbox:read",
    "GET /outbox/requeue/preview": "outbox:read",
    "GET /outbox/counts": "outbox:read",
    "GET /outbox/prune/preview": "outbox:read",
    "POST /outbox/prune": "outbox:admin",
    "GET /outbox/{id}": "outbox:read",
    "POST /outbox/requeue": "outbox:operate",
    "POST /outbox/queues/pause": "outbox:operate",
    "POST /outbox/queues/resume": "outbox:operate",
    "POST /outbox/{id}/requeue": "outbox:operate",
    "POST /outbox/{id}/cancel": "outbox:operate",
    "POST /outbox/{id}/verify": "outbox:operate",
    "POST /outbox/{id}/reveal": "outbox:reveal",
    "GET /sagas": "sagas:read",
    "GET /sagas/facets": "sagas:read",
    "GET /sagas/{id}": "sagas:read",
    "POST /sagas/{id}/cancel": "sagas:operate",
    "POST /sagas/{id}/resume": "sagas:operate",
    "POST /sagas/{id}/resolve": "sagas:operate",
    "POST /sagas/{id}/reveal": "sagas:reveal",
    "GET /workflows": "workflows:read",
    "POST /workflows": "workflows:operate",
    "GET /workflows/facets": "workflows:read",
    "GET /workflows/stranded": "workflows:read",
    "GET /workflows/describe": "workflows:read",
    "GET /workflows/dead": "workflows:read",
    "POST /workflows/dead/{item}/replay": "workflows:operate",
    "POST /workflows/dead/{item}/discard": "workflows:admin",
    "POST /workflows/dead/{item}/reveal": "workflows:reveal",
    "POST /workflows/finalizers/{finalizer}/run": "workflows:operate",
    "GET /workflows/prune/preview": "workflows:read",
    "POST /workflows/prune": "workflows:admin",
    "GET /workflows/{id}": "workflows:read",
    "GET /workflows/{id}/log": "workflows:read",
    "GET /workflows/{id}/at/{seq}": "workflows:read",
    "GET /workflows/{id}/graph": "workflows:read",
    "GET /workflows/{id}/graph.svg": "workflows:read",
    "GET /workflows/{id}/timeline": "workflows:read",
    "GET /workflows/{id}/stages/{stage}": "workflows:read",
    "POST /workflows/{id}/pause": "workflows:operate",
    "POST /workflows/{id}/resume": "workflows:operate",
    "POST /workflows/{id}/cancel": "workflows:operate",
    "POST /workflows/{id}/retry": "workflows:operate",
    "POST /workflows/{id}/recover": "workflows:operate",
    "POST /workflows/{id}/signal": "workflows:operate",
    "POST /workflows/{id}/approve": "workflows:operate",
    "POST /workflows/{id}/reject": "workflows:operate",
    "POST /workflows/{id}/fork": "workflows:operate",
    "POST /workflows/{id}/reveal": "workflows:reveal",
    "POST /workflows/{id}/stages/{stage}/restart": "workflows:operate",
    "POST /workflows/{id}/stages/{stage}/skip": "workflows:operate",
    "POST /workflows/{id}/stages/{stage}/cancel": "workflows:operate",
    "GET /schedules": "workflows:read",
    "POST /schedules": "workflows:operate",
    "GET /schedules/{name}": "workflows:read",
    "POST /schedules/{name}/pause": "workflows:operate",
    "POST /schedules/{name}/resume": "workflows:operate",
    "POST /schedules/{name}/run": "workflows:operate",
    "POST /schedules/{name}/remove": "workflows:operate",
    "POST /schedules/{name}/reveal": "workflows:reveal",
    "GET /workers": "workers:read",
    "GET /workers/{id}": "workers:read",
    "GET /audit": "audit:read",
    "GET /audit/types": "audit:read",
    "GET /audit/status": "audit:read",
    "GET /audit/streams": "audit:read",
    "POST /audit/verify": "audit:operate",
    "GET /audit/verify/{id}": "audit:read",
    "POST /audit/checkpoints": "audit:operate",
    "GET /doctor": "system:read",
    "GET /doctor/rules": "system:read",
}
NOT_IN_THE_DOCUMENT: Final = {"GET /api/v1/openapi.json": "system:read", "GET /metrics": "system:read"}
ALL: Final = {route.replace(" ", f" {API}"): right for route, right in NEEDS.items()} | NOT_IN_THE_DOCUMENT
ONE_SCOPE: Final = "letters:read"
KINDS: Final = ("nobody", "viewer", "operator", "admin", "expired token", "revoked token", "token with one scope")
PLENTY: Final = Limits(reads=(1e6, 1_000_000), changes=(1e6, 1_000_000), address=(1e6, 1_000_000))


@pytest.fixture(scope="module")
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="module")
def hold(tmp_path_factory: pytest.TempPathFactory, clock: ManualClock) -> Iterator[Holdfast]:
    with holding(tmp_path_factory.mktemp("rights"), clock) as hold:
        for role in Role:
            hold.access.add_user(role.value, "correct horse battery", role)
        yield hold


@pytest.fixture(scope="module")
def app(hold: Holdfast) -> FastAPI:
    return create_app(hold, required=True, limits=PLENTY)


def document_routes(app: FastAPI) -> dict[str, Any]:
    """What the OpenAPI document says of each route."""
    return {
        f"{method.upper()} {path.removeprefix(API)}": said
        for path, methods in app.openapi()["paths"].items()
        for method, said in methods.items()
    }


class Caller(NamedTuple):
    """Somebody who asks, from another machine or this one."""

    headers: dict[str, str]
    address: tuple[str, int] = ELSEWHERE


def caller_of(hold: Holdfast, clock: ManualClock, kind: str) -> Caller:
    if kind == "nobody":
        return Caller({})
    if kind in ROLES:
        value, session = hold.access.begin_session(kind)
        return Caller({"cookie": f"holdfast={value}", "x-holdfast-csrf": session.csrf})
    scopes = [ONE_SCOPE] if kind == "token with one scope" else list(ROLES[Role.ADMIN])
    token, text = hold.access.create_token(kind, scopes, expires_in=60)
    if kind == "expired token":
        clock.advance(60)
    if kind == "revoked token":
        hold.access.revoke_token(token.id)
    return Caller({"authorization": f"Bearer {text}"})


def expected(kind: str, right: str) -> int | None:
    """401, 403, or None for whatever the route answers to who may ask it."""
    if right == ANYBODY:
        return None
    if kind in ("nobody", "expired token", "revoked token"):
        return 401
    scopes = [ONE_SCOPE] if kind == "token with one scope" else ROLES[Role(kind)]
    return None if grants(scopes, right) else 403


async def ask(app: FastAPI, caller: Caller, route: str) -> int:
    """The status of the answer; the caller is gone before the rest of it, so that a stream does not keep us."""
    method, pattern = route.split(" ")
    path = "/".join("1" if part.startswith("{") else part for part in pattern.split("/"))
    # A body that no route takes: who may ask gets as far as being told so, and nothing is done.
    parts = [{"type": "http.request", "body": b"" if method in ("GET", "DELETE") else b'{"nonsense": true}'}]
    statuses: list[int] = []
    gone = asyncio.Event()

    async def receive() -> Any:
        if parts:
            return parts.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])
            gone.set()

    headers = {"host": "127.0.0.1:8400", "content-type": "application/json", **caller.headers}
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()], "client": caller.address,
        "server": HERE, "scheme": "http", "http_version": "1.1", "root_path": "", "asgi": {"version": "3.0"},
    }  # fmt: skip
    await app(scope, receive, send)
    return statuses[0]


def test_every_route_is_in_the_table_and_every_line_of_the_table_is_a_route(app: FastAPI) -> None:
    assert {route: said.get(RIGHT, "no right is named") for route, said in document_routes(app).items()} == NEEDS


def test_nothing_else_can_be_asked(app: FastAPI) -> None:
    made = {
        f"{method} {route.path_format}": (getattr(route.route, "openapi_extra", None) or {}).get(RIGHT)
        for route in iter_route_contexts(app.routes)
        for method in route.methods or ()
    }
    assert made == ALL


def test_every_right_that_a_route_needs_can_be_granted() -> None:
    assert {right for right in ALL.values() if right != ANYBODY} <= set(RIGHTS)


def test_nothing_that_changes_something_needs_only_the_right_to_read() -> None:
    changing = [route for route, right in ALL.items() if not route.startswith("GET ") and right != ANYBODY]
    reading = [route for route in changing if ALL[route].endswith(":read")]
    assert reading == [f"POST {API}/bulk/preview"]  # it counts, and its filter does not fit into an address


@pytest.mark.parametrize("kind", KINDS)
async def test_each_caller_gets_as_far_as_the_table_says(
    hold: Holdfast, app: FastAPI, clock: ManualClock, kind: str
) -> None:
    caller = caller_of(hold, clock, kind)
    wrong = {}
    # Whoever signs out is nobody afterwards.
    for route in sorted(ALL, key=lambda route: route.startswith("DELETE ")):
        want, got = expected(kind, ALL[route]), await ask(app, caller, route)
        if (got != want) if want is not None else got in (401, 403):
            wrong[route] = f"{got} instead of {want or 'an answer'}"
    assert wrong == {}


async def test_this_machine_without_accounts_may_ask_everything(tmp_path: Path) -> None:
    with holding(tmp_path) as hold:
        app = create_app(hold)
        csrf = client_of(app).get(f"{API}/session").json()["csrf"]
        caller = Caller({"x-holdfast-csrf": csrf}, HERE)
        assert {route for route in ALL if await ask(app, caller, route) in (401, 403)} == set()


@pytest.mark.parametrize("role", Role)
async def test_a_cookie_without_its_csrf_value_changes_nothing_anywhere(
    hold: Holdfast, app: FastAPI, clock: ManualClock, role: Role
) -> None:
    caller = caller_of(hold, clock, role)
    del caller.headers["x-holdfast-csrf"]
    changing = [route for route in ALL if not route.startswith("GET ")]
    assert {route: await ask(app, caller, route) for route in changing} == dict.fromkeys(changing, 403)
