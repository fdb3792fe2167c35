"""A store from a URL."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from holdfast.backends.sql.options import sqlite_options
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import MissingExtra
from holdfast.store.port import Store
from holdfast.store.record import Kind

SCHEMES: Final = ("memory", "sqlite", "postgresql", "postgres", "mariadb", "mysql", "redis", "rediss", "unix")


def open_store(url: str, *, clock: Clock | None = None, kinds: Iterable[Kind[Any]] = (), **options: Any) -> Store:
    """The store at a URL; nothing is connected to yet. `options` are those of the store. Of a SQLite file, those that
    are not given are as HOLDFAST_SQLITE_* say.

    Raises TypeError for what is no text, ValueError for an unknown scheme, MissingExtra when a package is not
    installed, and ConfigurationError for a variable with a bad value.
    """
    if not isinstance(url, str):
        raise TypeError(f"url is {url!r}; give a text such as 'sqlite:///holdfast.db'")
    scheme, mark, _ = url.partition("://")
    # "postgresql+psycopg" and the like are accepted, as SQLAlchemy writes them.
    family = scheme.partition("+")[0].lower() if mark else ""
    match family:
        case "memory":
            from holdfast.backends.memory import MemoryStore

            return MemoryStore(clock or SYSTEM_CLOCK, **options)
        case "sqlite":
            return _open_sql(url, clock, kinds, sqlite_options(options))
        case "postgresql" | "postgres" | "mariadb" | "mysql":
            return _open_sql(url, clock, kinds, options)
        case "redis" | "rediss" | "unix":
            return _open_redis(url, clock, options)
    known = ", ".join(f"{name}://" for name in SCHEMES)
    raise ValueError(f"{scheme + mark if mark else url!r} is no store's URL; it must begin with one of {known}")


def _open_sql(url: str, clock: Clock | None, kinds: Iterable[Kind[Any]], options: dict[str, Any]) -> Store:
    try:
        import sqlalchemy  # noqa: F401  # only whether it is there
    except ModuleNotFoundError as error:
        raise MissingExtra("SQL stores need SQLAlchemy; run: pip install 'holdfast[sql]'") from error
    from holdfast.backends.sql.store import SqlStore

    return SqlStore(url, clock=clock, kinds=kinds, **options)


def _open_redis(url: str, clock: Clock | None, options: dict[str, Any]) -> Store:
    try:
        import redis  # noqa: F401  # as above
    except ModuleNotFoundError as error:
        raise MissingExtra("the Redis store needs redis-py; run: pip install 'holdfast[redis]'") from error
    from holdfast.backends.redis.store import RedisStore

    return RedisStore(url, clock=clock, **options)
