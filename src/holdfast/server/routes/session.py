"""Who is asking, and what they may do; signing in and out."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import Header, Request, Response
from pydantic import BaseModel, Field

from holdfast.access.rights import Identity
from holdfast.errors import PolicyError, RateLimited
from holdfast.server.cookies import drop_cookie, set_cookie
from holdfast.server.identity import session_cookie
from holdfast.server.problems import ProblemError, invalid
from holdfast.server.routing import Routes
from holdfast.server.shapes import Body

routes: Final = Routes("system", prefix="/session")


class SessionShown(BaseModel):
    """Who is asking. A request that changes something repeats `csrf` in the header X-Holdfast-CSRF."""

    name: str | None
    via: str | None
    rights: list[str]
    expires_at: datetime | None
    sign_in_required: bool
    csrf: str


class SignInRequest(Body):
    """A name and its password."""

    name: str = Field(max_length=200)
    password: str = Field(max_length=2000)


class PasswordRequest(Body):
    """One's own password, and another one in its place."""

    old: str = Field(max_length=2000)
    new: str = Field(max_length=2000)


@routes.open("", response_model=SessionShown)
def show(request: Request) -> Any:
    """Who is asking, and what they may do. Nobody has no name."""
    session = request.state.session
    return _shown(request, request.state.identity, request.state.csrf, session and session.expires_at)


@routes.open("", "POST", response_model=SessionShown)
def sign_in(
    request: Request,
    response: Response,
    body: SignInRequest,
    x_holdfast_csrf: Annotated[str, Header(description="Any text: other sites' pages cannot send it.")] = "",
) -> Any:
    """Begin a session; the answer sets its cookie, which no script can read."""
    if not x_holdfast_csrf:
        raise ProblemError(403, "csrf", "send the header X-Holdfast-CSRF, with any text")
    state = request.app.state
    begun = _tried(lambda: state.hold.access.sign_in(body.name, body.password, address=_address(request)))
    if begun is None:
        raise ProblemError(401, "wrong_password", "name and password do not belong together")
    value, session = begun
    try:
        state.trail.acted(session.identity, "session.sign_in", "", {}, "")
    except Exception:  # what is not in the trail has not happened
        state.hold.access.end_session(value)
        raise
    # Nothing of an earlier session on this browser stays behind.
    if (earlier := session_cookie(request, request.state.https)) is not None:
        state.hold.access.end_session(earlier)
    set_cookie(request, response, value, session)
    return _shown(request, session.identity, session.csrf, session.expires_at)


@routes.open("", "DELETE", status_code=204)
def sign_out(request: Request, response: Response) -> None:
    """End the session, if there is one."""
    value = session_cookie(request, request.state.https)
    if value is not None:
        request.app.state.hold.access.end_session(value)
    drop_cookie(request, response)


@routes.open("/password", "POST", status_code=204)
def change_password(request: Request, response: Response, body: PasswordRequest) -> None:
    """Give oneself another password. Every session of one's own ends, this one too."""
    identity: Identity | None = request.state.identity
    if identity is None or request.state.session is None:
        raise ProblemError(401, "unauthorized", "sign in first; a token has no password")
    state = request.app.state
    access = state.hold.access
    if _tried(lambda: access.authenticate(identity.name, body.old, address=_address(request))) is None:
        raise ProblemError(403, "wrong_password", "that is not the password you have now")
    state.trail.acted(identity, "session.change_password", "", {}, "")
    try:
        access.set_password(identity.name, body.new, by=identity.name)
    except PolicyError as error:
        raise invalid("invalid_password", str(error)) from None
    drop_cookie(request, response)


def _shown(request: Request, identity: Identity | None, csrf: str, expires_at: datetime | None) -> dict[str, Any]:
    return {
        "name": None if identity is None else identity.name,
        "via": None if identity is None else identity.via,
        "rights": [] if identity is None else identity.rights(),
        "expires_at": expires_at,
        "sign_in_required": request.state.sign_in_required,
        "csrf": csrf,
    }


def _tried(attempt: Any) -> Any:
    try:
        return attempt()
    except RateLimited as error:
        wait = max(1, round(error.retry_after or 1))
        raise ProblemError(
            429, "too_many_attempts", f"too many attempts to sign in; try again in {wait} s",
            {"retry_after": error.retry_after}, headers={"Retry-After": str(wait)},
        ) from None  # fmt: skip


def _address(request: Request) -> str | None:
    return None if request.client is None else request.client.host
