"""Tables that a program has mounted under another prefix, in a database that has no others of Holdfast's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import sqlalchemy as sa

from holdfast.app import Holdfast
from holdfast.audit.sink import DatabaseAuditSink
from holdfast.backends.sql.url import parse
from holdfast.cli.exits import ExitCode
from holdfast.core.clock import SYSTEM_CLOCK
from holdfast.outbox.outbox import Outbox
from holdfast.outbox.tables import bind_tables
from tests.cli import shop
from tests.cli.conftest import Run
from tests.databases import DATABASES, Database, open_database
from tests.outbox.entries import abandon, make_entry
from tests.outbox.sagas import Shop, order_saga
from tests.stores import make_url

Answer = Callable[..., Any]
PREFIX = ("--prefix", "shop_")


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return make_url(request.param, tmp_path)


@pytest.fixture
def mounted(url: str) -> Iterator[Database]:
    metadata = sa.MetaData()
    tables = bind_tables(metadata, "shop_")
    opened = open_database(parse(url).dialect, parse(url).sqlalchemy)
    metadata.create_all(opened.engine)
    yield opened._replace(tables=tables)
    opened.engine.dispose()


@pytest.fixture
def outbox(mounted: Database) -> Outbox:
    tables = mounted.tables
    audit = DatabaseAuditSink(mounted.sessions, tables.audit_events, chain_heads=tables.chain_heads)
    return Outbox(mounted.sessions, tables.outbox, audit_sink=audit)


def test_the_outbox_is_operated_and_no_other_table_is_made(
    run: Run, answer: Answer, mounted: Database, outbox: Outbox
) -> None:
    (entry,) = abandon(outbox, make_entry())
    id = str(entry.entry_id)
    counts = answer("outbox", "counts", *PREFIX)
    assert counts["by_status"]["abandoned"] == 1
    assert [one["entry_id"] for one in answer("outbox", *PREFIX, "abandoned")["items"]] == [id]
    assert "1 " in run("outbox", "requeue", "--all", "--yes", *PREFIX).stdout
    shown = answer("outbox", "show", id, *PREFIX)
    assert (shown["status"], shown["events"][0]["event_type"]) == ("pending", "erasure_requeued")
    assert answer("outbox", "cancel", id, *PREFIX)["cancelled"] == 1
    run("outbox", "pause", "slow", *PREFIX)
    assert [one["queue"] for one in answer("outbox", "paused", *PREFIX)["paused"]] == ["slow"]
    assert "verified: 2 events" in run("audit", "verify", *PREFIX).stdout
    assert all(name.startswith("shop_") for name in sa.inspect(mounted.engine).get_table_names())


def test_a_change_with_another_key_than_the_trail_has_is_refused(run: Run, mounted: Database) -> None:
    tables = mounted.tables
    keyed = DatabaseAuditSink(mounted.sessions, tables.audit_events, chain_heads=tables.chain_heads, key="a s3cret")
    outbox = Outbox(mounted.sessions, tables.outbox, audit_sink=keyed)
    (entry,) = abandon(outbox, make_entry())
    outbox.requeue([entry.entry_id])
    args = ("outbox", "cancel", str(entry.entry_id), *PREFIX)
    assert "written with another key" in run(*args, code=ExitCode.FAILED).stderr
    run(*args, env={"HOLDFAST_AUDIT_KEY": "a s3cret"})
    assert all(keyed.verify_all())


def test_tables_that_are_not_there_are_said(run: Run, mounted: Database) -> None:
    for group in ("outbox", "saga"):
        error = run(group, "list", "--prefix", "other_", code=ExitCode.NO_STORE).stderr
        assert "there is no table other_outbox in " in error
        assert "give the --prefix of its tables" in error


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_sagas_are_operated_with_the_definitions_of_a_program(run: Run, answer: Answer, mounted: Database) -> None:
    orders = Shop(mounted, order_saga(), clock=cast("Any", SYSTEM_CLOCK))
    saga_id = str(orders.start("order", subject_id="o-7"))
    assert [one["saga_id"] for one in answer("saga", "list", *PREFIX)["items"]] == [saga_id]
    assert "give --app" in run("saga", "cancel", saga_id, *PREFIX, code=ExitCode.FAILED).stderr
    app: dict[str, str | None] = {"HOLDFAST_APP": "tests.cli.shop:ordering", "HOLDFAST_URL": None}
    assert answer("saga", "cancel", saga_id, *PREFIX, env=app)["state"] in ("compensating", "compensated")
    assert answer("saga", "list", env=app) == {"items": [], "next": None}  # those of the program's own tables


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_entries_are_operated_with_the_operations_of_a_program(run: Run, answer: Answer, mounted: Database) -> None:
    with shop.calling() as hold:
        (entry,) = abandon(_own(hold, mounted), make_entry(operation="send"))
    id = str(entry.entry_id)
    assert "nobody here knows operation 'send'" in run("outbox", "requeue", id, *PREFIX, code=ExitCode.FAILED).stderr
    app: dict[str, str | None] = {"HOLDFAST_APP": shop.CALLING, "HOLDFAST_URL": None}
    assert answer("outbox", "requeue", id, *PREFIX, env=app)["requeued"] == 1
    assert answer("outbox", "show", id, *PREFIX, env=app)["events"][0]["event_type"] == "send_requeued"


def _own(hold: Holdfast, mounted: Database) -> Outbox:
    return Outbox(mounted.sessions, mounted.tables.outbox, operations=hold.works.operations)
