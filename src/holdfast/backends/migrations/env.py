"""Run by Alembic around the revisions, with the connection or dialect that `sql/migrate.py` has put into the config."""

from alembic import context

from holdfast.backends.sql.schema import VERSION_TABLE

given = context.config.attributes
context.configure(
    connection=given.get("connection"),
    dialect_name=given.get("dialect"),
    as_sql="dialect" in given,
    output_buffer=given.get("output"),
    literal_binds="dialect" in given,
    version_table=VERSION_TABLE,
    # All of it in one transaction, SQLite included.
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
