"""The ssh task: a command on another host, by way of the `ssh` program."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.errors import ConfigurationError
from holdfast.workflows.result import TaskResult
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task import Task
from holdfast.workflows.tasks.command import CommandResult, accepted, run_command
from holdfast.workflows.tasks.placeholders import arguments, script
from holdfast.workflows.tasks.settings import check_text, check_texts, check_time, check_wholes, settings_of
from holdfast.workflows.tasks.shell import check_command, secrets_in

NO_CONNECTION: Final = 255
"""What ssh ends with when it could not reach the host or log in; a command of the host may end with it, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SshCommand:
    """A command for another host. ssh asks nobody anything: keys and known hosts must be in place.

    A connection that fails (code 255) is transient. When the time is over, ssh is ended and the host is not told; a
    command that must not go on there needs a time limit of its own. `options` are those of ssh's `-o`.
    """

    host: str
    command: str | Sequence[str]
    user: str | None = None
    port: int | None = None
    identity_file: str | None = None
    options: Sequence[str] = ()
    timeout: float = 60.0
    connect_timeout: float = 10.0
    stdin: str | None = None
    expected_codes: Sequence[int] = (0,)
    retry_codes: Sequence[int] = (NO_CONNECTION,)
    secrets: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("host", "user"):
            check_text(name, getattr(self, name), optional=name == "user")
            if str(getattr(self, name) or "").startswith("-"):
                raise ConfigurationError(f"{name} must not begin with '-', got {getattr(self, name)!r}")
        check_command("command", self.command)
        if self.port is not None and (type(self.port) is not int or not 0 < self.port < 65_536):
            raise ConfigurationError(f"port must be 1..65535, got {self.port!r}")
        check_text("identity_file", self.identity_file, optional=True)
        check_text("stdin", self.stdin, optional=True, empty=True)
        for name in ("timeout", "connect_timeout"):
            check_time(name, getattr(self, name))
        for name in ("options", "secrets"):
            check_texts(name, getattr(self, name))
        check_wholes("expected_codes", self.expected_codes)
        check_wholes("retry_codes", self.retry_codes)

    def run(self, values: Mapping[str, Any] | None = None) -> CommandResult:
        """Raises what `run_command` raises, TransientError for `retry_codes`, TaskError for other unexpected codes."""
        given = values or {}
        what = f"the command on {self.host}"
        result = run_command(
            [*self._program(), "--", self.host, self._remote(given)],
            timeout=self.timeout,
            stdin=self.stdin,
            secrets=secrets_in(self.secrets, self.command, given),
            what=what,
        )
        return accepted(result, what, self.expected_codes, self.retry_codes)

    def _program(self) -> list[str]:
        found = ["ssh", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={math.ceil(self.connect_timeout)}"]
        for option in self.options:
            found += ["-o", option]
        if self.user is not None:
            found += ["-l", self.user]
        if self.port is not None:
            found += ["-p", str(self.port)]
        if self.identity_file is not None:
            found += ["-i", self.identity_file]
        return found

    def _remote(self, values: Mapping[str, Any]) -> str:
        """The text for the host's shell: values are assigned, each quoted, before the command that uses them."""
        if not isinstance(self.command, str):
            return shlex.join(arguments(list(self.command), values))
        made = script(self.command, values)
        return "".join(f"{name}={shlex.quote(value)}; " for name, value in made.variables.items()) + made.text


class SshTask(Task):
    """Runs the command in its stage's context on its `host`; publishes `exit_code`, `stdout` and `stderr`."""

    def execute(self, stage: StageExecution) -> TaskResult:
        return TaskResult.success(settings_of(SshCommand, "ssh", stage.context).run(stage.context).outputs())
