"""Schedules: workflows that are started again and again; see them, make, hold, run and remove them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final

from fastapi import Path, Query, Request
from pydantic import BaseModel, Field

from holdfast.access.rights import REVEAL
from holdfast.core.redact import redact
from holdfast.errors import ConfigurationError, HoldfastError, WorkflowDefinitionError, WorkflowNotFoundError
from holdfast.server.problems import invalid, not_found
from holdfast.server.routes.workflow_shapes import LogItem
from holdfast.server.routes.workflows import need_program, unknown_name
from holdfast.server.routing import Asked, Asking, Routes
from holdfast.server.shapes import MayReason, Reasoned
from holdfast.store.codec import instant
from holdfast.views.workflows import entry_document, schedule_document
from holdfast.workflows.schedule import GRACE_S, Overlap, WorkflowSchedule

routes: Final = Routes("workflows", prefix="/schedules")
_NEXT: Final = 5
_LATELY: Final = 20
Name = Annotated[str, Path(min_length=1, max_length=100, description="The name of a schedule.")]


class Schedule(BaseModel):
    """When a workflow is started, and with what. Secrets are masked. `overdue`: no worker knows its workflow."""

    name: str
    workflow: str
    args: list[Any]
    kwargs: dict[str, Any]
    cron: str
    timezone: str
    overlap: str
    catch_up: int
    paused: bool
    created_at: datetime
    next_tick: datetime | None
    last_tick: datetime | None
    last_run: str | None
    overdue: bool


class ScheduleShown(Schedule):
    """A schedule with when it ticks next, as if it were not paused, and what it did lately."""

    next: list[datetime]
    log: list[LogItem]


class ScheduleRequest(MayReason):
    """A schedule to be made, or changed if there is one of that name. `paused` of null leaves that as it is."""

    audited: ClassVar = ("name", "workflow", "cron")
    withheld: ClassVar = ("input",)
    name: str = Field(min_length=1, max_length=100)
    workflow: str = Field(min_length=1, max_length=400)
    input: dict[str, Any] | list[Any] = Field(default_factory=dict)
    cron: str = Field(min_length=1, max_length=200)
    timezone: str = Field("UTC", min_length=1, max_length=100)
    overlap: Overlap = Overlap.SKIP
    catch_up: int = Field(1, ge=0, le=1000)
    paused: bool | None = None


class Started(BaseModel):
    """The workflow that was started."""

    workflow: str


class Removed(BaseModel):
    """Whether it was taken away."""

    removed: bool


@routes.reads(response_model=list[Schedule])
def find(asked: Asking) -> Any:
    """All schedules, by name."""
    return [_shown(asked, one) for one in asked.hold.workflows.schedules.all()]


@routes.acts("", response_model=Schedule)
def add(asked: Asking, body: ScheduleRequest, request: Request) -> Any:
    """Make a schedule, or change the one of that name."""
    need_program(request, "schedule a workflow", "holdfast workflow schedule add")
    flows = asked.hold.workflows
    if body.workflow not in flows.known:
        raise unknown_name(flows, body.workflow)
    options = {name: getattr(body, name) for name in ("cron", "timezone", "overlap", "catch_up", "paused")}
    try:
        made = flows.schedules.add(body.name, body.workflow, body.input, by=asked.by, **options)
    except (ConfigurationError, WorkflowDefinitionError) as error:
        raise invalid("bad_schedule", str(error)) from None
    except HoldfastError:
        raise
    except Exception as error:  # the function that makes the workflow is tried with the input
        story = redact(f"the workflow does not take this input: {type(error).__name__}: {error}")
        raise invalid("bad_input", story) from error
    return _shown(asked, made)


@routes.reads("/{name:path}", response_model=ScheduleShown)
def show(asked: Asking, name: Name, number: Annotated[int, Query(ge=1, le=100)] = _NEXT) -> Any:
    """One schedule: when it ticks next, and what it did lately."""
    schedules = asked.hold.workflows.schedules
    found = _found(name, schedules.get)
    lately = [entry_document(one) for one in schedules.lately(name, _LATELY)]
    return {**_shown(asked, found), "next": schedules.next(name, number), "log": lately}


@routes.acts("/{name:path}/pause", response_model=Schedule)
def pause(asked: Asking, name: Name, body: MayReason) -> Any:
    """Let a schedule tick no more. What it has started goes on."""
    return _shown(asked, _found(name, asked.hold.workflows.schedules.pause, by=asked.by))


@routes.acts("/{name:path}/resume", response_model=Schedule)
def resume(asked: Asking, name: Name, body: MayReason) -> Any:
    """Let a paused schedule tick again, from now on."""
    return _shown(asked, _found(name, asked.hold.workflows.schedules.resume, by=asked.by))


@routes.acts("/{name:path}/run", response_model=Started)
def run(asked: Asking, name: Name, body: MayReason, request: Request) -> Any:
    """Start the workflow of a schedule now, whether or not it is paused."""
    schedules = asked.hold.workflows.schedules
    found: WorkflowSchedule = _found(name, schedules.get)
    need_program(request, "start a workflow", "holdfast workflow schedule run")
    if found.workflow not in asked.hold.workflows.known:
        raise unknown_name(asked.hold.workflows, found.workflow)
    return {"workflow": _found(name, schedules.run, by=asked.by)}


@routes.acts("/{name:path}/remove", response_model=Removed)
def remove(asked: Asking, name: Name, body: Reasoned) -> Any:
    """Take a schedule away. What it has started goes on, and its log stays."""
    _found(name, asked.hold.workflows.schedules.delete, by=asked.by)
    return {"removed": True}


@routes.acts("/{name:path}/reveal", REVEAL, response_model=Schedule)
def reveal(asked: Asking, name: Name, body: Reasoned) -> Any:
    """A schedule with its input as it was kept."""
    found = _found(name, asked.hold.workflows.schedules.get)
    return {**_shown(asked, found), **schedule_document(found, reveal=True)}


def _found(name: str, act: Callable[..., Any], **facts: str) -> Any:
    try:
        return act(name, **facts)
    except WorkflowNotFoundError:
        raise not_found("schedule", name) from None


def _shown(asked: Asked, one: WorkflowSchedule) -> dict[str, Any]:
    late = 0.0
    if one.next_tick is not None:
        late = (instant(asked.hold.store.now()) - one.next_tick).total_seconds()
    return {**schedule_document(one), "overdue": late > GRACE_S}
