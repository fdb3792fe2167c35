"""Changes as steps: what is written of a record, and what tells that it is still the one that was read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from operator import is_not
from typing import Any, Final

from holdfast.backends.sql.database import Step
from holdfast.backends.sql.plans import Plans, Write

LONG: Final = 1000  # characters; about where PostgreSQL begins to keep texts outside of their row


def changed_places(plans: Plans, old: Sequence[Any], new: Sequence[Any]) -> tuple[int, ...]:
    """The positions of the fields that differ, the version's always among them."""
    # What a machine leaves alone it hands on as it is, and comparing what things are is quicker than what they say.
    changed = tuple([at for at in compress(plans.places, map(is_not, old, new)) if old[at] != new[at]])
    return changed if changed[:1] == (1,) else (1, *changed)


def swap_step(plans: Plans, old: Sequence[Any], new: Sequence[Any]) -> tuple[Write, Sequence[Any]]:
    """How to put `new` in the place of `old` by writing what changes. It may fail for a record that was made anew."""
    changed = changed_places(plans, old, new)
    long = tuple([at for at in plans.long_texts if at not in changed and len(new[at] or "") > LONG])
    kept = tuple([at for at in plans.places[1:] if at not in changed and at not in long])
    row = [new[at] for at in changed]
    row += old[:2]
    row += [new[at] for at in kept]
    row += [len(new[at].encode()) for at in long]
    return plans.swap(changed, kept, long), row


def whole_step(plans: Plans, old: Sequence[Any], new: Sequence[Any]) -> tuple[Write, Sequence[Any]]:
    """How to put `new` in the place of whatever has the id and the version of `old`."""
    return plans.swap(plans.places[1:]), (*new[1:], *old[:2])


def add_change(steps: dict[tuple[int, ...], Step], plans: Plans, old: Sequence[Any], new: Sequence[Any]) -> None:
    """Add a swap of a record that was just read to the step of all that change the same fields."""
    changed = changed_places(plans, old, new)
    step = steps.get(changed)
    if step is None:
        step = steps[changed] = Step(plans.swap(changed), [])
    step.rows.append((*[new[at] for at in changed], old[0], old[1]))
