"""A task as a plain function in a test, though it asks which task it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.core.context import ResilienceContext, use_context
from holdfast.guard.scope import Scope
from holdfast.letters.capture import IDEMPOTENCY_KEY
from holdfast.workflows.task_context import TaskContext, being


def in_task(
    name: str = "task", *, attempt: int = 1, idempotency_key: str = "test", patches: tuple[str, ...] = ()
) -> Scope[TaskContext]:
    """Let `current_task()` be such a task, and `current_idempotency_key()` its key; `as` gives the task.

    A block or a decorator. No engine runs it: a finalizer or a session of its own it has not got.
    """
    return Scope(lambda: _inside(TaskContext("test", name, name, attempt, idempotency_key, tuple(patches))))


@contextmanager
def _inside(task: TaskContext) -> Iterator[TaskContext]:
    known = ResilienceContext("", properties={IDEMPOTENCY_KEY: task.idempotency_key})
    with use_context(known), being(task):
        yield task
