"""`holdfast pools`: endpoint pools, how their members do, and taking one out of use for a while."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from holdfast.cli.answers import (
    Document,
    listed,
    may_reason_option,
    percent,
    reason_option,
    seconds,
    server_only,
)
from holdfast.cli.api import part
from holdfast.cli.filters import json_option
from holdfast.cli.output import Column, document, facts, heading, say, table
from holdfast.cli.session import InOrder, Session, pass_session, store_options

_POOLS: Final = (
    Column("name", gives=True), Column("endpoints", right=True), Column("available", right=True),
    Column("in flight", right=True), Column("choose"), Column("opens by", gives=True, optional=True),
)  # fmt: skip
_MEMBERS: Final = (
    Column("endpoint", gives=True), Column("state"), Column("control"), Column("region", optional=True),
    Column("in flight", right=True, optional=True), Column("calls", right=True), Column("good", right=True),
    Column("latency", right=True), Column("again in", right=True, optional=True), Column("error", gives=True),
)  # fmt: skip
NOTHING: Final = "no pool is here: the program names its own with hold.add_pool; give its --app, or its server's --url"
_LIVE: Final = "endpoint pools live"


@click.group(cls=InOrder)
@store_options
def pools() -> None:
    """Endpoint pools: who is in them, how each does, taking one out of use.

    They live in processes: what is done to one is done to that of the server which is asked, and of no other.
    """


@pools.command("list")
@json_option
@store_options
@pass_session
def list_pools(session: Session, as_json: bool) -> None:
    """Show pools, by name."""
    listed(session.api.get("/pools"), _POOLS, _row, as_json, nothing=NOTHING)


@pools.command()
@click.argument("name")
@json_option
@store_options
@pass_session
def show(session: Session, name: str, as_json: bool) -> None:
    """Show one pool with its endpoints."""
    _show(session.api.get(f"/pools/{part(name)}"), as_json)


def _acts(command: Any) -> Any:
    for option in (pass_session, store_options, json_option, click.argument("endpoint"), click.argument("name")):
        command = option(command)
    return command


@pools.command()
@reason_option
@_acts
def drain(session: Session, name: str, endpoint: str, reason: str, as_json: bool) -> None:
    """Send ENDPOINT no more calls until it is enabled. Those under way finish."""
    _act(session, name, endpoint, "drain", "gets no more calls", reason, as_json)


@pools.command()
@may_reason_option
@_acts
def enable(session: Session, name: str, endpoint: str, reason: str, as_json: bool) -> None:
    """Give a drained ENDPOINT calls again."""
    _act(session, name, endpoint, "enable", "gets calls again", reason, as_json)


@pools.command()
@may_reason_option
@_acts
def reset(session: Session, name: str, endpoint: str, reason: str, as_json: bool) -> None:
    """Close the breaker of ENDPOINT and forget its failures."""
    _act(session, name, endpoint, "reset", "is closed, and its failures are forgotten", reason, as_json)


def _act(session: Session, name: str, endpoint: str, act: str, done: str, reason: str, as_json: bool) -> None:
    server_only(session, _LIVE)
    after = session.api.post(f"/pools/{part(name)}/members/{part(endpoint)}/{act}", {"reason": reason})
    document(after) if as_json else say(f"{endpoint} {done}, in the process that was asked")


def _show(found: Document, as_json: bool) -> None:
    if as_json:
        document(found)
        return
    facts([
        ("name", found["name"]),
        ("choose", found["choose"]),
        ("region", found["region"]),
        ("opens by", found["opens_by"]),
        ("available", f"{found['available']} of {len(found['members'])}"),
        ("in flight", str(found["in_flight"])),
        ("rotator", "yes; `holdfast retry` shows its policy" if found["is_rotator"] else ""),
    ])  # fmt: skip
    heading("endpoints")
    table(_MEMBERS, [_member_row(one) for one in found["members"]])


def _row(one: Document) -> Sequence[Any]:
    members = len(one["members"])
    return one["name"], members, one["available"], one["in_flight"], one["choose"], one["opens_by"]


def _member_row(one: Document) -> Sequence[Any]:
    return (
        one["id"], one["state"], "" if one["control"] == "auto" else one["control"], one["region"], one["in_flight"],
        one["calls"], percent(one["success_rate"]), seconds(one["latency"]), seconds(one["retry_after"]),
        one["last_error"],
    )  # fmt: skip
