"""Whether a task that succeeded has left what was asked for. The checks are tasks of the stage, after all others: so
they are retried, logged and carried on after a crash like any other.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.backoff import BackoffStrategy, Jitter
from holdfast.errors import VerificationError, WorkflowDefinitionError
from holdfast.machine.retry import Retry
from holdfast.workflows.result import TaskResult
from holdfast.workflows.task import Task
from holdfast.workflows.task_run import TaskExecution

if TYPE_CHECKING:
    from holdfast.workflows.stage import StageExecution

CHECK: Final = "holdfast.verify"
"""The type of the task that checks keys and types; with a dot and a name, of one that calls a function."""
LOOK: Final = ".check"
"""After the name of a function that is a task: the task that checks keys and types of what that has left."""
TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "str": (str,), "int": (int,), "float": (float,), "number": (int, float), "bool": (bool,), "list": (list,),
    "dict": (dict,), "null": (type(None),),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verification:
    """What is asked of the outputs of a stage, or of the result of a task.

    `function` is called with it, and answers True or None if all is well, else False or what is wrong. It is called
    again, `max_retries` times, every `retry_delay` seconds: what it looks at may take a while. Keys and types are
    checked once, for what a task has left does not change.
    """

    required_keys: tuple[str, ...] = ()
    type_checks: Mapping[str, str] | None = None
    function: Any = None
    max_retries: int = 3
    retry_delay: float = 1.0

    @property
    def looks_at_values(self) -> bool:
        return bool(self.required_keys or self.type_checks)

    @property
    def retry(self) -> Retry:
        delay = self.retry_delay or 1e-6  # a policy's delays are above 0
        return Retry(
            attempts=self.max_retries + 1, base=delay, cap=delay, backoff=BackoffStrategy.FIXED, jitter=Jitter.NONE
        )

    def check(self, label: str, left: Any) -> None:
        """Raises VerificationError for values that lack a key or are of another type."""
        if not isinstance(left, Mapping):
            raise VerificationError(f"{label} left a {_named(left)}, not a dict with {', '.join(self._keys())}")
        if lacking := [key for key in self.required_keys if key not in left]:
            there = ", ".join(sorted(left)) or "nothing"
            raise VerificationError(f"{label} lacks {', '.join(map(repr, lacking))}; it left {there}")
        for key, word in (self.type_checks or {}).items():
            if key in left and not _is(left[key], word):
                raise VerificationError(f"{label} left {key!r} as a {_named(left[key])}, not as a {word}")

    def _keys(self) -> list[str]:
        return [*self.required_keys, *(self.type_checks or {})]


def parse_verification(given: Any, label: str, refs: tuple[str, ...] = ()) -> Verification:
    """The verification of a document or, of a task, of a function alone. Raises WorkflowDefinitionError."""

    def refuse(story: str) -> WorkflowDefinitionError:
        return WorkflowDefinitionError("bad_verification", f"{label}: {story}", refs)

    known = [one.name for one in fields(Verification)]
    if not isinstance(given, Mapping) or not given:
        raise refuse(f"verification is a dict of {', '.join(known)}, got {given!r}")
    if unknown := sorted(set(given) - set(known)):
        raise refuse(f"verification has {unknown[0]!r}, which is unknown; known are {', '.join(known)}")
    keys, types = given.get("required_keys", ()), given.get("type_checks") or {}
    if isinstance(keys, str) or not all(isinstance(key, str) for key in keys):
        raise refuse(f"verification.required_keys must be a list of names, got {keys!r}")
    for key, word in types.items():
        if word not in TYPES:
            raise refuse(f"verification.type_checks says {word!r} of {key!r}; use one of {', '.join(TYPES)}")
    retries, delay = given.get("max_retries", 3), given.get("retry_delay", 1.0)
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise refuse(f"verification.max_retries must be a whole number from 0, got {retries!r}")
    if isinstance(delay, bool) or not isinstance(delay, int | float) or not 0 <= delay < float("inf"):
        raise refuse(f"verification.retry_delay must be seconds from 0, got {delay!r}")
    found = Verification(tuple(keys), dict(types), given.get("function"), retries, float(delay))
    if not found.looks_at_values and found.function is None:
        raise refuse("verification asks for nothing; give required_keys, type_checks or function")
    return found


def checks_of(stage: StageExecution) -> list[tuple[TaskExecution, Verification]]:
    """The tasks that check what a stage has left. Raises WorkflowDefinitionError."""
    if stage.verification is None:
        return []
    asked = parse_verification(stage.verification, stage.label, (stage.ref_id,))
    if asked.function is not None and (not isinstance(asked.function, str) or not asked.function):
        story = f"{stage.label}: verification.function is the name of a registered one, got {asked.function!r}"
        raise WorkflowDefinitionError("bad_verification", story, (stage.ref_id,))
    types = [CHECK] * asked.looks_at_values + ([] if asked.function is None else [f"{CHECK}.{asked.function}"])
    last = max((task.position for task in stage.tasks), default=-1)
    return [
        (TaskExecution.create("verify", type, position=last + number), asked) for number, type in enumerate(types, 1)
    ]


class ValueCheck(Task):
    """Looks at the keys and types of what a stage has left."""

    def execute(self, stage: StageExecution) -> TaskResult:
        parse_verification(stage.verification, stage.label).check(stage.label, stage.outputs)
        return TaskResult.success()


class FunctionCheck(Task):
    """Asks a function whether a stage has left what it should."""

    def __init__(self, function: Callable[[StageExecution], Any]) -> None:
        self.function = function

    def execute(self, stage: StageExecution) -> TaskResult | Awaitable[TaskResult]:
        said = self.function(stage)
        return _later(said, stage) if inspect.isawaitable(said) else _judged(said, stage)


def is_check(type: str) -> bool:
    """Whether tasks of this type verify what others have left."""
    return f"{type}.".startswith(f"{CHECK}.")


def judge(label: str, said: Any) -> None:
    """Raises VerificationError unless a function has said that all is well."""
    if said is not None and said is not True:
        raise VerificationError(said if isinstance(said, str) else f"{label} is not what was asked for: {said!r}")


async def _later(said: Awaitable[Any], stage: StageExecution) -> TaskResult:
    return _judged(await said, stage)


def _judged(said: Any, stage: StageExecution) -> TaskResult:
    judge(stage.label, said)
    return TaskResult.success()


def _is(value: Any, word: str) -> bool:
    return isinstance(value, TYPES[word]) and (word == "bool" or not isinstance(value, bool))


def _named(value: Any) -> str:
    return "null" if value is None else type(value).__name__
