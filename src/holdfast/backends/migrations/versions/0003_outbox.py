"""The outbox, its audit trail and sagas."""
# ruff: noqa: E501  # statements as the database shows them

import sqlalchemy as sa
from alembic import context, op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

SQLITE = (
    """CREATE TABLE holdfast_audit_chain_heads (
    stream VARCHAR(255) NOT NULL,
    seq BIGINT NOT NULL,
    last_hash VARCHAR(64),
    PRIMARY KEY (stream)
    )""",
    """CREATE TABLE holdfast_audit_checkpoints (
    stream VARCHAR(255) NOT NULL,
    seq BIGINT NOT NULL,
    event_hash VARCHAR(64) NOT NULL,
    taken_at DATETIME NOT NULL,
    PRIMARY KEY (stream, seq)
    )""",
    """CREATE TABLE holdfast_audit_events (
    event_id CHAR(32) NOT NULL,
    event_type VARCHAR(64) NOT NULL,
    subject_ref VARCHAR(255) NOT NULL,
    occurred_at DATETIME NOT NULL,
    payload JSON NOT NULL,
    entry_id CHAR(32),
    stream VARCHAR(255),
    seq BIGINT,
    prior_hash VARCHAR(64),
    event_hash VARCHAR(64),
    PRIMARY KEY (event_id)
    )""",
    """CREATE INDEX holdfast_audit_events_entry ON holdfast_audit_events (entry_id) WHERE entry_id IS NOT NULL""",
    """CREATE INDEX holdfast_audit_events_occurred ON holdfast_audit_events (occurred_at, event_id)""",
    """CREATE UNIQUE INDEX holdfast_audit_events_stream ON holdfast_audit_events (stream, seq)""",
    """CREATE INDEX holdfast_audit_events_subject ON holdfast_audit_events (subject_ref, occurred_at)""",
    """CREATE TABLE holdfast_inbox (
    consumer VARCHAR(255) NOT NULL,
    message_id VARCHAR(255) NOT NULL,
    received_at DATETIME NOT NULL,
    PRIMARY KEY (consumer, message_id)
    )""",
    """CREATE INDEX holdfast_inbox_received ON holdfast_inbox (received_at)""",
    """CREATE TABLE holdfast_outbox (
    entry_id CHAR(32) NOT NULL,
    subject_id VARCHAR(255) NOT NULL,
    resolver VARCHAR(255) NOT NULL,
    ref_kind VARCHAR(255) NOT NULL,
    ref_value VARCHAR(255) NOT NULL,
    ref_extra JSON NOT NULL,
    operation VARCHAR(32) DEFAULT 'erase' NOT NULL,
    scrubbed BOOLEAN,
    payload JSON,
    status VARCHAR(32) DEFAULT 'pending' NOT NULL,
    attempts INTEGER DEFAULT '0' NOT NULL,
    enqueued_at DATETIME NOT NULL,
    last_attempt_at DATETIME,
    next_attempt_at DATETIME,
    last_error TEXT,
    claim_token CHAR(32),
    claimed_by VARCHAR(255),
    ordering_key VARCHAR(255),
    dedupe_key VARCHAR(255),
    saga_id CHAR(32),
    step VARCHAR(255),
    direction VARCHAR(16),
    depends_on CHAR(32),
    result JSON,
    verification VARCHAR(16),
    verify_at DATETIME,
    verify_attempts INTEGER DEFAULT '0' NOT NULL,
    queue VARCHAR(64) DEFAULT 'default' NOT NULL,
    headers JSON,
    parks INTEGER DEFAULT '0' NOT NULL,
    fresh_at DATETIME GENERATED ALWAYS AS (CASE WHEN status IN ('failed', 'in_flight', 'pending', 'scheduled') AND next_attempt_at IS NULL THEN enqueued_at END) STORED,
    gate_at DATETIME GENERATED ALWAYS AS (CASE WHEN status IN ('failed', 'in_flight', 'pending', 'scheduled') THEN next_attempt_at END) STORED,
    order_key VARCHAR(255) GENERATED ALWAYS AS (CASE WHEN status <> 'succeeded' THEN ordering_key END) STORED,
    called_key VARCHAR(255) GENERATED ALWAYS AS (CASE WHEN status = 'in_flight' THEN ordering_key END) STORED,
    live_dedupe_key VARCHAR(255) GENERATED ALWAYS AS (CASE WHEN status IN ('failed', 'in_flight', 'pending', 'scheduled') THEN dedupe_key END) STORED,
    PRIMARY KEY (entry_id)
    )""",
    """CREATE INDEX holdfast_outbox_abandoned ON holdfast_outbox (status, enqueued_at, entry_id) WHERE status = 'abandoned'""",
    """CREATE INDEX holdfast_outbox_called ON holdfast_outbox (called_key) WHERE called_key IS NOT NULL""",
    """CREATE UNIQUE INDEX holdfast_outbox_dedupe ON holdfast_outbox (live_dedupe_key) WHERE live_dedupe_key IS NOT NULL""",
    """CREATE INDEX holdfast_outbox_fresh ON holdfast_outbox (queue, fresh_at, entry_id) WHERE fresh_at IS NOT NULL""",
    """CREATE INDEX holdfast_outbox_gate ON holdfast_outbox (queue, gate_at, enqueued_at, entry_id) WHERE gate_at IS NOT NULL""",
    """CREATE INDEX holdfast_outbox_order ON holdfast_outbox (order_key, enqueued_at, entry_id) WHERE order_key IS NOT NULL""",
    """CREATE INDEX holdfast_outbox_saga ON holdfast_outbox (saga_id) WHERE saga_id IS NOT NULL""",
    """CREATE INDEX holdfast_outbox_subject ON holdfast_outbox (subject_id, operation)""",
    """CREATE INDEX holdfast_outbox_verify ON holdfast_outbox (verify_at, entry_id) WHERE verify_at IS NOT NULL""",
    """CREATE TABLE holdfast_outbox_attempts (
    entry_id CHAR(32) NOT NULL,
    claim_token CHAR(32) NOT NULL,
    number INTEGER NOT NULL,
    started_at DATETIME,
    finished_at DATETIME NOT NULL,
    outcome VARCHAR(32) NOT NULL,
    error VARCHAR(255),
    PRIMARY KEY (entry_id, claim_token)
    )""",
    """CREATE TABLE holdfast_outbox_order_locks (
    slot INTEGER NOT NULL,
    PRIMARY KEY (slot)
    )""",
    """CREATE TABLE holdfast_outbox_queues (
    queue VARCHAR(64) NOT NULL,
    paused_at DATETIME NOT NULL,
    paused_by VARCHAR(255),
    reason VARCHAR(255),
    PRIMARY KEY (queue)
    )""",
    """CREATE TABLE holdfast_sagas (
    saga_id CHAR(32) NOT NULL,
    definition VARCHAR(255) NOT NULL,
    version INTEGER DEFAULT '1' NOT NULL,
    state VARCHAR(32) NOT NULL,
    subject_id VARCHAR(255) NOT NULL,
    data JSON,
    steps JSON NOT NULL,
    reason VARCHAR(255),
    started_at DATETIME NOT NULL,
    changed_at DATETIME NOT NULL,
    deadline_at DATETIME,
    PRIMARY KEY (saga_id)
    )""",
    """CREATE INDEX holdfast_sagas_deadline ON holdfast_sagas (deadline_at) WHERE deadline_at IS NOT NULL""",
    """CREATE INDEX holdfast_sagas_state ON holdfast_sagas (state, started_at, saga_id)""",
)

POSTGRESQL = (
    """CREATE TABLE holdfast_audit_chain_heads (
    stream VARCHAR(255) NOT NULL,
    seq BIGINT NOT NULL,
    last_hash VARCHAR(64),
    PRIMARY KEY (stream)
    )""",
    """CREATE TABLE holdfast_audit_checkpoints (
    stream VARCHAR(255) NOT NULL,
    seq BIGINT NOT NULL,
    event_hash VARCHAR(64) NOT NULL,
    taken_at TIMESTAMP WITH TIME ZONE NOT NULL,
    PRIMARY KEY (stream, seq)
    )""",
    """CREATE TABLE holdfast_audit_events (
    event_id UUID NOT NULL,
    event_type VARCHAR(64) NOT NULL,
    subject_ref VARCHAR(255) NOT NULL,
    occurred_at TIMESTAMP WITH TIME ZONE NOT NULL,
    payload JSONB NOT NULL,
    entry_id UUID,
    stream VARCHAR(255),
    seq BIGINT,
    prior_hash VARCHAR(64),
    event_hash VARCHAR(64),
    PRIMARY KEY (event_id)
    )""",
    """CREATE INDEX holdfast_audit_events_entry ON holdfast_audit_events (entry_id) WHERE entry_id IS NOT NULL""",
    """CREATE INDEX holdfast_audit_events_occurred ON holdfast_audit_events (occurred_at, event_id)""",
    """CREATE UNIQUE INDEX holdfast_audit_events_stream ON holdfast_audit_events (stream, seq)""",
    """CREATE INDEX holdfast_audit_events_subject ON holdfast_audit_events (subject_ref, occurred_at)""",
    """CREATE TABLE holdfast_inbox (
    consumer VARCHAR(255) NOT NULL,
    message_id VARCHAR(255) NOT NULL,
    received_at TIMESTAMP WITH TIME ZONE NOT NULL,
    PRIMARY KEY (consumer, message_id)
    )""",
    """CREATE INDEX holdfast_inbox_received ON holdfast_inbox (received_at)""",
    """CREATE TABLE holdfast_outbox (
    entry_id UUID NOT NULL,
    subject_id VARCHAR(255) NOT NULL,
    resolver VARCHAR(255) NOT NULL,
    ref_kind VARCHAR(255) NOT NULL,
    ref_value VARCHAR(255) NOT NULL,
    ref_extra JSONB NOT NULL,
    operation VARCHAR(32) DEFAULT 'erase' NOT NULL,
    scrubbed BOOLEAN,
    payload JSONB,
    status VARCHAR(32) DEFAULT 'pending' NOT NULL,
    attempts INTEGER DEFAULT '0' NOT NULL,
    enqueued_at TIMESTAMP WITH TIME ZONE NOT NULL,
    last_attempt_at TIMESTAMP WITH TIME ZONE,
    next_attempt_at TIMESTAMP WITH TIME ZONE,
    last_error TEXT,
    claim_token UUID,
    claimed_by VARCHAR(255),
    ordering_key VARCHAR(255),
    dedupe_key VARCHAR(255),
    saga_id UUID,
    step VARCHAR(255),
    direction VARCHAR(16),
    depends_on UUID,
    result JSONB,
    verification VARCHAR(16),
    verify_at TIMESTAMP WITH TIME ZONE,
    verify_attempts INTEGER DEFAULT '0' NOT NULL,
    queue VARCHAR(64) DEFAULT 'default' NOT NULL,
    headers JSONB,
    parks INTEGER DEFAULT '0' NOT NULL,
    fresh_at TIMESTAMP WITH TIME ZONE GENERATED ALWAYS AS (CASE WHEN status IN ('failed', 'in_flight', 'pending', 'scheduled') AND next_attempt_at IS NULL THEN enqueued_at END) STORED,
    gate_at TIMESTAMP WITH TIME ZONE GENERATED ALWAYS AS (CASE WHEN status IN ('failed', 'in_flight', 'pending', 'scheduled') THEN next_attempt_at END) STORED,
    order_key VARCHAR(255) GENERATED ALWAYS AS (CASE WHEN status <> 'succeeded' THEN ordering_key END) STORED,
    called_key VARCHAR(255) GENERATED ALWAYS AS (CASE WHEN status = 'in_flight' THEN ordering_key END) STORED,
    live_dedupe_key VARCHAR(255) GENERATED ALWAYS AS (CASE WHEN status IN ('failed', 'in_flight', 'pending', 'scheduled') THEN dedupe_key END) STORED,
    PRIMARY KEY (entry_id)
    )""",
    """CREATE INDEX holdfast_outbox_abandoned ON holdfast_outbox (status, enqueued_at, entry_id) WHERE status = 'abandoned'""",
    """CREATE INDEX holdfast_outbox_called ON holdfast_outbox (called_key) WHERE called_key IS NOT NULL""",
    """CREATE UNIQUE INDEX holdfast_outbox_dedupe ON holdfast_outbox (live_dedupe_key) WHERE live_dedupe_key IS NOT NULL""",
    """CREATE INDEX holdfast_outbox_fresh ON holdfast_outbox (queue, fresh_at, entry_id) WHERE fresh_at IS NOT NULL""",
    """CREATE INDEX holdfast_outbox_gate ON holdfast_outbox (queue, gate_at, enqueued_at, entry_id) WHERE gate_at IS NOT NULL""",
    """CREATE INDEX holdfast_outbox_order ON holdfast_outbox (order_key, enqueued_at, entry_id) WHERE order_key IS NOT NULL""",
    """CREATE INDEX holdfast_outbox_saga ON holdfast_outbox (saga_id) WHERE saga_id IS NOT NULL""",
    """CREATE INDEX holdfast_outbox_subject ON holdfast_outbox (subject_id, operation)""",
    """CREATE INDEX holdfast_outbox_verify ON holdfast_outbox (verify_at, entry_id) WHERE verify_at IS NOT NULL""",
    """CREATE TABLE holdfast_outbox_attempts (
    entry_id UUID NOT NULL,
    claim_token UUID NOT NULL,
    number INTEGER NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE,
    finished_at TIMESTAMP WITH TIME ZONE NOT NULL,
    outcome VARCHAR(32) NOT NULL,
    error VARCHAR(255),
    PRIMARY KEY (entry_id, claim_token)
    )""",
    """CREATE TABLE holdfast_outbox_order_locks (
    slot INTEGER NOT NULL,
    PRIMARY KEY (slot)
    )""",
    """CREATE TABLE holdfast_outbox_queues (
    queue VARCHAR(64) NOT NULL,
    paused_at TIMESTAMP WITH TIME ZONE NOT NULL,
    paused_by VARCHAR(255),
    reason VARCHAR(255),
    PRIMARY KEY (queue)
    )""",
    """CREATE TABLE holdfast_sagas (
    saga_id UUID NOT NULL,
    definition VARCHAR(255) NOT NULL,
    version INTEGER DEFAULT '1' NOT NULL,
    state VARCHAR(32) NOT NULL,
    subject_id VARCHAR(255) NOT NULL,
    data JSONB,
    steps JSONB NOT NULL,
    reason VARCHAR(255),
    started_at TIMESTAMP WITH TIME ZONE NOT NULL,
    changed_at TIMESTAMP WITH TIME ZONE NOT NULL,
    deadline_at TIMESTAMP WITH TIME ZONE,
    PRIMARY KEY (saga_id)
    )""",
    """CREATE INDEX holdfast_sagas_deadline ON holdfast_sagas (deadline_at) WHERE deadline_at IS NOT NULL""",
    """CREATE INDEX holdfast_sagas_state ON holdfast_sagas (state, started_at, saga_id)""",
)

MARIADB = (
    """CREATE TABLE holdfast_audit_chain_heads (
    stream VARCHAR(255) COLLATE utf8mb4_nopad_bin NOT NULL,
    seq BIGINT NOT NULL,
    last_hash VARCHAR(64),
    PRIMARY KEY (stream)
    )CHARSET=utf8mb4""",
    """CREATE TABLE holdfast_audit_checkpoints (
    stream VARCHAR(255) COLLATE utf8mb4_nopad_bin NOT NULL,
    seq BIGINT NOT NULL,
    event_hash VARCHAR(64) NOT NULL,
    taken_at DATETIME(6) NOT NULL,
    PRIMARY KEY (stream, seq)
    )CHARSET=utf8mb4""",
    """CREATE TABLE holdfast_audit_events (
    event_id UUID NOT NULL,
    event_type VARCHAR(64) NOT NULL,
    subject_ref VARCHAR(255) COLLATE utf8mb4_nopad_bin NOT NULL,
    occurred_at DATETIME(6) NOT NULL,
    payload JSON NOT NULL,
    entry_id UUID,
    stream VARCHAR(255) COLLATE utf8mb4_nopad_bin,
    seq BIGINT,
    prior_hash VARCHAR(64),
    event_hash VARCHAR(64),
    PRIMARY KEY (event_id)
    )CHARSET=utf8mb4""",
    """CREATE INDEX holdfast_audit_events_entry ON holdfast_audit_events (entry_id)""",
    """CREATE INDEX holdfast_audit_events_occurred ON holdfast_audit_events (occurred_at, event_id)""",
    """CREATE UNIQUE INDEX holdfast_audit_events_stream ON holdfast_audit_events (stream, seq)""",
    """CREATE INDEX holdfast_audit_events_subject ON holdfast_audit_events (subject_ref, occurred_at)""",
    """CREATE TABLE holdfast_inbox (
    consumer VARCHAR(255) COLLATE utf8mb4_nopad_bin NOT NULL,
    message_id VARCHAR(255) COLLATE utf8mb4_nopad_bin NOT NULL,
    received_at DATETIME(6) NOT NULL,
    PRIMARY KEY (consumer, message_id)
    )CHARSET=utf8mb4""",
    """CREATE INDEX holdfast_inbox_received ON holdfast_inbox (received_at)""",
    """CREATE TABLE holdfast_outbox (
    entry_id UUID NOT NULL,
    subject_id VARCHAR(255) COLLATE utf8mb4_nopad_bin NOT NULL,
    resolver VARCHAR(255) COLLATE utf8mb4_nopad_bin NOT NULL,
    ref_kind VARCHAR(255) NOT NULL,
    ref_value VARCHAR(255) NOT NULL,
    ref_extra JSON NOT NULL,
    operation VARCHAR(32) COLLATE utf8mb4_nopad_bin NOT NULL DEFAULT 'erase',
    scrubbed BOOL,
    payload JSON,
    status VARCHAR(32) NOT NULL DEFAULT 'pending',
    attempts INTEGER NOT NULL DEFAULT '0',
    enqueued_at DATETIME(6) NOT NULL,
    last_attempt_at DATETIME(6),
    next_attempt_at DATETIME(6),
    last_error TEXT,
    claim_token UUID,
    claimed_by VARCHAR(255),
    ordering_key VARCHAR(255) COLLATE utf8mb4_nopad_bin,
    dedupe_key VARCHAR(255) COLLATE utf8mb4_nopad_bin,
    saga_id UUID,
    step VARCHAR(255),
    direction VARCHAR(16),
    depends_on UUID,
    result JSON,
    verification VARCHAR(16),
    verify_at DATETIME(6),
    verify_attempts INTEGER NOT NULL DEFAULT '0',
    queue VARCHAR(64) COLLATE utf8mb4_nopad_bin NOT NULL DEFAULT 'default',
    headers JSON,
    parks INTEGER NOT NULL DEFAULT '0',
    fresh_at DATETIME(6) GENERATED ALWAYS AS (CASE WHEN status IN ('failed', 'in_flight', 'pending', 'scheduled') AND next_attempt_at IS NULL THEN enqueued_at END) STORED,
    gate_at DATETIME(6) GENERATED ALWAYS AS (CASE WHEN status IN ('failed', 'in_flight', 'pending', 'scheduled') THEN next_attempt_at END) STORED,
    order_key VARCHAR(255) COLLATE utf8mb4_nopad_bin GENERATED ALWAYS AS (CASE WHEN status <> 'succeeded' THEN ordering_key END) STORED,
    called_key VARCHAR(255) COLLATE utf8mb4_nopad_bin GENERATED ALWAYS AS (CASE WHEN status = 'in_flight' THEN ordering_key END) STORED,
    live_dedupe_key VARCHAR(255) COLLATE utf8mb4_nopad_bin GENERATED ALWAYS AS (CASE WHEN status IN ('failed', 'in_flight', 'pending', 'scheduled') THEN dedupe_key END) STORED,
    PRIMARY KEY (entry_id)
    )CHARSET=utf8mb4""",
    """CREATE INDEX holdfast_outbox_abandoned ON holdfast_outbox (status, enqueued_at, entry_id)""",
    """CREATE INDEX holdfast_outbox_called ON holdfast_outbox (called_key)""",
    """CREATE UNIQUE INDEX holdfast_outbox_dedupe ON holdfast_outbox (live_dedupe_key)""",
    """CREATE INDEX holdfast_outbox_fresh ON holdfast_outbox (queue, fresh_at, entry_id)""",
    """CREATE INDEX holdfast_outbox_gate ON holdfast_outbox (queue, gate_at, enqueued_at, entry_id)""",
    """CREATE INDEX holdfast_outbox_order ON holdfast_outbox (order_key, enqueued_at, entry_id)""",
    """CREATE INDEX holdfast_outbox_saga ON holdfast_outbox (saga_id)""",
    """CREATE INDEX holdfast_outbox_subject ON holdfast_outbox (subject_id, operation)""",
    """CREATE INDEX holdfast_outbox_verify ON holdfast_outbox (verify_at, entry_id)""",
    """CREATE TABLE holdfast_outbox_attempts (
    entry_id UUID NOT NULL,
    claim_token UUID NOT NULL,
    number INTEGER NOT NULL,
    started_at DATETIME(6),
    finished_at DATETIME(6) NOT NULL,
    outcome VARCHAR(32) NOT NULL,
    error VARCHAR(255),
    PRIMARY KEY (entry_id, claim_token)
    )CHARSET=utf8mb4""",
    """CREATE TABLE holdfast_outbox_order_locks (
    slot INTEGER NOT NULL,
    PRIMARY KEY (slot)
    )CHARSET=utf8mb4""",
    """CREATE TABLE holdfast_outbox_queues (
    queue VARCHAR(64) COLLATE utf8mb4_nopad_bin NOT NULL,
    paused_at DATETIME(6) NOT NULL,
    paused_by VARCHAR(255),
    reason VARCHAR(255),
    PRIMARY KEY (queue)
    )CHARSET=utf8mb4""",
    """CREATE TABLE holdfast_sagas (
    saga_id UUID NOT NULL,
    definition VARCHAR(255) COLLATE utf8mb4_nopad_bin NOT NULL,
    version INTEGER NOT NULL DEFAULT '1',
    state VARCHAR(32) NOT NULL,
    subject_id VARCHAR(255) COLLATE utf8mb4_nopad_bin NOT NULL,
    data JSON,
    steps JSON NOT NULL,
    reason VARCHAR(255),
    started_at DATETIME(6) NOT NULL,
    changed_at DATETIME(6) NOT NULL,
    deadline_at DATETIME(6),
    PRIMARY KEY (saga_id)
    )CHARSET=utf8mb4""",
    """CREATE INDEX holdfast_sagas_deadline ON holdfast_sagas (deadline_at)""",
    """CREATE INDEX holdfast_sagas_state ON holdfast_sagas (state, started_at, saga_id)""",
)

STATEMENTS = {"sqlite": SQLITE, "postgresql": POSTGRESQL, "mariadb": MARIADB, "mysql": MARIADB}


def upgrade() -> None:
    dialect = op.get_context().dialect.name
    # A program that mounts the tables on its own MetaData has made them, and migrates them itself.
    if context.is_offline_mode() or not sa.inspect(op.get_bind()).has_table("holdfast_outbox"):
        for statement in STATEMENTS[dialect]:
            op.execute(statement)
