"""The workflows behind a server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from typing import Any, Final

from holdfast.cli.api import PAGE, part
from holdfast.cli.elsewhere.leftovers import RemoteDead, RemoteFinalizers, RemoteRecovery
from holdfast.cli.elsewhere.part import Part, made, parsed, why
from holdfast.cli.elsewhere.schedules import RemoteSchedules
from holdfast.cli.exits import NotFound, WrongUsage
from holdfast.errors import WorkflowNotFoundError
from holdfast.machine.workflow import WorkflowStatus
from holdfast.workflows.effects import Effect
from holdfast.workflows.guarantees import CALLED, StepGuarantee, WorkflowGuarantees
from holdfast.workflows.history import LogEntry, PastStage, PastState
from holdfast.workflows.ids import is_reached
from holdfast.workflows.model import Workflow
from holdfast.workflows.owner import SyntheticStageOwner
from holdfast.workflows.pruning import PruneReport
from holdfast.workflows.reading import WorkflowSummary
from holdfast.workflows.serving import Stranded
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.trigger import PausedDetails

_UNTOLD: Final = ("stages", "trigger", "forked_from")


class RemoteWorkflows(Part):
    """The workflows behind a server."""

    _prunable = 0

    @cached_property
    def schedules(self) -> RemoteSchedules:
        return RemoteSchedules(self._remote)

    @cached_property
    def dead(self) -> RemoteDead:
        return RemoteDead(self._remote)

    @cached_property
    def finalizers(self) -> RemoteFinalizers:
        return RemoteFinalizers(self._remote)

    @cached_property
    def recovery(self) -> RemoteRecovery:
        return RemoteRecovery(self._remote)

    @property
    def known(self) -> list[str]:
        """The names by which the server's program can start workflows."""
        return list(self._remote.get("/workflows/facets")["startable"])

    def find(self, *, limit: int, after: str | None = None, **where: Any) -> list[WorkflowSummary]:
        page = self._remote.pages("/workflows", limit, after, **where)
        return [_summary(one) for one in page["items"][:limit]]

    def counts(self) -> dict[WorkflowStatus, int]:
        found = self._remote.get("/workflows/facets")["by_status"]
        return {WorkflowStatus(status): number for status, number in found.items()}

    def prune(self, before: datetime, *, dry_run: bool = False) -> PruneReport:
        """First with `dry_run`, which counts: no more than those are deleted."""
        at = before.isoformat()
        if dry_run:
            found = self._remote.get("/workflows/prune/preview", before=at)
            self._prunable = found["matched"]
            return PruneReport(found["matched"], Counter(found["kept"]))
        return PruneReport(sum(self._delete("/workflows/prune", self._prunable, before=at)))

    def stranded(self, id: str | None = None, *, limit: int) -> list[Stranded]:
        found = [made(Stranded, one) for one in self._remote.get("/workflows/stranded", limit=min(limit, PAGE))]
        return [one for one in found if id in (None, one.workflow_id)]

    def place(self, id: str) -> int | None:
        found: int | None = self._shown(id)["place"]
        return found

    def record(self, id: str) -> Any:
        """What is kept of a workflow. Raises WorkflowNotFoundError."""
        return self.summary(id)

    def summary(self, id: str) -> WorkflowSummary:
        """Raises WorkflowNotFoundError."""
        try:
            return _summary(self._shown(id))
        except NotFound:
            raise WorkflowNotFoundError(f"there is no workflow {id}") from None

    def workflow(self, id: str) -> Workflow:
        """A workflow with its stages, of which no more is told than how they stand and what comes after what."""
        shown = self._shown(id)
        paused = shown["paused"]
        told = {name: value for name, value in shown.items() if name not in _UNTOLD}
        return made(
            Workflow, told, status=WorkflowStatus(shown["status"]), stages=[_stage(one) for one in shown["stages"]],
            paused=None if paused is None else made(PausedDetails, paused), parent_workflow_id=shown["parent"],
            pipeline_config_id=shown["pipeline"], is_limit_concurrent=shown["max_concurrent_executions"] > 0,
        )  # fmt: skip

    def describe(self, name: str, *args: Any, **kwargs: Any) -> WorkflowGuarantees:
        if args or kwargs:
            raise WrongUsage(f"--input needs the program itself, --app: {self._remote.url} is a server")
        found = self._remote.get("/workflows/describe", name=name)
        return WorkflowGuarantees(found["name"], tuple(map(_step, found["steps"])), found["dead_letter"])

    def start(self, name: str, *args: Any, idempotency_key: str | None = None, **kwargs: Any) -> WorkflowSummary:
        input = list(args) if args else kwargs
        body = {"name": name, "input": input, "idempotency_key": idempotency_key}
        return _summary(self._remote.post("/workflows", body))

    def fork(
        self,
        id: str,
        stage: str,
        *,
        context: Mapping[str, Any],
        workflow: str | None = None,
        idempotency_key: str | None = None,
        by: str = "",
        reason: str = "",
    ) -> WorkflowSummary:
        body = {
            "stage": stage, "context": dict(context), "workflow": workflow, "idempotency_key": idempotency_key,
            "reason": reason,
        }  # fmt: skip
        return _summary(self._remote.post(f"/workflows/{part(id)}/fork", body))

    def pause(self, id: str, *, by: str, reason: str = "") -> None:
        self._act(id, "pause", reason=reason)

    def resume(self, id: str, *, by: str, reason: str = "") -> None:
        self._act(id, "resume", reason=reason)

    def retry(self, id: str, *, by: str, reason: str = "", code_version: str | None = None) -> None:
        self._act(id, "retry", reason=reason, code_version=code_version)

    def cancel(self, id: str, reason: str, *, by: str) -> None:
        self._act(id, "cancel", reason=reason)

    def cancel_stage(self, id: str, ref: str, *, by: str, reason: str = "") -> None:
        self._act(id, f"stages/{part(ref)}/cancel", reason=reason or why())

    def restart(self, id: str, ref: str, *, by: str, reason: str = "", code_version: str | None = None) -> None:
        self._act(id, f"stages/{part(ref)}/restart", reason=reason or why(), code_version=code_version)

    def skip(self, id: str, ref: str, *, by: str, reason: str = "") -> None:
        self._act(id, f"stages/{part(ref)}/skip", reason=reason or why())

    def signal(
        self, id: str, name: str, value: Any = None, *, stage: str | None = None, signal_id: str | None = None
    ) -> bool:
        body = {"name": name, "value": value, "stage": stage, "signal_id": signal_id}
        return bool(self._remote.post(f"/workflows/{part(id)}/signal", body)["taken"])

    def approve(self, id: str, name: str, *, user: str, comment: str | None, stage: str | None) -> bool:
        return self._word(id, "approve", name, comment, stage)

    def reject(self, id: str, name: str, *, user: str, comment: str | None, stage: str | None) -> bool:
        return self._word(id, "reject", name, comment, stage)

    def log(self, id: str, *, after: int = 0, limit: int = 1000) -> list[LogEntry]:
        found = self._remote.get(f"/workflows/{part(id)}/log", after=after or None, limit=min(limit, 1000))
        return [made(LogEntry, one) for one in found["items"]]

    def state_at(self, id: str, seq: int) -> PastState:
        found = self._remote.get(f"/workflows/{part(id)}/at/{seq}")
        stages = {
            ref: PastStage(WorkflowStatus(one["status"]), one["incarnation"]) for ref, one in found["stages"].items()
        }
        return PastState(seq, parsed("at", found["at"]), WorkflowStatus(found["status"]), stages)

    def _word(self, id: str, act: str, name: str, comment: str | None, stage: str | None) -> bool:
        body = {"name": name, "comment": comment, "stage": stage}
        return bool(self._remote.post(f"/workflows/{part(id)}/{act}", body)["taken"])

    def _act(self, id: str, act: str, **body: Any) -> None:
        self._remote.post(f"/workflows/{part(id)}/{act}", body)

    def _shown(self, id: str) -> dict[str, Any]:
        if not is_reached(id):  # it would be answered with something else
            raise NotFound(f"there is no workflow {id}")
        return dict(self._remote.get(f"/workflows/{part(id)}"))


def _summary(document: dict[str, Any]) -> WorkflowSummary:
    return made(WorkflowSummary, document, status=WorkflowStatus(document["status"]))


def _stage(document: dict[str, Any]) -> StageExecution:
    owner = None if document["owner"] is None else SyntheticStageOwner(document["owner"])
    return made(
        StageExecution, document, id=document["ref"], ref_id=document["ref"],
        status=WorkflowStatus(document["status"]), requisite_stage_ref_ids=set(document["after"]),
        parent_stage_id=document["part_of"], synthetic_stage_owner=owner,
    )  # fmt: skip


def _step(document: dict[str, Any]) -> StepGuarantee:
    effect = document["effect"]
    starts = document["label"] == CALLED
    return StepGuarantee(document["stage"], document["task"], None if effect is None else Effect(effect), starts)
