"""Dead letters, the attempts to replay them, and operations over many of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from holdfast.letters.bulk import BulkProgress
from holdfast.letters.data import FailedOperationData, ReplayAttempt, read_whole
from holdfast.views.plain import masked, plain

PAYLOADS: Final = ("entity_refs", "request_data", "snapshot_data", "response_data", "metadata")
"""What a letter holds of the call itself; masked unless somebody is allowed to see it."""


def letter_document(letter: FailedOperationData, *, reveal: bool = False) -> dict[str, Any]:
    """The letter, with its cursor; `reveal` leaves it as it was kept. The token of an attempt, with which it could be
    settled, is not in it.
    """
    shown: dict[str, Any] = plain(read_whole(letter))
    del shown["attempt_token"]
    shown["cursor"] = letter.cursor
    if not reveal:
        for name in PAYLOADS:
            shown[name] = masked(shown[name])
    return shown


def attempt_document(attempt: ReplayAttempt) -> dict[str, Any]:
    """One attempt to replay a letter, without its token."""
    shown: dict[str, Any] = plain(attempt)
    del shown["token"]
    return {**shown, "details": masked(shown["details"])}


def operation_document(progress: BulkProgress) -> dict[str, Any]:
    """An operation over many letters; of its filter only what was asked for."""
    shown: dict[str, Any] = plain(progress)
    return {**shown, "filter": {name: value for name, value in shown["filter"].items() if value is not None}}


def pace_of(progress: BulkProgress, now: datetime) -> dict[str, float | None]:
    """How fast an operation has gone since it was begun, and how long the rest takes at that pace; as far as known."""
    if progress.started_at is None or not progress.done:
        return {"rate_per_s": None, "eta_s": None}
    passed = ((progress.finished_at or now) - progress.started_at).total_seconds()
    rate = progress.done / max(passed, 0.001)
    left = None if progress.is_over else max(0, progress.total - progress.done) / rate
    return {"rate_per_s": round(rate, 3), "eta_s": None if left is None else round(left, 1)}


def user_of(text: str) -> int | str:
    """A user id as it is stored: 7 and "7" are two users."""
    if text.removeprefix("-").isdecimal():
        return int(text)
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
