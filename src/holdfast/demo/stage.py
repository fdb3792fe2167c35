"""Where the story happens: the shop, its customers and its worker, and somebody who waits until what is told is so."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.demo.crew import Crew
from holdfast.demo.customers import Customers
from holdfast.demo.ending import Ending
from holdfast.demo.shop import Shop
from holdfast.demo.show import Show
from holdfast.demo.standing import Standing, standing

LOOK_S: Final = 0.25
_TICK_S: Final = 0.05
_QUICKLY: Final = 0.1


class Broken(Exception):
    """What the story promises did not happen in its time."""


@dataclass(slots=True)
class Stage:
    """The parts, and time on it. `quick` leaves out the pauses in which one can look."""

    shop: Shop
    crew: Crew
    customers: Customers
    show: Show
    ending: Ending
    quick: bool = False
    begun: float = field(default_factory=time.monotonic)

    def look(self) -> Standing:
        """How things stand; whoever watches sees it too. Raises Stopped, and Broken if the worker ended by itself."""
        self.ending.check()
        words = self.crew.last_words()
        if words is not None:
            raise Broken(f"the worker ended by itself: {words}")
        stands = standing(self.shop.hold)
        self.show.stand(stands, self.shop.outside.down(), self.crew.pid)
        return stands

    def pause(self, seconds: float) -> None:
        """Let time pass. Raises Stopped."""
        end = time.monotonic() + (seconds * _QUICKLY if self.quick else seconds)
        while (left := end - time.monotonic()) > 0:
            self.look()
            self._wait(min(LOOK_S, left))

    def until(self, promise: str, within_s: float, holds: Callable[[Standing], Any]) -> float:
        """Wait until it is so; the seconds that it took. Raises Broken when that is longer than `within_s`."""
        begun = time.monotonic()
        while not holds(self.look()):
            if time.monotonic() - begun > within_s:
                raise Broken(f"{promise}: not within {within_s:g} s")
            self._wait(LOOK_S)
        return time.monotonic() - begun

    def tell(self, text: str) -> None:
        """Say what has happened."""
        self.show.tell(time.monotonic() - self.begun, text)

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.ending.check()
            time.sleep(min(_TICK_S, left))
