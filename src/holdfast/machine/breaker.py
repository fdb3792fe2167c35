"""The circuit breaker: its states, what moves between them, and its policy.

The live state that goes through them is `machine/circuit.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from holdfast.core.check import check_seconds, check_whole
from holdfast.errors import PolicyError
from holdfast.machine.trip import HeedsSuccess, TripRule, count


class CircuitState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


CircuitBreakerState = CircuitState


class Control(StrEnum):
    """Who decides: the rules (auto), or an operator."""

    AUTO = "auto"
    ISOLATED = "isolated"  # everything is refused
    DISABLED = "disabled"  # everything is admitted, nothing is recorded
    METRICS_ONLY = "metrics_only"  # everything is admitted, results are tallied, the state stays


class Trigger(StrEnum):
    """Why a circuit changed its state."""

    TRIPPED = "tripped"
    TRIPPED_BY_HAND = "tripped_by_hand"
    PROBE_ADMITTED = "probe_admitted"
    RECOVERED = "recovered"
    RELAPSED = "relapsed"
    HALF_OPEN_EXPIRED = "half_open_expired"
    ISOLATED = "isolated"
    RELEASED = "released"
    CLOSED_BY_HAND = "closed_by_hand"
    RESET = "reset"
    RESTORED = "restored"
    # What another process decided about a shared breaker, and this one follows.
    FLEET_OPENED = "fleet_opened"
    FLEET_HALF_OPENED = "fleet_half_opened"
    FLEET_CLOSED = "fleet_closed"


CLOSED, OPEN, HALF_OPEN = CircuitState

TRANSITIONS: Final[Mapping[tuple[CircuitState, Trigger], CircuitState]] = {
    (CLOSED, Trigger.TRIPPED): OPEN,
    (CLOSED, Trigger.TRIPPED_BY_HAND): OPEN,
    (CLOSED, Trigger.ISOLATED): OPEN,
    (CLOSED, Trigger.RESTORED): OPEN,
    (CLOSED, Trigger.RESET): CLOSED,
    (OPEN, Trigger.PROBE_ADMITTED): HALF_OPEN,
    (OPEN, Trigger.ISOLATED): OPEN,
    (OPEN, Trigger.RELEASED): CLOSED,
    (OPEN, Trigger.CLOSED_BY_HAND): CLOSED,
    (OPEN, Trigger.RESET): CLOSED,
    (HALF_OPEN, Trigger.RECOVERED): CLOSED,
    (HALF_OPEN, Trigger.RELAPSED): OPEN,
    (HALF_OPEN, Trigger.HALF_OPEN_EXPIRED): OPEN,
    (HALF_OPEN, Trigger.TRIPPED_BY_HAND): OPEN,
    (HALF_OPEN, Trigger.ISOLATED): OPEN,
    (HALF_OPEN, Trigger.CLOSED_BY_HAND): CLOSED,
    (HALF_OPEN, Trigger.RESET): CLOSED,
}

FOLLOWED: Final[Mapping[Trigger, CircuitState]] = {
    Trigger.FLEET_OPENED: OPEN,
    Trigger.FLEET_HALF_OPENED: HALF_OPEN,
    Trigger.FLEET_CLOSED: CLOSED,
}
"""From any state: the table above held where it was decided."""

OPEN_FOR = 30.0

OpenFor = float | Callable[[int], float]


@dataclass(frozen=True, slots=True, init=False)
class Breaker:
    """Opens on any of its rules, refuses for `open_for` seconds, then lets probes decide.

    `open_for` may be a function of the failed half-open rounds since the last close; it is asked
    ahead of each opening, and where it raises or gives no usable time the default of 30 s is taken.

    Half-open, the circuit closes at `successes` good probes and opens again once `out_of` probes cannot bring
    them. A ratio or slow rule judges by its own rate instead, when `out_of` probes have settled (`min_calls`
    does not apply to them). With both kinds of rules, both must be content to close, and either reopens.

    At most `probes` run at once (default `out_of`), and never more than results are still missing.
    `half_open_for` limits the time in half-open; it counts as a failed round.
    """

    rules: tuple[TripRule, ...]
    open_for: OpenFor
    successes: int
    out_of: int
    probes: int
    half_open_for: float | None
    terminal_is_success: bool
    name: str | None
    id: str | None
    heeds_success: HeedsSuccess = field(compare=False, repr=False)

    def __init__(
        self,
        *rules: TripRule,
        open_for: OpenFor = OPEN_FOR,
        successes: int = 1,
        out_of: int | None = None,
        probes: int | None = None,
        half_open_for: float | None = None,
        terminal_is_success: bool = True,
        name: str | None = None,
        id: str | None = None,
    ) -> None:
        """Raises PolicyError for a value that cannot work."""
        put = object.__setattr__
        put(self, "rules", rules or (count(5, window=60.0),))
        put(self, "open_for", open_for)
        put(self, "successes", successes)
        put(self, "out_of", successes if out_of is None else out_of)
        put(self, "probes", self.out_of if probes is None else probes)
        put(self, "half_open_for", half_open_for)
        put(self, "terminal_is_success", terminal_is_success)
        put(self, "name", name)
        put(self, "id", id)
        self._check()
        put(self, "heeds_success", _strongest(self.rules))

    def _check(self) -> None:
        for rule in self.rules:
            if not isinstance(rule, TripRule):
                raise PolicyError(f"Breaker.rules must be trip rules, got {rule!r}; use count(5, window=60)")
        _check_open_for(self.open_for)
        check_whole("Breaker.successes", self.successes, "use successes=1 to close at the first good probe")
        check_whole("Breaker.out_of", self.out_of, "leave it out to ask for that many successes in a row")
        check_whole("Breaker.probes", self.probes, "use probes=1 for one probe at a time")
        if self.out_of < self.successes:
            fix = f"use out_of={self.successes} or more"
            raise PolicyError(f"Breaker.out_of must be at least successes, got {self.out_of}; {fix}")
        if self.probes > self.out_of:
            fix = f"use probes={self.out_of} or fewer"
            raise PolicyError(f"Breaker.probes must be at most out_of, got {self.probes}; {fix}")
        if self.half_open_for is not None:
            check_seconds("Breaker.half_open_for", self.half_open_for, "use None for no limit")
        _check_flag("Breaker.terminal_is_success", self.terminal_is_success)
        _check_text("Breaker.name", self.name, "leave it out to use the guard's name")
        _check_text("Breaker.id", self.id, "leave it out for none")

    @property
    def window(self) -> float:
        """The longest time for which any rule remembers a result."""
        return max(rule.span for rule in self.rules)

    def open_seconds(self, rounds: int) -> float:
        """How long to stay open after so many failed half-open rounds."""
        if not callable(self.open_for):
            return self.open_for
        try:
            seconds = float(self.open_for(rounds))
        except Exception:
            return OPEN_FOR  # The caller's own result must not be replaced by a fault in the policy.
        return seconds if 0 < seconds < math.inf else OPEN_FOR

    def verdict(self, probed: Sequence[tuple[bool, float]]) -> Trigger | None:
        """What settled probes, each (failed, duration), decide: RECOVERED, RELAPSED or nothing yet."""
        settled, missing = len(probed), self.out_of - len(probed)
        successes = sum(not failed for failed, _ in probed)
        rated = [(rule, rule.rate) for rule in self.rules if rule.rate is not None]
        if len(rated) < len(self.rules) and successes + missing < self.successes:
            return Trigger.RELAPSED
        if not rated:
            return Trigger.RECOVERED if successes >= self.successes else None
        if missing > 0:
            return None
        for rule, rate in rated:
            if sum(rule.counts_against(*result) for result in probed) / settled >= rate:
                return Trigger.RELAPSED
        return Trigger.RECOVERED

    def describe(self) -> str:
        """One line: when it opens, for how long, and what closes it."""
        length = "a time that depends on failed rounds" if callable(self.open_for) else f"{self.open_for:g} s"
        closing = f"{self.successes} of {self.out_of} probes succeed"
        if all(rule.rate is not None for rule in self.rules):
            closing = f"{self.out_of} probes stay below the rate"
        rules = " or ".join(map(str, self.rules))
        return f"breaker: opens on {rules}, for {length}; closes when {closing}"


def _strongest(rules: tuple[TripRule, ...]) -> HeedsSuccess:
    heeds = {rule.heeds_success for rule in rules}
    return "always" if "always" in heeds else "after_failure" if "after_failure" in heeds else "never"


def _check_open_for(open_for: OpenFor) -> None:
    label, seconds = "Breaker.open_for", open_for
    if callable(open_for):
        label = "Breaker.open_for(0)"
        try:
            seconds = open_for(0)
        except Exception as error:
            raise PolicyError(f"{label} must give seconds, got {error!r}; take the failed rounds") from error
    check_seconds(label, seconds, f"use {OPEN_FOR:g}, or isolate() to keep a circuit open")


def _check_flag(label: str, value: object) -> None:
    if not isinstance(value, bool):
        raise PolicyError(f"{label} must be True or False, got {value!r}; use True for the default")


def _check_text(label: str, value: object, fix: str) -> None:
    if value is not None and (not isinstance(value, str) or not value):
        raise PolicyError(f"{label} must be a text that is not empty, got {value!r}; {fix}")


def diagram() -> str:
    """The transition table as a Mermaid state diagram."""
    return "\n".join(_diagram_lines()) + "\n"


def _diagram_lines() -> Iterator[str]:
    yield "stateDiagram-v2"
    yield f"    [*] --> {CLOSED}"
    for (state, trigger), target in TRANSITIONS.items():
        yield f"    {state} --> {target}: {trigger.replace('_', ' ')}"
