"""Real databases with the outbox's tables on them, empty, for tests of the outbox, the audit trail and sagas.

    from tests.databases import DATABASES, Database, fresh_database

    @pytest.fixture(params=DATABASES)
    def database(request, tmp_path):
        with fresh_database(request.param, tmp_path) as database:
            yield database

or `from tests.databases import database` in a conftest for just that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import sessionmaker

from holdfast.backends.sql.url import parse
from holdfast.outbox.tables import OutboxTables, bind_tables
from tests.stores import SQL_STORES, make_url

DATABASES: Final = SQL_STORES
METADATA: Final = sa.MetaData()
TABLES: Final[OutboxTables] = bind_tables(METADATA)
ORDERS: Final = sa.Table(
    "orders", METADATA, sa.Column("id", sa.Integer, primary_key=True), sa.Column("note", sa.String(50))
)
"""A table of the application's own."""


class Database(NamedTuple):
    """A database. Several engines, also of several processes, can be open on its `url`."""

    name: str
    url: str
    engine: sa.Engine
    sessions: sessionmaker[Any]
    tables: OutboxTables = TABLES


def open_database(name: str, url: str, **options: Any) -> Database:
    """An engine on a database that has its tables; `options` go to `create_engine`."""
    if name == "sqlite":
        options.setdefault("connect_args", {"timeout": 60})
    engine = sa.create_engine(url, **options)
    if name == "sqlite":
        sa.event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA journal_mode=WAL"))
    return Database(name, url, engine, sessionmaker(engine))


@contextmanager
def fresh_database(name: str, tmp_path: Path, **options: Any) -> Iterator[Database]:
    """An empty database for a while. A server's is emptied and used again, as a new one takes long to make."""
    free = _free(name)
    used_before = bool(free)
    url = free.pop() if free else parse(make_url(name, tmp_path)).sqlalchemy
    database = open_database(name, url, **options)
    try:
        if not used_before:
            METADATA.create_all(database.engine)
        yield database
        if name != "sqlite":
            with database.engine.begin() as connection:
                for table in METADATA.sorted_tables:
                    connection.execute(table.delete())
            free.append(url)
    finally:
        database.engine.dispose()


@cache
def _free(name: str) -> list[str]:
    return []


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with fresh_database(request.param, tmp_path) as database:
        yield database
