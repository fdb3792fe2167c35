"""Times as people and programs write them: UTC, ISO 8601 for programs, ages for people."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    _ParamType = click.ParamType[datetime]
else:
    _ParamType = click.ParamType  # not generic in older releases

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SPAN: Final = re.compile(r"(\d+)([smhdw])")


def stamp(at: datetime | None) -> str:
    """`2026-01-31 12:00:00 UTC`, or nothing."""
    return "" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def span(length: timedelta) -> str:
    """A length of time in the largest unit of which there are two: `90s`, `89m`, `47h`, `41d`."""
    seconds = max(0, int(length.total_seconds()))
    unit, size = "s", 1
    for name in ("m", "h", "d"):
        if seconds >= 2 * _UNITS[name]:
            unit, size = name, _UNITS[name]
    return f"{seconds // size}{unit}"


def ago(at: datetime | None, now: datetime) -> str:
    """How long ago it was, or nothing."""
    return "" if at is None else span(now - at)


def until(at: datetime | None, now: datetime) -> str:
    """How long it lasts still, or nothing."""
    return "" if at is None else span(at - now)


class Moment(_ParamType):
    """A point in time: ISO 8601 (UTC without an offset), or how long ago: `90s`, `30m`, `2h`, `7d`, `1w`."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            if match := _SPAN.fullmatch(value):
                return datetime.now(UTC) - timedelta(seconds=int(match[1]) * _UNITS[match[2]])
            at = datetime.fromisoformat(value)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is no time; write 2026-01-31T12:00 (UTC) or 30m, 2h, 7d for how long ago", param, ctx)
        return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


MOMENT: Final = Moment()
