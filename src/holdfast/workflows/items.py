"""Items of a workflow that are made, held or taken away outside of a worker's own work."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from holdfast.machine.run import Advance, Work
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.ids import new_record_id
from holdfast.store.paging import every
from holdfast.store.port import Change, Delete, Insert, Store, Swap
from holdfast.store.query import Condition, Where, among, equal, outside
from holdfast.store.record import evolve
from holdfast.workflows.records import FINALIZE, ITEM, ItemRecord, priority_of
from holdfast.workflows.run import Run

HELD: Final = frozenset({WorkflowStatus.PAUSED, WorkflowStatus.BUFFERED})
"""A workflow that stands so has no work that is due."""


def new_items(run: Run, step: Advance) -> list[Change]:
    """Items for anybody, for what a step leaves to do."""
    return [Insert(ITEM, item) for item in made_items(run, step)]


def made_items(run: Run, step: Advance) -> list[ItemRecord]:
    return [_item(run, step, work) for work in (step.wanted() if step.dropped else step.work)]


def _item(run: Run, step: Advance, work: Work) -> ItemRecord:
    record = run.record
    type = "" if work.waits else run.blueprint.plan.stages[work.ref].tasks[work.at].type
    due = None if work.delay is None else step.now + round(work.delay * 1e6)
    held = run.state.status in HELD
    stage = run.stage(work.ref)
    calls = stage.tasks[work.at].attempt if work.what == "wait" else 0  # else it is about the stage as a whole
    return ITEM.make((
        new_record_id(step.now), 1, None if held else due, record.queue, priority_of(record), work.kind, type, None,
        run.id, work.ref, stage.incarnation, work.at, max(1, calls + (not work.waits)), 0, due if held else None,
        run.code,
    ))  # fmt: skip


def dropped_items(store: Store, run: Run, refs: Collection[str], spared: Collection[str] = ()) -> list[Change]:
    """Without the items of these stages. Whoever still runs one of their tasks finds its item gone."""
    found = items_of(store, run, (among("ref", refs),)) if refs else ()
    return [Delete(ITEM, item) for item in found if item.id not in spared]


def held_items(store: Store, run: Run) -> list[Change]:
    """Nothing that nobody has taken is due any more; each remembers when it would have been."""
    found = items_of(store, run, (Condition("due_at", "is set"),))
    return [Swap(ITEM, item, evolve(item, due_at=None, held=item.due_at)) for item in found]


def released_items(store: Store, run: Run) -> list[Change]:
    """What was held is due when it would have been."""
    found = items_of(store, run, (Condition("held", "is set"),))
    return [Swap(ITEM, item, evolve(item, due_at=item.held, held=None)) for item in found]


def items_of(store: Store, run: Run, where: Where = ()) -> Iterator[ItemRecord]:
    """The items of a workflow."""
    return every(store, ITEM, (*equal(workflow=run.id), outside("kind", (FINALIZE,)), *where))
