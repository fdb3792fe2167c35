"""A circuit breaker to be asked and told by hand: one per proxy, counting failures in a rolling window.

The rules are the machine's (`machine/circuit.py`). This adds times of day, a check that remembers its permit for the
caller, results reported without one, and state that survives a restart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from holdfast.core.check import check_seconds, check_whole
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.core.outcome import Evidence
from holdfast.errors import PolicyError
from holdfast.guard.circuit import LiveCircuit
from holdfast.machine.breaker import Breaker, CircuitState, Control, Trigger
from holdfast.machine.circuit import Outage, Permit, Refusal
from holdfast.machine.trip import Count, count
from holdfast.telemetry.hub import Hub, default_hub


class StampedCircuit(LiveCircuit):
    """A live circuit that knows at what time of day it changed, and can be saved and restored."""

    __slots__ = ("changed_wall",)

    def __init__(self, name: str, policy: Breaker, clock: Clock, hub: Hub) -> None:
        super().__init__(name, policy, clock, hub)
        self.changed_wall = clock.wall()

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def tests_calls(self) -> bool:
        """Whether a call that is admitted would be a probe."""
        return self.state is not CircuitState.CLOSED and self.control is Control.AUTO

    @property
    def next_test_wall(self) -> datetime | None:
        """The time of day at which the next probe is due; None while closed or isolated."""
        due = self.next_test
        if due is None:
            return None
        # Told by what is left on the monotonic clock: a step of the wall clock moves the answer, not the probe.
        stamp = self._clock.wall().timestamp() + (due - self._clock.monotonic())
        return datetime.fromtimestamp(stamp, UTC)

    def report(self, evidence: Evidence) -> None:
        """A result without a permit: counts when closed, settles the oldest probe when half-open, else is ignored."""
        with self._lock:
            self.settle(self.generation, evidence, self._clock.monotonic())
            told = self._collect()
        if told:
            self._tell()

    def failures_at(self) -> list[float]:
        """The instants of the failures that still count, as Unix times, oldest first."""
        with self._lock:
            now = self._clock.monotonic()
            instants = self.failed_at(now)
        wall = self._clock.wall().timestamp()
        return [wall - (now - at) for at in instants]

    def save(self) -> dict[str, Any]:
        """What to keep across a restart, in JSON types."""
        with self._lock:
            kept = self.snapshot(self._clock.monotonic())
        return {**kept, "saved_at": self._clock.wall().isoformat()}

    def load(self, saved: Mapping[str, Any]) -> bool:
        """Take over what `save` gave, now or in an earlier process; False when it is too old, or of no use."""
        try:
            saved_at = datetime.fromisoformat(saved["saved_at"])
        except (KeyError, TypeError, ValueError):
            return False
        saved_at = saved_at.replace(tzinfo=UTC) if saved_at.tzinfo is None else saved_at
        age = (self._clock.wall() - saved_at).total_seconds()
        with self._lock:
            used = self.restore(saved, age, self._clock.monotonic())
            told = self._collect()
        if told:
            self._tell()
        return used

    def _move(self, trigger: Trigger, now: float, outage: Outage | None) -> None:
        before = self.state
        super()._move(trigger, now, outage)
        if self.state is not before:
            self.changed_wall = self._clock.wall()


class CircuitBreaker:
    """Tracks one proxy: opens at `failure_threshold` failures within `window_duration` seconds, for `timeout_duration`.

    Ask `should_attempt_request` before a request and report with `record_success` or `record_failure` after it, in any
    thread or task. A probe that is never reported gives way to the next one after `timeout_duration`.

    Raises PolicyError for a value that cannot work.
    """

    def __init__(
        self,
        proxy_id: str,
        failure_threshold: int = 5,
        window_duration: float = 60.0,
        timeout_duration: float = 30.0,
        *,
        clock: Clock = SYSTEM_CLOCK,
        telemetry: Hub | None = None,
    ) -> None:
        if not proxy_id or not isinstance(proxy_id, str):
            raise PolicyError(
                f"CircuitBreaker.proxy_id must be a name, got {proxy_id!r}; it names the breaker in events"
            )
        check_whole("CircuitBreaker.failure_threshold", failure_threshold, "use 1 to open at the first failure")
        check_seconds("CircuitBreaker.window_duration", window_duration, "use 60 for failures of the last minute")
        check_seconds("CircuitBreaker.timeout_duration", timeout_duration, "use 30 to test again after half a minute")
        policy = Breaker(count(failure_threshold, window_duration), open_for=timeout_duration)
        self._watch(StampedCircuit(proxy_id, policy, clock, default_hub() if telemetry is None else telemetry))

    @classmethod
    def over(cls, circuit: StampedCircuit) -> CircuitBreaker:
        """The door to a circuit that exists already, e.g. one of an endpoint pool.

        Raises PolicyError unless the circuit opens by one `count(...)` rule.
        """
        policy = circuit.policy
        if len(policy.rules) != 1 or not isinstance(policy.rules[0], Count) or callable(policy.open_for):
            raise PolicyError(
                f"CircuitBreaker shows a circuit with one count(...) rule and a fixed open time, got "
                f"{policy.describe()}; use the circuit itself"
            )
        door = cls.__new__(cls)
        door._watch(circuit)
        return door

    def _watch(self, circuit: StampedCircuit) -> None:
        self.circuit = circuit
        # One variable per breaker: a check in one task must not answer for another task's request.
        self._permit: ContextVar[Permit | None] = ContextVar(f"holdfast_permit_{circuit.name}", default=None)

    @property
    def proxy_id(self) -> str:
        return self.circuit.name

    @property
    def state(self) -> CircuitState:
        return self.circuit.state

    @property
    def failure_threshold(self) -> int:
        return self._rule.n

    @property
    def window_duration(self) -> float:
        return self._rule.window

    @property
    def timeout_duration(self) -> float:
        return self.circuit.policy.open_seconds(0)

    @property
    def failure_count(self) -> int:
        """The failures within the window, as of now."""
        return int(self.circuit.look("failure_count"))

    @property
    def failure_window(self) -> deque[float]:
        """When they happened, as Unix times; a copy."""
        return deque(self.circuit.failures_at())

    @property
    def next_test_time(self) -> float | None:
        """When the next probe is due, as a Unix time; None while closed."""
        due = self.circuit.next_test_wall
        return None if due is None else due.timestamp()

    @property
    def last_state_change(self) -> datetime:
        """In UTC; the time it was made for a breaker that has never changed."""
        return self.circuit.changed_wall

    def should_attempt_request(self) -> bool:
        """Whether a request may go out now. When the open time is over, the first to ask is the probe.

        A yes is remembered for the caller's context until it reports; a no changes nothing about an earlier yes.
        """
        answer = self.circuit.admit(self.circuit.clock.monotonic())
        if isinstance(answer, Refusal):
            return False
        self._permit.set(answer)
        return True

    def record_success(self) -> None:
        """Report that a request succeeded: closes a half-open breaker."""
        self._settle(Evidence.SUCCESS)

    def record_failure(self) -> None:
        """Report that a request failed: counts towards opening, reopens a half-open breaker."""
        self._settle(Evidence.FAILURE)

    def release(self) -> None:
        """Report that a request told nothing (cancelled, never sent): a probe's turn passes on."""
        if self._permit.get() is not None:
            self._settle(Evidence.NEUTRAL)

    def reset(self) -> None:
        """Close, from any state, and forget the failures; requests under way no longer count."""
        self.circuit.command("reset")

    def snapshot(self) -> dict[str, Any]:
        """What to keep across a restart, in JSON types: remaining open time and a wall stamp."""
        return {"proxy_id": self.proxy_id, **self.circuit.save()}

    def restore(self, snapshot: Mapping[str, Any]) -> bool:
        """Take over a snapshot of an earlier process; False when it is too old, or of no use.

        Half-open comes back as open and due; open time is cut to `timeout_duration`.
        """
        return self.circuit.load(snapshot)

    def model_dump(self, *, mode: str = "python") -> dict[str, Any]:
        """The breaker's fields; `mode="json"` gives JSON types."""
        fields: dict[str, Any] = {
            "proxy_id": self.proxy_id,
            "state": self.state,
            "failure_count": self.failure_count,
            "failure_window": self.failure_window,
            "failure_threshold": self.failure_threshold,
            "window_duration": self.window_duration,
            "timeout_duration": self.timeout_duration,
            "next_test_time": self.next_test_time,
            "last_state_change": self.last_state_change,
        }
        if mode == "json":
            fields["state"] = self.state.value
            fields["failure_window"] = list(fields["failure_window"])
            fields["last_state_change"] = self.last_state_change.isoformat()
        return fields

    def __repr__(self) -> str:
        return f"<CircuitBreaker {self.proxy_id} {self.state.value}, {self.failure_count} of {self.failure_threshold}>"

    @property
    def _rule(self) -> Count:
        rule = self.circuit.policy.rules[0]
        assert isinstance(rule, Count)
        return rule

    def _settle(self, evidence: Evidence) -> None:
        permit = self._permit.get()
        if permit is None:
            self.circuit.report(evidence)
        else:
            self._permit.set(None)
            self.circuit.finish(permit, evidence, self.circuit.clock.monotonic())
