"""Stages for the tests of tasks, and programs that record how they were called."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.workflows.stage import StageExecution


def stage(**context: Any) -> StageExecution:
    """A stage whose context is that."""
    return StageExecution.create("any", "a stage", "a", context=context)


class FakeProgram:
    """A program on the PATH. Each call writes its arguments and then does what `script` says."""

    def __init__(self, folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._log = folder / f"{name}.log"
        self._script = folder / f"{name}.script"
        program = folder / name
        program.write_text(
            f'#!/bin/sh\nfor one in "$@"; do printf "%s\\0" "$one"; done >> {self._log}\n'
            f'printf "\\n\\0" >> {self._log}\n. {self._script}\n'
        )
        program.chmod(0o755)
        self.does("exit 0")
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def does(self, script: str) -> None:
        self._script.write_text(script + "\n")

    @property
    def calls(self) -> list[list[str]]:
        """The arguments of each call."""
        found: list[list[str]] = [[]]
        for one in self._log.read_text().split("\0")[:-1] if self._log.exists() else ():
            if one == "\n":
                found.append([])
            else:
                found[-1].append(one)
        return found[:-1]
