"""The docker task, with a program in docker's place that records how it is called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigurationError, TaskError, TaskTimeoutError, TransientError
from holdfast.workflows.tasks.docker import DockerRun, DockerTask
from tests.workflows.tasks.stages import FakeProgram, stage


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeProgram:
    return FakeProgram(tmp_path, "docker", monkeypatch)


def test_a_container_is_named_and_removed_when_it_ends(docker: FakeProgram) -> None:
    docker.does("echo out; echo err >&2")
    result = DockerTask().execute(stage(image="alpine:3", command=["echo", "{x}"], x="a b; c"))
    [call] = docker.calls
    assert call[:3] == ["run", "--rm", "--name"]
    assert call[3].startswith("holdfast-")
    assert call[4:] == ["alpine:3", "echo", "a b; c"]
    assert result.outputs == {"exit_code": 0, "stdout": "out\n", "stderr": "err\n"}


def test_options_stand_before_the_image(docker: FakeProgram) -> None:
    run = DockerRun(image="alpine", volumes=["/a:/b"], workdir="/b", network="none", user="1", options=["--init"])
    run.run(name=lambda: "1")
    [call] = docker.calls
    assert call[4:10] == ["--volume", "/a:/b", "--workdir", "/b", "--network", "none"]
    assert call[10:] == ["--user", "1", "--init", "alpine"]


def test_values_and_variables_do_not_stand_among_the_arguments(docker: FakeProgram) -> None:
    docker.does('echo "$KEY $HOLDFAST_VALUE_1 $HOME"')
    run = DockerRun(image="alpine", command="echo {word}", env={"KEY": "k-value", "HOME": "/inside"})
    result = run.run({"word": "w-value"}, name=lambda: "1")
    assert result.stdout.startswith("k-value w-value ")
    assert "/inside" not in result.stdout  # docker's own home stays
    [call] = docker.calls
    assert call[4:10] == ["--env", "KEY", "--env", "HOME=/inside", "--env", "HOLDFAST_VALUE_1"]
    assert call[10:] == ["alpine", "sh", "-c", 'echo "${HOLDFAST_VALUE_1}"']
    assert "value" not in json.dumps(call).replace("HOLDFAST_VALUE", "")


def test_a_container_that_takes_too_long_is_removed_by_force(docker: FakeProgram) -> None:
    docker.does('if [ "$1" = run ]; then sleep 600; fi')
    with pytest.raises(TaskTimeoutError):
        DockerRun(image="alpine", timeout=0.5).run(name=lambda: "7")
    assert docker.calls[-1] == ["rm", "--force", "holdfast-7"]


def test_codes_are_those_of_the_container(docker: FakeProgram) -> None:
    docker.does("echo no such image >&2; exit 125")
    with pytest.raises(TaskError, match="the container of alpine ended with code 125, expected 0: no such image"):
        DockerRun(image="alpine").run()
    with pytest.raises(TransientError):
        DockerRun(image="alpine", retry_codes=[125]).run()


def test_secrets_are_masked(docker: FakeProgram) -> None:
    docker.does('echo "$API_KEY $HOLDFAST_VALUE_1"')
    run = DockerRun(image="alpine", command="x {word}", env={"API_KEY": "k-secret"}, secrets=["word"])
    assert run.run({"word": "swordfish"}).stdout == "*** ***\n"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "the docker task needs 'image'"),
        ({"image": "--privileged"}, "image must be the name of an image"),
        ({"image": "a", "command": []}, "command must name a program"),
        ({"image": "a", "volumes": "/:/"}, "volumes must be a list of texts"),
        ({"image": "a", "user": 0}, "user must be a text"),
        ({"image": "a", "timeout": -1}, "timeout must be a number of seconds"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        DockerTask().execute(stage(**settings))
