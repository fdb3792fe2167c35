"""The sagas behind a server."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from holdfast.cli.elsewhere.part import Part, made, parsed, tuple_of, why
from holdfast.cli.exits import NotFound
from holdfast.machine.outbox_entry import OutboxStatus
from holdfast.machine.saga import SagaState, StepRecord, StepState
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.sagas.rows import SagaRun
from holdfast.outbox.sagas.searching import FoundSagas
from holdfast.views.audit import cursor_of, cursor_text


class RemoteSagas(Part):
    """The sagas behind a server. It masks them, and knows what can be done."""

    def search(self, *, limit: int, after: Any = None, **wanted: Any) -> FoundSagas:
        page = self._remote.pages("/sagas", limit, None if after is None else cursor_text(after), **wanted)
        following = None if page["next"] is None else cursor_of(page["next"])
        return FoundSagas([_run(one) for one in page["items"]], following)

    def get(self, id: UUID) -> SagaRun | None:
        try:
            return _run(self._remote.get(f"/sagas/{id}"))
        except NotFound:
            return None

    def history(self, id: UUID) -> list[OutboxEntry]:
        return [_call(one) for one in self._remote.get(f"/sagas/{id}")["entries"]]

    def knows(self, run: SagaRun) -> bool:
        """The server says it, where it does not."""
        return True

    def is_sensitive(self, run: SagaRun) -> bool:
        return False

    def cancel(self, id: UUID, reason: str) -> bool:
        return self._act(id, "cancel", reason=reason)

    def resume(self, id: UUID) -> bool:
        return self._act(id, "resume")

    def resolve(self, id: UUID, step: str) -> bool:
        return self._act(id, "resolve", step=step, reason=why())

    def _act(self, id: UUID, act: str, **body: Any) -> bool:
        self._remote.post(f"/sagas/{id}/{act}", body)  # a refusal says better why than we could
        return True


def _run(document: dict[str, Any]) -> SagaRun:
    steps = tuple(tuple_of(StepRecord, one, state=StepState(one["state"])) for one in document["steps"])
    id, state = UUID(document["saga_id"]), SagaState(document["state"])
    return made(SagaRun, document, saga_id=id, state=state, steps=steps)


def _call(document: dict[str, Any]) -> OutboxEntry:
    """An entry of which no more is told than how far it is."""
    told = {name: parsed(name, value) for name, value in document.items()}
    told |= {"entry_id": UUID(told["entry_id"]), "status": OutboxStatus(told["status"])}
    return OutboxEntry.model_construct(**told)
