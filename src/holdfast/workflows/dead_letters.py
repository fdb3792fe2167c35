"""Dead letters of workflows that have failed for good.

A letter is written in the transaction that ends its workflow, and it ends in the one in which the workflow ends again:
there is never one without the other. To replay it is to retry the stages that failed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from holdfast.core.redact import redact
from holdfast.errors import CircuitOpen
from holdfast.letters.draft import draft
from holdfast.letters.entry import CIRCUIT_OPEN, SMALL, Arguments, capped, domain_of
from holdfast.letters.replay import DELAYS
from holdfast.machine import dead_letter as machine
from holdfast.machine.dead_letter import LETTER, LetterRecord
from holdfast.machine.run import Advance, StageState
from holdfast.machine.workflow import COMPLETE, WorkflowStatus
from holdfast.store.codec import from_json, to_json
from holdfast.store.port import Change, Insert, Store, Swap
from holdfast.store.query import among, equal
from holdfast.telemetry.causation import CAUSATION_FIELD
from holdfast.telemetry.tracing import TRACE_HEADERS
from holdfast.workflows.children import awaiting
from holdfast.workflows.letter_route import ENTITY, FAILURE, FUNCTION
from holdfast.workflows.log import entry_id
from holdfast.workflows.records import STAGE, WorkflowRecord
from holdfast.workflows.run import Run

_FAILED: Final = (WorkflowStatus.STOPPED.value, WorkflowStatus.TERMINAL.value)
_BAD: Final = (WorkflowStatus.CANCELED.value, *_FAILED)
_MOST_STAGES: Final = 20
Trouble = tuple[str, str]
"""The type of a task that did not come to a good end, and the name of its last error, if there was one."""
DomainOf = Callable[[Sequence[Trouble]], str | None]
"""The domain whose recovery retries a workflow by itself, if there is one and it is safe to repeat all of these."""


def letter_id(run: Run | WorkflowRecord) -> str | None:
    """The letter that a workflow has left."""
    id: str | None = from_json(run.about).get("letter") if '"letter"' in run.about else None
    return id


class FailedRuns:
    """What the end of a workflow means to its dead letter."""

    def __init__(self, store: Store, domain_of_guard: DomainOf) -> None:
        self._store = store
        self._domain_of_guard = domain_of_guard

    def ending(self, run: Run, step: Advance) -> list[Change]:
        """What to store together with the end of a workflow. It notes the letter in the workflow."""
        if run.state.status not in COMPLETE or WorkflowStatus(run.record.status) in COMPLETE:
            return []
        letter = self._letter_of(run)
        failed = run.state.status is WorkflowStatus.TERMINAL
        if letter is not None:
            return [Swap(LETTER, letter, _again(letter, run, step) if failed else _over(letter, run, step))]
        if not failed or not run.blueprint.dead_letter or awaiting(self._store, run) is not None:
            return []  # of one that another waits for, that one has to say what its failure means
        new = self._new(run, step)
        run.about = to_json({**from_json(run.about), "letter": new.id})
        return [Insert(LETTER, new)]

    def _letter_of(self, run: Run) -> LetterRecord | None:
        """The letter of an earlier failure, if it is still somebody's business."""
        id = letter_id(run)
        found = None if id is None else self._store.get(LETTER, [id])[0]
        return found if found is not None and found.status in machine.ACTIVE else None

    def _new(self, run: Run, step: Advance) -> LetterRecord:
        touched = self._touched(run, step)
        failures = [_failure(run, stage) for stage in touched if stage.status is not WorkflowStatus.CANCELED]
        first = next((one for one in failures if one["error"]), failures[0] if failures else {})
        error: dict[str, Any] = first.get("error") or {}
        refused = CircuitOpen.__name__ in (error.get("type"), error.get("last"))
        kind = str(error.get("type") or "WorkflowError")
        domain = self._domain_of_guard(
            [
                (first.get("type", ""), CircuitOpen.__name__ if refused else kind),
                *((_task_of(stage), "") for stage in touched if stage.plan.ref != first.get("stage")),
            ]
        )
        given = Arguments(_takes, (), run.inputs)
        return draft(
            step.now,
            domain=domain or domain_of(f"workflow.{run.record.name}"),
            failure_type=CIRCUIT_OPEN if refused else f"{FAILURE}{kind.upper()}",
            error_message=redact(run.state.reason or ""),
            error_code=kind,
            entity_type=ENTITY,
            entity_id=run.id,
            snapshot_data=capped({"input": given.kept}, SMALL),
            request_data={"function": FUNCTION, "args": {"workflow_id": run.id}},
            response_data={"stages": failures[:_MOST_STAGES]},
            metadata={
                "source": ENTITY,
                "workflow": run.record.name,
                CAUSATION_FIELD: run.cause,
                **{name: one for name, one in run.caused_by.items() if name in TRACE_HEADERS},
                "log_entry": entry_id(run.id, run.seq + 1),  # which says why
                **({"idempotency_key": first["key"]} if first.get("key") else {}),
            },
            recommended_action="replay",
            next_action_hint=f"holdfast workflow show {run.id}",
        )

    def _touched(self, run: Run, step: Advance) -> list[StageState]:
        """The stages that have failed, and those that were cut off while they were under way: a retry repeats both."""
        where = (*equal(workflow=run.id), among("status", _FAILED))
        found = self._store.page(STAGE, where, by="id", limit=_MOST_STAGES)
        earlier = [one for one in found if one.ref not in step.changed]
        run.add([one.ref for one in earlier], earlier)
        bad = [*(run.stage(one.ref) for one in earlier), *step.changed.values()]
        begun = [one for one in bad if one.status.value in _BAD and one.started_at is not None]
        return sorted(begun, key=lambda one: one.ended_at or 0)


def _task_of(stage: StageState) -> str:
    """The type of the task that was the last one to be under way."""
    tasks = stage.plan.tasks
    return tasks[min(max(stage.at, 0), len(tasks) - 1)].type if tasks else ""


def _failure(run: Run, stage: StageState) -> dict[str, Any]:
    ref = stage.plan.ref
    at, task = next(((at, one) for at, one in enumerate(stage.tasks) if one.error), (0, None))
    return {
        "stage": ref,
        "status": stage.status.value,
        "reason": stage.reason or "",
        "type": _task_of(stage) if task is None else stage.plan.tasks[at].type,
        "error": None if task is None else task.error,
        "attempts": 0 if task is None else task.attempt,
        "key": run.key_of(ref, at) if _is_here(run, ref) else "",
    }


def _is_here(run: Run, ref: str) -> bool:
    return not run.lacks((ref, ref.partition("#")[0]))


def _again(letter: LetterRecord, run: Run, step: Advance) -> LetterRecord:
    """It has failed once more."""
    wait = DELAYS.delay(max(0, letter.retry_count - 1), random.random)
    after = machine.complete(
        letter, step.now, False, note=redact(run.state.reason or ""), retry_at=step.now + round(wait * 1e6)
    )
    return machine.recur(letter, step.now) if after is None else after


def _over(letter: LetterRecord, run: Run, step: Advance) -> LetterRecord:
    """The workflow has come to a good end, or somebody does not want it any more."""
    if run.state.status is WorkflowStatus.CANCELED:
        note = redact(run.state.reason or "")
        return machine.operate(letter, step.now, machine.RESOLVED, resolution_type="workflow_canceled", note=note)
    after = machine.complete(letter, step.now, True, resolution_type=letter.started_by or "workflow_succeeded")
    if after is not None:
        return after
    return machine.operate(letter, step.now, machine.RESOLVED, resolution_type="workflow_succeeded")


def _takes(**input: Any) -> None:
    """The signature of a workflow's input, for what is kept of it."""
