"""What a stage sees of the stages before it: their outputs merged into one mapping.

Outputs are taken in topological order, and by `ref_id` where the graph leaves it open. Lists are joined without
repeating an item; otherwise the last one wins. Where two stages that do not depend on each other gave different values
for a key, the winner is an accident of names: that is a *clash*, reported, or refused in strict mode.

A join may say how its branches are combined, with a reducer per key. It gets one value per branch: what a later
stage of the same branch gave replaces what an earlier one did. The result counts as published by the join, so the
stages after it see it too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from holdfast.errors import PermanentError, WorkflowDefinitionError
from holdfast.machine.graph import ordered

Outputs = Mapping[str, Any]
Reducer = Callable[[list[Any]], Any]
Requisites = Mapping[str, Sequence[str]]


class Clash(NamedTuple):
    """A key that stages which do not depend on each other gave different values for."""

    key: str
    refs: tuple[str, ...]
    winner: str

    def __str__(self) -> str:
        stages = ", ".join(repr(ref) for ref in self.refs)
        fix = "rename it in one of them, or give the join a reducer for it"
        return f"stages {stages} publish different values of {self.key!r}, and {self.winner!r} wins by its name; {fix}"


class Merged(NamedTuple):
    """What a stage sees, and what is doubtful about it."""

    values: dict[str, Any]
    clashes: tuple[Clash, ...]


def merge_ancestors(
    ref_id: str,
    requisites: Requisites,
    outputs: Mapping[str, Outputs],
    *,
    reducers: Mapping[str, Mapping[str, str]] | None = None,
    functions: Mapping[str, Reducer] | None = None,
    strict: bool = False,
) -> Merged:
    """The outputs of all stages before `ref_id`, merged. Pure: nothing is changed; values are shared, not copied.

    `requisites` names the stages right before each stage, `outputs` what each published; `reducers` are those of each
    join by its `ref_id`, and `functions` the registered ones. Raises PermanentError for values that a reducer cannot
    take and, when `strict`, for a clash.
    """
    lineage = _Lineage(ref_id, requisites)
    written: dict[str, list[_Written]] = {}
    for ref in (*lineage.order, ref_id):
        for key, name in ((reducers or {}).get(ref) or {}).items():
            _reduce(ref, key, name, reducer_named(name, functions), written, lineage)
        if ref != ref_id:
            for key, value in (outputs.get(ref) or {}).items():
                _write(written.setdefault(key, []), ref, value)
    values = {key: _folded(entries) for key, entries in written.items()}
    clashes = tuple(found for key, entries in written.items() if (found := _clash(key, entries, lineage)))
    if clashes and strict:
        raise PermanentError("; ".join(str(clash) for clash in clashes))
    return Merged(values, clashes)


def reducer_named(name: str, functions: Mapping[str, Reducer] | None = None) -> Reducer:
    """A built-in or registered reducer. Raises WorkflowDefinitionError (`unknown_reducer`)."""
    found = REDUCERS.get(name) or (functions or {}).get(name)
    if found is None:
        known = ", ".join([*REDUCERS, *sorted(functions or {})])
        raise WorkflowDefinitionError("unknown_reducer", f"there is no reducer {name!r}; known are {known}")
    return found


def joined(first: Sequence[Any], then: Iterable[Any]) -> list[Any]:
    """The first list, and those items of the other that are not in it yet, each once."""
    seen = {_identity(item) for item in first}
    found = list(first)
    for item in then:
        if (mark := _identity(item)) not in seen:
            seen.add(mark)
            found.append(item)
    return found


class _Written(NamedTuple):
    ref: str
    value: Any


class _Lineage:
    """The stages before one stage, in order, and which of them are before each other."""

    __slots__ = ("_masks", "_places", "_requisites", "_stage", "order")

    def __init__(self, ref_id: str, requisites: Requisites) -> None:
        before: dict[str, Sequence[str]] = {}
        left = list(requisites.get(ref_id, ()))
        while left:
            ref = left.pop()
            if ref not in before:
                before[ref] = requisites.get(ref, ())
                left += before[ref]
        self.order = ordered(before)
        self._requisites = requisites
        self._stage = ref_id
        self._places = {ref: place for place, ref in enumerate(self.order)}
        self._masks: dict[str, int] = {}

    def is_before(self, ref: str, other: str) -> bool:
        return bool(self._before(other) >> self._places[ref] & 1)

    def frontier(self, entries: Sequence[_Written]) -> list[_Written]:
        """Those that no later stage of the same branch has replaced."""
        found: list[_Written] = []
        covered = 0
        for entry in reversed(entries):
            if not covered >> self._places[entry.ref] & 1:
                found.append(entry)
            covered |= self._before(entry.ref)
        return found[::-1]

    def _before(self, ref: str) -> int:
        """The stages before one, as bits. Most merges never ask: few keys are written twice."""
        if not self._masks:
            for one in (*self.order, self._stage):
                mask = 0
                for requisite in self._requisites.get(one, ()):
                    mask |= self._masks[requisite] | 1 << self._places[requisite]
                self._masks[one] = mask
        return self._masks[ref]


def _write(entries: list[_Written], ref: str, value: Any) -> None:
    if entries and entries[-1].ref == ref:
        entries.pop()  # what a join publishes itself is rather its word than what a reducer made
    entries.append(_Written(ref, value))


def _reduce(
    ref: str, key: str, name: str, reducer: Reducer, written: dict[str, list[_Written]], lineage: _Lineage
) -> None:
    """Replace what the branches before a join published by one value of the join."""
    combined: list[_Written] = []
    others: list[_Written] = []
    for entry in written.get(key, ()):
        (combined if lineage.is_before(entry.ref, ref) else others).append(entry)
    if not combined:
        return
    values = [entry.value for entry in lineage.frontier(combined)]
    try:
        value = reducer(values)
    except TypeError as error:
        if name not in REDUCERS:
            raise
        raise PermanentError(f"stage {ref!r} cannot combine {key!r} of the stages before it: {error}") from error
    written[key] = [*others, _Written(ref, value)]


def _folded(entries: Sequence[_Written]) -> Any:
    found = entries[0].value
    for _, value in entries[1:]:
        found = joined(found, value) if isinstance(found, list) and isinstance(value, list) else value
    return found


def _clash(key: str, entries: Sequence[_Written], lineage: _Lineage) -> Clash | None:
    if len(entries) == 1 or all(isinstance(entry.value, list) for entry in entries):
        return None
    last = lineage.frontier(entries)
    if all(isinstance(entry.value, list) for entry in last) or len({_identity(entry.value) for entry in last}) == 1:
        return None
    return Clash(key, tuple(entry.ref for entry in last), last[-1].ref)


def _identity(value: Any) -> str:
    """Equal for equal JSON; True and 1 differ there."""
    return json.dumps(value, sort_keys=True, default=repr)


def _sum(values: list[Any]) -> Any:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"sum needs numbers, got {value!r}")
    return sum(values)


def _extend(values: list[Any]) -> list[Any]:
    for value in values:
        if not isinstance(value, list):
            raise TypeError(f"extend needs lists, got {value!r}")
    return list(chain.from_iterable(values))


def _merge(values: list[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for value in values:
        if not isinstance(value, Mapping):
            raise TypeError(f"merge needs mappings, got {value!r}")
        found.update(value)
    return found


REDUCERS: Final[Mapping[str, Reducer]] = MappingProxyType(
    {
        "collect": list,
        "extend": _extend,
        "sum": _sum,
        "max": max,
        "min": min,
        "merge": _merge,
        "first": lambda values: values[0],
        "last": lambda values: values[-1],
    }
)
"""What a join may combine the values of its branches with, besides registered functions."""
