"""The circuit: what admits, refuses and learns under a breaker's policy.

A call asks `acquire` for a permit and settles it with what it learnt. Each state change starts a new
generation, and what a permit of an older one brings is ignored. While half-open a permit is a lease: a neutral
result returns it and one that is never settled runs out, so a probe that dies cannot block the next one.

Time is an argument and there is no lock: whoever shares a circuit between threads brings one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.core.outcome import Evidence
from holdfast.machine.breaker import (
    CLOSED,
    FOLLOWED,
    HALF_OPEN,
    OPEN,
    TRANSITIONS,
    Breaker,
    CircuitState,
    Control,
    Trigger,
)
from holdfast.machine.tally import Tally
from holdfast.machine.trip import TripRule

AUTO, ISOLATED, DISABLED, METRICS_ONLY = Control
SUCCESS, FAILURE, NEUTRAL = Evidence


class Permit:
    """Leave to call. `lease` is the instant at which a probe's permit runs out; None is a standing permit."""

    __slots__ = ("generation", "lease")

    def __init__(self, generation: int, lease: float | None = None) -> None:
        self.generation = generation
        self.lease = lease


class Refusal:
    """A no: when to come back (None: nobody knows), what opened the circuit, and under which rule."""

    __slots__ = ("retry_after", "cause", "state", "rule")

    def __init__(self, retry_after: float | None, cause: BaseException | None, state: CircuitState, rule: str) -> None:
        self.retry_after = retry_after
        self.cause = cause
        self.state = state
        self.rule = rule


class Change:
    """One transition, as it happened."""

    __slots__ = ("from_state", "to_state", "trigger", "generation", "at", "failure_count", "error")

    def __init__(
        self,
        from_state: CircuitState,
        to_state: CircuitState,
        trigger: Trigger,
        generation: int,
        at: float,
        failure_count: int,
        error: BaseException | None,
    ) -> None:
        self.from_state = from_state
        self.to_state = to_state
        self.trigger = trigger
        self.generation = generation
        self.at = at
        self.failure_count = failure_count
        self.error = error


class Outage:
    """What a circuit knows while it is not closed; `next_test` is None while it is isolated.

    `opened_for` is also how long a probe's lease lasts. `probed` is (failed, duration) of the settled probes.
    """

    __slots__ = ("next_test", "opened_for", "rounds", "opened_by", "rule", "half_open_at", "leases", "probed")

    def __init__(
        self, next_test: float | None, opened_for: float, rounds: int, opened_by: BaseException | None, rule: str
    ) -> None:
        self.next_test = next_test
        self.opened_for = opened_for
        self.rounds = rounds
        self.opened_by = opened_by
        self.rule = rule
        self.half_open_at = 0.0
        self.leases: dict[Permit, float] = {}
        self.probed: list[tuple[bool, float]] = []


class Circuit:
    """The live state of one breaker.

    `gate` is the generation while calls may go straight through (closed, under automatic control), else 0: a
    caller may read it instead of acquiring, and settle with that number. `dirty` is True when a success must be
    settled although the policy only heeds successes after a failure. `bar` holds until when everything is refused and
    what opened the circuit, in one object that can be read without a lock; None if the machine must be asked.
    `changes` are the transitions that nobody has taken yet, None if there are none.
    """

    __slots__ = (
        "_tallies", "bar", "changed_at", "changes", "control", "dirty", "gate", "generation", "outage", "policy",
        "state",
    )  # fmt: skip

    def __init__(self, policy: Breaker, now: float) -> None:
        self.policy = policy
        self.state: CircuitState = CLOSED
        self.control: Control = AUTO
        self.generation = self.gate = 1
        self.bar: tuple[float, BaseException | None] | None = None
        self.dirty = False
        self.changed_at = now
        self.outage: Outage | None = None
        # Most circuits never see a failure, so everything else is made when it is needed.
        self._tallies: tuple[Tally, ...] | None = None
        self.changes: list[Change] | None = None

    @property
    def next_test(self) -> float | None:
        """When the next probe is due; None while closed or isolated."""
        return None if self.outage is None else self.outage.next_test

    @property
    def opened_by(self) -> BaseException | None:
        return None if self.outage is None else self.outage.opened_by

    @property
    def rule(self) -> str:
        """What opened it, in words; empty while closed."""
        return "" if self.outage is None else self.outage.rule

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

    def failed_at(self, now: float) -> list[float]:
        """The instants of the failures that still count, oldest first; only a `count` rule keeps them."""
        return [at for tally in self._tallies or () for at in tally.instants(now)]

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
        if self.changes is None:
            return ()
        changes, self.changes = tuple(self.changes), None
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
        seconds = self.open_seconds(rounds)
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
        verdict = self.policy.verdict(outage.probed)
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

    def open_seconds(self, rounds: int) -> float:
        """How long to stay open after so many failed half-open rounds."""
        return self.policy.open_seconds(rounds)

    def _outage(self, now: float, rule: str, error: BaseException | None, rounds: int = 0) -> Outage:
        seconds = self.open_seconds(rounds)
        return Outage(now + seconds, seconds, rounds, error, rule)

    def _move(self, trigger: Trigger, now: float, outage: Outage | None) -> None:
        """The only way to another state; a row that leads back to its own begins a new generation silently."""
        before, after = self.state, FOLLOWED.get(trigger) or TRANSITIONS[self.state, trigger]
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
            self.changes = [*(self.changes or ()), change]

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
