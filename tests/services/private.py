"""What the servers of a test run have in common.

Each private one lives in a folder of its own, named after the process that started it. It is stopped and removed at
that process's exit; what a killed run left behind is cleaned up by the next start.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import ClassVar


class PrivateServer:
    """A running server. Only one with a folder is ours to stop and to start."""

    kind: ClassVar[str]
    url_variable: ClassVar[str]
    last_signal: ClassVar[signal.Signals] = signal.SIGKILL
    patience_s: ClassVar[float] = 20.0

    def __init__(self, url: str, folder: Path | None = None) -> None:
        self.url = url
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        raise NotImplementedError

    def stop(self, *, crash: bool = False) -> None:
        """Stop it; with `crash`, as if it had been killed."""
        self._private()
        for process in reversed(self._processes):
            if crash:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.terminate()
            process.wait(self.patience_s)
        self._processes = []

    def restart(self, *, crash: bool = False) -> None:
        self.stop(crash=crash)
        self.start()

    @classmethod
    def new_folder(cls) -> Path:
        """An empty one, which goes with this process, along with the server that works in it."""
        _clean_up(_root(cls.kind), cls.last_signal)
        folder = _root(cls.kind) / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        folder.mkdir()
        atexit.register(_remove, folder, cls.last_signal, os.getpid())
        return folder

    def _launch(self, *words: str, environment: Mapping[str, str] | None = None) -> None:
        folder = self._private()
        with (folder / "log").open("ab") as log:
            # A group of its own: some programs are scripts, and a crash is to hit the server that they started.
            process = subprocess.Popen(
                words, env=environment, cwd=folder, stdout=log, stderr=log, start_new_session=True
            )
        self._processes.append(process)
        self._note(process.pid)

    def _note(self, process: int) -> None:
        """Let whoever cleans up know of it."""
        with (self._private() / "pids").open("a") as note:
            note.write(f"{process}\n")

    def _wait_until(self, answers: Callable[[], bool]) -> None:
        give_up = time.monotonic() + self.patience_s
        while not answers():
            if any(process.poll() is not None for process in self._processes) or time.monotonic() > give_up:
                told = (self._private() / "log").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{self.kind} did not start: {told}")
            time.sleep(0.01)  # it has no other way of saying that it is ready

    def _private(self) -> Path:
        if self._folder is None:
            raise RuntimeError(f"the server of {self.url_variable} is not ours to stop; unset it to use a private one")
        return self._folder


def free_port() -> int:
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _root(kind: str) -> Path:
    root = Path(tempfile.gettempdir()) / f"holdfast-{kind}-{os.getuid()}"
    root.mkdir(exist_ok=True)
    return root


def _clean_up(root: Path, last_signal: signal.Signals) -> None:
    """Stop and remove what runs that were killed have left."""
    for folder in root.iterdir():
        owner = folder.name.partition("-")[0]
        if owner.isdecimal() and not _is_alive(int(owner)):
            _remove(folder, last_signal, os.getpid())


def _remove(folder: Path, last_signal: signal.Signals, owner: int) -> None:
    if os.getpid() != owner:  # a forked child leaves its parent's server alone
        return
    note = folder / "pids"
    for process in map(int, note.read_text().split() if note.exists() else ()):
        if _works_in(process, folder):
            os.killpg(process, last_signal)
    shutil.rmtree(folder, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _works_in(process: int, folder: Path) -> bool:
    """Whether that process is the one that was started there, and no other that got its number since."""
    try:
        return Path(f"/proc/{process}/cwd").readlink().is_relative_to(folder.resolve())
    except OSError:
        return False
