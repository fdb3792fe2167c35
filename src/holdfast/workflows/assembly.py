"""A workflow as the public model, put together from its definition and what is kept of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from holdfast.machine.graph import SkipCause
from holdfast.machine.instances import base_of
from holdfast.machine.run import Owner, Part, StagePlan, StageState
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.codec import from_json, instant, maybe_instant
from holdfast.workflows.beginning import limit_of
from holdfast.workflows.definition import model_of
from holdfast.workflows.documents import SCHEMA
from holdfast.workflows.model import Workflow
from holdfast.workflows.plan import Blueprint
from holdfast.workflows.records import ItemRecord, StageRecord, WorkflowRecord, stage_state
from holdfast.workflows.stage import ACTIVATED, JUMPS, MERGES, StageExecution
from holdfast.workflows.trigger import PausedDetails, Trigger

REASON = "reason"
WAITS_FOR = "waits_for"
CHILD = "child"
"""In a stage's `engine_state`: why it ended as it did, and which signal, or the end of which workflow, it waits for."""


def assembled(
    record: WorkflowRecord,
    blueprint: Blueprint,
    stages: Mapping[str, StageRecord],
    items: Mapping[str, ItemRecord],
    canceled_by: str | None = None,
) -> Workflow:
    """The workflow with its stages and tasks as they stand. `stages` and `items` are those that there are, by ref."""
    plans = blueprint.plan.stages
    states = {ref: stage_state(plans[ref], one) for ref, one in stages.items()}
    refs = [*plans, *_instances((ref for ref in stages if ref not in plans), states)]
    about = from_json(record.about)
    canceled = record.status == WorkflowStatus.CANCELED
    is_limited, most, keeps = limit_of(about)
    made = Workflow(
        id=record.id,
        application=record.application,
        name=record.name,
        version=record.version,
        stages=[_stage(record.id, blueprint, plans[ref], states, stages.get(ref)) for ref in refs],
        context=from_json(record.context),
        trigger=Trigger.from_document({"schema": SCHEMA, **about.get("trigger", {})}),
        start_time=maybe_instant(record.started_at),
        end_time=maybe_instant(record.ended_at),
        is_canceled=canceled,
        canceled_by=canceled_by,
        cancellation_reason=record.reason if canceled else None,
        paused=PausedDetails.from_document(about["paused"]) if about.get("paused") else None,
        pipeline_config_id=record.pipeline,
        is_limit_concurrent=is_limited,
        max_concurrent_executions=most,
        keep_waiting_pipelines=keeps,
        origin=about.get("origin", "unknown"),
        config_version=about.get("config_version", about.get("config")),
        idempotency_key=record.idempotency_key,
        code_version=code_version_of(about, blueprint),
        parent_workflow_id=None if record.parent is None else record.parent.partition(".")[0],
        queue=record.queue,
        priority=record.priority,
        dead_letter=blueprint.dead_letter,
        forked_from=(origin["workflow"], origin["stage"]) if (origin := about.get("forked_from")) else None,
    )
    vars(made)["status"] = WorkflowStatus(record.status)
    for stage in made.stages:
        item = items.get(stage.ref_id)
        if item is not None and item.owner is not None and item.incarnation == stage.incarnation:
            stage.tasks[item.at].attempt = item.attempt  # it is being called
    return made


def code_version_of(about: Mapping[str, Any], blueprint: Blueprint) -> str:
    """What was named when it was started; otherwise a fingerprint of its definition."""
    named: str | None = about.get("code_version")
    return named or blueprint.id[:12]


def _stage(
    id: str, blueprint: Blueprint, plan: StagePlan, states: Mapping[str, StageState], record: StageRecord | None
) -> StageExecution:
    stage = _defined(id, blueprint, plan)
    state = states.get(plan.ref)
    if state is None or record is None:
        return stage
    vars(stage)["status"] = state.status
    stage.version, stage.incarnation = record.version, state.incarnation
    stage.context, stage.outputs = state.context, state.outputs
    stage.start_time, stage.end_time = maybe_instant(state.started_at), maybe_instant(state.ended_at)
    stage.skip_cause = None if state.skip_cause is None else SkipCause(state.skip_cause)
    stage.pending_upstreams = state.edges.active
    noted = {ACTIVATED: state.activated, MERGES: state.fired, JUMPS: state.jumps, REASON: state.reason}
    noted[WAITS_FOR] = None if state.wait is None else state.wait.signal
    noted[CHILD] = state.child
    stage.engine_state = {name: value for name, value in noted.items() if value}
    _fill_tasks(stage, state, _tasks_begin(state, states))
    return stage


def _instances(stages: Iterable[str], states: Mapping[str, StageState]) -> list[str]:
    """The instances that stages have in their present incarnation, in order."""
    found: list[tuple[str, int, str]] = []
    for ref in stages:
        base = base_of(ref)
        if base != ref and base in states:
            incarnation, _, number = ref.rpartition("#")[2].partition(".")
            if int(incarnation) == states[base].incarnation:
                found.append((base, int(number or 0), ref))
    return [ref for _, _, ref in sorted(found)]


def _defined(id: str, blueprint: Blueprint, plan: StagePlan) -> StageExecution:
    """The stage before anything has happened to it. An instance is like its stage, and belongs to it."""
    base = base_of(plan.ref)
    model = blueprint.extras[base].model
    if model is not None:
        instance: dict[str, Any] = {
            "ref_id": plan.ref,
            "name": plan.ref,
            "requisite_stage_ref_ids": [],
            "mi_config": None,
        }
        whole = model_of(id, plan, model)
        return StageExecution.from_document(whole if base == plan.ref else {**whole, **instance})
    tasks = [
        {"schema": SCHEMA, "id": f"{id}.{plan.ref}.{at}", "name": task.name, "implementing_class": task.type}
        for at, task in enumerate(plan.tasks)
    ]
    document: dict[str, Any] = {
        "schema": SCHEMA, "id": f"{id}.{plan.ref}", "ref_id": plan.ref, "name": plan.ref, "tasks": tasks,
        "type": plan.tasks[0].type if plan.tasks else "", "requisite_stage_ref_ids": plan.before,
    }  # fmt: skip
    return StageExecution.from_document(document)


def _tasks_begin(state: StageState, states: Mapping[str, StageState]) -> int | None:
    """When its first task could begin: with the stage, or when what belongs before it had ended."""
    before = [states[ref].ended_at for ref in state.plan.children.get(Owner.STAGE_BEFORE, ()) if ref in states]
    return max((at for at in (state.started_at, *before) if at is not None), default=None)


def _fill_tasks(stage: StageExecution, state: StageState, begin: int | None) -> None:
    """The statuses of tasks. One that is under way is where its stage is: the machine moves it when it has ended."""
    under_way = state.part is Part.TASKS and state.status.is_active
    could_begin: datetime | None = None if begin is None else instant(begin)
    for at, (task, kept) in enumerate(zip(stage.tasks, state.tasks, strict=True)):
        is_next = under_way and at == state.at and kept.status is WorkflowStatus.NOT_STARTED
        vars(task)["status"] = state.status if is_next else kept.status
        task.attempt, task.task_exception_details = kept.attempt, kept.error or {}
        task.end_time = maybe_instant(kept.ended_at)
        if is_next or task.end_time is not None:
            task.start_time = could_begin if kept.started_at is None else instant(kept.started_at)
        could_begin = task.end_time
