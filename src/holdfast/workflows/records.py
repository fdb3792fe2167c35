"""What is kept of workflows, and how it becomes the states that the machine works on."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from holdfast.errors import WorkflowError
from holdfast.machine.graph import Edges
from holdfast.machine.run import Part, RunState, StagePlan, StageState, Wait
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.codec import from_json, plain_to_json
from holdfast.store.record import Index, Kind


class WorkflowRecord(NamedTuple):
    """Texts marked JSON hold JSON."""

    id: str
    version: int  # also the number of the last entry in its log
    due_at: int | None
    status: str
    name: str
    application: str
    definition: str  # the id of its graph
    queue: str
    priority: int
    pipeline: str | None
    idempotency_key: str | None
    parent: str | None  # the stage that it was started by
    live: int
    halts: int
    created_at: int
    started_at: int | None
    ended_at: int | None
    reason: str | None
    context: str  # JSON
    about: str  # JSON: what is told of it and decides nothing


class StageRecord(NamedTuple):
    """A stage that something has happened to; the others are as the definition says. Texts marked JSON hold JSON."""

    id: str  # the workflow's, a dot, and the ref
    version: int
    due_at: int | None
    workflow: str
    ref: str
    status: str
    incarnation: int
    started_at: int | None
    ended_at: int | None
    state: str  # JSON
    context: str  # JSON
    outputs: str  # JSON


class ItemRecord(NamedTuple):
    """Work to be done. Whoever does it is its owner; while it has one it is not due."""

    id: str
    version: int  # the fence: who lost an item has an old one
    due_at: int | None
    queue: str
    priority: int
    kind: str  # run: call a task; wait, start, limit: a time is over
    type: str  # the task's, or nothing
    owner: str | None
    workflow: str
    ref: str
    incarnation: int
    at: int
    attempt: int
    crashes: int
    held: int | None = None  # when it will be due, once its workflow is paused no more


class DefinitionRecord(NamedTuple):
    """A graph; all workflows that were made from it share it."""

    id: str
    version: int
    due_at: int | None
    name: str
    graph: str  # JSON


class SignalRecord(NamedTuple):
    """A signal that came before anything waited for it."""

    id: str
    version: int
    due_at: int | None
    workflow: str
    name: str
    value: str  # JSON


class EventRecord(NamedTuple):
    """What happened in one transaction of one workflow."""

    id: str  # the workflow's, a dot, and its version
    version: int
    due_at: int | None
    workflow: str
    at: int
    events: str  # JSON


class WorkerRecord(NamedTuple):
    """Somebody who does work. `due_at` is when he counts as dead."""

    id: str
    version: int
    due_at: int | None
    host: str
    process: str
    about: str  # JSON


WORKFLOW: Final = Kind(
    "workflow", WorkflowRecord,
    indexes=(Index((), "created_at"), Index(("status",), "created_at"), Index(("name",), "created_at"),
             Index(("parent",), "created_at"), Index(("pipeline",), "created_at")),
    unique=("idempotency_key",), tally=("status",),
)  # fmt: skip
STAGE: Final = Kind("workflow_stage", StageRecord, indexes=(Index(("workflow",), "id"),))
ITEM: Final = Kind(
    "workflow_item",
    ItemRecord,
    indexes=(Index(("queue", "priority"), "due_at"), Index(("owner",), "id"), Index(("workflow",), "id")),
)
DEFINITION: Final = Kind("workflow_definition", DefinitionRecord)
SIGNAL: Final = Kind("workflow_signal", SignalRecord, indexes=(Index(("workflow",), "id"),))
EVENT: Final = Kind("workflow_event", EventRecord, indexes=(Index((), "at"), Index(("workflow",), "id")))
WORKER: Final = Kind("worker", WorkerRecord, indexes=(Index((), "due_at"),))

_MORE: Final = (
    "activated", "bad", "children_left", "fired", "flawed", "good", "jumps", "reason", "skip_cause", "spawned", "told",
    "unwanted",
)  # fmt: skip
"""What is seldom other than it was at first."""
KINDS: Final = (WORKFLOW, STAGE, ITEM, DEFINITION, SIGNAL, EVENT, WORKER)


def stage_text(stage: StageState) -> str:
    """The state of a stage as JSON; what is as it was at first is left out."""
    state: dict[str, Any] = {"v": 1, "part": stage.part.value, "at": stage.at, "edges": stage.edges}
    state["tasks"] = [[t.status.value, t.attempt, t.started_at, t.ended_at, t.error] for t in stage.tasks]
    if stage.wait is not None:
        state["wait"] = stage.wait
    for name in _MORE:
        if value := getattr(stage, name):
            state[name] = value
    return plain_to_json(state)


def stage_state(plan: StagePlan, record: StageRecord) -> StageState:
    """Raises WorkflowError for a state that a newer program has written."""
    stage = StageState(plan)
    stage.status = WorkflowStatus(record.status)
    stage.incarnation = record.incarnation
    stage.started_at, stage.ended_at = record.started_at, record.ended_at
    state = from_json(record.state)
    if state["v"] != 1:
        raise WorkflowError(f"stage {record.id} is of a newer Holdfast (form {state['v']}); upgrade this program")
    stage.part, stage.at, stage.edges = Part(state["part"]), state["at"], Edges(*state["edges"])
    if "wait" in state:
        signal, seconds, calls, end = state["wait"]
        stage.wait = Wait(signal, seconds, calls, None if end is None else WorkflowStatus(end))
    for name in _MORE:
        if name in state:
            setattr(stage, name, state[name])
    for task, (status, attempt, started_at, ended_at, error) in zip(stage.tasks, state["tasks"], strict=True):
        task.status, task.attempt, task.error = WorkflowStatus(status), attempt, error
        task.started_at, task.ended_at = started_at, ended_at
    stage.context, stage.outputs = from_json(record.context), from_json(record.outputs)
    return stage


def run_state(record: WorkflowRecord) -> RunState:
    run = RunState()
    run.status = WorkflowStatus(record.status)
    run.live, run.halts, run.reason = record.live, record.halts, record.reason
    run.started_at, run.ended_at = record.started_at, record.ended_at
    return run
