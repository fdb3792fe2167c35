"""Indexes by which letters are found by their user, and sagas by their subject. MariaDB indexes only bounded texts."""

import sqlalchemy as sa
from alembic import context, op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

LETTERS = "CREATE INDEX holdfast_letter_user_id_created_at_idx ON holdfast_letter (user_id, created_at, id)"
SAGAS = "CREATE INDEX holdfast_sagas_subject ON holdfast_sagas (subject_id, started_at, saga_id)"


def upgrade() -> None:
    if op.get_context().dialect.name in ("mysql", "mariadb"):
        op.execute("ALTER TABLE holdfast_letter MODIFY user_id VARCHAR(191) COLLATE utf8mb4_nopad_bin")
    op.execute(LETTERS)
    # A program that mounts the outbox on its own MetaData may have made the index with the table.
    if context.is_offline_mode() or not _has_index("holdfast_sagas", "holdfast_sagas_subject"):
        op.execute(SAGAS)


def _has_index(table: str, name: str) -> bool:
    return any(index["name"] == name for index in sa.inspect(op.get_bind()).get_indexes(table))
