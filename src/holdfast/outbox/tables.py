"""The tables of the outbox and its audit trail, on the caller's own MetaData.

Their columns are ordinary ones, to be queried with whatever the caller uses; times are stored in UTC. Migrations belong
to the caller, so the tables only ever grow by columns that are nullable or have a default of the server's.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from holdfast.audit.tables import (
    PLAIN,
    audit_events_table,
    chain_heads_table,
    checkpoints_table,
    json_type,
    key_type,
    time_type,
)
from holdfast.errors import ConfigurationError
from holdfast.machine.outbox_entry import CLAIMABLE

PREFIX: Final = "holdfast_"
_IS_LIVE: Final = f"status IN ({', '.join(repr(str(one)) for one in sorted(CLAIMABLE))})"


class OutboxTables(NamedTuple):
    """Handles of the mounted tables."""

    outbox: sa.Table
    audit_events: sa.Table
    chain_heads: sa.Table
    checkpoints: sa.Table
    attempts: sa.Table
    sagas: sa.Table
    inbox: sa.Table
    queues: sa.Table
    order_locks: sa.Table


def bind_tables(metadata: sa.MetaData, prefix: str = PREFIX) -> OutboxTables:
    """Mount the tables on the caller's MetaData. No database is touched; a second time gives the same handles.

    Raises ValueError, naming the table, when only some of the names are taken.
    """
    makers = {
        "outbox": _outbox,
        "audit_events": audit_events_table,
        "chain_heads": chain_heads_table,
        "checkpoints": checkpoints_table,
        "attempts": _attempts,
        "sagas": _sagas,
        "inbox": _inbox,
        "queues": _queues,
        "order_locks": _order_locks,
    }
    names = {field: prefix + stem for field, stem in _STEMS.items()}
    schema = f"{metadata.schema}." if metadata.schema else ""
    taken = {field: name for field, name in names.items() if schema + name in metadata.tables}
    if len(taken) == len(names):
        return OutboxTables(**{field: metadata.tables[schema + name] for field, name in names.items()})
    if taken:
        story = (
            f"{next(iter(taken.values()))} is there already, but {next(n for f, n in names.items() if f not in taken)}"
        )
        raise ValueError(f"{story} is not: another table has the name; choose another prefix than {prefix!r}")
    return OutboxTables(**{field: make(metadata, names[field]) for field, make in makers.items()})


def sibling_tables(outbox: sa.Table) -> OutboxTables:
    """The tables that were mounted together with this one.

    Raises ConfigurationError for a table that `bind_tables` did not give.
    """
    if not isinstance(outbox, sa.Table):
        raise ConfigurationError(f"outbox must be a table, got a {type(outbox).__name__}; give bind_tables(…).outbox")
    prefix = outbox.name.removesuffix("outbox")
    schema = f"{outbox.schema}." if outbox.schema else ""
    if prefix == outbox.name or any(schema + prefix + stem not in outbox.metadata.tables for stem in _STEMS.values()):
        raise ConfigurationError(f"{outbox.name} is not the table of an outbox; give bind_tables(…).outbox")
    return bind_tables(outbox.metadata, prefix)


_STEMS: Final = {
    "outbox": "outbox",
    "audit_events": "audit_events",
    "chain_heads": "audit_chain_heads",
    "checkpoints": "audit_checkpoints",
    "attempts": "outbox_attempts",
    "sagas": "sagas",
    "inbox": "inbox",
    "queues": "outbox_queues",
    "order_locks": "outbox_order_locks",
}


def _outbox(metadata: sa.MetaData, name: str) -> sa.Table:
    table = sa.Table(
        name,
        metadata,
        sa.Column("entry_id", sa.Uuid(), primary_key=True),
        sa.Column("subject_id", key_type(), nullable=False),
        sa.Column("resolver", key_type(), nullable=False),
        sa.Column("ref_kind", sa.String(255), nullable=False),
        sa.Column("ref_value", sa.String(255), nullable=False),
        sa.Column("ref_extra", json_type(), nullable=False),
        sa.Column("operation", key_type(32), nullable=False, server_default="erase"),
        # Ahead of the payload: MySQL changes columns one by one in this order, and this one asks what the payload was.
        sa.Column("scrubbed", sa.Boolean()),
        sa.Column("payload", json_type()),
        sa.Column("status", sa.String(32), nullable=False, server_default="pending"),
        sa.Column("attempts", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("enqueued_at", time_type(), nullable=False),
        sa.Column("last_attempt_at", time_type()),
        sa.Column("next_attempt_at", time_type()),
        sa.Column("last_error", sa.Text()),
        sa.Column("claim_token", sa.Uuid()),
        sa.Column("claimed_by", sa.String(255)),
        sa.Column("ordering_key", key_type()),
        sa.Column("dedupe_key", key_type()),
        sa.Column("saga_id", sa.Uuid()),
        sa.Column("step", sa.String(255)),
        sa.Column("direction", sa.String(16)),
        sa.Column("depends_on", sa.Uuid()),
        sa.Column("result", json_type()),
        sa.Column("verification", sa.String(16)),
        sa.Column("verify_at", time_type()),
        sa.Column("verify_attempts", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("queue", key_type(64), nullable=False, server_default="default"),
        sa.Column("headers", json_type()),
        sa.Column("parks", sa.Integer(), nullable=False, server_default="0"),
        # What is searched, as columns that are null where there is nothing to find: their indexes then hold only live
        # rows, in databases without partial indexes as well.
        sa.Column("fresh_at", time_type(), _when(f"{_IS_LIVE} AND next_attempt_at IS NULL", "enqueued_at")),
        sa.Column("gate_at", time_type(), _when(_IS_LIVE, "next_attempt_at")),
        sa.Column("order_key", key_type(), _when("status <> 'succeeded'", "ordering_key")),
        sa.Column("called_key", key_type(), _when("status = 'in_flight'", "ordering_key")),
        sa.Column("live_dedupe_key", key_type(), _when(_IS_LIVE, "dedupe_key")),
        **PLAIN,
    )
    column = table.c

    def index(suffix: str, *columns: sa.Column[Any], where: sa.Column[Any]) -> None:
        there = where.is_not(None)
        sa.Index(f"{name}_{suffix}", *columns, sqlite_where=there, postgresql_where=there)

    index("fresh", column.queue, column.fresh_at, column.entry_id, where=column.fresh_at)
    index("gate", column.queue, column.gate_at, column.enqueued_at, column.entry_id, where=column.gate_at)
    index("order", column.order_key, column.enqueued_at, column.entry_id, where=column.order_key)
    index("called", column.called_key, where=column.called_key)
    index("verify", column.verify_at, column.entry_id, where=column.verify_at)
    index("saga", column.saga_id, where=column.saga_id)
    sa.Index(f"{name}_subject", column.subject_id, column.operation)
    abandoned = sa.text("status = 'abandoned'")
    sa.Index(
        f"{name}_abandoned",
        *(column.status, column.enqueued_at, column.entry_id),
        sqlite_where=abandoned,
        postgresql_where=abandoned,
    )
    there = column.live_dedupe_key.is_not(None)
    sa.Index(f"{name}_dedupe", column.live_dedupe_key, unique=True, sqlite_where=there, postgresql_where=there)
    return table


def _when(condition: str, value: str) -> sa.Computed:
    return sa.Computed(f"CASE WHEN {condition} THEN {value} END", persisted=True)


def _attempts(metadata: sa.MetaData, name: str) -> sa.Table:
    """How each call went. A call that succeeds at the first attempt leaves no row: the entry itself says all of it."""
    return sa.Table(
        name,
        metadata,
        sa.Column("entry_id", sa.Uuid(), primary_key=True),
        sa.Column("claim_token", sa.Uuid(), primary_key=True),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("started_at", time_type()),
        sa.Column("finished_at", time_type(), nullable=False),
        sa.Column("outcome", sa.String(32), nullable=False),
        sa.Column("error", sa.String(255)),
        **PLAIN,
    )


def _sagas(metadata: sa.MetaData, name: str) -> sa.Table:
    table = sa.Table(
        name,
        metadata,
        sa.Column("saga_id", sa.Uuid(), primary_key=True),
        sa.Column("definition", key_type(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False, server_default="1"),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("subject_id", key_type(), nullable=False),
        sa.Column("data", json_type()),
        sa.Column("steps", json_type(), nullable=False),
        sa.Column("reason", sa.String(255)),
        sa.Column("started_at", time_type(), nullable=False),
        sa.Column("changed_at", time_type(), nullable=False),
        sa.Column("deadline_at", time_type()),
        **PLAIN,
    )
    sa.Index(f"{name}_state", table.c.state, table.c.started_at, table.c.saga_id)
    sa.Index(f"{name}_subject", table.c.subject_id, table.c.started_at, table.c.saga_id)
    past = table.c.deadline_at.is_not(None)
    sa.Index(f"{name}_deadline", table.c.deadline_at, sqlite_where=past, postgresql_where=past)
    return table


def _inbox(metadata: sa.MetaData, name: str) -> sa.Table:
    table = sa.Table(
        name,
        metadata,
        sa.Column("consumer", key_type(), primary_key=True),
        sa.Column("message_id", key_type(), primary_key=True),
        sa.Column("received_at", time_type(), nullable=False),
        **PLAIN,
    )
    sa.Index(f"{name}_received", table.c.received_at)
    return table


def _queues(metadata: sa.MetaData, name: str) -> sa.Table:
    """Only queues that are paused have a row."""
    return sa.Table(
        name,
        metadata,
        sa.Column("queue", key_type(64), primary_key=True),
        sa.Column("paused_at", time_type(), nullable=False),
        sa.Column("paused_by", sa.String(255)),
        sa.Column("reason", sa.String(255)),
        **PLAIN,
    )


def _order_locks(metadata: sa.MetaData, name: str) -> sa.Table:
    """Rows to be locked by whoever enqueues in order, where the database knows no other lock that ends with a
    transaction."""
    return sa.Table(name, metadata, sa.Column("slot", sa.Integer(), primary_key=True, autoincrement=False), **PLAIN)
