"""A worker's eye on the clock: when the next tick of a schedule is, and having it fired."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from holdfast.store.port import Store
from holdfast.workflows.crew import Crew
from holdfast.workflows.ticking import Ticking

MOST_S: Final = 30.0
"""How often to ask for the next tick at least; who changes a schedule wakes the workers."""


class Ticker:
    """Fires what is due in a thread of its own: the body of a workflow is somebody else's code, and is not run by the
    thread that gives the signs of life. `done` is called when it has fired, `troubled` when the store is away."""

    def __init__(
        self,
        store: Store,
        ticking: Ticking,
        *,
        beat_s: float,
        done: Callable[[], object],
        troubled: Callable[[Exception], None],
        crew: Crew,
    ) -> None:
        self._store = store
        self._ticking = ticking
        self._beat_s = beat_s
        self._done = done
        self._troubled = troubled
        self._threads = crew.threads("holdfast-schedules", 10.0)
        self._fires = False

    def look(self) -> float:
        """Have fired what is due; in how many seconds to look again. Raises StoreError."""
        due = self._ticking.next_due()
        wait = MOST_S if due is None else (due - self._store.now()) / 1e6
        if wait <= 0 and not self._fires:
            self._fires = self._threads.run(self._fire)
        return min(MOST_S, max(wait, self._beat_s if self._fires else 0.001))

    def fire_due(self) -> int:
        """Fire here what is due; how many ticks. Raises StoreError."""
        return self._ticking.fire_due()

    def close(self) -> None:
        """Let go of the thread."""
        self._threads.close()

    def _fire(self) -> None:
        try:
            self._ticking.fire_due()
        except Exception as error:  # the store is away; what is due stays due
            self._troubled(error)
        finally:
            self._fires = False
            self._done()
            self._threads.about_to_be_free()
