"""What commands ask of a server as if it were a store: letters, breakers, workflows.

Each has the methods of its original that commands use and that the API can do, and hands out the same objects. Who acts
is whom the server knows by the token, whatever `--by` says. Anything else says that the store itself is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import datetime
from functools import cached_property
from typing import Any, Final, NoReturn, TypeVar

import click

from holdfast.breakers.data import CircuitBreakerStateData
from holdfast.breakers.sharing import SharingStatus
from holdfast.cli.exits import NotFound, WrongUsage
from holdfast.cli.remote import Remote, part
from holdfast.errors import WorkflowNotFoundError
from holdfast.letters.data import FailedOperationData, ReplayAttempt
from holdfast.letters.replay import ReplayOutcome, ReplayResult
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.codec import micros
from holdfast.telemetry.hub import Hub
from holdfast.views.letters import user_of
from holdfast.workflows.history import LogEntry
from holdfast.workflows.reading import WorkflowSummary

T = TypeVar("T")
NEEDS_STORE: Final = (
    "{} is a server, and this command needs the store itself: --url of the database, or --app; "
    "the documentation of the command line says what can be asked of a server"
)
_PAGE: Final = 500
_BY_COMMAND: Final = "asked for on the command line"
_TIMES: Final = frozenset({"start_time", "end_time", "at"})


class Part:
    """A part of a Holdfast that is elsewhere. What it has not got says what to do."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    def __getattr__(self, name: str) -> NoReturn:
        raise WrongUsage(NEEDS_STORE.format(self._remote.url))


class RemoteHold(Part):
    """A Holdfast at a server's."""

    def __init__(self, remote: Remote) -> None:
        super().__init__(remote)
        self.telemetry = Hub()

    @cached_property
    def store(self) -> RemoteStore:
        return RemoteStore(self._remote)

    @cached_property
    def letters(self) -> RemoteLetters:
        return RemoteLetters(self._remote)

    @cached_property
    def breakers(self) -> RemoteBreakers:
        return RemoteBreakers(self._remote)

    @cached_property
    def workflows(self) -> RemoteWorkflows:
        return RemoteWorkflows(self._remote)

    def close(self) -> None:
        """Nothing is open."""


class RemoteStore(Part):
    """Where the server is, and its store's time."""

    @property
    def url(self) -> str:
        return self._remote.url

    def now(self) -> int:
        """Microseconds since 1970, by the store's clock."""
        return micros(_time(self._remote.get("/status")["now"]))


class RemoteLetters(Part):
    """The dead letters behind a server. Payloads are masked."""

    @property
    def handlers(self) -> Elsewhere:
        return Elsewhere(self._remote)

    def find(self, *, limit: int, after: str | None = None, **where: Any) -> list[FailedOperationData]:
        asked = {name: _said(value) for name, value in where.items()}
        if isinstance(user := asked.get("user_id"), str) and user_of(user) != user:
            asked["user_id"] = f'"{user}"'
        return _pages(self._remote, "/letters", limit, after, lambda one: _made(FailedOperationData, one), **asked)

    def get_by_id(self, id: str) -> FailedOperationData | None:
        found = self._shown(id)
        return None if found is None else _made(FailedOperationData, found)

    def get_attempts(self, id: str) -> list[ReplayAttempt]:
        found = self._shown(id)
        return [] if found is None else [_made(ReplayAttempt, {"token": "", **one}) for one in found["attempts"]]

    def get_facet_counts(self, *, status: str | None = None, domain: str | None = None) -> dict[str, dict[str, int]]:
        found = self._remote.get("/letters/facets", status=status, domain=domain)
        return {name: found[name] for name in ("by_status", "by_domain")}

    def get_statistics(self) -> dict[str, Any]:
        return dict(self._remote.get("/letters/statistics"))

    def get_cleanup_stats(self) -> dict[str, Any]:
        return dict(self._remote.get("/letters/retention"))

    def replay(self, id: str, *, force: bool = False, by: str | None = None) -> ReplayResult:
        answer = self._remote.post(f"/letters/{part(id)}/replay", {"force": force})
        if "outcome" in answer:
            return _made(ReplayResult, {**answer, "outcome": ReplayOutcome(answer["outcome"])})
        words = f"handed to the program's workers, as operation {answer['id']}"
        return ReplayResult(id, ReplayOutcome.STARTED, words, "pending")

    def mark_as_resolved(self, id: str, resolution_type: str, note: str = "", by: Any = None) -> bool:
        return self._decide(id, "resolve", note)

    def update_status(self, id: str, status: str, resolution_type: str, note: str = "", by: Any = None) -> bool:
        return self._decide(id, "discard", note)

    def pause(self, domain: str, *, by: str = "", reason: str = "", until: datetime | None = None) -> None:
        body = {"domain": domain, "reason": reason, "until": None if until is None else until.isoformat()}
        self._remote.post("/letters/domains/pause", body)

    def resume(self, domain: str) -> bool:
        return bool(self._remote.post("/letters/domains/resume", {"domain": domain})["changed"])

    def _shown(self, id: str) -> dict[str, Any] | None:
        try:
            return dict(self._remote.get(f"/letters/{part(id)}"))
        except NotFound:
            return None

    def _decide(self, id: str, act: str, note: str) -> bool:
        if not note.strip():
            raise WrongUsage("a server wants to know why: --note TEXT")
        try:
            self._remote.post(f"/letters/{part(id)}/{act}", {"reason": note})
        except NotFound:
            return False
        return True


class Elsewhere(Part):
    """Handlers of the server's, or of the program's workers: one of them may know how to replay a letter."""

    def find(self, letter: FailedOperationData) -> bool:
        return True


class RemoteBreakers(Part):
    """The breakers behind a server."""

    def get_all_states(self) -> list[CircuitBreakerStateData]:
        return list(self._found())

    def get_open_states(self, limit: int | None = None) -> list[CircuitBreakerStateData]:
        return list(self._found(state="open"))[:limit]

    def get_by_service_name(self, service_name: str) -> CircuitBreakerStateData | None:
        try:
            return _made(CircuitBreakerStateData, self._remote.get(f"/breakers/{part(service_name)}"))
        except NotFound:
            return None

    def status(self) -> SharingStatus:
        """No circuit of this process is shared."""
        return SharingStatus(self._remote.url, "", True, None, None, (), ())

    def atomic_force_open(self, name: str, reason: str, by: Any = None, minutes: int = 90) -> tuple[bool, str, str]:
        return self._act(name, "force-open", {"reason": reason, "ttl_minutes": minutes})

    def atomic_force_close(self, name: str, reason: str, by: Any = None, *, ttl_minutes: int) -> tuple[bool, str, str]:
        return self._act(name, "force-close", {"reason": reason, "ttl_minutes": ttl_minutes})

    def atomic_reset(self, name: str, reason: str = "", by: Any = None) -> tuple[bool, str, str]:
        return self._act(name, "reset", {"reason": reason or _BY_COMMAND})

    def clear_manual_control(self, name: str) -> bool:
        return self._act(name, "clear", {"reason": _BY_COMMAND})[0]

    def _act(self, name: str, act: str, body: dict[str, Any]) -> tuple[bool, str, str]:
        """Whether it was done; that it moved is told by the server's process, not by this one."""
        try:
            after = self._remote.post(f"/breakers/{part(name)}/{act}", body)["state"]
        except NotFound:
            return False, "", ""
        return True, after, after

    def _found(self, **where: Any) -> Iterator[CircuitBreakerStateData]:
        after: str | None = None
        while True:
            page = self._remote.get("/breakers", limit=_PAGE, after=after, **where)
            for one in page["items"]:
                yield _made(CircuitBreakerStateData, one)
            after = page["next"]
            if after is None:
                return


class RemoteWorkflows(Part):
    """The workflows behind a server."""

    def find(self, *, limit: int, after: str | None = None, **where: Any) -> list[WorkflowSummary]:
        asked = {name: _said(value) for name, value in where.items()}
        return _pages(self._remote, "/workflows", limit, after, _summary, **asked)

    def counts(self) -> dict[WorkflowStatus, int]:
        found = self._remote.get("/workflows/facets")["by_status"]
        return {WorkflowStatus(status): number for status, number in found.items()}

    def stranded(self, *, limit: int) -> list[Any]:
        return [_Row(one) for one in self._remote.get("/workflows/stranded", limit=min(limit, _PAGE))]

    def place(self, id: str) -> int | None:
        found: int | None = self._row(id).get("place")
        return found

    def record(self, id: str) -> Any:
        """What is kept of a workflow. Raises WorkflowNotFoundError."""
        try:
            return _Row(self._row(id))
        except NotFound:
            raise WorkflowNotFoundError(f"there is no workflow {id}") from None

    def workflow(self, id: str) -> Any:
        """A workflow without its stages, which say that the store itself is needed."""
        return _Stageless(self._remote, self._row(id))

    def pause(self, id: str, *, by: str, reason: str = "") -> None:
        self._act(id, "pause", reason=reason)

    def resume(self, id: str, *, by: str) -> None:
        self._act(id, "resume")

    def retry(self, id: str, *, by: str, code_version: str | None = None) -> None:
        self._act(id, "retry", code_version=code_version)

    def cancel(self, id: str, reason: str, *, by: str) -> None:
        self._act(id, "cancel", reason=reason)

    def restart(self, id: str, ref: str, *, by: str, code_version: str | None = None) -> None:
        self._act(id, f"stages/{part(ref)}/restart", reason=_BY_COMMAND, code_version=code_version)

    def skip(self, id: str, ref: str, *, by: str) -> None:
        self._act(id, f"stages/{part(ref)}/skip", reason=_BY_COMMAND)

    def log(self, id: str, *, after: int = 0, limit: int = 1000) -> list[LogEntry]:
        found = self._remote.get(f"/workflows/{part(id)}/log", after=after or None, limit=min(limit, _PAGE))
        return [_made(LogEntry, one) for one in found["items"]]

    def signal(self, id: str, name: str, value: Any = None) -> bool:
        return bool(self._remote.post(f"/workflows/{part(id)}/signal", {"name": name, "value": value})["taken"])

    def approve(self, id: str, name: str, *, user: str, comment: str | None, stage: str | None) -> bool:
        return self._word(id, "approve", name, comment, stage)

    def reject(self, id: str, name: str, *, user: str, comment: str | None, stage: str | None) -> bool:
        return self._word(id, "reject", name, comment, stage)

    def _word(self, id: str, act: str, name: str, comment: str | None, stage: str | None) -> bool:
        body = {"name": name, "comment": comment, "stage": stage}
        return bool(self._remote.post(f"/workflows/{part(id)}/{act}", body)["taken"])

    def _act(self, id: str, act: str, **body: Any) -> None:
        if click.get_current_context().params.get("as_json"):  # before anything is done
            raise WrongUsage(f"--json of this command needs the store itself: {self._remote.url} is a server")
        self._remote.post(f"/workflows/{part(id)}/{act}", body)

    def _row(self, id: str) -> dict[str, Any]:
        return dict(self._remote.get(f"/workflows/{part(id)}"))


class _Stageless(Part):
    """A workflow of which a command is told no more than how it stands."""

    def __init__(self, remote: Remote, row: dict[str, Any]) -> None:
        super().__init__(remote)
        self.id: str = row["id"]
        self.name: str = row["name"]
        self.status = WorkflowStatus(row["status"])


class _Row:
    """A document whose keys are attributes."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.__dict__.update({name: _parsed(name, value) for name, value in document.items()})


def _pages(
    remote: Remote, path: str, limit: int, after: str | None, made: Callable[[dict[str, Any]], T], **where: Any
) -> list[T]:
    """As many as are wanted, page by page."""
    found: list[T] = []
    while len(found) < limit:
        page = remote.get(path, limit=min(_PAGE, limit - len(found)), after=after, **where)
        found += [made(one) for one in page["items"]]
        after = page["next"]
        if after is None:
            break
    return found


def _summary(document: dict[str, Any]) -> WorkflowSummary:
    return _made(WorkflowSummary, {**document, "status": WorkflowStatus(document["status"])})


def _made(kind: type[T], document: dict[str, Any]) -> T:
    """The object that a document tells of; what it does not know is left out."""
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]  # every kind here is a dataclass
    return kind(**{name: _parsed(name, value) for name, value in document.items() if name in known})


def _parsed(name: str, value: Any) -> Any:
    is_time = isinstance(value, str) and (name.endswith("_at") or name in _TIMES)
    return _time(value) if is_time else value


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _said(value: Any) -> Any:
    """A condition as the API takes it."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple | list | set | frozenset):
        return [str(one) for one in value]
    return value
