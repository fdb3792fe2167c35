"""Ids of workflows, stages and tasks: they sort in the order in which a process makes them. That of a workflow may be
somebody's own choice."""

from __future__ import annotations

from typing import Any, Final

from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.store.codec import micros
from holdfast.store.ids import new_record_id

LONGEST_ID: Final = 191
"""What every database can have in an index."""
TAKEN: Final = frozenset({"dead", "describe", "facets", "finalizers", "prune", "stranded", ".", ".."})
"""What the API, or the grammar of addresses, has where the address of a workflow has its id."""


def new_id(clock: Clock = SYSTEM_CLOCK) -> str:
    """The id of something that is made now."""
    return new_record_id(micros(clock.wall()))


def trouble_with(id: Any) -> str | None:
    """Why something cannot be the id of a new workflow; None if it can."""
    # The ids of its stages begin with it and a dot: stage x of "a.b" would be stage b.x of "a".
    if not _has_address(id) or "." in id:
        return (
            f'an id is a text of 1 to {LONGEST_ID} characters that can be printed, without "/" and ".", got {id!r:.100}'
        )
    return f"the address of {id!r} is that of something else" if id in TAKEN else None


def is_reached(id: Any) -> bool:
    """Whether the API, its console and the command line can ask for a workflow of that id."""
    return _has_address(id) and id not in TAKEN


def _has_address(id: Any) -> bool:
    return isinstance(id, str) and 1 <= len(id) <= LONGEST_ID and id.isprintable() and "/" not in id
