"""A stream of events lasts as long as whoever hears it may."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from holdfast import Holdfast
from holdfast.access.rights import ROLES, Identity, Role
from holdfast.server.api import create_app
from holdfast.server.live import LOOK_EVERY_S
from holdfast.testing.clock import ManualClock
from tests.server.clients import API, ELSEWHERE, PASSWORD, client_of, holding, sign_in

GIVE_UP_S = 30.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def hold(tmp_path: Path, clock: ManualClock) -> Iterator[Holdfast]:
    with holding(tmp_path, clock) as hold:
        hold.access.add_user("root", PASSWORD, "admin")
        hold.access.add_user("ada", PASSWORD, "viewer")
        yield hold


@pytest.fixture
def app(hold: Holdfast) -> FastAPI:
    return create_app(hold)


class Hearing:
    """Somebody who hears the stream; `ended` once the server has closed it, and not they."""

    def __init__(self, app: FastAPI, headers: dict[str, str]) -> None:
        self._app, self._headers = app, headers
        self.told = asyncio.Queue[str]()
        self.ended = asyncio.Event()
        self._gone = asyncio.Event()
        self._task = asyncio.ensure_future(self._hear())

    async def __aenter__(self) -> Hearing:
        assert "hello" in await self.next()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._gone.set()
        await self._task

    async def next(self) -> str:
        return await asyncio.wait_for(self.told.get(), GIVE_UP_S)

    async def is_over(self) -> None:
        await asyncio.wait_for(self.ended.wait(), GIVE_UP_S)

    async def _hear(self) -> None:
        asked = [{"type": "http.request", "body": b""}]

        async def receive() -> Any:
            if asked:
                return asked.pop()
            await self._gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                assert message["status"] == 200
            elif message.get("body"):
                self.told.put_nowait(message["body"].decode())
            elif not message.get("more_body"):
                self.ended.set()

        headers = {"host": "127.0.0.1:8400", **self._headers}
        path = f"{API}/events"
        scope = {
            "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()], "client": ELSEWHERE,
            "server": ("127.0.0.1", 8400), "scheme": "http", "http_version": "1.1", "root_path": "",
            "asgi": {"version": "3.0"},
        }  # fmt: skip
        await self._app(scope, receive, send)


def cookie_of(app: FastAPI, name: str) -> dict[str, str]:
    client = client_of(app, client=ELSEWHERE)
    sign_in(client, name)
    return {"cookie": f"holdfast={client.cookies['holdfast']}"}


@pytest.mark.parametrize(
    "act",
    [
        lambda access: access.disable("ada"),
        lambda access: access.remove_user("ada"),
        lambda access: access.set_password("ada", "another horse battery"),
    ],
)
async def test_a_stream_ends_at_once_when_its_session_is_ended(
    app: FastAPI, hold: Holdfast, act: Callable[[Any], object]
) -> None:
    cookies = cookie_of(app, "ada"), cookie_of(app, "root")
    async with Hearing(app, cookies[0]) as ada, Hearing(app, cookies[1]) as root:
        act(hold.access)
        await ada.is_over()
        assert "access.changed" in await root.next()
        assert ada.told.empty()
        assert not root.ended.is_set()


async def test_a_stream_ends_at_once_when_its_token_is_revoked(app: FastAPI, hold: Holdfast) -> None:
    token, secret = hold.access.create_token("ci", role="viewer")
    async with Hearing(app, {"authorization": f"Bearer {secret}"}) as hearing:
        hold.access.revoke_token(token.id)
        await hearing.is_over()
        assert hearing.told.empty()


async def test_a_stream_ends_soon_when_its_session_has_run_out_or_was_signed_out_of(
    app: FastAPI, hold: Holdfast, clock: ManualClock
) -> None:
    """Nothing tells of either, in this process or another: it is looked at again after a while."""
    first, second = cookie_of(app, "ada"), cookie_of(app, "ada")
    async with Hearing(app, first) as gone, Hearing(app, second) as stays:
        hold.access.end_session(first["cookie"].partition("=")[2])
        app.state.live.tell("letters", {})
        assert "letters" in await gone.next()  # within the while
        clock.advance(LOOK_EVERY_S)
        app.state.live.tell("breakers", {})
        await gone.is_over()
        assert gone.told.empty()
        assert "letters" in await stays.next()
        clock.advance(13 * 3600)
        app.state.live.tell("letters", {})
        await stays.is_over()


async def test_a_stream_ends_when_the_program_says_no(hold: Holdfast, clock: ManualClock) -> None:
    allowed = [True]

    def identify(request: Any) -> Identity:
        return Identity("eva", ROLES[Role.VIEWER], "hook")

    app = create_app(hold, identify=identify, authorize=lambda identity, right, request: allowed[0])
    async with Hearing(app, {}) as hearing:
        allowed[0] = False
        clock.advance(LOOK_EVERY_S)
        app.state.live.tell("letters", {})
        await hearing.is_over()


async def test_a_stream_ends_while_nobody_can_say_who_hears_it(
    app: FastAPI, hold: Holdfast, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.errors import StoreUnavailable

    def away(value: str) -> None:
        raise StoreUnavailable("the database is away")

    async with Hearing(app, cookie_of(app, "ada")) as hearing:
        monkeypatch.setattr(hold.access, "find_session", away)
        clock.advance(LOOK_EVERY_S)
        app.state.live.tell("letters", {})
        await hearing.is_over()
