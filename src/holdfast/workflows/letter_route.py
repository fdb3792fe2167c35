"""How the dead letter of a workflow is replayed: what failed runs again, and workers carry it on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from holdfast.errors import TaskError, WorkflowError
from holdfast.letters.data import FailedOperationData
from holdfast.letters.entry import CIRCUIT_OPEN
from holdfast.letters.handlers import PROGRAMMING_ERRORS, Ended, Ending
from holdfast.machine.workflow import WorkflowStatus
from holdfast.workflows.records import WorkflowRecord

if TYPE_CHECKING:
    from holdfast.guard.guard import Guard
    from holdfast.letters.loops import Loops

FUNCTION: Final = "holdfast.workflow"
"""What the request of such a letter names in the place of a function."""
ENTITY: Final = "workflow"
"""Its entity type, and its source."""
FAILURE: Final = "WORKFLOW_"
"""What its failure type begins with. It is one of its own, for a domain recovers by failure types."""
_FOR_A_PERSON: Final = {kind.replace("MAX_RETRIES_", FAILURE) for kind in PROGRAMMING_ERRORS} | {
    f"{FAILURE}PERMANENTERROR"
}


class Retries(Protocol):
    """Whoever runs failed workflows again."""

    def record(self, id: str) -> WorkflowRecord: ...
    def retry(self, id: str, *, by: str = ...) -> object: ...


class WorkflowRoute:
    """Replays by `retry`. `guard` is the one whose breaker decides when letters go by themselves."""

    entity_key = None

    def __init__(self, workflows: Callable[[], Retries], guard: Guard | None = None) -> None:
        self._workflows = workflows
        self.guard = guard

    def refusal(self, op: FailedOperationData) -> str | None:
        try:
            id = _id_of(op)
            status = WorkflowStatus(self._workflows().record(id).status)
        except WorkflowError as error:
            return str(error)
        if status is not WorkflowStatus.TERMINAL:
            return f"workflow {id} is {status.value}; only one that has failed is replayed"
        return None

    def run(self, op: FailedOperationData, key: str, loops: Loops) -> Ended:
        try:
            id = _id_of(op)
            self._workflows().retry(id, by=f"letter {op.id}")
        except WorkflowError as error:  # somebody else was faster
            return Ended(Ending.NEVER_RAN, error, str(error))
        return Ended(Ending.GOES_ON, None, f"workflow {id} runs again; its end will end the letter")

    def recovers(self, failure_type: str) -> bool:
        if failure_type == CIRCUIT_OPEN:
            return True
        return failure_type.startswith(FAILURE) and failure_type not in _FOR_A_PERSON


def _id_of(op: FailedOperationData) -> str:
    id = (op.request_data.get("args") or {}).get("workflow_id")
    if not isinstance(id, str):
        raise TaskError(f"letter {op.id} names no workflow")
    return id
