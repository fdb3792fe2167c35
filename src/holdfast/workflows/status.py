"""The status of a model, which moves as the machine's table allows and in no other way."""

from __future__ import annotations

from typing import Any, Final, Protocol

from holdfast.machine.workflow import WorkflowStatus, moved


class Labelled(Protocol):
    """A model that can say which one it is."""

    @property
    def label(self) -> str: ...


class Status:
    """A field of a dataclass: to assign a status that cannot be reached raises InvalidStateTransitionError."""

    def __get__(self, model: Labelled | None, kind: type | None = None) -> WorkflowStatus:
        # A dataclass asks the class for the default of the field.
        if model is None:
            return WorkflowStatus.NOT_STARTED
        status: WorkflowStatus = model.__dict__["status"]
        return status

    def __set__(self, model: Labelled, status: WorkflowStatus) -> None:
        before, after = model.__dict__.get("status"), WorkflowStatus(status)
        model.__dict__["status"] = after if before is None else moved(model.label, before, after)


STATUS: Final[Any] = Status()
"""The default of the field. It keeps nothing, the models do; checkers see a plain WorkflowStatus."""


def start_over(model: Labelled) -> None:
    """Back to NOT_STARTED, whatever it was: only a new incarnation may do that."""
    model.__dict__["status"] = WorkflowStatus.NOT_STARTED
