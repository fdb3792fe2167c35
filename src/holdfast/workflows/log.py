"""How far the log of a workflow has come, which is the lock for its steps.

Each step appends the entry with the next number, and only one can: whoever has looked at an earlier state finds the
number taken. A step that changes stages only leaves the workflow's record alone, so its version is the number of the
last step that did not.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.store.port import Store
from holdfast.store.query import equal
from holdfast.workflows.records import EVENT, WORKFLOW, EventRecord, WorkflowRecord

Standing = tuple[WorkflowRecord, int]
"""A workflow's record and the number of the last entry in its log, at one moment."""


def entry_id(workflow: str, seq: int) -> str:
    """The id of an entry, in the order of their numbers."""
    return f"{workflow}.{seq:09d}"


def as_of_now(store: Store, read: Sequence[Standing]) -> list[Standing]:
    """Records that were just read, with the number that was their last as far as is known: as they stand now. Those
    that are gone are left out."""
    if not read:
        return []
    # Where nothing has come after that number, as is so for most, the record is of the same moment: no step is between.
    after = store.get(EVENT, [entry_id(record.id, seq + 1) for record, seq in read])
    found = (one if entry is None else _beyond(store, one[0]) for one, entry in zip(read, after, strict=True))
    return [one for one in found if one is not None]


def stands(store: Store, record: WorkflowRecord) -> Standing | None:
    """The same of one; None if it is gone."""
    found = as_of_now(store, [(record, record.version)])
    return found[0] if found else None


def _beyond(store: Store, record: WorkflowRecord) -> Standing | None:
    while True:
        last = last_entry(store, record.id)
        again = store.get(WORKFLOW, [record.id])[0]
        if again is None:
            return None
        if again == record:  # before and after that look: so it was the same then
            return record, record.version if last is None else int(last.id.rpartition(".")[2])
        record = again


def last_entry(store: Store, workflow: str) -> EventRecord | None:
    """What happened last."""
    found = store.page(EVENT, equal(workflow=workflow), by="id", descending=True, limit=1)
    return found[0] if found else None
