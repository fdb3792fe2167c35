"""The schedules behind a server."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from holdfast.cli.api import part
from holdfast.cli.elsewhere.part import Part, made, why
from holdfast.workflows.history import LogEntry
from holdfast.workflows.schedule import Overlap, WorkflowSchedule


class RemoteSchedules(Part):
    """The schedules behind a server. Inputs are masked."""

    def all(self) -> list[WorkflowSchedule]:
        return [_schedule(one) for one in self._remote.get("/schedules")]

    def get(self, name: str) -> WorkflowSchedule:
        return _schedule(self._shown(name))

    def next(self, name: str, number: int) -> list[datetime]:
        return [datetime.fromisoformat(at) for at in self._shown(name, number=number)["next"]]

    def lately(self, name: str) -> list[LogEntry]:
        return [made(LogEntry, one) for one in self._shown(name)["log"]]

    def add(self, name: str, workflow: str, input: Any, *, by: str, **options: Any) -> WorkflowSchedule:
        return _schedule(
            self._remote.post("/schedules", {"name": name, "workflow": workflow, "input": input, **options})
        )

    def pause(self, name: str, *, by: str) -> WorkflowSchedule:
        return _schedule(self._remote.post(f"/schedules/{part(name)}/pause"))

    def resume(self, name: str, *, by: str) -> WorkflowSchedule:
        return _schedule(self._remote.post(f"/schedules/{part(name)}/resume"))

    def delete(self, name: str, *, by: str) -> None:
        self._remote.post(f"/schedules/{part(name)}/remove", {"reason": why()})

    def run(self, name: str, *, by: str) -> str:
        return str(self._remote.post(f"/schedules/{part(name)}/run")["workflow"])

    def _shown(self, name: str, **asked: Any) -> dict[str, Any]:
        return dict(self._remote.get(f"/schedules/{part(name)}", **asked))


def _schedule(document: dict[str, Any]) -> WorkflowSchedule:
    return made(WorkflowSchedule, document, overlap=Overlap(document["overlap"]))
