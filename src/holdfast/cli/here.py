"""Asking the API where there is no server: the same routes, in this process, on the store itself.

Nobody has to be let in: whoever can open the store may do everything. What changes something is in the audit trail, as
it is when a server is asked; who did it is whom `--by` names.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from holdfast.access.rights import ROLES, Identity, Role
from holdfast.cli.api import BASE, Api, meant
from holdfast.errors import MissingExtra

if TYPE_CHECKING:
    from fastapi import FastAPI

    from holdfast.app import Holdfast

VIA: Final = "command"
FILES: Final = {
    "circuit-breakers": ("retry",), "metrics": ("retry",), "status": ("system",), "ready": ("system",),
    "health": ("system",), "openapi.json": ("system",), "letters": ("letter_keeping", "letters"),
    "outbox": ("outbox_keeping", "outbox"), "workflows": ("workflow_keeping", "workflows", "workflow_control"),
}  # fmt: skip
"""Where the routes of a path are, if not in the file of its name alone."""


class Here(Api):
    """The API of a store. Only the routes that are asked are made: all of them would take longer than most answers."""

    def __init__(self, hold: Holdfast, by: str, *, has_program: bool) -> None:
        self._hold = hold
        self._has_program = has_program
        self._apps: dict[str, FastAPI] = {}
        self._known = {
            "identity": Identity(by or "anonymous", ROLES[Role.ADMIN], VIA),
            "session": None,
            "csrf": "",
            "sign_in_required": False,
        }

    def send(self, method: str, path: str, body: Any = None) -> Any:
        status, kind, answer = asyncio.run(self._asked(method, path, body))
        if kind == "image/svg+xml":
            return answer.decode()
        said = json.loads(answer or b"null")
        if status >= 400:
            raise meant(self._hold.store.url, status, said)
        return said

    async def _asked(self, method: str, path: str, body: Any) -> tuple[int, str, bytes]:
        """Status, type and content of the answer to one request."""
        way, _, query = path.partition("?")
        heads, parts = dict[str, Any](), list[bytes]()
        unread = [{"type": "http.request", "body": b"" if body is None else json.dumps(body).encode()}]

        async def receive() -> Any:
            return unread.pop() if unread else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                heads.update(message)
            else:
                parts.append(message.get("body", b""))

        raw = f"{BASE}{way}".encode()
        scope = {
            "type": "http", "method": method, "path": unquote(f"{BASE}{way}"), "raw_path": raw,
            "query_string": query.encode(), "headers": [(b"content-type", b"application/json")], "client": None,
            "server": ("127.0.0.1", 0), "scheme": "http", "http_version": "1.1", "root_path": "",
            "asgi": {"version": "3.0"}, "state": dict(self._known),
        }  # fmt: skip
        await self._app(way)(scope, receive, send)
        kinds = [value.decode() for name, value in heads["headers"] if name == b"content-type"]
        return heads["status"], kinds[0] if kinds else "", b"".join(parts)

    def _app(self, way: str) -> FastAPI:
        first = way.strip("/").partition("/")[0]
        if first not in self._apps:
            self._apps[first] = _made(self._hold, FILES.get(first, (first,)), self._has_program)
        return self._apps[first]


def _made(hold: Holdfast, files: Iterable[str], has_program: bool) -> FastAPI:
    """The routes of these files, without what stands before a server's. Raises MissingExtra."""
    try:
        from fastapi import FastAPI

        from holdfast.server import problems
        from holdfast.server.trail import Trail
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error}; run: pip install 'holdfast[cli]'") from error
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.state.hold, app.state.trail, app.state.has_program = hold, Trail(hold), has_program
    app.state.started_at = datetime.now(UTC)
    app.state.authorize = lambda identity, right, request: True
    problems.install(app)
    del app.exception_handlers[Exception]  # nobody reads a log here: what nobody expected ends the command as itself
    for name in files:
        app.include_router(import_module(f"holdfast.server.routes.{name}").routes, prefix=BASE)
    return app
