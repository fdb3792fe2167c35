"""Workers: who is alive, where, what they can do, what they have in hand, and who looks after what."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from pydantic import BaseModel

from holdfast.server.problems import not_found
from holdfast.server.routing import Asking, Routes
from holdfast.server.shapes import Id
from holdfast.store.codec import instant
from holdfast.store.lease import LEASE
from holdfast.store.query import Condition
from holdfast.views.plain import plain
from holdfast.workflows.records import WORKFLOW
from holdfast.workflows.roster import WorkerSeen, in_hand, workers

routes: Final = Routes("workers", prefix="/workers")
_MOST_IN_HAND: Final = 200
_MOST_LEASES: Final = 500


class Worker(BaseModel):
    """A worker of workflows. `state` is busy, idle, late or gone; `versions` null: it takes all of them."""

    id: str
    state: str
    host: str
    pid: int | None
    since: datetime | None
    seen_at: datetime | None
    counts_until: datetime | None
    queues: list[str]
    tasks: list[str]
    versions: list[str] | None
    in_hand: int


class Lease(BaseModel):
    """Something that one process at a time looks after; `name` says what, such as the maintenance of letters."""

    name: str
    holder: str
    until: datetime
    term: int


class Workers(BaseModel):
    """Everybody who works, and who looks after what."""

    now: datetime
    workers: list[Worker]
    leases: list[Lease]


class Held(BaseModel):
    """Something that a worker has in hand."""

    workflow_id: str
    workflow: str
    stage: str
    kind: str
    task: str
    attempt: int
    crashes: int
    queue: str


class WorkerShown(Worker):
    """A worker with what it has in hand, two hundred at most."""

    items: list[Held]


@routes.reads(response_model=Workers)
def find(asked: Asking) -> Any:
    """Everybody who is alive or has work, and what is looked after by one at a time."""
    store = asked.hold.store
    now = store.now()
    held = (Condition("holder", "is set"), Condition("due_at", ">", now))
    leases = [
        {"name": one.id, "holder": one.holder, "until": instant(one.due_at or now), "term": one.term}
        for one in store.page(LEASE, held, by="id", limit=_MOST_LEASES)
    ]
    return {"now": instant(now), "workers": [_shown(one) for one in workers(store)], "leases": leases}


@routes.reads("/{id}", response_model=WorkerShown)
def show(asked: Asking, id: Id) -> Any:
    """One worker, and what it has in hand."""
    store = asked.hold.store
    found = next((one for one in workers(store) if one.id == id), None)
    if found is None:
        raise not_found("worker", id)
    items = in_hand(store, id, _MOST_IN_HAND)
    flows = store.get(WORKFLOW, [one.workflow for one in items])
    held = [
        {
            "workflow_id": one.workflow, "workflow": "" if flow is None else flow.name, "stage": one.ref,
            "kind": one.kind, "task": one.type, "attempt": one.attempt, "crashes": one.crashes, "queue": one.queue,
        }
        for one, flow in zip(items, flows, strict=True)
    ]  # fmt: skip
    return {**_shown(found), "items": held}


def _shown(one: WorkerSeen) -> dict[str, Any]:
    shown: dict[str, Any] = plain(one)
    return shown
