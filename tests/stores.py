"""Real stores for tests: at fresh, empty places, each of the same meaning.

    from tests.stores import STORES, fresh_store

    @pytest.fixture(params=STORES)
    def store(request, tmp_path):
        with fresh_store(request.param, tmp_path) as store:
            yield store

or `from tests.stores import store` in a conftest for just that.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import pytest

from holdfast.backends.memory import MemoryStore
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.machine.breaker_record import BREAKER
from holdfast.machine.bulk import BULK
from holdfast.machine.drain import DOMAIN
from holdfast.machine.letter_record import LETTER
from holdfast.machine.letter_summary import SUMMARY
from holdfast.store.port import Store
from holdfast.store.record import Kind
from holdfast.testing.store import CONFORMANCE_KINDS
from tests.services import mariadb

Kinds = tuple[Kind[Any], ...]
KINDS: Final[Kinds] = (*CONFORMANCE_KINDS, LETTER, SUMMARY, BREAKER, BULK, DOMAIN)


class Place(NamedTuple):
    """Somewhere to keep records. Several stores, also of several processes, can be open at one place (not memory)."""

    name: str
    url: str = "memory://"
    kinds: Kinds = KINDS

    def open(self, clock: Clock | None = None) -> Store:
        """A store at this place."""
        if self.name == "memory":
            return MemoryStore(SYSTEM_CLOCK if clock is None else clock)
        if self.name == "redis":
            from holdfast.backends.redis.store import RedisStore

            return RedisStore(self.url, clock=clock)
        from holdfast.backends.sql.store import SqlStore

        return SqlStore(self.url, kinds=self.kinds, clock=clock)


def make_url(name: str, tmp_path: Path) -> str:
    """Where a new store or database would be; a server's is made."""
    return _URLS[name](tmp_path)


def make_migrated(path: Path) -> str:
    """The URL of a new SQLite file with Holdfast's tables, copied: making it takes longer than most tests."""
    path.write_bytes(_sqlite_file(()))
    return f"sqlite:///{path}"


def make_place(name: str, tmp_path: Path, kinds: Kinds = KINDS) -> Place:
    """A new, empty place."""
    place = Place(name, make_url(name, tmp_path), kinds)
    if name == "sqlite":
        Path(place.url.removeprefix("sqlite:///")).write_bytes(_sqlite_file(kinds))
    elif name in _SERVERS:
        store: Any = place.open()
        store.create_tables()
        store.close()
    return place


def make_store(name: str, tmp_path: Path, kinds: Kinds = KINDS, clock: Clock | None = None) -> Store:
    """A store at a new, empty place; close it."""
    return make_place(name, tmp_path, kinds).open(clock)


@contextmanager
def fresh_place(name: str, tmp_path: Path, kinds: Kinds = KINDS) -> Iterator[Place]:
    """An empty place for a while. A database server's is emptied and used again: a new database takes long to make."""
    if name not in _SERVERS:
        yield make_place(name, tmp_path, kinds)
        return
    free = _free_places(name, kinds)
    place = free.pop() if free else make_place(name, tmp_path, kinds)
    yield place
    _empty(name, place.url)
    free.append(place)


@contextmanager
def fresh_url(name: str, tmp_path: Path) -> Iterator[str]:
    """Where a whole Holdfast finds all its tables, empty, for a while; a server's are used again like a place."""
    if name == "sqlite":
        yield make_migrated(tmp_path / f"{uuid.uuid4().hex}.db")
        return
    if name not in _SERVERS:
        yield make_url(name, tmp_path)
        return
    free = _free_urls(name)
    url = free.pop() if free else _upgraded(name, tmp_path)
    yield url
    _empty(name, url)
    free.append(url)


@contextmanager
def fresh_store(name: str, tmp_path: Path, kinds: Kinds = KINDS, clock: Clock | None = None) -> Iterator[Store]:
    """A store at an empty place, closed afterwards."""
    with fresh_place(name, tmp_path, kinds) as place:
        store = place.open(clock)
        try:
            yield store
        finally:
            store.close()


def _sqlite(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / uuid.uuid4().hex}.db"


def _postgres(tmp_path: Path) -> str:
    from tests.services import postgres

    return postgres.server().fresh_database()


def _redis(tmp_path: Path) -> str:
    from tests.services import redis

    return redis.server().fresh()


def _mariadb(tmp_path: Path) -> str:
    return mariadb.server().fresh_database()


_URLS: Final[dict[str, Callable[[Path], str]]] = {
    "memory": lambda _: "memory://",
    "sqlite": _sqlite,
    "postgres": _postgres,
    "redis": _redis,
    "mariadb": _mariadb,
}
_SERVERS: Final = ("postgres", "mariadb")
_SQL: Final = ("sqlite", *_SERVERS)

_HAS_MARIADB: Final = mariadb.AVAILABLE and find_spec("pymysql") is not None
STORES: Final = tuple(name for name in _URLS if name != "mariadb" or _HAS_MARIADB)
SHARED_STORES: Final = tuple(name for name in STORES if name != "memory")
SQL_STORES: Final = tuple(name for name in STORES if name in _SQL)


@cache
def _free_places(name: str, kinds: Kinds) -> list[Place]:
    return []


@cache
def _free_urls(name: str) -> list[str]:
    return []


def _upgraded(name: str, tmp_path: Path) -> str:
    from holdfast.backends.sql.migrate import upgrade

    made = make_url(name, tmp_path)
    upgrade(made)
    return made


@cache
def _sqlite_file(kinds: Kinds) -> bytes:
    """A file with Holdfast's tables, and those of these kinds."""
    from holdfast.backends.sql.store import SqlStore

    with TemporaryDirectory() as folder:
        path = Path(folder) / "template.db"
        store = SqlStore(f"sqlite:///{path}", kinds=kinds)
        store.create_tables()
        store.close()
        return path.read_bytes()


def _empty(name: str, url: str) -> None:
    """Delete everything but the version of the schema."""
    from holdfast.backends.sql.schema import VERSION_TABLE
    from tests.services import postgres

    server = mariadb.server() if name == "mariadb" else postgres.server()
    # In the order of their names, so a kind's records before its counters, which triggers still change until then.
    server.empty(url, keep=VERSION_TABLE)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Every store in turn, at an empty place."""
    with fresh_store(request.param, tmp_path) as store:
        yield store
