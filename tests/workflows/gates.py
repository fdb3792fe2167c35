"""Calls that a test holds up, and what came of those that it does not wait for."""

from __future__ import annotations

import threading

from holdfast.workflows.bulkheads import TaskBulkheadManager
from holdfast.workflows.config import BulkheadConfig, ResilienceConfig

PATIENCE_S = 20.0


class Gate:
    """A function that says that it has begun and waits until the gate is opened."""

    def __init__(self, answer=None):
        self.answer = answer
        self.begun = threading.Semaphore(0)
        self.ended = threading.Semaphore(0)
        self._open = threading.Event()

    def __call__(self):
        self.begun.release()
        assert self._open.wait(PATIENCE_S), "nobody opened the gate"
        self.ended.release()
        return self.answer

    def entered(self, times=1):
        for _ in range(times):
            assert self.begun.acquire(timeout=PATIENCE_S), "nobody came"

    def open(self):
        self._open.set()


class Pending:
    """The result of a submitted call, when there is one."""

    def __init__(self, manager, task_type, func, *args, **options):
        self.results = []
        self._told = threading.Event()
        self.call = manager.submit(task_type, func, args, on_done=self._on_done, **options)

    def _on_done(self, result):
        self.results.append(result)
        self._told.set()

    def result(self):
        assert self._told.wait(PATIENCE_S), "the call was never reported"
        [result] = self.results
        return result


def made(clock=None, *, http=(2, 1, 30.0), idle_s=10.0, **types):
    """A manager whose http tasks have two slots, one place to wait, and thirty seconds."""
    config = ResilienceConfig(
        bulkheads=tuple((name, BulkheadConfig(*limits)) for name, limits in {"http": http, **types}.items())
    )
    options = {} if clock is None else {"clock": clock}
    return TaskBulkheadManager(config, idle_s=idle_s, **options)


def until(reached):
    """Wait for another thread. It is at its last step: this goes round a few times."""
    pause = threading.Event()
    for _ in range(int(PATIENCE_S / 0.001)):
        if reached():
            return
        pause.wait(0.001)
    raise AssertionError("it never came to that")
