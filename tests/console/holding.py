"""Stores for the console's tests: new SQLite files, and one PostgreSQL database that is emptied after each test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

import pytest
import sqlalchemy as sa

from holdfast import Holdfast, Hub
from holdfast.access.access import Access
from holdfast.access.passwords import Passwords
from holdfast.backends.sql.migrate import upgrade
from holdfast.backends.sql.schema import VERSION_TABLE
from holdfast.backends.sql.url import parse
from tests.stores import make_url

STORES: Final = ("sqlite", "postgres")
PASSWORD: Final = "correct horse battery"
_CHEAP: Final = Passwords(time_cost=1, memory_kib=8, lanes=1)

both: Final = pytest.mark.parametrize("hold", STORES, indirect=True)
"""The test runs on SQLite and on PostgreSQL."""


@contextmanager
def holding(name: str, tmp_path: Path) -> Iterator[Holdfast]:
    """A Holdfast on an empty store of this kind. What a password costs is no part of these tests."""
    url = _postgres() if name == "postgres" else make_url(name, tmp_path)
    with Holdfast(url, background=False, telemetry=Hub()) as hold:
        hold._access = Access(hold.store, hub=hold.telemetry, passwords=_CHEAP)
        yield hold
    if name == "postgres":
        _empty(url)


@cache
def _postgres() -> str:
    url = make_url("postgres", Path())
    upgrade(url)
    return url


def _empty(url: str) -> None:
    engine = sa.create_engine(parse(url).sqlalchemy, poolclass=sa.NullPool)
    with engine.begin() as connection:
        tables = [name for name in sa.inspect(connection).get_table_names() if name != VERSION_TABLE]
        connection.execute(sa.text(f"TRUNCATE {', '.join(tables)} CASCADE"))
    engine.dispose()
