"""Tables on the caller's own MetaData."""

from __future__ import annotations

import subprocess
import sys
from uuid import UUID

import pytest
import sqlalchemy as sa

from holdfast.outbox.tables import bind_tables, sibling_tables
from tests.databases import Database


def test_a_second_time_gives_the_same_handles() -> None:
    metadata = sa.MetaData()
    assert bind_tables(metadata) == bind_tables(metadata)


def test_two_prefixes_live_side_by_side() -> None:
    metadata = sa.MetaData()
    one, other = bind_tables(metadata, "a_"), bind_tables(metadata, prefix="b_")
    assert (one.outbox.name, other.outbox.name) == ("a_outbox", "b_outbox")
    assert sibling_tables(other.outbox) == other


def test_tables_go_into_the_schema_of_the_metadata() -> None:
    metadata = sa.MetaData(schema="app")
    tables = bind_tables(metadata)
    assert tables.outbox.fullname == "app.holdfast_outbox"
    assert sibling_tables(tables.outbox) == tables


def test_a_name_that_is_taken_is_a_value_error_that_names_the_table() -> None:
    metadata = sa.MetaData()
    sa.Table("holdfast_outbox", metadata, sa.Column("id", sa.Integer))
    with pytest.raises(ValueError, match="holdfast_outbox is there already"):
        bind_tables(metadata)


def test_names_of_indexes_are_explicit_and_short_enough_for_every_database() -> None:
    for table in bind_tables(sa.MetaData(), "holdfast_"):
        for index in table.indexes:
            assert len(index.name or "") in range(1, 64)


def test_added_columns_are_nullable_or_have_a_default_of_the_servers() -> None:
    seed = {"entry_id", "subject_id", "resolver", "ref_kind", "ref_value", "ref_extra", "enqueued_at"}
    for column in bind_tables(sa.MetaData()).outbox.c:
        assert column.name in seed or column.nullable or column.server_default is not None, column.name


def test_a_row_with_only_what_the_first_release_knew_is_a_pending_erase(database: Database) -> None:
    table = database.tables.outbox
    with database.engine.begin() as connection:
        connection.execute(
            table.insert().values(
                entry_id=UUID(int=7),
                subject_id="s",
                resolver="r",
                ref_kind="k",
                ref_value="v",
                ref_extra={},
                enqueued_at=sa.func.current_timestamp(),
            )
        )
        row = connection.execute(sa.select(table.c.operation, table.c.status, table.c.attempts, table.c.queue)).one()
    assert tuple(row) == ("erase", "pending", 0, "default")


def test_the_top_level_import_loads_neither_sqlalchemy_nor_pydantic() -> None:
    check = "import sys, holdfast; assert not {'sqlalchemy', 'pydantic'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)
