"""The view of messages that relays read, on every database."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mssql, postgresql

from holdfast.errors import ConfigurationError
from holdfast.outbox.cdc import CreateCdcView
from holdfast.outbox.outbox import Outbox
from holdfast.outbox.tables import bind_tables
from holdfast.testing import ManualClock
from tests.databases import Database
from tests.outbox.entries import START, enqueue, make_entry

EXPECTED_BY_DEBEZIUM = ["id", "aggregatetype", "aggregateid", "type", "payload"]


@pytest.fixture
def view(database: Database) -> str:
    make = CreateCdcView(database.tables.outbox)
    with database.engine.begin() as connection:
        connection.execute(make)
        connection.execute(make)  # what is there stays
    return make.name


def read(database: Database, view: str) -> list[dict[str, Any]]:
    with database.engine.connect() as connection:
        rows = connection.execute(sa.text(f"SELECT * FROM {view} ORDER BY id")).mappings().all()
    found = []
    for row in map(dict, rows):
        for name in ("payload", "headers"):  # a server with a type for JSON gives it decoded
            if isinstance(row[name], str) and database.name != "postgres":
                row[name] = json.loads(row[name])
        found.append(row | {"id": str(row["id"]), "timestamp": str(row["timestamp"])[:19]})
    return found


def test_a_message_is_in_the_view_once_its_transaction_has_committed(
    database: Database, outbox: Outbox, clock: ManualClock, view: str
) -> None:
    with database.sessions.begin() as session:
        plain = outbox.publish(session, "orders.created", {"id": 7, "tags": ["a", "ä"]}, key="order-7")
        told = outbox.publish(
            session, "orders.paid", "just a text", type="shop.paid", target="nats", queue="relay", headers={"a": "b"}
        )
    with database.sessions() as session:
        outbox.publish(session, "orders.created", {"id": 8})
        session.rollback()
    first, second = read(database, view)
    assert list(first)[:5] == EXPECTED_BY_DEBEZIUM
    assert first == {
        "id": str(plain),
        "aggregatetype": "orders.created",
        "aggregateid": "order-7",
        "type": "orders.created",
        "payload": {"id": 7, "tags": ["a", "ä"]},
        "headers": None,
        "timestamp": str(START.replace(tzinfo=None)),
        "target": "default",
        "queue": "default",
        "status": "pending",
    }
    assert second == {
        "id": str(told),
        "aggregatetype": "orders.paid",
        "aggregateid": str(told),
        "type": "shop.paid",
        "payload": "just a text",
        "headers": {"a": "b"},
        "timestamp": str(START.replace(tzinfo=None)),
        "target": "nats",
        "queue": "relay",
        "status": "pending",
    }


@pytest.mark.parametrize("data", [None, True, 1.5, "a", [], {}])
def test_any_data_is_the_json_that_it_was(database: Database, outbox: Outbox, view: str, data: Any) -> None:
    with database.sessions.begin() as session:
        outbox.publish(session, "t", data)
    (row,) = read(database, view)
    assert row["payload"] == data


def test_other_calls_and_cancelled_messages_are_no_messages(database: Database, outbox: Outbox, view: str) -> None:
    enqueue(outbox, make_entry())
    with database.sessions.begin() as session:
        outbox.put(session, "charge", {"amount": 1}, target="bank")
        cancelled = outbox.publish(session, "t", 1)
        kept = outbox.publish(session, "t", 2)
    outbox.cancel([cancelled])
    assert [row["id"] for row in read(database, view)] == [str(kept)]


def test_the_view_is_named_after_its_table_in_the_schema_of_the_metadata() -> None:
    make = CreateCdcView(bind_tables(sa.MetaData(schema="app"), "shop_").outbox)
    assert make.name == "shop_outbox_cdc"
    assert " app.shop_outbox_cdc AS" in str(make.compile(dialect=postgresql.dialect()))
    assert "FROM app.shop_outbox\n" in str(make.compile(dialect=postgresql.dialect()))


def test_a_table_or_database_that_has_no_outbox_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="orders is not the table of an outbox"):
        CreateCdcView(sa.Table("orders", sa.MetaData(), sa.Column("id", sa.Integer)))
    with pytest.raises(ConfigurationError, match="got mssql"):
        CreateCdcView(bind_tables(sa.MetaData()).outbox).compile(dialect=mssql.dialect())
