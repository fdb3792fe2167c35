"""How the program is called: which store, which errors, which exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from holdfast.app import Holdfast
from holdfast.cli.exits import MEANINGS, ExitCode
from holdfast.cli.root import GROUPS, root
from tests.cli.conftest import Run

ROOT = Path(__file__).parents[2]


def program(code: str, *args: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter that runs the code with these arguments."""
    command = [sys.executable, "-c", code, *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)


def test_the_help_names_every_command_and_every_exit_code(run: Run) -> None:
    text = run("--help").stdout
    assert all(f"  {name} " in text for name in GROUPS)
    assert all(f"  {code.value}  {meaning}" in text for code, meaning in MEANINGS.items())


def helps(group: click.Group = root, *path: str) -> Iterator[tuple[str, ...]]:
    """Every command and every group of commands."""
    yield path
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from helps(command, *path, name)
        else:
            yield *path, name


def test_no_help_is_wider_than_80_columns(run: Run) -> None:
    shown = {path: run(*path, "--help").stdout for path in helps()}
    assert {path: line for path, text in shown.items() for line in text.splitlines() if len(line) > 80} == {}


def test_the_help_loads_neither_sqlalchemy_nor_redis_nor_pydantic() -> None:
    code = """
import sys
from holdfast.cli.main import main
sys.argv = ["holdfast", "--help"]
try:
    main()
finally:
    loaded = {"sqlalchemy", "alembic", "redis", "pydantic", "asyncio", "rich.table"} & set(sys.modules)
    print("loaded:", sorted(loaded))
"""
    assert "loaded: []" in program(code).stdout


def test_without_click_it_prints_the_line_that_installs_it() -> None:
    code = "import sys; sys.modules['click'] = None; from holdfast.cli.main import main; main()"
    ended = program(code)
    assert ended.stderr == "holdfast's commands need the extra cli: pip install 'holdfast[cli]'\n"
    assert ended.returncode == 1


def test_python_can_run_the_package_as_a_program() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "holdfast", "--version"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert ended.stdout.startswith("holdfast, version ")


def test_without_a_store_it_says_what_to_set_in_one_line(run: Run) -> None:
    error = run("letters", "list", code=ExitCode.USAGE, env={"HOLDFAST_URL": None}).stderr
    assert error.count("\n") == 1
    assert "HOLDFAST_URL or --url" in error
    assert "HOLDFAST_APP or --app" in error


@pytest.mark.parametrize("url", ["memory://", "sqlite://", "sqlite:///:memory:"])
@pytest.mark.parametrize("command", ["letters list", "breakers list", "worker --once", "db info", "db check"])
def test_a_store_that_lives_in_one_process_is_refused(run: Run, url: str, command: str) -> None:
    error = run(*command.split(), "--url", url, code=ExitCode.USAGE).stderr
    assert error.startswith(f"holdfast: {url} lives in one process only")


def test_a_sqlite_file_that_is_not_there_is_not_made_by_looking_at_it(run: Run, tmp_path: Path) -> None:
    missing = tmp_path / "typo.db"
    for command in ("letters list", "breakers list", "db check", "db info"):
        error = run(*command.split(), "--url", f"sqlite:///{missing}", code=ExitCode.NO_STORE).stderr
        assert error.startswith(f"holdfast: there is no database at {missing}")
    assert not missing.exists()


def test_a_store_that_cannot_be_reached_is_one_line_and_code_4(run: Run) -> None:
    error = run("letters", "list", "--url", "redis://127.0.0.1:1/0", code=ExitCode.NO_STORE).stderr
    assert error.startswith("holdfast: ")
    assert error.count("\n") == 1
    assert "127.0.0.1:1" in error


def test_a_url_that_names_no_store_is_wrong_usage(run: Run) -> None:
    error = run("letters", "list", "--url", "mongodb://me:secret@host/db", code=ExitCode.USAGE).stderr
    assert "mongodb" in error
    assert "secret" not in error


def test_the_option_goes_before_the_environment_and_may_stand_before_the_command(
    run: Run, hold: Holdfast, url: str
) -> None:
    elsewhere: dict[str, str | None] = {"HOLDFAST_URL": "memory://", "HOLDFAST_APP": "nowhere:hold"}
    run("--url", url, "letters", "list", env=elsewhere)
    run("letters", "--url", url, "list", env=elsewhere)
    run("letters", "list", "--url", url, env=elsewhere)


def test_a_url_and_an_app_together_are_wrong_usage(run: Run, url: str) -> None:
    error = run("letters", "list", "--url", url, "--app", "a:b", code=ExitCode.USAGE).stderr
    assert "not both" in error


@pytest.mark.parametrize(
    ("app", "says"),
    [
        ("shop", "--app must be module:attribute, got 'shop'"),
        ("no_such_module:hold", "there is no module 'no_such_module'"),
        ("tests.cli.shop:hold", "tests.cli.shop has no 'hold'"),
        ("tests.cli.shop:SEVEN", "is a int; it must be a Holdfast"),
    ],
)
def test_an_app_that_cannot_be_found_is_wrong_usage(run: Run, app: str, says: str) -> None:
    assert says in run("letters", "list", "--app", app, code=ExitCode.USAGE).stderr


def test_an_app_that_raises_is_told_in_one_line_and_shown_with_debug(run: Run) -> None:
    error = run("letters", "list", "--app", "tests.cli.shop:broken", code=ExitCode.FAILED).stderr
    assert error == "holdfast: RuntimeError: no configuration (--debug shows where)\n"
    args = ["letters", "list", "--app", "tests.cli.shop:broken", "--debug"]
    shown = CliRunner().invoke(root, args)
    assert "Traceback" in shown.stderr
    assert "in broken" in shown.stderr
    assert shown.exit_code == ExitCode.FAILED


def test_the_app_of_the_environment_is_used(run: Run, hold: Holdfast) -> None:
    run("letters", "list", env={"HOLDFAST_APP": "tests.cli.shop:make", "HOLDFAST_URL": None})


@pytest.mark.parametrize("args", [["letter"], ["letters", "lst"], ["letters", "list", "--limit", "none"]])
def test_wrong_usage_is_code_2_and_names_the_help(run: Run, args: list[str]) -> None:
    error = run(*args, code=ExitCode.USAGE).stderr
    assert error.splitlines()[-1].startswith("try: ")


def test_a_reader_that_has_seen_enough_is_no_error(hold: Holdfast, url: str) -> None:
    command = f"{sys.executable} -m holdfast letters list --url {url} --json | head -c 1"
    ended = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, cwd=ROOT, env=dict(os.environ), check=False
    )
    assert ended.stdout == "{"
    assert ended.stderr == ""
