"""What workflows have left behind, at a server: dead items, finalizers, and what is missing."""

from __future__ import annotations

from typing import Any

from holdfast.cli.api import part
from holdfast.cli.elsewhere.part import MOST, Part, made, why
from holdfast.errors import DeadLetterError
from holdfast.machine.finalizer import FinalizerForm, FinalizerState
from holdfast.workflows.dead import DeadItem
from holdfast.workflows.finalizers import Finalizer
from holdfast.workflows.recovery import RecoveryResult, RecoveryStatus


class RemoteDead(Part):
    """The dead items behind a server. Payloads are masked."""

    def list(self, workflow: str | None = None, *, after: str | None = None, limit: int | None = None) -> Any:
        most = 100 if limit is None else limit
        page = self._remote.pages("/workflows/dead", most, after, workflow=workflow)
        return [made(DeadItem, one) for one in page["items"][:most]]

    def count(self, workflow: str | None = None) -> int:
        return len(self._all("/workflows/dead", workflow=workflow))

    def show(self, id: str) -> DeadItem:
        """Raises DeadLetterError for one that is not there."""
        for one in self.list(limit=MOST):
            if one.id == id:
                found: DeadItem = one
                return found
        raise DeadLetterError(f"there is no dead item {id}")

    def replay(self, id: str) -> None:
        self._remote.post(f"/workflows/dead/{part(id)}/replay")

    def discard(self, id: str) -> None:
        self._remote.post(f"/workflows/dead/{part(id)}/discard", {"reason": why()})


class RemoteFinalizers(Part):
    """Finalizers of a workflow behind a server."""

    def find(self, id: str | None = None, *, state: str | None = None, limit: int = 1000) -> list[Finalizer]:
        if id is None:
            raise self._needs_store()
        found = [_finalizer(id, one) for one in self._remote.get(f"/workflows/{part(id)}")["finalizers"]]
        wanted = None if state is None else FinalizerState(state)
        return [one for one in found if wanted in (None, one.state)][:limit]

    def run_again(self, id: str, *, by: str) -> None:
        self._remote.post(f"/workflows/finalizers/{part(id)}/run")


class RemoteRecovery(Part):
    """Has one workflow looked after."""

    def recover(self, id: str) -> RecoveryResult:
        found = self._remote.post(f"/workflows/{part(id)}/recover")
        return made(RecoveryResult, found, status=RecoveryStatus(found["status"]), found=tuple(found["found"]))


def _finalizer(workflow: str, document: dict[str, Any]) -> Finalizer:
    """What a server does not tell of it is empty."""
    form, state = FinalizerForm(document["form"]), FinalizerState(document["state"])
    return made(
        Finalizer, document, form=form, state=state, workflow_id=workflow, stage_id="", incarnation=0, duration_ms=None
    )
