"""Where a workflow and its stages stand, and what never changes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from holdfast.core.members import members
from holdfast.machine.graph import JOIN, SPLIT, JoinType, SplitType, edges
from holdfast.machine.workflow import S, WorkflowStatus
from holdfast.store.codec import plain_to_json

WORD: Final = "signal"
"""Where the context of a stage has the signal that resumed it: its `name`, and `data` with what it brought."""


def because(reason: str) -> dict[str, str]:
    """What the log says of why somebody asked for something: nothing if no reason was given."""
    return {"reason": reason} if reason else {}


class Owner(StrEnum):
    """When a stage that belongs to another one is run."""

    STAGE_BEFORE = "STAGE_BEFORE"
    STAGE_AFTER = "STAGE_AFTER"
    STAGE_ON_FAILURE = "STAGE_ON_FAILURE"
    INSTANCE = "INSTANCE"
    """One of several runs of the stage, side by side."""


class Part(StrEnum):
    """How far a running stage has come."""

    BEFORE = "before"
    TASKS = "tasks"
    INSTANCES = "instances"
    AFTER = "after"
    FAILURE = "failure"


OWNER: Final = members(Owner)
PART: Final = members(Part)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlan:
    """What never changes of a task."""

    name: str
    type: str
    timeout: float | None = None


class Instances(NamedTuple):
    """How a stage that is run several times at once ends."""

    threshold: int = 0
    """With so many of them; 0: with all."""
    cancel_remaining: bool = False
    allow_dynamic: bool = False
    sync_on_complete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """What never changes of a stage."""

    ref: str
    tasks: tuple[TaskPlan, ...] = ()
    before: tuple[str, ...] = ()
    """The stages that it waits for."""
    after: tuple[str, ...] = ()
    """The stages that wait for it."""
    join: JoinType = JOIN.AND
    threshold: int = 0
    split: SplitType = SPLIT.AND
    parent: str | None = None
    owner: Owner | None = None
    children: Mapping[Owner, tuple[str, ...]] = field(default_factory=dict)
    """The stages that belong to it."""
    continue_on_failure: bool = False
    fail_pipeline: bool = True
    allow_sibling_stages_to_continue: bool = False
    complete_other_branches_then_fail: bool = False
    max_jumps: int = 10
    scheduled_at: int | None = None
    """Not before this time, in microseconds."""
    expires_at: int | None = None
    """It is skipped if it could not start by then."""
    limit_s: float | None = None
    """How long it may take."""
    peers: tuple[str, ...] = ()
    """The stages that are never under way at the same time as it."""
    milestone: tuple[str, WorkflowStatus] | None = None
    """A stage, and the state that it must be in for this one to start."""
    watched_by: tuple[str, ...] = ()
    """The stages whose milestone it is."""
    cancel_region: tuple[str, ...] = ()
    """The stages that are withdrawn when it has come to a good end."""
    rivals: tuple[str, ...] = ()
    """The stages that are withdrawn when it is the first one to go on."""
    instances: Instances | None = None
    works: tuple[Work, ...] = field(init=False, repr=False, compare=False)
    """What is to be done for each of its tasks, at once."""
    word: str = field(init=False, repr=False, compare=False)
    """Its name as JSON."""
    is_plain: bool = field(init=False, repr=False, compare=False)
    """Whether there is nothing to it but one task, the stages that it waits for, all of them, and those after it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "works", tuple([Work(self.ref, at) for at in range(len(self.tasks))]))
        object.__setattr__(self, "word", plain_to_json(self.ref))
        asked = (self.parent, self.milestone, self.instances, self.scheduled_at, self.expires_at, self.limit_s)
        is_plain = (
            len(self.tasks) == 1
            and self.join in (JOIN.AND, JOIN.OR)
            and self.split is SPLIT.AND
            and not (self.children or self.peers or self.watched_by or self.cancel_region or self.rivals)
            and all(one is None for one in asked)
        )
        object.__setattr__(self, "is_plain", is_plain)


class Plan(NamedTuple):
    """The graph of a workflow."""

    stages: Mapping[str, StagePlan]
    roots: tuple[str, ...]


class TaskState:
    """Where a task stands."""

    __slots__ = ("attempt", "ended_at", "error", "started_at", "status")

    def __init__(self) -> None:
        self.status = S.NOT_STARTED
        self.attempt = 0
        self.started_at: int | None = None
        self.ended_at: int | None = None
        self.error: dict[str, Any] | None = None


class Wait(NamedTuple):
    """What a suspended stage waits for."""

    signal: str | None
    """A name, or "*" for any; None: only a time."""
    seconds: float | None
    calls: bool = False
    """Whether the task is called again then; otherwise what came is what it leaves."""
    on_timeout: WorkflowStatus | None = None
    """What the task becomes when the time is over; None: it goes on."""

    def takes(self, name: str) -> bool:
        return self.signal in (name, "*")


class StageState:
    """Where a stage stands."""

    __slots__ = (
        "activated", "answered", "at", "at_will", "bad", "child", "children_left", "context", "edges", "ended_at",
        "finalizers", "fired", "flawed", "good", "incarnation", "jumps", "keyed", "outputs", "part", "plan", "reason",
        "resumes", "skip_cause", "spawned", "started_at", "status", "tasks", "told", "unwanted", "wait",
    )  # fmt: skip

    def __init__(self, plan: StagePlan) -> None:
        self.plan = plan
        self.status = S.NOT_STARTED
        self.incarnation = 1
        self.keyed = 0
        """The incarnation whose idempotency keys it goes on with; 0: its own."""
        self.part = PART.BEFORE
        self.at = 0
        """The position of the task that is next, or under way."""
        self.tasks = [TaskState() for _ in plan.tasks]
        self.answered: Sequence[int] = ()
        """The position of a task that is to be called again because it said so, and how often it had been called by
        then: what it has failed before counts no more."""
        self.edges = edges(len(plan.before))
        self.fired = 0
        self.flawed = False
        """Whether a part of it has failed and was passed over."""
        self.children_left = 0
        self.activated: list[str] | None = None
        self.skip_cause: str | None = None
        self.reason: str | None = None
        self.wait: Wait | None = None
        self.child: str | None = None
        """The workflow whose end it waits for."""
        self.resumes: str | None = None
        """A workflow that its last incarnation has started and that failed: it is to go on, in place of a new one."""
        self.jumps = 0
        self.told: Sequence[str] = ()
        """The stages after it that have counted an earlier incarnation, and do not count again."""
        self.at_will = False
        """Whether it waits after a jump or a restart has led here: its own times do not hold it up."""
        self.unwanted = False
        """Whether somebody asked to skip it when its turn comes."""
        self.spawned = self.good = self.bad = 0
        """How many instances it has, and how many of them have ended well and not so."""
        self.finalizers = 0
        """How many were registered for this incarnation, and wait for its end."""
        self.context: dict[str, Any] = {}
        self.outputs: dict[str, Any] = {}
        self.started_at: int | None = None
        self.ended_at: int | None = None

    def tries(self, at: int, attempt: int) -> int:
        """Which try of a task this is, since it last said that it is to be called again."""
        return max(1, attempt - self.answered[1]) if self.answered and self.answered[0] == at else attempt

    @property
    def key_incarnation(self) -> int:
        """The incarnation that its idempotency keys name."""
        return self.keyed or self.incarnation


class RunState:
    """Where a workflow stands."""

    __slots__ = ("ended_at", "halts", "live", "reason", "started_at", "status")

    def __init__(self) -> None:
        self.status = S.NOT_STARTED
        self.live = 0
        self.halts = 0
        """1 once a stage is TERMINAL, 2 once one that lets the others end first has failed, 4 once one is CANCELED,
        8 once somebody has cancelled the workflow."""
        self.reason: str | None = None
        self.started_at: int | None = None
        self.ended_at: int | None = None


class Missing(LookupError):
    """The state of a stage, or of several, is needed and was not read yet."""

    def __init__(self, ref: str, *others: str) -> None:
        super().__init__(ref, *others)
        self.ref = ref
        self.refs = (ref, *others)


class Child(NamedTuple):
    """A workflow that a stage starts."""

    ref: str
    id: str
    request: Any
    """What is to be started; nothing is decided by it here."""
    waits: bool


class Cleanup(NamedTuple):
    """The finalizers of a stage that is over are to be run."""

    ref: str
    incarnation: int
    cut: int = -1
    """The position of the task that was under way and counts no more."""


class Work(NamedTuple):
    """A task that is to be run."""

    ref: str
    at: int
    delay: float | None = 0.0
    """Seconds; None: not before something happens."""
    costs: int = 1
    """Attempts that a repetition takes: a refused call takes none."""
    waits: bool = False
    """Nothing is to be called when it is due: a time is over."""
    what: str = "wait"
    """Which time: a task's wait, the start of a stage, or its limit."""

    @property
    def kind(self) -> str:
        return self.what if self.waits else "run"
