"""The guards of this process: what they are made of, what their calls came to, and why they refuse."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import Path, Query, Request
from pydantic import BaseModel

from holdfast.errors import HoldfastError
from holdfast.letters.held import HeldGuard
from holdfast.server.problems import not_found
from holdfast.server.routing import Asked, Asking, Routes
from holdfast.server.shapes import After, Limit
from holdfast.server.watch import Watch, watch_of, watching
from holdfast.views.guards import (
    circuit_document,
    circuit_of,
    composition_document,
    explain_reason,
    explanation_document,
    refusals_now,
)

routes: Final = Routes("guards")
routes.lifespan_context = watching
SHOWN_MINUTES: Final = 30
Name = Annotated[str, Path(min_length=1, max_length=1000, description="A guard's name, which may hold slashes.")]


class Explained(BaseModel):
    """Why a call is refused: the rule, the numbers of now, and when a call would pass."""

    reason: str
    summary: str
    rule: str | None
    passes: str | None
    retry_after: float | None
    cause: str | None
    numbers: dict[str, Any]


class GuardCircuit(BaseModel):
    """A guard's breaker as it stands in this process. `remaining_open` is None while closed, or held open."""

    name: str
    state: str
    control: str
    shared: bool
    opens_by: str
    remaining_open: float | None
    failure_count: int
    opened_by: str | None
    figures: dict[str, Any]


class GuardLatency(BaseModel):
    """Seconds, over the last `calls` calls that were not refused; at most 500 of them."""

    calls: int
    p50: float
    p90: float
    p99: float
    longest: float


class GuardMinutes(BaseModel):
    """What each of the last minutes saw, the oldest first, which began at `begins`. Refused calls never ran."""

    begins: datetime
    calls: list[int]
    failures: list[int]
    refused: list[int]


class GuardRow(BaseModel):
    """A guard at a glance. `max_calls` and `max_seconds` are the worst case of one call; None is without a limit.

    `letters` is how many dead letters its domain has, None where it keeps none or the store is away.
    """

    name: str
    order: list[str]
    max_calls: float | None
    max_seconds: float | None
    warnings: list[str]
    circuit: GuardCircuit | None
    refusing: list[Explained]
    outcomes: dict[str, int]
    latency: GuardLatency | None
    minutes: GuardMinutes
    keeps_letters: bool
    domain: str
    letters: int | None


class Guards(BaseModel):
    """The guards of this process, by name, with what was counted `since` the server began to look."""

    items: list[GuardRow]
    next: str | None = None
    since: datetime
    has_program: bool


class GuardLayer(BaseModel):
    """A policy around the call, and what its next decision rests on."""

    kind: str
    line: str
    numbers: dict[str, Any]


class GuardRefusals(BaseModel):
    """Refusals of one policy for one reason. `explained` has the numbers of now, not of the refusal."""

    by: str
    reason: str
    count: int
    last_at: datetime
    explained: Explained | None


class GuardShown(GuardRow):
    """A guard with its layers, outermost first, its refusals, and its dead letters by status."""

    layers: list[GuardLayer]
    refusals: list[GuardRefusals]
    letters_by_status: dict[str, int]
    since: datetime


@routes.reads(response_model=Guards)
def find(
    asked: Asking,
    request: Request,
    search: Annotated[str | None, Query(max_length=200, description="A part of the name.")] = None,
    limit: Limit = 100,
    after: After = None,
) -> Any:
    """The guards that this process has made, by name. A server without a program has none."""
    watch = watch_of(request)
    asked.hold.telemetry.flush()
    wanted = "" if search is None else search.casefold()
    named = sorted(asked.hold.guards.items())
    chosen = [
        one for one in named if wanted in one[0].casefold() and (after is None or one[0] > after)
    ][: limit + 1]  # fmt: skip
    kept = letters_by(asked)
    shown = [guard_row(guard, watch, kept) for _, guard in chosen[:limit]]
    return {
        "items": shown,
        "next": chosen[limit - 1][0] if len(chosen) > limit else None,
        "since": watch.figures.since,
        "has_program": request.app.state.has_program,
    }


@routes.reads("/{name:path}", response_model=GuardShown)
def show(asked: Asking, request: Request, name: Name) -> Any:
    """One guard: its layers, what its calls came to, and why it refuses them."""
    guard = asked.hold.guards.get(name)
    if guard is None:
        raise not_found("guard", name)
    watch = watch_of(request)
    asked.hold.telemetry.flush()
    kept = letters_by(asked, guard.domain)
    refusals = [
        {"by": one.name, "reason": one.reason, "count": one.number, "last_at": one.last_at,
         "explained": _explained(guard, one.name, one.reason)}
        for one in watch.figures.refusals(name)
    ]  # fmt: skip
    return {
        **guard_row(guard, watch, None if kept is None else {guard.domain: sum(kept.values())}),
        "layers": composition_document(guard)["layers"],
        "refusals": refusals,
        "letters_by_status": kept or {},
        "since": watch.figures.since,
    }


def guard_row(guard: HeldGuard, watch: Watch, kept: dict[str, int] | None) -> dict[str, Any]:
    """A guard at a glance; `kept` is how many letters there are by domain, None where nobody knows."""
    described, circuit, figures = guard.describe().as_dict(), circuit_of(guard), watch.figures
    latency, keeps = figures.latency(guard.name), guard.dead_letter is not None
    return {
        **described,
        "circuit": None if circuit is None else circuit_document(circuit),
        "refusing": [explanation_document(one) for one in refusals_now(guard)],
        "outcomes": figures.outcomes(guard.name),
        "latency": None if latency is None else latency._asdict(),
        "minutes": figures.minutes(guard.name, SHOWN_MINUTES)._asdict(),
        "keeps_letters": keeps,
        "domain": guard.domain,
        "letters": kept.get(guard.domain, 0) if keeps and kept is not None else None,
    }


def _explained(guard: HeldGuard, name: str, reason: str) -> dict[str, Any] | None:
    found = explain_reason(guard, name, reason)
    return None if found is None else explanation_document(found)


def letters_by(asked: Asked, domain: str | None = None) -> dict[str, int] | None:
    """Letters by domain, or those of one by status; None while the store is away, for guards go on without it."""
    try:
        counts = asked.hold.letters.get_facet_counts(domain=domain)
    except HoldfastError:
        return None
    return counts["by_domain" if domain is None else "by_status"]
