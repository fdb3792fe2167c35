"""Circuit breaker: stop calling what keeps failing, and find out when it is back."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from itertools import cycle
from typing import Any, Final, Protocol

from holdfast.core.clock import Clock
from holdfast.core.context import ResilienceContext
from holdfast.core.outcome import Evidence, Outcome, OutcomeKind
from holdfast.errors import CircuitOpen, GuardTimeout
from holdfast.guard.call import Call, Next
from holdfast.machine.breaker import Breaker, CircuitState, Control, Trigger
from holdfast.machine.circuit import Change, Circuit, Outage, Permit, Refusal
from holdfast.machine.trip import consecutive
from holdfast.telemetry.events import CircuitStateChanged
from holdfast.telemetry.hub import Hub

FETCHING_S: Final = 0.1
"""When to come back to a circuit that waits for leave to probe."""

# A lock is as large as all the rest of a closed circuit, so many circuits share some. It is only ever held for a
# decision of the machine, and never together with another lock.
_LOCKS: Final = tuple(threading.RLock() for _ in range(64))
_next_lock: Final = cycle(_LOCKS).__next__


def _pause() -> None:
    for lock in _LOCKS:
        lock.acquire()


def _go_on() -> None:
    for lock in _LOCKS:
        lock.release()


if hasattr(os, "register_at_fork"):
    # Or a child might find a circuit in the middle of a decision, under a lock whose holder it does not have.
    os.register_at_fork(before=_pause, after_in_parent=_go_on, after_in_child=_go_on)


class Remote(Protocol):
    """Whoever shares a circuit with other processes. All but `nudge` is asked under the circuit's lock: no I/O."""

    def moves(self, trigger: Trigger, now: float) -> bool:
        """The circuit is about to move; False to keep it where it is."""
        ...

    def lets_probe(self, now: float) -> bool:
        """Whether a probe may go that the circuit itself would let go."""
        ...

    def asked(self, answer: Permit | Refusal, now: float) -> None:
        """A call was admitted or refused while the circuit was not closed."""
        ...

    def judges(self, outage: Outage, now: float, error: BaseException | None) -> bool:
        """A probe was settled; True if its result was taken, and the verdict will come from elsewhere."""
        ...

    def nudge(self) -> None:
        """No lock is held: the time to wake whoever has something to do."""
        ...


class LiveCircuit(Circuit):
    """A circuit that threads and loops may share: every decision under one lock, every event after it.

    With a `remote`, other processes share it too. A call never waits for them: what they decide comes by `follow`.
    """

    __slots__ = ("_clock", "_hub", "_lock", "_planned", "_untold", "name", "remote")

    def __init__(self, name: str, policy: Breaker, clock: Clock, hub: Hub) -> None:
        super().__init__(policy, clock.monotonic())
        self.name = name
        self._clock = clock
        self._hub = hub
        self._lock = _next_lock()
        self._untold: deque[Change] | None = None
        self._planned: dict[int, float] | None = None
        self.remote: Remote | None = None
        self._plan_ahead()

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def lock(self) -> threading.RLock:
        """What its `remote` holds to look at it; for a moment only, and never together with another lock."""
        return self._lock

    def admit(self, now: float) -> Permit | Refusal:
        """A permit to call, or why not. A permit must be settled by `finish`."""
        with self._lock:
            answer = self.acquire(now)
            remote = None if self.gate else self.remote
            if remote is not None:
                remote.asked(answer, now)
            told = self.changes is not None and self._collect()
        if told:
            self._tell()
        if remote is not None:
            remote.nudge()
        return answer

    def finish(
        self,
        permit: Permit | int,
        evidence: Evidence,
        now: float,
        duration: float = 0.0,
        error: BaseException | None = None,
    ) -> None:
        """Give a permit back with what was learned."""
        with self._lock:
            self.settle(permit, evidence, now, duration, error)
            told = self.changes is not None and self._collect()
        if told:
            self._tell()
        if self.remote is not None:
            self.remote.nudge()

    def succeed(self, permit: int, now: float, duration: float) -> None:
        """The fused path's `finish` for a success."""
        lock = self._lock
        lock.acquire()  # half the price of `with`, on the path of every call under a ratio
        try:
            self.heed_success(permit, now, duration)
            told = self.changes is not None and self._collect()
        finally:
            lock.release()
        if told:
            self._tell()

    def tell_changes(self) -> None:
        """Tell what has changed, for whoever has heeded a success under the lock."""
        with self._lock:
            told = self._collect()
        if told:
            self._tell()

    def command(self, verb: str) -> None:
        """An operator's word: isolate, close, reset, disable, metrics_only or enable."""
        with self._lock:
            getattr(Circuit, verb)(self, self._clock.monotonic())
            told = self._collect()
        if told:
            self._tell()

    def change(self, policy: Breaker) -> None:
        """Go on under another policy; state and times stay."""
        with self._lock:
            self.adopt_policy(policy)
        self._plan_ahead()

    def look(self, reader: str) -> Any:
        """What `peek`, `lacks_leave`, `failure_count`, `figures` or `snapshot` say now."""
        with self._lock:
            return getattr(self, reader)(self._clock.monotonic())

    def knock(self) -> Refusal | None:
        """What a call would be told now. Where leave for a probe must come from the others, it is asked for."""
        with self._lock:
            now = self._clock.monotonic()
            refusal, remote = self.peek(now), self.remote
            if refusal is not None and remote is not None:
                remote.asked(refusal, now)
        if remote is not None:
            remote.nudge()
        return refusal

    def follow(self, decide: Callable[[float], tuple[Trigger, Outage | None] | None], *rounds: int) -> None:
        """Move as `decide` says, which is asked under the lock; `rounds` are those of an outage that it may make."""
        self._plan_ahead(*rounds)
        with self._lock:
            now = self._clock.monotonic()
            step = decide(now)
            if step is not None:
                self._move(step[0], now, step[1])
            told = self._collect()
        if told:
            self._tell()

    def judge_alone(self) -> None:
        """Nobody else will judge the probes that were settled so far: do it here."""
        with self._lock:
            outage = self.outage
            if outage is not None and outage.probed and self.state is CircuitState.HALF_OPEN:
                super()._judge(outage, self._clock.monotonic(), None)
            told = self._collect()
        if told:
            self._tell()

    def begin_process(self) -> None:
        """In a forked child: what is being told is told by the parent."""
        with self._lock:
            self._untold = None

    def peek(self, now: float) -> Refusal | None:
        refusal = super().peek(now)
        remote, outage = self.remote, self.outage
        if refusal is not None or remote is None or outage is None or self.control is not Control.AUTO:
            return refusal
        return None if remote.lets_probe(now) else Refusal(FETCHING_S, outage.opened_by, self.state, outage.rule)

    def lacks_leave(self, now: float) -> bool:
        """Whether a probe is due, and only leave from the others is missing, which is given to whoever asks."""
        return super().peek(now) is None and self.peek(now) is not None

    def open_seconds(self, rounds: int) -> float:
        # A function of the user's should not run under the lock, so it was asked ahead where that was possible.
        planned = self._planned
        known = None if planned is None else planned.get(rounds)
        return self.policy.open_seconds(rounds) if known is None else known

    def _judge(self, outage: Outage, now: float, error: BaseException | None) -> None:
        if self.remote is None or not self.remote.judges(outage, now, error):
            super()._judge(outage, now, error)

    def _move(self, trigger: Trigger, now: float, outage: Outage | None) -> None:
        if self.remote is None or self.remote.moves(trigger, now):
            super()._move(trigger, now, outage)

    def _plan_ahead(self, *also: int) -> None:
        """Ask a user's `open_for` for the next opening (and for other rounds), while no lock is held."""
        if callable(self.policy.open_for):
            outage = self.outage
            rounds = (0,) if outage is None else (outage.rounds, outage.rounds + 1)
            self._planned = {n: self.policy.open_seconds(n) for n in (*rounds, *also)}
        else:
            self._planned = None

    def _collect(self) -> bool:
        """Queue what has changed; True when this thread must tell it, because no other one is telling."""
        changes = self.take_changes()
        if not changes:
            return False
        if self._untold is not None:
            self._untold.extend(changes)
            return False
        self._untold = deque(changes)
        return True

    def _tell(self) -> None:
        """Emit what has changed, in order, by one thread at a time and with no lock held."""
        self._plan_ahead()
        if self.remote is not None:
            self.remote.nudge()
        while True:
            with self._lock:
                if not self._untold:
                    self._untold = None
                    return
                change = self._untold.popleft()
            event = CircuitStateChanged(
                self.name, "", self.name, change.from_state, change.to_state, change.trigger.value, change.failure_count
            )
            try:
                self._hub.emit(event)
            except BaseException:  # an interrupt in a listener: the next change is told by whoever makes it
                with self._lock:
                    self._untold = None
                raise


class CircuitBreakerStrategy:
    """Asks the circuit before each pass, and tells it afterwards."""

    kind = "breaker"
    passes_context = True

    def __init__(
        self,
        name: str = "circuit",
        failure_threshold: int = 5,
        reset_timeout_s: float = 30.0,
        *,
        policy: Breaker | None = None,
        circuit: LiveCircuit | None = None,
    ) -> None:
        self.name = name
        self.policy = Breaker(consecutive(failure_threshold), open_for=reset_timeout_s) if policy is None else policy
        self.circuit = circuit
        self._making = threading.RLock()

    def bind(self, clock: Clock, hub: Hub) -> None:
        """Make the circuit, unless this strategy has one (shared, or from an earlier pipeline)."""
        with self._making:
            if self.circuit is None:
                self.circuit = LiveCircuit(self.name, self.policy, clock, hub)

    def adopt(self, old: CircuitBreakerStrategy, now: float) -> None:
        """Go on with the circuit of an older strategy, under this one's policy."""
        if old.circuit is not None:
            self.circuit = old.circuit
            self.circuit.change(self.policy)

    async def execute(self, nxt: Next, ctx: ResilienceContext) -> Outcome[Any]:
        call: Call = ctx.call
        monotonic = call.setting.clock.monotonic
        circuit = self.circuit
        assert circuit is not None
        started = monotonic()
        permit: Permit | int | Refusal
        if call.replay is not None:
            permit, started = call.replay.permit, call.replay.admitted
        else:
            permit = circuit.admit(started)
            if type(permit) is Refusal:
                return self._refused(call, permit, circuit, started)
        assert not isinstance(permit, Refusal)
        try:
            outcome = await nxt(ctx)
        except BaseException:
            # A cancellation is no news of the dependency, unless it is our own time limit.
            now = monotonic()
            if call.cut:
                error = GuardTimeout(self.name, None, "a time limit ended the call")
                circuit.finish(permit, Evidence.FAILURE, now, now - started, error)
            else:
                circuit.finish(permit, Evidence.NEUTRAL, now, now - started)
            raise
        now = monotonic()
        evidence = self._evidence(circuit, outcome)
        if outcome.kind.has_value and ctx.deadline.at < now:
            evidence = Evidence.FAILURE  # a limit around us will call it late; async code would have been cut
        circuit.finish(permit, evidence, now, now - started, outcome.error)
        return outcome

    def _evidence(self, circuit: LiveCircuit, outcome: Outcome[Any]) -> Evidence:
        if outcome.evidence is not None:
            return outcome.evidence
        if (
            outcome.kind is OutcomeKind.TERMINAL_FAILURE
            and self.policy.terminal_is_success
            and circuit.state is CircuitState.HALF_OPEN
        ):
            return Evidence.SUCCESS  # it answered
        return outcome.kind.evidence

    def _refused(self, call: Call, refusal: Refusal, circuit: LiveCircuit, now: float) -> Outcome[Any]:
        error = CircuitOpen(circuit.name, refusal.retry_after)
        error.__cause__ = refusal.cause
        return call.refuse(error, circuit.name, rule=refusal.rule)

    def describe(self) -> str:
        return f"breaker {self.name!r}: {self.policy.describe().removeprefix('breaker: ')}"
