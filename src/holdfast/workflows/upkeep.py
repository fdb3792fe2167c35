"""What a worker does now and then for all workflows of the store, whoever works on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from holdfast.machine.workflow import S
from holdfast.store.port import Store
from holdfast.workflows.circuits import WorkflowCircuitFactory
from holdfast.workflows.finalizers import FinalizerRegistry
from holdfast.workflows.presence import Presence
from holdfast.workflows.pruning import BATCH, prune
from holdfast.workflows.records import WAITING, WORKFLOW
from holdfast.workflows.reporting import Reporter
from holdfast.workflows.rounds import Rounds
from holdfast.workflows.runs import Blueprints
from holdfast.workflows.serving import tidy
from holdfast.workflows.starting import start_waiting

PRUNE_S: Final = 3600.0
"""How often to look for workflows that are old enough to go."""
MORE_S: Final = 1.0
"""The same while there are more of them than go at once."""


class Upkeep:
    """Takes up what dead workers had, and what fell between the commits of others; deletes what is old, if it is told
    to with `retention_days`. `recover` takes up workflows that lack something, and says how many."""

    def __init__(
        self,
        store: Store,
        presence: Presence,
        blueprints: Blueprints,
        finalizers: FinalizerRegistry,
        circuits: WorkflowCircuitFactory,
        reporter: Reporter,
        *,
        recover: Callable[[], int],
        retention_days: int | None,
    ) -> None:
        self._store = store
        self._presence = presence
        self._blueprints = blueprints
        self._finalizers = finalizers
        self._circuits = circuits
        self._reporter = reporter
        self._retention_days = retention_days
        self._rounds = Rounds(presence.adopt_orphans, recover, self._start_waiting, self._tidy)
        self._prune_at = float("-inf")

    def do_due(self, at: float) -> int:
        """Do what is due at a time of the caller's clock; whether, or how much, there is to claim now.

        Raises StoreError.
        """
        freed = self._presence.bury() + self._rounds.do_due(at)
        self.prune(at)
        return freed

    def prune(self, at: float) -> None:
        """Delete what ended long ago, a few at a time, if that is due. Raises StoreError."""
        if self._retention_days is None or at < self._prune_at:
            return
        before = self._store.now() - self._retention_days * 86_400_000_000
        report = prune(self._store, before, limit=BATCH)
        self._reporter.pruned(report)
        self._prune_at = at + (MORE_S if report.pruned >= BATCH else PRUNE_S)

    def _start_waiting(self) -> int:
        """Workflows that wait for room in their pipeline which nobody has told them of."""
        found = self._store.tally(WAITING, ("pipeline",))
        return sum(start_waiting(self._store, self._blueprints, pipeline) for (pipeline,) in found)

    def _tidy(self) -> int:
        """What is left of workers that are gone, here and in the store, and of workflows that have ended elsewhere."""
        self._finalizers.forget_settled()
        tidy(self._store)
        ids = self._circuits.workflow_ids()
        for id, flow in zip(ids, self._store.get(WORKFLOW, ids) if ids else (), strict=True):
            if flow is None or S(flow.status).is_complete:
                self._circuits.clear_workflow_circuits(id)
        return 0
