"""The circuit breaker: its policy, and the machine that admits, refuses and learns.

A call asks `acquire` for a permit and settles it with what it learnt. Each state change starts a new
generation, and what a permit of an older one brings is ignored. While half-open a permit is a lease: a neutral
result returns it and one that is never settled runs out, so a probe that dies cannot block the next one.

Time is an argument and there is no lock: whoever shares a circuit between threads brings one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from holdfast.core.outcome import Evidence
from holdfast.errors import PolicyError
from holdfast.machine.trip import HeedsSuccess, Tally, TripRule, check_seconds, check_whole, count


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


CLOSED, OPEN, HALF_OPEN = CircuitState
AUTO, ISOLATED, DISABLED, METRICS_ONLY = Control
SUCCESS, FAILURE, NEUTRAL = Evidence

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

OPEN_FOR = 30.0

OpenFor = float | Callable[[int], float]


@dataclass(frozen=True, slots=True, init=False)
class Breaker:
    """Opens on any of its rules, refuses for `open_for` seconds, then lets probes decide.

    `open_for` may be a function of the failed half-open rounds since the last close; it runs while the circuit
    is locked, so it must be quick, and where it raises or gives no usable time the default of 30 s is taken.

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


@dataclass(slots=True, eq=False)
class Permit:
    """Leave to call. `lease` is the instant at which a probe's permit runs out; None is a standing permit."""

    generation: int
    lease: float | None = None


@dataclass(slots=True)
class Refusal:
    """A no: when to come back (None: nobody knows), what opened the circuit, and under which rule."""

    retry_after: float | None
    cause: BaseException | None
    state: CircuitState
    rule: str


@dataclass(slots=True, frozen=True)
class Change:
    """One transition, as it happened."""

    from_state: CircuitState
    to_state: CircuitState
    trigger: Trigger
    generation: int
    at: float
    failure_count: int
    error: BaseException | None


@dataclass(slots=True, eq=False)
class Outage:
    """What a circuit knows while it is not closed; `next_test` is None while it is isolated.

    `opened_for` is also how long a probe's lease lasts. `probed` is (failed, duration) of the settled probes.
    """

    next_test: float | None
    opened_for: float
    rounds: int
    opened_by: BaseException | None
    rule: str
    half_open_at: float = 0.0
    leases: dict[Permit, float] = field(default_factory=dict)
    probed: list[tuple[bool, float]] = field(default_factory=list)


class Circuit:
    """The live state of one breaker.

    `gate` is the generation while calls may go straight through (closed, under automatic control), else 0: a
    caller may read it instead of acquiring, and settle with that number. `dirty` is True when a success must be
    settled although the policy only heeds successes after a failure. `bar` holds until when everything is refused and
    what opened the circuit, in one object that can be read without a lock; None if the machine must be asked.
    """

    __slots__ = (
        "_changes", "_tallies", "bar", "changed_at", "control", "dirty", "gate", "generation", "outage", "policy",
        "state",
    )  # fmt: skip

    policy: Breaker
    state: CircuitState
    control: Control
    generation: int
    gate: int
    bar: tuple[float, BaseException | None] | None
    dirty: bool
    changed_at: float
    outage: Outage | None
    _tallies: tuple[Tally, ...] | None
    _changes: list[Change] | None

    def __init__(self, policy: Breaker, now: float) -> None:
        self.policy = policy
        self.state = CLOSED
        self.control = AUTO
        self.generation = self.gate = 1
        self.bar = None
        self.dirty = False
        self.changed_at = now
        self.outage = None
        # Most circuits never see a failure, so everything else is made when it is needed.
        self._tallies = None
        self._changes = None

    @property
    def next_test(self) -> float | None:
        """When the next probe is due; None while closed or isolated."""
        return None if self.outage is None else self.outage.next_test

    @property
    def opened_by(self) -> BaseException | None:
        return None if self.outage is None else self.outage.opened_by

    @property
    def rounds(self) -> int:
        """Failed half-open rounds since the last close."""
        return 0 if self.outage is None else self.outage.rounds

    def peek(self, now: float) -> Refusal | None:
        """What `acquire` would say, without changing anything; None means yes."""
        outage, state = self.outage, self.state
        if outage is None or self.control is DISABLED or self.control is METRICS_ONLY:
            return None
        if state is HALF_OPEN and (lapsed := self._lapsed(outage, now)) is not None:
            outage, state = lapsed, OPEN
        if state is OPEN:
            due = outage.next_test
            return None if due is not None and now >= due else _refuse(OPEN, outage, due, now)
        held = [lease for lease in outage.leases.values() if now < lease]
        wanted = max(1, self.policy.out_of - len(outage.probed))
        if len(held) < min(self.policy.probes, wanted):
            return None
        return _refuse(HALF_OPEN, outage, min(held), now)

    def acquire(self, now: float) -> Permit | Refusal:
        """A permit to settle, or a refusal. The first call at `next_test` is the probe: half-open."""
        if self.gate:
            return Permit(self.gate)
        if self.control is DISABLED:
            return Permit(0)  # no generation: whenever it is settled, nothing is recorded
        if self.state is HALF_OPEN:
            self._expire(now)
        refusal = self.peek(now)
        if refusal is not None:
            return refusal
        outage = self.outage
        if outage is None or self.control is METRICS_ONLY:
            return Permit(self.generation)
        if self.state is OPEN:
            outage.half_open_at = now
            self._move(Trigger.PROBE_ADMITTED, now, outage)
        for permit in [permit for permit, lease in outage.leases.items() if now >= lease]:
            del outage.leases[permit]
        lease = now + outage.opened_for
        probe = Permit(self.generation, lease)
        outage.leases[probe] = lease
        return probe

    def settle(
        self,
        permit: Permit | int,
        evidence: Evidence,
        now: float,
        duration: float = 0.0,
        error: BaseException | None = None,
    ) -> None:
        """Takes in what a call learnt about the dependency.

        A bare generation is a call without a lease of its own: half-open, it settles the oldest probe.
        Ignored: results of an older generation, results while open, and a probe whose lease was given away.
        """
        if self.outage is not None:
            self._expire(now)
        if (permit if isinstance(permit, int) else permit.generation) != self.generation:
            return
        outage, control = self.outage, self.control
        held = outage is None or _return_lease(outage, permit)
        if evidence is NEUTRAL or control is DISABLED:
            return
        failed = evidence is FAILURE
        if outage is None or control is METRICS_ONLY:
            rule = self._record(failed, now, duration)
            if rule is not None and control is AUTO:
                self._move(Trigger.TRIPPED, now, self._outage(now, str(rule), error))
        elif held and self.state is HALF_OPEN:
            self._record(failed, now, duration)
            outage.probed.append((failed, duration))
            self._judge(outage, now, error)

    def heed_success(self, generation: int, now: float, duration: float) -> None:
        """`settle` for the success of a call that went straight through: the same, with less to ask."""
        tallies = self._tallies
        if tallies is None or len(tallies) != 1 or generation != self.gate:
            self.settle(generation, Evidence.SUCCESS, now, duration)
            return
        self.dirty = False
        tally = tallies[0]
        if tally.succeed(now, duration) and tally.tripped(now):
            self._move(Trigger.TRIPPED, now, self._outage(now, str(self.policy.rules[0]), None))

    def isolate(self, now: float) -> None:
        """Refuses everything until `close`, `reset` or `enable`."""
        if self.control is not ISOLATED:
            self.control = ISOLATED
            self._move(Trigger.ISOLATED, now, Outage(None, 0.0, self.rounds, self.opened_by, "isolated"))

    def trip(self, now: float, error: BaseException | None = None) -> None:
        """Opens as if a rule had tripped; an open circuit stays as it is."""
        if self.state is not OPEN:
            self._move(Trigger.TRIPPED_BY_HAND, now, self._outage(now, "tripped by hand", error, self.rounds))

    def close(self, now: float) -> None:
        """Closes, and ends an isolation; a closed circuit stays as it is."""
        self._end_isolation()
        if self.state is not CLOSED:
            self._move(Trigger.CLOSED_BY_HAND, now, None)

    def reset(self, now: float) -> None:
        """Closes from any state and forgets what was tallied; calls under way no longer count."""
        self._end_isolation()
        self._move(Trigger.RESET, now, None)

    def disable(self, now: float) -> None:
        """Admits everything, records nothing until `enable`; the state is kept, an isolation ends closed."""
        self._hand_over(DISABLED, now)

    def metrics_only(self, now: float) -> None:
        """Admits everything and only tallies until `enable`; the state is kept, an isolation ends closed."""
        self._hand_over(METRICS_ONLY, now)

    def enable(self, now: float) -> None:
        """Gives control back to the rules; the state is kept, an isolation ends closed."""
        self._hand_over(AUTO, now)

    def adopt_policy(self, policy: Breaker) -> None:
        """Goes on under another policy. State and times stay; the tallies only if the rules are equal."""
        if policy.rules != self.policy.rules:
            self._tallies = None
            self.dirty = False
        self.policy = policy

    def failure_count(self, now: float) -> int:
        """The most that any rule still counts; it stays after opening, and closing empties it."""
        return max((tally.failures(now) for tally in self._tallies or ()), default=0)

    def figures(self, now: float) -> dict[str, Any]:
        """The numbers behind the next decision, by name; those of each rule under `rules`."""
        tallies = self._tallies or tuple(rule.tally() for rule in self.policy.rules)
        outage = self.outage
        seen: dict[str, Any] = self.snapshot(now)
        if outage is not None:
            probed = outage.probed
            seen["rule"] = outage.rule
            seen["opened_for"] = outage.opened_for
            seen["probes_held"] = sum(now < lease for lease in outage.leases.values())
            seen["probes_settled"] = len(probed)
            seen["probes_failed"] = sum(failed for failed, _ in probed)
        seen["rules"] = {str(r): t.figures(now) for r, t in zip(self.policy.rules, tallies, strict=True)}
        return seen

    def take_changes(self) -> tuple[Change, ...]:
        """The transitions since the last time, in order; each is handed out once."""
        if self._changes is None:
            return ()
        changes, self._changes = tuple(self._changes), None
        return changes

    def snapshot(self, now: float) -> dict[str, Any]:
        """What to keep across a restart, in JSON types; no `remaining_open` while closed or isolated."""
        due = self.next_test
        return {
            "state": self.state.value,
            "control": self.control.value,
            "remaining_open": None if due is None else max(0.0, due - now),
            "failure_count": self.failure_count(now),
            "rounds": self.rounds,
        }

    def restore(self, snapshot: Mapping[str, Any], age: float, now: float) -> bool:
        """Takes over a snapshot that is `age` seconds old; False when it is of no use.

        Half-open comes back as open and due. Open time is never longer than the policy's, and evidence older
        than open time plus window is ignored; what an operator ordered does not age. A circuit that is not
        closed or not under automatic control is left alone.
        """
        try:
            state, control = CircuitState(snapshot["state"]), Control(snapshot.get("control", "auto"))
            remaining, rounds = float(snapshot.get("remaining_open") or 0.0), int(snapshot.get("rounds", 0))
        except (KeyError, TypeError, ValueError, OverflowError):
            return False
        if self.outage is not None or self.control is not AUTO:
            return False
        if control is ISOLATED:
            self.isolate(now)
            return True
        self._hand_over(control, now)
        rounds, age = max(0, rounds), max(0.0, age)
        seconds = self.policy.open_seconds(rounds)
        if state is CLOSED or age > seconds + self.policy.window:
            return control is not AUTO
        left = 0.0 if state is HALF_OPEN else min(seconds, max(0.0, remaining - age))
        self._move(Trigger.RESTORED, now, Outage(now + left, seconds, rounds, None, "restored"))
        return True

    def _record(self, failed: bool, now: float, duration: float) -> TripRule | None:
        """Feeds the tallies; the first rule that this result trips, if any."""
        policy, tallies = self.policy, self._tallies
        if tallies is None:
            if not failed and policy.heeds_success != "always":
                return None
            tallies = self._tallies = tuple([rule.tally() for rule in policy.rules])
        self.dirty = failed and policy.heeds_success == "after_failure"
        tripped = None
        for rule, tally in zip(policy.rules, tallies):  # noqa: B905  # made from these rules; checking costs
            against = tally.fail(now, duration) if failed else tally.succeed(now, duration)
            if against and tripped is None and tally.tripped(now):
                tripped = rule
        return tripped

    def _judge(self, outage: Outage, now: float, error: BaseException | None) -> None:
        verdict = _verdict(self.policy, outage.probed)
        if verdict is Trigger.RECOVERED:
            self._move(verdict, now, None)
        elif verdict is Trigger.RELAPSED:
            cause = outage.opened_by if error is None else error
            self._move(verdict, now, self._outage(now, "half-open probes failed", cause, outage.rounds + 1))

    def _lapsed(self, outage: Outage, now: float) -> Outage | None:
        """What follows a half-open time that ran out, counted from that instant: nobody may have called since."""
        limit = self.policy.half_open_for
        if limit is None or now < outage.half_open_at + limit:
            return None
        at = outage.half_open_at + limit
        return self._outage(at, "half-open time ran out", outage.opened_by, outage.rounds + 1)

    def _expire(self, now: float) -> None:
        outage, limit = self.outage, self.policy.half_open_for
        if outage is None or limit is None or self.state is not HALF_OPEN or self.control is not AUTO:
            return
        lapsed = self._lapsed(outage, now)
        if lapsed is not None:
            self._move(Trigger.HALF_OPEN_EXPIRED, outage.half_open_at + limit, lapsed)

    def _outage(self, now: float, rule: str, error: BaseException | None, rounds: int = 0) -> Outage:
        seconds = self.policy.open_seconds(rounds)
        return Outage(now + seconds, seconds, rounds, error, rule)

    def _move(self, trigger: Trigger, now: float, outage: Outage | None) -> None:
        """The only way to another state; a row that leads back to its own begins a new generation silently."""
        before, after = self.state, TRANSITIONS[self.state, trigger]
        failures = self.failure_count(now)
        self.state = after
        self.outage = outage
        self.generation += 1
        self.dirty = False
        if after is CLOSED:
            self._tallies = None
        self._set_gate()
        if after is not before:
            self.changed_at = now
            error = None if outage is None else outage.opened_by
            change = Change(before, after, trigger, self.generation, now, failures, error)
            self._changes = [*(self._changes or ()), change]

    def _set_gate(self) -> None:
        auto = self.control is AUTO
        self.gate = self.generation if self.state is CLOSED and auto else 0
        outage = self.outage
        barred = auto and outage is not None and self.state is OPEN
        self.bar = (outage.next_test or 0.0, outage.opened_by) if barred and outage is not None else None

    def _end_isolation(self) -> None:
        if self.control is ISOLATED:
            self.control = AUTO

    def _hand_over(self, control: Control, now: float) -> None:
        isolated, self.control = self.control is ISOLATED, control
        if isolated:
            self._move(Trigger.RELEASED, now, None)
        else:
            self._set_gate()


def _refuse(state: CircuitState, outage: Outage, due: float | None, now: float) -> Refusal:
    return Refusal(None if due is None else max(0.0, due - now), outage.opened_by, state, outage.rule)


def _return_lease(outage: Outage, permit: Permit | int) -> bool:
    """Whether a probe's lease was still out, and is back now."""
    if isinstance(permit, int):
        oldest = next(iter(outage.leases), None)
        return oldest is not None and outage.leases.pop(oldest, None) is not None
    return outage.leases.pop(permit, None) is not None


def _verdict(policy: Breaker, probed: list[tuple[bool, float]]) -> Trigger | None:
    """What the settled probes decide: RECOVERED, RELAPSED or nothing yet."""
    settled, missing = len(probed), policy.out_of - len(probed)
    successes = sum(not failed for failed, _ in probed)
    rated = [(rule, rule.rate) for rule in policy.rules if rule.rate is not None]
    if len(rated) < len(policy.rules) and successes + missing < policy.successes:
        return Trigger.RELAPSED
    if not rated:
        return Trigger.RECOVERED if successes >= policy.successes else None
    if missing > 0:
        return None
    for rule, rate in rated:
        if sum(rule.counts_against(*result) for result in probed) / settled >= rate:
            return Trigger.RELAPSED
    return Trigger.RECOVERED


def diagram() -> str:
    """The transition table as a Mermaid state diagram."""
    return "\n".join(_diagram_lines()) + "\n"


def _diagram_lines() -> Iterator[str]:
    yield "stateDiagram-v2"
    yield f"    [*] --> {CLOSED}"
    for (state, trigger), target in TRANSITIONS.items():
        yield f"    {state} --> {target}: {trigger.replace('_', ' ')}"
