"""The demo as a program: it tells what has happened, ends when it is asked to, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from click.testing import CliRunner

from holdfast import Holdfast
from holdfast.demo import play
from holdfast.demo.command import demo
from holdfast.demo.ending import Ending
from holdfast.demo.play import Options
from holdfast.demo.stage import Stage

COMMAND = [sys.executable, "-m", "holdfast.demo", "--port", "0", "--quick"]
LONG_S = 110
pytestmark = pytest.mark.timeout(300)


@contextmanager
def started(folder: Path, *arguments: str, terminal: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """The demo, leader of a group of its own; its temporary files belong into the folder."""
    out = subprocess.PIPE if terminal is None else terminal
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdin=subprocess.DEVNULL if terminal is None else terminal, stdout=out,
        stderr=subprocess.PIPE, text=True, encoding="utf-8", start_new_session=True,
        env={**os.environ, "TMPDIR": str(folder), "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"},
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def assert_nothing_is_left(process: subprocess.Popen[str], folder: Path, port: int | None = None) -> None:
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    assert list(folder.iterdir()) == []
    if port is not None:
        with closing(socket.create_server(("127.0.0.1", port))):
            pass


def port_in(text: str) -> int | None:
    found = re.search(r"http://127\.0\.0\.1:(\d+)", text)
    return None if found is None else int(found[1])


def test_the_story_comes_true_and_the_summary_is_what_the_store_says(tmp_path: Path) -> None:
    folder, kept = tmp_path / "tmp", tmp_path / "kept.db"
    folder.mkdir()
    with started(folder, "--json", "--keep", str(kept)) as process:
        out, error = process.communicate(timeout=LONG_S * 2)
        assert (process.returncode, error) == (0, "")
        assert_nothing_is_left(process, folder)
    summary = json.loads(out)
    assert summary["orders"] == summary["charged"] > 50
    assert (summary["lost"], summary["charged_twice"], summary["never_charged"]) == (0, 0, 0)
    assert summary["letters"]["resolved"] >= 25
    with Holdfast(f"sqlite:///{kept}") as hold:
        assert hold.letters.get_facet_counts()["by_status"] == summary["letters"] == {"resolved": hold.letters.count()}
        counts = {str(status): number for status, number in hold.outbox.status_counts().items() if number}
        assert counts == summary["entries"]
        assert counts["abandoned"] == 1
        [undone] = hold.sagas.find(state="compensated")
        assert undone.subject_id == "x-declined"
        assert {str(status): number for status, number in hold.workflows.counts().items()} == summary["workflows"]
        assert set(summary["workflows"]) == {"SUCCEEDED"}
        assert summary["breakers"]["payments"] == "closed"
        assert hold.breakers.get_by_service_name("payments").generation >= 3  # type: ignore[union-attr]


def test_in_a_terminal_it_stays_open_and_control_c_ends_it(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    said = b""

    def read_until(words: str) -> None:
        nonlocal said
        give_up = time.monotonic() + 2 * LONG_S
        while words.encode() not in said:
            assert time.monotonic() < give_up, said[-2000:]
            if select.select([ours], [], [], 1.0)[0]:
                said += os.read(ours, 65536)

    with started(tmp_path, terminal=theirs) as process:
        os.close(theirs)
        read_until("stays open")
        text = said.decode("utf-8", "replace")
        told = [
            "callers answered", "All is well", "receipts wait in the outbox", "breaker payments is open",
            "are kept as dead letters", "breaker payments is closed", "letters are replayed", "has caught up",
            "the saga is compensated", "is killed (SIGKILL)", "the parcel is shipped", "each charged once",
            "orders that customers placed",
        ]  # fmt: skip
        places = [text.index(words) for words in told]
        assert places == sorted(places)
        port = port_in(text)
        assert port is not None
        with urlopen(f"http://127.0.0.1:{port}/api/v1/health", timeout=10) as answer:
            assert json.load(answer) == {"status": "ok"}
        # Whatever it still has to say must be read, or it would wait for that.
        reader = threading.Thread(target=_swallow, args=(ours,), daemon=True)
        reader.start()
        os.killpg(process.pid, signal.SIGINT)  # what a terminal does for Ctrl-C
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert_nothing_is_left(process, tmp_path, port)
    os.close(ours)


def _swallow(terminal: int) -> None:
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:
        return  # the other side has closed it


@pytest.mark.parametrize(
    ("words", "number"),
    [
        ("A shop that calls", signal.SIGINT),
        ("callers answered", signal.SIGTERM),
        ("customers order", signal.SIGINT),
        ("The bank is away", signal.SIGTERM),
        ("is killed (SIGKILL)", signal.SIGINT),
    ],
)
def test_a_signal_at_any_moment_ends_it_with_0_and_leaves_nothing(
    tmp_path: Path, words: str, number: signal.Signals
) -> None:
    with started(tmp_path) as process:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if words in line:
                break
        os.killpg(process.pid, number)
        out, error = process.communicate(timeout=60)
        assert (process.returncode, error) == (0, "")
        assert out.endswith("ended; nothing is left running\n")
        assert_nothing_is_left(process, tmp_path, port_in(said + out))


def test_a_demo_that_is_killed_leaves_no_worker(tmp_path: Path) -> None:
    with started(tmp_path) as process:
        assert process.stdout is not None
        said = next(line for line in process.stdout if "the worker is process" in line)
        worker = int(said.split()[-1])
        os.kill(worker, 0)
        process.kill()
        process.communicate()
    give_up = time.monotonic() + 30
    while time.monotonic() < give_up:
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail(f"the worker {worker} is still there")


def test_a_story_that_does_not_come_out_is_said_and_is_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    def pigs_fly(stage: Stage) -> None:
        stage.until("pigs fly", 0.0, lambda now: False)

    assert play.play(Options(port=0), Ending(), [("Pigs", pigs_fly)]) == 1
    assert "the story did not come out as it should: pigs fly: not within 0 s" in capsys.readouterr().err


def test_a_port_that_is_taken_gives_way_to_the_next_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "twice.svg"
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        assert play.play(Options(port=port, picture=picture), Ending(), []) == 0
    said = capsys.readouterr().out
    assert f"(port {port} is taken)" in said
    assert port_in(said) not in (None, port)
    assert picture.read_text(encoding="utf-8").startswith("<svg")
    assert f"picture: {picture}" in said


def test_without_a_built_console_it_says_how_to_build_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(play, "STATIC", tmp_path)
    assert play.play(Options(port=0), Ending(), []) == 0
    assert "the console is not built, so only the API answers; for the console: make console" in capsys.readouterr().out


def test_a_file_that_is_there_or_a_folder_that_is_not_is_refused(tmp_path: Path) -> None:
    precious = tmp_path / "precious.db"
    precious.write_text("mine")
    for option, file in (
        ("--keep", precious),
        ("--keep", tmp_path / "no" / "a.db"),
        ("--picture", tmp_path / "no" / "a"),
    ):
        refused = CliRunner().invoke(demo, [option, str(file)])
        assert refused.exit_code == 1
        assert f"choose another {option}" in refused.output
    assert precious.read_text() == "mine"


def test_what_is_missing_is_named_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.demo.command.find_spec", lambda name: None if name == "uvicorn" else object())
    refused = CliRunner().invoke(demo, [])
    assert str(refused.exception) == "the demo needs uvicorn; run: pip install 'holdfast[demo]'"
