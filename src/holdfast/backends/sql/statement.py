"""A statement, compiled once for the database's own driver and run again and again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, LiteralString, cast

import sqlalchemy as sa

from holdfast.backends.sql.dialect import Dialect


class Statement:
    """An SQLAlchemy expression whose parameters are called p0, p1 …, and its text for the driver.

    Values are given in the order of those names, whatever the order in the text.
    """

    __slots__ = ("expression", "sql", "texts", "_places", "_size")

    def __init__(self, expression: sa.Executable, dialect: Dialect) -> None:
        compiled = expression.compile(  # type: ignore[attr-defined]  # every statement has it; Executable does not say so
            dialect=dialect.compiler, compile_kwargs={"render_postcompile": True}
        )
        self.expression = expression
        # Literal as far as types go: psycopg asks for it, and no value is ever in it.
        self.sql: LiteralString = cast("Any", str(compiled))
        types = [compiled.binds[name].type for name in compiled.positiontup or ()]
        plain = all(isinstance(one, sa.Text | sa.BigInteger) for one in types)
        self.texts = tuple([isinstance(one, sa.Text) for one in types]) if plain else None
        """Which parameters are texts, in the order of the driver; the others are numbers. None if some are neither."""
        places = [int(name[1:]) for name in compiled.positiontup or ()]
        self._size = len(places)
        self._places = None if places == list(range(self._size)) else places

    def arrange(self, values: Sequence[Any]) -> Sequence[Any]:
        """The values as the driver wants them. Values at the end that it has no use for are left out."""
        if self._places is not None:
            return [values[at] for at in self._places]
        return values if len(values) == self._size else values[: self._size]

    def arranged(self, rows: Sequence[Sequence[Any]]) -> Iterable[Sequence[Any]]:
        """The same for rows that are alike."""
        is_so = self._places is None and len(rows[0]) == self._size
        return rows if is_so else map(self.arrange, rows)

    def named(self, values: Sequence[Any]) -> dict[str, Any]:
        """The values as SQLAlchemy wants them."""
        return {f"p{at}": value for at, value in enumerate(values)}
