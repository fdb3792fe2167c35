"""Indexes of stages and log entries by their workflow go: their ids begin with its id, and are sorted as well."""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

TABLES = ("holdfast_workflow_stage", "holdfast_workflow_event")


def upgrade() -> None:
    of_table = op.get_context().dialect.name in ("mysql", "mariadb")
    for table in TABLES:
        op.execute(f"DROP INDEX {table}_workflow_id_idx" + (f" ON {table}" if of_table else ""))
