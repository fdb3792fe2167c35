"""Which records are meant: conditions that every backend reads alike.

A condition is `(field, operator, value)`; all of them must hold. `=` and `in` find None like any other value, a
comparison never holds for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from operator import ge, gt, le, lt
from typing import Any, Final, Literal, NamedTuple

from holdfast.store.record import Kind, Value

Operator = Literal["=", "in", "not in", "<", "<=", ">", ">=", "is null", "is set"]
COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
OPERATORS: Final = frozenset({"=", "in", "not in", "is null", "is set", *COMPARISONS})


class Condition(NamedTuple):
    """One thing that must hold. For `in` and `not in` the value is a tuple."""

    field: str
    operator: Operator
    value: Any = None

    def holds(self, actual: Value) -> bool:
        """Whether it holds for a record with this value in the field."""
        match self.operator:
            case "=":
                return bool(actual == self.value)
            case "in":
                return actual in self.value
            case "not in":
                return actual not in self.value
            case "is null":
                return actual is None
            case "is set":
                return actual is not None
        return actual is not None and COMPARISONS[self.operator](actual, self.value)


Where = tuple[Condition, ...]
ANY: Final[Where] = ()


class Cursor(NamedTuple):
    """Where a page ended: the last record's value in the order field, and its id."""

    value: Value
    id: str


def equal(**values: Value) -> Where:
    """Conditions that these fields have these values; None leaves a field out."""
    return tuple(Condition(name, "=", value) for name, value in values.items() if value is not None)


def among(field: str, values: Collection[Value]) -> Condition:
    return Condition(field, "in", tuple(values))


def outside(field: str, values: Collection[Value]) -> Condition:
    """The field has none of these values; None is outside as well."""
    return Condition(field, "not in", tuple(values))


def matcher(kind: Kind[Any], where: Where) -> Callable[[tuple[Any, ...]], bool]:
    """A test for rows, for stores that look at rows in Python."""
    tests = tuple((kind.positions[condition.field], condition.holds) for condition in check(kind, where))

    def matches(row: tuple[Any, ...]) -> bool:
        return all(holds(row[at]) for at, holds in tests)

    return matches


def check(kind: Kind[Any], where: Iterable[Condition]) -> Where:
    """The conditions, if they can be asked of this kind.

    Raises ValueError for an unknown field or operator.
    """
    checked = tuple(where)
    kind_has(kind, (condition.field for condition in checked))
    for condition in checked:
        if condition.operator not in OPERATORS:
            raise ValueError(f"{condition.operator!r} is no operator; use one of {', '.join(sorted(OPERATORS))}")
    return checked


def kind_has(kind: Kind[Any], fields: Iterable[str]) -> None:
    """Raises ValueError for a field that is not the kind's."""
    for name in fields:
        if name not in kind.positions:
            raise ValueError(f"{kind.name} has no field {name!r}; it has {', '.join(kind.positions)}")
