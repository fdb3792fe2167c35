"""Starting workflows: the first step, stored together with what is to be done first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.errors import Conflict, WorkflowDefinitionError
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.codec import micros
from holdfast.store.ids import new_record_id
from holdfast.store.port import Change, Insert, Store
from holdfast.store.query import equal
from holdfast.workflows.items import new_items
from holdfast.workflows.plan import Blueprint
from holdfast.workflows.records import DEFINITION, WORKFLOW, DefinitionRecord, WorkflowRecord
from holdfast.workflows.run import Run
from holdfast.workflows.runs import Blueprints
from holdfast.workflows.settling import WAKE


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A workflow that is to be started. `inputs` and `about` are JSON."""

    blueprint: Blueprint
    inputs: str
    key: str | None = None
    id: str | None = None
    application: str = ""
    queue: str = "default"
    priority: int = 0
    about: str = "{}"
    expires: datetime | None = None


def start(store: Store, blueprints: Blueprints, wanted: Wanted) -> str:
    """Store the workflow with its first stages; its id, or that of the one that had the same key before.

    Raises WorkflowDefinitionError for a key that a workflow with another input has, and for an id that is taken.
    """
    while True:
        now = store.now()
        id = wanted.id or new_record_id(now)
        changes = _first_step(id, wanted, now)
        blueprint = wanted.blueprint
        if not blueprints.has(blueprint.id) and store.get(DEFINITION, [blueprint.id])[0] is None:
            record = DefinitionRecord(blueprint.id, 1, None, blueprint.name, blueprint.text)
            changes.insert(0, Insert(DEFINITION, record))
        try:
            store.commit(changes, wake=WAKE)
        except Conflict:
            found = _first_with(store, wanted)
            if found is not None:
                return found
            if store.get(WORKFLOW, [id])[0] is not None:
                raise WorkflowDefinitionError(
                    "id_taken", f"workflow {id} was started already; make another one"
                ) from None
            continue  # the definition came in between
        blueprints.add(blueprint)
        return id


def _first_step(id: str, wanted: Wanted, now: int) -> list[Change]:
    blueprint = wanted.blueprint
    record = WorkflowRecord(
        id, 0, None, WorkflowStatus.NOT_STARTED.value, blueprint.name, wanted.application, blueprint.id, wanted.queue,
        wanted.priority, None, wanted.key, None, 0, 0, now, None, None, None, wanted.inputs, wanted.about,
    )  # fmt: skip
    run = Run(record, blueprint, is_new=True)
    step = run.advance(now)
    if wanted.expires is not None and micros(wanted.expires) < now:
        step.expire()
    else:
        step.start()
    changes, _, _ = run.changes(step)
    return [*changes, *new_items(run, step)]


def _first_with(store: Store, wanted: Wanted) -> str | None:
    """The workflow that has the key already."""
    if wanted.key is None:
        return None
    for first in store.page(WORKFLOW, equal(idempotency_key=wanted.key), limit=1):
        if (first.definition, first.context) != (wanted.blueprint.id, wanted.inputs):
            story = f"idempotency key {wanted.key!r} belongs to workflow {first.id}, which has another input"
            raise WorkflowDefinitionError("key_taken", story)
        return first.id
    return None
