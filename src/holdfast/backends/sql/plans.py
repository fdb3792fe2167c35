"""The statements of one kind, each made when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from holdfast.backends.sql.dialect import Dialect, plain_type
from holdfast.backends.sql.pages import Pages, Read
from holdfast.backends.sql.schema import Tables, tables_of
from holdfast.backends.sql.statement import Statement
from holdfast.backends.sql.where import Binder, Term, bind_terms, holds
from holdfast.store.record import Kind

MOST_KEPT: Final = 512
MOST_FORMS: Final = 16
TOO_MANY_CHANGES: Final = 50  # each costs a count a thousandth of a round trip
LOOKS_EVERY: Final = 8
Made = TypeVar("Made")


class Tally:
    """A count. Where it sums up rows that are to be folded now and then, `looking` is the same count with the number of
    those rows before the sum: a tenth dearer, and therefore only one of a few.
    """

    def __init__(self, statement: Statement, looking: Statement | None) -> None:
        self.statement = statement
        self._looking = looking
        self._asked = 0
        self._left: dict[str, int] = {}

    def looking(self) -> Statement | None:
        """What to ask this time to learn how many rows there are; None if that need not be known."""
        # Threads may lose a few counts to each other; it only has to happen now and then.
        asked, self._asked = self._asked, self._asked + 1
        return None if asked % LOOKS_EVERY else self._looking

    def is_scattered(self, values: Sequence[Any], summed: int, groups: int) -> bool:
        """Whether a fold would leave far fewer rows than were summed up.

        It leaves one for each combination of counted values, of which a group may have many: what that comes to is
        known after a fold, and then only what has come since counts.
        """
        asked = str(values)
        if summed <= groups + TOO_MANY_CHANGES:
            self._left.pop(asked, None)  # or as many rows as there were once would be left alone from now on
            return False
        left = self._left.get(asked)
        is_it = left is None or summed > left + TOO_MANY_CHANGES
        if is_it or left is None or summed < left:
            if len(self._left) >= MOST_KEPT:
                self._left.clear()
            self._left[asked] = summed
        return is_it


class Write:
    """One way of changing a record, in the forms in which it is run. `alike` are the places of values that are sent
    once if they are the same in many rows."""

    def __init__(
        self,
        expression: Any,
        dialect: Dialect,
        bulk: Callable[[tuple[int, ...]], Any],
        *,
        id_at: int = 0,
        alike: Sequence[int] = (),
        in_turn: bool = False,
    ) -> None:
        self.id_at = id_at
        """Where the id is among the values; what is before it are the new ones."""
        self._alike = alike
        self.in_turn = in_turn
        """Whether it may take or free a unique value: then the order of such changes matters, whatever their ids."""
        self._expression = expression
        self._dialect = dialect
        self._bulk = bulk
        self._forms: dict[tuple[int, ...], Statement] = {}

    @cached_property
    def one(self) -> Statement:
        """For one row; the count of rows says whether it was there."""
        return Statement(self._expression, self._dialect)

    @cached_property
    def sure(self) -> Statement:
        """The same, failing if the row was not there: for a transaction that is sent as a whole."""
        if isinstance(self._expression, sa.Insert):
            return self.one
        return Statement(_insisting(self._expression, sa.func.count()), self._dialect)

    @cached_property
    def has_many(self) -> bool:
        """Whether it has a form for many rows in this dialect."""
        return self._dialect.deletes_many or not isinstance(self._expression, sa.Delete)

    def many(self, rows: Sequence[Sequence[Any]]) -> tuple[Statement, list[list[Any]]]:
        """A statement for many rows, and its values for each time that it is to be run.

        Where rows may be gone, it gives the ids of the others.
        """
        first, last = rows[0], rows[-1]
        same = tuple([at for at in self._alike if first[at] == last[at]])
        if same and not _agree(rows, *same):  # as they do where the first one and the last one agree, nearly always
            same = tuple([at for at in same if _agree(rows, at)])
        if same not in self._forms and len(self._forms) >= MOST_FORMS:
            same = ()
        form = self._forms.get(same)
        if form is None:
            form = self._forms[same] = Statement(self._bulk(same), self._dialect)
        shared = [first[at] for at in same]
        given = self._dialect.giving(rows, [at for at in range(len(first)) if at not in same])
        return form, [shared + values for values in given] if shared else given

    @cached_property
    def surely_many(self) -> Statement:
        """For many rows, given as one array for each value, failing unless all of them were there."""
        expression = self._bulk(())
        if not isinstance(expression, sa.Insert):
            texts = postgresql.ARRAY(sa.Text())
            size = sa.func.cardinality(sa.cast(sa.bindparam(f"p{self.id_at}", type_=texts), texts))
            expression = _insisting(expression, sa.cast(sa.func.count() == size, sa.Integer))
        return Statement(expression, self._dialect)


class Form(NamedTuple):
    """A swap of the same fields, again and again. `written` gives their new values and the id, `kept` those of the
    fields that are compared; `texts` are the places of texts among these that may be too long for that. `rest` gives
    what is not written, where it is not compared, either."""

    write: Write
    written: Callable[[Any], Any]
    texts: tuple[int, ...]
    kept: Callable[[Any], Any] | None
    rest: Callable[[Any], Any] | None


class Plans:
    """The statements of one kind in one dialect."""

    def __init__(self, kind: Kind[Any], dialect: Dialect) -> None:
        self.kind = kind
        self.dialect = dialect
        self.tables: Tables = tables_of(kind)
        self.counts_changes = dialect.counts_changes and bool(kind.tally or kind.arrivals)
        self._rows = self.tables.rows
        self.pages = Pages(kind, self._rows, dialect)
        self.places = tuple(range(len(kind.columns)))
        self.long_texts = tuple(
            at for at, column in enumerate(kind.columns) if column.is_text and column.name not in kind.searched
        )
        """The positions of fields that may hold much."""
        self.born = () if kind.born is None else (kind.positions[kind.born],)
        """The position of the field that tells records of one id apart, if there is one."""
        self.fence: Callable[[Any], Any] = itemgetter(0, 1, *self.born)
        """Which record is meant, and how it was read."""
        self._kept: dict[Hashable, Any] = {}
        self.forms: dict[tuple[int, ...], Form] = {}
        """By the fields that are other objects than before."""
        self.last: Form | None = None

    def _keep(self, key: Hashable, make: Callable[[], Made]) -> Made:
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            found = self._kept[key] = make()
        return cast("Made", found)

    def others(self, changed: tuple[int, ...], long: tuple[int, ...]) -> tuple[int, ...]:
        """The positions of all other fields but the id."""
        return self._keep(
            ("others", changed, long), lambda: tuple([at for at in self.places[1:] if at not in {*changed, *long}])
        )

    def counted(self, records: Sequence[Any]) -> int:
        """About how many rows of the counters it takes to change these records together."""
        if not self.dialect.counts_statements:
            return len(records)
        places = [self.kind.positions[name] for name in self.kind.tally]
        return len({tuple([record[at] for at in places]) for record in records})

    @cached_property
    def one(self) -> Statement:
        id = self._rows.c.id
        return Statement(sa.select(*self._rows.c).where(id == Binder().one(id)), self.dialect)

    @cached_property
    def several(self) -> Statement:
        id = self._rows.c.id
        return Statement(sa.select(*self._rows.c).where(self.dialect.listed(id, Binder().one(id))), self.dialect)

    @cached_property
    def hold(self) -> Statement:
        """Locks the listed rows that nobody else has locked; gives their ids and versions."""
        id, version = self._rows.c.id, self._rows.c.version
        listed = sa.select(id, version).where(self.dialect.listed(id, Binder().one(id)))
        return Statement(self.dialect.held(listed, skip=True), self.dialect)

    @cached_property
    def insert(self) -> Write:
        """Values: the record."""
        binder = Binder()
        values = {column.name: binder.one(column) for column in self._rows.c}

        def bulk(same: tuple[int, ...]) -> Any:
            columns, binder = list(self._rows.c), Binder()
            # In a query, PostgreSQL would read a parameter as text, wherever it goes.
            found: dict[int, Any] = {at: sa.cast(binder.one(columns[at]), plain_type(columns[at])) for at in same}
            others = [at for at in self.places if at not in found]
            given = self.dialect.given([(columns[at].name, columns[at]) for at in others], binder.of)
            found |= {at: given.c[columns[at].name] for at in others}
            chosen = sa.select(*(found[at] for at in self.places))
            return self._rows.insert().from_select([column.name for column in columns], chosen)

        made = self._rows.insert().inline().values(values)
        return Write(made, self.dialect, bulk, alike=self.places[1:], in_turn=bool(self.kind.unique))

    def swap(self, changed: tuple[int, ...], kept: tuple[int, ...] = (), long: tuple[int, ...] = ()) -> Write:
        """Values: the new values of the changed fields, the id, the old version, the values of fields that are kept,
        and the lengths of long texts that are kept, too.

        What is kept is not written but a fence: a record that was deleted and made anew has the version of another.
        """
        return self._keep((changed, kept, long), lambda: self._swap(changed, kept, long))

    def _swap(self, changed: tuple[int, ...], kept: tuple[int, ...], long: tuple[int, ...]) -> Write:
        rows = self._rows
        columns = list(rows.c)
        # In the order in which the statement has them, so that nothing is to be rearranged.
        given = [
            *((f"new_{at}", columns[at]) for at in changed),
            *(("id", rows.c.id), ("old", rows.c.version)),
            *((f"kept_{at}", columns[at]) for at in kept),
            *((f"long_{at}", rows.c.version) for at in long),
        ]

        def update(value: Mapping[str, Any]) -> Any:
            is_it = [rows.c.id == value["id"], rows.c.version == value["old"]]
            is_it += [_same(columns[at], value[f"kept_{at}"]) for at in kept]
            is_it += [self.dialect.length(columns[at]) == value[f"long_{at}"] for at in long]
            return rows.update().values({columns[at].name: value[f"new_{at}"] for at in changed}).where(*is_it)

        def bulk(same: tuple[int, ...]) -> Any:
            binder = Binder()
            shared = {given[at][0]: binder.one(given[at][1]) for at in same}
            table = self.dialect.given([pair for at, pair in enumerate(given) if at not in same], binder.of)
            return self._telling(update({**table.c, **shared}))

        binder = Binder()
        one = update({name: binder.one(column) for name, column in given})
        size, in_turn = len(changed), bool(self.kind.unique)
        return Write(one, self.dialect, bulk, id_at=size, alike=range(size), in_turn=in_turn)

    @cached_property
    def delete(self) -> Write:
        """Values: those of the fence."""
        rows, binder = self._rows, Binder()
        columns = self.fence(list(rows.c))

        def bulk(_: tuple[int, ...]) -> Any:
            given = self.dialect.given([(f"old_{column.name}", column) for column in columns], Binder().of)
            there = [column == given.c[f"old_{column.name}"] for column in columns]
            return self._telling(rows.delete().where(*there))

        gone = rows.delete().where(*(column == binder.one(column) for column in columns))
        return Write(gone, self.dialect, bulk, in_turn=bool(self.kind.unique))

    def _telling(self, change: Any) -> Any:
        """The change, giving the ids of the rows that were there, unless whoever writes is alone."""
        return change.returning(self._rows.c.id) if self.dialect.locks else change

    def page(self, form: Read) -> Statement:
        """Values: those of the terms, the cursor's value (unless by id) and id, the limit if it is -1, the offset, and
        with an offset the sum of both."""
        return self._keep(form, lambda: Statement(self.pages.select(form, Binder(), whole=True), self.dialect))

    def sweep(self, form: Read, fields: tuple[str, ...] | None) -> Statement:
        """Values: those of the page, then the new ones. None deletes."""
        return self._keep((form, fields), lambda: Statement(self._sweep(form, fields), self.dialect))

    def tally(self, terms: tuple[Term, ...], by: tuple[str, ...], *, arrivals: bool) -> Tally:
        """Values: those of the terms. Gives the values of `by` and the number.

        Raises ValueError for a field that the kind does not have, or does not count.
        """
        return self._keep((terms, by, arrivals), lambda: self._tally(terms, by, arrivals=arrivals))

    def _tally(self, terms: tuple[Term, ...], by: tuple[str, ...], *, arrivals: bool) -> Tally:
        asked = {*by, *(term.field for term in terms)}
        fields = self.kind.arrivals if arrivals else tuple(self.kind.positions)
        if unknown := sorted(asked - set(fields)):
            raise ValueError(f"{unknown[0]!r} is not counted; counted are {', '.join(fields) or 'no fields'}")
        table, is_counter = self._rows, False
        if arrivals and self.tables.arrivals is not None:
            table, is_counter = self.tables.arrivals, True
        elif self.tables.tally is not None and asked <= set(self.kind.tally):
            table, is_counter = self.tables.tally, True
        sums_changes = is_counter and self.counts_changes
        number: sa.ColumnElement[int] = sa.func.count()
        if sums_changes:  # it would be a decimal
            number = sa.cast(sa.func.sum(self.dialect.addable(table.c.n)), sa.BigInteger)
        elif is_counter:
            number = sa.func.sum(table.c.n)
        counting = self._counting(table, terms, by, number)
        return Tally(counting, self._counting(table, terms, by, sa.func.count(), number) if sums_changes else None)

    def _counting(
        self, table: sa.Table, terms: tuple[Term, ...], by: tuple[str, ...], *numbers: sa.ColumnElement[int]
    ) -> Statement:
        groups = [table.c[name] for name in by]
        where = [holds(table, term, given, self.dialect) for term, given in bind_terms(table, terms, Binder())]
        found = sa.select(*groups, *numbers).select_from(table).where(*where).group_by(*groups)
        return Statement(found, self.dialect)

    def _sweep(self, form: Read, fields: tuple[str, ...] | None) -> Any:
        rows, binder = self._rows, Binder()
        if form.limit is None:
            bound = bind_terms(rows, form.terms, binder)
            meant = sa.and_(sa.true(), *self.pages.conditions(bound, form, []))
        else:
            meant = self.dialect.chosen(rows.c.id, self.pages.select(form, binder, whole=False))
        if fields is None:
            return rows.delete().where(meant)
        values: dict[str, Any] = {name: binder.one(rows.c[name]) for name in fields}
        return rows.update().values({**values, "version": rows.c.version + sa.literal_column("1")}).where(meant)


def _agree(rows: Sequence[Sequence[Any]], *places: int) -> bool:
    """Whether all rows have the same values there."""
    chosen = itemgetter(*places)
    return [*map(chosen, rows)].count(chosen(rows[0])) == len(rows)


def _same(column: sa.Column[Any], value: Any) -> sa.ColumnElement[bool]:
    return column.is_not_distinct_from(value) if column.nullable else column == value


def _insisting(change: Any, check: Any) -> Any:
    """The change as a query that fails, by dividing by nothing, unless the check is other than 0."""
    changed = change.returning(sa.literal_column("1").label("done")).cte("changed")
    return sa.select(sa.literal_column("1").op("/")(check)).select_from(changed)
