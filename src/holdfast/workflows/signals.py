"""Signals: taken by a stage that waits for them in the step that brings them, else kept until one does."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from holdfast.errors import DeadLetterError, TaskError
from holdfast.machine.run import Advance
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.codec import from_json
from holdfast.store.ids import new_record_id
from holdfast.store.paging import every
from holdfast.store.port import Change, Delete, Insert, Store
from holdfast.store.query import Where, equal
from holdfast.workflows.control import check_ref, settled
from holdfast.workflows.records import ITEM, SIGNAL, STAGE, SignalRecord
from holdfast.workflows.run import Run

APPROVAL: Final = "approval"
"""The name of the signal that brings somebody's word, where nothing else is said."""


class Signal(NamedTuple):
    """`value` is JSON. For the stage `ref`, or with None for whichever waits for the name."""

    name: str
    value: str
    ref: str | None = None
    persistent: bool = True


def word_of(approved: bool, user: str | None, comment: str | None) -> dict[str, Any]:
    """What an approval or a rejection says."""
    return {"approved": approved, "user": user, "comment": comment}


def send(store: Store, run: Run, step: Advance, signal: Signal, most: int) -> tuple[bool, list[Change]]:
    """Whether a stage took it, and the changes; what nobody waits for is kept, at most so many for a workflow.

    Raises TaskError in a workflow that has ended, StageNotFoundError for a stage that is not there, and
    DeadLetterError when too many are kept already.
    """
    name, ref = signal.name, signal.ref
    if ref is not None:
        check_ref(store, run, ref)
    if run.state.status.is_complete:
        raise TaskError(f"workflow {run.id} is {run.state.status.value}; nothing waits for signal {name!r} there")
    changes = _delivered(store, run, step, signal, from_json(signal.value))
    if changes:
        return True, changes
    if not signal.persistent:
        step.note("signal_dropped", ref, name=name)
        return False, []
    kept = sum(store.tally(SIGNAL, (), equal(workflow=run.id)).values())
    if kept >= most:
        raise DeadLetterError(f"workflow {run.id} keeps {kept} signals already, which is as many as signal_buffer_max")
    step.note("signal_kept", ref, name=name)
    id = new_record_id(step.now)
    kept_one = SignalRecord(id if ref is None else f"{id}.{ref}", 1, None, run.id, name, signal.value)
    return False, [Insert(SIGNAL, kept_one)]


def _delivered(store: Store, run: Run, step: Advance, signal: Signal, value: Any) -> list[Change]:
    """Let the first stage that waits for the signal go on; nothing if none does."""
    where: Where = equal(workflow=run.id, status=WorkflowStatus.SUSPENDED.value, ref=signal.ref)
    for stage in every(store, STAGE, where):
        run.add([stage.ref], [stage])
        wait = run.stage(stage.ref).wait
        if wait is not None and wait.takes(signal.name):
            items = store.page(ITEM, equal(workflow=run.id, ref=stage.ref, kind="wait"), by="id", limit=10)
            step.resume(stage.ref, signal.name, value)
            taken = {item.id for item in items}
            return [*(Delete(ITEM, item) for item in items), *settled(store, run, step, taken)]
    return []
