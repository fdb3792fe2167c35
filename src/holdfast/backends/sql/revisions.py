"""Which revision of the schema this program needs, and an SQLite file that brings itself there."""

from __future__ import annotations

import shlex
import sqlite3
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from holdfast.backends.sql.ddl import shared_ddl
from holdfast.backends.sql.dialect import Sqlite
from holdfast.backends.sql.schema import VERSION_TABLE
from holdfast.errors import SchemaError


@cache
def revisions() -> tuple[str, ...]:
    """The revisions that exist, oldest first: the names of their files begin with them. Alembic is not asked, as it is
    slow to load."""
    names = (entry.name for entry in files("holdfast.backends.migrations").joinpath("versions").iterdir())
    return tuple(sorted(name.partition("_")[0] for name in names if name[:1].isdigit() and name.endswith(".py")))


def head() -> str | None:
    """The newest revision; None before there is any."""
    return revisions()[-1] if revisions() else None


def check_version(applied: str | None, url: str) -> None:
    """Raises SchemaError unless the tables are of the newest revision."""
    if applied == head():
        return
    if applied is None:
        raise SchemaError(f"{url} has no Holdfast tables; {how_to_upgrade(url)}")
    if applied not in revisions():
        known = f"this program knows {head() or 'none'}"
        raise SchemaError(f"{url} has tables of a newer Holdfast (revision {applied}, {known}); upgrade this program")
    raise SchemaError(f"{url} has tables of revision {applied}, needed is {head()}; {how_to_upgrade(url)}")


def how_to_upgrade(url: str) -> str:
    """The command that makes the tables, for a URL as it is shown: one without its secrets opens nothing."""
    if "***" in url or "…" in url:
        return "run: holdfast db upgrade, with HOLDFAST_URL, --url or --app as this program has it, password and all"
    return f"run: holdfast db upgrade --url {shlex.quote(url)}"


def bring_up(connection: sqlite3.Connection, url: str) -> None:
    """Create or upgrade the tables of an SQLite file. The connection is in autocommit mode.

    Raises SchemaError for a file of a newer Holdfast.
    """
    if _is_current(connection, url):
        return
    if head() is not None:
        from holdfast.backends.sql.migrate import upgrade_sqlite  # Alembic takes longer to load than to run

        upgrade_sqlite(connection)
        return
    connection.execute("BEGIN IMMEDIATE")
    if not _is_current(connection, url):
        for statement in shared_ddl(Sqlite()):
            connection.execute(statement)
    connection.execute("COMMIT")


def _is_current(connection: sqlite3.Connection, url: str) -> bool:
    tables = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (VERSION_TABLE,)).fetchall()
    if not tables:
        return False
    applied = newest(row[0] for row in connection.execute(f"SELECT version_num FROM {VERSION_TABLE}"))
    if applied is not None and applied not in revisions():
        check_version(applied, url)
    return applied == head()


def newest(applied: Iterable[str]) -> str | None:
    return max(applied, default=None)
