"""Stores for the console's tests, and who may sign in there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from holdfast import Holdfast, Hub
from holdfast.access.access import Access
from holdfast.access.passwords import Passwords
from tests.stores import fresh_url

STORES: Final = ("sqlite", "postgres")
PASSWORD: Final = "correct horse battery"
_CHEAP: Final = Passwords(time_cost=1, memory_kib=8, lanes=1)

both: Final = pytest.mark.parametrize("hold", STORES, indirect=True)
"""The test runs on SQLite and on PostgreSQL."""


@contextmanager
def holding(name: str, tmp_path: Path) -> Iterator[Holdfast]:
    """A Holdfast on an empty store of this kind. What a password costs is no part of these tests."""
    with fresh_url(name, tmp_path) as url, Holdfast(url, background=False, telemetry=Hub()) as hold:
        hold._access = Access(hold.store, hub=hold.telemetry, passwords=_CHEAP)
        yield hold
