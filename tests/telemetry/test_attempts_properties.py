"""RetryMetrics against a recount of everything that was ever recorded."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.machine.breaker import CircuitState
from holdfast.telemetry.attempts import CircuitBreakerEvent, RetryAttempt, RetryMetrics, RetryOutcome
from tests.telemetry.clocks import NOON, StandingClock

ENDPOINTS = st.sampled_from(["eu", "us", "asia"])
AGES = st.timedeltas(min_value=timedelta(hours=-2), max_value=timedelta(hours=30))


def hour_of(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)


class Recount(RuleBasedStateMachine):
    """Any order of records, evictions, aggregations and passing time gives the recounted totals."""

    @initialize(ring=st.integers(1, 5), retention=st.integers(1, 30))
    def start(self, ring: int, retention: int) -> None:
        self.clock = StandingClock(NOON)
        self.retention = retention
        self.metrics = RetryMetrics(clock=self.clock, max_current_attempts=ring, retention_hours=retention)
        self.attempts: list[RetryAttempt] = []
        self.events: list[CircuitBreakerEvent] = []

    @rule(
        request=st.integers(0, 5),
        number=st.integers(0, 4),
        endpoint=ENDPOINTS,
        age=AGES,
        outcome=st.sampled_from(RetryOutcome),
        latency=st.floats(0, 100),
        policy=st.none() | st.sampled_from(["fast", "slow"]),
    )
    def record(
        self,
        request: int,
        number: int,
        endpoint: str,
        age: timedelta,
        outcome: RetryOutcome,
        latency: float,
        policy: str | None,
    ) -> None:
        one = RetryAttempt(
            request_id=f"r{request}", attempt_number=number, proxy_id=endpoint, timestamp=self.clock.now - age,
            outcome=outcome, latency=latency, policy_id=policy,
        )  # fmt: skip
        self.metrics.record_attempt(one)
        self.attempts.append(one)

    @rule(endpoint=ENDPOINTS, age=AGES, to_state=st.sampled_from(CircuitState))
    def change(self, endpoint: str, age: timedelta, to_state: CircuitState) -> None:
        event = CircuitBreakerEvent(
            proxy_id=endpoint, from_state=CircuitState.CLOSED, to_state=to_state, timestamp=self.clock.now - age
        )
        self.metrics.record_circuit_breaker_event(event)
        self.events.append(event)

    @rule()
    def aggregate(self) -> None:
        self.metrics.aggregate_hourly()

    @rule(minutes=st.integers(1, 300))
    def wait(self, minutes: int) -> None:
        self.clock.advance(minutes=minutes)

    @invariant()
    def the_totals_are_those_of_a_recount(self) -> None:
        oldest = hour_of(self.clock.now) - timedelta(hours=self.retention)
        kept = [one for one in self.attempts if one.timestamp >= oldest]
        wins = [one for one in kept if one.outcome is RetryOutcome.SUCCESS]
        summary = self.metrics.get_summary()
        assert summary["total_retries"] == len(kept)
        assert summary["success_by_attempt"] == Counter(one.attempt_number for one in wins)
        assert summary["circuit_breaker_events_count"] == sum(one.timestamp >= oldest for one in self.events)

        firsts: dict[str, tuple[int, datetime]] = {}
        for one in self.attempts:
            mark = (one.attempt_number, hour_of(one.timestamp))
            firsts[one.request_id] = min(mark, firsts.get(one.request_id, mark))
        requests = Counter(hour for _, hour in firsts.values() if hour >= oldest)
        by_hour: dict[datetime, list[RetryAttempt]] = defaultdict(list)
        for one in kept:
            by_hour[hour_of(one.timestamp)].append(one)
        points = {point["timestamp"]: point for point in self.metrics.get_timeseries(self.retention)}
        assert list(points) == sorted(points)
        for hour, ones in by_hour.items():
            assert points[hour]["total_retries"] == len(ones)
            assert points[hour]["total_requests"] == requests[hour]
            assert points[hour]["avg_latency"] == pytest.approx(sum(one.latency for one in ones) / len(ones))

        self._endpoints_are_right(kept, oldest)

    def _endpoints_are_right(self, kept: list[RetryAttempt], oldest: datetime) -> None:
        expected: dict[str, Any] = defaultdict(lambda: [0, 0, 0])
        for one in kept:
            expected[one.proxy_id][0] += 1
            expected[one.proxy_id][1] += one.outcome is RetryOutcome.SUCCESS
        for event in self.events:
            if event.timestamp >= oldest:
                expected[event.proxy_id][2] += event.to_state is CircuitState.OPEN
        assert {
            name: [seen["total_attempts"], seen["success_count"], seen["circuit_breaker_opens"]]
            for name, seen in self.metrics.get_by_proxy(self.retention).items()
        } == expected
        by_policy = Counter(one.policy_id for one in kept if one.policy_id)
        assert {
            name: seen["total_attempts"] for name, seen in self.metrics.get_by_policy(self.retention).items()
        } == by_policy
        assert sum(day["total_retries"] for day in self.metrics.get_daily()) == len(kept)


TestRecount = Recount.TestCase
