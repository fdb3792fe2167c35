"""The life of an outbox entry: one external call that must happen.

Every change of an entry is one of the moves below, and nothing else is. A move says from which states it starts, where
it leads, and what becomes of the columns that it touches; `outbox/statements.py` makes its SQL from this table, and
`apply` does the same to a row in memory, so that both can be held against each other.

    pending ──claim──▶ in_flight ──succeed──▶ succeeded
       ▲   ◀─release──     │ ├─────abandon──▶ abandoned ──requeue──▶ pending
       │                   │ ├─fail, refund─▶ failed ──claim──▶ in_flight
       │                   │ └─────park─────▶ scheduled ──claim──▶ in_flight
       └ cancel (also of failed and scheduled) ─▶ abandoned

A gate (`next_attempt_at`) says from when on an entry may be claimed: the end of a lease while it is in flight, of a
delay while it has failed, of a vendor's retention while it is scheduled.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import Enum, StrEnum
from typing import Any, Final, NamedTuple


class OutboxStatus(StrEnum):
    """Where one durable external call stands."""

    PENDING = "pending"
    IN_FLIGHT = "in_flight"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SCHEDULED = "scheduled"
    ABANDONED = "abandoned"


TERMINAL: Final = frozenset({OutboxStatus.SUCCEEDED, OutboxStatus.ABANDONED})
CLAIMABLE: Final = frozenset(OutboxStatus) - TERMINAL
WAITING: Final = CLAIMABLE - {OutboxStatus.IN_FLIGHT}

EXHAUSTED: Final = "AttemptsExhausted"
CANCELLED: Final = "Cancelled"


class Put(Enum):
    """What a move does to a column, where it is not a value."""

    GIVEN = "what the caller gives"
    ONE_MORE = "one more than it was"
    ONE_LESS = "one less than it was"
    SCRUBBED = "nothing if the payload is sensitive, which `scrubbed` then tells, and otherwise what it was"


class Move(NamedTuple):
    """A change of state. `puts` names every column that it touches, the status apart."""

    name: str
    sources: frozenset[OutboxStatus]
    to: OutboxStatus
    puts: Mapping[str, Any]


_FREE: Final = {"claim_token": None, "claimed_by": None}
_HELD: Final = frozenset({OutboxStatus.IN_FLIGHT})
_GONE: Final = frozenset({OutboxStatus.ABANDONED})

CLAIM: Final = Move(
    "claim",
    CLAIMABLE,
    OutboxStatus.IN_FLIGHT,
    {
        "attempts": Put.ONE_MORE,
        "last_attempt_at": Put.GIVEN,
        "next_attempt_at": Put.GIVEN,
        "claim_token": Put.GIVEN,
        "claimed_by": Put.GIVEN,
    },
)
RENEW: Final = Move("renew", _HELD, OutboxStatus.IN_FLIGHT, {"next_attempt_at": Put.GIVEN})
SUCCEED: Final = Move(
    "succeed",
    _HELD,
    OutboxStatus.SUCCEEDED,
    {"next_attempt_at": None, "payload": Put.SCRUBBED, **_FREE},
)
FAIL: Final = Move("fail", _HELD, OutboxStatus.FAILED, {"last_error": Put.GIVEN, "next_attempt_at": Put.GIVEN, **_FREE})
REFUND: Final = Move(
    "refund",
    _HELD,
    OutboxStatus.FAILED,
    {"attempts": Put.ONE_LESS, "last_error": Put.GIVEN, "next_attempt_at": Put.GIVEN, **_FREE},
)
RELEASE: Final = Move(
    "release", _HELD, OutboxStatus.PENDING, {"attempts": Put.ONE_LESS, "next_attempt_at": None, **_FREE}
)
PARK: Final = Move(
    "park",
    _HELD,
    OutboxStatus.SCHEDULED,
    {"attempts": 0, "last_error": None, "next_attempt_at": Put.GIVEN, "parks": Put.ONE_MORE, **_FREE},
)
ABANDON: Final = Move(
    "abandon",
    _HELD,
    OutboxStatus.ABANDONED,
    {"attempts": Put.GIVEN, "last_error": Put.GIVEN, "next_attempt_at": None, "payload": Put.SCRUBBED, **_FREE},
)
CANCEL: Final = Move(
    "cancel",
    WAITING,
    OutboxStatus.ABANDONED,
    {"last_error": CANCELLED, "next_attempt_at": None, "payload": Put.SCRUBBED, **_FREE},
)
REQUEUE: Final = Move(
    "requeue",
    _GONE,
    OutboxStatus.PENDING,
    {"attempts": 0, "last_error": None, "next_attempt_at": None, "parks": 0, **_FREE},
)

MOVES: Final = (CLAIM, RENEW, SUCCEED, FAIL, REFUND, RELEASE, PARK, ABANDON, CANCEL, REQUEUE)
SETTLING: Final = frozenset({SUCCEED.name, FAIL.name, REFUND.name, RELEASE.name, PARK.name, ABANDON.name})


def apply(move: Move, row: Mapping[str, Any], *, scrub: bool, **given: Any) -> dict[str, Any]:
    """The row after the move.

    Raises ValueError for a state from which the move does not start, and KeyError for a value that was not given.
    """
    if row["status"] not in move.sources:
        known = ", ".join(sorted(move.sources))
        raise ValueError(f"{move.name} starts from {known}, and not from {row['status']}")
    after = {**row, "status": move.to}
    for column, put in move.puts.items():
        match put:
            case Put.GIVEN:
                after[column] = given[column]
            case Put.ONE_MORE:
                after[column] = row[column] + 1
            case Put.ONE_LESS:
                after[column] = max(0, row[column] - 1)
            case Put.SCRUBBED:
                if scrub:
                    after |= {"scrubbed": bool(row.get("scrubbed")) or row[column] is not None, column: None}
            case value:
                after[column] = value
    return after


def is_due(status: str, gate: datetime | None, now: datetime) -> bool:
    """Whether the entry may be claimed."""
    return status in CLAIMABLE and (gate is None or gate <= now)


def is_held(status: str, token: Any, attempts: int, *, by: Any, at_attempts: int) -> bool:
    """Whether whoever holds `by` may still settle the row. Without a token (an entry that was built by hand) a row
    that has not ended, and has not been attempted more often, counts as held.
    """
    if by is not None:
        return status == OutboxStatus.IN_FLIGHT and token == by
    return status in CLAIMABLE and attempts <= at_attempts


def is_exhausted(attempts: int, max_attempts: int) -> bool:
    """Whether a claimed entry has had all its calls: those that crashed their runners count."""
    return attempts > max_attempts


def may_requeue(status: str, *, needs_payload: bool, has_payload: bool, scrubbed: bool = False) -> bool:
    """Whether an operator may hand it back: not if what its call needs is gone."""
    return status == OutboxStatus.ABANDONED and (has_payload or not (needs_payload or scrubbed))
