"""The cookie of a session: no script reads it, no other site's page sends it, and over https no other host sets it."""

from __future__ import annotations

from datetime import UTC
from typing import Any

from fastapi import Request, Response

from holdfast.access.sessions import Session
from holdfast.server.identity import COOKIE, SECURE_COOKIE


def set_cookie(request: Request, response: Response, value: str, session: Session) -> None:
    """Send the session's cookie."""
    life = int((session.expires_at - session.created_at).total_seconds())
    expires = session.expires_at.astimezone(UTC)
    response.set_cookie(value=value, max_age=life, expires=expires, **_attributes(request))


def drop_cookie(request: Request, response: Response) -> None:
    """Take it away again."""
    response.delete_cookie(**_attributes(request))


def _attributes(request: Request) -> dict[str, Any]:
    secure: bool = request.state.https
    # A browser takes a __Host- cookie only for the whole host.
    path = "/" if secure else request.scope.get("root_path") or "/"
    return {
        "key": SECURE_COOKIE if secure else COOKIE,
        "path": path,
        "secure": secure,
        "httponly": True,
        "samesite": "strict",
    }
