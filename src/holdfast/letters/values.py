"""What callers hand in, in the form in which it is stored. Nothing is written that cannot be read back."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from holdfast.errors import InvalidValue
from holdfast.machine.dead_letter import LETTER, FailedOperationStatus
from holdfast.store.codec import clean_text, micros, plain, plain_to_json
from holdfast.store.port import FOREVER

MINUTE: Final = 60_000_000
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
_LARGEST: Final = 2**31 - 1
_MOST: Final = 2**53 - 1  # the largest whole number of JSON and Lua
_KEY_LENGTHS: Final = {name: LETTER.keyed.get(name, 191) for name in LETTER.searched}


def text(name: str, value: Any) -> str:
    """A text; a number or whatever the codec writes as a text becomes one.

    Raises TypeError for anything else, ValueError if it is searched and too long for an index.
    """
    return within(name, clean_text(value) if type(value) is str else sought(name, value))


def within(name: str, found: str) -> str:
    """The text as it is stored. Raises ValueError if it is searched and too long for an index."""
    longest = _KEY_LENGTHS.get(name)
    if longest is not None and len(found) > longest:
        raise InvalidValue(f"{name} has {len(found)} characters; a searched text has at most {longest}")
    return found


def sought(name: str, value: Any) -> str:
    """A text as a filter, which may be one that nothing can match."""
    if type(value) is str:
        return clean_text(value)
    found = plain(value, name)
    if isinstance(found, int) and not isinstance(found, bool):
        found = str(found)
    if not isinstance(found, str):
        raise TypeError(f"{name} is a {type(value).__name__}; give a text")
    return found


def maybe_text(name: str, value: Any) -> str | None:
    return None if value is None else text(name, value)


def checked_dict(name: str, value: dict[str, Any] | None) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TypeError(f"{name} is a {type(value).__name__}; give a dict")
    return value


def identity(name: str, value: Any) -> str | None:
    """Who, as JSON text: 7 and "7" stay apart."""
    if value is None:
        return None
    found = plain(value, name)
    if not isinstance(found, str | int | float):
        raise TypeError(f"{name} is a {type(value).__name__}; give a number or a text")
    return plain_to_json(found)


def user(value: Any) -> str | None:
    """Whom it failed for, as JSON text. Raises ValueError for more than an index takes."""
    found = identity("user_id", value)
    return None if found is None else within("user_id", found)


def resolver(name: str, value: Any) -> str | None:
    """Who resolved it, as JSON text; an empty text is nobody, 0 is somebody."""
    return None if value == "" else identity(name, value)


def whole(name: str, value: Any) -> int:
    """A count. Raises TypeError for anything but a whole number, ValueError outside 0 … 2³¹ - 1."""
    if not isinstance(value, int):
        raise TypeError(f"{name} is a {type(value).__name__}; give a whole number")
    if not 0 <= value <= _LARGEST:
        raise InvalidValue(f"{name} must be between 0 and {_LARGEST}, got {value}")
    return int(value)


def time(name: str, value: datetime | None) -> int | None:
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise TypeError(f"{name} is a {type(value).__name__}; give a datetime")
    return micros(value)


def status_value(status: Any) -> str:
    """A status to write. Raises ValueError for one that does not exist."""
    try:
        return FailedOperationStatus(status).value
    except ValueError:
        known = ", ".join(FailedOperationStatus)
        raise InvalidValue(f"{status!r} is no status; use one of {known}") from None


def size(limit: int) -> int:
    """A limit, an offset or a count: what is below 0 acts as 0, and no store holds as many as the largest."""
    return max(0, min(limit, _MOST))


def ago(now: int, amount: float, unit: int) -> int:
    """The time so many units before now, within what a store can compare."""
    return max(-FOREVER, min(FOREVER, now - round(amount * unit)))


def is_id(id: Any) -> bool:
    """Whether this could be an id at all; a store is not asked for what it could not hold."""
    return isinstance(id, str) and id.isascii() and "\0" not in id
