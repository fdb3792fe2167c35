"""Errors that are the same but for the numbers and names in them, put together."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final

from holdfast.letters.data import FailedOperationData

_LONGEST: Final = 300
_SAMPLES: Final = 5
_PLACEHOLDERS: Final = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"), "<time>"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"), "<address>"),
    (re.compile(r"\b0x[0-9a-f]+\b|\b(?=[a-f]*\d)[0-9a-f]{8,}\b", re.IGNORECASE), "<hex>"),
    # "HTTP 503" and "HTTP 404" are two errors, however many there are of each.
    (re.compile(r"(?<!HTTP )(?<!status )(?<!code )(?<![\w.])-?\d+(?:[.,]\d+)*(?:ms|s|m|h|[kMG]?B|%)?(?!\w)"), "<n>"),
    # A word of letters and digits is somebody's name for one thing: `o17`, `req_8f3k2`.
    (re.compile(r"(?<![\w-])(?=[\w-]*\d)(?=[\w-]*[^\W\d_])[\w-]+"), "<id>"),
)
_DIGIT: Final = re.compile(r"\d")


@dataclass(slots=True)
class Group:
    """Letters with one error; `example` is the newest message as it was."""

    fingerprint: str
    message: str
    example: str
    domain: str
    failure_type: str
    error_code: str
    newest: datetime
    oldest: datetime
    count: int = 0
    occurrences: int = 0
    by_status: dict[str, int] = field(default_factory=dict)
    sample: list[str] = field(default_factory=list)

    def add(self, letter: FailedOperationData) -> None:
        self.count += 1
        self.occurrences += letter.occurrences
        self.by_status[letter.status] = self.by_status.get(letter.status, 0) + 1
        self.newest, self.oldest = max(self.newest, letter.created_at), min(self.oldest, letter.created_at)
        if len(self.sample) < _SAMPLES:
            self.sample.append(letter.id)


def normalised(message: str) -> str:
    """The message with a placeholder for whatever differs from one failure to the next."""
    said = message[:_LONGEST]
    if _DIGIT.search(said):  # in whatever is replaced there is one
        for pattern, placeholder in _PLACEHOLDERS:
            said = pattern.sub(placeholder, said)
    return " ".join(said.split())


def grouped(letters: Iterable[FailedOperationData]) -> list[Group]:
    """The letters by their errors, the largest group first; what comes first among them gives the example."""
    groups: dict[tuple[Any, ...], Group] = {}
    for letter in letters:
        key = (letter.domain, letter.failure_type, letter.error_code, normalised(letter.error_message))
        group = groups.get(key)
        if group is None:
            id = blake2b("\0".join(key).encode(errors="replace"), digest_size=8).hexdigest()
            group = groups[key] = Group(
                id, key[3], letter.error_message, letter.domain, letter.failure_type, letter.error_code,
                letter.created_at, letter.created_at,
            )  # fmt: skip
        group.add(letter)
    return sorted(groups.values(), key=lambda one: (-one.count, one.fingerprint))
