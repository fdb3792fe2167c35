"""A view of the messages in the outbox, for relays: with the columns that Debezium's outbox event router expects."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles

from holdfast.errors import ConfigurationError
from holdfast.outbox.draft import PUBLISH
from holdfast.outbox.tables import sibling_tables

_SUFFIX: Final = "_cdc"
_CREATE: Final = {
    "sqlite": "CREATE VIEW IF NOT EXISTS",
    "postgresql": "CREATE OR REPLACE VIEW",
    "mariadb": "CREATE OR REPLACE VIEW",
    "mysql": "CREATE OR REPLACE VIEW",
}
_OWN_TYPE: Final = {
    "sqlite": "json_extract(payload, '$.type')",
    "postgresql": "payload ->> 'type'",
    "mariadb": "json_unquote(json_extract(payload, '$.type'))",
}
_DATA: Final = {
    "sqlite": "CASE WHEN payload IS NOT NULL THEN json_quote(json_extract(payload, '$.data')) END",
    "postgresql": "payload -> 'data'",
    "mariadb": "json_extract(payload, '$.data')",
}
# An id in hexadecimal digits, as publishers send it: with its hyphens.
_PARTS: Final = [f"substr(entry_id, {start}, {size})" for start, size in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))]
_HYPHENATED: Final = {"sqlite": " || '-' || ".join(_PARTS), "mysql": f"concat_ws('-', {', '.join(_PARTS)})"}


class CreateCdcView(sa.schema.ExecutableDDLElement):
    """The statement that makes the view of an outbox, or leaves the one that is there: `connection.execute(it)`, or
    `op.execute(it)` in a revision of your own. The view is called like the table, with `_cdc` after it.

    Raises ConfigurationError for a table that `bind_tables` did not give.
    """

    def __init__(self, outbox: sa.Table) -> None:
        self.outbox = sibling_tables(outbox).outbox

    @property
    def name(self) -> str:
        return self.outbox.name + _SUFFIX


@compiles(CreateCdcView)
def _create(element: CreateCdcView, compiler: Any, **_: Any) -> str:
    dialect = compiler.dialect.name
    if dialect not in _CREATE:
        raise ConfigurationError(f"an outbox needs SQLite, PostgreSQL, MariaDB or MySQL, got {dialect}")
    quoted, schema = compiler.preparer.quote, element.outbox.schema
    inside = f"{quoted(schema)}." if schema else ""
    kind = "mariadb" if dialect == "mysql" else dialect
    id = "entry_id" if compiler.dialect.supports_native_uuid else _HYPHENATED[dialect]
    return f"""{_CREATE[dialect]} {inside}{quoted(element.name)} AS
SELECT {id} AS id,
ref_value AS aggregatetype,
coalesce(ordering_key, subject_id) AS aggregateid,
coalesce({_OWN_TYPE[kind]}, ref_value) AS type,
{_DATA[kind]} AS payload,
headers,
enqueued_at AS timestamp,
resolver AS target,
queue,
status
FROM {inside}{quoted(element.outbox.name)}
WHERE operation = '{PUBLISH}' AND status <> 'abandoned'"""
