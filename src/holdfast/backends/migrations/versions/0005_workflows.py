"""Workflows."""
# ruff: noqa: E501  # statements as the database shows them

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

SQLITE = (
    """CREATE TABLE holdfast_workflow (
    id TEXT NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    status TEXT NOT NULL,
    name TEXT NOT NULL,
    application TEXT NOT NULL,
    definition TEXT NOT NULL,
    queue TEXT NOT NULL,
    priority BIGINT NOT NULL,
    pipeline TEXT,
    idempotency_key TEXT,
    parent TEXT,
    live BIGINT NOT NULL,
    halts BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    started_at BIGINT,
    ended_at BIGINT,
    reason TEXT,
    context TEXT NOT NULL,
    about TEXT NOT NULL,
    PRIMARY KEY (id)
    )""",
    """CREATE INDEX holdfast_workflow_created_at_idx ON holdfast_workflow (created_at, id)""",
    """CREATE UNIQUE INDEX holdfast_workflow_idempotency_key_key ON holdfast_workflow (idempotency_key)""",
    """CREATE INDEX holdfast_workflow_name_created_at_idx ON holdfast_workflow (name, created_at, id)""",
    """CREATE INDEX holdfast_workflow_parent_created_at_idx ON holdfast_workflow (parent, created_at, id)""",
    """CREATE INDEX holdfast_workflow_pipeline_created_at_idx ON holdfast_workflow (pipeline, created_at, id)""",
    """CREATE INDEX holdfast_workflow_status_created_at_idx ON holdfast_workflow (status, created_at, id)""",
    """CREATE TABLE holdfast_workflow_tally (
    status TEXT NOT NULL,
    n BIGINT NOT NULL
    )""",
    """CREATE UNIQUE INDEX holdfast_workflow_tally_key ON holdfast_workflow_tally (status)""",
    """CREATE TRIGGER holdfast_workflow_tally_insert AFTER INSERT ON holdfast_workflow BEGIN INSERT INTO holdfast_workflow_tally (status, n) VALUES (NEW.status, 1) ON CONFLICT (status) DO UPDATE SET n = n + excluded.n; END""",
    """CREATE TRIGGER holdfast_workflow_tally_update AFTER UPDATE OF status ON holdfast_workflow WHEN OLD.status IS NOT NEW.status BEGIN INSERT INTO holdfast_workflow_tally (status, n) VALUES (OLD.status, -1) ON CONFLICT (status) DO UPDATE SET n = n + excluded.n; INSERT INTO holdfast_workflow_tally (status, n) VALUES (NEW.status, 1) ON CONFLICT (status) DO UPDATE SET n = n + excluded.n; END""",
    """CREATE TRIGGER holdfast_workflow_tally_delete AFTER DELETE ON holdfast_workflow BEGIN INSERT INTO holdfast_workflow_tally (status, n) VALUES (OLD.status, -1) ON CONFLICT (status) DO UPDATE SET n = n + excluded.n; END""",
    """CREATE TABLE holdfast_workflow_stage (
    id TEXT NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    workflow TEXT NOT NULL,
    ref TEXT NOT NULL,
    status TEXT NOT NULL,
    incarnation BIGINT NOT NULL,
    started_at BIGINT,
    ended_at BIGINT,
    state TEXT NOT NULL,
    context TEXT NOT NULL,
    outputs TEXT NOT NULL,
    PRIMARY KEY (id)
    )""",
    """CREATE INDEX holdfast_workflow_stage_workflow_id_idx ON holdfast_workflow_stage (workflow, id)""",
    """CREATE TABLE holdfast_workflow_item (
    id TEXT NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    queue TEXT NOT NULL,
    priority BIGINT NOT NULL,
    kind TEXT NOT NULL,
    type TEXT NOT NULL,
    owner TEXT,
    workflow TEXT NOT NULL,
    ref TEXT NOT NULL,
    incarnation BIGINT NOT NULL,
    at BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    crashes BIGINT NOT NULL,
    held BIGINT,
    PRIMARY KEY (id)
    )""",
    """CREATE INDEX holdfast_workflow_item_owner_id_idx ON holdfast_workflow_item (owner, id)""",
    """CREATE INDEX holdfast_workflow_item_queue_priority_due_at_idx ON holdfast_workflow_item (queue, priority, due_at, id) WHERE due_at IS NOT NULL""",
    """CREATE INDEX holdfast_workflow_item_workflow_id_idx ON holdfast_workflow_item (workflow, id)""",
    """CREATE TABLE holdfast_workflow_definition (
    id TEXT NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    name TEXT NOT NULL,
    graph TEXT NOT NULL,
    PRIMARY KEY (id)
    )""",
    """CREATE TABLE holdfast_workflow_signal (
    id TEXT NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    workflow TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (id)
    )""",
    """CREATE INDEX holdfast_workflow_signal_workflow_id_idx ON holdfast_workflow_signal (workflow, id)""",
    """CREATE TABLE holdfast_workflow_event (
    id TEXT NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    workflow TEXT NOT NULL,
    at BIGINT NOT NULL,
    events TEXT NOT NULL,
    PRIMARY KEY (id)
    )""",
    """CREATE INDEX holdfast_workflow_event_at_idx ON holdfast_workflow_event (at, id)""",
    """CREATE INDEX holdfast_workflow_event_workflow_id_idx ON holdfast_workflow_event (workflow, id)""",
    """CREATE TABLE holdfast_worker (
    id TEXT NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    host TEXT NOT NULL,
    process TEXT NOT NULL,
    about TEXT NOT NULL,
    PRIMARY KEY (id)
    )""",
    """CREATE INDEX holdfast_worker_due_at_idx ON holdfast_worker (due_at, id) WHERE due_at IS NOT NULL""",
)

POSTGRESQL = (
    """CREATE TABLE holdfast_workflow (
    id TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    status TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    application TEXT COLLATE "C" NOT NULL,
    definition TEXT COLLATE "C" NOT NULL,
    queue TEXT COLLATE "C" NOT NULL,
    priority BIGINT NOT NULL,
    pipeline TEXT COLLATE "C",
    idempotency_key TEXT COLLATE "C",
    parent TEXT COLLATE "C",
    live BIGINT NOT NULL,
    halts BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    started_at BIGINT,
    ended_at BIGINT,
    reason TEXT COLLATE "C",
    context TEXT COLLATE "C" NOT NULL,
    about TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (id)
    )
    WITH (fillfactor = 90)""",
    """CREATE INDEX holdfast_workflow_created_at_idx ON holdfast_workflow (created_at, id)""",
    """CREATE UNIQUE INDEX holdfast_workflow_idempotency_key_key ON holdfast_workflow (idempotency_key)""",
    """CREATE INDEX holdfast_workflow_name_created_at_idx ON holdfast_workflow (name, created_at, id)""",
    """CREATE INDEX holdfast_workflow_parent_created_at_idx ON holdfast_workflow (parent, created_at, id)""",
    """CREATE INDEX holdfast_workflow_pipeline_created_at_idx ON holdfast_workflow (pipeline, created_at, id)""",
    """CREATE INDEX holdfast_workflow_status_created_at_idx ON holdfast_workflow (status, created_at, id)""",
    """CREATE TABLE holdfast_workflow_tally (
    status TEXT COLLATE "C" NOT NULL,
    n BIGINT NOT NULL
    )
    WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)""",
    """CREATE FUNCTION holdfast_workflow_count_insert() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN INSERT INTO holdfast_workflow_tally (status, n) SELECT status, count(*) FROM after GROUP BY status; RETURN NULL; END$$""",
    """CREATE TRIGGER holdfast_workflow_count_insert AFTER INSERT ON holdfast_workflow REFERENCING NEW TABLE AS after FOR EACH STATEMENT EXECUTE FUNCTION holdfast_workflow_count_insert()""",
    """CREATE FUNCTION holdfast_workflow_count_update() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN INSERT INTO holdfast_workflow_tally (status, n) SELECT status, sum(d) FROM (SELECT status, 1 AS d FROM after UNION ALL SELECT status, -1 FROM before) AS moved GROUP BY status HAVING sum(d) <> 0; RETURN NULL; END$$""",
    """CREATE TRIGGER holdfast_workflow_count_update AFTER UPDATE ON holdfast_workflow REFERENCING OLD TABLE AS before NEW TABLE AS after FOR EACH STATEMENT EXECUTE FUNCTION holdfast_workflow_count_update()""",
    """CREATE FUNCTION holdfast_workflow_count_delete() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN INSERT INTO holdfast_workflow_tally (status, n) SELECT status, -count(*) FROM before GROUP BY status; RETURN NULL; END$$""",
    """CREATE TRIGGER holdfast_workflow_count_delete AFTER DELETE ON holdfast_workflow REFERENCING OLD TABLE AS before FOR EACH STATEMENT EXECUTE FUNCTION holdfast_workflow_count_delete()""",
    """CREATE TABLE holdfast_workflow_stage (
    id TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    workflow TEXT COLLATE "C" NOT NULL,
    ref TEXT COLLATE "C" NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    incarnation BIGINT NOT NULL,
    started_at BIGINT,
    ended_at BIGINT,
    state TEXT COLLATE "C" NOT NULL,
    context TEXT COLLATE "C" NOT NULL,
    outputs TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (id)
    )
    WITH (fillfactor = 90)""",
    """CREATE INDEX holdfast_workflow_stage_workflow_id_idx ON holdfast_workflow_stage (workflow, id)""",
    """CREATE TABLE holdfast_workflow_item (
    id TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    queue TEXT COLLATE "C" NOT NULL,
    priority BIGINT NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    type TEXT COLLATE "C" NOT NULL,
    owner TEXT COLLATE "C",
    workflow TEXT COLLATE "C" NOT NULL,
    ref TEXT COLLATE "C" NOT NULL,
    incarnation BIGINT NOT NULL,
    at BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    crashes BIGINT NOT NULL,
    held BIGINT,
    PRIMARY KEY (id)
    )
    WITH (fillfactor = 90)""",
    """CREATE INDEX holdfast_workflow_item_owner_id_idx ON holdfast_workflow_item (owner, id)""",
    """CREATE INDEX holdfast_workflow_item_queue_priority_due_at_idx ON holdfast_workflow_item (queue, priority, due_at, id) WHERE due_at IS NOT NULL""",
    """CREATE INDEX holdfast_workflow_item_workflow_id_idx ON holdfast_workflow_item (workflow, id)""",
    """CREATE TABLE holdfast_workflow_definition (
    id TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    name TEXT COLLATE "C" NOT NULL,
    graph TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (id)
    )
    WITH (fillfactor = 90)""",
    """CREATE TABLE holdfast_workflow_signal (
    id TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    workflow TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    value TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (id)
    )
    WITH (fillfactor = 90)""",
    """CREATE INDEX holdfast_workflow_signal_workflow_id_idx ON holdfast_workflow_signal (workflow, id)""",
    """CREATE TABLE holdfast_workflow_event (
    id TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    workflow TEXT COLLATE "C" NOT NULL,
    at BIGINT NOT NULL,
    events TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (id)
    )
    WITH (fillfactor = 90)""",
    """CREATE INDEX holdfast_workflow_event_at_idx ON holdfast_workflow_event (at, id)""",
    """CREATE INDEX holdfast_workflow_event_workflow_id_idx ON holdfast_workflow_event (workflow, id)""",
    """CREATE TABLE holdfast_worker (
    id TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    host TEXT COLLATE "C" NOT NULL,
    process TEXT COLLATE "C" NOT NULL,
    about TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (id)
    )
    WITH (fillfactor = 90)""",
    """CREATE INDEX holdfast_worker_due_at_idx ON holdfast_worker (due_at, id) WHERE due_at IS NOT NULL""",
)

MARIADB = (
    """CREATE TABLE holdfast_workflow (
    id VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    status VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    name VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    application LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    definition LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    queue LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    priority BIGINT NOT NULL,
    pipeline VARCHAR(191) COLLATE utf8mb4_nopad_bin,
    idempotency_key VARCHAR(191) COLLATE utf8mb4_nopad_bin,
    parent VARCHAR(191) COLLATE utf8mb4_nopad_bin,
    live BIGINT NOT NULL,
    halts BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    started_at BIGINT,
    ended_at BIGINT,
    reason LONGTEXT COLLATE utf8mb4_nopad_bin,
    context LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    about LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    PRIMARY KEY (id)
    )CHARSET=utf8mb4""",
    """CREATE INDEX holdfast_workflow_created_at_idx ON holdfast_workflow (created_at, id)""",
    """CREATE UNIQUE INDEX holdfast_workflow_idempotency_key_key ON holdfast_workflow (idempotency_key)""",
    """CREATE INDEX holdfast_workflow_name_created_at_idx ON holdfast_workflow (name, created_at, id)""",
    """CREATE INDEX holdfast_workflow_parent_created_at_idx ON holdfast_workflow (parent, created_at, id)""",
    """CREATE INDEX holdfast_workflow_pipeline_created_at_idx ON holdfast_workflow (pipeline, created_at, id)""",
    """CREATE INDEX holdfast_workflow_status_created_at_idx ON holdfast_workflow (status, created_at, id)""",
    """CREATE TABLE holdfast_workflow_tally (
    status VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    n BIGINT NOT NULL
    )CHARSET=utf8mb4""",
    """CREATE TRIGGER holdfast_workflow_count_insert AFTER INSERT ON holdfast_workflow FOR EACH ROW BEGIN INSERT INTO holdfast_workflow_tally (status, n) VALUES (NEW.status, 1); END""",
    """CREATE TRIGGER holdfast_workflow_count_update AFTER UPDATE ON holdfast_workflow FOR EACH ROW BEGIN IF NOT (OLD.status <=> NEW.status) THEN INSERT INTO holdfast_workflow_tally (status, n) VALUES (OLD.status, -1); INSERT INTO holdfast_workflow_tally (status, n) VALUES (NEW.status, 1); END IF; END""",
    """CREATE TRIGGER holdfast_workflow_count_delete AFTER DELETE ON holdfast_workflow FOR EACH ROW BEGIN INSERT INTO holdfast_workflow_tally (status, n) VALUES (OLD.status, -1); END""",
    """CREATE TABLE holdfast_workflow_stage (
    id VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    workflow VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    ref LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    status LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    incarnation BIGINT NOT NULL,
    started_at BIGINT,
    ended_at BIGINT,
    state LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    context LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    outputs LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    PRIMARY KEY (id)
    )CHARSET=utf8mb4""",
    """CREATE INDEX holdfast_workflow_stage_workflow_id_idx ON holdfast_workflow_stage (workflow, id)""",
    """CREATE TABLE holdfast_workflow_item (
    id VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    queue VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    priority BIGINT NOT NULL,
    kind LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    type LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    owner VARCHAR(191) COLLATE utf8mb4_nopad_bin,
    workflow VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    ref LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    incarnation BIGINT NOT NULL,
    at BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    crashes BIGINT NOT NULL,
    held BIGINT,
    PRIMARY KEY (id)
    )CHARSET=utf8mb4""",
    """CREATE INDEX holdfast_workflow_item_owner_id_idx ON holdfast_workflow_item (owner, id)""",
    """CREATE INDEX holdfast_workflow_item_queue_priority_due_at_idx ON holdfast_workflow_item (queue, priority, due_at, id)""",
    """CREATE INDEX holdfast_workflow_item_workflow_id_idx ON holdfast_workflow_item (workflow, id)""",
    """CREATE TABLE holdfast_workflow_definition (
    id VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    name LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    graph LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    PRIMARY KEY (id)
    )CHARSET=utf8mb4""",
    """CREATE TABLE holdfast_workflow_signal (
    id VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    workflow VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    name LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    value LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    PRIMARY KEY (id)
    )CHARSET=utf8mb4""",
    """CREATE INDEX holdfast_workflow_signal_workflow_id_idx ON holdfast_workflow_signal (workflow, id)""",
    """CREATE TABLE holdfast_workflow_event (
    id VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    workflow VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    at BIGINT NOT NULL,
    events LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    PRIMARY KEY (id)
    )CHARSET=utf8mb4""",
    """CREATE INDEX holdfast_workflow_event_at_idx ON holdfast_workflow_event (at, id)""",
    """CREATE INDEX holdfast_workflow_event_workflow_id_idx ON holdfast_workflow_event (workflow, id)""",
    """CREATE TABLE holdfast_worker (
    id VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    host LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    process LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    about LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    PRIMARY KEY (id)
    )CHARSET=utf8mb4""",
    """CREATE INDEX holdfast_worker_due_at_idx ON holdfast_worker (due_at, id)""",
)

STATEMENTS = {"sqlite": SQLITE, "postgresql": POSTGRESQL, "mariadb": MARIADB, "mysql": MARIADB}


def upgrade() -> None:
    for statement in STATEMENTS[op.get_context().dialect.name]:
        op.execute(statement)
