"""The hash chain: what is hashed of an event, how, and which stream it belongs to."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from json.encoder import encode_basestring as _quoted
from typing import Any, Final, Literal, NamedTuple
from uuid import UUID

from holdfast.errors import ConfigurationError
from holdfast.store.codec import json_writer

Streams = int | Literal["subject"]
THE_ONLY: Final = "all"
"""The name of the stream where there is one for everything."""
_MOST_NAMES: Final = 4096
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2}){16,}")
_canonical: Final = json_writer(sort_keys=True, allow_nan=True)  # whatever a row holds has to be told from what it held


class Link(NamedTuple):
    """An event in its place in a chain: everything that its hash covers."""

    stream: str
    seq: int
    event_id: UUID
    event_type: str
    subject_ref: str
    occurred_at: datetime
    entry_id: UUID | None
    payload: Mapping[str, Any]
    prior_hash: str | None


def canonical(fields: Mapping[str, Any]) -> bytes:
    """JSON of which there is one form: keys sorted, no spaces, UTF-8."""
    return _canonical(fields).encode()


def canonical_link(link: Link) -> bytes:
    """The bytes that are hashed: times in UTC with six decimals, ids as text, nothing left out."""
    stream, seq, event_id, event_type, subject_ref, occurred_at, entry_id, payload, prior_hash = link
    around = canonical_sides(stream, event_id, event_type, subject_ref, written(occurred_at), entry_id, payload)
    return canonical_text(around, seq, prior_hash).encode()


def canonical_sides(
    stream: str | None,
    event_id: UUID,
    event_type: str,
    subject_ref: str,
    at: str,
    entry_id: UUID | None,
    payload: Mapping[str, Any],
) -> tuple[str, str]:
    """What stands before and after the place in the chain, which is known last: only then a head is locked.

    The text is put together by hand: the encoder takes four times as long for the same.
    """
    entry = "null" if entry_id is None else f'"{entry_id}"'
    return (
        f'{{"entry_id":{entry},"event_id":"{event_id}","event_type":{_quoted(str(event_type))},"occurred_at":"{at}",'
        f'"payload":{_canonical(payload)},"prior_hash":',
        f',"stream":{"null" if stream is None else _quoted(stream)},"subject_ref":{_quoted(subject_ref)}}}',
    )


def canonical_text(around: tuple[str, str], seq: int | None, prior_hash: str | None) -> str:
    """The whole: what `canonical` would make of the same fields."""
    before, after = around
    prior = "null" if prior_hash is None else _quoted(prior_hash)
    return f'{before}{prior},"seq":{"null" if seq is None else int.__repr__(seq)}{after}'


def written(at: datetime) -> str:
    """`2026-01-31T12:00:00.000000+00:00`."""
    return (at if at.tzinfo is UTC else at.astimezone(UTC)).isoformat(timespec="microseconds")


def link_hash(link: Link, key: bytes | None = None) -> str:
    """The hash of an event, 64 hexadecimal digits: SHA-256, with a key HMAC-SHA-256."""
    return digest(canonical_link(link), key)


def digest(data: bytes, key: bytes | None) -> str:
    return hashlib.sha256(data).hexdigest() if key is None else hmac.digest(key, data, "sha256").hex()


def key_bytes(key: Any) -> bytes | None:
    """The key of a chain: bytes, or a text.

    Raises ConfigurationError for an empty one. No message ever shows a key.
    """
    if key is None:
        return None
    if not isinstance(key, bytes | str) or not key:
        raise ConfigurationError("key must be bytes or a text that is not empty; leave it out for a chain without one")
    return key.encode() if isinstance(key, str) else key


def key_of_text(text: str) -> bytes | None:
    """The key that an environment variable holds: 32 or more hexadecimal digits are bytes, anything else is a text.

    None if there is none.
    """
    if not text:
        return None
    return bytes.fromhex(text) if _HEX.fullmatch(text) else text.encode()


def stream_namer(streams: Any) -> Callable[[str], str]:
    """How the stream of a subject is found: one of so many, the only one, or one of its own.

    Raises ConfigurationError for another number than 1 or above.
    """
    if streams == "subject":
        return lambda subject_ref: subject_ref
    if isinstance(streams, bool) or not isinstance(streams, int) or streams < 1:
        raise ConfigurationError(f"streams must be a number of at least 1, or 'subject', got {streams!r}")
    if streams == 1:
        return lambda subject_ref: THE_ONLY
    number: int = streams
    width = max(2, len(str(number - 1)))
    if number > _MOST_NAMES:
        return lambda subject_ref: f"{_share(subject_ref) % number:0{width}d}"
    names = [f"{one:0{width}d}" for one in range(number)]
    return lambda subject_ref: names[_share(subject_ref) % number]


def _share(subject_ref: str) -> int:
    """A number that is the same in every process and release, unlike that of `hash`."""
    return int.from_bytes(hashlib.sha256(subject_ref.encode()).digest()[:8], "big")
