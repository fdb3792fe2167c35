"""The tables of an outbox in any database, under whatever prefix a program has mounted them."""

from __future__ import annotations

from typing import NamedTuple

import click
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import sessionmaker

from holdfast.audit.sink import DatabaseAuditSink
from holdfast.backends.sql.url import EXTRAS, parse, shown
from holdfast.cli.exits import NoStore, WrongUsage
from holdfast.cli.session import NEEDS_SQL, Session, refuse_memory, sqlite_file
from holdfast.errors import MissingExtra
from holdfast.outbox.operation import OperationRegistry
from holdfast.outbox.outbox import Outbox
from holdfast.outbox.publishing import Publishers, publish_operation
from holdfast.outbox.sagas.sagas import Sagas
from holdfast.outbox.subject_operations import ERASE, RECTIFY
from holdfast.outbox.tables import OutboxTables, bind_tables


class Mounted(NamedTuple):
    """What works on these tables, with what the program of `--app` has registered, if there is one."""

    outbox: Outbox
    sagas: Sagas
    audit: DatabaseAuditSink


def open_mounted(session: Session, prefix: str, key: bytes | None) -> Mounted:
    """Raises NoStore if the tables are not there, WrongUsage for what is no SQL database."""
    engine, tables = find_tables(session, prefix, *OutboxTables._fields)
    works = session.works if session.has_app else None
    known = OperationRegistry(ERASE, RECTIFY, publish_operation(Publishers())) if works is None else works.operations
    sessions = sessionmaker(engine)
    audit = DatabaseAuditSink(
        sessions,
        tables.audit_events,
        chain_heads=tables.chain_heads,
        checkpoints=tables.checkpoints,
        key=key,
        event_types=lambda: known.event_types() | Sagas.event_types,
    )
    outbox = Outbox(sessions, tables.outbox, audit_sink=audit, operations=known)
    return Mounted(outbox, Sagas(outbox, *(() if works is None else works.sagas.definitions)), audit)


def find_tables(session: Session, prefix: str, *needed: str) -> tuple[sa.Engine, OutboxTables]:
    """The tables, and the database that they are in. `needed` are the handles of those that must be there.

    Raises NoStore if one is not, WrongUsage for what is no SQL database.
    """
    engine, where = (session.works.engine, session.where()) if session.has_app else _engine(session)
    tables = bind_tables(sa.MetaData(), prefix)
    names = [getattr(tables, one).name for one in needed]
    try:
        there = sa.inspect(engine)
        missing = [name for name in names if not there.has_table(name)]
    except OperationalError as error:
        raise NoStore(f"{where} cannot be reached: {error.orig}") from error
    if missing:
        raise NoStore(
            f"there is no table {missing[0]} in {where}; run: holdfast db upgrade, or give the --prefix of its tables"
        )
    return engine, tables


def _engine(session: Session) -> tuple[sa.Engine, str]:
    """On the database that the URL names, which needs no other tables of Holdfast's; and how it is shown."""
    url = session.where()
    try:
        address = parse(url)
    except ValueError as error:
        raise WrongUsage(NEEDS_SQL.format(shown(url))) from error
    refuse_memory(url)
    file = sqlite_file(url)
    if file is not None and not file.exists():
        raise NoStore(f"there is no database at {file}")
    try:
        engine = sa.create_engine(address.sqlalchemy)
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error}; run: pip install 'holdfast[{EXTRAS[address.dialect]}]'") from error
    click.get_current_context().call_on_close(engine.dispose)
    return engine, address.shown
