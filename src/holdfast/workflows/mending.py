"""Mending one workflow: what should be under way and is not gets an item, in one step."""

from __future__ import annotations

from typing import Final

from holdfast.machine import reconcile as machine
from holdfast.machine.run import Advance
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.codec import from_json
from holdfast.store.paging import every
from holdfast.store.port import Change, Store
from holdfast.store.query import Condition, among, equal
from holdfast.workflows.burial import is_item
from holdfast.workflows.control import settled
from holdfast.workflows.ending import UNDER_WAY
from holdfast.workflows.following import JOIN
from holdfast.workflows.items import items_of
from holdfast.workflows.lines import waits_in_line
from holdfast.workflows.records import MESSAGE, STAGE
from holdfast.workflows.run import Run

_PAGE: Final = 1000


def mend(store: Store, run: Run, step: Advance) -> tuple[list[str], list[Change]]:
    """What was found, in words, and the changes; neither if nothing is missing. It may raise Missing."""
    if run.state.status.is_complete or run.state.status is WorkflowStatus.BUFFERED:
        return [], []
    run.read(store, run.blueprint.plan.stages)
    held = {item.ref for item in items_of(store, run, (among("kind", ("run", "wait", "start", JOIN)),))}
    held |= _dead(store, run)
    if run.state.status is WorkflowStatus.NOT_STARTED and waits_in_line(store, run, step):
        found = ["it had not begun, and waits in line"]
    else:
        found = machine.reconcile(step, held, _under_way(store, run))
    if not found:
        return [], []
    step.note("recovered", found=found)
    return found, settled(store, run, step)


def _under_way(store: Store, run: Run) -> list[str]:
    """The stages that have begun, as they are stored; they are here then."""
    found = [*every(store, STAGE, (*equal(workflow=run.id), among("status", UNDER_WAY)))]
    fresh = [one for one in found if run.lacks((one.ref,))]
    run.add([one.ref for one in fresh], fresh)
    return [one.ref for one in found]


def _dead(store: Store, run: Run) -> set[str]:
    """The stages whose item is a dead one: it would only die again, and somebody has to look."""
    where = (*equal(workflow=run.id), Condition("dead_at", "is set"))
    found = store.page(MESSAGE, where, by="id", limit=_PAGE)
    return {from_json(one.payload)["ref"] for one in found if is_item(one)}
