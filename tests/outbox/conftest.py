"""Every test of the outbox that asks for a `database`, or an `outbox` on it, runs on SQLite, PostgreSQL and MariaDB."""

from __future__ import annotations

import pytest

from holdfast.outbox.outbox import Outbox
from holdfast.testing import ManualClock
from tests.databases import Database, database
from tests.outbox.entries import open_outbox

__all__ = ["database"]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def outbox(database: Database, clock: ManualClock) -> Outbox:
    """An outbox with an audit trail, and a clock that moves when told."""
    return open_outbox(database, clock)
