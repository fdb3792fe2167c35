"""`holdfast breakers`: see and control the circuit breakers that processes share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TypeVar

import click

from holdfast.breakers.control import LONGEST_PIN_MINUTES, PIN_MINUTES, BreakerControl
from holdfast.breakers.data import CircuitBreakerStateData
from holdfast.cli.exits import NotFound
from holdfast.cli.filters import by_option, json_option
from holdfast.cli.output import Column, document, facts, note, say, table
from holdfast.cli.session import Session, pass_session, store_options
from holdfast.cli.times import ago, stamp, until
from holdfast.views.breakers import breaker_document
from holdfast.views.plain import masked, plain

F = TypeVar("F", bound=Callable[..., Any])
_BREAKERS: Final = (
    Column("name", gives=True), Column("state"), Column("failures", right=True), Column("open for", right=True),
    Column("pinned"), Column("by", gives=True), Column("reason", gives=True),
)  # fmt: skip

_ttl: Final = click.option(
    "--ttl", "minutes", type=click.IntRange(1, LONGEST_PIN_MINUTES), default=PIN_MINUTES, show_default=True,
    metavar="MINUTES", help="The breaker is left to itself again after so long.",
)  # fmt: skip
_reason: Final = click.option("--reason", required=True, metavar="TEXT", help="Why; others will want to know.")


@click.group()
@store_options
def breakers() -> None:
    """Shared circuit breakers: see and control them."""


@breakers.command("list")
@click.option("--open", "only_open", is_flag=True, help="Only open ones, the longest open first.")
@json_option
@store_options
@pass_session
def list_breakers(session: Session, only_open: bool, as_json: bool) -> None:
    """Show every breaker of the store."""
    states = session.breakers
    found = states.get_open_states() if only_open else states.get_all_states()
    now = session.now()
    if as_json:
        document({"items": [breaker_document(state, now) for state in found]})
    elif found:
        table(_BREAKERS, [_row(state, now) for state in found])
    else:
        note("no breaker is open" if only_open else "no breaker is stored yet")


@breakers.command()
@click.argument("name")
@json_option
@store_options
@pass_session
def show(session: Session, name: str, as_json: bool) -> None:
    """Show one breaker."""
    _show(session, _find(session, name), as_json)


@breakers.command("force-open")
@click.argument("name")
@_ttl
@_reason
@by_option
@json_option
@store_options
@pass_session
def force_open(session: Session, name: str, minutes: int, reason: str, by: str, as_json: bool) -> None:
    """Hold a breaker open: every process refuses its calls."""
    _control(session).force_open(name, reason, by, minutes)
    _tell(session, name, f"is held open for {minutes} min", as_json)


@breakers.command("force-close")
@click.argument("name")
@_ttl
@_reason
@by_option
@json_option
@store_options
@pass_session
def force_close(session: Session, name: str, minutes: int, reason: str, by: str, as_json: bool) -> None:
    """Hold a breaker closed: it lets every call through and never trips."""
    _control(session).force_close(name, reason, by, minutes)
    _tell(session, name, f"is held closed for {minutes} min", as_json)


@breakers.command()
@click.argument("name")
@click.option("--reason", default="", metavar="TEXT")
@by_option
@json_option
@store_options
@pass_session
def reset(session: Session, name: str, reason: str, by: str, as_json: bool) -> None:
    """Close a breaker and forget its counts and its pin."""
    if not _control(session).reset(name, reason, by):
        raise _missing(name)
    _tell(session, name, "is closed, and its counts are 0", as_json)


@breakers.command()
@click.argument("name")
@json_option
@store_options
@pass_session
def clear(session: Session, name: str, as_json: bool) -> None:
    """Leave a pinned breaker to itself; its state stays what it is."""
    if not _control(session).clear(name):
        raise _missing(name)
    _tell(session, name, "is left to itself", as_json)


def _control(session: Session) -> BreakerControl:
    hold = session.hold()
    return BreakerControl(hold.breakers, hold.telemetry)


def _find(session: Session, name: str) -> CircuitBreakerStateData:
    state = session.breakers.get_by_service_name(name)
    if state is None:
        raise _missing(name)
    return state


def _missing(name: str) -> NotFound:
    return NotFound(f"there is no breaker {name!r} in the store; `holdfast breakers list` shows them")


def _tell(session: Session, name: str, what: str, as_json: bool) -> None:
    if as_json:
        _show(session, _find(session, name), as_json)
    else:
        say(f"{name} {what}, in every process on {session.hold().store.url}")


def _show(session: Session, state: CircuitBreakerStateData, as_json: bool) -> None:
    now = session.now()
    if as_json:
        document(breaker_document(state, now))
        return
    pinned = state.pin_active(now)
    ends = state.manual_override_expires_at
    facts([
        ("name", state.service_name),
        ("state", state.state),
        ("pinned", ("until cleared" if ends is None else f"until {stamp(ends)}") if pinned else "no"),
        ("by", None if state.controlled_by_id is None else str(state.controlled_by_id)),
        ("reason", state.control_reason),
        ("failures", str(state.failure_count)),
        ("successes", str(state.success_count)),
        ("opened", stamp(state.opened_at)),
        ("last failure", stamp(state.last_failure_at)),
        ("half-open trials", str(state.half_open_request_count) if state.is_half_open else ""),
        ("generation", str(state.generation)),
        ("metadata", masked(plain(state.metadata))),
        ("updated", stamp(state.updated_at)),
    ])  # fmt: skip


def _row(state: CircuitBreakerStateData, now: datetime) -> tuple[Any, ...]:
    pinned = state.pin_active(now)
    ends = state.manual_override_expires_at
    return (
        state.service_name,
        state.state,
        state.failure_count,
        ago(state.opened_at, now),
        ("until cleared" if ends is None else f"{until(ends, now)} left") if pinned else "",
        state.controlled_by_id if pinned else "",
        state.control_reason,
    )
