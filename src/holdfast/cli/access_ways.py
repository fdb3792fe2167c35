"""The two ways to accounts: the store itself, or a server that is asked. Both answer with the API's documents."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from holdfast.access.access import Access
from holdfast.access.refusals import AccessRefused, Refusal
from holdfast.access.tokens import Token
from holdfast.cli.api import part
from holdfast.cli.exits import NotFound, WrongUsage
from holdfast.cli.remote import Remote
from holdfast.cli.session import Session
from holdfast.errors import PolicyError
from holdfast.views.plain import plain

Document = dict[str, Any]


class Accounts(Protocol):
    """Users and tokens. Raises NotFound, WrongUsage, or what was refused."""

    def now(self) -> datetime: ...
    def users(self) -> list[Document]: ...
    def add_user(self, name: str, password: str, role: str, by: str) -> Document: ...
    def set_password(self, name: str, password: str, by: str) -> Document: ...
    def set_role(self, name: str, role: str, force: bool, by: str) -> Document: ...
    def disable(self, name: str, force: bool, by: str) -> Document: ...
    def enable(self, name: str, by: str) -> Document: ...
    def remove_user(self, name: str, force: bool, by: str) -> Document: ...
    def tokens(self) -> list[Document]: ...
    def create_token(
        self, name: str, scopes: list[str] | None, role: str | None, expires: timedelta | None, by: str
    ) -> Document: ...
    def revoke_token(self, id: str, by: str) -> Document: ...


def accounts_of(session: Session) -> Accounts:
    """Those of the server that the URL names, or of the store."""
    remote = session.remote
    return Stored(session) if remote is None else Asked(remote)


class Stored:
    """Accounts in the store. Whoever can write there may do everything."""

    def __init__(self, session: Session) -> None:
        self._session = session
        # The first account of all may come before anything else in a new file.
        self._access: Access = session.hold(create=True).access

    def now(self) -> datetime:
        return self._session.now()

    def users(self) -> list[Document]:
        return [plain(user) for user in self._access.users()]

    def add_user(self, name: str, password: str, role: str, by: str) -> Document:
        with _meant():
            return _shown(self._access.add_user(name, password, role, by=by))

    def set_password(self, name: str, password: str, by: str) -> Document:
        with _meant():
            return _shown(self._access.set_password(name, password, by=by))

    def set_role(self, name: str, role: str, force: bool, by: str) -> Document:
        with _meant():
            return _shown(self._access.set_role(name, role, by=by, force=force))

    def disable(self, name: str, force: bool, by: str) -> Document:
        with _meant():
            return self._gone(self._access.disable(name, by=by, force=force))

    def enable(self, name: str, by: str) -> Document:
        with _meant():
            return _shown(self._access.enable(name, by=by))

    def remove_user(self, name: str, force: bool, by: str) -> Document:
        with _meant():
            return self._gone(self._access.remove_user(name, by=by, force=force))

    def tokens(self) -> list[Document]:
        return [self._token(token) for token in self._access.tokens()]

    def create_token(
        self, name: str, scopes: list[str] | None, role: str | None, expires: timedelta | None, by: str
    ) -> Document:
        with _meant():
            token, secret = self._access.create_token(name, scopes, role=role, expires_in=expires, by=by)
        return {"token": self._token(token), "secret": secret}

    def revoke_token(self, id: str, by: str) -> Document:
        with _meant():
            return self._token(self._access.revoke_token(id, by=by))

    def _gone(self, user: Any) -> Document:
        return {**plain(user), "live_tokens": [token.id for token in self._access.live_tokens_of(user.name)]}

    def _token(self, token: Token) -> Document:
        return {**plain(token), "is_live": token.is_live(self.now())}


class Asked:
    """Accounts of a server, which knows by the token who asks; `by` is for a store only."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    def now(self) -> datetime:
        return datetime.now(UTC)

    def users(self) -> list[Document]:
        return list(self._remote.get("/access/users")["items"])

    def add_user(self, name: str, password: str, role: str, by: str) -> Document:
        return self._post(f"/users/{part(name)}", password=password, role=role)

    def set_password(self, name: str, password: str, by: str) -> Document:
        return self._post(f"/users/{part(name)}/password", password=password)

    def set_role(self, name: str, role: str, force: bool, by: str) -> Document:
        return self._post(f"/users/{part(name)}/role", role=role, force=force)

    def disable(self, name: str, force: bool, by: str) -> Document:
        return self._post(f"/users/{part(name)}/disable", force=force)

    def enable(self, name: str, by: str) -> Document:
        return self._post(f"/users/{part(name)}/enable")

    def remove_user(self, name: str, force: bool, by: str) -> Document:
        return self._post(f"/users/{part(name)}/remove", force=force)

    def tokens(self) -> list[Document]:
        return list(self._remote.get("/access/tokens")["items"])

    def create_token(
        self, name: str, scopes: list[str] | None, role: str | None, expires: timedelta | None, by: str
    ) -> Document:
        life = None if expires is None else int(expires.total_seconds())
        return self._post("/tokens", name=name, scopes=scopes, role=role, expires_in_s=life)

    def revoke_token(self, id: str, by: str) -> Document:
        return self._post(f"/tokens/{part(id)}/revoke")

    def _post(self, path: str, **body: Any) -> Document:
        answer: Document = self._remote.post(f"/access{path}", body)
        return answer


def _shown(value: Any) -> Document:
    shown: Document = plain(value)
    return shown


@contextmanager
def _meant() -> Iterator[None]:
    """What the library refuses, as the end of a command."""
    try:
        yield
    except AccessRefused as error:
        if error.reason is Refusal.UNKNOWN:
            raise NotFound(str(error)) from None
        raise
    except PolicyError as error:
        raise WrongUsage(str(error)) from None
