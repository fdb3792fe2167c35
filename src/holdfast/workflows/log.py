"""How far the log of a workflow has come, which is the lock for its steps.

Each step appends the entry with the next number, and only one can: whoever has looked at an earlier state finds the
number taken. A step that changes stages only leaves the workflow's record alone, for a while; so its version is the
number of the last step that did not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.store.port import Store
from holdfast.store.query import equal
from holdfast.workflows.records import EVENT, WORKFLOW, EventRecord, WorkflowRecord

MOST_BEHIND: Final = 16
"""After so many entries the record is written all the same: who reads it need not look for its last number far away."""
Standing = tuple[WorkflowRecord, int]
"""A workflow's record and the number of the last entry in its log, at one moment."""


def entry_id(workflow: str, seq: int) -> str:
    """The id of an entry, in the order of their numbers."""
    return f"{workflow}.{seq:09d}"


def as_of_now(store: Store, read: Sequence[Standing]) -> list[Standing]:
    """Records that were just read, with the number that was their last as far as is known: as they stand now. Those
    that are gone are left out. For most it is one question that nothing has come since; three for the others, however
    many these are."""
    found = {record.id: (record, seq) for record, seq in read}
    moved = _moved(store, read)
    while moved:
        changed: list[Standing] = []
        for (id, seq), again in zip(moved.items(), store.get(WORKFLOW, list(moved)), strict=True):
            if again is None:
                del found[id]
            elif again == found[id][0]:  # before and after the look at its log: so it was the same then
                found[id] = again, seq
            else:
                found[id] = again, again.version
                changed.append(found[id])
        moved = _moved(store, changed)
    return list(found.values())


def stands(store: Store, record: WorkflowRecord) -> Standing | None:
    """The same of one; None if it is gone."""
    found = as_of_now(store, [(record, record.version)])
    return found[0] if found else None


def _moved(store: Store, standings: Sequence[Standing]) -> dict[str, int]:
    """The last numbers of those that have gone on. Of the others the record is of the same moment: it was read, and
    then there was no entry after it."""
    numbers: dict[str, int] = {}
    asked, width = [(record.id, seq) for record, seq in standings], 1
    while asked:
        entries = store.get(EVENT, [entry_id(id, seq + n) for id, seq in asked for n in range(1, width + 1)])
        more: list[tuple[str, int]] = []
        for at, (id, seq) in enumerate(asked):
            some = entries[at * width : (at + 1) * width]
            there = next((n for n, one in enumerate(some) if one is None), width)  # numbers have no gaps
            if there:
                numbers[id] = seq + there
            if there == width:
                more.append((id, seq + there))
        asked, width = more, MOST_BEHIND
    return numbers


def last_entry(store: Store, workflow: str) -> EventRecord | None:
    """What happened last."""
    found = store.page(EVENT, equal(workflow=workflow), by="id", descending=True, limit=1)
    return found[0] if found else None
