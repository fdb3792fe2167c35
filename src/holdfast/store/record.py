"""What a store keeps: frozen records of declared kinds.

A record is a `NamedTuple` of texts and whole numbers whose first three fields are `id`, `version` and `due_at`. Times
are microseconds since 1970 in UTC, nested data is JSON text (`store/codec.py`). A `Kind` says what a backend must know
of a record's fields: their types, what is searched and counted. No backend knows what a value means.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, Union, cast, get_args, get_origin, get_type_hints

Value = str | int | None


class Record(Protocol):
    """A NamedTuple with these fields first, and others of type `str`, `int`, or either with None."""

    @property
    def id(self) -> str: ...
    @property
    def version(self) -> int:
        """1 when it is inserted, one more with every change: the fence against whoever read it earlier."""
        ...

    @property
    def due_at(self) -> int | None:
        """When somebody should look at it next; None: nobody."""
        ...


R = TypeVar("R", bound=Record)


class Index(NamedTuple):
    """Records are found by equal values of `equal` and read in the order of `by`, then id.

    A record whose `by` is None is not in the index, and not in a page ordered by that field. `few`: so few have the
    same values that this index is the one to read by, whatever else is asked for.
    """

    equal: tuple[str, ...]
    by: str
    few: bool = False


class Column(NamedTuple):
    """A field as a backend sees it."""

    name: str
    is_text: bool
    nullable: bool


_HEAD: Final = "id: str, version: int, due_at: int | None"
_HEADS: Final = tuple(
    (Column("id", True, False), Column("version", False, False), Column("due_at", False, maybe))
    for maybe in (True, False)  # a kind whose records are always due may say so
)


@dataclass(frozen=True)
class Kind(Generic[R]):
    """A declared kind of record.

    `unique` fields hold a value once among all records (None any number of times). `tally` names the fields by whose
    values records are counted, so that counts and facets cost the same whatever the size; `arrivals` counts what was
    ever inserted, by the values it then had. `keyed` gives the longest length of a searched text where 191 characters
    are not right; databases that index only bounded texts need it. `fresh_ids` says that no id is given to two records,
    one after the other (those of `new_record_id` are not), and that what is swapped was read: a change then costs what
    it changes, whatever else the record holds. `born` says the same of ids that are given again: it names a whole
    number that a record keeps for life, such as the time when it was made, and that no two records of one id have. A
    swap and a delete conflict with a record that has another, even if its version is the one that was read.

    `within` names a text field whose value, and a ".", the ids begin with, as "order7.stage2" is within "order7". It
    says that there is `Index((within,), "id")`; a store that finds records in the order of their ids has it for
    nothing, where one value of the field is asked for.
    """

    name: str
    record: type[R]
    indexes: tuple[Index, ...] = ()
    unique: tuple[str, ...] = ()
    tally: tuple[str, ...] = ()
    arrivals: tuple[str, ...] = ()
    keyed: dict[str, int] = field(default_factory=dict)
    fresh_ids: bool = False
    born: str | None = None
    within: str | None = None
    columns: tuple[Column, ...] = field(init=False)
    positions: dict[str, int] = field(init=False)
    make: Callable[[Iterable[Any]], R] = field(init=False, repr=False, compare=False)
    """The record of a row: values in the order of the fields, all of them."""

    def __post_init__(self) -> None:
        if not (issubclass(self.record, tuple) and hasattr(self.record, "_fields")):
            raise TypeError(f"kind {self.name!r}: a record is a NamedTuple, {self.record!r} is not")
        hints = get_type_hints(self.record)
        columns = tuple(_column(self.name, name, hint) for name, hint in hints.items())
        names = [column.name for column in columns]
        if columns[:3] not in _HEADS:
            head = ", ".join(f"{name}: {hint}" for name, hint in list(self.record.__annotations__.items())[:3])
            raise TypeError(f"kind {self.name!r}: the first fields must be {_HEAD}, got {head}")
        if self.within is not None:
            object.__setattr__(self, "indexes", tuple(dict.fromkeys((*self.indexes, Index((self.within,), "id")))))
        used = {*self.unique, *self.tally, *self.arrivals, *self.keyed}
        for index in self.indexes:
            used |= {*index.equal, index.by}
        if unknown := sorted(used - set(names)):
            raise TypeError(f"kind {self.name!r} has no field {unknown[0]!r}; it has {', '.join(names)}")
        if self.born is not None and Column(self.born, False, False) not in columns[3:]:
            raise TypeError(f"kind {self.name!r}: `born` is a whole number that is always there, {self.born!r} is not")
        if self.within is not None and Column(self.within, True, False) not in columns[3:]:
            raise TypeError(f"kind {self.name!r}: ids are within a text that is always there, {self.within!r} is not")
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "positions", {name: at for at, name in enumerate(names)})
        # What `_make` does, which is a function in Python that looks at the length as well.
        object.__setattr__(self, "make", partial(tuple.__new__, self.record))

    def __hash__(self) -> int:
        return hash(self.name)

    def make_all(self, rows: Iterable[Iterable[Any]]) -> list[R]:
        """The records of rows."""
        return [*map(tuple.__new__, repeat(self.record), rows)]  # type: ignore[arg-type]  # records are tuples

    def changed(self, record: R, changes: Mapping[str, Value]) -> R:
        """The record with these fields changed. What `_replace` does, in half the time for a record of many fields."""
        row: list[Any] = [*record]  # type: ignore[misc]  # a NamedTuple
        positions = self.positions
        for name, value in changes.items():
            row[positions[name]] = value
        return self.make(row)

    @property
    def searched(self) -> frozenset[str]:
        """The text fields that an index, a unique field or a count holds, and the id."""
        found = {"id", *self.unique, *self.tally, *self.arrivals}
        for index in self.indexes:
            found |= {*index.equal, index.by}
        return frozenset(column.name for column in self.columns if column.is_text and column.name in found)


def evolve(record: R, **changes: Value) -> R:
    """The record's next version."""
    changed = record._replace(version=record.version + 1, **changes)  # type: ignore[attr-defined]  # as above
    return cast("R", changed)


def _column(kind: str, name: str, hint: Any) -> Column:
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    plain = [option for option in options if option is not type(None)]
    # A truth value would come back from most stores as a number.
    if len(plain) != 1 or not isinstance(plain[0], type) or not issubclass(plain[0], str | int) or plain[0] is bool:
        raise TypeError(f"kind {kind!r}: field {name!r} must be a text or a whole number, is {hint!r}")
    return Column(name, issubclass(plain[0], str), len(options) > 1)
