"""Ending everything of a workflow that is still under way, in the transaction that asks for it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from holdfast.machine.run import Advance
from holdfast.machine.workflow import ACTIVE, WorkflowStatus
from holdfast.store.port import Change, Delete, Store
from holdfast.store.query import Cursor, among, equal, outside
from holdfast.workflows.records import FINALIZE, ITEM, STAGE
from holdfast.workflows.run import Run

UNDER_WAY: Final = tuple(sorted(status.value for status in ACTIVE - {WorkflowStatus.NOT_STARTED}))
_BEGUN: Final = ACTIVE - {WorkflowStatus.NOT_STARTED}
_PAGE: Final = 1000


def end_all(store: Store, run: Run, step: Advance, spared: Collection[str]) -> list[Change]:
    """Cancel every stage of a workflow that is under way, and delete its items, except the `spared` ones by id.

    Whoever still runs one of its tasks finds the item gone, and throws away what came of it.
    """
    after: Cursor | None = None
    where = (*equal(workflow=run.id), among("status", UNDER_WAY))
    while found := store.page(STAGE, where, by="id", after=after, limit=_PAGE):
        fresh = [one for one in found if one.ref not in step.changed]
        run.add([one.ref for one in fresh if run.lacks((one.ref,))], [one for one in fresh if run.lacks((one.ref,))])
        after = Cursor(found[-1].id, found[-1].id)
        for one in found:
            step.cancel_stage(one.ref)
    for ref in [ref for ref, stage in step.changed.items() if stage.status in _BEGUN]:
        step.cancel_stage(ref)  # begun in this very step
    changes: list[Change] = []
    after = None
    where = (*equal(workflow=run.id), outside("kind", (FINALIZE,)))
    while items := store.page(ITEM, where, by="id", after=after, limit=_PAGE):
        changes += [Delete(ITEM, item) for item in items if item.id not in spared]
        after = Cursor(items[-1].id, items[-1].id)
    return changes
