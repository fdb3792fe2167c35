"""`holdfast server`: what only a server can be asked: how it is, whom it takes one for, what has happened there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from holdfast.cli.answers import Document, listed, moment
from holdfast.cli.exits import WrongUsage
from holdfast.cli.filters import json_option
from holdfast.cli.output import Column, document, facts, note, say, table
from holdfast.cli.remote import Remote
from holdfast.cli.session import InOrder, Session, pass_session, store_options
from holdfast.cli.times import stamp

_EVENTS: Final = (Column("at"), Column("event"), Column("on", gives=True), Column("facts", gives=True))
_CURVES: Final = (
    Column("figure"), Column("first", right=True), Column("least", right=True), Column("most", right=True),
    Column("last", right=True),
)  # fmt: skip
_AROUND: Final = frozenset({"number", "at", "event", "severity", "operation_key"})


@click.group(cls=InOrder)
@store_options
def server() -> None:
    """A server: how it is, whom it takes you for, what has just happened there.

    Give its address: --url http://127.0.0.1:8400. To run one: holdfast serve.
    """


@server.command()
@json_option
@store_options
@pass_session
def status(session: Session, as_json: bool) -> None:
    """Show what the server is, and what it works on."""
    found = _server(session).get("/status")
    if as_json:
        document(found)
        return
    facts([
        ("version", found["version"]),
        ("store", found["store"]),
        ("program", "yes" if found["has_program"] else "none: serve with --app"),
        ("outbox", "yes" if found["has_outbox"] else "none: it needs a SQL database"),
        ("acts are in", "the audit trail" if found["audited"] == "trail" else "the log holdfast.audit"),
        ("started", stamp(moment(found["started_at"]))),
        ("now", stamp(moment(found["now"]))),
    ])  # fmt: skip


@server.command()
@json_option
@store_options
@pass_session
def ready(session: Session, as_json: bool) -> None:
    """Say whether the server and its store answer; exit code 4 if not. Needs no token."""
    found = _server(session).get("/ready")
    document(found) if as_json else say(f"{session.where()} is {found['status']}")


@server.command()
@json_option
@store_options
@pass_session
def whoami(session: Session, as_json: bool) -> None:
    """Show whom the server takes you for, and what you may do."""
    found = _server(session).get("/session")
    shown = {name: value for name, value in found.items() if name != "csrf"}
    if as_json:
        document(shown)
        return
    facts([
        ("name", shown["name"] or "nobody"),
        ("by", shown["via"]),
        ("until", stamp(moment(shown["expires_at"]))),
        ("rights", "\n".join(shown["rights"]) or "none"),
    ])  # fmt: skip


@server.command()
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, metavar="N")
@json_option
@store_options
@pass_session
def events(session: Session, limit: int, as_json: bool) -> None:
    """Show what has just happened in the server's process, the newest first."""
    found = _server(session).get("/events/recent", limit=limit)
    listed(found, _EVENTS, _event_row, as_json, nothing="nothing has happened yet")


@server.command()
@click.option("--minutes", type=click.IntRange(1), default=60, show_default=True, metavar="N")
@json_option
@store_options
@pass_session
def series(session: Session, minutes: int, as_json: bool) -> None:
    """Show how figures were over the last minutes, since the server began; --json has every value."""
    found = _server(session).get("/overview/series", minutes=minutes)
    if as_json:
        document(found)
        return
    table(_CURVES, [row for name, values in sorted(found["series"].items()) if (row := _curve(name, values))])
    if found["away_since"] is not None:
        note(f"the store is away since {stamp(moment(found['away_since']))}: {found['away']}")


@server.command()
@store_options
@pass_session
def openapi(session: Session) -> None:
    """Print the OpenAPI document: what can be asked, and which right it needs."""
    document(_server(session).get("/openapi.json"))


def _server(session: Session) -> Remote:
    remote = session.remote
    if remote is None:
        raise WrongUsage("this asks a server: give its address, --url http://127.0.0.1:8400 (or HOLDFAST_URL)")
    return remote


def _event_row(one: Document) -> Sequence[Any]:
    told = {name: value for name, value in one.items() if name not in _AROUND and value not in (None, "", {})}
    said = ", ".join(f"{name} {value}" for name, value in told.items())
    return stamp(moment(one.get("at"))), one["event"], one.get("operation_key"), said


def _curve(name: str, values: Sequence[float | None]) -> Sequence[Any] | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    return name, *(f"{value:g}" for value in (known[0], min(known), max(known), known[-1]))
