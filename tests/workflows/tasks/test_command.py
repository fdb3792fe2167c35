"""Commands are real processes here: they end in time, leave nothing behind and tell no secrets."""

from __future__ import annotations

import os
import signal
import sys
import threading
from asyncio import CancelledError
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.core.context import deadline
from holdfast.errors import ConfigurationError, PermanentError, TaskError, TaskTimeoutError, TransientError
from holdfast.workflows.cancel import TOKEN, TaskToken
from holdfast.workflows.tasks.command import CommandResult, accepted, masked, run_command
from tests.conftest import Threads

FOREVER = "import signal; signal.pause()"


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def opened(path: Path) -> int:
    """Waits until a process opens the pipe, and hands its reading end out: at its end all its holders have ended."""
    os.mkfifo(path)
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK)


def closed(end: int) -> bool:
    """Whether all that held the other end of a pipe have ended; waits for it."""
    os.set_blocking(end, True)
    try:
        while os.read(end, 4096):
            pass
        return True
    finally:
        os.close(end)


def test_a_command_tells_its_code_and_what_it_said() -> None:
    result = run_command(python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"))
    assert result == CommandResult(3, "out\n", "err\n", 0)
    assert result.outputs() == {"exit_code": 3, "stdout": "out\n", "stderr": "err\n"}


def test_it_gets_its_input_folder_and_environment(tmp_path: Path) -> None:
    text = "import os, sys; print(os.getcwd(), os.environ['WORD'], sys.stdin.read())"
    result = run_command(python(text), cwd=str(tmp_path), env={"WORD": "w"}, stdin="grüße")
    assert result.stdout == f"{tmp_path} w grüße\n"


def test_without_an_input_it_reads_nothing() -> None:
    assert run_command(["cat"]).stdout == ""


def test_one_that_does_not_read_its_input_is_not_held_up() -> None:
    assert run_command(["true"], stdin="x" * 1_000_000).code == 0


def test_output_beyond_the_limit_is_dropped_and_said() -> None:
    result = run_command(python("print('x' * 300_000, end='')"), cap=1000)
    assert result.stdout == "x" * 1000
    assert result.dropped == 299_000
    assert result.outputs()["output_dropped"] == 299_000


def test_what_is_no_text_is_still_read() -> None:
    assert run_command(["printf", r"a\377b"]).stdout == "a�b"


def test_a_command_that_takes_too_long_is_ended_with_all_its_children(tmp_path: Path) -> None:
    end = opened(tmp_path / "held")
    text = f"exec 3>{tmp_path}/held; sleep 600 & sleep 600"
    with pytest.raises(TaskTimeoutError, match=r"still running after 0.3 s and was ended"):
        run_command(["sh", "-c", text], timeout=0.3)
    assert closed(end)


@contextmanager
def cancelled_when_it_says_so(end: int) -> Iterator[None]:
    """A task here is cancelled when its command writes into the pipe."""
    token = TaskToken()

    def cancel() -> None:
        os.set_blocking(end, True)
        while not os.read(end, 1):
            pass
        token.cancel("the workflow was cancelled")

    canceller = threading.Thread(target=cancel)
    canceller.start()
    reset = TOKEN.set(token)
    try:
        yield
    finally:
        TOKEN.reset(reset)
        canceller.join()


def test_a_cancelled_task_ends_its_command(tmp_path: Path) -> None:
    end = opened(tmp_path / "held")
    killed = threading.Event()
    text = f"exec 3>{tmp_path}/held; sleep 600 & echo x >&3; sleep 600"
    with cancelled_when_it_says_so(end), pytest.raises(CancelledError, match="the workflow was cancelled"):
        run_command(["sh", "-c", text], on_kill=killed.set)
    assert killed.is_set()
    assert closed(end)


def test_one_that_ignores_the_polite_signal_is_killed(tmp_path: Path) -> None:
    end = opened(tmp_path / "held")
    text = f"trap '' TERM; exec 3>{tmp_path}/held; echo x >&3; while :; do sleep 600; done"
    with cancelled_when_it_says_so(end), pytest.raises(CancelledError):
        run_command(["sh", "-c", text], grace=0.05)
    assert closed(end)


def test_a_task_that_is_cancelled_already_starts_nothing(tmp_path: Path) -> None:
    token = TaskToken()
    token.cancel("over")
    reset = TOKEN.set(token)
    try:
        with pytest.raises(CancelledError):
            run_command(["touch", str(tmp_path / "made")])
    finally:
        TOKEN.reset(reset)
    assert not (tmp_path / "made").exists()


def test_what_a_command_leaves_running_ends_with_it(tmp_path: Path) -> None:
    end = opened(tmp_path / "held")
    result = run_command(["sh", "-c", f"exec 3>{tmp_path}/held; sleep 600 & echo done"])
    assert result.stdout == "done\n"
    assert closed(end)


def test_one_that_left_the_group_does_not_hold_the_task_up() -> None:
    text = "import os, sys; pid = os.fork()\nif pid: print(pid)\nelse: os.setsid(); import signal; signal.pause()"
    pid = int(run_command(python(text), grace=0.05).stdout)
    os.kill(pid, signal.SIGKILL)


def test_a_surrounding_deadline_shortens_the_time() -> None:
    with deadline(0.2), pytest.raises(TaskTimeoutError):
        run_command(python(FOREVER), timeout=600)


def test_secrets_are_masked_in_what_it_says_and_in_errors() -> None:
    result = run_command(
        python("import os; print('key hunter22 and', os.environ['API_TOKEN'], os.environ['PLAIN'])"),
        env={"API_TOKEN": "t0psecret", "PLAIN": "plain value"},
        secrets=["hunter22\n"],
    )
    assert result.stdout == "key *** and *** plain value\n"
    with pytest.raises(TaskTimeoutError) as raised:
        run_command(["sh", "-c", "echo hunter22; sleep 600; : hunter22"], timeout=0.2, secrets=["hunter22"])
    assert "hunter22" not in str(raised.value)


def test_half_a_secret_at_the_limit_is_masked_too() -> None:
    assert run_command(["printf", "say hunter22 again"], cap=8, secrets=["hunter22"]).stdout == "say ***"
    assert masked(b"ab", [b"abc"]) == b"ab"
    assert masked(b"xab", [b"abc"], cut=True) == b"x***"


def test_a_program_that_is_not_there_is_a_permanent_error(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="'no-such-program' cannot be started"):
        run_command(["no-such-program"])
    with pytest.raises(PermanentError, match="missing"):
        run_command(["true"], cwd=str(tmp_path / "missing"))
    with pytest.raises(ConfigurationError, match="name of a program"):
        run_command([])


def test_a_code_is_accepted_retried_or_an_error_with_the_last_words() -> None:
    result = CommandResult(7, "out", "x" * 600 + " disk full\n", 0)
    assert accepted(result, "backup", expected=(0, 7)) is result
    with pytest.raises(TransientError, match=r"^backup ended with code 7, expected 0: …x+ disk full$"):
        accepted(result, "backup", transient=(7,))
    with pytest.raises(TaskError, match="disk full"):
        accepted(result, "backup")
    with pytest.raises(TaskError, match="killed by signal 9, expected 0, 1; it said nothing"):
        accepted(CommandResult(-9, "", "", 0), "backup", expected=(0, 1))


def test_errors_are_redacted() -> None:
    with pytest.raises(TaskError) as raised:
        accepted(CommandResult(1, "", "login failed: password=hunter22", 0), "login")
    assert "hunter22" not in str(raised.value)


def test_no_thread_or_open_file_is_left(begun_threads: Threads) -> None:
    run_command(["true"], stdin="x")
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(3):
        run_command(["true"])
    assert not set(os.listdir("/proc/self/fd")) - before
    assert not begun_threads()
