"""Users and tokens, from the command line: on the store, and by a server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast.access.access import Access
from holdfast.access.passwords import Passwords
from holdfast.access.rights import Role
from holdfast.app import Holdfast
from holdfast.cli.exits import ExitCode
from holdfast.cli.root import root
from holdfast.server.run import listen, server, url_of
from tests.cli.conftest import Run, lines

Answer = Callable[..., Any]
PASSWORD = "correct horse battery"
OTHER = "staple staple staple"


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a password costs is no part of these tests."""
    monkeypatch.setattr(Passwords.__init__, "__kwdefaults__", {"time_cost": 1, "memory_kib": 8, "lanes": 1})


@pytest.fixture
def accounts(hold: Holdfast) -> Access:
    return hold.access


@pytest.fixture
def typed(url: str) -> Callable[..., Result]:
    """Runs a command that reads the password from its standard input."""

    def typed(*args: str, password: str = PASSWORD, code: int = 0) -> Result:
        env = {"HOLDFAST_URL": url, "HOLDFAST_APP": None, "COLUMNS": "80"}
        result = CliRunner().invoke(root, ["access", *args, "--password-stdin"], env=env, input=f"{password}\n")
        assert result.exit_code == code, result.output
        assert password not in result.output
        return result

    return typed


def test_users_are_listed_by_name(run: Run, answer: Answer, accounts: Access) -> None:
    assert "there are no users" in run("access", "users").stderr
    accounts.add_user("bob", PASSWORD, "viewer", by="ann")
    accounts.add_user("ada", PASSWORD, "admin", by="ann")
    accounts.disable("bob")
    assert lines(run("access", "users")) == [
        "NAME  ROLE    STATE     PASSWORD  MADE  BY",
        "ada   admin               0s old    0s  ann",
        "bob   viewer  disabled    0s old    0s  ann",
    ]
    shown = answer("access", "users")["items"]
    assert [user["name"] for user in shown] == ["ada", "bob"]
    assert "argon2" not in str(shown)


def test_a_user_is_added_with_a_password_from_standard_input(typed: Callable[..., Result], accounts: Access) -> None:
    said = typed("add-user", "ada", "--role", "operator", "--by", "ann")
    assert said.stdout == "ada can sign in, as operator\n"
    identity = accounts.authenticate("ada", PASSWORD)
    assert identity is not None
    user = accounts.user("ada")
    assert user is not None
    assert (user.role, user.created_by) == (Role.OPERATOR, "ann")


def test_a_password_is_never_an_option(run: Run, hold: Holdfast) -> None:
    result = run("access", "add-user", "ada", "--role", "viewer", "--password", PASSWORD, code=ExitCode.USAGE)
    assert "No such option" in result.stderr
    result = run("access", "add-user", "ada", "--role", "viewer", code=ExitCode.USAGE)
    assert "--password-stdin" in result.stderr


def test_what_cannot_be_is_wrong_usage_and_changes_nothing(typed: Callable[..., Result], accounts: Access) -> None:
    short = typed("add-user", "ada", "--role", "viewer", password="short", code=ExitCode.USAGE)
    assert "at least 12 characters, this one has 5" in short.stderr
    assert "is no name" in typed("add-user", "Ada", "--role", "viewer", code=ExitCode.USAGE).stderr
    assert "king" in typed("add-user", "ada", "--role", "king", code=ExitCode.USAGE).stderr
    assert accounts.users() == []


def test_a_name_that_is_taken_is_refused(typed: Callable[..., Result], accounts: Access) -> None:
    accounts.add_user("ada", PASSWORD, "viewer")
    assert "already" in typed("add-user", "ada", "--role", "admin", code=ExitCode.FAILED).stderr


def test_a_user_is_changed_disabled_enabled_and_removed(
    run: Run, typed: Callable[..., Result], answer: Answer, accounts: Access
) -> None:
    accounts.add_user("ada", PASSWORD, "viewer")
    accounts.add_user("root", PASSWORD, "admin")
    typed("set-password", "ada", password=OTHER)
    assert accounts.authenticate("ada", OTHER) is not None
    assert run("access", "set-role", "ada", "operator").stdout == "ada is operator now\n"
    assert answer("access", "disable", "ada")["is_disabled"] is True
    assert accounts.authenticate("ada", OTHER) is None
    assert run("access", "enable", "ada").stdout == "ada can sign in again\n"
    assert run("access", "remove-user", "ada").stdout == "ada is no user any more\n"
    assert accounts.user("ada") is None
    for act in (("disable", "ada"), ("enable", "ada"), ("remove-user", "ada"), ("set-role", "ada", "viewer")):
        assert "there is no user 'ada'" in run("access", *act, code=ExitCode.NOT_FOUND).stderr


def test_the_last_admin_goes_only_by_force(run: Run, accounts: Access) -> None:
    accounts.add_user("ada", PASSWORD, "viewer")
    accounts.add_user("root", PASSWORD, "admin")
    for act in (("disable", "root"), ("remove-user", "root"), ("set-role", "root", "viewer")):
        assert "is the last admin" in run("access", *act, code=ExitCode.FAILED).stderr
    run("access", "remove-user", "root", "--force")
    assert [user.name for user in accounts.users()] == ["ada"]


def test_who_goes_leaves_tokens_that_are_told_of(run: Run, accounts: Access) -> None:
    accounts.add_user("ada", PASSWORD, "admin")
    token, _ = accounts.create_token("ci", role="viewer", by="ada")
    assert f"tokens that they made still work: {token.id}" in run("access", "remove-user", "ada").stderr


def test_a_token_is_printed_once_alone_on_its_line(run: Run, accounts: Access) -> None:
    result = run("access", "create-token", "ci", "--scope", "letters:*", "--scope", "*:read", "--expires", "12h")
    identity = accounts.identify_token(result.stdout.strip())
    assert identity is not None
    assert identity.scopes == {"letters:*", "*:read"}
    assert "only time" in result.stderr
    secret = result.stdout.strip().rpartition("_")[2]
    for shown in (run("access", "tokens"), run("access", "tokens", "--json")):
        assert secret not in shown.output


@pytest.mark.parametrize(("given", "seconds"), [("90s", 90), ("45m", 2700), ("30d", 2_592_000), ("2w", 1_209_600)])
def test_the_life_of_a_token_is_a_length_of_time(answer: Answer, accounts: Access, given: str, seconds: int) -> None:
    answer("access", "create-token", "ci", "--role", "viewer", "--expires", given)
    [token] = accounts.tokens()
    assert token.expires_at is not None
    assert (token.expires_at - token.created_at).total_seconds() == seconds


def test_a_token_may_last_for_ever_if_that_is_said(answer: Answer, hold: Holdfast) -> None:
    made = answer("access", "create-token", "ci", "--role", "viewer", "--expires", "never")
    assert made["token"]["expires_at"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give --role, or --scope"),
        (["--role", "viewer", "--scope", "*:read"], "give --role, or --scope"),
        (["--scope", "ships:sail"], "'ships:sail' is no scope"),
        (["--role", "viewer", "--expires", "soon"], "'soon' is no length of time"),
        (["--role", "viewer", "--expires", "0s"], "expires_in must be"),
        (["--role", "viewer", "--expires", "9999999w"], "'9999999w' is no length of time"),
    ],
)
def test_a_token_that_cannot_be_is_wrong_usage(run: Run, accounts: Access, words: list[str], said: str) -> None:
    assert said in run("access", "create-token", "ci", *words, code=ExitCode.USAGE).stderr
    assert accounts.tokens() == []


def test_tokens_are_listed_and_revoked(run: Run, answer: Answer, accounts: Access) -> None:
    assert run("access", "tokens").stderr == "there are no tokens\n"
    token, text = accounts.create_token("ci", ["letters:*"], expires_in=None, by="ann")
    assert lines(run("access", "tokens")) == [
        "ID            NAME  SCOPES     STATE   ENDS IN  USED  BY",
        f"{token.id}  ci    letters:*  active    never        ann",
    ]
    assert run("access", "revoke-token", token.id, "--by", "bob").stdout == f"{token.id} opens nothing any more\n"
    assert accounts.identify_token(text) is None
    [shown] = answer("access", "tokens")["items"]
    assert (shown["revoked_by"], shown["is_live"]) == ("bob", False)
    assert "there is no token" in run("access", "revoke-token", "nope", code=ExitCode.NOT_FOUND).stderr


@pytest.fixture
def served(hold: Holdfast) -> Iterator[str]:
    """A server over that store; its address."""
    listening = listen(port=0)
    up = threading.Event()
    running = server(hold, listening, told=lambda url: up.set())
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
    thread.start()
    assert up.wait(60)
    yield url_of(listening)
    running.should_exit = True
    thread.join()
    listening.close()


def test_a_server_can_be_asked_for_the_same(
    run: Run, answer: Answer, served: str, hold: Holdfast, tmp_path: Path
) -> None:
    _, text = hold.access.create_token("root", role="admin")
    env = {"HOLDFAST_URL": served, "HOLDFAST_TOKEN": text}

    def add(*args: str, code: int = 0) -> Result:
        words = ["access", "add-user", *args, "--role", "operator", "--password-stdin"]
        result = CliRunner().invoke(root, words, env={**env, "HOLDFAST_APP": None}, input=PASSWORD)
        assert result.exit_code == code, result.output
        return result

    add("ada")
    assert "already" in add("ada", code=ExitCode.FAILED).stderr
    assert [user["name"] for user in answer("access", "users", env=env)["items"]] == ["ada"]
    assert run("access", "disable", "ada", env=env).stdout == "ada can sign in no more\n"
    assert run("access", "set-role", "ada", "viewer", env=env).stdout == "ada is viewer now\n"
    run("access", "enable", "ada", env=env)
    made = answer("access", "create-token", "ci", "--scope", "letters:read", "--expires", "1h", env=env)
    assert hold.access.identify_token(made["secret"]) is not None
    run("access", "revoke-token", made["token"]["id"], env=env)
    assert hold.access.identify_token(made["secret"]) is None
    assert "there is no token" in run("access", "revoke-token", "nope", env=env, code=ExitCode.NOT_FOUND).stderr
    assert "active" in run("access", "tokens", env=env).stdout
    run("access", "remove-user", "ada", env=env)
    assert hold.access.users() == []
    weak = {**env, "HOLDFAST_TOKEN": hold.access.create_token("weak", role="viewer")[1]}
    assert "may not do this" in run("access", "remove-user", "ada", env=weak, code=ExitCode.FAILED).stderr
    assert "token" in run("access", "users", env={**env, "HOLDFAST_TOKEN": None}, code=ExitCode.USAGE).stderr
