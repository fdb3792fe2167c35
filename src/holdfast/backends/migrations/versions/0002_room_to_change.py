"""Room in the pages of PostgreSQL for records to change: in full ones it would look for a gap elsewhere each time."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TABLES = ("letter", "letter_summary", "letter_bulk", "replay_domain", "breaker", "lease")


def upgrade() -> None:
    if op.get_context().dialect.name == "postgresql":
        for table in TABLES:
            op.execute(f"ALTER TABLE holdfast_{table} SET (fillfactor = 90)")
