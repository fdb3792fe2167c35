"""The shell task: a command on this host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.redact import is_secret_key, redact
from holdfast.errors import ConfigurationError
from holdfast.workflows.result import TaskResult
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task import Task
from holdfast.workflows.tasks.command import CommandResult, accepted, run_command
from holdfast.workflows.tasks.placeholders import arguments, filled, placeholders, script, text_of
from holdfast.workflows.tasks.settings import (
    check_names,
    check_text,
    check_texts,
    check_time,
    check_wholes,
    settings_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellCommand:
    """A command and how to run it: `ShellCommand(command="tar czf {file} .", cwd="/data").run({"file": "a.tgz"})`.

    A text is run by `sh`, a list without a shell. Placeholders take their values from the stage's context; see
    `placeholders.py`. `secrets` names those values whose text is masked in the output, besides all that sound like one.
    """

    command: str | Sequence[str]
    timeout: float = 60.0
    cwd: str | None = None
    env: Mapping[str, Any] = field(default_factory=dict)
    stdin: str | None = None
    expected_codes: Sequence[int] = (0,)
    retry_codes: Sequence[int] = ()
    """Codes after which the task is tried again."""
    secrets: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_command("command", self.command)
        check_time("timeout", self.timeout)
        check_text("cwd", self.cwd, optional=True)
        check_names("env", self.env)
        check_text("stdin", self.stdin, optional=True, empty=True)
        check_wholes("expected_codes", self.expected_codes)
        check_wholes("retry_codes", self.retry_codes)
        check_texts("secrets", self.secrets)

    def run(self, values: Mapping[str, Any] | None = None) -> CommandResult:
        """Raises what `run_command` raises, TransientError for `retry_codes`, TaskError for other unexpected codes."""
        given = values or {}
        env = environment(self.env, given)
        if isinstance(self.command, str):
            made = script(self.command, given)
            argv, env = ["sh", "-c", made.text], {**env, **made.variables}
        else:
            argv = arguments(list(self.command), given)
        what = named(self.command)
        result = run_command(
            argv,
            what=what,
            timeout=self.timeout,
            cwd=self.cwd,
            env=env,
            stdin=self.stdin,
            secrets=secrets_in(self.secrets, self.command, given, self.env),
        )
        return accepted(result, what, self.expected_codes, self.retry_codes)


class ShellTask(Task):
    """Runs the command in its stage's context; publishes `exit_code`, `stdout` and `stderr`."""

    def execute(self, stage: StageExecution) -> TaskResult:
        return TaskResult.success(settings_of(ShellCommand, "shell", stage.context).run(stage.context).outputs())


def check_command(name: str, command: Any) -> None:
    """Raises ConfigurationError for what is neither a text nor a list of texts, and for nothing."""
    if isinstance(command, str):
        check_text(name, command)
    else:
        check_texts(name, command)
        if not list(command):
            raise ConfigurationError(f"{name} must name a program, got an empty list")


def environment(env: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, str]:
    """Environment variables with their placeholders replaced."""
    for name in env:
        if "=" in name or "\0" in name:
            raise ConfigurationError(f"env has the name {name!r}, which no environment can hold")
    return {name: filled(str(value), values) for name, value in env.items()}


def secrets_in(
    names: Iterable[str], command: str | Iterable[str], values: Mapping[str, Any], env: Mapping[str, Any] | None = None
) -> Iterator[str]:
    """The texts to be masked: what is named, and the placeholders of command and variables that sound like secrets.

    Raises ConfigurationError for a name without a value: a misspelled one would be no secret.
    """
    texts = [*([command] if isinstance(command, str) else command), *map(str, (env or {}).values())]
    used = (name for text in texts for name in placeholders(text) if is_secret_key(name))
    yield from (text_of(name, values) for name in names)
    for name in used:
        try:
            yield text_of(name, values)
        except ConfigurationError:
            pass  # in single quotes it is no placeholder


def named(command: str | Iterable[str]) -> str:
    """A command for people, as it was defined: without any value."""
    return f"`{redact(command if isinstance(command, str) else ' '.join(command), 120)}`"
