"""Signatures of webhooks in the manner of Standard Webhooks: for whoever sends, and for whoever receives.

The three headers `webhook-id`, `webhook-timestamp` and `webhook-signature` sign id, time and body together. Several
signatures, one per secret, let a secret be changed without a moment at which neither side's is right.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from holdfast.core.clock import SYSTEM_CLOCK
from holdfast.errors import HoldfastError, PolicyError

ID: Final = "webhook-id"
TIMESTAMP: Final = "webhook-timestamp"
SIGNATURE: Final = "webhook-signature"
TOLERANCE: Final = timedelta(minutes=5)
_SECRET_PREFIX: Final = "whsec_"
_VERSION: Final = "v1"
_SHORTEST: Final = 16


class SignatureError(HoldfastError):
    """A request is not what its sender signed, or too old, or not from who knows the secret: do not act on it."""


def sign(message_id: str, at: datetime, body: bytes, secrets: str | Sequence[str]) -> dict[str, str]:
    """The three headers. With several secrets, a receiver that knows one of them accepts it."""
    timestamp = str(int(at.timestamp()))
    signatures = [f"{_VERSION},{_signature(key, message_id, timestamp, body)}" for key in keys_of(secrets)]
    return {ID: message_id, TIMESTAMP: timestamp, SIGNATURE: " ".join(signatures)}


def verify_webhook(
    headers: Mapping[str, str],
    body: bytes,
    secrets: str | Sequence[str],
    tolerance: timedelta = TOLERANCE,
    *,
    now: datetime | None = None,
) -> str:
    """The id of a request that was signed with one of the secrets, at most `tolerance` ago or ahead.

    `body` is the body as it came, byte by byte. A repeated delivery has the same id: ask an Inbox. Raises
    SignatureError.
    """
    lowered = {name.lower(): value for name, value in headers.items()}
    try:
        message_id, timestamp, given = lowered[ID], lowered[TIMESTAMP], lowered[SIGNATURE]
    except KeyError as missing:
        raise SignatureError(f"the header {missing.args[0]} is missing") from None
    _check_time(timestamp, tolerance, now or SYSTEM_CLOCK.wall())
    offered = [text for part in given.split() for version, _, text in (part.partition(","),) if version == _VERSION]
    for key in keys_of(secrets):
        expected = _signature(key, message_id, timestamp, body).encode()
        if any(hmac.compare_digest(expected, text.encode(errors="replace")) for text in offered):
            return message_id
    raise SignatureError("no signature of this request is by a secret that is known here")


def keys_of(secrets: str | Iterable[str]) -> list[bytes]:
    """The keys of secrets, which are base64 behind `whsec_`, or plain texts.

    Raises PolicyError, which names no secret, for none at all and for one that is too short.
    """
    keys = [_key(secret) for secret in ([secrets] if isinstance(secrets, str) else secrets)]
    if not keys:
        raise PolicyError("secrets must hold at least one secret, got none")
    if any(len(key) < _SHORTEST for key in keys):
        raise PolicyError(f"a webhook's secret must have at least {_SHORTEST} bytes; make one with new_secret()")
    return keys


def new_secret() -> str:
    """A secret of 32 random bytes."""
    import secrets

    return _SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def _key(secret: str) -> bytes:
    if not secret.startswith(_SECRET_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
    except binascii.Error:
        raise PolicyError(f"a secret that begins with {_SECRET_PREFIX} must go on in base64") from None


def _signature(key: bytes, message_id: str, timestamp: str, body: bytes) -> str:
    signed = b".".join([message_id.encode(), timestamp.encode(), body])
    return base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def _check_time(timestamp: str, tolerance: timedelta, now: datetime) -> None:
    try:
        at = datetime.fromtimestamp(int(timestamp), UTC)
    except (ValueError, OverflowError, OSError):
        raise SignatureError(f"the header {TIMESTAMP} is no number of seconds") from None
    if abs(now - at) > tolerance:
        raise SignatureError(f"the request was signed at {at.isoformat()}, which is too far from now")
