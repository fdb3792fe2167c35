"""Running a command: with a time limit, a limit on its output, masked secrets, and nothing left behind.

A command has a process group of its own. When its time is over, or its task is cancelled, the group gets SIGTERM and,
a little later, SIGKILL. When the command itself has ended, whatever it left running in its group is killed, too, as
a service manager does: nobody would watch it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Final

from holdfast.core.context import remaining_time
from holdfast.core.redact import MASK, is_secret_key, redact
from holdfast.errors import ConfigurationError, PermanentError, TaskError, TaskTimeoutError, TransientError
from holdfast.workflows.cancel import TaskToken, current_task_token

OUTPUT_CAP: Final = 10 * 1024 * 1024
GRACE_S: Final = 2.0
_CHUNK: Final = 65_536
_SHORTEST_SECRET: Final = 6  # what an environment calls a secret and is shorter may well be a flag
_TOLD: Final = 500


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command came to; the texts are masked, and `dropped` bytes of them were beyond the limit."""

    code: int
    stdout: str
    stderr: str
    dropped: int

    def outputs(self) -> dict[str, Any]:
        """As a stage publishes it."""
        found = {"exit_code": self.code, "stdout": self.stdout, "stderr": self.stderr}
        return {**found, "output_dropped": self.dropped} if self.dropped else found


def run_command(
    argv: Sequence[str],
    *,
    timeout: float = 60.0,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    cap: int = OUTPUT_CAP,
    secrets: Iterable[str] = (),
    on_kill: Callable[[], object] | None = None,
    grace: float = GRACE_S,
    what: str | None = None,
) -> CommandResult:
    """Run a program to its end, whatever its exit code; no shell reads `argv`.

    `env` is added to this process's own. `cap` is the limit in bytes of each of stdout and stderr. `secrets` are masked
    in both, and so is what the environment has under secret-sounding names. `on_kill` is called when the command was
    ended early. `what` names it in errors. A surrounding deadline shortens `timeout`.

    Raises TaskTimeoutError, CancelledError when the task is cancelled, and PermanentError for a program that cannot be
    started.
    """
    environment = {**os.environ, **(env or {})}
    masks = _masks(secrets, environment)
    token = current_task_token()
    token.raise_if_cancelled()
    limit = min(timeout, max(0.0, remaining_time()))
    process = _Process(argv, cwd, environment, stdin, cap)
    ended = process.attend(limit, token, grace, on_kill)
    stdout, stderr = (reader.text(masks) for reader in process.readers)
    if ended:
        return CommandResult(process.code, stdout, stderr, sum(reader.dropped for reader in process.readers))
    token.raise_if_cancelled()
    what = what or _shown(argv, masks)
    raise TaskTimeoutError(f"{what} was still running after {limit:g} s and was ended{_said(stderr or stdout)}")


def accepted(
    result: CommandResult, what: str, expected: Collection[int] = (0,), transient: Collection[int] = ()
) -> CommandResult:
    """The result, if its code is an expected one. Raises TransientError or TaskError with what the command said."""
    if result.code in expected:
        return result
    end = f"was killed by signal {-result.code}" if result.code < 0 else f"ended with code {result.code}"
    message = f"{what} {end}, expected {', '.join(map(str, expected))}{_said(result.stderr or result.stdout)}"
    raise (TransientError if result.code in transient else TaskError)(message)


def masked(data: bytes, secrets: Iterable[bytes], cut: bool = False) -> bytes:
    """The data without secrets; where it was `cut`, without the beginning of one at its end, either."""
    longest_first = sorted(secrets, key=len, reverse=True)
    for secret in longest_first:
        data = data.replace(secret, MASK.encode())
    if cut:
        for secret in longest_first:
            part = next((secret[:size] for size in range(len(secret) - 1, 0, -1) if data.endswith(secret[:size])), b"")
            if part:
                data = data[: -len(part)] + MASK.encode()
    return data


def _masks(secrets: Iterable[str], environment: Mapping[str, str]) -> list[bytes]:
    found = {secret.strip() for secret in secrets}
    found |= {value for name, value in environment.items() if len(value) >= _SHORTEST_SECRET and is_secret_key(name)}
    return [secret.encode(errors="surrogateescape") for secret in found if secret]


def _shown(argv: Sequence[str], secrets: Iterable[bytes]) -> str:
    """A command for people: masked, and not too long."""
    text = masked(" ".join(argv).encode(errors="replace"), secrets).decode(errors="replace")
    return f"`{redact(text, 120)}`"


def _said(text: str) -> str:
    text = redact(text[-8 * _TOLD :].strip(), None)
    return f": {'…' if len(text) > _TOLD else ''}{text[-_TOLD:]}" if text else "; it said nothing"


class _Process:
    """A running command. `_ended` is set when it has ended, `_over` also when nobody waits for it any more."""

    def __init__(
        self, argv: Sequence[str], cwd: str | None, env: Mapping[str, str], stdin: str | None, cap: int
    ) -> None:
        self._ended = threading.Event()
        self._over = threading.Event()
        self._process = _start(argv, cwd, env, stdin is not None)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self.readers = (_Reader(self._process.stdout, cap), _Reader(self._process.stderr, cap))
        self._watcher = _background(self._watch)
        self._pipes = [reader.thread for reader in self.readers]
        if stdin is not None:
            self._pipes.append(_background(self._feed, stdin.encode(errors="surrogateescape")))

    @property
    def code(self) -> int:
        return self._process.returncode

    def attend(self, limit: float, token: TaskToken, grace: float, on_kill: Callable[[], object] | None) -> bool:
        """Wait for its end, and bring it about when the time is over or the task is cancelled.

        Whether it ended by itself. Its group has ended in any case.
        """
        take_back = token.when_cancelled(self._over.set)
        ended = False
        try:
            self._over.wait(limit)
            ended = self._ended.is_set()
        finally:
            take_back()
            self._end(grace)
            if not ended and on_kill is not None:
                on_kill()
        return ended

    def _end(self, grace: float) -> None:
        if not self._ended.is_set():
            self._signal(signal.SIGTERM)
            self._ended.wait(grace)
        self._signal(_KILL)
        self._watcher.join()
        self._process.wait()
        for thread in self._pipes:
            # Only a process that left the group can hold the other end now.
            thread.join(grace)

    def _feed(self, data: bytes) -> None:
        assert self._process.stdin is not None
        try:
            with self._process.stdin as pipe:
                pipe.write(data)
        except OSError:
            pass  # it did not want to read all of it

    def _watch(self) -> None:
        if hasattr(os, "waitid"):
            # Seen, but not reaped: as long as it is there, its number cannot become that of another group.
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._process.wait()
        self._ended.set()
        self._over.set()

    def _signal(self, number: int) -> None:
        try:
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, number)
            else:
                self._process.send_signal(number)
        except (ProcessLookupError, PermissionError):
            pass  # nobody is left, or on macOS only zombies are


class _Reader:
    """Keeps the beginning of what comes out of a pipe, and counts the rest."""

    def __init__(self, pipe: IO[bytes], cap: int) -> None:
        self.dropped = 0
        self._kept = bytearray()
        self._cap = cap
        self.thread = _background(self._read, pipe)

    def text(self, secrets: Collection[bytes]) -> str:
        return masked(bytes(self._kept), secrets, cut=self.dropped > 0).decode(errors="replace")

    def _read(self, pipe: Any) -> None:
        with pipe:
            while chunk := pipe.read1(_CHUNK):
                room = self._cap - len(self._kept)
                self._kept += chunk[:room]
                self.dropped += max(0, len(chunk) - room)


_KILL: Final = getattr(signal, "SIGKILL", signal.SIGTERM)


def _start(argv: Sequence[str], cwd: str | None, env: Mapping[str, str], fed: bool) -> subprocess.Popen[bytes]:
    if not argv:
        raise ConfigurationError("a command needs at least the name of a program")
    try:
        return subprocess.Popen(
            list(argv),
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.PIPE if fed else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise PermanentError(f"{argv[0]!r} cannot be started: {error}") from error


def _background(function: Callable[..., None], *args: Any) -> threading.Thread:
    thread = threading.Thread(target=function, args=args, daemon=True, name="holdfast-command")
    thread.start()
    return thread
