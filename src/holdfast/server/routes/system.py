"""Whether the server lives, whether it can do its work, and what it is."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from fastapi import Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from holdfast import __version__
from holdfast.server.problems import ProblemError
from holdfast.server.routing import Asking, Routes
from holdfast.store.codec import instant

routes: Final = Routes("system", prefix="")


class Health(BaseModel):
    """The process answers."""

    status: str


class Status(BaseModel):
    """What this server is, and what it works on."""

    version: str
    store: str
    now: datetime
    started_at: datetime
    has_program: bool
    has_outbox: bool
    audited: str


@routes.open("/health", response_model=Health)
async def health() -> Any:
    """The process answers; the store is not asked."""
    return {"status": "ok"}


@routes.open("/ready", response_model=Health)
def ready(request: Request) -> Any:
    """The store answers too; 503 while it does not."""
    try:
        request.app.state.hold.store.ping()
    except Exception as error:  # whatever is wrong with the store, whoever asks without a name is told no more
        raise ProblemError(503, "not_ready", "the store does not answer", headers={"Retry-After": "1"}) from error
    return {"status": "ready"}


@routes.reads("/status", response_model=Status)
def status(asked: Asking, request: Request) -> Any:
    """What this server is, and what it works on."""
    state = request.app.state
    return {
        "version": __version__,
        "store": asked.hold.store.url,
        "now": instant(asked.hold.store.now()),
        "started_at": state.started_at,
        "has_program": state.has_program,
        "has_outbox": asked.trail.is_chained,
        "audited": "trail" if asked.trail.is_chained else "log",
    }


@routes.reads("/openapi.json", include_in_schema=False)
def openapi(asked: Asking, request: Request) -> Any:
    """What can be asked, as an OpenAPI 3.1 document; `x-right` names the right that each route needs."""
    return JSONResponse(request.app.openapi())
