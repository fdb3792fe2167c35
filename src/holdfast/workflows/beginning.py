"""A workflow that is to be started, and its first step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.errors import WorkflowDefinitionError
from holdfast.machine import pipeline
from holdfast.machine.run import Advance
from holdfast.machine.workflow import COMPLETE, WorkflowStatus
from holdfast.store.codec import from_json, micros, to_json
from holdfast.store.port import Change
from holdfast.workflows.items import new_items
from holdfast.workflows.plan import Blueprint
from holdfast.workflows.records import WORKFLOW
from holdfast.workflows.run import Run

LIMIT = "limit"
KEEPS = "keeps"
EXPIRES = "expires"
"""In what is told of a workflow: how many of its pipeline run at once, whether those that wait are kept, and until when
it must have begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A workflow that is to be started. `inputs` and `about` are JSON."""

    blueprint: Blueprint
    inputs: str
    key: str | None = None
    id: str | None = None
    application: str = ""
    queue: str = "default"
    priority: int = 0
    about: str = "{}"
    expires: datetime | None = None
    pipeline: str | None = None
    limit: int | None = None
    """How many of its pipeline run at once; None: any number."""
    keeps: bool = True
    parent: str | None = None
    begins: bool = True
    """Or it is only kept."""
    drift: Sequence[str] = ()
    """What is not as its `config_version` says."""
    first: Callable[[Advance], None] = Advance.start
    """What happens when it begins."""
    defaults: Callable[[], Mapping[str, Any]] | None = None
    """What arguments are that nobody gives; None: there are no such ones."""

    def __post_init__(self) -> None:
        key: Any = self.key
        if key is not None and (not isinstance(key, str) or not key):
            # An empty key is one that somebody forgot to fill in: all who did would get the first one's workflow.
            story = f"idempotency_key must be a text of at least one character, got {key!r}; leave it out for none"
            raise WorkflowDefinitionError("bad_key", story)

    def is_late(self, now: int) -> bool:
        """Whether it had to begin before now."""
        return self.expires is not None and micros(self.expires) < now


First = tuple[Run, Advance]
"""A new workflow, and its first step."""


def first_step(id: str, wanted: Wanted, now: int, *, waits: bool = False) -> First:
    """A new workflow, and what happens to it first, unless it waits for its turn. One that begins in the midst of it
    takes over what it begins with all the same: who lets it begin knows nothing of that."""
    blueprint = wanted.blueprint
    record = WORKFLOW.make((
        id, 0, None, WorkflowStatus.NOT_STARTED.value, blueprint.name, wanted.application, blueprint.id, wanted.queue,
        wanted.priority, wanted.pipeline, wanted.key, wanted.parent, 0, 0, now, None, None, None, wanted.inputs,
        _about(wanted),
    ))  # fmt: skip
    run = Run(record, blueprint, 0, is_new=True)
    step = run.advance(now)
    if wanted.drift:
        step.note("config_drifted", fields=list(wanted.drift))
    if not wanted.begins:
        step.note("workflow_stored")
    elif waits and wanted.first is Advance.start:
        pipeline.buffer(step, str(wanted.pipeline))
    elif wanted.is_late(now):
        step.expire()
    else:
        wanted.first(step)
        if waits:
            pipeline.buffer(step, str(wanted.pipeline))
    return run, step


def needs_another(wanted: Wanted, first: First) -> bool:
    """Whether its first step means more than what a new workflow brings with it: it fails, or ends while somebody
    begins to wait for it. Then it is only kept, and a message has it begin."""
    run, step = first
    if not wanted.begins or wanted.first is not Advance.start:
        return False
    ends = run.state.status in (WorkflowStatus.SUCCEEDED, WorkflowStatus.TERMINAL)
    return step.cancels or (ends and (wanted.parent is not None or run.state.status is WorkflowStatus.TERMINAL))


def ends_at_once(run: Run, now: int) -> bool:
    """Whether a workflow that has not begun would end with its first step, or be about to. That needs no slot."""
    trial = Run(run.record, run.blueprint, run.seq, is_new=True)
    step = trial.advance(now)
    step.start()
    return step.cancels or trial.state.status in COMPLETE


def stored(run: Run, step: Advance) -> list[Change]:
    """What is to be stored of a new workflow, with work for anybody."""
    return [*run.changes(step)[0], *new_items(run, step)]


def limit_of(about: dict[str, object]) -> tuple[bool, int, bool]:
    """As a workflow's model has it: whether there is a limit, which, and whether those who wait are kept."""
    limit = about.get(LIMIT)
    return limit is not None, limit if isinstance(limit, int) else 0, bool(about.get(KEEPS, True))


def _about(wanted: Wanted) -> str:
    if wanted.limit is None:
        return wanted.about
    about = {**from_json(wanted.about), LIMIT: wanted.limit, KEEPS: wanted.keeps}
    if wanted.expires is not None:
        about[EXPIRES] = micros(wanted.expires)
    return to_json(about)
