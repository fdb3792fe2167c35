"""`hold.access`: who may do what. People sign in, programs show tokens, and what no scope grants is denied."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from holdfast.access.events import UNKNOWN, SignInTried
from holdfast.access.passwords import Passwords
from holdfast.access.records import TOKEN, USER, UserRecord
from holdfast.access.refusals import AccessRefused, Refusal
from holdfast.access.rights import Identity, Role
from holdfast.access.sessions import LIFE as SESSION_LIFE
from holdfast.access.sessions import Session, Sessions
from holdfast.access.throttle import Throttle
from holdfast.access.tokens import LIFE as TOKEN_LIFE
from holdfast.access.tokens import Token, Tokens
from holdfast.access.users import User, Users, is_name, user_of
from holdfast.core.addresses import neighbourhood
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import RateLimited
from holdfast.store.codec import instant
from holdfast.store.port import Store
from holdfast.telemetry.hub import Hub, default_hub

PER_NAME: Final = (1 / 6, 10)
"""Attempts to sign in under one name, a second and at once, in one process. Success is forgiven."""
PER_ADDRESS: Final = (1 / 3, 20)
"""The same from one address, or from one /64 of IPv6, successful or not."""


class Access:
    """Users, tokens and sessions over one store. `by` is who does it, for the events and for the record."""

    def __init__(
        self,
        store: Store,
        clock: Clock | None = None,
        *,
        hub: Hub | None = None,
        passwords: Passwords | None = None,
        session_life: timedelta = SESSION_LIFE,
    ) -> None:
        self._store = store
        self.clock: Clock = SYSTEM_CLOCK if clock is None else clock
        self._hub = default_hub() if hub is None else hub
        self._passwords = Passwords() if passwords is None else passwords
        self._users = Users(store, self._passwords, self._hub)
        self._tokens = Tokens(store, self._hub)
        self._sessions = Sessions(store, session_life)
        self._per_name = Throttle(*PER_NAME)
        self._per_address = Throttle(*PER_ADDRESS)

    @property
    def has_accounts(self) -> bool:
        """Whether anybody was ever given an account that was not taken away since."""
        return bool(self._store.page(USER, limit=1) or self._store.page(TOKEN, limit=1))

    def add_user(self, name: str, password: str, role: Role | str, *, by: str = "anonymous") -> User:
        """A new user. Raises PolicyError, and AccessRefused for a name that is taken."""
        return self._users.add(name, password, role, by=by)

    def user(self, name: str) -> User | None:
        return self._users.get(name)

    def users(self) -> list[User]:
        """All users, by name."""
        return self._users.all()

    def set_password(self, name: str, password: str, *, by: str = "anonymous") -> User:
        """Give a user another password, and end their sessions. Raises PolicyError, and AccessRefused."""
        user = self._users.set_password(name, password, by=by)
        self._per_name.forgive(name)
        return user

    def set_role(self, name: str, role: Role | str, *, by: str = "anonymous", force: bool = False) -> User:
        """Give a user another role, at once. Raises PolicyError, and AccessRefused."""
        return self._users.set_role(name, role, by=by, force=force)

    def disable(self, name: str, *, by: str = "anonymous", force: bool = False) -> User:
        """Let a user sign in no more, and end their sessions. Tokens that they made go on. Raises AccessRefused."""
        return self._users.disable(name, by=by, force=force)

    def enable(self, name: str, *, by: str = "anonymous") -> User:
        """Let a user sign in again. Raises AccessRefused."""
        return self._users.enable(name, by=by)

    def remove_user(self, name: str, *, by: str = "anonymous", force: bool = False) -> User:
        """Take a user away; as it was. Tokens that they made go on. Raises AccessRefused."""
        return self._users.remove(name, by=by, force=force)

    def authenticate(self, name: str, password: str, *, address: str | None = None) -> Identity | None:
        """Who it is; None if name and password do not belong together, which takes as long as if they did.

        Raises RateLimited after too many attempts under the name or from the address.
        """
        record = self._authenticated(name, password, address)
        return None if record is None else user_of(record).identity()

    def sign_in(self, name: str, password: str, *, address: str | None = None) -> tuple[str, Session] | None:
        """A session for who it is: the cookie's value, which is kept nowhere, and the session. Otherwise as
        `authenticate`."""
        record = self._authenticated(name, password, address)
        return None if record is None else self._sessions.begin(record)

    def begin_session(self, user: str) -> tuple[str, Session]:
        """A session for a user whom the program has authenticated itself. Raises AccessRefused."""
        record = self._users.record(user)
        if record is None or record.is_disabled:
            raise AccessRefused(Refusal.UNKNOWN, f"there is no user {user!r} who may sign in; add or enable one")
        return self._sessions.begin(record)

    def find_session(self, value: str) -> Session | None:
        """The session of a cookie, with what its user may do now; None when it has ended."""
        return self._sessions.find(value)

    def end_session(self, value: str) -> bool:
        """Whether there was one."""
        return self._sessions.end(value)

    def end_sessions_of(self, user: str) -> int:
        """How many there were."""
        return self._sessions.end_of(user)

    def create_token(
        self,
        name: str,
        scopes: Iterable[str] | None = None,
        *,
        role: Role | str | None = None,
        expires_in: timedelta | float | None = TOKEN_LIFE,
        by: str = "anonymous",
        granted_by: Identity | None = None,
    ) -> tuple[Token, str]:
        """A new token with these scopes, or a role's, and the text that proves it, which is kept nowhere.

        `granted_by` is who asks for it: nobody can give what they have not got. Raises PolicyError, and AccessRefused.
        """
        return self._tokens.create(name, scopes, role, expires_in=expires_in, by=by, granted_by=granted_by)

    def identify_token(self, text: str) -> Identity | None:
        """Who shows this token; None if it is none, or has ended."""
        return self._tokens.identify(text)

    def token(self, id: str) -> Token | None:
        return self._tokens.get(id)

    def tokens(self) -> list[Token]:
        """All tokens, the newest first, also those that have ended."""
        return self._tokens.all()

    def revoke_token(self, id: str, *, by: str = "anonymous") -> Token:
        """End a token, for good and at once. Raises AccessRefused."""
        return self._tokens.revoke(id, by=by)

    def live_tokens_of(self, user: str) -> list[Token]:
        """Tokens that a user has made and that still open something: look at them when the user goes."""
        now = instant(self._store.now())
        return [token for token in self._tokens.all() if token.created_by == user and token.is_live(now)]

    def sweep(self) -> int:
        """Delete sessions that have ended; how many there were. Tokens stay, so that one can see what they were."""
        return self._sessions.sweep()

    def _authenticated(self, name: str, password: str, address: str | None) -> UserRecord | None:
        self._admit(name, address)
        record = self._users.record(name)
        if not self._passwords.matches(None if record is None else record.password, password) or record is None:
            self._tell(UNKNOWN if record is None else name, False, address, "wrong name or password")
            return None
        if record.is_disabled:
            self._tell(name, False, address, "disabled")
            return None
        self._per_name.forgive(name)
        if self._passwords.is_outdated(record.password):
            self._users.rehash(record, password)
        self._tell(name, True, address, None)
        return record

    def _admit(self, name: str, address: str | None) -> None:
        now = self.clock.monotonic()
        wait = 0.0 if address is None else self._per_address.take(neighbourhood(address), now)
        # What cannot be a name has one bucket; a text of any length is not remembered.
        wait = wait or self._per_name.take(name if is_name(name) else "", now)
        if wait:
            self._tell(UNKNOWN, False, address, "too many attempts")
            raise RateLimited("access", wait, "too many attempts to sign in")

    def _tell(self, name: str, is_granted: bool, address: str | None, reason: str | None) -> None:
        self._hub.emit(SignInTried(name, "", is_granted, address, reason))
