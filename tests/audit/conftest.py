"""Every test of the audit trail that asks for a `database` runs on SQLite, PostgreSQL and MariaDB."""

from __future__ import annotations

from tests.databases import database

__all__ = ["database"]
