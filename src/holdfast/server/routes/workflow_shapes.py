"""What is asked and answered about workflows."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, Field

from holdfast.server.shapes import LONGEST_REASON, MayReason, Reasoned
from holdfast.workflows.signals import APPROVAL

Text = Annotated[str, Field(min_length=1, max_length=400)]


class WorkflowRow(BaseModel):
    """A workflow in a list. `version` is also the number of a transaction in its log: in a list, while it is under way,
    of the last one that has changed more than stages; otherwise of the last one."""

    id: str
    name: str
    application: str
    status: str
    version: int
    queue: str
    priority: int
    idempotency_key: str | None
    created_at: datetime
    start_time: datetime | None
    end_time: datetime | None
    reason: str | None
    parent: str | None
    pipeline: str | None
    place: int | None = None
    cursor: str


class Facets(BaseModel):
    """How many workflows there are by status; names that workflows have, and those that can be started here."""

    by_status: dict[str, int]
    names: list[str]
    startable: list[str]


class StrandedWork(BaseModel):
    """Work that is due and that no worker can take."""

    workflow_id: str
    name: str
    stage: str
    task: str
    queue: str
    code_version: str | None
    since: datetime
    reason: str


class Waits(BaseModel):
    """What a stage waits for: a signal, workflow, time, worker, another attempt, its turn, or whoever holds it."""

    kind: str
    words: str
    due_at: datetime | None


class StageRow(BaseModel):
    """A stage without what it got and left. `note` says why it ended so, or the last error."""

    ref: str
    name: str
    type: str
    status: str
    incarnation: int
    attempts: int
    start_time: datetime | None
    end_time: datetime | None
    after: list[str]
    part_of: str | None
    owner: str | None
    skip_cause: str | None
    waits: Waits | None
    stranded: str | None
    note: str


class TaskShown(BaseModel):
    """A task of a stage."""

    id: str
    name: str
    implementing_class: str
    status: str
    position: int
    attempt: int
    start_time: datetime | None
    end_time: datetime | None
    task_exception_details: dict[str, Any]
    retry_policy: dict[str, Any] | None
    retry_timeouts: bool
    timeout: float | None


class StageShown(StageRow):
    """A stage with its tasks, what it got and what it left. Secrets are masked."""

    workflow_id: str
    context: dict[str, Any]
    outputs: dict[str, Any]
    tasks: list[TaskShown]
    join_type: str
    split_type: str
    mutex_key: str | None
    continue_on_failure: bool
    stage_timeout: float | None
    engine_state: dict[str, Any]


class InHand(BaseModel):
    """Something that is to be done, or is being done by its owner. `kind` run is a call; others wait for a time."""

    stage: str
    position: int
    kind: str
    type: str
    attempt: int
    owner: str | None
    due_at: datetime | None
    crashes: int


class Paused(BaseModel):
    """Who holds or held it."""

    paused_by: str
    pause_time: datetime | None
    resumed_by: str | None
    resume_time: datetime | None
    reason: str


class StepGuarantee(BaseModel):
    """What holds for one task of one stage."""

    stage: str
    task: str
    effect: str | None
    label: str
    """What kind of step it is, in a word or two."""
    words: str


class Guarantees(BaseModel):
    """What holds for each step, and for the whole."""

    name: str
    effect: str
    words: str
    weakest: list[str]
    dead_letter: bool
    steps: list[StepGuarantee]


class FinalizerShown(BaseModel):
    """What is to be done once a stage is over."""

    id: str
    stage: str
    form: str
    name: str
    args: dict[str, Any]
    state: str
    attempts: int
    owner: str | None
    last_error: str | None
    created_at: datetime
    ended_at: datetime | None


class WorkflowShown(BaseModel):
    """A workflow with its stages, the work in hand, and what it guarantees. Secrets are masked."""

    id: str
    name: str
    application: str
    type: str
    status: str
    version: int
    reason: str | None
    created_at: datetime
    start_time: datetime | None
    end_time: datetime | None
    canceled_by: str | None
    paused: Paused | None
    is_paused: bool
    queue: str
    priority: int
    pipeline: str | None
    max_concurrent_executions: int
    place: int | None
    idempotency_key: str | None
    code_version: str | None
    origin: str
    parent: str | None
    forked_from: list[str] | None
    dead_letter: bool
    context: dict[str, Any]
    trigger: dict[str, Any]
    stages: list[StageRow]
    work: list[InHand]
    children: list[WorkflowRow]
    finalizers: list[FinalizerShown]
    guarantees: Guarantees


class LogItem(BaseModel):
    """Something that happened. What happened in one transaction has one `seq`."""

    seq: int
    at: datetime
    type: str
    stage: str | None
    facts: dict[str, Any]


class PastStage(BaseModel):
    """Where a stage stood."""

    status: str
    incarnation: int


class Past(BaseModel):
    """Where a workflow and its stages stood after a transaction. `at` is null before the first one."""

    seq: int
    at: datetime | None
    status: str
    stages: dict[str, PastStage]


class Spot(BaseModel):
    """A place in a drawing: the layer from the left, the row from the top."""

    layer: int
    row: float


class Node(BaseModel):
    """A stage in a drawing."""

    ref: str
    status: str
    place: Spot
    start_time: datetime | None
    end_time: datetime | None
    attempts: int
    incarnation: int
    part_of: str | None
    note: str


class Edge(BaseModel):
    """A line, its bends included. `owner` says how one end belongs to the other; null: the target waits for the source.

    `state` is taken, open (it may still be), or dead.
    """

    source: str
    target: str
    owner: str | None
    state: str
    way: list[Spot]


class Graph(BaseModel):
    """A workflow as a drawing; `drawn` is false, and there are no nodes, where there are more stages than can be."""

    id: str
    status: str
    stages: int
    drawn: bool
    nodes: list[Node]
    edges: list[Edge]


class BarShown(BaseModel):
    """A length of time: a run, from when it could be called, or a wait. `end` is null while it lasts."""

    kind: str
    start: datetime
    end: datetime | None
    task: int
    attempt: int
    outcome: str
    note: str


class LaneShown(BaseModel):
    """One incarnation of a stage."""

    stage: str
    incarnation: int
    start: datetime
    end: datetime | None
    status: str
    bars: list[BarShown]


class Timeline(BaseModel):
    """What stages spent their time on; `complete` is false where the log is too long to be told whole."""

    id: str
    now: datetime
    lanes: list[LaneShown]
    complete: bool


class StartRequest(MayReason):
    """A workflow that the program has made known, with its input by name or by place."""

    audited: ClassVar = ("name", "idempotency_key")
    withheld: ClassVar = ("input",)
    name: Text
    input: dict[str, Any] | list[Any] = Field(default_factory=dict)
    idempotency_key: str | None = Field(None, min_length=1, max_length=200)


class CodeRequest(MayReason):
    """`code_version` lets workers that serve this version of the code run it."""

    audited: ClassVar = ("code_version",)
    code_version: str | None = Field(None, min_length=1, max_length=200)


class RestartRequest(Reasoned):
    """`code_version` lets workers that serve this version of the code run it."""

    audited: ClassVar = ("code_version",)
    code_version: str | None = Field(None, min_length=1, max_length=200)


class SignalRequest(MayReason):
    """A signal for one stage, or for whichever waits for its name. The same `signal_id` again changes nothing."""

    audited: ClassVar = ("name", "stage")
    withheld: ClassVar = ("value",)
    name: Text
    value: Any = None
    stage: Annotated[str, Field(min_length=1, max_length=400)] | None = None
    signal_id: str | None = Field(None, min_length=1, max_length=200)


class WordRequest(MayReason):
    """A yes or no to whichever stage waits for the signal, or to one. Who says it is whoever asks."""

    audited: ClassVar = ("name", "stage")
    name: Text = APPROVAL
    comment: str | None = Field(None, max_length=LONGEST_REASON)
    stage: Annotated[str, Field(min_length=1, max_length=400)] | None = None
    signal_id: str | None = Field(None, min_length=1, max_length=200)


class SignalAnswer(BaseModel):
    """`taken`: a stage waited for it and goes on; otherwise it is kept until one does."""

    taken: bool


class ForkRequest(MayReason):
    """The first stage that runs again, what to change of the input, and new code: a workflow known by that name."""

    audited: ClassVar = ("stage", "workflow")
    withheld: ClassVar = ("context",)
    stage: Text
    context: dict[str, Any] = Field(default_factory=dict)
    workflow: str | None = Field(None, min_length=1, max_length=400)
    idempotency_key: str | None = Field(None, min_length=1, max_length=200)


class RevealRequest(Reasoned):
    """With a stage what that got and left, too."""

    audited: ClassVar = ("stage",)
    stage: Annotated[str, Field(min_length=1, max_length=400)] | None = None


class Revealed(BaseModel):
    """A workflow's input and trigger as they were kept, and those of a stage."""

    context: dict[str, Any]
    trigger: dict[str, Any]
    stage: StageShown | None


class Recovered(BaseModel):
    """What came of looking after a workflow: recovered, skipped (nothing was missing), partial or failed."""

    workflow_id: str
    status: str
    message: str
    found: list[str]


class DeadShown(BaseModel):
    """What was to be done, and why nobody could. Secrets are masked."""

    id: str
    workflow_id: str
    type: str
    stage: str | None
    error: str | None
    attempts: int
    max_attempts: int
    created_at: datetime
    dead_at: datetime
    payload: dict[str, Any]


class Changed(BaseModel):
    """Whether anything was changed."""

    changed: bool
