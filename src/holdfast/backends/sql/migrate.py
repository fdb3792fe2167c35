"""Bring a database's tables to a revision, look at which one it has, or write down the statements for somebody else."""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import StaticPool

import holdfast.backends.migrations as migrations
from holdfast.backends.sql.revisions import head, newest, revisions
from holdfast.backends.sql.schema import VERSION_TABLE
from holdfast.backends.sql.store import SqlStore
from holdfast.backends.sql.url import EXTRAS, Address, parse
from holdfast.errors import MissingExtra, StoreUnavailable

_LOCK = 0x686F6C64  # any number; whoever upgrades holds it


@dataclass(frozen=True, slots=True)
class Report:
    """What a database has, and what this program needs. None: no tables."""

    url: str
    applied: str | None
    needed: str | None

    @property
    def is_current(self) -> bool:
        return self.applied == self.needed

    @property
    def is_newer(self) -> bool:
        return self.applied is not None and self.applied not in revisions()

    def __str__(self) -> str:
        if self.is_current:
            return f"{self.url} is at revision {self.applied or 'none'}, as needed"
        if self.is_newer:
            return f"{self.url} is at revision {self.applied}, newer than this program's {self.needed}"
        return f"{self.url} is at revision {self.applied or 'none'}, needed is {self.needed}"


def upgrade(database: str | SqlStore, revision: str = "head") -> Report:
    """Bring the tables to a revision. Safe when several hosts do it at once: one does, the others wait.

    Raises StoreUnavailable.
    """
    address = _address(database)
    with _connected(address) as connection:
        if address.dialect == "sqlite":
            # Python would begin a transaction only at the first change of a row, after the tables.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        _run(connection, revision)
        connection.commit()
        return Report(address.shown, _applied(connection), head())


def check(database: str | SqlStore) -> Report:
    """Which revision the tables are of. Changes nothing.

    Raises StoreUnavailable.
    """
    address = _address(database)
    with _connected(address) as connection:
        return Report(address.shown, _applied(connection), head())


def sql(url: str, revision: str = "head", since: str = "base") -> str:
    """The statements that bring the tables from one revision to another; nothing is connected to."""
    output = io.StringIO()
    dialect = parse(url).dialect
    config = _config(dialect="mysql" if dialect == "mariadb" else dialect, output=output)
    command.upgrade(config, f"{since}:{revision}", sql=True)
    return output.getvalue()


def upgrade_sqlite(raw: sqlite3.Connection) -> None:
    """Upgrade through a connection in autocommit mode, in one transaction. What another process has done is seen."""
    engine = sa.create_engine("sqlite://", creator=lambda: raw, poolclass=StaticPool, pool_reset_on_return=None)
    with engine.connect() as connection:
        # Not before: connecting for the first time, SQLAlchemy rolls back.
        raw.execute("BEGIN IMMEDIATE")
        try:
            _run(connection, "head")
            connection.commit()
        finally:
            if raw.in_transaction:
                raw.execute("ROLLBACK")


def _run(connection: sa.Connection, revision: str) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
    elif connection.dialect.name in ("mysql", "mariadb"):
        connection.execute(sa.text("SELECT GET_LOCK('holdfast_upgrade', 600)"))
    command.upgrade(_config(connection=connection), revision)


def _config(**attributes: Any) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent).replace("%", "%%"))
    config.attributes.update(attributes)
    return config


def _address(database: str | SqlStore) -> Address:
    return parse(database) if isinstance(database, str) else database.address


@contextmanager
def _connected(address: Address) -> Iterator[sa.Connection]:
    try:
        engine = sa.create_engine(address.sqlalchemy)
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error}; run: pip install 'holdfast[{EXTRAS[address.dialect]}]'") from error
    try:
        with engine.connect() as connection:
            yield connection
    except OperationalError as error:
        raise StoreUnavailable(f"{address.shown}: {' '.join(str(error.orig).split())}") from error
    finally:
        engine.dispose()


def _applied(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    return newest(row[0] for row in connection.execute(sa.text(f"SELECT version_num FROM {VERSION_TABLE}")))
