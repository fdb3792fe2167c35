"""The outbox's own connections: one that was lost while nobody used it is noticed before it is used."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

import holdfast as hf
from holdfast.backends.sql import migrate
from holdfast.machine.outbox_entry import OutboxStatus
from holdfast.outbox import works
from tests.stores import SQL_STORES, make_url

KILLS = {
    "postgres": "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    " AND datname = current_database()",
    "mariadb": "SELECT id FROM information_schema.processlist WHERE id <> connection_id() AND db = database()",
}


@pytest.mark.parametrize("name", [name for name in SQL_STORES if name in KILLS])
def test_a_connection_that_was_lost_while_it_rested_is_not_used(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(works, "_REST_S", 0.0)
    url = make_url(name, tmp_path)
    migrate.upgrade(url)
    with hf.Holdfast(url, background=False) as hold:
        hold.outbox.status_counts()
        _kill_all(hold.works.engine.url, name)
        assert hold.outbox.status_counts()[OutboxStatus.PENDING] == 0


def _kill_all(url: sa.URL, name: str) -> None:
    other = sa.create_engine(url)
    with other.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        found = connection.exec_driver_sql(KILLS[name]).scalars().all()
        if name == "mariadb":
            for one in found:
                connection.exec_driver_sql(f"KILL {one}")
    other.dispose()
