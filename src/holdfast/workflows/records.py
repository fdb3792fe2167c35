"""What is kept of workflows, and how it becomes the states that the machine works on."""

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, NamedTuple

from holdfast.errors import WorkflowError
from holdfast.machine.finalizer import FINALIZER
from holdfast.machine.graph import Edges, edges
from holdfast.machine.run import Part, RunState, StagePlan, StageState, Wait
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.codec import from_json, plain_to_json
from holdfast.store.lease import LEASE
from holdfast.store.record import Index, Kind


class WorkflowRecord(NamedTuple):
    """Texts marked JSON hold JSON."""

    id: str
    version: int  # also the number of the entry in its log that it was written with; later ones are of stages only
    due_at: int | None
    status: str
    name: str
    application: str
    definition: str  # the id of its graph
    queue: str
    priority: int
    pipeline: str | None
    idempotency_key: str | None
    parent: str | None  # the workflow that it was started by; `about` names the stage
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
    kind: str  # run: call a task; wait, start, limit: a time is over; child: a workflow that it started has ended;
    # cancel, retry: the workflow that has started this one asks for it; message: somebody asks for something;
    # finalize: clean up after a stage
    type: str  # the task's, or nothing
    owner: str | None
    workflow: str
    ref: str
    incarnation: int
    at: int
    attempt: int
    crashes: int
    held: int | None = None  # when it will be due, once its workflow is paused no more
    code: str | None = None  # the code version of its workflow, where it has one


class DefinitionRecord(NamedTuple):
    """A graph; all workflows that were made from it share it."""

    id: str
    version: int
    due_at: int | None
    name: str
    graph: str  # JSON


class SignalRecord(NamedTuple):
    """A signal that came before anything waited for it."""

    id: str  # with a dot and the ref at its end if it is for one stage only
    version: int
    due_at: int | None
    workflow: str
    name: str
    value: str  # JSON


class EventRecord(NamedTuple):
    """What happened in one transaction of one workflow."""

    id: str  # the workflow's, a dot, and its number, which only one step can have
    version: int
    due_at: int | None
    workflow: str
    at: int
    events: str  # JSON


class MessageRecord(NamedTuple):
    """What a message says; when it is due, and whose it is, says the item of the same id.

    What nobody could do anything with is kept the same way, without an item: `dead_at` says since when.
    """

    id: str  # the message's own, a logical key
    version: int
    due_at: int | None
    workflow: str
    type: str  # a message's class; of a dead item its kind
    payload: str  # JSON
    attempts: int
    max_attempts: int
    created_at: int
    dead_at: int | None
    error: str | None


class ProcessedRecord(NamedTuple):
    """A message that was handled: its id is taken for as long as its workflow runs."""

    id: str
    version: int
    due_at: int | None
    workflow: str
    handler: str
    at: int


class ConfigRecord(NamedTuple):
    """A configuration that workflows were started with, by its fingerprint."""

    id: str
    version: int
    due_at: int | None
    at: int
    fields: str  # JSON, without secrets


class PipelineRecord(NamedTuple):
    """Workflows of which only so many run at once. Its version orders their starts and ends."""

    id: str
    version: int
    due_at: int | None
    most: int
    running: int
    tickets: int  # how many have had to wait so far
    keeps: int  # 0: who waits is cancelled when a newer one begins


class WaitingRecord(NamedTuple):
    """A workflow that waits for others of its pipeline to end."""

    id: str  # the workflow's
    version: int
    due_at: int | None
    pipeline: str
    ticket: int


class ScheduleRecord(NamedTuple):
    """When a workflow is to be started again and again. `due_at` is the next tick; None while it is paused."""

    id: str  # its name
    version: int
    due_at: int | None
    workflow: str  # the name that it is known by
    input: str  # JSON: args and kwargs
    cron: str
    timezone: str
    overlap: str
    catch_up: int
    paused: int
    created_at: int
    last_tick: int | None = None  # the last one that was looked at
    last_run: str | None = None  # the last workflow that it has started


class WorkerRecord(NamedTuple):
    """Somebody who does work. `due_at` is when he counts as dead."""

    id: str
    version: int
    due_at: int | None
    host: str
    process: str
    about: str  # JSON


FINALIZE: Final = "finalize"
"""The kind of an item that outlives its stage and its workflow: their finalizers are to be run."""


class ServingRecord(NamedTuple):
    """What a worker that stays can do. `due_at` is until when it counts. Texts hold JSON."""

    id: str
    version: int
    due_at: int | None
    queues: str
    tasks: str
    versions: str | None  # those whose runs it takes; none: all
    about: str | None = None  # who it is: host, process, since when, its id when it has work


WORKFLOW: Final = Kind(
    "workflow", WorkflowRecord,
    indexes=(Index((), "created_at"), Index(("status",), "created_at"), Index(("name",), "created_at"),
             Index(("parent",), "created_at"), Index(("pipeline",), "created_at")),
    # Whoever starts a workflow may give it the id of one that is gone. That one was made before it ended, and ended
    # before it was pruned, by the same clock: for both to be of one microsecond, the second start would have to wait
    # for its commit through the whole life of the first.
    unique=("idempotency_key",), tally=("status",), born="created_at",
)  # fmt: skip
# Stages are written with the item of a step, or with their workflow, which tells it from an earlier one of its id.
STAGE: Final = Kind("workflow_stage", StageRecord, within="workflow", fresh_ids=True)
ITEM: Final = Kind(
    "workflow_item",
    ItemRecord,
    indexes=(Index(("queue", "priority"), "due_at"), Index(("owner",), "id"), Index(("workflow",), "id")),
    fresh_ids=True,
)
DEFINITION: Final = Kind("workflow_definition", DefinitionRecord)
SIGNAL: Final = Kind("workflow_signal", SignalRecord, indexes=(Index(("workflow",), "id"),))
EVENT: Final = Kind("workflow_event", EventRecord, within="workflow")
WORKER: Final = Kind("worker", WorkerRecord, indexes=(Index((), "due_at"),))
SERVING: Final = Kind("workflow_serving", ServingRecord)
MESSAGE: Final = Kind(
    "workflow_message", MessageRecord, indexes=(Index(("workflow",), "id"), Index((), "dead_at")),
)  # fmt: skip
PROCESSED: Final = Kind(
    "workflow_processed", ProcessedRecord, indexes=(Index((), "at"), Index(("workflow",), "id"))
)  # fmt: skip
CONFIG: Final = Kind("workflow_config", ConfigRecord)
PIPELINE: Final = Kind("workflow_pipeline", PipelineRecord)
WAITING: Final = Kind("workflow_waiting", WaitingRecord, indexes=(Index(("pipeline",), "ticket"),))
SCHEDULE: Final = Kind("workflow_schedule", ScheduleRecord, indexes=(Index((), "due_at"),))

_MORE: Final = (
    "activated", "answered", "at_will", "bad", "child", "children_left", "finalizers", "flawed", "good", "jumps",
    "keyed", "reason", "resumes", "skip_cause", "spawned", "told", "unwanted", "wait",
)  # fmt: skip
"""What is seldom other than it was at first."""
KINDS: Final = (
    WORKFLOW, STAGE, ITEM, DEFINITION, SIGNAL, EVENT, WORKER, MESSAGE, PROCESSED, CONFIG, PIPELINE, WAITING, SCHEDULE,
    FINALIZER, SERVING, LEASE,
)  # fmt: skip
_more_of: Final = attrgetter(*_MORE)
_USUAL: Final = _more_of(StageState(StagePlan(ref="")))
_NULL: Final = "null"


def stage_text(stage: StageState) -> str:
    """The state of a stage as JSON; what is as it was at first is left out."""
    more, tasks = _more_of(stage), stage.tasks
    if more == _USUAL:
        # A loop, as a generator would take longer than all of this.
        text, comma = _head(stage.part, stage.at, stage.edges, stage.fired), ""
        for task in tasks:
            began, ended, error = task.started_at, task.ended_at, task.error
            text += (
                f'{comma}["{task.status._value_}",{task.attempt},{_NULL if began is None else began},'
                f"{_NULL if ended is None else ended},{_NULL if error is None else plain_to_json(error)}]"
            )
            comma = ","
        return f"{text}]}}"
    # Words of an enumeration are texts to JSON, too.
    state: dict[str, Any] = {"v": 1, "part": stage.part, "at": stage.at, "edges": stage.edges, "fired": stage.fired}
    state["tasks"] = [[t.status, t.attempt, t.started_at, t.ended_at, t.error] for t in tasks]
    state |= {name: value for name, value in zip(_MORE, more, strict=True) if value}
    return plain_to_json(state)


@lru_cache(maxsize=1024)
def _head(part: Part, at: int, edges: Edges, fired: int) -> str:
    """How the text begins, which is the same for most stages."""
    total, open, halted, dead = edges
    return f'{{"v":1,"part":"{part}","at":{at},"edges":[{total},{open},{halted},{dead}],"fired":{fired},"tasks":['


def stage_state(plan: StagePlan, record: StageRecord) -> StageState:
    """Raises WorkflowError for a state that a newer program has written."""
    stage = StageState(plan)
    stage.status = WorkflowStatus(record.status)
    stage.incarnation = record.incarnation
    stage.started_at, stage.ended_at = record.started_at, record.ended_at
    state = from_json(record.state)
    if state["v"] != 1:
        raise WorkflowError(f"stage {record.id} is of a newer Holdfast (form {state['v']}); upgrade this program")
    stage.part, stage.at, stage.edges = Part(state["part"]), state["at"], edges(*state["edges"])
    stage.fired = state.get("fired", 0)
    for name in _MORE:
        if name in state:
            setattr(stage, name, state[name])
    if stage.wait is not None:
        signal, seconds, calls, end = stage.wait
        stage.wait = Wait(signal, seconds, calls, None if end is None else WorkflowStatus(end))
    for task, (status, attempt, started_at, ended_at, error) in zip(stage.tasks, state["tasks"], strict=True):
        task.status, task.attempt, task.error = WorkflowStatus(status), attempt, error
        task.started_at, task.ended_at = started_at, ended_at
    stage.context, stage.outputs = from_json(record.context), from_json(record.outputs)
    return stage


def priority_of(record: WorkflowRecord) -> int:
    """Workers ask for three priorities, each by its own index."""
    return max(-1, min(1, record.priority))


def run_state(record: WorkflowRecord) -> RunState:
    run = RunState()
    run.status = WorkflowStatus(record.status)
    run.live, run.halts, run.reason = record.live, record.halts, record.reason
    run.started_at, run.ended_at = record.started_at, record.ended_at
    return run


def meant_for(signal: SignalRecord) -> str | None:
    """The stage that a signal is for; None: any that waits for its name."""
    return signal.id.partition(".")[2] or None
