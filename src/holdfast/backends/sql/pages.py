"""Pages as queries: the rows of some terms in the order of an index, read up to a limit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from math import prod
from typing import Any, Final, NamedTuple, cast

import sqlalchemy as sa

from holdfast.backends.sql.dialect import LEAST, Dialect
from holdfast.backends.sql.schema import made_indexes
from holdfast.backends.sql.where import Binder, Bound, Term, bind_terms, holds
from holdfast.store.query import COMPARISONS
from holdfast.store.record import Index, Kind

MOST_BRANCHES: Final = 64
_RANGES: Final = ("=", "<", "<=", ">", ">=")


class Read(NamedTuple):
    """The form of a page: everything but the values."""

    terms: tuple[Term, ...]
    by: str
    descending: bool = False
    after: bool = False
    offset: bool = False
    limit: int | None = None
    """Written into the statement; otherwise (-1) a parameter, and None: no limit."""
    lock: str = ""
    """`skip` passes over rows that others have locked, `wait` waits for them."""


class Pages:
    """The queries of one kind in one dialect."""

    def __init__(self, kind: Kind[Any], rows: sa.Table, dialect: Dialect) -> None:
        self._kind = kind
        self._rows = rows
        self._dialect = dialect
        self._indexes = made_indexes(kind)

    def is_split(self, terms: tuple[Term, ...], by: str) -> bool:
        """Whether a page is put together from several ranges; then its rows cannot be locked as they are read."""
        return bool(self._split(Read(terms, by, limit=1)))

    def select(self, form: Read, binder: Binder, *, whole: bool) -> sa.Select[*tuple[Any, ...]]:
        """A page, `whole` or its ids only."""
        rows = self._rows
        bound = bind_terms(rows, form.terms, binder)
        last = []
        if form.after:
            last = [] if form.by == "id" else [binder.one(rows.c[form.by])]
            last.append(binder.one(rows.c.id))
        limit = binder.of(sa.BigInteger()) if form.limit == -1 else form.limit
        offset = binder.of(sa.BigInteger()) if form.offset else self._dialect.no_offset
        columns = list(rows.c) if whole else [rows.c.id]
        split = self._split(form)
        if not split:
            found = self._ordered(sa.select(*columns), bound, form, last)
            found = found.limit(_literal(limit)).offset(offset)
            return self._dialect.held(found, skip=form.lock == "skip") if form.lock else found
        enough = binder.of(sa.BigInteger()) if form.offset else _literal(limit)
        chosen = self._branches(bound, form, last, split, _literal(limit), offset, enough)
        if not whole:
            return chosen
        order = _directed(form, (rows.c[name] for name in dict.fromkeys((form.by, "id"))))
        return sa.select(*columns).where(self._dialect.chosen(rows.c.id, chosen)).order_by(*order)

    def _split(self, form: Read) -> frozenset[int]:
        """The positions of the terms whose values are asked for one by one.

        No database reads several ranges of an index in the order of the next column: it would fetch all rows of all
        ranges and sort them. So each range is read on its own, up to the limit.
        """
        split = [at for at in self._leading(form) if form.terms[at].size > 1]
        branches = prod(form.terms[at].size for at in split)
        return frozenset(split) if branches <= MOST_BRANCHES else frozenset()

    def _leading(self, form: Read) -> list[int]:
        """The positions of the terms for the fields that come before the order in the best index, as it has them."""
        places, best = self._best(form)
        return [] if best is None else [places[name] for name in best.equal]

    def _best(self, form: Read) -> tuple[dict[str, int], Index | None]:
        """The positions of the terms by their fields, and the index by which a page is read, if there is one."""
        # The fewest values first, for a field that is asked for twice.
        asked = sorted(enumerate(form.terms), key=lambda item: -item[1].size)
        places = {term.field: at for at, term in asked if term.test in ("=", "in") and not term.or_null}
        usable = [index for index in self._indexes if index.by == form.by and places.keys() >= set(index.equal)]
        if form.limit is None:
            return places, None
        return places, max(usable, key=lambda index: (index.few, len(index.equal)), default=None)

    def _passed_over(self, form: Read) -> frozenset[str]:
        """The fields by which a page must not be read, though there is an index: another one finds far fewer."""
        places, best = self._best(form)
        return frozenset() if best is None or not best.few else frozenset(places) - set(best.equal)

    def _branches(
        self, bound: Bound, form: Read, last: list[Any], split: frozenset[int], limit: Any, offset: Any, enough: Any
    ) -> sa.Select[*tuple[Any, ...]]:
        rows = self._rows
        choices = [
            [(Term(term.field, "=", 1), [one]) for one in given] if at in split else [(term, given)]
            for at, (term, given) in enumerate(bound)
        ]
        branches = []
        for choice in product(*choices):
            branch = self._ordered(sa.select(rows.c.id, rows.c[form.by].label("sorting")), [*choice], form, last)
            first = branch.limit(enough).offset(self._dialect.no_offset)
            if form.lock == "wait":
                first = self._dialect.held(first, skip=False)
            branches.append(sa.select(first.subquery()))
        union = sa.union_all(*branches).subquery("branches")
        order = _directed(form, (union.c.sorting, union.c.id))
        return sa.select(union.c.id).order_by(*order).limit(limit).offset(offset)

    def _ordered(
        self, select: sa.Select[*tuple[Any, ...]], bound: Bound, form: Read, last: Sequence[sa.BindParameter[Any]]
    ) -> sa.Select[*tuple[Any, ...]]:
        """The rows for which the terms hold, beyond the last one seen, in the order of the form."""
        rows = self._rows
        leading = self._leading(form) if self._dialect.sorts_by_whole_index else []
        if any(len(bound[at][1]) > 1 for at in leading):
            leading = []  # of too many branches
        names = dict.fromkeys((*(bound[at][0].field for at in leading), form.by, "id"))
        select = select.where(*self.conditions(bound, form, last, leading))
        return select.order_by(*_directed(form, (rows.c[name] for name in names)))

    def conditions(
        self, bound: Bound, form: Read, last: Sequence[sa.BindParameter[Any]], leading: Sequence[int] = ()
    ) -> list[Any]:
        rows, by = self._rows, self._rows.c[form.by]
        if leading:
            within = {*leading, *(at for at, (term, _) in enumerate(bound) if _is_range(term, form.by))}
            found = [holds(rows, *pair, self._dialect) for at, pair in enumerate(bound) if at not in within]
            found += self._bounds(bound, form, last, leading)
            return [*found, by.is_not(None)] if by.nullable else found
        others = self._passed_over(form)
        found = [holds(rows, *pair, self._dialect, unread=pair[0].field in others) for pair in bound]
        if last and form.by == "id":
            found.append(by < last[0] if form.descending else by > last[0])
        elif last:
            found.append(self._dialect.beyond(by, rows.c.id, last, form.descending))
        if by.nullable and not any(_is_range(term, form.by) for term in form.terms):
            # What `by IS NOT NULL` says, as a range: databases start reading the index where it begins.
            is_text = self._kind.columns[self._kind.positions[form.by]].is_text
            found.append(by >= sa.literal_column("''" if is_text else str(LEAST)))
        return found

    def _bounds(
        self, bound: Bound, form: Read, last: Sequence[sa.BindParameter[Any]], leading: Sequence[int]
    ) -> list[sa.ColumnElement[bool]]:
        """Where the index is entered and left, for rows whose leading fields have these values.

        Rows are compared as a whole, and sorted by all that the index is sorted by. A field that equals a value
        PostgreSQL leaves out of the order, to take any index that has the rest of it: through a whole table, if the
        rows that match are not where it expects them.
        """
        columns = [self._rows.c[bound[at][0].field] for at in leading]
        values = [bound[at][1][0] for at in leading]
        by, id = self._rows.c[form.by], self._rows.c.id
        edges: list[tuple[str, Sequence[Any], Sequence[Any]]] = []
        for term, given in bound:
            if _is_range(term, form.by):
                edges += [(test, [by], given) for test in ((">=", "<=") if term.test == "=" else (term.test,))]
        if last:
            edges.append(("<" if form.descending else ">", [id] if form.by == "id" else [by, id], last))
        edges += [(f"{side}=", [], []) for side in "><" if not any(test.startswith(side) for test, _, _ in edges)]
        compared = [(test, sa.tuple_(*columns, *fields), sa.tuple_(*values, *given)) for test, fields, given in edges]
        return [cast("sa.ColumnElement[bool]", COMPARISONS[test](rows, edge)) for test, rows, edge in compared]


def _directed(form: Read, columns: Iterable[sa.ColumnElement[Any]]) -> list[sa.ColumnElement[Any]]:
    direction = sa.desc if form.descending else sa.asc
    return [direction(column) for column in columns]


def _is_range(term: Term, by: str) -> bool:
    return term.field == by and term.test in _RANGES and not term.or_null


def _literal(limit: Any) -> Any:
    return sa.literal_column(str(limit)) if isinstance(limit, int) else limit
