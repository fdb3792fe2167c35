"""What is kept of users, tokens and sessions: no password, no token and no cookie, only what proves one right."""

from __future__ import annotations

from typing import Final, NamedTuple

from holdfast.store.record import Index, Kind


class UserRecord(NamedTuple):
    """A person."""

    id: str  # the name
    version: int
    due_at: int | None
    password: str  # an argon2id hash, with its parameters
    role: str
    is_disabled: int
    created_at: int
    created_by: str
    password_changed_at: int  # sessions from before it have ended


class TokenRecord(NamedTuple):
    """A secret that a program shows. It is kept when it has ended, so that one can see what it was."""

    id: str  # the part of the token that is no secret
    version: int
    due_at: int | None
    name: str
    digest: str  # SHA-256 of the secret part, which is too long to be guessed
    scopes: str  # JSON: a sorted list
    created_at: int
    created_by: str
    expires_at: int | None
    revoked_at: int | None
    revoked_by: str | None
    last_used_at: int | None  # to the minute


class SessionRecord(NamedTuple):
    """A browser that somebody has signed in with. `due_at` is when it ends."""

    id: str  # SHA-256 of the cookie's value
    version: int
    due_at: int | None
    user_name: str
    csrf: str
    created_at: int
    since: int  # the user's `password_changed_at` when it began; any other ends it


USER: Final = Kind("access_user", UserRecord, indexes=(Index(("role", "is_disabled"), "id"),))
TOKEN: Final = Kind("access_token", TokenRecord, indexes=(Index((), "created_at"),))
SESSION: Final = Kind("access_session", SessionRecord, indexes=(Index((), "due_at"), Index(("user_name",), "due_at")))
KINDS: Final = (USER, TOKEN, SESSION)
