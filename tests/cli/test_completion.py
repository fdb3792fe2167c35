"""Completion in a shell: groups, commands, options and their values, with no store in sight."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = "import sys; sys.argv[0] = 'holdfast'; from holdfast.cli.main import main; main()"


def completed(*words: str) -> list[str]:
    """What bash is offered after these words; the last one has been begun."""
    given = {"COMP_WORDS": " ".join(["holdfast", *words]), "COMP_CWORD": str(len(words))}
    env = {**os.environ, **given, "_HOLDFAST_COMPLETE": "bash_complete"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("wor",), {"workflow", "workers", "worker"}),
        (("letters", "re"), {"retry", "resolve", "reject", "reveal", "review", "reopen", "resume", "retention"}),
        (("letters", "bulk", "re"), {"replay", "resolve"}),
        (("workflow", "schedule", "de"), {"delete"}),
        (("retry", "s"), {"set"}),
        (("pools", "drain", "--re"), {"--reason"}),
        (("letters", "list", "--status", "pen"), {"pending"}),
        (("retry", "set", "--backoff", "l"), {"linear"}),
        (("access", "set-role", "ann", "op"), {"operator"}),
    ],
)
def test_a_shell_is_offered_what_can_come_next(words: tuple[str, ...], offered: set[str]) -> None:
    assert set(completed(*words)) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_page_s_line_sets_completion_up(shell: str) -> None:
    env = {**os.environ, "_HOLDFAST_COMPLETE": f"{shell}_source"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=False)
    assert "_HOLDFAST_COMPLETE" in done.stdout
    assert "holdfast" in done.stdout
