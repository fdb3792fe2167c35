"""Endpoint pools of this process: who is in them, how each does, and taking one out of use for a while."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import Path, Request
from pydantic import BaseModel

from holdfast.server.problems import not_found, refused
from holdfast.server.routing import Asked, Asking, Routes
from holdfast.server.shapes import MayReason, Reasoned
from holdfast.views.pools import Pool, endpoints_of, pool_document

routes: Final = Routes("pools")
Name = Annotated[str, Path(min_length=1, max_length=1000, description="A pool's name, which may hold slashes.")]
EndpointId = Annotated[str, Path(min_length=1, max_length=1000, description="An endpoint's id in the pool.")]


class Member(BaseModel):
    """An endpoint. Statistics are of its last 100 calls, None before any. `control` is `isolated` while it is drained.

    `retry_after` is in how many seconds it may be tried again, None where nobody knows.
    """

    id: str
    region: str | None
    weight: float
    state: str
    control: str
    available: bool
    retry_after: float | None
    next_test_at: datetime | None
    failure_count: int
    last_state_change: datetime | None
    last_error: str | None
    in_flight: int
    calls: int
    success_rate: float | None
    latency: float | None
    score: float


class PoolShown(BaseModel):
    """A pool. `choose` is how an endpoint is picked; `available` is how many may be called now."""

    name: str
    is_rotator: bool
    choose: str
    region: str | None
    opens_by: str
    available: int
    in_flight: int
    members: list[Member]


class Pools(BaseModel):
    """The pools of this process, by name."""

    items: list[PoolShown]
    has_program: bool


@routes.reads(response_model=Pools)
def find(asked: Asking, request: Request) -> Any:
    """The pools that the program has named with `hold.add_pool`."""
    shown = [pool_document(name, pool) for name, pool in sorted(asked.hold.pools.items())]
    return {"items": shown, "has_program": request.app.state.has_program}


@routes.reads("/{name:path}", response_model=PoolShown)
def show(asked: Asking, name: Name) -> Any:
    """One pool with its endpoints."""
    return pool_document(name, find_pool(asked, name))


@routes.acts("/{name:path}/members/{endpoint:path}/drain", response_model=PoolShown)
def drain(asked: Asking, name: Name, endpoint: EndpointId, body: Reasoned) -> Any:
    """Send an endpoint no more calls, in this process, until it is enabled. Calls under way finish."""
    return _told(asked, name, endpoint, "isolate")


@routes.acts("/{name:path}/members/{endpoint:path}/enable", response_model=PoolShown)
def enable(asked: Asking, name: Name, endpoint: EndpointId, body: MayReason) -> Any:
    """Give a drained endpoint calls again: its breaker is closed, and decides by itself."""
    pool = find_pool(asked, name)
    circuit = endpoints_of(pool).circuits().get(endpoint)
    if circuit is not None and circuit.control.value == "auto":
        raise refused("not_drained", f"{endpoint} is not drained: its breaker decides by itself; reset it to close it")
    return _told(asked, name, endpoint, "enable")


@routes.acts("/{name:path}/members/{endpoint:path}/reset", response_model=PoolShown)
def reset(asked: Asking, name: Name, endpoint: EndpointId, body: MayReason) -> Any:
    """Close an endpoint's breaker and forget its failures; one that was drained gets calls again."""
    return _told(asked, name, endpoint, "reset")


def find_pool(asked: Asked, name: str) -> Pool:
    """The pool. Raises ProblemError."""
    pool = asked.hold.pools.get(name)
    if pool is None:
        raise not_found("pool", name)
    return pool


def _told(asked: Asked, name: str, endpoint: str, verb: str) -> dict[str, Any]:
    pool = find_pool(asked, name)
    try:
        circuit = endpoints_of(pool).circuit(endpoint)
    except KeyError:
        raise not_found("endpoint", endpoint) from None
    circuit.command(verb)
    return pool_document(name, pool)
