"""The definition of a workflow that was put together stage by stage: what never changes of it, as a document."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from holdfast.errors import WorkflowDefinitionError
from holdfast.machine.run import StagePlan
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.codec import micros
from holdfast.workflows.effects import Effect, check_retry
from holdfast.workflows.limit import check_limit
from holdfast.workflows.merging import reducer_named
from holdfast.workflows.model import Workflow
from holdfast.workflows.multi_instance import MultiInstanceConfig
from holdfast.workflows.owner import SyntheticStageOwner
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task_run import TaskExecution
from holdfast.workflows.verification import CHECK, Verification, checks_of
from holdfast.workflows.waits import check_waits

FLAGS: Final = (
    "continue_on_failure", "fail_pipeline", "allow_sibling_stages_to_continue", "complete_other_branches_then_fail",
    "max_jumps",
)  # fmt: skip
_RUNS: Final = (SyntheticStageOwner.STAGE_BEFORE, SyntheticStageOwner.STAGE_AFTER)
"""Parts that are run whenever their stage is."""


def definition_of(workflow: Workflow, effect_of: Callable[[str], Effect | None]) -> dict[str, Any]:
    """The document. Raises WorkflowDefinitionError for what this engine cannot run."""
    if not workflow.initial_stages():
        raise WorkflowDefinitionError("no_stages", f"{workflow.label} has no stage to begin with")
    limit_of(workflow)
    refs = {stage.id: stage.ref_id for stage in workflow.stages}
    _check_work(workflow)
    check_waits(workflow)
    document = {
        "v": 1,
        "name": workflow.name,
        "version": workflow.code_version or "1",
        "stages": [_stage(stage, refs, effect_of) for stage in workflow.stages],
    }
    return document if workflow.dead_letter else {**document, "dead_letter": False}


def limit_of(workflow: Workflow) -> int | None:
    """How many of its pipeline run at once; None: any number. Raises WorkflowDefinitionError."""
    most = workflow.max_concurrent_executions or int(workflow.is_limit_concurrent) or None
    check_limit(f"{workflow.label}: max_concurrent_executions", most)
    if most is not None and not workflow.pipeline_config_id:
        story = f"{workflow.label} is limited and has no pipeline_config_id; say of what so many run at once"
        raise WorkflowDefinitionError("bad_limit", story)
    return most


def _stage(stage: StageExecution, refs: dict[str, str], effect_of: Callable[[str], Effect | None]) -> dict[str, Any]:
    checks = checks_of(stage)
    for name in stage.output_reducers.values():
        _check_reducer(stage, name)
    parent = stage.parent_stage_id
    return {
        "ref": stage.ref_id,
        "tasks": [
            *(_task(task, effect_of(task.implementing_class)) for task in stage.tasks),
            *(_check(task, asked) for task, asked in checks),
        ],
        "requires": sorted(stage.requisite_stage_ref_ids),
        "join": str(stage.join_type),
        "threshold": stage.join_threshold,
        "split": str(stage.split_type),
        "conditions": stage.split_conditions,
        "enabled": stage.enabled,
        "manual_skip": stage.manual_skip,
        "parent": None if parent is None else refs[parent],
        "owner": None if stage.synthetic_stage_owner is None else stage.synthetic_stage_owner.value,
        **{name: getattr(stage, name) for name in FLAGS},
        **{name: value for name, value in _gates(stage).items() if value is not None},
        "model": _anonymous(stage.to_document(), [task for task, _ in checks]),
    }


def model_of(id: str, plan: StagePlan, model: Mapping[str, Any]) -> dict[str, Any]:
    """The model of a stage or of an instance as a document again: with its ids in the workflow of that id."""
    own = f"{id}.{plan.ref}"
    tasks = [{**task, "id": f"{own}.{task['position']}"} for task in model["tasks"]]
    return {
        **model,
        "id": own,
        "tasks": tasks,
        "parent_stage_id": None if plan.parent is None else f"{id}.{plan.parent}",
    }


def _anonymous(model: dict[str, Any], checks: Sequence[TaskExecution]) -> dict[str, Any]:
    """Without the ids that chance gave: so that equal workflows have one definition."""
    model["tasks"] += [task.to_document() for task in checks]
    for document in (model, *model["tasks"]):
        del document["id"]
    del model["parent_stage_id"]
    return model


def _check_reducer(stage: StageExecution, name: str) -> None:
    try:
        reducer_named(name)
    except WorkflowDefinitionError as error:
        raise WorkflowDefinitionError(error.code, f"{stage.label}: {error.detail}", (stage.ref_id,)) from None


def _check_work(workflow: Workflow) -> None:
    """Raises WorkflowDefinitionError for a stage that would succeed without anything being done."""
    wholes = {stage.parent_stage_id for stage in workflow.stages if stage.synthetic_stage_owner in _RUNS}
    for stage in workflow.stages:
        if not stage.tasks and stage.id not in wholes:
            message = f"{stage.label} of the type {stage.type!r} has neither tasks nor parts; give it a task"
            raise WorkflowDefinitionError("unknown_stage_type", message, (stage.ref_id,))


def _gates(stage: StageExecution) -> dict[str, Any]:
    """What else decides when it starts, and what its start or end means to others."""
    reached = stage.milestone_status or WorkflowStatus.SUCCEEDED
    return {
        "scheduled_at": None if stage.scheduled_time is None else micros(stage.scheduled_time),
        "expires_at": None if stage.start_time_expiry is None else micros(stage.start_time_expiry),
        "limit_s": stage.stage_timeout,
        "mutex": stage.mutex_key,
        "choice": stage.deferred_choice_group,
        "milestone": None if stage.milestone_ref_id is None else [stage.milestone_ref_id, reached.value],
        "cancel_region": sorted(stage.cancel_region) or None,
        "instances": None if stage.mi_config is None else _instances(stage.mi_config),
        "reducers": stage.output_reducers or None,
    }


def _instances(config: MultiInstanceConfig) -> dict[str, Any]:
    return {
        "count": config.count,
        "count_from": config.count_from_context,
        "items_from": config.collection_from_context,
        "threshold": config.join_threshold,
        "cancel_remaining": config.cancel_remaining,
        "allow_dynamic": config.allow_dynamic,
        "sync_on_complete": config.sync_on_complete,
    }


def _task(task: TaskExecution, effect: Effect | None) -> dict[str, Any]:
    policy = task.retry_policy
    check_retry(task.implementing_class, effect, policy is not None and policy.to_retry().attempts != 1)
    check_retry(task.implementing_class, effect, task.retry_timeouts, "retry_timeouts=True")
    return {
        **({} if effect is None else {"effect": effect.value}),
        "name": task.name,
        "type": task.implementing_class,
        "timeout": task.timeout,
        "retry": None if policy is None else policy.model_dump(mode="json"),
        "retry_timeouts": task.retry_timeouts,
    }


def _check(task: TaskExecution, asked: Verification) -> dict[str, Any]:
    """A task that verifies. Only a function is asked again."""
    again = None if task.implementing_class == CHECK else [asked.max_retries, asked.retry_delay]
    return {"name": task.name, "type": task.implementing_class, "verify": again}
