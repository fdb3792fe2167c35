"""`holdfast access`: who may use the API and the console."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from typing import Any, Final

import click

from holdfast.access.rights import ACTS, RESOURCES, Role
from holdfast.access.tokens import LIFE
from holdfast.cli.access_life import LIFE_TYPE, NEVER
from holdfast.cli.access_ways import accounts_of
from holdfast.cli.api import part
from holdfast.cli.exits import WrongUsage
from holdfast.cli.filters import by_option, json_option
from holdfast.cli.output import Column, document, facts, note, say, table
from holdfast.cli.session import InOrder, Session, pass_session, store_options
from holdfast.cli.times import ago, stamp, until

_USERS: Final = (
    Column("name", gives=True), Column("role"), Column("state"), Column("password", right=True),
    Column("made", right=True, optional=True), Column("by", gives=True, optional=True),
)  # fmt: skip
_TOKENS: Final = (
    Column("id"), Column("name", gives=True), Column("scopes", gives=True), Column("state"),
    Column("ends in", right=True), Column("used", right=True), Column("by", gives=True, optional=True),
)  # fmt: skip
_role: Final = click.Choice([role.value for role in Role])
_stdin: Final = click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
_force: Final = click.option("--force", is_flag=True, help="Also the last admin who can sign in.")


@click.group(cls=InOrder)
@store_options
def access() -> None:
    """Who may use the API and the console: users and tokens."""


@access.command()
@json_option
@store_options
@pass_session
def users(session: Session, as_json: bool) -> None:
    """Show every user."""
    accounts = accounts_of(session)
    found = accounts.users()
    if as_json:
        document({"items": found})
    elif found:
        table(_USERS, [_user_row(user, accounts.now()) for user in found])
    else:
        note("there are no users; whoever is on the machine of the server may do everything")


@access.command("show-user")
@click.argument("name")
@json_option
@store_options
@pass_session
def show_user(session: Session, name: str, as_json: bool) -> None:
    """Show one user."""
    found = session.api.get(f"/access/users/{part(name)}")
    if as_json:
        document(found)
        return
    facts([
        ("name", found["name"]),
        ("role", found["role"]),
        ("state", "disabled" if found["is_disabled"] else "can sign in"),
        ("password of", stamp(_time(found["password_changed_at"]))),
        ("made", stamp(_time(found["created_at"]))),
        ("by", found["created_by"]),
    ])  # fmt: skip


@access.command()
@json_option
@store_options
@pass_session
def roles(session: Session, as_json: bool) -> None:
    """Show what each role may do."""
    found = session.api.get("/access/roles")
    if as_json:
        document(found)
        return
    rights = {resource: [f"{resource}:{act}" for act in found["acts"]] for resource in found["resources"]}
    acts = {role: {resource: _acts(granted, rights[resource]) for resource in rights}
            for role, granted in found["roles"].items()}  # fmt: skip
    columns = (Column("resource"), *(Column(role, gives=True) for role in acts))
    table(columns, [(resource, *(acts[role][resource] for role in acts)) for resource in rights])


@access.command("add-user")
@click.argument("name")
@click.option("--role", type=_role, required=True, help="What they may do: look, also operate, or everything.")
@_stdin
@by_option
@json_option
@store_options
@pass_session
def add_user(session: Session, name: str, role: str, password_stdin: bool, by: str, as_json: bool) -> None:
    """Add a person who can sign in. The password is asked for, or read with --password-stdin."""
    accounts = accounts_of(session)
    made = accounts.add_user(name, _password(password_stdin), role, by)
    _tell(made, f"{name} can sign in, as {role}", as_json)


@access.command("set-password")
@click.argument("name")
@_stdin
@by_option
@json_option
@store_options
@pass_session
def set_password(session: Session, name: str, password_stdin: bool, by: str, as_json: bool) -> None:
    """Give a user another password, and end their sessions."""
    changed = accounts_of(session).set_password(name, _password(password_stdin), by)
    _tell(changed, f"{name} has another password, and has to sign in again", as_json)


@access.command("set-role")
@click.argument("name")
@click.argument("role", type=_role)
@_force
@by_option
@json_option
@store_options
@pass_session
def set_role(session: Session, name: str, role: str, force: bool, by: str, as_json: bool) -> None:
    """Give a user another role, and end their sessions."""
    _tell(accounts_of(session).set_role(name, role, force, by), f"{name} is {role} now", as_json)


@access.command()
@click.argument("name")
@_force
@by_option
@json_option
@store_options
@pass_session
def disable(session: Session, name: str, force: bool, by: str, as_json: bool) -> None:
    """Let a user sign in no more, and end their sessions. Tokens that they made go on, and are named."""
    gone = accounts_of(session).disable(name, force, by)
    _tell(gone, f"{name} can sign in no more", as_json)
    _warn_of_tokens(gone)


@access.command()
@click.argument("name")
@by_option
@json_option
@store_options
@pass_session
def enable(session: Session, name: str, by: str, as_json: bool) -> None:
    """Let a user sign in again."""
    _tell(accounts_of(session).enable(name, by), f"{name} can sign in again", as_json)


@access.command("remove-user")
@click.argument("name")
@_force
@by_option
@json_option
@store_options
@pass_session
def remove_user(session: Session, name: str, force: bool, by: str, as_json: bool) -> None:
    """Take a user away. Tokens that they made go on, and are named."""
    gone = accounts_of(session).remove_user(name, force, by)
    _tell(gone, f"{name} is no user any more", as_json)
    _warn_of_tokens(gone)


@access.command()
@json_option
@store_options
@pass_session
def tokens(session: Session, as_json: bool) -> None:
    """Show every token, the newest first, also those that have ended."""
    accounts = accounts_of(session)
    found = accounts.tokens()
    if as_json:
        document({"items": found})
    elif found:
        table(_TOKENS, [_token_row(token, accounts.now()) for token in found])
    else:
        note("there are no tokens")


@access.command("create-token")
@click.argument("name")
@click.option("--role", type=_role, help="What it may do: as a user of that role.")
@click.option(
    "--scope", "scopes", multiple=True, metavar="RESOURCE:ACT",
    help=f"Or one thing that it may do, any number of times. Resources: {', '.join(RESOURCES)}, or *. "
    f"Acts: {', '.join(ACTS)}, or *.",
)  # fmt: skip
@click.option(
    "--expires", type=LIFE_TYPE, default=f"{LIFE.days}d", show_default=True, metavar="LENGTH",
    help="When it ends: 12h, 30d, or never.",
)  # fmt: skip
@by_option
@json_option
@store_options
@pass_session
def create_token(
    session: Session,
    name: str,
    role: str | None,
    scopes: tuple[str, ...],
    expires: timedelta | None,
    by: str,
    as_json: bool,
) -> None:
    """Make a token for a program. It is printed this once, and kept nowhere."""
    if (role is None) == (not scopes):
        raise WrongUsage("give --role, or --scope as often as needed, for instance --scope 'letters:*'")
    made = accounts_of(session).create_token(name, list(scopes) or None, role, expires, by)
    if as_json:
        document(made)
        return
    say(made["secret"])
    note("this is the only time that it is shown; HOLDFAST_TOKEN, or Authorization: Bearer, takes it")


@access.command("revoke-token")
@click.argument("id")
@by_option
@json_option
@store_options
@pass_session
def revoke_token(session: Session, id: str, by: str, as_json: bool) -> None:
    """End a token, for good and at once."""
    _tell(accounts_of(session).revoke_token(id, by), f"{id} opens nothing any more", as_json)


def _password(from_stdin: bool) -> str:
    """Never an option: those are seen by everybody who can list processes, and stay in the shell's history."""
    if from_stdin:
        return sys.stdin.read().removesuffix("\n").removesuffix("\r")
    if not sys.stdin.isatty():
        raise WrongUsage("nobody is here to type a password; give it on standard input: --password-stdin")
    typed: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return typed


def _acts(granted: list[str], of_resource: list[str]) -> str:
    return " ".join(right.partition(":")[2] for right in of_resource if right in granted)


def _tell(shown: dict[str, Any], what: str, as_json: bool) -> None:
    if as_json:
        document(shown)
    else:
        say(what)


def _warn_of_tokens(gone: dict[str, Any]) -> None:
    if gone["live_tokens"]:
        note(f"tokens that they made still work: {', '.join(gone['live_tokens'])}; see: holdfast access tokens")


def _user_row(user: dict[str, Any], now: datetime) -> tuple[Any, ...]:
    return (
        user["name"], user["role"], "disabled" if user["is_disabled"] else "",
        f"{ago(_time(user['password_changed_at']), now)} old", ago(_time(user["created_at"]), now), user["created_by"],
    )  # fmt: skip


def _token_row(token: dict[str, Any], now: datetime) -> tuple[Any, ...]:
    ends = _time(token["expires_at"])
    state = "active" if token["is_live"] else "expired" if token["revoked_at"] is None else "revoked"
    return (
        token["id"], token["name"], " ".join(token["scopes"]), state,
        (NEVER if ends is None else until(ends, now)) if token["is_live"] else "",
        ago(_time(token["last_used_at"]), now), token["created_by"],
    )  # fmt: skip


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
