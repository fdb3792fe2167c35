"""Endpoint pools: their members, and how each of them does."""

from __future__ import annotations

from typing import Any

from holdfast.core.redact import redact
from holdfast.failover.pool import EndpointPool
from holdfast.failover.rotation import ProxyRotator
from holdfast.views.plain import plain

Pool = EndpointPool | ProxyRotator


def endpoints_of(pool: Pool) -> EndpointPool:
    """The pool itself, also of a rotator."""
    return pool.pool if isinstance(pool, ProxyRotator) else pool


def pool_document(name: str, pool: Pool) -> dict[str, Any]:
    """The pool with its members, in list order. Where endpoints are to be called is not in it: it may hold secrets."""
    endpoints = endpoints_of(pool)
    members = [_member(endpoints, row) for row in endpoints.snapshot()]
    return {
        "name": name,
        "is_rotator": isinstance(pool, ProxyRotator),
        "choose": endpoints.choose.value,
        "region": endpoints.region,
        "opens_by": endpoints.breaker.describe().removeprefix("breaker: "),
        "available": sum(member["available"] for member in members),
        "in_flight": sum(member["in_flight"] for member in members),
        "members": members,
    }


def _member(pool: EndpointPool, row: dict[str, Any]) -> dict[str, Any]:
    circuit = pool.circuits().get(row["id"])
    opened_by = None if circuit is None else circuit.opened_by
    return {
        **plain(row),
        "control": "auto" if circuit is None else circuit.control.value,
        "next_test_at": None if circuit is None else plain(circuit.next_test_wall),
        "last_error": None if opened_by is None else redact(f"{type(opened_by).__name__}: {opened_by}"),
    }
