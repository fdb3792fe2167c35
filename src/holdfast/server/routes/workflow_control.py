"""One workflow: hold, cancel, retry, recover, signal, approve, fork, reveal it; restart, skip, cancel its stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fastapi import Request

from holdfast.access.rights import REVEAL
from holdfast.machine.workflow import WorkflowStatus
from holdfast.server.problems import refused
from holdfast.server.routes.workflow_rows import find_row, find_stage
from holdfast.server.routes.workflow_shapes import (
    CodeRequest,
    ForkRequest,
    Recovered,
    RestartRequest,
    Revealed,
    RevealRequest,
    SignalAnswer,
    SignalRequest,
    WordRequest,
    WorkflowRow,
)
from holdfast.server.routes.workflows import Stage, by_program, need_program, unknown_name
from holdfast.server.routing import Asked, Asking, Routes
from holdfast.server.shapes import Id, MayReason, Reasoned
from holdfast.views.plain import plain
from holdfast.views.workflows import workflow_document
from holdfast.workflows.model import Workflow

routes: Final = Routes("workflows")


@routes.acts("/{id}/pause", response_model=WorkflowRow)
def pause(asked: Asking, id: Id, body: MayReason) -> Any:
    """Hold a workflow: what workers have taken ends, and nothing new begins until it is resumed."""
    asked.hold.workflows.pause(id, by=asked.by, reason=body.reason)
    return find_row(asked, id)


@routes.acts("/{id}/resume", response_model=WorkflowRow)
def resume(asked: Asking, id: Id, body: MayReason) -> Any:
    """Let a paused workflow go on."""
    asked.hold.workflows.resume(id, by=asked.by, reason=body.reason)
    return find_row(asked, id)


@routes.acts("/{id}/cancel", response_model=WorkflowRow)
def cancel(asked: Asking, id: Id, body: Reasoned) -> Any:
    """End a workflow: what has not begun will not, and what is under way counts no more."""
    _check_under_way(f"workflow {id}", asked.hold.workflows.record(id).status)
    asked.hold.workflows.cancel(id, body.reason, by=asked.by)
    return find_row(asked, id)


@routes.acts("/{id}/retry", response_model=WorkflowRow)
def retry(asked: Asking, id: Id, body: CodeRequest) -> Any:
    """Run every stage that has failed again, and what comes after it, with the idempotency keys that it had."""
    asked.hold.workflows.retry(id, by=asked.by, reason=body.reason, code_version=body.code_version)
    return find_row(asked, id)


@routes.acts("/{id}/recover", response_model=Recovered)
def recover(asked: Asking, id: Id, body: MayReason) -> Any:
    """Let a workflow go on in which something is missing, whatever its age. Workers do that by themselves."""
    asked.hold.workflows.record(id)
    found = plain(asked.hold.workflows.recovery.recover(id))
    return {name: found[name] for name in Recovered.model_fields}


@routes.acts("/{id}/signal", response_model=SignalAnswer)
def signal(asked: Asking, id: Id, body: SignalRequest) -> Any:
    """Send a signal to a workflow. It is kept until a stage waits for it."""
    taken = asked.hold.workflows.signal(id, body.name, body.value, stage=body.stage, signal_id=body.signal_id)
    return {"taken": taken}


@routes.acts("/{id}/approve", response_model=SignalAnswer)
def approve(asked: Asking, id: Id, body: WordRequest) -> Any:
    """Say yes to a stage that waits for somebody's word. It is kept until one does."""
    return {"taken": _say(asked, id, body, asked.hold.workflows.approve)}


@routes.acts("/{id}/reject", response_model=SignalAnswer)
def reject(asked: Asking, id: Id, body: WordRequest) -> Any:
    """Say no to a stage that waits for somebody's word: it fails, unless it goes on with that too."""
    return {"taken": _say(asked, id, body, asked.hold.workflows.reject)}


@routes.acts("/{id}/fork", response_model=WorkflowRow, status_code=201)
def fork(asked: Asking, id: Id, body: ForkRequest, request: Request) -> Any:
    """Start a new run of a workflow that has ended, from a stage on; what the other steps have left is taken over."""
    flows = asked.hold.workflows
    flows.record(id)
    if body.workflow is not None:
        need_program(request, "fork with new code", "holdfast workflow fork")
        if body.workflow not in flows.known:
            raise unknown_name(flows, body.workflow)
    made = by_program(
        lambda: flows.fork(
            id, body.stage, context=body.context, workflow=body.workflow, idempotency_key=body.idempotency_key,
            by=asked.by, reason=body.reason,
        )
    )  # fmt: skip
    return find_row(asked, made.id)


@routes.acts("/{id}/reveal", REVEAL, response_model=Revealed)
def reveal(asked: Asking, id: Id, body: RevealRequest) -> Any:
    """The input of a workflow as it was kept, and what a stage got and left. What the program masked stays masked."""
    kept = workflow_document(_without_stages(asked.hold.workflows.workflow(id)), reveal=True)
    stage = None if body.stage is None else find_stage(asked, id, body.stage, reveal=True)
    return {"context": kept["context"], "trigger": kept["trigger"], "stage": stage}


@routes.acts("/{id}/stages/{stage:path}/restart", response_model=WorkflowRow)
def restart(asked: Asking, id: Id, stage: Stage, body: RestartRequest) -> Any:
    """Run a stage that has ended again, and everything after it, with new idempotency keys."""
    asked.hold.workflows.restart(id, stage, by=asked.by, reason=body.reason, code_version=body.code_version)
    return find_row(asked, id)


@routes.acts("/{id}/stages/{stage:path}/skip", response_model=WorkflowRow)
def skip(asked: Asking, id: Id, stage: Stage, body: Reasoned) -> Any:
    """Leave a stage out. What comes after it runs all the same."""
    asked.hold.workflows.skip(id, stage, by=asked.by, reason=body.reason)
    return find_row(asked, id)


@routes.acts("/{id}/stages/{stage:path}/cancel", response_model=WorkflowRow)
def cancel_stage(asked: Asking, id: Id, stage: Stage, body: Reasoned) -> Any:
    """End a stage; what comes after it is halted."""
    workflow = asked.hold.workflows.workflow(id)
    _check_under_way(f"stage {stage!r} of workflow {id}", workflow.stage(stage).status)
    _check_under_way(f"workflow {id}", workflow.status)
    asked.hold.workflows.cancel_stage(id, stage, by=asked.by, reason=body.reason)
    return find_row(asked, id)


def _check_under_way(what: str, status: str) -> None:
    """Raises ProblemError for what has ended."""
    if WorkflowStatus(status).is_complete:
        raise refused("ended_already", f"{what} is {status} already; only what has not ended is canceled")


def _say(asked: Asked, id: str, body: WordRequest, word: Callable[..., bool]) -> bool:
    return word(id, body.name, user=asked.by, comment=body.comment, stage=body.stage, signal_id=body.signal_id)


def _without_stages(workflow: Workflow) -> Workflow:
    workflow.stages = []
    return workflow
