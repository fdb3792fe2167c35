"""The dead letters of a store: found, replayed, drained and tidied up."""

from __future__ import annotations

import os
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.letters.box import LetterBox
from holdfast.letters.bulk import Bulk
from holdfast.letters.handlers import ReplayHandler, ReplayHandlers
from holdfast.letters.maintenance import Maintenance, MaintenanceReport, Schedule
from holdfast.letters.overflow import Capacity
from holdfast.letters.pace import BatchPolicy, BatchResult, replay_many
from holdfast.letters.recovery import Recovery, RecoveryPolicy
from holdfast.letters.replay import Replayer, ReplayResult
from holdfast.letters.repository import FailedOperationRepository
from holdfast.letters.spool import Spool
from holdfast.letters.worker import Worker, WorkerPolicy
from holdfast.store.port import Store
from holdfast.telemetry.hub import Hub, default_hub

if TYPE_CHECKING:
    from holdfast.guard.guard import Guard
    from holdfast.letters.gates import BreakerStates


class Letters(FailedOperationRepository):
    """The repository, and everything that acts on it. `hold.letters` is one.

    `box` takes captured failures in; `handlers` knows who can replay what; `bulk` runs operations over many letters.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock | None = None,
        *,
        hub: Hub | None = None,
        capacity: Capacity | None = None,
        spool: str | os.PathLike[str] | None = None,
        breakers: BreakerStates | None = None,
        recovery: RecoveryPolicy | None = None,
        schedule: Schedule | None = None,
    ) -> None:
        super().__init__(store, clock)
        own = SYSTEM_CLOCK if clock is None else clock
        told = default_hub() if hub is None else hub
        self.box = LetterBox(self, capacity, None if spool is None else Spool(spool), own)
        self.handlers = ReplayHandlers()
        self.replayer = Replayer(self, self.handlers, breakers, clock=own, hub=told)
        self.bulk = Bulk(self.replayer)
        self.recovery = Recovery(self.replayer, recovery)
        self.maintenance = Maintenance(self, schedule, hub=told, clock=own)

    def handle(self, domain: str, handler: ReplayHandler, *, guard: Guard | None = None) -> None:
        """Let `handler` replay the letters of a domain: `can_replay(op)` and `replay(op)`."""
        self.handlers.register(domain, handler, guard=guard)

    def replay(self, id: str, *, force: bool = False, by: int | str | None = None) -> ReplayResult:
        """Replay one letter now, in this thread. `force` starts a new budget of attempts, also after review."""
        return self.replayer.replay(id, force=force, by=by)

    def replay_many(
        self,
        domain: str | None = None,
        *,
        failure_type: str | None = None,
        policy: BatchPolicy | None = None,
        by: int | str | None = None,
    ) -> BatchResult:
        """Replay what is due, in order per entity. `bulk` does it durably, for any filter."""
        return replay_many(self.replayer, domain, failure_type=failure_type, policy=policy, by=by)

    def pause(self, domain: str, *, by: str = "", reason: str = "", until: datetime | None = None) -> None:
        """Replay nothing of the domain, on any host, until `resume` or the given time."""
        self.replayer.gates.pause(domain, by=by, reason=reason, until=until)

    def resume(self, domain: str) -> bool:
        """Let the domain's letters go again; False if they were not paused."""
        return self.replayer.gates.resume(domain)

    def run_maintenance(self) -> MaintenanceReport:
        """Release, expire, archive, purge, age: now, and safely beside other hosts that do the same."""
        return self.maintenance.run()

    def worker(self, policy: WorkerPolicy | None = None, **chores: Any) -> Worker:
        """What drains, retries and tidies up by itself; further chores are functions by name."""
        return Worker(
            self.replayer,
            recovery=self.recovery,
            bulk=self.bulk,
            maintenance=self.maintenance,
            chores={"spool": self.box.ingest, **chores},
            policy=policy,
        )

    def close(self) -> None:
        """End what runs in the background."""
        self.replayer.close()
        self.box.close()
