"""The dead letters behind a server, and operations over many of them."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from typing import Any

from holdfast.cli.api import part
from holdfast.cli.elsewhere.part import Part, made, parsed, why
from holdfast.cli.exits import NotFound, WrongUsage
from holdfast.letters.bulk import BulkPreview, BulkProgress, LetterFilter
from holdfast.letters.data import FailedOperationData, ReplayAttempt
from holdfast.letters.replay import ReplayOutcome, ReplayResult
from holdfast.machine.bulk import BulkAction, BulkState
from holdfast.views.letters import user_of
from holdfast.views.plain import plain


class RemoteLetters(Part):
    """The dead letters behind a server. Payloads are masked."""

    @property
    def handlers(self) -> Elsewhere:
        return Elsewhere(self._remote)

    @cached_property
    def bulk(self) -> RemoteBulk:
        return RemoteBulk(self._remote)

    def find(self, *, limit: int, after: str | None = None, **where: Any) -> list[FailedOperationData]:
        if isinstance(user := where.get("user_id"), str) and user_of(user) != user:
            where["user_id"] = f'"{user}"'
        page = self._remote.pages("/letters", limit, after, **where)
        return [made(FailedOperationData, one) for one in page["items"][:limit]]

    def get_by_id(self, id: str) -> FailedOperationData | None:
        found = self._shown(id)
        return None if found is None else made(FailedOperationData, found)

    def get_attempts(self, id: str) -> list[ReplayAttempt]:
        found = self._shown(id)
        return [] if found is None else [made(ReplayAttempt, one, token="") for one in found["attempts"]]

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
            return made(ReplayResult, answer, outcome=ReplayOutcome(answer["outcome"]))
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

    def archive_old_resolved(self, older_than_days: int) -> int:
        archived, more = 0, True
        while more:
            done = self._remote.post("/letters/archive", {"older_than_days": older_than_days, "reason": why()})
            archived, more = archived + done["archived"], done["more"]
        return archived

    def count_resolved_older_than(self, older_than_days: int) -> int:
        return int(self._remote.get("/letters/archive/preview", older_than_days=older_than_days)["matched"])

    def count_archived_older_than(self, older_than_days: int) -> int:
        return int(self._remote.get("/letters/purge/preview", older_than_days=older_than_days)["matched"])

    def purge_archived(self, ids: list[str] | None, older_than_days: int | None, *, limit: int) -> int:
        """`limit` is how many were counted. Raises Failed if it is another number by now."""
        return sum(self._delete("/letters/purge", limit, ids=ids, older_than_days=older_than_days))

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


class RemoteBulk(Part):
    """Bulk operations behind a server. It counts before it starts one, and its workers carry it out."""

    def dry_run(self, filter: LetterFilter, action: BulkAction) -> BulkPreview:
        found = self._preview(filter, action)
        sample = tuple(one["id"] for one in found["sample"])
        return BulkPreview(found["total"], found["by_domain"], found["by_status"], sample)

    def start(
        self,
        filter: LetterFilter,
        action: BulkAction,
        *,
        confirm_count: int | None = None,
        requested_by: str = "",
        reason: str = "",
    ) -> BulkProgress:
        """Of what fails from now on nothing is part of it."""
        found = self._preview(filter, action)
        count = found["total"] if confirm_count is None else confirm_count
        body = {"action": action.value, "filter": found["filter"], "confirm_count": count, "reason": reason}
        return _progress(self._remote.post("/bulk", body))

    def find(self, state: BulkState | str | None = None, limit: int = 50) -> list[BulkProgress]:
        page = self._remote.pages("/bulk", limit, state=None if state is None else str(state))
        return [_progress(one) for one in page["items"][:limit]]

    def progress(self, id: str) -> BulkProgress | None:
        try:
            return _progress(self._remote.get(f"/bulk/{part(id)}"))
        except NotFound:
            return None

    def abort(self, id: str, *, by: str = "") -> bool:
        found = self.progress(id)
        if found is None or found.is_over:
            return False
        self._remote.post(f"/bulk/{part(id)}/abort", {"reason": why()})
        return True

    def _preview(self, filter: LetterFilter, action: BulkAction) -> dict[str, Any]:
        asked = {name: value for name, value in plain(filter).items() if value is not None}
        return dict(self._remote.post("/bulk/preview", {"action": action.value, "filter": asked}))


def _progress(document: dict[str, Any]) -> BulkProgress:
    filter = LetterFilter(**{name: parsed(name, value) for name, value in document["filter"].items()})
    state, action = BulkState(document["state"]), BulkAction(document["action"])
    return made(BulkProgress, document, filter=filter, state=state, action=action)
