"""Retention: workflows that ended long ago go, with everything that is kept of them.

A workflow goes in one transaction, with its record as it was read: if somebody changes it meanwhile, or was faster, it
stays as it is. So any number of hosts may do this at once, and a crash leaves nothing half deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.errors import Conflict
from holdfast.machine.dead_letter import ACTIVE, LETTER
from holdfast.machine.finalizer import FINALIZER, FinalizerState
from holdfast.machine.workflow import COMPLETE, WorkflowStatus
from holdfast.store.paging import every
from holdfast.store.port import Change, Delete, Store
from holdfast.store.query import Condition, Cursor, among, equal
from holdfast.store.record import Kind
from holdfast.workflows.dead_letters import letter_id
from holdfast.workflows.records import EVENT, ITEM, MESSAGE, PROCESSED, SIGNAL, STAGE, WORKFLOW, WorkflowRecord

BATCH: Final = 100
"""How many workflows are looked at together."""
MOST_ROWS: Final = 1000
"""How many rows go in one transaction, unless they are of one workflow."""
_OVER: Final = tuple(sorted(status.value for status in COMPLETE))
_OF_IT: Final[tuple[Kind[Any], ...]] = (STAGE, EVENT, SIGNAL, FINALIZER, PROCESSED)
"""What is kept of a workflow besides its own record."""
_TROUBLED: Final = tuple(sorted(set(FinalizerState) - {FinalizerState.DONE}))


@dataclass(slots=True)
class PruneReport:
    """How many workflows went, or would go, and why others that ended as long ago did not."""

    pruned: int = 0
    kept: Counter[str] = field(default_factory=Counter)
    more: bool = False
    """Whether there are more to look at."""


class Pruning:
    """One look at the workflows that ended before a time, in microseconds, the oldest first; a batch at a time."""

    def __init__(self, store: Store, before: int) -> None:
        self._store = store
        self._before = before
        self._after: Cursor | None = None

    def batch(self, report: PruneReport, *, dry_run: bool = False, limit: int = BATCH) -> None:
        """Look at the next ones, and delete those that may go."""
        # Whatever ended before a time was made before it: that ends the scan.
        old = (Condition("ended_at", "<", self._before), Condition("created_at", "<", self._before))
        where = (among("status", _OVER), *old)
        found = self._store.page(WORKFLOW, where, by="created_at", after=self._after, limit=limit)
        report.more = len(found) == limit
        if found:
            self._after = Cursor(found[-1].created_at, found[-1].id)
        why = self._reasons(found)
        report.kept.update(why.values())
        going = [one for one in found if one.id not in why]
        report.pruned += len(going) if dry_run else sum(self._delete(group) for group in self._groups(going))

    def _reasons(self, found: list[WorkflowRecord]) -> dict[str, str]:
        """Why some of them stay."""
        ids = [one.id for one in found]
        why: dict[str, str] = {}
        if not ids:
            return why
        parents = {one.id: one.parent.partition(".")[0] for one in found if one.parent is not None}
        records = self._store.get(WORKFLOW, list(parents.values()))
        for id, parent in zip(parents, records, strict=True):
            if parent is not None and parent.status not in _OVER:
                why[id] = "its parent is under way"
        for (id,) in self._store.tally(FINALIZER, ("workflow",), (among("workflow", ids), among("state", _TROUBLED))):
            why[id] = "it has finalizers that were not done"
        letters = {one.id: letter for one in found if (letter := letter_id(one)) is not None}
        kept = self._store.get(LETTER, list(letters.values())) if letters else ()
        for id, there in zip(letters, kept, strict=True):
            if there is not None and there.status in ACTIVE:
                why.setdefault(id, "it has a dead letter")
        for kind in (ITEM, MESSAGE):
            for (id,) in self._store.tally(kind, ("workflow",), (among("workflow", ids),)):
                why.setdefault(id, "it has dead items, or work to be done")
        # A retry of the parent goes on with the one that has failed. The parent was made first, and looked at first.
        failed = {one.id for one in found if one.status == WorkflowStatus.TERMINAL}
        for id, parent in zip(parents, records, strict=True):
            if id in failed and parent is not None and (parent.id not in ids or parent.id in why):
                why.setdefault(id, "its parent may be retried")
        return why

    def _groups(self, going: list[WorkflowRecord]) -> Iterator[dict[str, list[Change]]]:
        """Workflows that go together."""
        group: dict[str, list[Change]] = {}
        for record in going:
            rows = [change for kind in _OF_IT for change in self._rows(kind, record.id)]
            group[record.id] = [*rows, Delete(WORKFLOW, record)]
            if sum(map(len, group.values())) >= MOST_ROWS:
                yield group
                group = {}
        if group:
            yield group

    def _rows(self, kind: Kind[Any], id: str) -> Iterator[Change]:
        return (Delete(kind, row) for row in every(self._store, kind, equal(workflow=id)))

    def _delete(self, group: dict[str, list[Change]]) -> int:
        try:
            self._store.commit([change for changes in group.values() for change in changes])
        except Conflict:
            if len(group) == 1:
                return 0  # somebody has changed it, or was faster
            return sum(self._delete({id: changes}) for id, changes in group.items())
        return len(group)


def prune(store: Store, before: int, *, limit: int | None = None, dry_run: bool = False) -> PruneReport:
    """Delete the workflows that ended before a time, at most so many; with `dry_run` only count them."""
    report, look = PruneReport(more=True), Pruning(store, before)
    while report.more and (limit is None or report.pruned < limit):
        look.batch(report, dry_run=dry_run, limit=BATCH if limit is None else min(BATCH, limit - report.pruned))
    return report
