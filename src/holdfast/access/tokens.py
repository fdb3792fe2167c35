"""Tokens: secrets for programs, each with what it may do and until when."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from hmac import compare_digest
from typing import Final

from holdfast.access.events import AccountChanged
from holdfast.access.records import TOKEN, TokenRecord
from holdfast.access.refusals import AccessRefused, Refusal
from holdfast.access.rights import ROLES, Identity, Role, check_scopes, covers
from holdfast.access.users import check_role
from holdfast.errors import Conflict, PolicyError
from holdfast.store.change import change
from holdfast.store.codec import from_json, instant, maybe_instant, to_json
from holdfast.store.paging import every
from holdfast.store.port import Insert, Store, Swap
from holdfast.store.record import evolve
from holdfast.telemetry.hub import Hub

PREFIX: Final = "hf_"
LIFE: Final = timedelta(days=90)
LONGEST_LIFE: Final = timedelta(days=3650)
_TOKEN: Final = re.compile(r"hf_([0-9a-f]{12})_([0-9a-f]{64})")
_NOTED_EVERY_US: Final = 60_000_000
_LONGEST_NAME: Final = 100


@dataclass(frozen=True, slots=True)
class Token:
    """A token, without its secret."""

    id: str
    name: str
    scopes: tuple[str, ...]
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None
    last_used_at: datetime | None

    def is_live(self, now: datetime) -> bool:
        """Whether it opens anything still."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class Tokens:
    """The tokens of one store."""

    def __init__(self, store: Store, hub: Hub) -> None:
        self._store = store
        self._hub = hub

    def create(
        self,
        name: str,
        scopes: Iterable[str] | None,
        role: Role | str | None,
        *,
        expires_in: timedelta | float | None,
        by: str,
        granted_by: Identity | None,
    ) -> tuple[Token, str]:
        _check_name(name)
        if (scopes is None) == (role is None):
            raise PolicyError("a token has either scopes or a role; for instance scopes=['letters:*'] or role='viewer'")
        wanted = ROLES[check_role(role)] if role is not None else check_scopes(scopes or ())
        if granted_by is not None and (beyond := sorted(one for one in wanted if not covers(granted_by.scopes, one))):
            raise AccessRefused(
                Refusal.BEYOND_RIGHTS,
                f"{granted_by.name} may not do {', '.join(beyond)} and cannot give it to a token; ask for less",
            )
        life, now = _life(expires_in), self._store.now()
        id, secret = secrets.token_hex(6), secrets.token_hex(32)
        record = TokenRecord(
            id, 1, None, name, _digest(secret), to_json(sorted(wanted)), now, by,
            None if life is None else now + life, None, None, None,
        )  # fmt: skip
        self._store.commit([Insert(TOKEN, record)])
        self._hub.emit(AccountChanged(identity_name(record), "", "added", by))
        return token_of(record), f"{PREFIX}{id}_{secret}"

    def identify(self, text: str) -> Identity | None:
        """Who shows this token; None if it is nobody's, or has ended. Notes, to the minute, that it was used."""
        match = _TOKEN.fullmatch(text)
        record = None if match is None else self._store.get(TOKEN, [match[1]])[0]
        if match is None or record is None or not compare_digest(record.digest, _digest(match[2])):
            return None
        now = self._store.now()
        if not token_of(record).is_live(instant(now)):
            return None
        if record.last_used_at is None or now - record.last_used_at >= _NOTED_EVERY_US:
            try:
                self._store.commit([Swap(TOKEN, record, evolve(record, last_used_at=now))])
            except Conflict:
                pass  # another request has noted it, or it has just been revoked
        return Identity(identity_name(record), frozenset(from_json(record.scopes)), "token")

    def get(self, id: str) -> Token | None:
        found = self._store.get(TOKEN, [id])[0]
        return None if found is None else token_of(found)

    def all(self) -> list[Token]:
        """All of them, the newest first, also those that have ended."""
        return [token_of(one) for one in every(self._store, TOKEN, by="created_at", descending=True)]

    def revoke(self, id: str, *, by: str) -> Token:
        now = self._store.now()

        def decide(old: TokenRecord | None) -> TokenRecord | None:
            if old is None or old.revoked_at is not None:
                return None
            return evolve(old, revoked_at=now, revoked_by=by)

        old, new = change(self._store, TOKEN, id, decide)
        if old is None:
            raise AccessRefused(Refusal.UNKNOWN, f"there is no token {id!r}; see: holdfast access tokens")
        if new is None:
            return token_of(old)
        self._hub.emit(AccountChanged(identity_name(new), "", "revoked", by))
        return token_of(new)


def identity_name(record: TokenRecord) -> str:
    """What the audit trail calls it: no user has a name like this, and no other token the same."""
    return f"token:{record.name}/{record.id}"


def token_of(record: TokenRecord) -> Token:
    return Token(
        record.id, record.name, tuple(from_json(record.scopes)), instant(record.created_at), record.created_by,
        maybe_instant(record.expires_at), maybe_instant(record.revoked_at), record.revoked_by,
        maybe_instant(record.last_used_at),
    )  # fmt: skip


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
        raise PolicyError(f"a token's name is a text of 1 to {_LONGEST_NAME} printable characters, got {name!r}")


def _life(expires_in: timedelta | float | None) -> int | None:
    if expires_in is None:
        return None
    seconds = expires_in.total_seconds() if isinstance(expires_in, timedelta) else float(expires_in)
    if not 1 <= seconds <= LONGEST_LIFE.total_seconds():
        raise PolicyError(
            f"expires_in must be from 1 second to {LONGEST_LIFE.days} days, got {expires_in!r}; "
            "write None for a token that never expires"
        )
    return round(seconds * 1e6)
