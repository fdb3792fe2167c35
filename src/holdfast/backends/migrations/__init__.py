"""The schema's revisions, for Alembic. They are run by `holdfast.backends.sql.migrate`."""
