"""The database of an address."""

from __future__ import annotations

from typing import Any

from holdfast.backends.sql.database import Database
from holdfast.backends.sql.sqlite import SqliteDatabase
from holdfast.backends.sql.topics import Topics
from holdfast.backends.sql.url import Address
from holdfast.errors import MissingExtra


def open_database(address: Address, topics: Topics, **options: Any) -> Database:
    """The database; nothing is connected to yet.

    Raises MissingExtra, and ValueError for an option that SQLite's URLs do not have.
    """
    # A driver is imported when it is needed: nobody has all of them.
    match address.dialect:
        case "sqlite":
            address.check_sqlite()
            return SqliteDatabase(address, topics, **options)
        case "postgresql":
            try:
                from holdfast.backends.sql.postgres import PostgresDatabase
            except ModuleNotFoundError as error:
                raise MissingExtra("PostgreSQL needs psycopg; run: pip install 'holdfast[postgres]'") from error
            return PostgresDatabase(address, topics, **options)
        case _:
            try:
                from holdfast.backends.sql.mariadb import MariadbDatabase
            except ModuleNotFoundError as error:
                raise MissingExtra("MariaDB needs PyMySQL; run: pip install 'holdfast[mariadb]'") from error
            return MariadbDatabase(address, topics, **options)
