"""`create_app(hold)`: the API below `/api/v1`, the figures at `/metrics`, and the console, as one ASGI application.

It can be mounted in another one: `app.mount("/holdfast", create_app(hold))`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.routing import APIRoute

from holdfast import __version__
from holdfast.access.rights import Identity
from holdfast.app import Holdfast
from holdfast.server import console, problems, scrape
from holdfast.server.identity import Identify
from holdfast.server.live import Live
from holdfast.server.problems import Problem
from holdfast.server.routes import RESOURCES
from holdfast.server.routing import RIGHT
from holdfast.server.shields import Limits, protect
from holdfast.server.trail import Trail

BASE: Final = "/api/v1"
Authorize = Callable[[Identity, str, Request], bool]


def create_app(
    hold: Holdfast,
    *,
    required: bool | None = None,
    identify: Identify | None = None,
    authorize: Authorize | None = None,
    hosts: Sequence[str] | None = None,
    https: bool | None = None,
    limits: Limits | None = None,
    has_program: bool = True,
) -> FastAPI:
    """The application for one Holdfast.

    What is not given of `required`, `hosts`, `https` and `limits` is as its settings say, if it was made from any.
    `required`: everybody has to sign in or send a token; by default so when there are accounts. Without it whoever is
    on this machine may do everything. `identify(request)` is the program's own answer to who asks; whom it does not
    know has to sign in, unless `required=False` says otherwise. `authorize(identity, right, request)` may refuse what
    rights would allow.
    `hosts` are names by which the server may be asked, besides those of this machine. `https` says that browsers reach
    it over https only, by a proxy that takes the encryption off; unless it is given, each request is believed that says
    so, by its scheme, X-Forwarded-Proto, Forwarded or Origin. Over https only the cookie counts that no other host can
    set. `has_program` says whether the
    program's own functions are here, so that letters can be replayed in this process.
    """
    app = FastAPI(
        title="Holdfast", version=__version__, openapi_url=None, docs_url=None, redoc_url=None, lifespan=_lifespan
    )
    state = app.state
    state.hold, state.trail, state.live = hold, Trail(hold), Live(hold)
    state.has_program, state.started_at = has_program, datetime.now(UTC)
    state.authorize = authorize
    problems.install(app)
    for routes in (*_resources(), scrape.routes):
        _check(routes)
    app.router.routes.extend(_included().routes)
    _describe(app)
    console.install(app)
    usual = hold.serving
    required, https = usual.required if required is None else required, usual.https if https is None else https
    hosts, limits = usual.hosts if hosts is None else hosts, usual.limits if limits is None else limits
    if identify is not None and required is None:
        required = True  # a program that says who asks does not mean: or anybody on this machine
    protect(
        app, hold.access, required=required, hosts=hosts, identify=identify, https=https, limits=limits,
        shares=authorize is None,
    )  # fmt: skip
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.live.open()
    try:
        async with _included().lifespan_context(app):
            yield
    finally:
        app.state.live.close()


def _resources() -> Iterator[APIRouter]:
    """The routes of each resource, below BASE."""
    return (import_module(f"holdfast.server.routes.{name}").routes for name in RESOURCES)


def _check(routes: APIRouter) -> None:
    """Raises TypeError for a route that does not say which right it needs."""
    for route in routes.routes:
        if not isinstance(route, APIRoute) or RIGHT not in (route.openapi_extra or {}):
            raise TypeError(
                f"{getattr(route, 'path', route)} names no right; make it with holdfast.server.routing.Routes"
            )


@cache
def _included() -> APIRouter:
    """All routes, shared by the applications of a process: FastAPI takes up to a second to read their signatures."""
    made = APIRouter(responses=problems.RESPONSES)
    for routes in _resources():
        made.include_router(routes, prefix=BASE)
    made.include_router(scrape.routes)
    return made


def _describe(app: FastAPI) -> None:
    """Name the shape of problems, which every route may answer with, in the OpenAPI document."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        document = made()
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas.setdefault("Problem", Problem.model_json_schema(ref_template="#/components/schemas/{model}"))
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own way of extending it
