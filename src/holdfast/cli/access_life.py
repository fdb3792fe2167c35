"""How long something lasts, as people write it: `12h`, `30d`, or `never`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    _ParamType = click.ParamType[timedelta | None]
else:
    _ParamType = click.ParamType  # not generic in older releases

NEVER: Final = "never"
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_LENGTH: Final = re.compile(r"([0-9]{1,6})([smhdw])")


class Life(_ParamType):
    """A length of time; None for one without end."""

    name = "length"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta | None:
        if value is None or isinstance(value, timedelta) or value == NEVER:
            return None if value == NEVER else value
        match = _LENGTH.fullmatch(value)
        if match is None:
            self.fail(f"{value!r} is no length of time; write 45m, 12h, 30d, 8w or {NEVER}", param, ctx)
        return timedelta(seconds=int(match[1]) * _UNITS[match[2]])


LIFE_TYPE: Final = Life()
