"""A letter's attempts: the open one is in the record's columns, the closed ones are a JSON list.

So an acquire does not touch the list, and closing an attempt appends to it without reading it.
"""

from __future__ import annotations

from enum import StrEnum
from json.encoder import encode_basestring
from typing import Any, Final

from holdfast.machine.letter_record import LetterRecord
from holdfast.store.codec import from_json, to_json

LONGEST: Final = 64 * 1024  # characters of the list, beyond which the older half goes
EMPTY: Final = "[]"


class AttemptOutcome(StrEnum):
    """What came of an attempt: `returned` never ran, `released` lost its lease or was overruled by an operator."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    RELEASED = "released"
    RETURNED = "returned"


def next_number(letter: LetterRecord, previous_total: int) -> int:
    """The number of the next attempt: never one that was used before, and above all counted retries."""
    return max(letter.attempts, previous_total + letter.retry_count) + 1


def close_attempt(
    letter: LetterRecord, now: int, outcome: AttemptOutcome, note: str = "", details: dict[str, Any] | None = None
) -> str:
    """The list with the open attempt at its end; unchanged when none is open."""
    if letter.started_at is None:
        return letter.history
    kind = quoted(str(details.get("error_type", ""))) if details else '""'
    ended = max(now, letter.started_at)
    # Spelled out: this is done with every completion, and a general encoder would take most of its time.
    closed = (
        f'{{"number":{letter.attempts},"token":{quoted(letter.token)},"started_at":{letter.started_at},'
        f'"finished_at":{ended},"outcome":"{outcome.value}","trigger":{quoted(letter.started_by)},"error_type":{kind},'
        f'"note":{quoted(note)},"details":{to_json(details) if details else "{}"}}}'
    )
    if letter.history == EMPTY:
        return f"[{closed}]"
    if len(letter.history) + len(closed) > LONGEST:
        kept = from_json(letter.history)
        return to_json([*kept[(len(kept) + 1) // 2 :], from_json(closed)])
    return f"{letter.history[:-1]},{closed}]"


def quoted(text: str | None) -> str:
    return "null" if text is None else encode_basestring(text)
