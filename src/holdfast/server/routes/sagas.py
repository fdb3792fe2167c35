"""Sagas: calls that together either happen or are undone. See them, have them undone, help those that are stuck."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar, Final
from uuid import UUID

from fastapi import Query
from pydantic import BaseModel, Field

from holdfast.access.rights import REVEAL
from holdfast.machine.saga import PlannedStep, SagaState, StepState, is_backward
from holdfast.outbox.sagas.rows import SagaRun
from holdfast.outbox.sagas.searching import COUNTED
from holdfast.server.problems import not_found, refused
from holdfast.server.routes.audit import Name, cursor_after
from holdfast.server.routing import Asked, Asking, Routes
from holdfast.server.shapes import After, Limit, MayReason, Page, Reasoned
from holdfast.store.codec import clean_text
from holdfast.views.audit import cursor_text
from holdfast.views.sagas import call_document, saga_document

routes: Final = Routes("sagas")
_BY_HAND_FORWARD: Final = frozenset({StepState.UNKNOWN, StepState.SKIPPED})


class SagaStep(BaseModel):
    """A step. `after`, `compensable` and `pivot` are null where this server does not have the definition; `resolvable`
    says that it was given up, and that somebody may say it was done by hand.
    """

    name: str
    state: StepState
    result: Any
    error: str | None
    undos: int
    after: list[str] | None = None
    compensable: bool | None = None
    pivot: bool | None = None
    resolvable: bool = False


class Saga(BaseModel):
    """A saga that was started. Its data, and what its steps gave, are masked; `reveal` shows them."""

    saga_id: UUID
    definition: str
    version: int
    state: SagaState
    subject_id: str
    data: Any
    steps: list[SagaStep]
    reason: str | None
    started_at: datetime
    changed_at: datetime
    deadline_at: datetime | None


class SagaCall(BaseModel):
    """An entry of the outbox that a step asked for: `forward` does what it is for, `backward` undoes it."""

    entry_id: UUID
    step: str | None
    direction: str | None
    operation: str
    resolver: str
    status: str
    attempts: int
    last_error: str | None
    enqueued_at: datetime
    last_attempt_at: datetime | None
    next_attempt_at: datetime | None


class SagaMove(BaseModel):
    """Something that can be done to it, or why it cannot."""

    act: str
    possible: bool
    reason: str


class SagaShown(Saga):
    """A saga, the calls that it asked for, and what can be done now; `known`: this server has its definition."""

    entries: list[SagaCall]
    known: bool
    moves: list[SagaMove]


class SagaRevealed(BaseModel):
    """A saga as it was kept."""

    saga: Saga


class SagaFacets(BaseModel):
    """How many sagas there are. Of the states in `at_least` there are so many or more: counting ends at 10,000."""

    by_state: dict[str, int]
    at_least: list[str]
    definitions: list[str]


class ResolveRequest(Reasoned):
    """The step that was done by hand."""

    audited: ClassVar = ("step",)

    step: str = Field(min_length=1, max_length=255)


@routes.reads(response_model=Page[Saga])
def find(
    asked: Asking,
    state: SagaState | None = None,
    definition: Name = None,
    subject_id: Annotated[Name, Query(description="Whom or what it is about.")] = None,
    limit: Limit = 50,
    after: After = None,
) -> Any:
    """Sagas, the newest first. A page may have few, or none, and yet a `next`: by definition 10,000 are searched at a
    time.
    """
    found = asked.hold.sagas.search(
        state=state, definition=definition, subject_id=subject_id, limit=limit, after=cursor_after(after)
    )
    return {
        "items": [saga_document(run, asked.hold.sagas) for run in found.sagas],
        "next": None if found.after is None else cursor_text(found.after),
    }


@routes.reads("/facets", response_model=SagaFacets)
def facets(asked: Asking) -> Any:
    """How many sagas there are in each state, and of which definitions."""
    found = asked.hold.sagas.facets()
    at_least = sorted(state for state, number in found.by_state.items() if number >= COUNTED)
    return {"by_state": found.by_state, "at_least": at_least, "definitions": found.definitions}


@routes.reads("/{id}", response_model=SagaShown)
def show(asked: Asking, id: UUID) -> Any:
    """One saga: its steps, every call that was asked for, and what can be done now."""
    sagas, run = asked.hold.sagas, _find(asked, id)
    plan = {step.name: step for step in sagas.plan_of(run) or ()}
    shown = saga_document(run, sagas)
    known = bool(plan)
    steps = [{**step, **_planned(run, plan.get(step["name"]), step)} for step in shown["steps"]]
    return {
        **shown,
        "steps": steps,
        "entries": [call_document(entry) for entry in sagas.history(id)],
        "known": known,
        "moves": [_move("cancel", run, known, SagaState.RUNNING), _move("resume", run, known, SagaState.STUCK)],
    }


@routes.acts("/{id}/cancel", response_model=Saga)
def cancel(asked: Asking, id: UUID, body: Reasoned) -> Any:
    """Have a running saga undone. After its pivot that can no longer be done."""
    _known(asked, id)
    if not asked.hold.sagas.cancel(id):
        raise refused("cannot_cancel", f"saga {id} cannot be undone: it is {_find(asked, id).state}, or past its pivot")
    return saga_document(_find(asked, id), asked.hold.sagas)


@routes.acts("/{id}/resume", response_model=Saga)
def resume(asked: Asking, id: UUID, body: MayReason) -> Any:
    """Try again what a stuck saga gave up, with new budgets."""
    _known(asked, id)
    if not asked.hold.sagas.resume(id):
        raise refused("cannot_resume", f"saga {id} cannot be resumed: it is {_find(asked, id).state}, not stuck")
    return saga_document(_find(asked, id), asked.hold.sagas)


@routes.acts("/{id}/resolve", response_model=Saga)
def resolve(asked: Asking, id: UUID, body: ResolveRequest) -> Any:
    """Say that what a stuck saga gave up in a step was done by hand."""
    run = _known(asked, id)
    if body.step not in {step.name for step in run.steps}:
        raise not_found("step", clean_text(body.step))
    if not asked.hold.sagas.resolve(id, body.step):
        raise refused("nothing_to_resolve", f"saga {id} has given up nothing in step {body.step!r}")
    return saga_document(_find(asked, id), asked.hold.sagas)


@routes.acts("/{id}/reveal", REVEAL, response_model=SagaRevealed)
def reveal(asked: Asking, id: UUID, body: Reasoned) -> Any:
    """The saga as it was kept, without masks."""
    return {"saga": saga_document(_find(asked, id), asked.hold.sagas, reveal=True)}


def _find(asked: Asked, id: UUID) -> SagaRun:
    run = asked.hold.sagas.get(id)
    if run is None:
        raise not_found("saga", str(id))
    return run


def _known(asked: Asked, id: UUID) -> SagaRun:
    """Raises ProblemError for a saga whose definition is not here: nobody could say what comes next."""
    run = _find(asked, id)
    if not asked.hold.sagas.knows(run):
        raise refused("unknown_definition", _unknown(run), definition=run.definition, version=run.version)
    return run


def _unknown(run: SagaRun) -> str:
    return (
        f"nobody here knows saga {run.definition!r} in version {run.version} with these steps; "
        "serve the program that has it: holdfast serve --app module:hold"
    )


def _move(act: str, run: SagaRun, known: bool, needed: SagaState) -> dict[str, Any]:
    why = "" if run.state is needed else f"it is {run.state}; only a {needed} saga can be {_DONE[act]}"
    if not why and not known:
        why = _unknown(run)
    return {"act": act, "possible": not why, "reason": why}


def _planned(run: SagaRun, planned: PlannedStep | None, step: dict[str, Any]) -> dict[str, Any]:
    if planned is None:
        return {}
    given_up = step["state"] == StepState.UNRESOLVED or (
        step["state"] in _BY_HAND_FORWARD and not is_backward(run.record)
    )
    return {
        "after": list(planned.after),
        "compensable": planned.compensable,
        "pivot": planned.pivot,
        "resolvable": run.state is SagaState.STUCK and given_up,
    }


_DONE: Final = {"cancel": "undone", "resume": "resumed"}
