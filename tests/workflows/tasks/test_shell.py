"""The shell task: a command of a stage, with values from its context."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigurationError, TaskError, TaskTimeoutError, TransientError
from holdfast.machine.workflow import WorkflowStatus
from holdfast.workflows.tasks.shell import ShellCommand, ShellTask
from tests.workflows.tasks.stages import stage

EVIL = """$(touch ran); `touch ran` '; touch ran; ' "; touch ran; " """


def test_a_command_publishes_its_code_and_output(tmp_path: Path) -> None:
    result = ShellTask().execute(stage(command='echo "$A" && pwd && cat', cwd=str(tmp_path), env={"A": 1}, stdin="in"))
    assert result.status is WorkflowStatus.SUCCEEDED
    assert result.outputs == {"exit_code": 0, "stdout": f"1\n{tmp_path}\nin", "stderr": ""}


@pytest.mark.parametrize("command", ["printf '<%s>' {x} \"{x}\"", ["printf", "<%s>", "{x}", "{x}"]])
def test_a_value_is_not_run(command: Any, tmp_path: Path) -> None:
    result = ShellTask().execute(stage(command=command, x=EVIL, cwd=str(tmp_path)))
    assert result.outputs["stdout"] == f"<{EVIL}><{EVIL}>"
    assert list(tmp_path.iterdir()) == []


def test_an_environment_may_have_placeholders() -> None:
    assert ShellCommand(command="echo $WHO", env={"WHO": "to {name}"}).run({"name": "Ann"}).stdout == "to Ann\n"


def test_an_unexpected_code_is_an_error_that_shows_no_value() -> None:
    with pytest.raises(TaskError, match=r"^`echo \{x\} >&2; exit 3` ended with code 3, expected 0: oh no$") as raised:
        ShellTask().execute(stage(command="echo {x} >&2; exit 3", x="oh no"))
    assert not isinstance(raised.value, TransientError)


def test_codes_can_be_expected_or_worth_another_try() -> None:
    assert ShellCommand(command="exit 3", expected_codes=[0, 3]).run().code == 3
    with pytest.raises(TransientError):
        ShellCommand(command="exit 75", retry_codes=[75]).run()


def test_a_command_has_a_time_limit() -> None:
    assert ShellCommand(command="true").timeout == 60
    with pytest.raises(TaskTimeoutError):
        ShellTask().execute(stage(command="sleep 600", timeout=0.2))


def test_secrets_are_masked_by_name_and_by_sound() -> None:
    context = {"db_password": "hunter22", "word": "swordfish", "plain": "visible"}
    command = ShellCommand(command="echo {db_password} {word} {plain}; echo {word} >&2; exit 4", secrets=["word"])
    with pytest.raises(TaskError) as raised:
        command.run(context)
    assert "swordfish" not in str(raised.value)
    shown = ShellCommand(command=command.command, secrets=["word"], expected_codes=[4]).run(context)
    assert (shown.stdout, shown.stderr) == ("*** *** visible\n", "***\n")


def test_a_secret_that_is_given_as_a_variable_is_masked() -> None:
    shown = ShellCommand(command='echo "$WHO $K"', env={"WHO": "{name}", "K": "{db_password}"})
    assert shown.run({"name": "Ann", "db_password": "hunter22"}).stdout == "Ann ***\n"


def test_a_secret_without_a_value_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"\{wrod\} has no value"):
        ShellCommand(command="echo {word}", secrets=["wrod"]).run({"word": "swordfish"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "the shell task needs 'command' in its stage's context"),
        ({"command": ""}, "command must be a text that is not empty, got ''"),
        ({"command": []}, "command must name a program, got an empty list"),
        ({"command": 3}, "command must be a list of texts, got 3"),
        ({"command": ["ls", 3]}, r"command must be a list of texts, got \['ls', 3\]"),
        ({"command": "ls", "timeout": "5"}, "timeout must be a number of seconds above 0, got '5'"),
        ({"command": "ls", "timeout": 0}, "timeout must be a number of seconds above 0, got 0"),
        ({"command": "ls", "cwd": 1}, "cwd must be a text"),
        ({"command": "ls", "env": ["A=1"]}, "env must be a mapping"),
        ({"command": "ls", "env": {"A=B": "1"}}, "env has the name 'A=B'"),
        ({"command": "ls", "stdin": 5}, "stdin must be a text, got 5"),
        ({"command": "ls", "expected_codes": 0}, "expected_codes must be a list of whole numbers, got 0"),
        ({"command": "ls", "retry_codes": ["1"]}, "retry_codes must be a list of whole numbers"),
        ({"command": "ls", "secrets": "word"}, "secrets must be a list of texts, got 'word'"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ShellTask().execute(stage(**settings))
