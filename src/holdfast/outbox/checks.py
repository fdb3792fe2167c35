"""Refusing what cannot be stored or cannot be meant, before anything is written: which argument, what it was, what to
give instead."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar
from uuid import UUID

from holdfast.errors import InvalidValue
from holdfast.outbox.subject import LONGEST, utc

T = TypeVar("T")
_NOTHING: Final = timedelta(0)


def text(name: str, given: Any, longest: int = LONGEST) -> str:
    """Raises ValueError for what is no text, too short, too long, or cannot be stored everywhere."""
    if type(given) is str and 0 < len(given) <= longest and given.isascii() and "\0" not in given:
        return given  # as nearly all are
    if not isinstance(given, str):
        # As for every other field that cannot be stored, and as the models of the seed say it.
        raise InvalidValue(f"{name} must be a text, got a {type(given).__name__}")
    text = str(given)
    if not 1 <= len(text) <= longest:
        raise InvalidValue(f"{name} must have 1 to {longest} characters, got {len(text)}")
    if "\0" in text or not (text.isascii() or _is_utf8(text)):
        raise InvalidValue(f"{name} holds U+0000 or half of a surrogate pair, which no database stores: {text!r}")
    return text


def maybe_text(name: str, given: str | None, longest: int = LONGEST) -> str | None:
    return None if given is None else text(name, given, longest)


def moment(name: str, at: Any) -> datetime:
    """The time in UTC; a naive one is read as UTC. Raises ValueError for what is none."""
    if not isinstance(at, datetime):
        raise InvalidValue(f"{name} must be a datetime, got {at!r}; write datetime(..., tzinfo=UTC)")
    return utc(at)


def span(name: str, given: Any, *, above: bool = False) -> timedelta:
    """Raises ValueError for what is no time span, or one below 0; `above`: also for 0."""
    if not isinstance(given, timedelta):
        raise InvalidValue(f"{name} must be a timedelta, got {given!r}; write timedelta(seconds=…)")
    if given < _NOTHING or (above and not given):
        raise InvalidValue(f"{name} must {'be above' if above else 'not be below'} 0, got {given}")
    return given


def number(name: str, given: Any) -> int:
    """Raises ValueError for what is no whole number."""
    if isinstance(given, bool) or not isinstance(given, int):
        raise InvalidValue(f"{name} must be a whole number, got {given!r}")
    return given


def an_id(name: str, given: Any) -> UUID:
    """Raises ValueError for what is no UUID."""
    if not isinstance(given, UUID):
        raise InvalidValue(f"{name} must be a UUID, got {given!r}; write UUID('…')")
    return given


def ids(name: str, given: Any) -> list[UUID]:
    """The ids, each once, in their order. Raises ValueError for what are none."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise InvalidValue(f"{name} must be several UUIDs, got {given!r}; give a list")
    return sorted({an_id(f"each of {name}", one) for one in given})


def each(name: str, given: Any, kind: type[T]) -> tuple[T, ...]:
    """Raises ValueError for anything but several of that kind."""
    if isinstance(given, kind) or not isinstance(given, Iterable):
        raise InvalidValue(f"{name} must be several of {kind.__name__}, got a {type(given).__name__}; give a list")
    all = tuple(given)
    for one in all:
        if not isinstance(one, kind):
            raise InvalidValue(f"each of {name} must be of {kind.__name__}, got {one!r}")
    return all


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
