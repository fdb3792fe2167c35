"""Who a worker is that says what it can do."""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

TYPES = {"sqlite": "TEXT", "postgresql": 'TEXT COLLATE "C"'}
MARIADB = "LONGTEXT COLLATE utf8mb4_nopad_bin"


def upgrade() -> None:
    type = TYPES.get(op.get_context().dialect.name, MARIADB)
    op.execute(f"ALTER TABLE holdfast_workflow_serving ADD COLUMN about {type}")
