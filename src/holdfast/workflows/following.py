"""What a step of one workflow means to others, written in the same transaction.

A stage that starts a workflow stores it. A workflow that ends makes the stage that waits for it due, and makes room for
the next one of its pipeline. A stage that no longer waits for a workflow has it cancelled: by an item of that workflow,
so that its own steps stay in one order and a quick one cannot hold up its parent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from holdfast.machine.run import Advance
from holdfast.machine.workflow import COMPLETE, S
from holdfast.store.codec import from_json
from holdfast.store.ids import new_record_id
from holdfast.store.port import Change, Insert, Store, Swap
from holdfast.store.query import equal
from holdfast.store.record import evolve
from holdfast.workflows.beginning import Wanted, first_step, needs_another, stored
from holdfast.workflows.children import awaiting
from holdfast.workflows.lines import Lines
from holdfast.workflows.messages import StartWorkflow
from holdfast.workflows.plan import Blueprint
from holdfast.workflows.records import DEFINITION, ITEM, WORKFLOW, DefinitionRecord, ItemRecord, WorkflowRecord
from holdfast.workflows.run import Run
from holdfast.workflows.runs import Blueprints
from holdfast.workflows.sending import sent

CANCEL: Final = "cancel"
RETRY: Final = "retry"
JOIN: Final = "child"
CONTROL: Final = frozenset({CANCEL, RETRY})
"""The kinds of items that are about a workflow as a whole, whatever its stages do."""


class Following(NamedTuple):
    """What is to be stored besides a step, and the definitions that are stored with it."""

    changes: list[Change]
    blueprints: list[Blueprint]


NOTHING: Final = Following([], [])


def follow(
    store: Store,
    blueprints: Blueprints,
    steps: Iterable[tuple[Run, Advance]],
    now: int,
    *,
    starts: Iterable[tuple[str, Wanted]] = (),
    pipelines: Iterable[tuple[str, int | None]] = (),
) -> Following:
    """What these steps mean to other workflows, together with these that are to be started, and with what can begin of
    these pipelines.

    Raises Conflict if a step was decided by what is no more so.
    """
    steps, starts, lines = list(steps), list(starts), Lines(store, blueprints, now)
    for pipeline, most in pipelines:
        lines.open(pipeline, most)
    changes: list[Change] = []
    for run, step in steps:
        starts += [(child.id, child.request) for child in step.children]
        changes += [_control(one, RETRY, now) for one in _records(store, step.revived)]
        found = _records(store, _left_alone(run, step))
        changes += [_control(one, CANCEL, now) for one in found if S(one.status) not in COMPLETE]
        changes += _joined(store, run, now)
        lines.follow(run)  # who ends makes room for those that start
    new: dict[str, Blueprint] = {}
    for id, wanted in starts:
        changes += _begun(store, blueprints, lines, id, wanted, now, new)
    for run, _ in lines.admit():
        changes += _joined(store, run, now)
    return Following([*changes, *lines.changes, *lines.records()], list(new.values()))


def followed(store: Store, blueprints: Blueprints, steps: Iterable[tuple[Run, Advance]]) -> Following:
    """What steps mean to other workflows, where they mean anything. Raises Conflict as `follow` does."""
    others = [one for one in steps if concerns_others(*one)]
    return follow(store, blueprints, others, store.now()) if others else NOTHING


def concerns_others(run: Run, step: Advance) -> bool:
    """Whether a step may mean anything to other workflows."""
    record = run.record
    return bool(
        step.children
        or step.revived
        or (record.pipeline is not None and record.status != run.state.status)
        or (record.parent is not None and run.state.status in COMPLETE)
        or (run.stood(S.SUSPENDED, step.changed) and _left_alone(run, step))
    )


def _begun(
    store: Store, blueprints: Blueprints, lines: Lines, id: str, wanted: Wanted, now: int, new: dict[str, Blueprint]
) -> list[Change]:
    """A workflow that begins, or waits for its turn; and its definition, if that is not stored yet."""
    first = first_step(id, wanted, now)
    later = needs_another(wanted, first)
    if later:
        first = first_step(id, replace(wanted, begins=False), now)
    elif first[0].state.status not in COMPLETE and not _has_its_turn(lines, id, wanted):  # who ends takes no slot
        first = first_step(id, wanted, now, waits=True)
    changes = stored(*first)
    if later:
        changes += sent(StartWorkflow(execution_id=id), now, now, wanted.queue)
    blueprint = wanted.blueprint
    if not blueprints.has(blueprint.id) and blueprint.id not in new:
        new[blueprint.id] = blueprint
        if store.get(DEFINITION, [blueprint.id])[0] is None:
            record = DefinitionRecord(blueprint.id, 1, None, blueprint.name, blueprint.text)
            changes.insert(0, Insert(DEFINITION, record))
    return changes


def _has_its_turn(lines: Lines, id: str, wanted: Wanted) -> bool:
    """Whether a new workflow may begin; otherwise it is in line."""
    if wanted.pipeline is None or wanted.limit is None or not wanted.begins:
        return True
    return lines.enter(wanted.pipeline, id, wanted.limit, wanted.keeps)


def _left_alone(run: Run, step: Advance) -> list[str]:
    """The workflows that stages have waited for, and that have not ended."""
    found: list[str] = []
    for ref in run.stood(S.SUSPENDED, step.changed):
        stage = step.changed[ref]
        if ref not in step.joined and (before := run.as_stored(ref)) is not None:
            child = from_json(before.state).get("child")
            if child is not None and (stage.status is not S.SUSPENDED or stage.child != child):
                found.append(child)
    return found


def _records(store: Store, ids: list[str]) -> Iterator[WorkflowRecord]:
    return (one for one in store.get(WORKFLOW, ids) if one is not None) if ids else iter(())


def _control(child: WorkflowRecord, kind: str, now: int) -> Change:
    priority = max(-1, min(1, child.priority))
    return Insert(
        ITEM,
        ItemRecord(new_record_id(now), 1, now, child.queue, priority, kind, "", None, child.id, "", 0, 0, 1, 0),
    )


def _joined(store: Store, run: Run, now: int) -> list[Change]:
    """The stage that waits for a workflow which has ended goes on, whoever claims its item."""
    stage = awaiting(store, run) if run.state.status in COMPLETE else None
    if stage is None:
        return []
    items = store.page(ITEM, equal(workflow=stage.workflow, ref=stage.ref, kind="wait"), by="id", limit=10)
    return [
        Swap(ITEM, item, evolve(item, kind=JOIN, due_at=now, held=None, owner=None))
        for item in items
        if item.incarnation == stage.incarnation
    ]
