"""What a worker can do without the program's functions: maintenance, on the default schedule."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from holdfast.errors import Conflict, StoreError
from holdfast.letters.events import WorkerTroubled
from holdfast.letters.maintenance import MaintenanceReport
from holdfast.store.codec import instant
from holdfast.workflows.config import EngineConfig

if TYPE_CHECKING:
    from holdfast.app import Holdfast

EVERY_S: Final = 60.0


@dataclass(slots=True)
class UpkeepReport:
    """What one look brought."""

    maintenance: MaintenanceReport | None = None
    troubles: dict[str, str] = field(default_factory=dict)


class Upkeep:
    """Looks like a `Worker`, and takes no bulk operation: without handlers it would skip every letter of it."""

    def __init__(self, hold: Holdfast) -> None:
        self._hub = hold.telemetry
        self._maintenance = hold.letters.maintenance
        self._breakers = hold.breakers
        self._hold = hold
        days = EngineConfig.from_env().retention_days
        self._retention = None if days is None else timedelta(days=days)
        self._stop = threading.Event()

    def run_once(self) -> UpkeepReport:
        """Do all maintenance now, also where another host did it just before."""
        return UpkeepReport(self._look(None))

    def run(self) -> None:
        """Do maintenance whenever it is due, until `stop`. A store that is away is waited for."""
        while not self._stop.is_set():
            try:
                self._look(EVERY_S)
            except (StoreError, Conflict) as error:
                self._hub.emit(WorkerTroubled("", "", "maintenance", str(error)))
            self._stop.wait(EVERY_S)

    def stop(self) -> None:
        self._stop.set()

    def _look(self, every_s: float | None) -> MaintenanceReport | None:
        self._breakers.clear_expired_pins()
        if self._retention is not None:
            self._hold.workflows.prune(instant(self._hold.store.now()) - self._retention)
        return self._maintenance.run() if every_s is None else self._maintenance.run_if_due(every_s)
