"""The other side of process isolation: what a process does that was started for one task.

Every call pays for what is imported here, so what only some of them need is imported by those.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from holdfast.core.context import deadline
from holdfast.errors import TaskNotFoundError
from holdfast.store.codec import plain, plain_to_json
from holdfast.telemetry.causation import caused_by
from holdfast.workflows.error_document import error_document
from holdfast.workflows.faults import Faults, Judgement


def main(request: dict[str, Any]) -> None:
    """Call what is asked for, and answer in one line."""
    answers = _own_streams()
    judge: Callable[[BaseException], Judgement] = Faults().judge
    try:
        names = _application(request["application"])
        judge = getattr(getattr(names, "registry", names), "judge", judge)
        seconds = request["seconds"]
        if request["task"] is not None:  # the engine's: it has a key
            from holdfast.workflows.task_context import TaskContext, be_task

            be_task(TaskContext(**request["task"] | {"registry": getattr(names, "finalizers", None)}))
        with deadline(math.inf if seconds is None else seconds), caused_by(request.get("cause")):
            value = _call(_named(names, request["name"]), request)
        answer = _answer(value)
    except BaseException as error:  # SystemExit too: it is the task's error, and must not be taken for a crash
        answer = {"error": plain(error_document(error, judge), "error")}
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    with open(answers, "wb") as pipe:
        pipe.write(plain_to_json(answer).encode() + b"\n")


def _own_streams() -> int:
    """Where to answer. What the task prints goes to the worker's standard error, and it reads nothing."""
    requests, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    threading.Thread(target=_end_with_worker, args=(requests,), name="holdfast-worker-watch", daemon=True).start()
    return answers


def _end_with_worker(requests: int) -> None:
    # The worker holds the other end until we have ended. If it dies, however suddenly, so do we and what we started:
    # the task is somebody else's by then.
    os.read(requests, 1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _application(path: str) -> Any:
    module, _, attribute = path.partition(":")
    found: Any = import_module(module)
    for name in attribute.split("."):
        found = getattr(found, name)
    if callable(found) and not hasattr(found, "workflows"):
        found = found()  # it makes one
    return getattr(found, "workflows", found)


def _named(names: Any, name: str) -> Any:
    if not isinstance(names, Mapping):  # a registry, or an engine, which has one besides
        tasks = getattr(names, "tasks", {})
        return tasks[name] if name in tasks else getattr(names, "registry", names).resolve(name)
    if name not in names:
        there = ", ".join(sorted(names)) or "none"
        raise TaskNotFoundError(
            f"no task named {name!r}; there are {there}; those of a TaskRegistry are not among them"
        )
    return names[name]


def _call(found: Any, request: dict[str, Any]) -> Any:
    if not hasattr(found, "execute"):
        return _awaited(found(*request["args"], **request["kwargs"]))
    from holdfast.workflows.stage import StageExecution

    [document] = request["args"]
    stage = StageExecution.from_document(document)
    if "seen" in document:
        from holdfast.workflows.stage_tasks import SeenContext

        stage.context = SeenContext(stage.context, document["seen"])
    return _awaited(found.execute(stage))


def _answer(value: Any) -> dict[str, Any]:
    """What a call came to: a value, or what else a task may answer, which the engine has to know from a value."""
    if value is not None and not isinstance(value, bool | int | float | str | list | dict):
        from holdfast.workflows.result import TaskResult
        from holdfast.workflows.sub_workflow import SubWorkflow

        if isinstance(value, TaskResult):
            return {"answer": value.to_document()}
        if isinstance(value, SubWorkflow):
            return {"workflow": plain(value._asdict(), "SubWorkflow")}
    return {"result": plain(value, "result")}


def _awaited(value: Any) -> Any:
    if not inspect.isawaitable(value):
        return value
    import asyncio

    async def wait() -> Any:
        return await value

    return asyncio.run(wait())
