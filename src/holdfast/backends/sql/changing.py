"""Changes as steps: what is written of a record, and what tells that it is still the one that was read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from operator import is_not, itemgetter
from typing import Any, Final

from holdfast.backends.sql.database import Step
from holdfast.backends.sql.plans import Form, Plans, Write

MOST_FORMS: Final = 256
LONG: Final = 1000  # characters; about where PostgreSQL begins to keep texts outside of their row


def changed_places(plans: Plans, old: Sequence[Any], new: Sequence[Any]) -> tuple[int, ...]:
    """The positions of the fields that differ, the version's always among them."""
    # What a machine leaves alone it hands on as it is, and comparing what things are is quicker than what they say.
    changed = tuple([at for at in compress(plans.places, map(is_not, old, new)) if old[at] != new[at]])
    return changed if changed[:1] == (1,) else (1, *changed)


def swap_step(plans: Plans, old: Sequence[Any], new: Sequence[Any]) -> tuple[Write, Sequence[Any]]:
    """How to put `new` in the place of `old` by writing what changes. It may fail for a record that was made anew."""
    # To write a field that says the same, or says it in another object, does no harm; and most swaps are like the last.
    form = plans.last
    if form is None or form.rest is None or form.rest(old) != form.rest(new):
        other = tuple(compress(plans.places, map(is_not, old, new)))
        form = plans.last = plans.forms.get(other) or _form(plans, other, changed_places(plans, old, new))
    write, written, texts, kept, _ = form
    for at in texts:
        if len(new[at] or "") > LONG:
            return _long_step(plans, old, new)
    return write, (*written(new), old[1]) if kept is None else (*written(new), old[1], *kept(old))


def _form(plans: Plans, other: tuple[int, ...], changed: tuple[int, ...]) -> Form:
    """The way of writing these fields, for all that differ where `other` says."""
    changed = tuple(sorted({*other, *changed} - {0}))
    if plans.kind.fresh_ids or plans.born:
        rest = itemgetter(0, 0, *(at for at in plans.places if at not in changed))
        form = Form(plans.swap(changed, plans.born), itemgetter(*changed, 0), (), _getter(plans.born), rest)
    else:
        kept = plans.others(changed, ())
        texts = tuple([at for at in plans.long_texts if at not in changed])
        form = Form(plans.swap(changed, kept), itemgetter(*changed, 0), texts, _getter(kept), None)
    if len(plans.forms) >= MOST_FORMS:
        plans.forms.clear()
    plans.forms[other] = form
    return form


def _getter(places: tuple[int, ...]) -> Callable[[Any], Sequence[Any]] | None:
    if len(places) < 2:
        # A slice is a sequence, too, which a single item is not.
        return itemgetter(slice(places[0], places[0] + 1)) if places else None
    return itemgetter(*places)


def _long_step(plans: Plans, old: Sequence[Any], new: Sequence[Any]) -> tuple[Write, Sequence[Any]]:
    """The same where a text that is kept is long: its length is compared."""
    changed = changed_places(plans, old, new)
    long = tuple([at for at in plans.long_texts if len(new[at] or "") > LONG and at not in changed])
    kept = plans.others(changed, long)
    row = [new[at] for at in changed]
    row += old[:2]
    row += [new[at] for at in kept]
    row += [len(new[at].encode()) for at in long]
    return plans.swap(changed, kept, long), row


def whole_step(plans: Plans, old: Sequence[Any], new: Sequence[Any]) -> tuple[Write, Sequence[Any]]:
    """How to put `new` in the place of whatever has the id and the version of `old`, and was born with it."""
    return plans.swap(plans.places[1:], plans.born), (*new[1:], *plans.fence(old))


class Changes:
    """Swaps of records that were just read, in one step for all that change the same fields."""

    def __init__(self, plans: Plans) -> None:
        self._plans = plans
        self._steps: dict[tuple[int, ...], Step] = {}
        self._kept: Callable[[Any], Any] | None = None

    def add(self, old: Sequence[Any], new: Sequence[Any]) -> None:
        # Most change what the one before has changed; to write a field that stays as it is does no harm.
        if self._kept is None or self._kept(old) != self._kept(new):
            self._turn_to(changed_places(self._plans, old, new))
        self._rows.append((*self._written(new), old[1]))

    def _turn_to(self, changed: tuple[int, ...]) -> None:
        if changed not in self._steps:
            self._steps[changed] = Step(self._plans.swap(changed), [])
        self._rows = self._steps[changed].rows
        self._written = itemgetter(*changed, 0)
        self._kept = itemgetter(*(at for at in self._plans.places if at not in changed))

    @property
    def steps(self) -> list[Step]:
        return [*self._steps.values()]
