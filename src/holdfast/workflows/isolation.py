"""Tasks in processes of their own: what hangs is killed, and what crashes takes nobody with it."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Final

from holdfast.core.check import check_seconds
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.core.context import CURRENT, ambient_deadline
from holdfast.core.deadline import Deadline
from holdfast.errors import ConfigurationError, TaskError, TaskTimeoutError, TransientError
from holdfast.machine.retry import Retry
from holdfast.store.codec import from_json, plain, to_json
from holdfast.telemetry.causation import causation_id
from holdfast.workflows.cancel import current_task_token
from holdfast.workflows.effects import Effect
from holdfast.workflows.error_document import error_of
from holdfast.workflows.result import TaskResult, as_result
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.sub_workflow import SubWorkflow
from holdfast.workflows.task_context import current_task

_APPLICATION: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
# The request says where modules are found, so it is read before ours is imported.
_BOOT: Final = (
    "import json, sys; request = json.loads(sys.stdin.buffer.readline()); sys.path[:] = request['path']; "
    "from holdfast.workflows.isolated import main; main(request)"
)
_GRACE_S: Final = 5.0
_NO_PROCESS_S: Final = 1.0


class ProcessIsolation:
    """Runs what an application has registered, by name, each call in a new process that is killed when its time is up.

    `application` says where the names are: `"shop.tasks:registry"`, an attribute of a module that the new process
    imports. It is a TaskRegistry, a mapping to functions, or what has both: `hold.workflows`, a Holdfast, or a function
    that makes one. Arguments and results are JSON, or a TaskResult or a SubWorkflow.
    """

    def __init__(self, application: str, *, clock: Clock = SYSTEM_CLOCK) -> None:
        if not _APPLICATION.fullmatch(application) or application.startswith("__main__:"):
            raise ConfigurationError(
                f"application must name a module that can be imported and the registry in it, got {application!r}; "
                'use a text such as "shop.tasks:registry"'
            )
        self._application = application
        self._clock = clock

    def run(
        self,
        name: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> Any:
        """The function's result. Its exceptions are raised here as they were there, or by name (`IsolatedError`).

        The process is killed after `timeout` seconds, when the surrounding deadline has passed, and when the task that
        this is called in is cancelled. Raises TaskTimeoutError, asyncio.CancelledError, and TaskError when the
        process ends without an answer.
        """
        if timeout is not None:
            check_seconds("timeout", timeout, "leave it out for no limit of its own")
        until = ambient_deadline(CURRENT.get(), self._clock)
        until = until.tighten(None if timeout is None else self._clock.monotonic() + timeout)
        answer = self._ask(name, plain(list(args), "args"), plain(dict(kwargs or {}), "kwargs"), until)
        if "error" in answer:
            raise error_of(answer["error"])
        if "answer" in answer:
            return TaskResult.from_document(answer["answer"])
        return SubWorkflow(**answer["workflow"]) if "workflow" in answer else answer["result"]

    def execute(self, name: str, stage: StageExecution, *, timeout: float | None = None) -> TaskResult | SubWorkflow:
        """What a registered Task answers for a stage. The other process gets the stage as it is stored, and what the
        stages before it have left."""
        document = stage.to_document()
        if (seen := getattr(stage.context, "seen", None)) is not None:
            document["seen"] = plain(dict(seen), "seen")
        answer = self.run(name, [document], timeout=timeout)
        return answer if isinstance(answer, SubWorkflow) else as_result(answer, name)

    def _ask(self, name: str, args: list[Any], kwargs: dict[str, Any], until: Deadline) -> dict[str, Any]:
        token, left = current_task_token(), until.remaining()
        token.raise_if_cancelled()
        here = current_task()
        request = {
            "path": list(sys.path),
            "application": self._application,
            "name": name,
            "args": args,
            "kwargs": kwargs,
            "seconds": None if left == math.inf else left,
            "task": None if here is None else asdict(replace(here, registry=None)),
            "cause": causation_id(),
        }
        child = _Child(to_json(request))
        forget = token.when_cancelled(child.kill)
        try:
            is_in_time = self._clock.wait(child.answered, None if left == math.inf else max(0.0, left))
        finally:
            forget()
            if not child.line:
                child.kill()
            code = child.end()
        if child.line:
            answer: dict[str, Any] = from_json(child.line.decode())
            return answer
        token.raise_if_cancelled()
        if not is_in_time:
            raise TaskTimeoutError(f"task {name!r} was killed: not done within {left:.3g} s")
        raise TaskError(f"task {name!r} gave no answer: its process {_story(code)}")


class _Child:
    """A process, and a thread that talks to it. It leads a group of processes, so that what it starts is killed too."""

    def __init__(self, request: str) -> None:
        self.answered = threading.Event()
        self.line = b""
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            raise TransientError(f"no process could be started: {error}", retry_after=_NO_PROCESS_S) from error
        threading.Thread(target=self._talk, args=(request,), name="holdfast-isolation", daemon=True).start()

    def kill(self) -> None:
        if self._process.poll() is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def end(self) -> int:
        """Wait for the end, a little while for one that has answered; its exit code."""
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:  # a thread of its own holds it up
            self.kill()
            self._process.wait()
        if self.answered.wait(_GRACE_S):  # not if something that it started has fled and holds our pipe
            self._close_pipes()
        return self._process.returncode

    def _close_pipes(self) -> None:
        """Only at the end: the process takes the end of its input for the end of the worker."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass

    def _talk(self, request: str) -> None:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(request.encode() + b"\n")
            stdin.flush()
            self.line = stdout.readline()
        except OSError:
            pass  # it has ended
        finally:
            self.answered.set()


def _story(code: int) -> str:
    return f"ended with code {code}" if code >= 0 else f"was ended by signal {-code} ({signal.strsignal(-code)})"


class IsolatedTask:
    """A function of the engine's that is called so. What else is asked of it, it answers itself."""

    is_async = False

    def __init__(self, task: Any, isolation: ProcessIsolation) -> None:
        self._task = task
        self.name: str = task.name
        self.retry: Retry | None = task.retry
        self.timeout: float | None = task.timeout
        self.guard: str | None = task.guard
        self.effect: Effect | None = task.effect
        self.verifies: bool = task.verifies
        self.function: Callable[..., Any] = partial(_run, isolation, task.name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)


def _run(isolation: ProcessIsolation, name: str, /, *args: Any, **kwargs: Any) -> Any:
    return isolation.run(name, args, kwargs)
