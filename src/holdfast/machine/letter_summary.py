"""What is left of letters that were compressed: one summary per group, which ages but is not deleted by ageing."""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b
from typing import Final, NamedTuple

from holdfast.store.record import Index, Kind, Value, evolve


class DLQCompressedStatus(StrEnum):
    ACTIVE = "active"
    STALE = "stale"
    ARCHIVED = "archived"


class SummaryRecord(NamedTuple):
    id: str
    version: int
    due_at: int | None
    domain: str
    failure_type: str
    error_code: str
    status: str
    items: int  # how many letters it stands for
    first_seen: int
    last_seen: int
    compressed_at: int
    stale_at: int | None
    archived_at: int | None
    sample_error_message: str
    sample_context: str  # JSON


SUMMARY: Final = Kind(
    "letter_summary",
    SummaryRecord,
    indexes=(
        Index((), "compressed_at"),
        Index(("status",), "compressed_at"),  # also the ageing
        Index(("domain",), "compressed_at"),
    ),
    tally=("status",),
    keyed={"status": 24},
)
LONGEST_ID: Final = 191


def summary_id(domain: str, failure_type: str, error_code: str, stamp: int) -> str:
    """`compressed:{domain}:{failure_type}:{error_code}:{timestamp}`; a group too long for a key is hashed."""
    group = f"{domain}:{failure_type}:{error_code}"
    longest = LONGEST_ID - len(f"compressed::{stamp}")
    if len(group) > longest:
        group = f"{group[: longest - 33]}:{blake2b(group.encode(), digest_size=16).hexdigest()}"
    return f"compressed:{group}:{stamp}"


def change_status(summary: SummaryRecord, now: int, status: str) -> SummaryRecord:
    """The summary in another status, with the time when it entered it; earlier stamps stay."""
    return evolve(summary, status=status, **(_stamp(now, status) if status != summary.status else {}))


def aged(now: int, status: str) -> dict[str, Value]:
    """What ageing gives to a summary that is old enough for the status."""
    return {"status": status, **_stamp(now, status)}


def _stamp(now: int, status: str) -> dict[str, Value]:
    match status:
        case DLQCompressedStatus.STALE:
            return {"stale_at": now}
        case DLQCompressedStatus.ARCHIVED:
            return {"archived_at": now}
    return {}
