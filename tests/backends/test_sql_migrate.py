"""Revisions: what they make is what the kinds describe, and what a database has is known."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from uuid import UUID

import pytest
import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations

from holdfast.backends.sql import migrate
from holdfast.backends.sql.draft import draft
from holdfast.backends.sql.revisions import head, revisions
from holdfast.backends.sql.schema import table_name
from holdfast.backends.sql.store import SqlStore
from holdfast.backends.sql.url import parse
from holdfast.errors import StoreUnavailable
from holdfast.kinds import KINDS
from holdfast.outbox.cdc import CreateCdcView
from holdfast.outbox.tables import bind_tables
from holdfast.workflows.records import ITEM, MESSAGE, PROCESSED, SIGNAL, WAITING
from tests.services import mariadb, postgres

DATABASES = ("sqlite", "postgres", *(("mariadb",) if mariadb.AVAILABLE else ()))


@pytest.fixture(params=DATABASES)
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Two empty databases of a kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'one.db'}", f"sqlite:///{tmp_path / 'two.db'}"
    else:
        server = {"postgres": postgres, "mariadb": mariadb}[request.param].server()
        yield server.fresh_database(), server.fresh_database()


def test_the_revisions_make_the_tables_that_the_kinds_and_the_outbox_describe(urls: tuple[str, str]) -> None:
    migrated, described = urls
    migrate.upgrade(migrated)
    store = SqlStore(described, kinds=KINDS)
    store.create_tables()
    store.close()
    make_outbox(described)
    assert look(migrated) == look(described)


def test_on_postgresql_the_key_is_the_newest_index_of_tables_that_are_empty_now_and_then() -> None:
    url = postgres.server().fresh_database()
    migrate.upgrade(url)
    newest = """SELECT DISTINCT ON (indrelid) indrelid::regclass::text, indisprimary FROM pg_index
                ORDER BY indrelid, indexrelid DESC"""
    with connect(url) as connection:
        is_key = dict(connection.execute(sa.text(newest)).all())
    for kind in (ITEM, MESSAGE, SIGNAL, WAITING, PROCESSED):
        assert is_key[table_name(kind)], f"an index of {kind.name} was made after its key: make the key anew after that"


def test_a_program_that_has_made_the_outbox_itself_keeps_it(urls: tuple[str, str]) -> None:
    made, migrated = urls
    make_outbox(made)
    with connect(made) as connection:
        connection.execute(sa.text("INSERT INTO holdfast_outbox_order_locks (slot) VALUES (7)"))
        connection.commit()
    for url in (made, migrated):
        assert migrate.upgrade(url).is_current
    assert look(made) == look(migrated)
    with connect(made) as connection:
        assert connection.execute(sa.text("SELECT slot FROM holdfast_outbox_order_locks")).scalar() == 7


def test_an_outbox_of_the_revision_before_its_view_keeps_its_rows_and_gets_the_view(urls: tuple[str, str]) -> None:
    migrate.upgrade(urls[0], "0003")
    with connect(urls[0]) as connection:
        table = bind_tables(sa.MetaData()).outbox
        row = {"entry_id": UUID(int=7), "subject_id": "s", "resolver": "r", "ref_kind": "topic", "ref_value": "t"}
        row |= {"ref_extra": {}, "operation": "publish", "payload": {"data": 1}, "enqueued_at": datetime.now(UTC)}
        connection.execute(table.insert(), row)
        connection.commit()
    assert migrate.upgrade(urls[0]).is_current
    with connect(urls[0]) as connection:
        (id,) = connection.execute(sa.text("SELECT id FROM holdfast_outbox_cdc")).scalars()
    assert str(id) == str(UUID(int=7))


def test_a_draft_is_a_revision_that_makes_the_tables(urls: tuple[str, str], tmp_path: Path) -> None:
    drafted, described = urls
    run_draft(drafted, tmp_path)
    store = SqlStore(described, kinds=KINDS)
    store.create_tables()
    store.close()
    for url in urls:  # SQLite has brought itself up
        make_outbox(url)
    assert look(drafted) == look(described)


def test_a_report_says_what_there_is_and_what_is_needed(urls: tuple[str, str]) -> None:
    report = migrate.check(urls[0])
    assert (report.applied, report.needed) == (None, head())
    assert report.is_current == (head() is None)
    assert migrate.upgrade(urls[0]).is_current
    assert migrate.upgrade(urls[0]).is_current  # again, with nothing to do
    with connect(urls[0]) as connection:
        connection.execute(sa.text("CREATE TABLE IF NOT EXISTS holdfast_version (version_num VARCHAR(32))"))
        connection.execute(sa.text("DELETE FROM holdfast_version"))
        connection.execute(sa.text("INSERT INTO holdfast_version VALUES ('9999')"))
        connection.commit()
    report = migrate.check(urls[0])
    assert report.is_newer
    assert "newer than this program's" in str(report)


def test_a_store_may_be_given_instead_of_a_url(urls: tuple[str, str]) -> None:
    store = SqlStore(urls[0])
    assert migrate.upgrade(store).applied == head()
    store.close()


def test_statements_for_somebody_else_need_no_database() -> None:
    for url in ("sqlite:///x.db", "postgresql://nobody:secret@nowhere/none", "mariadb://nobody@nowhere/none"):
        text = migrate.sql(url)
        assert "secret" not in text
        for revision in revisions():
            assert f"-> {revision}" in text


def test_an_unreachable_database_is_told_in_one_line() -> None:
    with pytest.raises(StoreUnavailable) as caught:
        migrate.check("postgresql://someone:secret@127.0.0.1:1/db")
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def make_outbox(url: str) -> None:
    """As a program does that mounts the tables on its own MetaData."""
    metadata = sa.MetaData()
    tables = bind_tables(metadata)
    with connect(url) as connection:
        metadata.create_all(connection)
        connection.execute(CreateCdcView(tables.outbox))
        connection.commit()


def run_draft(url: str, tmp_path: Path) -> None:
    text = draft(KINDS, title="A draft.")
    with connect(url) as connection:
        with Operations.context(MigrationContext.configure(connection)):
            load(text, tmp_path).upgrade()
        connection.commit()


def load(text: str, tmp_path: Path) -> ModuleType:
    path = tmp_path / "0001_draft.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("draft_0001", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def connect(url: str) -> sa.Connection:
    return sa.create_engine(parse(url).sqlalchemy, poolclass=sa.NullPool).connect()


ASKED = {
    "sqlite": ["SELECT type, name, tbl_name, sql FROM sqlite_master"],
    "postgresql": [
        "SELECT table_name, column_name, ordinal_position, data_type, is_nullable, collation_name "
        "FROM information_schema.columns WHERE table_schema = 'public'",
        "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
        "SELECT viewname, definition FROM pg_views WHERE schemaname = 'public'",
        "SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
        "SELECT proname, pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace",
        "SELECT relname, reloptions::text FROM pg_class WHERE relname LIKE 'holdfast%'",
    ],
    "mariadb": [
        "SELECT table_name, column_name, ordinal_position, column_type, is_nullable, collation_name "
        "FROM information_schema.columns WHERE table_schema = DATABASE()",
        "SELECT table_name, index_name, seq_in_index, column_name, non_unique "
        "FROM information_schema.statistics WHERE table_schema = DATABASE()",
        "SELECT trigger_name, event_manipulation, action_statement "
        "FROM information_schema.triggers WHERE trigger_schema = DATABASE()",
    ],
}


def look(url: str) -> set[tuple[str, ...]]:
    """Everything in a database but the table of revisions, which Alembic makes its own way."""
    with connect(url) as connection:
        found = {
            tuple(re.sub(r"\s+", " ", str(value)).replace("( ", "(").replace(" )", ")") for value in row)
            for question in ASKED[parse(url).dialect]
            for row in connection.execute(sa.text(question))
        }
    return {row for row in found if not any("holdfast_version" in value for value in row)}
