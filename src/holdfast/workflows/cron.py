"""When a cron expression ticks, in a time zone.

At a fixed time a day has one tick, also when clocks are changed: what would fall into the hour that is left out comes
right after it, and of an hour that comes twice the first one counts. What has a `*` for its minute or hour ticks
whenever the clock on the wall says so, as with cron: not at all in an hour that is left out, and in both of one that
comes twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from holdfast.errors import ConfigurationError, MissingExtra
from holdfast.store.codec import instant, micros

if TYPE_CHECKING:
    from cronsim import CronSim

_NICKNAMES: Final = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}  # fmt: skip
_MARGIN: Final = timedelta(hours=3)
"""More than clocks are ever changed by."""


class Cron:
    """An expression of five fields, or six that begin with seconds, or a name such as @daily.

    Raises ConfigurationError for one that is wrong, that never ticks, or a zone that nobody knows.
    """

    def __init__(self, expression: str, timezone: str = "UTC") -> None:
        self.expression = expression
        self.timezone = timezone
        if not isinstance(expression, str):
            raise ConfigurationError(f"a cron expression is a text such as '0 3 * * *', got {expression!r}")
        try:
            self._zone = ZoneInfo(timezone)
        except (ValueError, OSError, LookupError, TypeError):
            raise ConfigurationError(
                f"no time zone {timezone!r} is known here; use a name such as Europe/Berlin or UTC"
            ) from None
        if self.after(micros(datetime(2024, 1, 1, tzinfo=self._zone))) is None:
            raise ConfigurationError(f"cron {expression!r} never ticks; look at its day and month")

    def after(self, at: int) -> int | None:
        """The first tick after a time, both in microseconds; None if there is none in the next 50 years."""
        return next(self._ticks(at), None)

    def next(self, at: int, number: int) -> list[int]:
        """The next so many ticks after a time."""
        return list(islice(self._ticks(at), number))

    def between(self, first: int, last: int, most: int) -> list[int]:
        """The ticks from one time to another, both included; the last `most` of them."""
        start = first - 1
        # Back from the end first: the way from the start may be years of minutes. The way forward is the one that
        # knows how clocks are changed, so it begins somewhat earlier.
        for number, at in enumerate(self._sim(last + 1, reverse=True)):
            if micros(at) < first:
                break
            if number >= most:
                start = max(start, micros(at - _MARGIN))
                break
        found: list[int] = []
        for tick in self._ticks(start):
            if tick > last:
                break
            found.append(tick)
        return found[-most:] if most else []

    def _ticks(self, at: int) -> Iterator[int]:
        last = at
        for one in self._sim(at):
            tick = micros(one)
            if tick > last:
                last = tick
                yield tick

    def _sim(self, at: int, *, reverse: bool = False) -> CronSim:
        try:
            from cronsim import CronSim, CronSimError
        except ModuleNotFoundError as error:
            raise MissingExtra("schedules need cronsim; run: pip install 'holdfast[cron]'") from error
        text = _NICKNAMES.get(self.expression, self.expression)
        try:
            return CronSim(text, instant(at).astimezone(self._zone), reverse=reverse)
        except CronSimError as error:
            story = f"cron {self.expression!r} is wrong: {str(error).lower()}; it has minute, hour, day of the month,"
            raise ConfigurationError(f"{story} month and day of the week, such as '0 3 * * *'") from None
