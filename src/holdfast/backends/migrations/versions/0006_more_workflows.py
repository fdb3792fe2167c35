"""Workflows: messages, finalizers, those inside others, schedules, and what workers can do."""
# ruff: noqa: E501  # statements as the database shows them

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

SQLITE = (
    """CREATE TABLE holdfast_workflow_message (
    id TEXT NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    workflow TEXT NOT NULL,
    type TEXT NOT NULL,
    payload TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    max_attempts BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    dead_at BIGINT,
    error TEXT,
    PRIMARY KEY (id)
    )""",
    """CREATE INDEX holdfast_workflow_message_dead_at_idx ON holdfast_workflow_message (dead_at, id) WHERE dead_at IS NOT NULL""",
    """CREATE INDEX holdfast_workflow_message_workflow_id_idx ON holdfast_workflow_message (workflow, id)""",
    """CREATE TABLE holdfast_workflow_processed (
    id TEXT NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    workflow TEXT NOT NULL,
    handler TEXT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (id)
    )""",
    """CREATE INDEX holdfast_workflow_processed_at_idx ON holdfast_workflow_processed (at, id)""",
    """CREATE INDEX holdfast_workflow_processed_workflow_id_idx ON holdfast_workflow_processed (workflow, id)""",
    """CREATE TABLE holdfast_workflow_config (
    id TEXT NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    at BIGINT NOT NULL,
    fields TEXT NOT NULL,
    PRIMARY KEY (id)
    )""",
    """CREATE TABLE holdfast_workflow_finalizer (
    id TEXT NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    workflow TEXT NOT NULL,
    ref TEXT NOT NULL,
    incarnation BIGINT NOT NULL,
    place BIGINT NOT NULL,
    form TEXT NOT NULL,
    name TEXT NOT NULL,
    args TEXT NOT NULL,
    state TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    owner TEXT,
    error TEXT,
    created_at BIGINT NOT NULL,
    ended_at BIGINT,
    took_us BIGINT,
    PRIMARY KEY (id)
    )""",
    """CREATE INDEX holdfast_workflow_finalizer_state_id_idx ON holdfast_workflow_finalizer (state, id)""",
    """CREATE INDEX holdfast_workflow_finalizer_workflow_id_idx ON holdfast_workflow_finalizer (workflow, id)""",
    """CREATE TABLE holdfast_workflow_pipeline (
    id TEXT NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    most BIGINT NOT NULL,
    running BIGINT NOT NULL,
    tickets BIGINT NOT NULL,
    keeps BIGINT NOT NULL,
    PRIMARY KEY (id)
    )""",
    """CREATE TABLE holdfast_workflow_waiting (
    id TEXT NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    pipeline TEXT NOT NULL,
    ticket BIGINT NOT NULL,
    PRIMARY KEY (id)
    )""",
    """CREATE INDEX holdfast_workflow_waiting_pipeline_ticket_idx ON holdfast_workflow_waiting (pipeline, ticket, id)""",
    """CREATE TABLE holdfast_workflow_schedule (
    id TEXT NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    workflow TEXT NOT NULL,
    input TEXT NOT NULL,
    cron TEXT NOT NULL,
    timezone TEXT NOT NULL,
    overlap TEXT NOT NULL,
    catch_up BIGINT NOT NULL,
    paused BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    last_tick BIGINT,
    last_run TEXT,
    PRIMARY KEY (id)
    )""",
    """CREATE INDEX holdfast_workflow_schedule_due_at_idx ON holdfast_workflow_schedule (due_at, id) WHERE due_at IS NOT NULL""",
    """ALTER TABLE holdfast_workflow_item ADD COLUMN code TEXT""",
    """CREATE TABLE holdfast_workflow_serving (
    id TEXT NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    queues TEXT NOT NULL,
    tasks TEXT NOT NULL,
    versions TEXT,
    PRIMARY KEY (id)
    )""",
)

POSTGRESQL = (
    """CREATE TABLE holdfast_workflow_message (
    id TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    workflow TEXT COLLATE "C" NOT NULL,
    type TEXT COLLATE "C" NOT NULL,
    payload TEXT COLLATE "C" NOT NULL,
    attempts BIGINT NOT NULL,
    max_attempts BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    dead_at BIGINT,
    error TEXT COLLATE "C",
    PRIMARY KEY (id)
    )
    WITH (fillfactor = 90)""",
    """CREATE INDEX holdfast_workflow_message_dead_at_idx ON holdfast_workflow_message (dead_at, id) WHERE dead_at IS NOT NULL""",
    """CREATE INDEX holdfast_workflow_message_workflow_id_idx ON holdfast_workflow_message (workflow, id)""",
    """CREATE TABLE holdfast_workflow_processed (
    id TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    workflow TEXT COLLATE "C" NOT NULL,
    handler TEXT COLLATE "C" NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (id)
    )
    WITH (fillfactor = 90)""",
    """CREATE INDEX holdfast_workflow_processed_at_idx ON holdfast_workflow_processed (at, id)""",
    """CREATE INDEX holdfast_workflow_processed_workflow_id_idx ON holdfast_workflow_processed (workflow, id)""",
    """CREATE TABLE holdfast_workflow_config (
    id TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    at BIGINT NOT NULL,
    fields TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (id)
    )
    WITH (fillfactor = 90)""",
    """CREATE TABLE holdfast_workflow_finalizer (
    id TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    workflow TEXT COLLATE "C" NOT NULL,
    ref TEXT COLLATE "C" NOT NULL,
    incarnation BIGINT NOT NULL,
    place BIGINT NOT NULL,
    form TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    args TEXT COLLATE "C" NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    attempts BIGINT NOT NULL,
    owner TEXT COLLATE "C",
    error TEXT COLLATE "C",
    created_at BIGINT NOT NULL,
    ended_at BIGINT,
    took_us BIGINT,
    PRIMARY KEY (id)
    )
    WITH (fillfactor = 90)""",
    """CREATE INDEX holdfast_workflow_finalizer_state_id_idx ON holdfast_workflow_finalizer (state, id)""",
    """CREATE INDEX holdfast_workflow_finalizer_workflow_id_idx ON holdfast_workflow_finalizer (workflow, id)""",
    """CREATE TABLE holdfast_workflow_pipeline (
    id TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    most BIGINT NOT NULL,
    running BIGINT NOT NULL,
    tickets BIGINT NOT NULL,
    keeps BIGINT NOT NULL,
    PRIMARY KEY (id)
    )
    WITH (fillfactor = 90)""",
    """CREATE TABLE holdfast_workflow_waiting (
    id TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    pipeline TEXT COLLATE "C" NOT NULL,
    ticket BIGINT NOT NULL,
    PRIMARY KEY (id)
    )
    WITH (fillfactor = 90)""",
    """CREATE INDEX holdfast_workflow_waiting_pipeline_ticket_idx ON holdfast_workflow_waiting (pipeline, ticket, id)""",
    """CREATE TABLE holdfast_workflow_schedule (
    id TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    workflow TEXT COLLATE "C" NOT NULL,
    input TEXT COLLATE "C" NOT NULL,
    cron TEXT COLLATE "C" NOT NULL,
    timezone TEXT COLLATE "C" NOT NULL,
    overlap TEXT COLLATE "C" NOT NULL,
    catch_up BIGINT NOT NULL,
    paused BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    last_tick BIGINT,
    last_run TEXT COLLATE "C",
    PRIMARY KEY (id)
    )
    WITH (fillfactor = 90)""",
    """CREATE INDEX holdfast_workflow_schedule_due_at_idx ON holdfast_workflow_schedule (due_at, id) WHERE due_at IS NOT NULL""",
    'ALTER TABLE holdfast_workflow_item ADD COLUMN code TEXT COLLATE "C"',
    """CREATE TABLE holdfast_workflow_serving (
    id TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    queues TEXT COLLATE "C" NOT NULL,
    tasks TEXT COLLATE "C" NOT NULL,
    versions TEXT COLLATE "C",
    PRIMARY KEY (id)
    )
    WITH (fillfactor = 90)""",
)

MARIADB = (
    """CREATE TABLE holdfast_workflow_message (
    id VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    workflow VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    type LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    payload LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    attempts BIGINT NOT NULL,
    max_attempts BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    dead_at BIGINT,
    error LONGTEXT COLLATE utf8mb4_nopad_bin,
    PRIMARY KEY (id)
    )CHARSET=utf8mb4""",
    """CREATE INDEX holdfast_workflow_message_dead_at_idx ON holdfast_workflow_message (dead_at, id)""",
    """CREATE INDEX holdfast_workflow_message_workflow_id_idx ON holdfast_workflow_message (workflow, id)""",
    """CREATE TABLE holdfast_workflow_processed (
    id VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    workflow VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    handler LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (id)
    )CHARSET=utf8mb4""",
    """CREATE INDEX holdfast_workflow_processed_at_idx ON holdfast_workflow_processed (at, id)""",
    """CREATE INDEX holdfast_workflow_processed_workflow_id_idx ON holdfast_workflow_processed (workflow, id)""",
    """CREATE TABLE holdfast_workflow_config (
    id VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    at BIGINT NOT NULL,
    fields LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    PRIMARY KEY (id)
    )CHARSET=utf8mb4""",
    """CREATE TABLE holdfast_workflow_finalizer (
    id VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    workflow VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    ref LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    incarnation BIGINT NOT NULL,
    place BIGINT NOT NULL,
    form LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    name LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    args LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    state VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    attempts BIGINT NOT NULL,
    owner LONGTEXT COLLATE utf8mb4_nopad_bin,
    error LONGTEXT COLLATE utf8mb4_nopad_bin,
    created_at BIGINT NOT NULL,
    ended_at BIGINT,
    took_us BIGINT,
    PRIMARY KEY (id)
    )CHARSET=utf8mb4""",
    """CREATE INDEX holdfast_workflow_finalizer_state_id_idx ON holdfast_workflow_finalizer (state, id)""",
    """CREATE INDEX holdfast_workflow_finalizer_workflow_id_idx ON holdfast_workflow_finalizer (workflow, id)""",
    """CREATE TABLE holdfast_workflow_pipeline (
    id VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    most BIGINT NOT NULL,
    running BIGINT NOT NULL,
    tickets BIGINT NOT NULL,
    keeps BIGINT NOT NULL,
    PRIMARY KEY (id)
    )CHARSET=utf8mb4""",
    """CREATE TABLE holdfast_workflow_waiting (
    id VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    pipeline VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    ticket BIGINT NOT NULL,
    PRIMARY KEY (id)
    )CHARSET=utf8mb4""",
    """CREATE INDEX holdfast_workflow_waiting_pipeline_ticket_idx ON holdfast_workflow_waiting (pipeline, ticket, id)""",
    """CREATE TABLE holdfast_workflow_schedule (
    id VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    workflow LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    input LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    cron LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    timezone LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    overlap LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    catch_up BIGINT NOT NULL,
    paused BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    last_tick BIGINT,
    last_run LONGTEXT COLLATE utf8mb4_nopad_bin,
    PRIMARY KEY (id)
    )CHARSET=utf8mb4""",
    """CREATE INDEX holdfast_workflow_schedule_due_at_idx ON holdfast_workflow_schedule (due_at, id)""",
    """ALTER TABLE holdfast_workflow_item ADD COLUMN code LONGTEXT COLLATE utf8mb4_nopad_bin""",
    """CREATE TABLE holdfast_workflow_serving (
    id VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    queues LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    tasks LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    versions LONGTEXT COLLATE utf8mb4_nopad_bin,
    PRIMARY KEY (id)
    )CHARSET=utf8mb4""",
)

STATEMENTS = {"sqlite": SQLITE, "postgresql": POSTGRESQL, "mariadb": MARIADB, "mysql": MARIADB}


def upgrade() -> None:
    for statement in STATEMENTS[op.get_context().dialect.name]:
        op.execute(statement)
