"""An operator's word on a breaker: kept for every process, and told once to whoever listens in this one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from holdfast.breakers.breakers import Breakers
from holdfast.machine.breaker import Trigger
from holdfast.store.codec import clean_text
from holdfast.telemetry.events import CircuitStateChanged
from holdfast.telemetry.hub import Hub

PIN_MINUTES: Final = 90
LONGEST_PIN_MINUTES: Final = 1440


@dataclass(frozen=True, slots=True)
class BreakerControl:
    """What an operator may say to the breakers of a store. `by` is who says it; empty for nobody in particular."""

    breakers: Breakers
    hub: Hub

    def force_open(self, name: str, reason: str, by: str = "", minutes: int = PIN_MINUTES) -> None:
        """Hold a breaker open: every process refuses its calls, for so many minutes. It is made if there is none."""
        force = partial(self.breakers.atomic_force_open, name, reason, by or None, minutes)
        self._act(name, Trigger.ISOLATED, force)

    def force_close(self, name: str, reason: str, by: str = "", minutes: int = PIN_MINUTES) -> None:
        """Hold a breaker closed: it lets every call through and never trips. It is made if there is none."""
        force = partial(self.breakers.atomic_force_close, name, reason, by or None, ttl_minutes=minutes)
        self._act(name, Trigger.CLOSED_BY_HAND, force)

    def reset(self, name: str, reason: str = "", by: str = "") -> bool:
        """Close a breaker and forget its counts and its pin; False if there is none."""
        return self._act(name, Trigger.RESET, partial(self.breakers.atomic_reset, name, reason, by or None))

    def clear(self, name: str) -> bool:
        """Leave a pinned breaker to itself; its state stays what it is. False if there is none."""
        return self.breakers.clear_manual_control(name)

    def _act(self, name: str, cause: Trigger, step: Callable[[], tuple[bool, str, str]]) -> bool:
        """Do it, and see that who listens in this process is told once: by the program's own circuit, if it has one."""
        is_here = clean_text(name) in self.breakers.status().shared
        if is_here:
            self.breakers.sharing.sync()
        done, before, after = step()
        if is_here:
            self.breakers.sharing.sync()
        elif before != after:
            self.hub.emit(CircuitStateChanged(name, "", name, before, after, cause.value))
        return done
