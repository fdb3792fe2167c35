"""The ssh task, with a program in ssh's place: the last argument is what the other host's shell would be given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigurationError, TaskError, TaskTimeoutError, TransientError
from holdfast.workflows.tasks.ssh import SshCommand, SshTask
from tests.workflows.tasks.stages import FakeProgram, stage

EVIL = """$(echo run) `echo run` '; echo run; ' "; echo run; " """
AS_THE_HOST = 'for last; do :; done; exec sh -c "$last"'


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeProgram:
    return FakeProgram(tmp_path, "ssh", monkeypatch)


def test_ssh_asks_nobody_and_gives_up_in_time(ssh: FakeProgram) -> None:
    SshCommand(host="db1", command=["uptime"], connect_timeout=2.5).run()
    assert ssh.calls == [["-o", "BatchMode=yes", "-o", "ConnectTimeout=3", "--", "db1", "uptime"]]


def test_its_options_are_passed_on(ssh: FakeProgram) -> None:
    SshCommand(
        host="db1", command="uptime", user="ops", port=2222, identity_file="/k", options=["StrictHostKeyChecking=yes"]
    ).run()
    [call] = ssh.calls
    assert call[4:] == ["-o", "StrictHostKeyChecking=yes", "-l", "ops", "-p", "2222", "-i", "/k", "--", "db1", "uptime"]


@pytest.mark.parametrize("command", ["printf '<%s>' {x} \"{x}\"", ["printf", "<%s>", "{x}", "{x}"]])
def test_a_value_is_not_run_on_the_other_host(command: Any, ssh: FakeProgram) -> None:
    ssh.does(AS_THE_HOST)
    result = SshTask().execute(stage(host="db1", command=command, x=EVIL))
    assert result.outputs["stdout"] == f"<{EVIL}><{EVIL}>"


def test_a_connection_that_fails_is_worth_another_try(ssh: FakeProgram) -> None:
    ssh.does("echo 'Connection refused' >&2; exit 255")
    with pytest.raises(TransientError, match="the command on db1 ended with code 255, expected 0: Connection refused"):
        SshTask().execute(stage(host="db1", command="uptime"))


def test_a_command_that_fails_is_not(ssh: FakeProgram) -> None:
    ssh.does("exit 1")
    with pytest.raises(TaskError, match="ended with code 1"):
        SshTask().execute(stage(host="db1", command="uptime"))


def test_it_has_a_time_limit(ssh: FakeProgram) -> None:
    ssh.does("sleep 600")
    with pytest.raises(TaskTimeoutError):
        SshCommand(host="db1", command="uptime", timeout=0.2).run()


def test_input_is_passed_on_and_secrets_are_masked(ssh: FakeProgram) -> None:
    ssh.does(AS_THE_HOST)
    result = SshCommand(host="db1", command="cat; echo {word}", stdin="in ", secrets=["word"]).run(
        {"word": "swordfish"}
    )
    assert result.stdout == "in ***\n"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"command": "x"}, "the ssh task needs 'host'"),
        ({"host": "h"}, "the ssh task needs 'command'"),
        ({"host": "-oProxyCommand=x", "command": "x"}, "host must not begin with '-'"),
        ({"host": "h", "user": "-x", "command": "x"}, "user must not begin with '-'"),
        ({"host": "h", "command": "x", "port": 0}, "port must be 1..65535, got 0"),
        ({"host": "h", "command": "x", "port": "22"}, "port must be 1..65535, got '22'"),
        ({"host": "h", "command": "x", "options": "A=b"}, "options must be a list of texts"),
        ({"host": "h", "command": "x", "connect_timeout": 0}, "connect_timeout must be a number of seconds"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        SshTask().execute(stage(**settings))
