"""Entries of the outbox, the calls that were made for them, and its queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from holdfast.core.redact import MASK, redact_value
from holdfast.machine.outbox_entry import OutboxStatus
from holdfast.outbox.draft import DEFAULT_QUEUE
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.operation import OperationRegistry
from holdfast.outbox.queues import PausedQueue
from holdfast.outbox.rows import status_of
from holdfast.outbox.settle import Attempt
from holdfast.views.plain import plain

_UNSHOWN: Final = ("claim_token",)  # whoever has it may settle the entry


def entry_document(entry: OutboxEntry, operations: OperationRegistry, *, reveal: bool = False) -> dict[str, Any]:
    """The entry with what is sensitive masked: of an operation whose payloads are, and of one that is not known here,
    only the names in them are shown. `reveal` leaves it as it was kept.
    """
    shown: dict[str, Any] = plain({name: value for name, value in entry.model_dump().items() if name not in _UNSHOWN})
    if reveal:
        return shown
    hides = operations.is_sensitive(str(entry.operation))
    shown |= {name: hidden(shown[name]) if hides else redact_value(shown[name], None) for name in ("payload", "result")}
    corrections = [{**one, "value": MASK} for one in shown["corrections"]]
    return {**shown, "corrections": corrections, "headers": redact_value(shown["headers"], None)}


def attempt_document(made: Attempt) -> dict[str, Any]:
    """One call, without the token with which it was settled."""
    shown: dict[str, Any] = plain(made._asdict())
    return {name: value for name, value in shown.items() if name not in ("entry_id", *_UNSHOWN)}


def paused_document(one: PausedQueue) -> dict[str, Any]:
    """A queue from which nothing is claimed: since when, by whom, and why."""
    shown: dict[str, Any] = plain(one._asdict())
    return shown


def by_queue(tally: Mapping[tuple[str | None, ...], int]) -> dict[str, Counter[OutboxStatus]]:
    """Entries that were counted by queue and status; the default queue is always there.

    Raises ValueError for a status that nobody knows.
    """
    found: dict[str, Counter[OutboxStatus]] = {DEFAULT_QUEUE: Counter()}
    for (queue, status), number in tally.items():
        found.setdefault(str(queue), Counter())[status_of(str(status))] += number
    return found


def by_status(numbers: Counter[OutboxStatus]) -> dict[str, int]:
    """Each status, those without entries as well."""
    return {str(status): numbers[status] for status in OutboxStatus}


def hidden(value: Any) -> Any:
    """The names in nested data, and none of the values."""
    if isinstance(value, dict):
        return {key: hidden(item) for key, item in value.items()}
    if isinstance(value, list):
        return [hidden(item) for item in value]
    return None if value is None else MASK
