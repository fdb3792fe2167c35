"""Values in JSON's types: times in ISO 8601 UTC, enums as their values, secrets masked."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from holdfast.core.redact import MASK, is_secret_key

_AS_IT_IS: Final = frozenset({str, int, float, bool, type(None)})


def iso(at: datetime) -> str:
    """`2026-01-31T12:00:00.000000Z`: of one width, so that texts sort as times do."""
    at = at if at.tzinfo is UTC else at.astimezone(UTC)
    return at.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def plain(value: Any) -> Any:
    """The value in JSON's types; a dataclass by its fields."""
    kind = type(value)
    if kind in _AS_IT_IS:
        return value
    if kind is dict:
        return {str(key): item if type(item) in _AS_IT_IS else plain(item) for key, item in value.items()}
    if kind is datetime:
        return iso(value)
    # Most values are: so they are looked at where they are met, and not by a call for each.
    if (names := _field_names(kind)) is not None:  # type: ignore[arg-type]  # mypy takes a class for unhashable
        return {name: item if type(item := getattr(value, name)) in _AS_IT_IS else plain(item) for name in names}
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): item if type(item) in _AS_IT_IS else plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return value


def masked(value: Any) -> Any:
    """Nested data with what secret-sounding keys name masked: also where a program filed it unmasked."""
    if isinstance(value, dict):
        return {
            key: MASK if item is not None and isinstance(key, str) and is_secret_key(key)
            else item if type(item) in _AS_IT_IS else masked(item)
            for key, item in value.items()
        }  # fmt: skip
    return [masked(item) for item in value] if isinstance(value, list) else value


@lru_cache(maxsize=256)
def _field_names(kind: type) -> tuple[str, ...] | None:
    """The fields of a dataclass; None for what is none."""
    return tuple(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else None
