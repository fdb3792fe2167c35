"""The server as a program of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from holdfast.app import Holdfast
from holdfast.cli.exits import ExitCode
from holdfast.letters.bulk import LetterFilter
from tests.cli import shop
from tests.cli.conftest import Run
from tests.stores import make_url

ROOT = Path(__file__).parents[2]


@contextmanager
def serving(*args: str, **env: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in a process of its own, and its address."""
    command = [sys.executable, "-m", "holdfast", "serve", "--port", "0", *args]
    own = {**os.environ, "HOLDFAST_URL": "", "HOLDFAST_APP": "", **env}
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=own
    )  # fmt: skip
    try:
        assert server.stdout is not None
        said = server.stdout.readline()
        found = re.search(r"Holdfast is at (http://\S+),", said)
        assert found is not None, server.communicate()
        yield server, found[1]
    finally:
        if server.poll() is None:
            server.kill()
            server.communicate()


def ask(url: str, path: str) -> Any:
    with urlopen(f"{url}/api/v1{path}", timeout=20) as answer:
        return json.load(answer)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_a_signal_ends_it_with_0(hold: Holdfast, url: str, number: signal.Signals) -> None:
    hold.letters.create("payments", "F")
    with serving("--url", url) as (server, at):
        assert at.startswith("http://127.0.0.1:")
        assert ask(at, "/health") == {"status": "ok"}
        assert ask(at, "/letters/facets")["by_domain"] == {"payments": 1}
        assert ask(at, "/status")["has_program"] is False
        server.send_signal(number)
        out, error = server.communicate(timeout=30)
    assert (server.returncode, out) == (0, "")
    assert error.startswith("without --app the functions of your program are not here")
    with closing(socket.create_server(("127.0.0.1", int(at.rpartition(":")[2])))):
        pass


def test_with_the_program_it_can_replay_and_with_worker_it_does_so_by_itself(
    url: str, hold: Holdfast, failed: Callable[[int], list[str]]
) -> None:
    [id] = failed(1)
    with serving("--app", shop.APP, "--worker", **{shop.URL: url}) as (server, at):
        status = ask(at, "/status")
        assert (status["has_program"], status["store"]) == (True, url)
        hold.letters.bulk.start(LetterFilter(domain="payments"))
        give_up = time.monotonic() + 60
        while ask(at, f"/letters/{id}")["status"] != "resolved":
            assert time.monotonic() < give_up
            time.sleep(0.05)
        server.send_signal(signal.SIGINT)
        _, error = server.communicate(timeout=30)
    assert (server.returncode, error) == (0, "")


def test_a_worker_without_the_program_does_maintenance(url: str, hold: Holdfast) -> None:
    id = hold.letters.create("payments", "F", expires_at=hold.letters.create("x", "F").created_at).id
    with serving("--url", url, "--worker") as (server, at):
        give_up = time.monotonic() + 60
        while ask(at, f"/letters/{id}")["status"] != "expired":
            assert time.monotonic() < give_up
            time.sleep(0.05)
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0


def test_a_port_that_is_taken_is_one_line(run: Run, hold: Holdfast) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        error = run("serve", "--port", str(port), code=ExitCode.FAILED).stderr
    assert error.startswith(f"holdfast: cannot listen on 127.0.0.1:{port}: ")
    assert error.endswith("; choose another with --port\n")
    assert error.count("\n") == 1


def test_a_store_that_is_not_there_is_one_line(run: Run) -> None:
    error = run("serve", "--port", "0", code=ExitCode.NO_STORE).stderr
    assert error.startswith("holdfast: there is no database at ")
    assert error.count("\n") == 1


def test_a_schema_that_is_not_current_is_one_line(run: Run, tmp_path: Path) -> None:
    url = make_url("postgres", tmp_path)
    error = run("serve", "--port", "0", "--url", url, code=ExitCode.NO_STORE).stderr
    assert "run: holdfast db upgrade" in error
    assert error.count("\n") == 1


def test_an_address_that_others_reach_needs_somebody_who_can_sign_in(run: Run, hold: Holdfast) -> None:
    error = run("serve", "--host", "0.0.0.0", "--port", "0", code=ExitCode.FAILED).stderr
    assert error.startswith("holdfast: 0.0.0.0 can be reached by others, and nobody could be asked to sign in; ")
    assert error.count("\n") == 1
    error = run("serve", "--auth", "--port", "0", code=ExitCode.USAGE).stderr
    assert error.startswith("holdfast: --auth: nobody could sign in; make a user first: ")


def test_with_accounts_it_may_be_reached_by_others_who_have_to_sign_in(hold: Holdfast, url: str) -> None:
    hold.access.add_user("ann", "correct horse battery", "admin")
    with serving("--url", url, "--host", "0.0.0.0", "--allow-host", "holdfast.example") as (server, at):
        here = at.replace("0.0.0.0", "127.0.0.1")
        assert ask(here, "/health") == {"status": "ok"}
        with pytest.raises(HTTPError, match="401"):
            ask(here, "/letters")
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0


def test_it_can_be_asked_without_signing_in_on_this_machine_when_that_is_wanted(hold: Holdfast, url: str) -> None:
    hold.access.add_user("ann", "correct horse battery", "admin")
    with serving("--url", url, "--no-auth") as (_, at):
        assert ask(at, "/letters")["items"] == []
    with serving("--url", url, "--auth") as (_, at), pytest.raises(HTTPError, match="401"):
        ask(at, "/letters")
