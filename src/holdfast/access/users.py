"""Users: people with a name, a password and a role."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from holdfast.access.events import AccountChanged
from holdfast.access.passwords import Passwords
from holdfast.access.records import SESSION, USER, UserRecord
from holdfast.access.refusals import AccessRefused, Refusal
from holdfast.access.rights import ROLES, Identity, Role
from holdfast.errors import Conflict, PolicyError
from holdfast.store.codec import instant
from holdfast.store.paging import every
from holdfast.store.port import Change, Delete, Insert, Store, Swap
from holdfast.store.query import equal
from holdfast.store.record import evolve
from holdfast.telemetry.hub import Hub

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._@+-]{0,99}")
RESERVED: Final = frozenset({"local", "anonymous", "unknown", "system", "holdfast"})
"""Names that the audit trail has for nobody in particular."""


@dataclass(frozen=True, slots=True)
class User:
    """A person, without the password."""

    name: str
    role: Role
    is_disabled: bool
    created_at: datetime
    created_by: str
    password_changed_at: datetime

    def identity(self) -> Identity:
        """Who they are once they have proved it."""
        return Identity(self.name, ROLES[self.role], "session")


class Users:
    """The users of one store."""

    def __init__(self, store: Store, passwords: Passwords, hub: Hub) -> None:
        self._store = store
        self._passwords = passwords
        self._hub = hub

    def add(self, name: str, password: str, role: Role | str, *, by: str) -> User:
        """Raises PolicyError, and AccessRefused for a name that is taken."""
        check_name(name)
        level, hashed, now = check_role(role), self._passwords.hash(password), self._store.now()
        record = UserRecord(name, 1, None, hashed, level.value, 0, now, by, now)
        try:
            self._store.commit([Insert(USER, record)])
        except Conflict:
            raise AccessRefused(Refusal.TAKEN, f"there is a user {name!r} already; choose another name") from None
        self._tell(name, "added", by)
        return user_of(record)

    def get(self, name: str) -> User | None:
        found = self.record(name)
        return None if found is None else user_of(found)

    def record(self, name: str) -> UserRecord | None:
        return self._store.get(USER, [name])[0] if is_name(name) else None

    def all(self) -> list[User]:
        """All of them, by name."""
        return [user_of(one) for one in every(self._store, USER)]

    def set_password(self, name: str, password: str, *, by: str) -> User:
        hashed = self._passwords.hash(password)

        def decide(old: UserRecord) -> UserRecord:
            # Later than any session that began with the old one, also on a clock that stands still.
            at = max(self._store.now(), old.password_changed_at + 1)
            return evolve(old, password=hashed, password_changed_at=at)

        return self._change(name, decide, "password changed", by=by)

    def rehash(self, record: UserRecord, password: str) -> None:
        """Write the same password down at today's price; whoever changed the user meanwhile goes first."""
        try:
            self._store.commit([Swap(USER, record, evolve(record, password=self._passwords.hash(password)))])
        except Conflict:
            pass

    def set_role(self, name: str, role: Role | str, *, by: str, force: bool) -> User:
        level = check_role(role)
        return self._change(name, lambda old: evolve(old, role=level.value), f"made {level}", by=by, force=force)

    def disable(self, name: str, *, by: str, force: bool) -> User:
        return self._change(name, lambda old: evolve(old, is_disabled=1), "disabled", by=by, force=force)

    def enable(self, name: str, *, by: str) -> User:
        return self._change(name, lambda old: evolve(old, is_disabled=0), "enabled", by=by)

    def remove(self, name: str, *, by: str, force: bool) -> User:
        return self._change(name, lambda _: None, "removed", by=by, force=force)

    def _change(
        self,
        name: str,
        decide: Callable[[UserRecord], UserRecord | None],
        what: str,
        *,
        by: str,
        force: bool = False,
    ) -> User:
        """Swap the record, or delete it for None, and end the user's sessions. The user as it is, or was."""
        while True:
            old = self.record(name)
            if old is None:
                raise AccessRefused(Refusal.UNKNOWN, f"there is no user {name!r}; see: holdfast access users")
            new = decide(old)
            changes: list[Change] = [Delete(USER, old) if new is None else Swap(USER, old, new)]
            if not force and _is_admin(old) and not (new is not None and _is_admin(new)):
                changes += self._stand_in(name)
            try:
                self._store.commit(changes)
            except Conflict:
                continue
            break
        self._store.sweep(SESSION, equal(user_name=name))
        self._tell(name, what, by)
        return user_of(old if new is None else new)

    def _stand_in(self, name: str) -> list[Change]:
        """A change that is only possible while somebody else is still admin: two who remove each other cannot both."""
        admins = self._store.page(USER, equal(role=Role.ADMIN.value, is_disabled=0), by="id", limit=2)
        for other in admins:
            if other.id != name:
                return [Swap(USER, other, evolve(other))]
        if len(self._store.page(USER, by="id", limit=2)) == 1:
            return []
        raise AccessRefused(
            Refusal.LAST_ADMIN,
            f"{name!r} is the last admin who can sign in, and there are other users; "
            "make another one admin first, or force it",
        )

    def _tell(self, name: str, what: str, by: str) -> None:
        self._hub.emit(AccountChanged(name, "", what, by))


def user_of(record: UserRecord) -> User:
    return User(
        record.id, Role(record.role), bool(record.is_disabled), instant(record.created_at), record.created_by,
        instant(record.password_changed_at),
    )  # fmt: skip


def is_name(name: str) -> bool:
    """Whether it could be a user's."""
    return _NAME.fullmatch(name) is not None


def check_name(name: object) -> None:
    """Raises PolicyError for a name that cannot be a user's."""
    if not isinstance(name, str) or not is_name(name):
        raise PolicyError(
            f"{name!r} is no name for a user; write 1 to 100 small letters, digits and . _ @ + -, "
            "beginning with a letter or digit"
        )
    if name in RESERVED:
        raise PolicyError(f"{name!r} stands for nobody in particular in the audit trail; choose another name")


def check_role(role: Role | str) -> Role:
    """Raises PolicyError for a role that there is not."""
    try:
        return Role(role)
    except ValueError:
        raise PolicyError(f"{role!r} is no role; write one of {', '.join(Role)}") from None


def _is_admin(record: UserRecord) -> bool:
    return record.role == Role.ADMIN and not record.is_disabled
