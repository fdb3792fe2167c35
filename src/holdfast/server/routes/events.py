"""What has just happened: as a stream, and the last of it."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Header, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from holdfast.access.rights import READ, Identity
from holdfast.errors import HoldfastError
from holdfast.server.problems import ProblemError
from holdfast.server.routing import Routes

routes: Final = Routes("system", prefix="/events")
_RIGHT: Final = f"{routes.resource}:{READ}"


class Recent(BaseModel):
    """The last events of this process, the newest first."""

    items: list[dict[str, Any]]


@routes.reads(response_class=StreamingResponse)
async def stream(
    request: Request,
    since: Annotated[str | None, Query(alias="last_event_id", max_length=100)] = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> StreamingResponse:
    """Server-sent events. A client that comes back with Last-Event-ID gets what it missed, or `reset`.

    The stream ends with the session or the token that it was asked for with. A page that was hidden says in the query
    what it has seen, as a browser lets it set no header.
    """
    live = request.app.state.live
    if live.is_full:
        raise ProblemError(503, "too_many_streams", "too many pages listen already", headers={"Retry-After": "10"})
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    told = live.stream(last_event_id or since, lambda: _is_allowed(request))
    return StreamingResponse(told, media_type="text/event-stream", headers=headers)


@routes.reads("/recent", response_model=Recent)
def recent(request: Request, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> Any:
    """The last events of this process, the newest first."""
    return {"items": request.app.state.live.recent(limit)}


def _is_allowed(request: Request) -> bool:
    """Whether who asked may still hear it; not while that cannot be found out."""
    try:
        identity: Identity | None = request.state.identify_again()
    except HoldfastError:
        return False
    if identity is None or identity.name != request.state.identity.name or not identity.may(_RIGHT):
        return False
    allows = request.app.state.authorize
    return allows is None or bool(allows(identity, _RIGHT, request))
