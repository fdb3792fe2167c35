"""A task's settings, taken from its stage's context and checked: which one is wrong, what it was, what to give."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from holdfast.errors import ConfigurationError

S = TypeVar("S")


def settings_of(kind: type[S], owner: str, context: Mapping[str, Any]) -> S:
    """The settings (a dataclass) that a context has under their names; everything else in it is data.

    Raises ConfigurationError for one that is missing or wrong.
    """
    context = own(context)
    known = fields(kind)  # type: ignore[arg-type]  # a TypeVar cannot be bound to "a dataclass"
    for one in known:
        if one.default is MISSING and one.default_factory is MISSING and context.get(one.name) is None:
            raise ConfigurationError(f"the {owner} task needs {one.name!r} in its stage's context")
    return kind(**{one.name: context[one.name] for one in known if context.get(one.name) is not None})


def own(context: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a stage was given itself: what stages before it have left is data, and no setting."""
    found: Mapping[str, Any] = getattr(context, "own", context)
    return found


def check_text(name: str, value: Any, *, optional: bool = False, empty: bool = False) -> None:
    if value is None and optional:
        return
    if not isinstance(value, str) or not (value or empty) or ("\0" in value and not empty):
        raise ConfigurationError(f"{name} must be a text{'' if empty else ' that is not empty'}, got {value!r}")


def check_texts(name: str, value: Any) -> None:
    if isinstance(value, str) or not isinstance(value, Iterable) or not all(isinstance(one, str) for one in value):
        raise ConfigurationError(f"{name} must be a list of texts, got {value!r}")


def check_time(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ConfigurationError(f"{name} must be a number of seconds above 0, got {value!r}")


def check_wholes(name: str, value: Any) -> None:
    if isinstance(value, str) or not isinstance(value, Iterable) or not all(type(one) is int for one in value):
        raise ConfigurationError(f"{name} must be a list of whole numbers, got {value!r}")


def check_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name} must be true or false, got {value!r}")


def check_names(name: str, value: Any) -> None:
    """A mapping of names to texts or numbers, such as environment variables or headers."""
    wrong = not isinstance(value, Mapping) or any(
        not isinstance(key, str) or not key or isinstance(one, bool) or not isinstance(one, str | int | float)
        for key, one in value.items()
    )
    if wrong:
        raise ConfigurationError(f"{name} must be a mapping of names to texts, got {value!r}")
