"""Users, tokens and sessions."""
# ruff: noqa: E501  # statements as the database shows them

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

SQLITE = (
    """CREATE TABLE holdfast_access_user (
    id TEXT NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    password TEXT NOT NULL,
    role TEXT NOT NULL,
    is_disabled BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    created_by TEXT NOT NULL,
    password_changed_at BIGINT NOT NULL,
    PRIMARY KEY (id)
    )""",
    """CREATE INDEX holdfast_access_user_role_is_disabled_id_idx ON holdfast_access_user (role, is_disabled, id)""",
    """CREATE TABLE holdfast_access_token (
    id TEXT NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    scopes TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    created_by TEXT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT,
    revoked_by TEXT,
    last_used_at BIGINT,
    PRIMARY KEY (id)
    )""",
    """CREATE INDEX holdfast_access_token_created_at_idx ON holdfast_access_token (created_at, id)""",
    """CREATE TABLE holdfast_access_session (
    id TEXT NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    user_name TEXT NOT NULL,
    csrf TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    since BIGINT NOT NULL,
    PRIMARY KEY (id)
    )""",
    """CREATE INDEX holdfast_access_session_due_at_idx ON holdfast_access_session (due_at, id) WHERE due_at IS NOT NULL""",
    """CREATE INDEX holdfast_access_session_user_name_due_at_idx ON holdfast_access_session (user_name, due_at, id) WHERE due_at IS NOT NULL""",
)

POSTGRESQL = (
    """CREATE TABLE holdfast_access_user (
    id TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    password TEXT COLLATE "C" NOT NULL,
    role TEXT COLLATE "C" NOT NULL,
    is_disabled BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    created_by TEXT COLLATE "C" NOT NULL,
    password_changed_at BIGINT NOT NULL,
    PRIMARY KEY (id)
    )
    WITH (fillfactor = 90)""",
    """CREATE INDEX holdfast_access_user_role_is_disabled_id_idx ON holdfast_access_user (role, is_disabled, id)""",
    """CREATE TABLE holdfast_access_token (
    id TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    name TEXT COLLATE "C" NOT NULL,
    digest TEXT COLLATE "C" NOT NULL,
    scopes TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    created_by TEXT COLLATE "C" NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT,
    revoked_by TEXT COLLATE "C",
    last_used_at BIGINT,
    PRIMARY KEY (id)
    )
    WITH (fillfactor = 90)""",
    """CREATE INDEX holdfast_access_token_created_at_idx ON holdfast_access_token (created_at, id)""",
    """CREATE TABLE holdfast_access_session (
    id TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    user_name TEXT COLLATE "C" NOT NULL,
    csrf TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    since BIGINT NOT NULL,
    PRIMARY KEY (id)
    )
    WITH (fillfactor = 90)""",
    """CREATE INDEX holdfast_access_session_due_at_idx ON holdfast_access_session (due_at, id) WHERE due_at IS NOT NULL""",
    """CREATE INDEX holdfast_access_session_user_name_due_at_idx ON holdfast_access_session (user_name, due_at, id) WHERE due_at IS NOT NULL""",
)

MARIADB = (
    """CREATE TABLE holdfast_access_user (
    id VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    password LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    role VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    is_disabled BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    created_by LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    password_changed_at BIGINT NOT NULL,
    PRIMARY KEY (id)
    )CHARSET=utf8mb4""",
    """CREATE INDEX holdfast_access_user_role_is_disabled_id_idx ON holdfast_access_user (role, is_disabled, id)""",
    """CREATE TABLE holdfast_access_token (
    id VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    name LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    digest LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    scopes LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    created_at BIGINT NOT NULL,
    created_by LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT,
    revoked_by LONGTEXT COLLATE utf8mb4_nopad_bin,
    last_used_at BIGINT,
    PRIMARY KEY (id)
    )CHARSET=utf8mb4""",
    """CREATE INDEX holdfast_access_token_created_at_idx ON holdfast_access_token (created_at, id)""",
    """CREATE TABLE holdfast_access_session (
    id VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    version BIGINT NOT NULL,
    due_at BIGINT,
    user_name VARCHAR(191) COLLATE utf8mb4_nopad_bin NOT NULL,
    csrf LONGTEXT COLLATE utf8mb4_nopad_bin NOT NULL,
    created_at BIGINT NOT NULL,
    since BIGINT NOT NULL,
    PRIMARY KEY (id)
    )CHARSET=utf8mb4""",
    """CREATE INDEX holdfast_access_session_due_at_idx ON holdfast_access_session (due_at, id)""",
    """CREATE INDEX holdfast_access_session_user_name_due_at_idx ON holdfast_access_session (user_name, due_at, id)""",
)

STATEMENTS = {"sqlite": SQLITE, "postgresql": POSTGRESQL, "mariadb": MARIADB, "mysql": MARIADB}


def upgrade() -> None:
    for statement in STATEMENTS[op.get_context().dialect.name]:
        op.execute(statement)
