"""Starting workflows: the first step, stored together with what is to be done first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Any, Final

from holdfast.errors import Conflict, WorkflowDefinitionError, some_of
from holdfast.machine.run import Advance
from holdfast.store.codec import from_json, to_json
from holdfast.store.ids import new_record_id
from holdfast.store.port import Store
from holdfast.store.query import equal
from holdfast.workflows.beginning import First, Wanted, first_step, needs_another, stored
from holdfast.workflows.following import follow
from holdfast.workflows.records import WORKFLOW, WorkflowRecord
from holdfast.workflows.runs import Blueprints
from holdfast.workflows.settling import WAKE, in_order

TOGETHER: Final = 200
"""How many workflows are started in one commit at most."""
Begin = Callable[[Sequence[First]], bool]
"""Has new workflows stored by a worker of this process, which takes up their first work; False: nobody does."""


def start(store: Store, blueprints: Blueprints, wanted: Wanted) -> str:
    """Store the workflow with its first stages, or waiting for its turn; its id, or that of the one that had the same
    key before.

    Raises WorkflowDefinitionError for a key that a workflow with another input has, and for an id that is taken.
    """
    while True:
        now = store.now()
        id = wanted.id or new_record_id(now)
        following = follow(store, blueprints, (), now, starts=((id, wanted),))
        try:
            store.commit(following.changes, wake=WAKE)
        except Conflict:
            found = _first_with(store, wanted)
            if found is not None:
                return found
            if store.get(WORKFLOW, [id])[0] is not None:
                raise WorkflowDefinitionError(
                    "id_taken", f"workflow {id} was started already; make another one"
                ) from None
            continue  # the definition, or another one of its pipeline, came in between
        blueprints.add(wanted.blueprint)
        return id


def start_all(store: Store, blueprints: Blueprints, wanted: Sequence[Wanted], begin: Begin) -> list[str]:
    """Store many workflows, in as few commits as may be; their ids.

    Raises as `start` does, for the first one that cannot be; those before it are started then.
    """
    ids: list[str] = []
    while len(ids) < len(wanted):
        next = wanted[len(ids) : len(ids) + TOGETHER]
        some = [*takewhile(lambda one: blueprints.has(one.blueprint.id), next)]
        if not some:  # the first one of a definition stores that, too
            some = [next[0]]
        elif together := _start_together(store, some, begin):
            ids += together
            continue
        ids += [start(store, blueprints, one) for one in some]
    return ids


def _start_together(store: Store, wanted: Sequence[Wanted], begin: Begin) -> list[str]:
    """In one commit, where their definitions are there; nothing if that cannot be: one of them is there already, or may
    have to wait for its turn."""
    if any(one.limit is not None for one in wanted):
        return []
    now = store.now()
    firsts = [first_step(one.id or new_record_id(now), one, now) for one in wanted]
    if any(needs_another(*one) for one in zip(wanted, firsts, strict=True)):
        return []
    if not begin(firsts):
        try:
            store.commit(in_order([change for first in firsts for change in stored(*first)]), wake=WAKE)
        except Conflict:
            return []
    return [run.id for run, _ in firsts]


def start_waiting(store: Store, blueprints: Blueprints, pipeline: str, limit: int | None = None) -> bool:
    """Let workflows of a pipeline begin that wait for their turn, if there is room; whether there was anything to do.
    With `limit` so many run at once from now on.

    Whoever makes room does that already: this is for room that nobody has made.
    """
    while True:
        changes = follow(store, blueprints, (), store.now(), pipelines=((pipeline, limit),)).changes
        try:
            if changes:
                store.commit(changes, wake=WAKE)
        except Conflict:
            continue
        return bool(changes)


def _first_with(store: Store, wanted: Wanted) -> str | None:
    """The workflow that has the key already."""
    if wanted.key is None:
        return None
    for first in store.page(WORKFLOW, equal(idempotency_key=wanted.key), limit=1):
        other = _differs(first, wanted)
        if other is not None:
            story = f"idempotency key {wanted.key!r} belongs to workflow {first.id}, which {other}"
            raise WorkflowDefinitionError("key_taken", story)
        return first.id
    return None


def _differs(first: WorkflowRecord, wanted: Wanted) -> str | None:
    """What the workflow that has the key is, and the wanted one is not; None if they are the same.

    The body of a function is code and no input: who starts the same again after a deployment means the first one. The
    stages of a model have inputs in them, and to fork with other code is to ask for something else.
    """
    blueprint = wanted.blueprint
    if first.name != blueprint.name:
        return f"is a {first.name!r} and no {blueprint.name!r}"
    if first.context != wanted.inputs and (others := _other_inputs(first, wanted)):
        return f"has another input: {some_of(others)}"
    is_code = blueprint.result is not None and wanted.first is Advance.start
    return None if is_code or first.definition == blueprint.id else "has another input in its stages"


def _other_inputs(first: WorkflowRecord, wanted: Wanted) -> list[str]:
    """The names of what is not the same in two inputs. An argument that the function has got since the first one was
    started, and that is at its default, is none of them: whoever starts the same again has not given it."""
    before, now = _texts(from_json(first.context)), _texts(from_json(wanted.inputs))
    defaults = {} if wanted.defaults is None else wanted.defaults()
    later = now.keys() & defaults.keys() - before.keys()
    assumed = _texts({name: defaults[name] for name in later}).items() & now.items()
    return sorted({name for name, _ in (before.items() ^ now.items()) - assumed})


def _texts(inputs: Mapping[str, Any]) -> dict[str, str]:
    """What an input is kept as, argument by argument; a default that is not JSON is none that could be kept."""
    texts = {}
    for name, value in inputs.items():
        with suppress(TypeError, ValueError):
            texts[name] = to_json(value)
    return texts
