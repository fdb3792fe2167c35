"""The worker as a process that can be killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

_GRACE_S: Final = 5.0


class Crew:
    """One worker at a time. What it has to say about itself is in the file `worker.log` of the folder."""

    def __init__(self, folder: Path, database: Path) -> None:
        self.command = [sys.executable, "-m", "holdfast.demo.worker", str(folder), str(database)]
        self._log = folder / "worker.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The worker's process; None: there is none."""
        return None if self.process is None else self.process.pid

    def start(self) -> int:
        """Start a worker; its process."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=log, stderr=log)
        return self.process.pid

    def kill(self) -> None:
        """SIGKILL: no goodbye, no last word to the database."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def stop(self) -> None:
        """Let it finish what it has begun, for a while."""
        if self.process is None:
            return
        try:
            self.process.communicate(timeout=_GRACE_S)  # ends its standard input
        except subprocess.TimeoutExpired:
            self.kill()
        self.process = None

    def last_words(self) -> str | None:
        """What a worker that ended by itself has left; None while it lives, or none should."""
        if self.process is None or self.process.poll() is None:
            return None
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit status {self.process.returncode}"
