"""The schema of a store."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.app import Holdfast
from holdfast.cli.exits import ExitCode
from tests.cli import shop
from tests.cli.conftest import Run
from tests.databases import DATABASES
from tests.stores import make_url

Answer = Callable[..., Any]


def test_an_upgrade_makes_the_tables_and_says_what_it_did(run: Run, answer: Answer, url: str) -> None:
    first = run("db", "upgrade").stdout
    assert first.startswith(f"{url}: upgraded from revision none to ")
    assert run("db", "upgrade").stdout.endswith(", as needed\n")
    report = answer("db", "check")
    assert report == {"url": url, "revision": report["needed"], "needed": report["needed"], "is_current": True}
    run("letters", "list")


def test_an_empty_database_is_not_current(run: Run, answer: Answer, url: str, tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "shop.db").execute("VACUUM").connection.close()
    error = run("db", "check", code=ExitCode.NO_STORE).stderr
    assert error.endswith("run: holdfast db upgrade\n")
    assert answer("db", "check", code=ExitCode.NO_STORE)["is_current"] is False


@pytest.mark.parametrize("dialect", ["sqlite:///x.db", "postgresql://localhost/x", "mysql://localhost/x"])
def test_the_statements_are_printed_without_a_connection(run: Run, dialect: str) -> None:
    text = run("db", "sql", "--url", dialect).stdout
    for name in ("letter", "outbox", "outbox_attempts", "outbox_queues", "audit_events", "sagas", "inbox"):
        assert f"CREATE TABLE holdfast_{name} (" in text


def test_a_store_without_a_schema_says_so(run: Run) -> None:
    error = run("db", "upgrade", "--url", "redis://localhost", code=ExitCode.USAGE).stderr
    assert error == "holdfast: redis:// has no schema to look after; it is ready as it is\n"


def test_the_app_can_name_the_database(answer: Answer, hold: Holdfast, url: str) -> None:
    by_app: dict[str, str | None] = {"HOLDFAST_URL": None, "HOLDFAST_APP": shop.APP}
    assert answer("db", "check", env=by_app)["is_current"]
    assert answer("db", "info", env=by_app)["url"] == url


@pytest.mark.parametrize("name", [name for name in DATABASES if name != "sqlite"])
def test_an_upgrade_does_not_complain_of_the_tables_that_it_is_to_make(
    run: Run, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = make_url(name, tmp_path)
    app: dict[str, str | None] = {"HOLDFAST_URL": None, "HOLDFAST_APP": "tests.cli.shop:hasty", shop.URL: url}
    run("letters", "list", env=app, code=ExitCode.NO_STORE)
    assert "is away: breakers are decided locally" in caplog.text
    caplog.clear()
    run("db", "upgrade", env=app)
    assert "is away" not in caplog.text
    run("letters", "list", env=app)
    assert not logging.getLogger("holdfast.breakers").filters


def test_info_shows_where_the_store_is_and_how_much_it_holds(
    run: Run, answer: Answer, filed: Callable[..., str], hold: Holdfast, url: str
) -> None:
    hold.letters.mark_as_resolved(filed(), "manual")
    filed()
    hold.breakers.get_or_create("payments")
    shown = answer("db", "info")
    assert (shown["url"], shown["letters"], shown["active_letters"], shown["breakers"]) == (url, 2, 1, 1)
    assert (shown["outbox_waiting"], shown["outbox_abandoned"]) == (0, 0)
    assert shown["revision"] == shown["revision_needed"]
    assert run("db", "info").stdout.split()[:2] == ["url", url]
