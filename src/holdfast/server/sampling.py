"""The figures of the overview over the last hour, in memory: sampled every five seconds, by one at a time.

While the store is away nothing is sampled, and the curves have a gap. What is slow to count is counted here, so that
whoever looks at the overview need not wait for it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final, NamedTuple

from fastapi import FastAPI, Request

from holdfast.app import Holdfast
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.core.redact import redact
from holdfast.views.overview import doctor_figures, quick_figures, series_values, slow_figures

STEP_S: Final = 5
MOST_MINUTES: Final = 60
SLOW_FOR_S: Final = 2 * STEP_S
DOCTOR_FOR_S: Final = 30.0
_SPARED: Final = 20
_KEPT: Final = MOST_MINUTES * 60 // STEP_S
_LOG: Final = logging.getLogger("holdfast.server")
_OPENING: Final = threading.Lock()


class Sample(NamedTuple):
    """The figures of one step; `at` is its number since 1970."""

    at: int
    values: Mapping[str, float | None]


class Series(NamedTuple):
    """Curves: a value for each time, None where nothing is known. `away` says since when the store does not answer."""

    times: list[int]
    series: dict[str, list[float | None]]
    away_since: datetime | None
    away: str


class Found(NamedTuple):
    """A value, when somebody began to look for it, and how many seconds that took."""

    at: float
    took: float
    value: dict[str, Any]


class Kept:
    """A value that is found out again once it is older than it may be; by one thread, while others wait for it.

    What takes long to find out may be older, so that a store is never asked for most of its time.
    """

    def __init__(self, find: Callable[[], dict[str, Any]], clock: Clock) -> None:
        self._find = find
        self._clock = clock
        self._lock = threading.Lock()
        self._found: Found | None = None

    def get(self, age_s: float) -> dict[str, Any]:
        """The value, at most so old."""
        found = self._found
        if found is not None and self._clock.monotonic() - found.at <= max(age_s, _SPARED * found.took):
            return found.value
        with self._lock:  # no call waits for it, only those who ask for the same
            if self._found is found or self._found is None:
                began = self._clock.monotonic()
                value = self._find()
                self._found = Found(began, self._clock.monotonic() - began, value)
            return self._found.value


class Sampling:
    """Samples of the last hour. `beat` takes one, unless the one of this step is there."""

    def __init__(self, hold: Holdfast, clock: Clock = SYSTEM_CLOCK) -> None:
        self._hold = hold
        self._clock = clock
        self._lock = threading.Lock()
        self._taking = threading.Lock()
        self._kept: deque[Sample] = deque(maxlen=_KEPT)
        self._away: tuple[datetime, str] | None = None
        self._slow = Kept(lambda: slow_figures(hold), clock)
        self._doctor = Kept(lambda: doctor_figures(hold), clock)

    def slow(self, age_s: float = SLOW_FOR_S) -> dict[str, Any]:
        """What is slow to count, as of a few seconds ago."""
        return self._slow.get(age_s)

    def doctor(self) -> dict[str, Any]:
        """What the doctor has found, as of a short while ago."""
        return self._doctor.get(DOCTOR_FOR_S)

    def beat(self) -> bool:
        """Take the sample of this step. False if it is there, somebody takes it just now, or the store is away."""
        if not self._taking.acquire(blocking=False):
            return False
        try:
            step = int(self._clock.wall().timestamp()) // STEP_S
            if self._kept and self._kept[-1].at >= step:
                return False
            values = series_values(quick_figures(self._hold), self.slow(STEP_S - 1))
            self.doctor()
        except Exception as error:  # whatever is wrong with the store: the next step may find it well
            _LOG.debug("no sample was taken: %s", error)
            with self._lock:
                since = self._clock.wall() if self._away is None else self._away[0]
                self._away = (since, redact(f"{type(error).__name__}: {error}"))
            return False
        finally:
            self._taking.release()
        with self._lock:
            self._away = None
            self._kept.append(Sample(step, values))
        return True

    def since(self, minutes: int) -> Series:
        """The last minutes, from the first sample that there is; a step without one is a gap."""
        with self._lock:
            kept, away = list(self._kept), self._away
        now = int(self._clock.wall().timestamp()) // STEP_S
        first = max(now - minutes * 60 // STEP_S + 1, kept[0].at if kept else now)
        last = max(now if away is not None else first, kept[-1].at if kept else first)
        found = {one.at: one.values for one in kept}
        steps = range(first, last + 1) if kept else range(0)
        names = dict.fromkeys(name for one in kept for name, value in one.values.items() if value is not None)
        series = {name: [found.get(at, {}).get(name) for at in steps] for name in names}
        return Series([at * STEP_S for at in steps], series, *((None, "") if away is None else away))


def sampling_of(request: Request) -> Sampling:
    """The app's samples. An app that is mounted in another one has no start of its own: it samples when it is asked."""
    state = request.app.state
    with _OPENING:
        found: Sampling | None = getattr(state, "sampling", None)
        if found is None:
            found = state.sampling = Sampling(state.hold)
    return found


@asynccontextmanager
async def sampling(app: FastAPI) -> AsyncIterator[None]:
    """Sample while the app runs."""
    samples = app.state.sampling = Sampling(app.state.hold)
    beating = asyncio.create_task(_beat(samples))
    try:
        yield
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)


async def _beat(samples: Sampling) -> None:
    while True:
        await asyncio.to_thread(samples.beat)
        await asyncio.sleep(STEP_S)
