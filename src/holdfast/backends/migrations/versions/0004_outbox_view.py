"""A view of the messages in the outbox, for relays."""
# ruff: noqa: E501  # statements as the database shows them

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

SQLITE = """CREATE VIEW IF NOT EXISTS holdfast_outbox_cdc AS
    SELECT substr(entry_id, 1, 8) || '-' || substr(entry_id, 9, 4) || '-' || substr(entry_id, 13, 4) || '-' || substr(entry_id, 17, 4) || '-' || substr(entry_id, 21, 12) AS id,
    ref_value AS aggregatetype,
    coalesce(ordering_key, subject_id) AS aggregateid,
    coalesce(json_extract(payload, '$.type'), ref_value) AS type,
    CASE WHEN payload IS NOT NULL THEN json_quote(json_extract(payload, '$.data')) END AS payload,
    headers,
    enqueued_at AS timestamp,
    resolver AS target,
    queue,
    status
    FROM holdfast_outbox
    WHERE operation = 'publish' AND status <> 'abandoned'"""

POSTGRESQL = """CREATE OR REPLACE VIEW holdfast_outbox_cdc AS
    SELECT entry_id AS id,
    ref_value AS aggregatetype,
    coalesce(ordering_key, subject_id) AS aggregateid,
    coalesce(payload ->> 'type', ref_value) AS type,
    payload -> 'data' AS payload,
    headers,
    enqueued_at AS timestamp,
    resolver AS target,
    queue,
    status
    FROM holdfast_outbox
    WHERE operation = 'publish' AND status <> 'abandoned'"""

MARIADB = """CREATE OR REPLACE VIEW holdfast_outbox_cdc AS
    SELECT entry_id AS id,
    ref_value AS aggregatetype,
    coalesce(ordering_key, subject_id) AS aggregateid,
    coalesce(json_unquote(json_extract(payload, '$.type')), ref_value) AS type,
    json_extract(payload, '$.data') AS payload,
    headers,
    enqueued_at AS timestamp,
    resolver AS target,
    queue,
    status
    FROM holdfast_outbox
    WHERE operation = 'publish' AND status <> 'abandoned'"""

STATEMENTS = {"sqlite": SQLITE, "postgresql": POSTGRESQL, "mariadb": MARIADB, "mysql": MARIADB}


def upgrade() -> None:
    op.execute(STATEMENTS[op.get_context().dialect.name])
