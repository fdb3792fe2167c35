"""On PostgreSQL, the primary keys of tables that are empty now and then are made anew, after their other indexes.

All indexes of a table have an id in them, and of a table in which there was next to nothing when it was vacuumed, the
planner takes each of them to cost the same. Of those it uses the newest one, and would read all of it for one id.
"""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

TABLES = ("workflow_item", "workflow_message", "workflow_signal", "workflow_waiting", "workflow_processed")


def upgrade() -> None:
    if op.get_context().dialect.name == "postgresql":
        for table in TABLES:
            key = f"holdfast_{table}_pkey"
            op.execute(f"ALTER TABLE holdfast_{table} DROP CONSTRAINT {key}, ADD CONSTRAINT {key} PRIMARY KEY (id)")
