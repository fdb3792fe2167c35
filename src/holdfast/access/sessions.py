"""Sessions: browsers that somebody has signed in with. The cookie's value is known to the browser alone."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from holdfast.access.records import SESSION, USER, SessionRecord, UserRecord
from holdfast.access.rights import Identity
from holdfast.access.users import user_of
from holdfast.store.change import remove
from holdfast.store.codec import duration, instant
from holdfast.store.port import Insert, Store
from holdfast.store.query import Condition, equal

LIFE: Final = timedelta(hours=12)
_LONGEST_VALUE: Final = 200


@dataclass(frozen=True, slots=True)
class Session:
    """Who is signed in, and what a request that changes something must repeat (`csrf`)."""

    identity: Identity
    csrf: str
    created_at: datetime
    expires_at: datetime


class Sessions:
    """The sessions of one store."""

    def __init__(self, store: Store, life: timedelta) -> None:
        self._store = store
        self._life = duration(life)

    def begin(self, user: UserRecord) -> tuple[str, Session]:
        value, now = secrets.token_urlsafe(32), self._store.now()
        record = SessionRecord(
            _digest(value), 1, now + self._life, user.id, secrets.token_urlsafe(24), now, user.password_changed_at
        )
        self._store.commit([Insert(SESSION, record)])
        return value, _session(record, user)

    def find(self, value: str) -> Session | None:
        """The session, if it goes on and its user may still sign in as then."""
        if not value or len(value) > _LONGEST_VALUE:
            return None
        record = self._store.get(SESSION, [_digest(value)])[0]
        if record is None or record.due_at is None or record.due_at <= self._store.now():
            return None
        # The user is read each time: a right that was taken away is gone with the next request.
        user = self._store.get(USER, [record.user_name])[0]
        if user is None or user.is_disabled or user.password_changed_at != record.since:
            return None
        return _session(record, user)

    def end(self, value: str) -> bool:
        """Whether there was one."""
        return remove(self._store, SESSION, _digest(value)) is not None

    def end_of(self, user: str) -> int:
        """How many there were."""
        return self._store.sweep(SESSION, equal(user_name=user))

    def sweep(self) -> int:
        """Delete those that have ended; how many there were."""
        return self._store.sweep(SESSION, (Condition("due_at", "<=", self._store.now()),), by="due_at")


def _session(record: SessionRecord, user: UserRecord) -> Session:
    assert record.due_at is not None
    return Session(user_of(user).identity(), record.csrf, instant(record.created_at), instant(record.due_at))


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
