"""Masking of secrets and personal data in texts before they are stored, logged or sent.

Rather too much is masked than too little. Every pattern either starts only where a run of its characters starts or is
bounded in length, so the work stays proportional to the length of the text whatever it contains.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

MASK: Final = "***"
_DEEPEST: Final = 20
_LONGEST_NAME: Final = 100

_SECRET_KEY: Final = re.compile(
    r"pass(?:word|wd|phrase|code)|pwd|secret|token|credential|signature|authorization|cookie|jwt"
    r"|(?:api|access|private|secret|account|encryption|signing|ssh)[_\-. ]?key|session[_\-. ]?id"
    r"|(?<![a-z])(?:auth|pass|pin|otp|cvv|cvc|ssn|iban|sig)(?![a-z])",
    re.IGNORECASE,
)
# What may stand between a key and its value in headers, JSON, Python reprs, escaped JSON and key=value lists.
_BETWEEN: Final = r"""(?:\\?["'])?(?:[ \t]{0,4}(?:[:=]{1,2}>?)|(?<=["'])[ \t]{0,4},)[ \t]{0,4}"""
_QUOTED: Final = r"""b?"(?:[^"\\\r\n]|\\.)*+"|b?'(?:[^'\\\r\n]|\\.)*+'|\\["'][^"'\r\n]*+["']"""

_PEM: Final = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL
)
_URL: Final = re.compile(r"""(?<![a-z0-9+.\-])([a-z][a-z0-9+.\-]*+)://([^\s"'<>]++)""", re.IGNORECASE)
_HEADER: Final = re.compile(rf"((?:authorization|cookie){_BETWEEN})({_QUOTED}|[^\r\n]++)", re.IGNORECASE)
_PAIR: Final = re.compile(rf"((?:{_SECRET_KEY.pattern})[\w\-]{{0,40}}+{_BETWEEN})({_QUOTED}|[^\s&]++)", re.IGNORECASE)
_BEARER: Final = re.compile(r"\b(bearer|basic|digest|negotiate)( +)([\w.~+/=\-]{8,}+)", re.IGNORECASE)
_KNOWN_TOKEN: Final = re.compile(
    r"\beyJ[\w\-]{5,}+\.[\w.\-]++|\b[spr]k_(?:live|test)_\w++|\b(?:gh[opsur]|github_pat|glpat|xox[a-z])[_\-][\w\-]{10,}+"
    r"|\bA[KS]IA[0-9A-Z]{12,}+|\bAIza[\w\-]{20,}+"
)
_HEX: Final = re.compile(r"(?<![0-9A-Za-z])[0-9a-fA-F]{32,}+(?![0-9A-Za-z])")
_RANDOM: Final = re.compile(r"(?<![\w+/=\-])[\w+/=\-]{20,}+", re.ASCII)
_EMAIL: Final = re.compile(r"(?<![\w.+%\-])[\w.+%\-]++@[\w.\-]++")
_CARD: Final = re.compile(r"(?<![\w.\-])\d(?:[ \-]?\d){12,18}+(?![\w\-])")


def redact(text: str, limit: int | None = 500) -> str:
    """The text with secrets, e-mail addresses and card-like numbers masked, cut to `limit` characters with "…".

    None does not cut.
    """
    if limit is not None and len(text) > 8 * limit + 4000:
        # Far more than can be shown. The last word goes too: half a token may no longer look like one.
        text = text[: 8 * limit + 4000].rsplit(None, 1)[0] + " …"
    # A look for one literal is far cheaper than a pattern, and most messages hold neither.
    if "-----BEGIN" in text:
        text = _PEM.sub(MASK, text)
    if "://" in text:
        text = _URL.sub(_mask_url, text)
    text = _HEADER.sub(_mask_pair, text)
    text = _PAIR.sub(_mask_pair, text)
    text = _BEARER.sub(_mask_scheme, text)
    text = _KNOWN_TOKEN.sub(MASK, text)
    text = _HEX.sub(MASK, text)
    text = _RANDOM.sub(_mask_random, text)
    if "@" in text:
        text = _EMAIL.sub(f"{MASK}@{MASK}", text)
    text = _CARD.sub(MASK, text)
    if limit is not None and len(text) > limit:
        return text[: max(0, limit - 1)] + "…"
    return text


def redact_value(value: Any, limit: int | None = 500) -> Any:
    """A copy of nested mappings, lists, tuples and sets: what secret-sounding keys name is masked, texts redacted.

    Other objects are kept as they are; what is nested deeper than 20 levels is masked.
    """
    return _redact_value(value, limit, 0)


def is_secret_key(name: str) -> bool:
    """Whether a field of this name is to be masked whatever it holds."""
    # Names come again with every letter and every entry; what is longer than any name is not remembered.
    return _is_secret(name) if len(name) <= _LONGEST_NAME else _SECRET_KEY.search(name) is not None


@lru_cache(maxsize=4096)
def _is_secret(name: str) -> bool:
    return _SECRET_KEY.search(name) is not None


def _redact_value(value: Any, limit: int | None, depth: int) -> Any:
    if isinstance(value, str):
        return redact(value, limit)
    if not isinstance(value, Mapping | list | tuple | set | frozenset):
        return value
    if depth == _DEEPEST:
        return MASK
    if isinstance(value, Mapping):
        return {
            key: MASK
            if isinstance(key, str) and item is not None and is_secret_key(key)
            else _redact_value(item, limit, depth + 1)
            for key, item in value.items()
        }
    items = [_redact_value(item, limit, depth + 1) for item in value]
    kind = next(kind for kind in (list, tuple, set, frozenset) if isinstance(value, kind))
    return items if kind is list else kind(items)


def _mask_url(match: re.Match[str]) -> str:
    scheme, rest = match.groups()
    rest, hash_sign, fragment = rest.partition("#")
    rest, question, query = rest.partition("?")
    authority = rest.split("/", 1)[0]
    port = authority.rpartition(":")[2]
    # A password with a slash in it: what looks like the port is not a number, and the @ comes later.
    if "@" in authority or ("@" in rest and ":" in authority and not port.isdecimal()):
        rest = f"{MASK}@{rest.rpartition('@')[2] if '@' not in authority else rest[authority.rindex('@') + 1 :]}"
    if question:
        query = _mask_query(query)
    if "=" in fragment:
        fragment = _mask_query(fragment)
    return f"{scheme}://{rest}{question}{query}{hash_sign}{fragment}"


def _mask_query(query: str) -> str:
    parts = []
    for part in query.replace(";", "&").split("&"):
        name, equals, _ = part.partition("=")
        parts.append(f"{name}={MASK}" if equals else MASK if part else "")
    return "&".join(parts)


def _mask_pair(match: re.Match[str]) -> str:
    quote = match[2][-1]
    return f"{match[1]}{quote}{MASK}{quote}" if quote in "\"'" and len(match[2]) > 1 else match[1] + MASK


def _mask_scheme(match: re.Match[str]) -> str:
    scheme, space, token = match.groups()
    # "Basic authentication failed" is no credential; base64 without a digit, "=" or inner capital is improbable.
    is_word = scheme.lower() != "bearer" and token[1:].isalpha() and token[1:].islower()
    return match[0] if is_word else f"{scheme}{space}{MASK}"


def _mask_random(match: re.Match[str]) -> str:
    """Mask what changes between small, capital and digit as often as only random characters do."""
    token = match[0]
    classes = ["a" if char.islower() else "A" if char.isupper() else "0" if char.isdigit() else "-" for char in token]
    changes = sum(left != right for left, right in pairwise(classes))
    return MASK if {"a", "A", "0"} <= set(classes) and changes >= 0.4 * len(token) else token
