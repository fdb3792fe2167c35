"""Who does the work of a worker: threads, an event loop, and one that watches the time."""

from __future__ import annotations

import threading

from holdfast.core.clock import Clock
from holdfast.workflows.task_loop import TaskLoop
from holdfast.workflows.threads import Alarms, Threads


class Crew:
    """Of the machine's own threads. The test kit has one without any, which does everything in turn."""

    stops: tuple[type[BaseException], ...] = (KeyboardInterrupt,)
    """What stops the work if a task raises it; whatever else it raises is what came of the task."""

    def threads(self, name: str, idle_s: float) -> Threads:
        return Threads(name, idle_s)

    def wait(self, event: threading.Event) -> None:
        """Until somebody of the crew has set it."""
        event.wait()

    def loop(self) -> TaskLoop:
        return TaskLoop()

    def alarms(self, clock: Clock) -> Alarms:
        return Alarms(clock)
