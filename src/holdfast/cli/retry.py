"""`holdfast retry`: the retry policy of a rotator, the breakers of its endpoints, and what its attempts came to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from holdfast.cli.answers import (
    Document,
    listed,
    may_reason_option,
    moment,
    numbers,
    percent,
    seconds,
    server_only,
)
from holdfast.cli.api import part
from holdfast.cli.exits import WrongUsage
from holdfast.cli.filters import json_option
from holdfast.cli.output import Column, document, facts, say
from holdfast.cli.session import InOrder, Session, pass_session, store_options
from holdfast.cli.times import stamp
from holdfast.core.backoff import BackoffStrategy

_BREAKERS: Final = (
    Column("endpoint", gives=True), Column("state"), Column("failures", right=True), Column("opens at", right=True),
    Column("window", right=True, optional=True), Column("next test"), Column("since", optional=True),
)  # fmt: skip
_MOVES: Final = (
    Column("at"), Column("endpoint", gives=True), Column("from"), Column("to"), Column("failures", right=True),
)  # fmt: skip
_HOURS: Final = (
    Column("hour"), Column("requests", right=True), Column("attempts", right=True), Column("extra", right=True),
    Column("good", right=True), Column("latency", right=True),
)  # fmt: skip
_ENDPOINTS: Final = (
    Column("endpoint", gives=True), Column("attempts", right=True), Column("good", right=True),
    Column("failed", right=True), Column("latency", right=True), Column("opened", right=True),
)  # fmt: skip
_LIVE: Final = "rotators and their policies live"


def _asks(command: Callable[..., Any]) -> Callable[..., Any]:
    """Which rotator, and how it is told."""
    pool = click.option("--pool", metavar="NAME", help="Which rotator; the first one by default.")
    return pool(json_option(store_options(pass_session(command))))


def _over_hours(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same, over so many hours."""
    hours = click.option(
        "--hours", type=click.IntRange(1, 168), default=24, show_default=True, metavar="N",
        help="The last so many hours.",
    )  # fmt: skip
    return hours(_asks(command))


@click.group(cls=InOrder)
@store_options
def retry() -> None:
    """Retry policies of rotators: see and change them, and what attempts came to.

    They live in processes: a policy is changed in that of the server which is asked, for its new requests.
    """


@retry.command()
@_asks
def policy(session: Session, pool: str | None, as_json: bool) -> None:
    """Show the policy in force."""
    _show_policy(session.api.get("/retry/policy", pool=pool), as_json)


@retry.command("set")
@click.option("--max-attempts", type=int, metavar="N")
@click.option("--backoff", "backoff_strategy", type=click.Choice([str(one.value) for one in BackoffStrategy]))
@click.option("--base-delay", type=float, metavar="SECONDS")
@click.option("--multiplier", type=float, metavar="FACTOR")
@click.option("--max-delay", "max_backoff_delay", type=float, metavar="SECONDS")
@click.option("--jitter/--no-jitter", default=None)
@click.option("--status", "retry_status_codes", type=int, multiple=True, metavar="CODE",
              help="A status that is tried again; can be given again, and replaces those that were.")  # fmt: skip
@click.option("--timeout", type=float, metavar="SECONDS", help="Of a request with all its attempts.")
@click.option("--no-timeout", is_flag=True, help="Let a request take as long as it takes.")
@click.option("--retry-non-idempotent/--no-retry-non-idempotent", default=None, help="Whether POST is tried again.")
@click.option("--version", type=int, metavar="N", help="Only if this version is in force; `retry policy` shows it.")
@may_reason_option
@_asks
def change(
    session: Session,
    /,
    pool: str | None,
    timeout: float | None,
    no_timeout: bool,
    version: int | None,
    reason: str,
    as_json: bool,
    **wanted: Any,
) -> None:
    """Change the policy of new requests. What is not named stays."""
    if timeout is not None and no_timeout:
        raise WrongUsage("give --timeout or --no-timeout, not both")
    changes = {name: list(value) if isinstance(value, tuple) else value for name, value in wanted.items()}
    changes = {name: value for name, value in changes.items() if value not in (None, [])}
    if timeout is not None or no_timeout:
        changes["timeout"] = timeout
    if not changes:
        raise WrongUsage("say what to change, for instance --max-attempts 5")
    server_only(session, _LIVE)
    after = session.api.put("/retry/policy", {**changes, "reason": reason}, pool=pool, version=version)
    _show_policy(after, as_json)


@retry.command()
@_asks
def breakers(session: Session, pool: str | None, as_json: bool) -> None:
    """Show the breakers of all endpoints that have been used."""
    found = session.api.get("/circuit-breakers", pool=pool)
    listed(found, _BREAKERS, _breaker_row, as_json, nothing="no endpoint was used yet", items="circuit_breakers")


@retry.command()
@click.argument("endpoint")
@_asks
def breaker(session: Session, endpoint: str, pool: str | None, as_json: bool) -> None:
    """Show the breaker of one ENDPOINT."""
    _show_breaker(session.api.get(f"/circuit-breakers/{part(endpoint)}", pool=pool), as_json)


@retry.command()
@click.argument("endpoint")
@may_reason_option
@_asks
def reset(session: Session, endpoint: str, pool: str | None, reason: str, as_json: bool) -> None:
    """Close the breaker of ENDPOINT and forget its failures; ten times a minute at most."""
    server_only(session, _LIVE)
    after = session.api.post(f"/circuit-breakers/{part(endpoint)}/reset", {"reason": reason}, pool=pool)
    document(after) if as_json else say(f"{endpoint} is closed, in the process that was asked")


@retry.command()
@_over_hours
def moves(session: Session, hours: int, pool: str | None, as_json: bool) -> None:
    """Show how breakers of endpoints moved, the oldest first."""
    found = session.api.get("/circuit-breakers/metrics", hours=hours, pool=pool)
    listed(found, _MOVES, _move_row, as_json, nothing=_nothing(found, "no breaker moved"), items="events")


@retry.command()
@_asks
def metrics(session: Session, pool: str | None, as_json: bool) -> None:
    """Show what attempts came to, all together."""
    found = session.api.get("/metrics/retries", pool=pool)
    if as_json:
        document(found)
        return
    facts([
        ("requests", str(found["total_requests"])),
        ("attempts", f"{found['total_retries']}, of which {found['extra_attempts']} were further ones"),
        ("succeeded at", numbers({f"at attempt {at}": n for at, n in found["success_by_attempt"].items()})),
        ("breakers moved", f"{found['circuit_breaker_events_count']} times"),
        ("kept for", f"{found['retention_hours']} hours"),
    ])  # fmt: skip


@retry.command()
@_over_hours
def hourly(session: Session, hours: int, pool: str | None, as_json: bool) -> None:
    """Show attempts by the hour, the oldest first."""
    found = session.api.get("/metrics/retries/timeseries", hours=hours, pool=pool)
    listed(found, _HOURS, _hour_row, as_json, nothing=_nothing(found, "nothing was asked for"), items="data_points")


@retry.command()
@_over_hours
def endpoints(session: Session, hours: int, pool: str | None, as_json: bool) -> None:
    """Show attempts by endpoint."""
    found = session.api.get("/metrics/retries/by-proxy", hours=hours, pool=pool)
    if as_json:
        document(found)
        return
    rows = [{"id": id, **one} for id, one in sorted(found["proxies"].items())]
    listed({"items": rows}, _ENDPOINTS, _endpoint_row, False, nothing=_nothing(found, "nothing was asked for"))


def _show_policy(found: Document, as_json: bool) -> None:
    if as_json:
        document(found)
        return
    facts([
        ("max attempts", str(found["max_attempts"])),
        ("backoff", found["backoff_strategy"]),
        ("base delay", seconds(found["base_delay"])),
        ("multiplier", f"{found['multiplier']:g}"),
        ("max delay", seconds(found["max_backoff_delay"])),
        ("jitter", _yes(found["jitter"])),
        ("statuses", ", ".join(map(str, found["retry_status_codes"]))),
        ("timeout", seconds(found["timeout"]) or "none"),
        ("non-idempotent", _yes(found["retry_non_idempotent"])),
        ("version", str(found["version"])),
        ("since", stamp(moment(found["updated_at"]))),
    ])  # fmt: skip


def _show_breaker(found: Document, as_json: bool) -> None:
    if as_json:
        document(found)
        return
    facts([
        ("endpoint", found["proxy_id"]),
        ("state", found["state"]),
        ("failures", f"{found['failure_count']} of {found['failure_threshold']}"),
        ("window", seconds(found["window_duration"])),
        ("open for", seconds(found["timeout_duration"])),
        ("next test", stamp(moment(found["next_test_time"]))),
        ("since", stamp(moment(found["last_state_change"]))),
    ])  # fmt: skip


def _breaker_row(one: Document) -> tuple[Any, ...]:
    return (
        one["proxy_id"], one["state"], one["failure_count"], one["failure_threshold"], seconds(one["window_duration"]),
        stamp(moment(one["next_test_time"])), stamp(moment(one["last_state_change"])),
    )  # fmt: skip


def _move_row(one: Document) -> tuple[Any, ...]:
    at = stamp(moment(one["timestamp"]))
    return at, one["proxy_id"], one["from_state"], one["to_state"], one["failure_count"]


def _hour_row(one: Document) -> tuple[Any, ...]:
    return (
        stamp(moment(one["timestamp"])), one["total_requests"], one["total_retries"], one["extra_attempts"],
        percent(one["success_rate"]), seconds(one["avg_latency"]),
    )  # fmt: skip


def _endpoint_row(one: Document) -> tuple[Any, ...]:
    return (
        one["id"], one["total_attempts"], one["success_count"], one["failure_count"], seconds(one["avg_latency"]),
        one["circuit_breaker_opens"],
    )  # fmt: skip


def _nothing(found: Document, what: str) -> str:
    return f"{what} since {stamp(moment(found['covered_from']))}"


def _yes(value: bool) -> str:
    return "yes" if value else "no"
