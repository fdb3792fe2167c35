"""Sagas, their steps, and the calls that they asked for."""

from __future__ import annotations

from typing import Any, Final

from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.sagas.place import SagaPlace
from holdfast.outbox.sagas.rows import SagaRun
from holdfast.views.outbox import hidden
from holdfast.views.plain import masked, plain

_CALL: Final = (
    "entry_id", "step", "direction", "operation", "resolver", "status", "attempts", "last_error", "enqueued_at",
    "last_attempt_at", "next_attempt_at",
)  # fmt: skip


def saga_document(run: SagaRun, sagas: SagaPlace, *, reveal: bool = False) -> dict[str, Any]:
    """The saga with its steps. Of one whose operations are sensitive, and of one that is not known here, only the names
    in its data and results are shown, as of its entries; `reveal` leaves them as they were kept.
    """
    mask = plain if reveal else hidden if sagas.is_sensitive(run) else masked
    steps = [{**plain(step._asdict()), "result": mask(step.result)} for step in run.steps]
    return {**plain(run), "data": mask(run.data), "steps": steps}


def call_document(entry: OutboxEntry) -> dict[str, Any]:
    """An entry as a saga shows it: which step it is for, whether it does or undoes it, and how far it is."""
    values = entry.model_dump(mode="json")
    return {name: values[name] for name in _CALL}
