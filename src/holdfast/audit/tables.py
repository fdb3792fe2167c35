"""The tables of the audit trail, on the caller's own MetaData: events, the heads of their chains, and checkpoints."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

PLAIN: Final[dict[str, Any]] = {"mysql_charset": "utf8mb4", "mariadb_charset": "utf8mb4"}
"""What every table of the outbox and its trail is made with."""


class AuditTables(NamedTuple):
    """Handles of the tables that a trail has; without heads its events are not chained."""

    events: sa.Table
    heads: sa.Table | None = None
    checkpoints: sa.Table | None = None


def time_type() -> sa.types.TypeEngine[Any]:
    return sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")


def json_type() -> sa.types.TypeEngine[Any]:
    return sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def key_type(longest: int = 255) -> sa.types.TypeEngine[Any]:
    """A text that is compared byte by byte everywhere: Ann and ann are two subjects, and two streams."""
    return (
        sa.String(longest)
        .with_variant(sa.String(longest, "utf8mb4_nopad_bin"), "mariadb")
        .with_variant(sa.String(longest, "utf8mb4_0900_bin"), "mysql")
    )


def audit_events_table(metadata: sa.MetaData, name: str) -> sa.Table:
    table = sa.Table(
        name,
        metadata,
        sa.Column("event_id", sa.Uuid(), primary_key=True),
        sa.Column("event_type", sa.String(64), nullable=False),
        sa.Column("subject_ref", key_type(), nullable=False),
        sa.Column("occurred_at", time_type(), nullable=False),
        sa.Column("payload", json_type(), nullable=False),
        sa.Column("entry_id", sa.Uuid()),
        sa.Column("stream", key_type()),
        sa.Column("seq", sa.BigInteger()),
        sa.Column("prior_hash", sa.String(64)),
        sa.Column("event_hash", sa.String(64)),
        **PLAIN,
    )
    sa.Index(f"{name}_subject", table.c.subject_ref, table.c.occurred_at)
    sa.Index(f"{name}_stream", table.c.stream, table.c.seq, unique=True)
    sa.Index(f"{name}_occurred", table.c.occurred_at, table.c.event_id)
    there = table.c.entry_id.is_not(None)
    sa.Index(f"{name}_entry", table.c.entry_id, sqlite_where=there, postgresql_where=there)
    return table


def chain_heads_table(metadata: sa.MetaData, name: str) -> sa.Table:
    """The last event of each stream; whoever appends locks the row."""
    return sa.Table(
        name,
        metadata,
        sa.Column("stream", key_type(), primary_key=True),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("last_hash", sa.String(64)),
        **PLAIN,
    )


def checkpoints_table(metadata: sa.MetaData, name: str) -> sa.Table:
    """What a stream's head was at a time."""
    return sa.Table(
        name,
        metadata,
        sa.Column("stream", key_type(), primary_key=True),
        sa.Column("seq", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("event_hash", sa.String(64), nullable=False),
        sa.Column("taken_at", time_type(), nullable=False),
        **PLAIN,
    )
