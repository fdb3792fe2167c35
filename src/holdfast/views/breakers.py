"""Circuit breakers: what is stored of one, and what processes tell each other about it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from holdfast.breakers.data import CircuitBreakerStateData
from holdfast.breakers.sharing import SharingStatus
from holdfast.core.redact import redact
from holdfast.machine.breaker_fleet import Fleet
from holdfast.store.codec import instant, maybe_instant
from holdfast.views.plain import masked, plain


def breaker_document(state: CircuitBreakerStateData, now: datetime) -> dict[str, Any]:
    """The breaker, and whether an operator's word on it is in force."""
    return {**plain(state), "metadata": masked(plain(state.metadata)), "pin_active": state.pin_active(now)}


def fleet_document(fleet: Fleet) -> dict[str, Any]:
    """Votes, leases and results of probes, without the tokens with which leases could be settled."""
    shown: dict[str, Any] = plain({
        "may_be_tried_at": maybe_instant(fleet.until),
        "failed_rounds": fleet.rounds,
        "cause": redact(fleet.cause),
        "votes": [{"process": process, "at": instant(at)} for process, at in fleet.votes],
        "leases": [{"ends_at": instant(ends)} for _, ends in fleet.leases],
        "results": [{"failed": failed, "duration_s": duration} for failed, duration in fleet.results],
    })  # fmt: skip
    return shown


def sharing_document(status: SharingStatus) -> dict[str, Any]:
    """Whether the store is there, and what is shared through it."""
    shown: dict[str, Any] = plain(status)
    return {**shown, "error": None if status.error is None else redact(status.error)}
