"""One circuit of this process and what it has in common with the others: the side that a guarded call touches.

Everything here is done under the circuit's lock and without I/O; `exchange.py` talks to the store in the background.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

from holdfast.guard.circuit import LiveCircuit
from holdfast.machine.breaker import CLOSED, HALF_OPEN, OPEN, CircuitState, Control, Trigger
from holdfast.machine.breaker_fleet import NEW, Sight, View, sight
from holdfast.machine.breaker_record import BreakerRecord
from holdfast.machine.circuit import Outage, Permit, Refusal

SILENCE_S: Final = 5.0
"""A store that has not answered for so long is away, even if it has not said so."""

ASK_AGAIN_S: Final = 0.1
SHORTEST_LEASE_S: Final = 2.0
FIRST_HOLD_S: Final = 0.25
_SAME_S: Final = 0.25  # open times that differ by less are the same one, seen through two clocks

When = Callable[[int], float]
"""From the store's microseconds to the circuit's clock."""

News = Literal["trip", "close", "reopen"]
_TRIPS: Final = frozenset({Trigger.TRIPPED, Trigger.TRIPPED_BY_HAND})
_NEWS: Final[dict[Trigger, News]] = {
    Trigger.TRIPPED: "trip",
    Trigger.TRIPPED_BY_HAND: "trip",
    Trigger.RECOVERED: "close",
    Trigger.CLOSED_BY_HAND: "close",
    Trigger.RESET: "close",
    Trigger.RELAPSED: "reopen",
    Trigger.HALF_OPEN_EXPIRED: "reopen",
}
_FLEET: Final = {OPEN: Trigger.FLEET_OPENED, HALF_OPEN: Trigger.FLEET_HALF_OPENED, CLOSED: Trigger.FLEET_CLOSED}


class Token:
    """Leave for one probe in one life of the breaker, until `until` on the circuit's clock."""

    __slots__ = ("granted", "id", "of", "until")

    def __init__(self, id: str, of: Sight, granted: float, until: float) -> None:
        self.id = id
        self.of = of
        self.granted = granted
        self.until = until


class Result(NamedTuple):
    """What a probe came to."""

    token: Token
    failed: bool
    duration: float
    error: BaseException | None


class Story(NamedTuple):
    """What happened to the circuit here, to be told to the others; `left` are the seconds that it stays open."""

    news: News
    by_hand: bool
    left: float
    rounds: int
    rule: str
    failures: int
    error: BaseException | None


class Share:
    """A shared circuit: the `remote` of a `LiveCircuit`."""

    def __init__(self, circuit: LiveCircuit, name: str, wake: Callable[[], object]) -> None:
        self.circuit = circuit
        self.name = name
        self.sight: Sight = NEW
        self.state: CircuitState = CLOSED
        self.alone = False  # open by its own evidence, which too few others share
        self.demand = 0
        self.hold = FIRST_HOLD_S
        self.parked: deque[Token] = deque()
        self.results: deque[Result] = deque()
        self._bound: dict[Permit, Token] = {}
        self._wake = wake
        # A store that has yet to answer is not away: nobody probes without leave before it had its time to.
        self._connected = True
        self._heard_at = circuit.clock.monotonic()
        self._held_closed_until = -math.inf
        self._ask_again = -math.inf
        self._news: News | None = None
        self._by_hand = False
        self._telling = False
        self._following = False
        self._restless = False

    def governs(self, now: float) -> bool:
        """Whether the others have a say now: the store answers, and the breaker is not this process's alone."""
        shared = self.state is not CLOSED or self._news == "trip" or self._telling
        return self._connected and shared and now - self._heard_at <= SILENCE_S

    def moves(self, trigger: Trigger, now: float) -> bool:
        if self._following:
            self._following = False
            return True
        if trigger in _TRIPS and now < self._held_closed_until:
            return False
        if trigger is not Trigger.PROBE_ADMITTED:
            self._bound.clear()
            self._note(trigger)
        self._restless = True
        return True

    def lets_probe(self, now: float) -> bool:
        if not self.governs(now) or any(token.until > now for token in self.parked):
            return True
        outage = self.circuit.outage
        running = () if outage is None else outage.leases
        return any(permit not in running and token.until > now for permit, token in self._bound.items())

    def asked(self, answer: Permit | Refusal, now: float) -> None:
        if not self.governs(now):
            return
        outage = self.circuit.outage
        if isinstance(answer, Permit):
            self.reclaim(outage, now)
            if answer.lease is not None and self.parked:
                self._bound[answer] = self.parked.popleft()
                self.hold = FIRST_HOLD_S
        elif outage is not None and outage.next_test is not None and now >= outage.next_test:
            self.demand = min(self.demand + 1, self.circuit.policy.probes)
            self._restless = self._restless or now >= self._ask_again

    def judges(self, outage: Outage, now: float, error: BaseException | None) -> bool:
        self.reclaim(outage, now)
        if not self.governs(now):
            return False
        # Any permit that was returned will do: they are worth the same.
        if self.parked:
            failed, duration = outage.probed[-1]
            self.results.append(Result(self.parked.pop(), failed, duration, error))
        self._restless = True
        return True

    def nudge(self) -> None:
        if self._restless:
            self._restless = False
            self._wake()

    def reclaim(self, outage: Outage | None, now: float) -> None:
        """Leave that a probe returned may be used by another one, as long as it lasts."""
        for permit in [one for one in self._bound if outage is None or one not in outage.leases]:
            token = self._bound.pop(permit)
            if outage is not None and token.until > now:
                self.parked.append(token)
        if any(token.until <= now for token in self.parked):
            self.parked = deque(token for token in self.parked if token.until > now)

    def next_result(self) -> Result | None:
        with self.circuit.lock:
            return self.results.popleft() if self.results else None

    def keep_result(self, result: Result) -> None:
        """The store could not be told."""
        with self.circuit.lock:
            self.results.appendleft(result)

    def story(self) -> Story | None:
        """What is to be told, which then counts as told."""
        circuit = self.circuit
        with circuit.lock:
            news, self._news = self._news, None
            if news is None or circuit.control is not Control.AUTO:
                return None
            self._telling = news == "trip"
            now, outage = circuit.clock.monotonic(), circuit.outage
            left = 0.0 if outage is None or outage.next_test is None else max(0.0, outage.next_test - now)
            rounds, error = (0, None) if outage is None else (outage.rounds, outage.opened_by)
            return Story(news, self._by_hand, left, rounds, circuit.rule, circuit.failure_count(now), error)

    def untell(self, story: Story) -> None:
        """The store could not be told; try again, unless there is newer news."""
        with self.circuit.lock:
            self._telling = False
            if self._news is None:
                self._news = story.news

    def stay_alone(self) -> None:
        """Its evidence was not enough for the others: an outage of this process's own."""
        with self.circuit.lock:
            self.alone = self.circuit.state is not CLOSED

    def follow(self, view: View, at: When, made: Trigger | None = None, error: BaseException | None = None) -> None:
        """Go where the record is. `made` is the trigger if it was this process that moved it."""

        def decide(now: float) -> tuple[Trigger, Outage | None] | None:
            circuit = self.circuit
            self._telling = False
            if circuit.control is not Control.AUTO or self._news is not None:
                return None  # an operator's word to this process, or something that has yet to be told
            self._see(view, at)
            if self.alone or not self._differs(view, now, at):
                return None
            self._following = True
            trigger = made if made is not None and circuit.state is HALF_OPEN else _FLEET[view.state]
            return trigger, None if view.state is CLOSED else self._outage(view, now, error, at)

        self.circuit.follow(decide, view.rounds, view.rounds + 1)

    def is_settled(self, record: BreakerRecord | None) -> bool:
        """Whether there is nothing to talk about: closed here, closed there, and nothing has happened."""
        if not self.circuit.gate or self._news is not None or self.state is not CLOSED:
            return False
        held = record is not None and record.pinned is not None
        closed = record is None or record.state == CLOSED
        return closed and not held and self._held_closed_until == -math.inf and sight(record) == self.sight

    def is_resting(self, record: BreakerRecord | None) -> bool:
        """Whether there is nothing to do before somebody speaks up, here or there: nothing is lent, asked for or to be
        told, and no operator's word runs out."""
        busy = self.parked or self._bound or self.results or self.demand or self._news is not None or self.alone
        ends = record is not None and record.manual_override_expires_at is not None
        return not busy and not ends and self.state is not HALF_OPEN and self.circuit.state is self.state

    def heard(self, at: float) -> None:
        """The store has answered a question of that time."""
        self._connected, self._heard_at = True, at

    def lost(self) -> None:
        """The store is away: decide alone, also about the probes that were settled already."""
        if self._connected:
            self._connected = False
            self.circuit.judge_alone()

    def forget(self) -> None:
        """What this process held, and has yet to tell, is its parent's: it was forked."""
        self.parked.clear()
        self.results.clear()
        self._bound.clear()
        self._news = None
        self._telling = False
        self.circuit.begin_process()

    def has_something_to_tell(self) -> bool:
        return bool(self.results) or self._news is not None

    def ageing(self, now: float, seconds: float) -> list[Token]:
        """Leave, unused or in use, that should be made to last longer."""
        with self.circuit.lock:
            outage = self.circuit.outage
            self.reclaim(outage, now)
            # A probe may run for as long as its permit lasts; nobody else should get its place before that.
            used = [token for permit, token in self._bound.items() if permit.lease is not None and permit.lease > now]
            return [token for token in (*self.parked, *used) if token.until - now < seconds * 2 / 3]

    def wants(self) -> int:
        """For how many probes leave is asked for and not there."""
        with self.circuit.lock:
            self.reclaim(self.circuit.outage, self.circuit.clock.monotonic())
            return 0 if self.parked else self.demand

    def grant(self, tokens: Sequence[Token]) -> None:
        with self.circuit.lock:
            self.parked.extend(tokens)
            self.demand = max(0, self.demand - len(tokens))
            if not tokens:
                self._ask_again = self.circuit.clock.monotonic() + ASK_AGAIN_S

    def give_up(self, before: float) -> list[str]:
        """The tokens that were granted before then and are not used, which this process no longer has."""
        with self.circuit.lock:
            self.reclaim(self.circuit.outage, self.circuit.clock.monotonic())
            given = [token for token in self.parked if token.granted <= before]
            if given:
                self.parked = deque(token for token in self.parked if token not in given)
                self.hold = min(self.hold * 2, self.lease_seconds())
                self.demand = 0
            return [token.id for token in given]

    def lease_seconds(self) -> float:
        outage = self.circuit.outage
        return SHORTEST_LEASE_S if outage is None else max(SHORTEST_LEASE_S, outage.opened_for)

    def _note(self, trigger: Trigger) -> None:
        news = _NEWS.get(trigger)
        if self._news == "trip" and news == "close" and not self.alone:
            news = None  # it came and went before anybody was told
        elif self._news == "trip" and news == "reopen":
            news = "trip"
        self._news = news
        self._by_hand = trigger is Trigger.TRIPPED_BY_HAND

    def _see(self, view: View, at: When) -> None:
        """Take in what does not move the circuit."""
        if view.sight != self.sight:
            self.parked = deque(token for token in self.parked if token.of == view.sight)
            self.results = deque(result for result in self.results if result.token.of == view.sight)
            self._bound = {permit: token for permit, token in self._bound.items() if token.of == view.sight}
            self.hold, self.alone = FIRST_HOLD_S, False
            if view.state is not HALF_OPEN:
                self.demand = 0
        self.sight, self.state = view.sight, view.state
        if self.circuit.state is CLOSED or view.state is not CLOSED:
            self.alone = False
        if view.pinned is CLOSED:
            self._held_closed_until = math.inf if view.pin_ends is None else at(view.pin_ends)
        else:
            self._held_closed_until = -math.inf

    def _differs(self, view: View, now: float, at: When) -> bool:
        circuit, outage = self.circuit, self.circuit.outage
        if circuit.state is OPEN and view.state is HALF_OPEN:
            return not self.parked  # its own next probe will move it
        if circuit.state is not view.state or outage is None:
            return circuit.state is not view.state
        if view.state is HALF_OPEN:
            return bool(outage.leases) and not self._bound
        due, until = outage.next_test, None if view.until is None else at(view.until)
        if due is None or until is None:
            return due is not until
        return abs(due - until) > _SAME_S and max(due, until) > now

    def _outage(self, view: View, now: float, error: BaseException | None, at: When) -> Outage:
        circuit = self.circuit
        due = None if view.until is None else at(view.until)
        cause = circuit.opened_by if error is None else error
        outage = Outage(due, circuit.open_seconds(view.rounds), view.rounds, cause, view.cause or "opened elsewhere")
        if view.state is HALF_OPEN:
            outage.next_test = now
            outage.half_open_at = min(now, at(view.half_open_at))
        return outage
