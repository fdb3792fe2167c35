"""Ending everything of a workflow that is still under way, in the transaction that asks for it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from holdfast.machine.run import Advance
from holdfast.machine.workflow import ACTIVE, WorkflowStatus
from holdfast.store.paging import every
from holdfast.store.port import Change, Delete, Store
from holdfast.store.query import among, equal
from holdfast.workflows.items import items_of
from holdfast.workflows.records import ITEM, STAGE
from holdfast.workflows.run import Run

UNDER_WAY: Final = tuple(sorted(status.value for status in ACTIVE - {WorkflowStatus.NOT_STARTED}))
_BEGUN: Final = ACTIVE - {WorkflowStatus.NOT_STARTED}


def end_all(store: Store, run: Run, step: Advance, spared: Collection[str]) -> list[Change]:
    """Cancel every stage of a workflow that is under way, and delete its items, except the `spared` ones by id.

    Whoever still runs one of its tasks finds the item gone, and throws away what came of it.
    """
    found = [*every(store, STAGE, (*equal(workflow=run.id), among("status", UNDER_WAY)))]
    fresh = [one for one in found if one.ref not in step.changed and run.lacks((one.ref,))]
    run.add([one.ref for one in fresh], fresh)
    for one in found:
        step.cancel_stage(one.ref)
    for ref in [ref for ref, stage in step.changed.items() if stage.status in _BEGUN]:
        step.cancel_stage(ref)  # begun in this very step
    return [Delete(ITEM, item) for item in items_of(store, run) if item.id not in spared]
