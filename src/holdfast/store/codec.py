"""From Python values to stored ones and back: JSON that says no to what it cannot hold, and times as microseconds."""

from __future__ import annotations

import json
import json.encoder
import math
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

from holdfast.errors import InvalidValue

DEEPEST: Final = 100
_LONGEST_WAY: Final = 12
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
AS_THEY_ARE: Final = frozenset({int, bool, type(None)})
"""The types of what is JSON and needs no look."""
_TEXT: Final = frozenset({str})
_SIMPLE: Final = AS_THEY_ARE | _TEXT
# PostgreSQL holds no U+0000, and UTF-8 no lone half of a surrogate pair.
_UNSTORABLE: Final = dict.fromkeys((0, *range(0xD800, 0xE000)), "\ufffd")


def to_json(value: Any, path: str = "value") -> str:
    """The JSON text of a value; `path` is what the message of an error calls it.

    Tuples become lists, dates and times ISO 8601, Decimal and UUID texts, an Enum its value. Raises TypeError for
    anything else that is not JSON, ValueError for NaN, infinities and what is nested more than 100 deep.
    """
    written = simple_to_json(value)
    return plain_to_json(plain(value, path)) if written is None else written


def json_writer(*, sort_keys: bool = False, allow_nan: bool = False) -> Callable[[Any], str]:
    """What makes JSON texts, without spaces, of values in JSON's own types.

    Made once: `json.dumps` with options makes an encoder in every call, and an encoder its machinery in every one of
    its.
    """
    usual = json.JSONEncoder(
        ensure_ascii=False, separators=(",", ":"), check_circular=False, sort_keys=sort_keys, allow_nan=allow_nan
    )
    machinery: Any = getattr(json.encoder, "c_make_encoder", None)
    if machinery is None:
        return usual.encode
    chunks = machinery(None, usual.default, json.encoder.encode_basestring, None, ":", ",", sort_keys, False, allow_nan)
    return lambda value: "".join(chunks(value, 0))


plain_to_json: Final = json_writer()
"""The JSON text of what `plain` gave."""


def objects_to_json(objects: Iterable[dict[str, Any] | str]) -> str:
    """The JSON text of a list of objects that `plain` gave, or of their texts."""
    return f"[{','.join([one if type(one) is str else plain_to_json(one) for one in objects])}]"


def simple_to_json(value: Any) -> str | None:
    """The JSON text of dicts and lists of whole numbers and texts that every store can hold, as most values are:
    without a copy. None of others, which `plain` can tell more of."""
    if not _is_simple(value, 0):
        return None
    text = plain_to_json(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return None
    return None if "\\u0000" in text else text


def _is_simple(value: Any, depth: int) -> bool:
    """Whether it has JSON's own types throughout, floats apart."""
    kind = type(value)
    if kind is dict:
        if not _TEXT.issuperset(map(type, value)):
            return False
        items: Iterable[Any] = value.values()
    elif kind is list:
        items = value
    else:
        return kind in _SIMPLE
    if depth == DEEPEST:
        return False
    for item in items:  # noqa: SIM110  # a generator takes as long as all of this
        if type(item) not in _SIMPLE and not _is_simple(item, depth + 1):
            return False
    return True


def from_json(text: str) -> Any:
    return json.loads(text)


def plain(value: Any, path: str = "value", depth: int = 0) -> Any:
    """A copy in JSON's own types; the message of an error names the way to the culprit. `depth` it lies in already."""
    return _plain(value, (None, path), depth)


Way = tuple[Any, Any]
"""How a value was reached: the way to what holds it, and its key or place there. Put in words only for an error."""


def _plain(value: Any, way: Way, depth: int) -> Any:
    kind = type(value)
    if kind is str:
        return value if value.isascii() and "\0" not in value else clean_text(value)
    if value is None or kind is int or kind is bool:
        return value
    if isinstance(value, dict | list | tuple):
        if depth == DEEPEST:
            raise InvalidValue(f"{_words(way)} is nested more than {DEEPEST} deep; store a flatter value")
        if isinstance(value, dict):
            return {
                key if type(key) is str and key.isidentifier() else _key(key, way): (
                    item if type(item) in AS_THEY_ARE else _plain(item, (way, key), depth + 1)
                )
                for key, item in value.items()
            }
        return [_plain(item, (way, at), depth + 1) for at, item in enumerate(value)]
    return _scalar(value, way, depth)


def _scalar(value: Any, way: Way, depth: int) -> Any:
    if isinstance(value, Enum):
        return _plain(value.value, way, depth)
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidValue(f"{_words(way)} is {value!r}, which JSON cannot hold; store None or a text")
        return float(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    story = f"is a {type(value).__name__}, which is not JSON; store texts, numbers, lists and dicts"
    raise TypeError(f"{_words(way)} {story}")


def _key(key: Any, way: Way) -> str:
    if isinstance(key, str):
        return clean_text(key.value if isinstance(key, Enum) else key)
    raise TypeError(f"{_words(way)} has the key {key!r}; keys of stored data are texts")


def _words(way: Way) -> str:
    steps = []
    while way[0] is not None:
        way, step = way
        steps.append(f"[{step}]" if type(step) is int else f".{step}")
    if len(steps) > _LONGEST_WAY:  # of what is nested too deep
        steps[_LONGEST_WAY // 2 : -_LONGEST_WAY // 2] = ["…"]
    return f"{way[1]}{''.join(reversed(steps))}".removeprefix(".")


def clean_text(text: str) -> str:
    """The text without what some store cannot hold: U+0000 and lone surrogates become U+FFFD."""
    if text.isascii() and "\0" not in text:
        return text if type(text) is str else str(text)
    return str(text).translate(_UNSTORABLE)


def micros(at: datetime) -> int:
    """A time as stored. A naive one is read as UTC."""
    aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return (aware - EPOCH) // _MICROSECOND


def instant(stored: int) -> datetime:
    """The aware UTC time of stored microseconds."""
    return EPOCH + timedelta(microseconds=stored)


def maybe_micros(at: datetime | None) -> int | None:
    return None if at is None else micros(at)


def maybe_instant(stored: int | None) -> datetime | None:
    return None if stored is None else EPOCH + timedelta(microseconds=stored)


def duration(span: timedelta) -> int:
    """A span in microseconds."""
    return span // _MICROSECOND
