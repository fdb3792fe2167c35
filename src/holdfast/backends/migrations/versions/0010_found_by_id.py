"""Indexes of stages and log entries by their workflow go: their ids begin with its id, and are sorted as well. That of
log entries by their time goes, too: nobody asks for it."""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

INDEXES = (("holdfast_workflow_stage", "workflow_id"), ("holdfast_workflow_event", "workflow_id"),
           ("holdfast_workflow_event", "at"))  # fmt: skip


def upgrade() -> None:
    of_table = op.get_context().dialect.name in ("mysql", "mariadb")
    for table, fields in INDEXES:
        op.execute(f"DROP INDEX {table}_{fields}_idx" + (f" ON {table}" if of_table else ""))
