"""Sagas, their steps, and the calls that they asked for."""

from __future__ import annotations

from typing import Any, Final

from holdfast.machine.saga import StepRecord
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.sagas.rows import SagaRun
from holdfast.views.plain import masked, plain

_CALL: Final = (
    "entry_id", "step", "direction", "operation", "resolver", "status", "attempts", "last_error", "enqueued_at",
    "last_attempt_at", "next_attempt_at",
)  # fmt: skip


def saga_document(run: SagaRun, *, reveal: bool = False) -> dict[str, Any]:
    """The saga with its steps; `reveal` leaves its data and their results as they were kept."""
    return {
        **plain(run),
        "data": run.data if reveal else masked(run.data),
        "steps": [step_document(step, reveal=reveal) for step in run.steps],
    }


def step_document(step: StepRecord, *, reveal: bool = False) -> dict[str, Any]:
    """A step: where it stands, and what its call gave."""
    return {**plain(step._asdict()), "result": step.result if reveal else masked(step.result)}


def call_document(entry: OutboxEntry) -> dict[str, Any]:
    """An entry as a saga shows it: which step it is for, whether it does or undoes it, and how far it is."""
    values = entry.model_dump(mode="json")
    return {name: values[name] for name in _CALL}
