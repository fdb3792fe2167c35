"""The docker task: a command in a container, by way of the `docker` program."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.core.ids import new_call_id
from holdfast.errors import ConfigurationError
from holdfast.workflows.result import TaskResult
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task import Task
from holdfast.workflows.tasks.command import CommandResult, accepted, run_command
from holdfast.workflows.tasks.placeholders import arguments, script
from holdfast.workflows.tasks.settings import (
    check_names,
    check_text,
    check_texts,
    check_time,
    check_wholes,
    settings_of,
)
from holdfast.workflows.tasks.shell import check_command, environment, secrets_in

_REMOVAL_S: Final = 30.0
_OPTIONS: Final = ("workdir", "network", "user", "entrypoint", "pull")


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerRun:
    """A container and what it runs; a command that is a text is run by the container's `sh`.

    The container has a name of its own and is removed when it ends, and by force when its time is over or its task is
    cancelled. `options` are further ones of `docker run`, as they are.
    """

    image: str
    command: str | Sequence[str] | None = None
    timeout: float = 300.0
    env: Mapping[str, Any] = field(default_factory=dict)
    volumes: Sequence[str] = ()
    workdir: str | None = None
    network: str | None = None
    user: str | None = None
    entrypoint: str | None = None
    pull: str | None = None
    options: Sequence[str] = ()
    expected_codes: Sequence[int] = (0,)
    retry_codes: Sequence[int] = ()
    secrets: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_text("image", self.image)
        if self.image.startswith("-"):
            raise ConfigurationError(f"image must be the name of an image, got {self.image!r}")
        if self.command is not None:
            check_command("command", self.command)
        check_time("timeout", self.timeout)
        check_names("env", self.env)
        for name in _OPTIONS:
            check_text(name, getattr(self, name), optional=True)
        for name in ("volumes", "options", "secrets"):
            check_texts(name, getattr(self, name))
        check_wholes("expected_codes", self.expected_codes)
        check_wholes("retry_codes", self.retry_codes)

    def run(self, values: Mapping[str, Any] | None = None, name: Callable[[], str] = new_call_id) -> CommandResult:
        """Raises what `run_command` raises, TransientError for `retry_codes`, TaskError for other unexpected codes."""
        given = values or {}
        container = f"holdfast-{name()}"
        env = environment(self.env, given)
        inside: list[str] = []
        if isinstance(self.command, str):
            made = script(self.command, given)
            env.update(made.variables)
            inside = ["sh", "-c", made.text]
        elif self.command is not None:
            inside = arguments(list(self.command), given)
        what = f"the container of {self.image}"
        result = run_command(
            ["docker", "run", "--rm", "--name", container, *self._options(env), self.image, *inside],
            timeout=self.timeout,
            env={key: value for key, value in env.items() if not _is_the_clients(key)},
            secrets=secrets_in(self.secrets, self.command or (), given, self.env),
            on_kill=lambda: _remove(container),
            what=what,
        )
        return accepted(result, what, self.expected_codes, self.retry_codes)

    def _options(self, env: Mapping[str, str]) -> list[str]:
        found: list[str] = []
        for name, value in env.items():
            # Without its value, which docker takes from its own environment: everybody may see a command's arguments.
            found += ["--env", f"{name}={value}" if _is_the_clients(name) else name]
        for volume in self.volumes:
            found += ["--volume", volume]
        for option in _OPTIONS:
            if (chosen := getattr(self, option)) is not None:
                found += [f"--{option}", chosen]
        return [*found, *self.options]


class DockerTask(Task):
    """Runs the container in its stage's context; publishes `exit_code`, `stdout` and `stderr`."""

    def execute(self, stage: StageExecution) -> TaskResult:
        return TaskResult.success(settings_of(DockerRun, "docker", stage.context).run(stage.context).outputs())


def _is_the_clients(name: str) -> bool:
    """Whether a variable would change what the docker program itself does."""
    return name in ("PATH", "HOME", "TMPDIR") or name.startswith(("DOCKER_", "LD_"))


def _remove(container: str) -> None:
    """Kill and remove it. The client has ended by now, so it cannot start the container after this."""
    try:
        subprocess.run(
            ["docker", "rm", "--force", container],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_REMOVAL_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        pass  # the task's own error says more than this one
