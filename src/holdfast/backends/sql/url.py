"""Where a database is, as a URL says it."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast.core.redact import is_secret_key
from holdfast.errors import InvalidValue

DIALECTS: Final = {
    "sqlite": "sqlite",
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mariadb": "mariadb",
    "mysql": "mariadb",
}
EXTRAS: Final = {"sqlite": "sql", "postgresql": "postgres", "mariadb": "mariadb"}
DRIVERS: Final = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "mariadb": "mariadb+pymysql"}
_OF_SQLALCHEMY: Final = ("cached_statements", "check_same_thread")
"""Options that a URL may have which is also SQLAlchemy's; they make no difference to a store."""


class Address(NamedTuple):
    """A URL in the forms that are asked for."""

    dialect: str
    rest: str
    """What follows `scheme://`, password included."""

    @property
    def url(self) -> str:
        return f"{self.dialect}://{self.rest}"

    @property
    def sqlalchemy(self) -> str:
        return f"{DRIVERS[self.dialect]}://{self.rest}"

    @property
    def shown(self) -> str:
        """Without password."""
        return shown(self.url)

    @property
    def path(self) -> str:
        """The file of an SQLite database."""
        path = unquote(self.rest.partition("?")[0])
        return path.removeprefix("/") or ":memory:"

    def check_sqlite(self) -> None:
        """Raises ValueError for an option that the store of a file would not heed: who says `mode=ro` means it."""
        query = self.rest.partition("?")[2]
        for name, _ in parse_qsl(query, keep_blank_values=True):
            if name not in _OF_SQLALCHEMY:
                known = ", ".join(_OF_SQLALCHEMY)
                ours = "durable=, connections= and patience= are arguments, or HOLDFAST_SQLITE_* in the environment"
                raise InvalidValue(f"{name!r} is no option of a SQLite URL, which may have {known}; {ours}")


def parse(url: str) -> Address:
    """The address of an SQL database.

    Raises ValueError for another scheme.
    """
    scheme, mark, rest = url.partition("://")
    dialect = DIALECTS.get(scheme.partition("+")[0].lower())
    if not mark or dialect is None:
        known = ", ".join(f"{name}://" for name in DIALECTS)
        raise ValueError(f"{shown(url)!r} is no SQL database; it must begin with one of {known}")
    return Address(dialect, rest)


def shown(url: str) -> str:
    """The URL without its secrets."""
    try:
        parts = urlsplit(url)
        password, query = parts.password, parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return url.partition("://")[0] + "://…"
    if password is None and "@" in parts.path and parts.netloc:
        return f"{parts.scheme}://…@{parts.path.rpartition('@')[2]}"  # a password with a slash in it
    if password is not None:
        user, _, host = parts.netloc.rpartition("@")
        parts = parts._replace(netloc=f"{user.partition(':')[0]}:***@{host}")
    if any(is_secret_key(name) for name, _ in query):
        parts = parts._replace(query="&".join(f"{n}={'***' if is_secret_key(n) else v}" for n, v in query))
    # `urlunsplit` would lose the empty host of sqlite:///file.
    rest = parts.netloc + parts.path + (f"?{parts.query}" if parts.query else "")
    return f"{parts.scheme}://{rest}"
