"""Deciding about single letters: looking into one, putting one back, deleting one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from holdfast.cli.answers import may_reason_option, reason_option
from holdfast.cli.api import Api, part
from holdfast.cli.confirm import agreed, counted, yes_option
from holdfast.cli.exits import NotFound
from holdfast.cli.filters import by_option, json_option
from holdfast.cli.output import Column, document, table
from holdfast.cli.replays import ids_argument
from holdfast.cli.session import Session, pass_session, store_options


@click.command()
@ids_argument
@may_reason_option
@by_option
@json_option
@store_options
@pass_session
def review(session: Session, ids: Sequence[str], reason: str, by: str, as_json: bool) -> None:
    """Look into letters: nobody replays them until they are resolved, rejected or reopened."""
    _decide(session.api, ids, "review", reason, as_json, lambda answer: answer["status"])


@click.command()
@ids_argument
@reason_option
@by_option
@json_option
@store_options
@pass_session
def reopen(session: Session, ids: Sequence[str], reason: str, by: str, as_json: bool) -> None:
    """Put letters back among what waits to be replayed."""
    _decide(session.api, ids, "reopen", reason, as_json, lambda answer: answer["status"])


@click.command()
@ids_argument
@reason_option
@yes_option
@by_option
@json_option
@store_options
@pass_session
def delete(session: Session, ids: Sequence[str], reason: str, yes: bool, by: str, as_json: bool) -> None:
    """Delete letters for good, whatever their status. Those that are being replayed are not."""
    wanted = ids if agreed(f"Delete {counted(len(ids))} for good?", yes=yes, dry_run=False) else ()
    _decide(session.api, wanted, "delete", reason, as_json, lambda answer: "deleted" if answer["changed"] else "gone")


def _decide(
    api: Api, ids: Sequence[str], act: str, reason: str, as_json: bool, status: Callable[[dict[str, Any]], str]
) -> None:
    """One after the other; those that are not there are told in the end. Raises NotFound."""
    done: dict[str, str] = {}
    missing: list[str] = []
    for id in dict.fromkeys(ids):
        try:
            done[id] = status(api.post(f"/letters/{part(id)}/{act}", {"reason": reason}))
        except NotFound:
            missing.append(id)
    if as_json:
        document({"changed": done, "not_found": missing})
    elif done:
        table((Column("id"), Column("status")), list(done.items()))
    if missing:
        raise NotFound(f"there is no letter {', '.join(missing)}")
