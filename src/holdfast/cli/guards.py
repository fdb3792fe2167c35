"""`holdfast guards`: what the guards of a program are made of, what their calls came to, and why they refuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from holdfast.cli.answers import Document, after_option, limit_option, listed, moment, numbers, seconds
from holdfast.cli.api import part
from holdfast.cli.confirm import counted
from holdfast.cli.filters import json_option
from holdfast.cli.output import Column, document, facts, heading, table
from holdfast.cli.session import InOrder, Session, pass_session, store_options
from holdfast.cli.times import stamp

_GUARDS: Final = (
    Column("name", gives=True), Column("breaker"), Column("layers", gives=True, optional=True),
    Column("worst case", right=True), Column("calls", right=True), Column("p99", right=True, optional=True),
    Column("letters", right=True), Column("note", gives=True),
)  # fmt: skip
_LAYERS: Final = (Column("layer"), Column("policy", gives=True), Column("now", gives=True))
_REFUSALS: Final = (
    Column("by", gives=True), Column("reason"), Column("times", right=True), Column("last"),
    Column("why", gives=True),
)  # fmt: skip
NOTHING: Final = "no guard is here: they live in the program; give its --app, or --url http://… of its server"


@click.group(cls=InOrder)
@store_options
def guards() -> None:
    """Guards: what they are made of, what their calls came to, why they refuse.

    They live in processes. A server shows those of its own, with what it has counted since it began; with --app those
    of the program are shown as they are before the first call.
    """


@guards.command("list")
@click.option("--search", metavar="TEXT", help="A part of the name.")
@limit_option
@after_option
@json_option
@store_options
@pass_session
def list_guards(session: Session, search: str | None, limit: int, after: str | None, as_json: bool) -> None:
    """Show guards, by name."""
    listed(session.api.pages("/guards", limit, after, search=search), _GUARDS, _row, as_json, nothing=NOTHING)


@guards.command()
@click.argument("name")
@json_option
@store_options
@pass_session
def show(session: Session, name: str, as_json: bool) -> None:
    """Show one guard: its layers, its breaker, and why it refuses calls."""
    found = session.api.get(f"/guards/{part(name)}")
    if as_json:
        document(found)
        return
    facts(_facts(found))
    heading("layers, outermost first")
    table(_LAYERS, [(one["kind"], one["line"], _numbers(one["numbers"])) for one in found["layers"]])
    if found["refusing"]:
        heading("a call would be refused now")
        facts((one["reason"], one["summary"]) for one in found["refusing"])
    if found["refusals"]:
        heading(f"refused since {stamp(moment(found['since']))}")
        table(_REFUSALS, [_refusal_row(one) for one in found["refusals"]])


def _row(one: Document) -> Sequence[Any]:
    circuit, latency = one["circuit"], one["latency"]
    said = [*(refusal["summary"] for refusal in one["refusing"]), *one["warnings"]]
    return (
        one["name"], "" if circuit is None else circuit["state"], " ".join(one["order"]), _worst(one),
        sum(one["outcomes"].values()) or "", "" if latency is None else seconds(latency["p99"]),
        "" if one["letters"] is None else one["letters"], said[0] if said else "",
    )  # fmt: skip


def _facts(one: Document) -> list[tuple[str, Any]]:
    circuit, latency = one["circuit"], one["latency"]
    told = []
    if circuit is not None:
        held = "" if circuit["control"] == "auto" else f", held: {circuit['control']}"
        told = [
            ("breaker", circuit["state"]),
            ("", f"{circuit['name']}{' (shared)' if circuit['shared'] else ''}{held}"),
            ("opens by", circuit["opens_by"]),
            ("tried in", seconds(circuit["remaining_open"])),
            ("opened by", circuit["opened_by"]),
        ]
    if latency is not None:
        shown = ", ".join(f"{name} {seconds(latency[name])}" for name in ("p50", "p90", "p99", "longest"))
        told.append(("latency", f"{shown} of {latency['calls']} calls"))
    kept = numbers(one["letters_by_status"]) or "none" if one["keeps_letters"] else ""
    return [
        ("name", one["name"]),
        ("worst case", _worst(one)),
        *((name or "circuit", value) for name, value in told),
        ("calls", numbers(one["outcomes"])),
        ("domain", one["domain"]),
        ("letters", kept),
        ("warnings", "\n".join(one["warnings"])),
    ]


def _worst(one: Document) -> str:
    calls = "any number of calls" if one["max_calls"] is None else counted(int(one["max_calls"]), "call")
    long = "without end" if one["max_seconds"] is None else seconds(one["max_seconds"])
    return f"{calls}, {long}"


def _numbers(found: Document) -> str:
    return ", ".join(f"{name} {value}" for name, value in found.items() if value not in (None, "", {}, []))


def _refusal_row(one: Document) -> Sequence[Any]:
    why = "" if one["explained"] is None else one["explained"]["summary"]
    return one["by"], one["reason"], one["count"], stamp(moment(one["last_at"])), why
