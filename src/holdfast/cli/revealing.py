"""`reveal`: what is kept as it was kept, without masks; with a reason, and into the audit trail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from holdfast.cli.answers import Document, reason_option
from holdfast.cli.api import part
from holdfast.cli.filters import by_option, json_option
from holdfast.cli.output import document, facts, heading, note
from holdfast.cli.session import Session, pass_session, store_options
from holdfast.views.letters import PAYLOADS

_ENTRY: Final = ("payload", "corrections", "result", "headers")


def _reveals(command: Any) -> Any:
    for option in (pass_session, store_options, json_option, by_option, reason_option):
        command = option(command)
    return command


@click.command("reveal")
@click.argument("id")
@_reveals
def reveal_letter(session: Session, id: str, reason: str, by: str, as_json: bool) -> None:
    """Show a letter as it was kept. What the program itself masked stays masked."""
    _show(_asked(session, f"/letters/{part(id)}", reason)["letter"], PAYLOADS, as_json)


@click.command("reveal")
@click.argument("id")
@_reveals
def reveal_entry(session: Session, id: str, reason: str, by: str, as_json: bool) -> None:
    """Show an entry as it was kept."""
    _show(_asked(session, f"/outbox/{part(id)}", reason)["entry"], _ENTRY, as_json)


@click.command("reveal")
@click.argument("id")
@_reveals
def reveal_saga(session: Session, id: str, reason: str, by: str, as_json: bool) -> None:
    """Show a saga as it was kept: its data, and what its steps gave."""
    found = _asked(session, f"/sagas/{part(id)}", reason)["saga"]
    results = {step["name"]: step["result"] for step in found["steps"] if step["result"] is not None}
    _show(found, ("data",), as_json, results=results)


@click.command("reveal")
@click.argument("id")
@click.option("--stage", metavar="NAME", help="Also what this stage got and left.")
@_reveals
def reveal_workflow(session: Session, id: str, stage: str | None, reason: str, by: str, as_json: bool) -> None:
    """Show the input of a workflow as it was kept. What the program itself masked stays masked."""
    found = _asked(session, f"/workflows/{part(id)}", reason, stage=stage)
    told = found["stage"] or {}
    _show(found, ("context", "trigger"), as_json, got=told.get("context"), left=told.get("outputs"))


@click.command("reveal")
@click.argument("id")
@_reveals
def reveal_dead(session: Session, id: str, reason: str, by: str, as_json: bool) -> None:
    """Show a dead item as it was kept."""
    _show(_asked(session, f"/workflows/dead/{part(id)}", reason), ("payload",), as_json)


@click.command("reveal")
@click.argument("name")
@_reveals
def reveal_schedule(session: Session, name: str, reason: str, by: str, as_json: bool) -> None:
    """Show the input of a schedule as it was kept."""
    _show(_asked(session, f"/schedules/{part(name)}", reason), ("args", "kwargs"), as_json)


def _asked(session: Session, path: str, reason: str, **body: Any) -> Document:
    found: Document = session.api.post(f"{path}/reveal", {"reason": reason, **body})
    return found


def _show(found: Document, names: Sequence[str], as_json: bool, **more: Any) -> None:
    if as_json:
        document(found)
        return
    shown = {name: value for name, value in {**{name: found[name] for name in names}, **more}.items() if value}
    if not shown:
        note("nothing is kept of it")
    for name, value in shown.items():
        heading(name.replace("_", " "))
        facts([(str(key), one) for key, one in value.items()] if isinstance(value, dict) else [("", value)])
