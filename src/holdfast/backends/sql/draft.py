"""Draft the first revision: `python -m holdfast.backends.sql.draft package.module:KIND … > versions/0001_tables.py`.

What it writes is literal, so that a revision stays what it was when the kinds have moved on. Later revisions are
written by hand, starting from what this prints for the new kinds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, Final

from holdfast.backends.sql.ddl import shared_ddl, tables_ddl
from holdfast.backends.sql.dialect import Dialect, Mariadb, Postgresql, Sqlite
from holdfast.backends.sql.schema import VERSION_TABLE
from holdfast.store.record import Kind

_FRAME: Final = '''"""{title}"""
# ruff: noqa: E501  # statements as the database shows them

from alembic import op

revision = "{revision}"
down_revision = {before}
branch_labels = None
depends_on = None

{lists}


def upgrade() -> None:
    for statement in STATEMENTS[op.get_context().dialect.name]:
        op.execute(statement)
'''


def draft(kinds: Iterable[Kind[Any]], *, title: str, revision: str = "0001", before: str | None = None) -> str:
    """The text of a revision that makes the tables of these kinds."""
    dialects: Sequence[Dialect] = (Sqlite(), Postgresql(), Mariadb())
    made = list(kinds)
    parts = []
    for dialect in dialects:
        shared = [] if before else [one for one in shared_ddl(dialect) if VERSION_TABLE not in one]  # Alembic makes it
        statements = shared + [statement for kind in made for statement in tables_ddl(kind, dialect)]
        body = "\n".join(f"    {_literal(statement)}," for statement in statements)
        parts.append(f"{dialect.name.upper()} = (\n{body}\n)")
    names = ", ".join(f'"{dialect.name}": {dialect.name.upper()}' for dialect in dialects)
    parts.append(f'STATEMENTS = {{{names}, "mysql": MARIADB}}')
    quoted = None if before is None else f'"{before}"'
    return _FRAME.format(title=title, revision=revision, before=quoted, lists="\n\n".join(parts))


def _literal(statement: str) -> str:
    lines = [" ".join(line.split()) for line in statement.strip().splitlines()]
    return '"""' + "\n    ".join(line for line in lines if line) + '"""'


def main(words: Sequence[str]) -> None:
    kinds = []
    for word in words:
        module, _, name = word.partition(":")
        kinds.append(getattr(import_module(module), name))
    sys.stdout.write(draft(kinds, title="The first tables."))


if __name__ == "__main__":
    main(sys.argv[1:])
