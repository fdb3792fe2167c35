"""Conditions as terms: what a statement looks like, apart from the values that it is run with.

The same conditions with other values make the same terms, so that a statement is compiled once and found again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple, cast

import sqlalchemy as sa

from holdfast.backends.sql.dialect import GREATEST, LEAST, Dialect, plain_type
from holdfast.store.codec import clean_text
from holdfast.store.query import COMPARISONS, OPERATORS, Condition, Where, check
from holdfast.store.record import Column, Kind

LONGEST_LIST: Final = 16  # longer ones become a single parameter


class Term(NamedTuple):
    """A condition without its values.

    `test` is a comparison, `in`, `out` (the same as one parameter: `listed`, `unlisted`), `null` or `set`. `or_null`:
    it also holds for a field that is None.
    """

    field: str
    test: str
    size: int = 0
    or_null: bool = False

    @property
    def parameters(self) -> int:
        return 1 if self.test in ("listed", "unlisted") else self.size


class Asked(NamedTuple):
    """Terms, and the values for their parameters, in that order. `span`: where among these the two are between which
    all ids are that can match, if they are known."""

    terms: tuple[Term, ...] = ()
    values: Sequence[Any] = ()
    span: int | None = None

    def beyond(self, id: str, descending: bool) -> list[Any]:
        """The values for the records that come after this id."""
        values = [*self.values]
        if self.span is not None:
            at = self.span + descending
            values[at] = min(values[at], id) if descending else max(values[at], id)
        return values


ANYTHING: Final = Asked()
_SPAN: Final = (Term("id", ">=", 1), Term("id", "<=", 1))


def ask(kind: Kind[Any], where: Where, dialect: Dialect, *, counters: bool = False) -> Asked | None:
    """The terms of the conditions; None if no record can fulfil them. `counters`: they are asked of these."""
    if not where:
        return ANYTHING
    terms: list[Term] = []
    values: list[Any] = []
    columns, positions = kind.columns, kind.positions
    for condition in where:
        field, operator, value = condition
        if field not in positions or operator not in OPERATORS:
            check(kind, where)
        column = columns[positions[field]]
        if operator in COMPARISONS:
            terms.append(Term(field, operator, 1))
            values.append(_bound(kind, column, value))
            continue
        if operator == "=" and is_storable(column, value):
            terms.append(Term(field, "=", 1))
            values.append(value)
            continue
        term, given = _membership(column, condition)
        if term is None:
            return None
        if term.test == "always":
            continue
        terms.append(term)
        values += [dialect.listing(given)] if term.test in ("listed", "unlisted") else given
    if kind.within is None or counters:
        return Asked(tuple(terms), values)
    return _spanned(kind.within, terms, values)


def _spanned(within: str, terms: list[Term], values: list[Any]) -> Asked:
    """What is asked, and between which ids they are that begin with one value of the field.

    The bounds are as narrow as any that are asked for: of two on the same side SQLite starts at either one.
    """
    places = accumulate((term.parameters for term in terms), initial=0)
    asked = [(term, values[at]) for term, at in zip(terms, places, strict=False) if term.parameters]
    whole = [value for term, value in asked if term.field == within and term.test == "=" and not term.or_null]
    if not whole:
        return Asked(tuple(terms), values)
    low = [f"{whole[0]}.", *(value for term, value in asked if term.field == "id" and term.test[0] == ">")]
    high = [f"{whole[0]}/", *(value for term, value in asked if term.field == "id" and term.test[0] == "<")]
    return Asked((*terms, *_SPAN), [*values, max(low), min(high)], len(values))


def _membership(column: Column, condition: Condition) -> tuple[Term | None, list[Any]]:
    """The term and values of a condition that is no comparison; None if it never holds."""
    name, operator = column.name, condition.operator
    if operator in ("is null", "is set"):
        return Term(name, "null" if operator == "is null" else "set"), []
    given: Iterable[Any] = (condition.value,) if operator == "=" else condition.value
    wanted = list(dict.fromkeys(given))
    with_none = None in wanted
    values = [value for value in wanted if is_storable(column, value)]
    if operator == "not in":
        if not values:
            return Term(name, "set" if with_none else "always"), []
        test = "out" if len(values) <= LONGEST_LIST else "unlisted"
        return Term(name, test, len(values), or_null=column.nullable and not with_none), values
    if not values:
        return (Term(name, "null"), []) if with_none else (None, [])
    if len(values) > LONGEST_LIST:
        return Term(name, "listed", 0, or_null=with_none), values
    return Term(name, "=" if len(values) == 1 else "in", len(values), or_null=with_none), values


def is_storable(column: Column, value: Any) -> bool:
    """Whether a record can have this value, None apart: of the column's type, and within what databases hold."""
    if column.is_text:
        return isinstance(value, str) and ((value.isascii() and "\0" not in value) or clean_text(value) == value)
    return isinstance(value, int) and LEAST <= value <= GREATEST


def _bound(kind: Kind[Any], column: Column, value: Any) -> Any:
    """The value of a comparison, as near as the database can hold it."""
    if column.is_text and isinstance(value, str):
        return clean_text(value)
    if not column.is_text and isinstance(value, int):
        return max(LEAST, min(GREATEST, value))
    expected = "a text" if column.is_text else "a whole number"
    raise TypeError(f"{kind.name}.{column.name} is compared with {value!r}; it is {expected}")


class Binder:
    """Makes the parameters of a statement, named by their places in its values."""

    def __init__(self) -> None:
        self.made = 0

    def one(self, column: sa.ColumnElement[Any]) -> sa.BindParameter[Any]:
        """A parameter for a value of the column."""
        return self.of(plain_type(column))

    def of(self, type: sa.types.TypeEngine[Any]) -> sa.BindParameter[Any]:
        made = sa.bindparam(f"p{self.made}", type_=type)
        self.made += 1
        return made


Bound = list[tuple[Term, list[sa.BindParameter[Any]]]]


def bind_terms(table: sa.FromClause, terms: Sequence[Term], binder: Binder) -> Bound:
    return [(term, [binder.one(table.c[term.field]) for _ in range(term.parameters)]) for term in terms]


def holds(
    table: sa.FromClause, term: Term, given: Sequence[sa.BindParameter[Any]], dialect: Dialect, *, unread: bool = False
) -> Any:
    """The term as an expression; `unread`: one by which no index is to be read."""
    column: Any = dialect.unread(table.c[term.field]) if unread else table.c[term.field]
    match term.test:
        case "null":
            return column.is_(None)
        case "set":
            return column.is_not(None)
        case "=":
            test: sa.ColumnElement[bool] = column == given[0]
        case "in":
            test = column.in_(given)
        case "out":
            test = column.not_in(given)
        case "listed":
            test = dialect.listed(column, given[0])
        case "unlisted":
            test = sa.not_(dialect.listed(column, given[0]))
        case comparison:
            test = cast("sa.ColumnElement[bool]", COMPARISONS[comparison](column, given[0]))
    return sa.or_(test, column.is_(None)) if term.or_null else test
