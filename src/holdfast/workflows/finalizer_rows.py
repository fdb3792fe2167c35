"""Rows of finalizers that are made, taken away or asked for again: each is a step of their workflow."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Final, NamedTuple

from holdfast.errors import InvalidStateTransitionError
from holdfast.machine.finalizer import FINALIZER, UNSETTLED, FinalizerForm, FinalizerRecord, FinalizerState, renewed
from holdfast.machine.run import Advance, Cleanup
from holdfast.machine.workflow import COMPLETE
from holdfast.store.port import Change, Delete, Insert, Store, Swap
from holdfast.store.query import equal
from holdfast.workflows.records import FINALIZE, ITEM
from holdfast.workflows.registry import TaskRegistry
from holdfast.workflows.run import Run
from holdfast.workflows.runs import Blueprints

Act = Callable[[Run, Advance], "list[Change] | None"]
_PAGE: Final = 10_000


class Engine(NamedTuple):
    """What finalizers need of the engine that they belong to."""

    store: Store
    change: Callable[[str, Act], None]
    """A step of a workflow, by its id."""
    tasks: TaskRegistry
    blueprints: Blueprints


def put(
    engine: Engine,
    workflow: str,
    ref: str,
    incarnation: int,
    form: FinalizerForm,
    name: str,
    args: str,
    *,
    place: int | None,
    owner: str | None,
    kept: Callable[[str], None],
) -> None:
    """Register a finalizer. `kept` hears its id before anybody else can find it."""
    key = "\0".join((ref, str(incarnation), form.value, name, args, str(place)))
    id = f"{workflow}.{sha256(key.encode()).hexdigest()[:12]}"

    def act(run: Run, step: Advance) -> list[Change] | None:
        run.read(engine.store, [ref])
        found = engine.store.get(FINALIZER, [id])[0]
        number = run.seq + 1 if place is None else place
        if found is None:
            row = FinalizerRecord(
                id, 1, None, workflow, ref, incarnation, number, form.value, name, args, FinalizerState.PENDING.value,
                0, owner, None, step.now, None, None,
            )  # fmt: skip
            step.add_finalizer(ref, name, incarnation)
            return [Insert(FINALIZER, row)]
        if found.state not in UNSETTLED:
            step.add_finalizer(ref, name, incarnation)
        elif form is not FinalizerForm.LOCAL or found.owner == owner:
            return None  # the task is called once more, and it is there
        return [Swap(FINALIZER, found, renewed(found, owner, number))]

    kept(id)
    engine.change(workflow, act)


def drop(engine: Engine, row: FinalizerRecord) -> bool:
    """Forget a finalizer that has not been run; False if it is not as it was."""
    dropped = False

    def act(run: Run, step: Advance) -> list[Change] | None:
        nonlocal dropped
        found = engine.store.get(FINALIZER, [row.id])[0]
        dropped = found is not None and found.version == row.version
        if not dropped:
            return None
        step.note("finalizer_cleared", row.ref, name=row.name)
        return [Delete(FINALIZER, row)]

    engine.change(row.workflow, act)
    return dropped


def ask_again(engine: Engine, row: FinalizerRecord, by: str) -> None:
    """Have one that has failed or was lost run again. Raises InvalidStateTransitionError."""

    def act(run: Run, step: Advance) -> list[Change] | None:
        run.read(engine.store, [row.ref])
        found = engine.store.get(FINALIZER, [row.id])[0]
        if found is None:
            return None
        if found.state in UNSETTLED:
            raise InvalidStateTransitionError(f"finalizer {row.name!r}", found.state, FinalizerState.PENDING.value)
        step.add_finalizer(row.ref, row.name, row.incarnation, by=by)
        return [Swap(FINALIZER, found, renewed(found, None, found.place))]

    engine.change(row.workflow, act)


def take_up(engine: Engine, workflow: str) -> int:
    """Have those run whose stage is over and that no item is there for; for how many stages that was so."""
    number = 0

    def act(run: Run, step: Advance) -> list[Change] | None:
        nonlocal number
        rows = engine.store.page(FINALIZER, equal(workflow=workflow), by="id", limit=_PAGE)
        waiting = {(row.ref, row.incarnation) for row in rows if row.state in UNSETTLED}
        items = engine.store.page(ITEM, equal(workflow=workflow, kind=FINALIZE), by="id", limit=_PAGE)
        waiting -= {(item.ref, item.incarnation) for item in items}
        run.read(engine.store, {ref for ref, _ in waiting})
        over = [
            Cleanup(ref, incarnation)
            for ref, incarnation in sorted(waiting)
            if run.stage(ref).incarnation != incarnation or run.stage(ref).status in COMPLETE
        ]
        number = len(over)
        step.cleanups += over
        for cleanup in over:
            step.note("finalizers_taken_up", cleanup.ref)
        return [] if over else None

    engine.change(workflow, act)
    return number
