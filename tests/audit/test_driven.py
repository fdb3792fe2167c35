"""Statements that run on the driver itself: to a program they are as any other."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from holdfast.audit.driven import Driven
from tests.databases import TABLES, Database

EVENTS = TABLES.audit_events
ID = UUID("01890000-0000-7000-8000-00000000000a")
AT = datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=UTC)


def _make(kind: str) -> Any:
    row = EVENTS.c
    if kind == "find":
        return sa.select(row.event_id, row.occurred_at, row.payload).where(
            row.event_id == sa.bindparam("wanted", type_=sa.Uuid())
        )
    given = {name: sa.bindparam(f"{name}_", type_=row[name].type) for name in ("event_id", "occurred_at", "payload")}
    return EVENTS.insert().values(**given, event_type="note 100 %", subject_ref="ann")


def _put(connection: sa.Connection, driven: Driven) -> Any:
    return driven.fetch(connection, "put", {"event_id_": ID, "occurred_at_": AT, "payload_": {"a": "ä"}})


def test_what_is_fetched_is_what_sqlalchemy_gives(database: Database) -> None:
    driven = Driven(_make)
    with database.engine.begin() as connection:
        assert list(_put(connection, driven)) == []
        for _ in range(7):  # a driver prepares what it has seen some times
            (found,) = driven.fetch(connection, "find", {"wanted": ID})
            assert tuple(found) == tuple(connection.execute(_make("find"), {"wanted": ID}).one())
        assert found[2] == {"a": "ä"}
        assert connection.execute(sa.select(EVENTS.c.event_type)).scalar() == "note 100 %"


def test_an_error_is_that_of_sqlalchemy_and_the_next_statement_is_an_ordinary_one(database: Database) -> None:
    driven = Driven(_make)
    with database.engine.connect() as connection:
        _put(connection, driven)
        with pytest.raises(IntegrityError):
            _put(connection, driven)
        connection.rollback()
        assert connection.execute(sa.select(sa.func.count()).select_from(EVENTS)).one() == (0,)


def test_listeners_hear_of_the_statement(database: Database) -> None:
    heard: list[str] = []
    driven = Driven(_make)
    sa.event.listen(database.engine, "after_cursor_execute", lambda *args: heard.append(args[2]))
    with database.engine.begin() as connection:
        _put(connection, driven)
    assert heard[-1].startswith("INSERT INTO holdfast_audit_events")


def test_threads_that_fetch_at_once_get_their_own_rows(database: Database) -> None:
    driven = Driven(lambda kind: sa.select(sa.bindparam("number", type_=sa.Integer())))
    wrong: list[Any] = []

    def ask(number: int) -> None:
        with database.engine.connect() as connection:
            for _ in range(20):
                rows = [tuple(row) for row in driven.fetch(connection, "", {"number": number})]
                if rows != [(number,)]:
                    wrong.append(rows)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert wrong == []
