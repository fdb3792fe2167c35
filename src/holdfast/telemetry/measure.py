"""What a metrics sink exports without knowing it: events that say how they are counted, and numbers that are read."""

from __future__ import annotations

import logging
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from operator import add
from typing import ClassVar, Final, Generic, NamedTuple, TypeVar

from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.telemetry.events import GuardEvent
from holdfast.telemetry.metrics import Labels

T = TypeVar("T")
MAX_AGE_S: Final = 5.0
"""How old a number of the store may be, unless somebody says otherwise."""
SHARE: Final = 20
"""An answer that took long is kept for so many times as long, so that asking takes a twentieth of the time at most."""
_log: Final = logging.getLogger("holdfast")


class Measure(NamedTuple):
    """How an event is counted: by its operation key, under the label `key`, and by these of its fields.

    `seconds` is the field to make a histogram of, if there is one, and `timed` says what it is the time of. Names are
    dotted; a sink writes them as it must.
    """

    name: str
    text: str
    labels: tuple[str, ...] = ()
    key: str = "operation"
    seconds: str | None = None
    timed: str = "duration"

    def label_names(self) -> tuple[str, ...]:
        return (self.key, *self.labels)

    def label_values(self, event: GuardEvent) -> tuple[str, ...]:
        return (event.operation_key, *(str(getattr(event, field)) for field in self.labels))


class MeasuredEvent(GuardEvent):
    """An event that metrics sinks count."""

    __slots__ = ()
    measure: ClassVar[Measure]


Expected = Callable[[], Iterable[tuple[Measure, tuple[str, ...]]]]
"""What may be counted, by the values of its labels: asked for at each scrape, and shown as 0 until it is."""

Values = Mapping[tuple[str, ...], float]
"""Numbers by the values of their labels."""


class Reading(NamedTuple):
    """Numbers that are asked for when the metrics are: a gauge, or a counter that only grows.

    `read` may raise; then the scrape goes on without them.
    """

    name: str
    text: str
    labels: tuple[str, ...]
    read: Callable[[], Values]
    grows: bool = False

    def values(self) -> Values:
        """What there is to export now."""
        try:
            return self.read()
        except Exception:  # somebody's function, or a store that is away
            _log.warning("the metric %s could not be read", self.name, exc_info=True)
            return {}


class Fresh(Generic[T]):
    """An answer that is asked for again when it is older than `seconds`, or than 20 times as long as it took; so is a
    failure to answer."""

    def __init__(self, ask: Callable[[], T], seconds: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self._ask = ask
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.RLock()
        self._known: T | None = None
        self._ask_at = -math.inf

    def __call__(self) -> T | None:
        """The answer, or None while there is none."""
        with self._lock:
            now = self._clock.monotonic()
            if now >= self._ask_at:
                self._known = None
                try:
                    self._known = self._ask()
                except Exception as error:
                    _log.warning("what is stored could not be counted: %s", type(error).__name__)
                took = self._clock.monotonic() - now
                self._ask_at = now + max(self._seconds, SHARE * took)
            return self._known


def kept_values(
    ask: Callable[[], Iterable[tuple[tuple[str, ...], float]]],
    max_age: float,
    clock: Clock,
    join: Callable[[float, float], float] = add,
) -> Callable[[], Values]:
    """Numbers of a store, for a `Reading`: asked for at most every `max_age` seconds, by labels that are bounded; those
    that come to share a label are joined.
    """
    labels: defaultdict[int, Labels] = defaultdict(Labels)

    def read() -> Values:
        found: dict[tuple[str, ...], float] = {}
        for values, number in ask():
            key = tuple(labels[at](str(value)) for at, value in enumerate(values))
            found[key] = join(found[key], number) if key in found else number
        return found

    fresh = Fresh(read, max_age, clock)
    return lambda: fresh() or {}
