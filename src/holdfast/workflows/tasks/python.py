"""The python task: a function that the application allows, or a script in a process of its own."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from holdfast.core.context import deadline
from holdfast.errors import ConfigurationError, TaskError
from holdfast.store.codec import to_json
from holdfast.workflows.result import TaskResult
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task import Answer, Task
from holdfast.workflows.tasks.command import OUTPUT_CAP, accepted, run_command
from holdfast.workflows.tasks.settings import check_names, check_text, check_texts, check_time, own, settings_of
from holdfast.workflows.tasks.shell import environment, secrets_in

_RESULT: Final = "HOLDFAST_RESULT"
_RUNNER: Final = f"""
import json, os, sys
given = json.load(sys.stdin)
names = {{"__name__": "__main__", "inputs": given["inputs"], "result": None}}
try:
    exec(compile(given["script"], "<script>", "exec"), names)
except SystemExit as end:
    if end.code not in (None, 0):
        raise
try:
    left = json.dumps(names["result"])
except (TypeError, ValueError) as error:
    sys.exit(f"what it left in `result` is not JSON: {{error}}")
with open(os.environ[{_RESULT!r}], "w", encoding="utf-8") as file:
    file.write(left)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonScript:
    """A script for a process of its own. It finds `inputs`, and leaves its answer, which is JSON, in `result`."""

    script: str
    inputs: Mapping[str, Any] = field(default_factory=dict)
    timeout: float = 60.0
    env: Mapping[str, Any] = field(default_factory=dict)
    cwd: str | None = None
    python: str | None = None
    """Another interpreter than this one."""
    secrets: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_text("script", self.script)
        _check_inputs(self.inputs)
        check_time("timeout", self.timeout)
        check_names("env", self.env)
        check_text("cwd", self.cwd, optional=True)
        check_text("python", self.python, optional=True)
        check_texts("secrets", self.secrets)

    def run(self, values: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What it printed, and its `result`. Raises what `run_command` raises, and TaskError if it fails."""
        given = values or {}
        with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
            answer = Path(folder, "result")
            result = run_command(
                [self.python or sys.executable, "-c", _RUNNER],
                timeout=self.timeout,
                cwd=self.cwd,
                env={**environment(self.env, given), _RESULT: str(answer)},
                stdin=to_json({"script": self.script, "inputs": self.inputs}),
                secrets=secrets_in(self.secrets, (), given, self.env),
                what="the script",
            )
            accepted(result, "the script")
            if not answer.exists() or answer.stat().st_size > OUTPUT_CAP:
                raise TaskError(f"the script left no result of at most {OUTPUT_CAP} bytes")
            return {**result.outputs(), "result": json.loads(answer.read_text("utf-8"))}


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonCall:
    """A function by its name, and its arguments.

    `timeout` is a deadline for all that the function calls with a guard. A thread cannot be ended from outside: what
    cuts the function itself is the time limit of its task.
    """

    function: str
    inputs: Mapping[str, Any] = field(default_factory=dict)
    timeout: float = 60.0

    def __post_init__(self) -> None:
        check_text("function", self.function)
        _check_inputs(self.inputs)
        check_time("timeout", self.timeout)

    def run(self, function: Callable[..., Any]) -> Answer:
        """Call it. What it returns is published: a mapping as it is, something else as `result`."""
        if inspect.iscoroutinefunction(function):
            return self._awaited(function)
        with deadline(self.timeout):
            return _published(function(**self.inputs))

    async def _awaited(self, function: Callable[..., Awaitable[Any]]) -> TaskResult:
        with deadline(self.timeout):
            return _published(await function(**self.inputs))


class PythonTask(Task):
    """Calls the `function` of its stage's context, or runs its `script`.

    A stage is data, so it cannot name just any function: only those in `functions`, by their name there, and those that
    are defined in a module under one of `prefixes`, as "package.module:function". `scripts=False` refuses scripts.
    """

    def __init__(
        self,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        *,
        prefixes: Sequence[str] = (),
        scripts: bool = True,
    ) -> None:
        check_texts("prefixes", prefixes)
        self._functions = dict(functions or {})
        self._prefixes = tuple(prefixes)
        self._scripts = scripts

    def execute(self, stage: StageExecution) -> Answer:
        given = own(stage.context)
        has = [name for name in ("function", "script") if given.get(name) is not None]
        if len(has) != 1:
            raise ConfigurationError("a python task needs either 'function' or 'script' in its stage's context")
        if has == ["function"]:
            call = settings_of(PythonCall, "python", stage.context)
            return call.run(self.find(call.function))
        if not self._scripts:
            raise ConfigurationError("scripts are not allowed here; name a function")
        return TaskResult.success(settings_of(PythonScript, "python", stage.context).run(stage.context))

    def find(self, name: str) -> Callable[..., Any]:
        """The function of that name. Raises ConfigurationError for one that is not allowed."""
        if name in self._functions:
            return self._functions[name]
        module, colon, attribute = name.partition(":")
        if colon and attribute.isidentifier() and not attribute.startswith("_") and self._allows(module):
            found = getattr(importlib.import_module(module), attribute, None)
            # What a module imported from elsewhere is not meant: `myapp.jobs:system` may be that of os.
            if callable(found) and self._allows(getattr(found, "__module__", None) or ""):
                return found  # type: ignore[no-any-return]  # `callable` does not narrow Any
        known = ", ".join([*sorted(self._functions), *(f"{prefix}…" for prefix in self._prefixes)]) or "none"
        raise ConfigurationError(f"no function {name!r} is allowed here; allowed are {known}")

    def _allows(self, module: str) -> bool:
        return any(module == prefix or module.startswith(f"{prefix}.") for prefix in self._prefixes)


def _check_inputs(inputs: Any) -> None:
    if not isinstance(inputs, Mapping) or not all(isinstance(name, str) for name in inputs):
        raise ConfigurationError(f"inputs must be a mapping of names to values, got {inputs!r}")


def _published(value: Any) -> TaskResult:
    if isinstance(value, TaskResult):
        return value
    if value is None:
        return TaskResult.success()
    return TaskResult.success(value if isinstance(value, Mapping) else {"result": value})
