"""Users and tokens: who may use the API and the console."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final

from fastapi import Path
from pydantic import BaseModel, Field

from holdfast.access.passwords import LONGEST, SHORTEST
from holdfast.access.refusals import AccessRefused, Refusal
from holdfast.access.rights import ACTS, ADMIN, RESOURCES, RIGHTS, ROLES, Role, covers, grants
from holdfast.access.tokens import LIFE, LONGEST_LIFE
from holdfast.errors import PolicyError
from holdfast.server.problems import ProblemError, invalid, not_found
from holdfast.server.routing import Asked, Asking, Routes
from holdfast.server.shapes import MayReason
from holdfast.store.codec import instant
from holdfast.views.plain import plain

routes: Final = Routes("access")
Name = Annotated[str, Path(min_length=1, max_length=100)]
NewName = Annotated[str, Path(pattern=r"^[a-z0-9][a-z0-9._@+\-]{0,99}$")]
Password = Annotated[str, Field(min_length=SHORTEST, max_length=LONGEST)]
Scope = Annotated[str, Field(pattern=r"^([a-z]+|\*):([a-z]+|\*)$", max_length=50)]
STATUS: Final = {Refusal.UNKNOWN: 404, Refusal.TAKEN: 409, Refusal.LAST_ADMIN: 409, Refusal.BEYOND_RIGHTS: 403}


class UserShown(BaseModel):
    """A person who may sign in."""

    name: str
    role: Role
    is_disabled: bool
    created_at: datetime
    created_by: str
    password_changed_at: datetime


class UserGone(UserShown):
    """A user who may sign in no more, and the tokens that they made and that still open something."""

    live_tokens: list[str]


class Users(BaseModel):
    """All users, by name."""

    items: list[UserShown]


class TokenShown(BaseModel):
    """A token, without its secret."""

    id: str
    name: str
    scopes: list[str]
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None
    last_used_at: datetime | None
    is_live: bool


class TokenMade(BaseModel):
    """A new token. `secret` is shown this once, and kept nowhere."""

    token: TokenShown
    secret: str


class Tokens(BaseModel):
    """All tokens, the newest first, also those that have ended."""

    items: list[TokenShown]


class Roles(BaseModel):
    """What there is to be allowed, and what each role allows."""

    resources: list[str]
    acts: list[str]
    roles: dict[str, list[str]]


class NewUser(MayReason):
    """A password of at least 12 characters, and a role."""

    withheld: ClassVar = ("password",)
    password: Password
    role: Role


class NewPassword(MayReason):
    """A password of at least 12 characters."""

    withheld: ClassVar = ("password",)
    password: Password


class NewRole(MayReason):
    """`force` lets the last admin go."""

    role: Role
    force: bool = False


class Forced(MayReason):
    """`force` lets the last admin go."""

    force: bool = False


class NewToken(MayReason):
    """Either scopes or a role, of which one has all oneself. `expires_in_s` of null: never."""

    name: str = Field(min_length=1, max_length=100)
    scopes: list[Scope] | None = Field(None, min_length=1, max_length=50)
    role: Role | None = None
    expires_in_s: int | None = Field(int(LIFE.total_seconds()), ge=1, le=int(LONGEST_LIFE.total_seconds()))


@routes.reads("/roles", response_model=Roles)
def roles(asked: Asking) -> Any:
    """What there is to be allowed, and what each role allows."""
    allowed = {role.value: [right for right in RIGHTS if grants(scopes, right)] for role, scopes in ROLES.items()}
    return {"resources": RESOURCES, "acts": ACTS, "roles": allowed}


@routes.reads("/users", response_model=Users)
def users(asked: Asking) -> Any:
    """All users, by name."""
    return {"items": [plain(user) for user in asked.hold.access.users()]}


@routes.reads("/users/{name}", response_model=UserShown)
def user(asked: Asking, name: Name) -> Any:
    """One user."""
    found = asked.hold.access.user(name)
    if found is None:
        raise not_found("user", name)
    return plain(found)


@routes.acts("/users/{name}", ADMIN, response_model=UserShown, status_code=201)
def add_user(asked: Asking, name: NewName, body: NewUser) -> Any:
    """A new user, who can sign in at once, and can do no more than who asks for it."""
    _refuse_more(asked, body.role)
    with _refusals("user"):
        made = asked.hold.access.add_user(name, body.password, body.role, by=asked.by)
    _note(asked, "user_added", body.reason, name=name, role=body.role)
    return plain(made)


@routes.acts("/users/{name}/password", ADMIN, response_model=UserShown)
def set_password(asked: Asking, name: Name, body: NewPassword) -> Any:
    """Give a user another password, and end their sessions."""
    _refuse_more(asked, _role_of(asked, name))
    with _refusals("user"):
        return plain(asked.hold.access.set_password(name, body.password, by=asked.by))


@routes.acts("/users/{name}/role", ADMIN, response_model=UserShown)
def set_role(asked: Asking, name: Name, body: NewRole) -> Any:
    """Give a user another role, and end their sessions."""
    _refuse_more(asked, body.role, _role_of(asked, name))
    with _refusals("user"):
        changed = asked.hold.access.set_role(name, body.role, by=asked.by, force=body.force)
    _note(asked, "role_given", body.reason, name=name, role=body.role)
    return plain(changed)


@routes.acts("/users/{name}/disable", ADMIN, response_model=UserGone)
def disable(asked: Asking, name: Name, body: Forced) -> Any:
    """Let a user sign in no more, and end their sessions. Tokens that they made go on, and are named."""
    _refuse_more(asked, _role_of(asked, name))
    with _refusals("user"):
        gone = asked.hold.access.disable(name, by=asked.by, force=body.force)
    return {**plain(gone), "live_tokens": _live_tokens(asked, name)}


@routes.acts("/users/{name}/enable", ADMIN, response_model=UserShown)
def enable(asked: Asking, name: Name, body: MayReason) -> Any:
    """Let a user sign in again."""
    _refuse_more(asked, _role_of(asked, name))
    with _refusals("user"):
        return plain(asked.hold.access.enable(name, by=asked.by))


@routes.acts("/users/{name}/remove", ADMIN, response_model=UserGone)
def remove_user(asked: Asking, name: Name, body: Forced) -> Any:
    """Take a user away. Tokens that they made go on, and are named."""
    _refuse_more(asked, _role_of(asked, name))
    with _refusals("user"):
        gone = asked.hold.access.remove_user(name, by=asked.by, force=body.force)
    return {**plain(gone), "live_tokens": _live_tokens(asked, name)}


@routes.reads("/tokens", response_model=Tokens)
def tokens(asked: Asking) -> Any:
    """All tokens, the newest first, also those that have ended."""
    return {"items": [_token(asked, token) for token in asked.hold.access.tokens()]}


@routes.acts("/tokens", ADMIN, response_model=TokenMade, status_code=201)
def create_token(asked: Asking, body: NewToken) -> Any:
    """A new token, which can do no more than who asks for it. Its secret is in this answer and nowhere else."""
    with _refusals("token"):
        token, secret = asked.hold.access.create_token(
            body.name, body.scopes, role=body.role, expires_in=body.expires_in_s, by=asked.by, granted_by=asked.identity
        )
    _note(asked, "token_added", body.reason, id=token.id, name=token.name, scopes=" ".join(token.scopes))
    return {"token": _token(asked, token), "secret": secret}


@routes.acts("/tokens/{id}/revoke", ADMIN, response_model=TokenShown)
def revoke_token(asked: Asking, id: Name, body: MayReason) -> Any:
    """End a token, for good and at once."""
    with _refusals("token"):
        return _token(asked, asked.hold.access.revoke_token(id, by=asked.by))


def _refuse_more(asked: Asked, *roles: Role | None) -> None:
    """Raises ProblemError where one of the roles can do what who asks cannot: nobody decides about those above them."""
    scopes = {scope for role in roles if role is not None for scope in ROLES[role]}
    beyond = sorted(scope for scope in scopes if not covers(asked.identity.scopes, scope))
    if beyond:
        told = f"{asked.by} has not got {', '.join(beyond)}, and cannot decide about who has"
        raise ProblemError(403, "access_beyond_rights", told)


def _role_of(asked: Asked, name: str) -> Role | None:
    found = asked.hold.access.user(name)
    return None if found is None else Role(found.role)


@contextmanager
def _refusals(what: str) -> Iterator[None]:
    try:
        yield
    except AccessRefused as error:
        code = f"{what}_not_found" if error.reason is Refusal.UNKNOWN else f"access_{error.reason}"
        raise ProblemError(STATUS[error.reason], code, str(error)) from None
    except PolicyError as error:
        raise invalid("invalid_value", str(error)) from None


def _token(asked: Asked, token: Any) -> dict[str, Any]:
    return {**plain(token), "is_live": token.is_live(instant(asked.hold.store.now()))}


def _live_tokens(asked: Asked, name: str) -> list[str]:
    return [token.id for token in asked.hold.access.live_tokens_of(name)]


def _note(asked: Asked, what: str, reason: str, **facts: str) -> None:
    """What came of it, in the trail: the path does not tell."""
    asked.trail.acted(asked.identity, f"access.{what}", f"access:{ADMIN}", facts, reason)
