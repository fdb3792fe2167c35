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
    """Why something cannot be the id of a workflow, which the API, its console and the command line have in addresses;
    None if it can."""
    if not isinstance(id, str) or not 1 <= len(id) <= LONGEST_ID or not id.isprintable() or "/" in id:
        return f'an id is a text of 1 to {LONGEST_ID} characters that can be printed, without "/", got {id!r:.100}'
    return f"the address of {id!r} is that of something else" if id in TAKEN else None
