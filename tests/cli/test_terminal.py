"""In a real terminal: colours, questions, and a bar while it works."""

from __future__ import annotations

import os
import signal
import struct
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from holdfast.app import Holdfast
from holdfast.cli.exits import ExitCode
from tests.cli import shop
from tests.cli.served import served

fcntl = pytest.importorskip("fcntl")
pty = pytest.importorskip("pty")
termios = pytest.importorskip("termios")

ROOT = Path(__file__).parents[2]
Filed = Callable[..., str]


def in_terminal(*args: str, types: Sequence[tuple[str, str]] = (), **env: str) -> tuple[str, int]:
    """What a command shows in a terminal of 80 columns, and its exit code.

    A person sits there: `types` are what is waited for, one after the other, and what is typed then.
    """
    pid, screen = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would ignore it
        for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "HOLDFAST_APP"):
            os.environ.pop(name, None)
        os.environ.update({"TERM": "xterm-256color", **env})
        os.chdir(ROOT)
        os.execv(sys.executable, [sys.executable, "-m", "holdfast", *args])
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 80, 0, 0))
    seen, upto, left = b"", 0, list(types)
    try:
        while some := os.read(screen, 65536):
            seen += some
            if left and left[0][0].encode() in seen[upto:]:
                upto = len(seen)
                os.write(screen, left.pop(0)[1].encode())
    except OSError:  # the other side is gone
        pass
    os.close(screen)
    return seen.decode().replace("\r\n", "\n"), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_states_have_colours_in_a_terminal_and_no_color_is_respected(hold: Holdfast, url: str, filed: Filed) -> None:
    filed()
    coloured, code = in_terminal("letters", "list", "--url", url)
    assert "\x1b[33mpending\x1b[0m" in coloured
    assert code == ExitCode.OK
    plain, _ = in_terminal("letters", "list", "--url", url, NO_COLOR="1")
    assert "\x1b" not in plain
    assert "pending" in plain


def test_the_question_names_the_count_and_a_no_does_nothing(hold: Holdfast, url: str, filed: Filed) -> None:
    for _ in range(3):
        filed()
    seen, code = in_terminal("letters", "bulk", "discard", "--url", url, types=[("[y/N]: ", "n\n")])
    assert "Mark 3 letters as rejected? [y/N]: n\n" in seen
    assert seen.endswith("holdfast: nothing was done\n")
    assert code == ExitCode.ABORTED
    assert hold.letters.count(status="pending") == 3


def test_a_yes_starts_it_and_a_bar_shows_how_far_it_is(hold: Holdfast, url: str, filed: Filed) -> None:
    for _ in range(3):
        filed()
    seen, code = in_terminal("letters", "bulk", "resolve", "--url", url, types=[("[y/N]: ", "y\n")])
    assert "3/3" in seen
    assert code == ExitCode.OK
    assert hold.letters.count(status="resolved") == 3


def test_a_purge_asks_with_the_count(hold: Holdfast, url: str, filed: Filed) -> None:
    hold.letters.update_status(filed(), "archived")
    seen, code = in_terminal("letters", "purge", "--older-than", "0", "--url", url, types=[("[y/N]: ", "y\n")])
    assert "Delete 1 letter for good? [y/N]: y\n" in seen
    assert code == ExitCode.OK
    assert hold.letters.count() == 0


def test_the_outbox_asks_with_the_count_and_shows_a_bar(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(shop.URL, url)
    with shop.calling() as hold:
        with hold.sessions.begin() as session:
            for at in range(3):
                hold.outbox.put(session, "send", {"order_id": f"o-{at}"}, target="mail")
        cancel = ["outbox", "cancel", "--target", "mail", "--app", shop.CALLING]
        seen, code = in_terminal(*cancel, types=[("[y/N]: ", "n\n")])
        assert "Cancel 3 entries? [y/N]: n\n" in seen
        assert code == ExitCode.ABORTED
        seen, code = in_terminal(*cancel, types=[("[y/N]: ", "y\n")])
        assert "3/3" in seen
        assert "cancelled 3 entries" in seen
        assert "\x1b[31mabandoned\x1b[0m" in in_terminal("outbox", "list", "--url", url)[0]
        assert hold.outbox.tally(status="abandoned") == {(): 3}


def test_a_server_is_asked_with_the_count_and_a_bar_shows_how_far_it_is(hold: Holdfast, filed: Filed) -> None:
    for _ in range(3):
        filed()
    with served(hold, has_program=False) as at:
        resolve = ["letters", "bulk", "resolve", "--url", at]
        seen, code = in_terminal(*resolve)
        assert "a server wants to know why: --reason" in seen
        assert code == ExitCode.USAGE
        seen, code = in_terminal(*resolve, "--reason", "refunded", types=[("[y/N]: ", "y\n")])
        assert "Mark 3 letters as resolved? [y/N]: y\n" in seen
        assert "3/3" in seen
        assert code == ExitCode.OK
    assert hold.letters.count(status="resolved") == 3


def test_a_bar_shows_how_far_a_server_is_with_the_outbox_and_the_trail(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(shop.URL, url)
    with shop.calling() as hold:
        with hold.sessions.begin() as session:
            ids = [hold.outbox.put(session, "send", {"order_id": f"o-{at}"}, target="mail") for at in range(3)]
        hold.outbox.cancel(ids)
        with served(hold) as at:
            seen, code = in_terminal("outbox", "requeue", "--all", "--url", at, types=[("[y/N]: ", "y\n")])
            assert "Requeue 3 entries? [y/N]: y\n" in seen
            assert "3/3" in seen
            assert code == ExitCode.OK
            seen, code = in_terminal("audit", "verify", "--url", at)
            assert "verify" in seen
            assert "verified: " in seen
            assert code == ExitCode.OK
        assert hold.outbox.tally(status="pending") == {(): 3}


def test_an_interrupted_operation_waits_for_a_worker(
    hold: Holdfast, url: str, failed: Callable[[int], list[str]]
) -> None:
    failed(1)
    watching = ["letters", "bulk", "replay", "--yes", "--url", url]
    seen, code = in_terminal(*watching, types=[("Ctrl-C stops watching", ""), ("replay", "\x03")])
    assert "go on with `holdfast letters bulk run" in " ".join(seen.split())
    assert code == ExitCode.ABORTED
    assert hold.letters.bulk.find()[0].state == "pending"


def test_a_second_interrupt_does_not_wait_for_a_function_that_hangs(
    hold: Holdfast, url: str, failed: Callable[[int], list[str]]
) -> None:
    [id] = failed(1)
    stuck = {shop.URL: url, shop.STUCK: "1"}
    args = ["letters", "bulk", "replay", "--yes", "--app", shop.APP]
    seen, code = in_terminal(*args, types=[("stuck", "\x03"), ("Ctrl-C again", "\x03")], **stuck)
    assert code == ExitCode.ABORTED, seen
    assert hold.letters.get_by_id(id).status == "replaying"  # type: ignore[union-attr]
