"""A new run from one that has ended: it takes over what the steps before a stage have left, and runs the rest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from holdfast.errors import StageNotFoundError, TaskError
from holdfast.machine.fork import fork as begin
from holdfast.machine.instances import base_of
from holdfast.machine.run import Advance, StageState
from holdfast.machine.workflow import COMPLETE, WorkflowStatus
from holdfast.store.codec import from_json, to_json
from holdfast.store.port import Store
from holdfast.workflows.beginning import Wanted
from holdfast.workflows.drifting import CONFIG_OF
from holdfast.workflows.plan import Blueprint
from holdfast.workflows.records import StageRecord, WorkflowRecord, stage_state
from holdfast.workflows.run import CAUSED_BY
from holdfast.workflows.runs import Blueprints
from holdfast.workflows.starting import start


def fork(
    store: Store,
    blueprints: Blueprints,
    origin: WorkflowRecord,
    done: Iterable[StageRecord],
    wanted: Wanted,
    ref: str,
    *,
    by: str,
    reason: str = "",
) -> str:
    """Store the new run, and give its id. `wanted` says what it is to be like; `done` are the stages of the origin.

    Raises TaskError for a run that has not ended and for a part of a stage, and StageNotFoundError for a stage that is
    not there.
    """
    if WorkflowStatus(origin.status) not in COMPLETE:
        raise TaskError(f"workflow {origin.id} is {origin.status}; only one that has ended can be forked")
    plan = wanted.blueprint.plan.stages
    if ref not in plan:
        raise StageNotFoundError.among(f"workflow {wanted.blueprint.name!r}", ref, plan)
    if (whole := plan[ref].parent) is not None:
        raise TaskError(f"stage {ref!r} is a part of {whole!r}; fork from that one")
    records = list(done)

    def first(step: Advance) -> None:
        begin(step, ref, _states(wanted.blueprint, records), origin.id, by, reason)

    like = replace(
        wanted, id=None, application=origin.application, queue=origin.queue, priority=origin.priority,
        about=_about(origin, wanted, ref), expires=None, first=first,
    )  # fmt: skip

    return start(store, blueprints, like)


def _about(origin: WorkflowRecord, wanted: Wanted, ref: str) -> str:
    """What is told of the new run: who asked for the old one, the code and the configuration of the new one, and where
    it comes from."""
    old, new = from_json(origin.about), from_json(wanted.about)
    versions = ("config_version", "code_version")
    told = {name: old[name] for name in ("trigger", "origin", CAUSED_BY, *versions) if name in old}
    own = {name: new[name] for name in (CONFIG_OF, *versions) if name in new}
    return to_json({**told, **own, "forked_from": {"workflow": origin.id, "stage": ref}})


def _states(blueprint: Blueprint, records: Iterable[StageRecord]) -> dict[str, StageState]:
    """The stages that the definition still has, as they stood."""
    plans = blueprint.plan.stages
    found: dict[str, StageState] = {}
    for record in records:
        base = base_of(record.ref)
        if base not in plans or (base != record.ref and plans[base].instances is None):
            continue
        plan = plans[record.ref]
        if len(plan.tasks) == len(from_json(record.state)["tasks"]):
            found[record.ref] = stage_state(plan, record)
    return found
