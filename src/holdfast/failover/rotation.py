"""A rotator of HTTP proxies (or any endpoints): retry, failover, breakers and attempt metrics in one object.

rotator = ProxyRotator(["http://proxy-a:3128", "http://proxy-b:3128"], RetryPolicy(timeout=10))
response = rotator.request(lambda proxy, url: get(url, via=proxy.url), "https://example.org/")
"""

from __future__ import annotations

import random
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeVar

from holdfast.core.classify import Classifier, ResultClassifier
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.core.context import current_context
from holdfast.core.outcome import Outcome
from holdfast.errors import Conflict, PolicyError
from holdfast.failover.endpoint import Endpoint
from holdfast.failover.failover import Failover, endpoint_in
from holdfast.failover.pool import EndpointPool
from holdfast.failover.selection import Choose
from holdfast.guard.call import IDEMPOTENT, Call
from holdfast.guard.circuit_breaker import CircuitBreaker
from holdfast.guard.driver import drive
from holdfast.guard.guard import Guard, is_coroutine_function
from holdfast.guard.http_rules import HttpRules, answer, is_idempotent
from holdfast.guard.retry import discard
from holdfast.guard.retry_policy import RetryPolicy
from holdfast.machine.breaker import Breaker
from holdfast.telemetry.attempts import AttemptRecorder, RetryMetrics
from holdfast.telemetry.hub import Hub

T = TypeVar("T")

MAX_GUARDS: Final = 64


class PolicyInForce(NamedTuple):
    """A rotator's policy, which change of it this is (1 is the first), and when it was made."""

    policy: RetryPolicy
    version: int
    updated_at: datetime


class ProxyRotator:
    """Sends requests through a pool under one RetryPolicy, which a request may override.

    `send` gets the endpoint as its first argument, then the arguments given to `request`. Assigning `policy` changes it
    for new requests; running ones keep theirs. Every attempt and every state change of a breaker goes into `metrics`.
    `max_proxy_attempts` bounds how many different endpoints a request uses; None means all.
    """

    def __init__(
        self,
        endpoints: Iterable[Endpoint | str] | EndpointPool,
        policy: RetryPolicy | None = None,
        *,
        choose: Choose | str = Choose.P2C,
        breaker: Breaker | None = None,
        region: str | None = None,
        attempts_per_endpoint: int = 1,
        max_proxy_attempts: int | None = None,
        metrics: RetryMetrics | None = None,
        classify: Classifier | None = None,
        result_classifier: ResultClassifier | None = None,
        passthrough: tuple[type[BaseException], ...] = (),
        abandon: bool = False,
        clock: Clock = SYSTEM_CLOCK,
        rng: Callable[[], float] = random.random,
        telemetry: Hub | None = None,
        name: str = "proxies",
    ) -> None:
        if not isinstance(endpoints, EndpointPool):
            endpoints = EndpointPool(
                endpoints,
                choose=choose,
                breaker=breaker,
                region=region,
                clock=clock,
                rng=rng,
                telemetry=telemetry,
                name=name,
            )
        self.name = name
        self.pool = endpoints
        self.metrics = RetryMetrics(clock=clock) if metrics is None else metrics
        self._clock = clock
        self._abandon = abandon
        self._classify = classify
        self._judge = result_classifier
        self._options: dict[str, Any] = {
            "clock": clock, "rng": rng, "telemetry": telemetry, "passthrough": passthrough,
        }  # fmt: skip
        self._recorder = AttemptRecorder(self.metrics)
        self._failover = Failover(
            self.pool, attempts_per_endpoint, max_proxy_attempts, on_attempt=self._recorder.on_event
        )
        self._doors: dict[str, CircuitBreaker] = {}
        self._guards: OrderedDict[tuple[RetryPolicy, str], Guard] = OrderedDict()
        self._lock = threading.Lock()
        self._in_force = PolicyInForce(RetryPolicy(), 0, clock.wall())
        self.policy = self._in_force.policy if policy is None else policy
        self._guard_for(None)  # lends the pool its clock, and refuses what cannot work
        self.pool.listen(self._recorder)

    @property
    def policy(self) -> RetryPolicy:
        """The policy of requests that bring none of their own."""
        return self._in_force.policy

    @policy.setter
    def policy(self, policy: RetryPolicy) -> None:
        if not isinstance(policy, RetryPolicy):
            raise PolicyError(
                f"ProxyRotator.policy must be a RetryPolicy, got {policy!r}; use RetryPolicy(max_attempts=1)"
            )
        now = self._clock.wall()
        with self._lock:
            self._put(policy, now)

    @property
    def policy_in_force(self) -> PolicyInForce:
        """The policy with its version, for `revise`."""
        return self._in_force

    def revise(self, version: int | None = None, **changes: Any) -> PolicyInForce:
        """Change fields of the policy for new requests; with `version`, only while it is the one in force.

        Nothing changes on an error. Raises Conflict for another version, ValueError for a value that cannot be.
        """
        now = self._clock.wall()
        with self._lock:
            known = self._in_force
            if version is not None and version != known.version:
                raise Conflict(
                    f"the policy of {self.name!r} is at version {known.version}, not {version}; read it again"
                )
            self._put(known.policy.replaced(**changes), now)
            return self._in_force

    def _put(self, policy: RetryPolicy, now: datetime) -> None:
        self._in_force = PolicyInForce(policy, self._in_force.version + 1, now)

    @property
    def guard(self) -> Guard:
        """The guard behind requests under the rotator's own policy, e.g. to describe it."""
        return self._guard_for(None)

    def request(
        self,
        send: Callable[..., T],
        /,
        *args: Any,
        policy: RetryPolicy | None = None,
        method: str = "GET",
        idempotency_key: str | None = None,
        **kwargs: Any,
    ) -> T:
        """What `send(endpoint, *args, **kwargs)` returns, at the first endpoint that answers or the last one tried.

        A call that is not idempotent, by `method` or an `idempotency_key`, is repeated only if it surely never left.

        Raises what the last attempt raised, PoolExhausted when no endpoint may be called, GuardTimeout when
        the policy's timeout ran out.
        """
        if is_coroutine_function(send):
            raise TypeError(f"{getattr(send, '__qualname__', send)} is async; use arequest() for it")
        return drive(self._request(False, send, args, kwargs, policy, method, idempotency_key))  # type: ignore[no-any-return]

    async def arequest(
        self,
        send: Callable[..., Awaitable[T]],
        /,
        *args: Any,
        policy: RetryPolicy | None = None,
        method: str = "GET",
        idempotency_key: str | None = None,
        **kwargs: Any,
    ) -> T:
        """The same for an async `send`; an attempt that is still running when the time is up is cut."""
        return await self._request(True, send, args, kwargs, policy, method, idempotency_key)  # type: ignore[no-any-return]

    def add(self, endpoint: Endpoint | str) -> Endpoint:
        """Put another endpoint into the rotation."""
        return self.pool.add(endpoint)

    def remove(self, endpoint: Endpoint | str) -> None:
        """Take an endpoint out of the rotation, with its breaker and statistics."""
        self.pool.remove(endpoint)

    @property
    def circuit_breakers(self) -> dict[str, CircuitBreaker]:
        """The breakers of all endpoints that have been used, by id.

        Raises PolicyError when the pool opens by another rule than one `count(...)`; see `pool.circuits()` then.
        """
        circuits = self.pool.circuits()
        with self._lock:
            doors = {name: door for name, door in self._doors.items() if circuits.get(name) is door.circuit}
            self._doors = {name: doors.get(name) or CircuitBreaker.over(circuit) for name, circuit in circuits.items()}
            return dict(self._doors)

    async def _request(
        self,
        is_async: bool,
        send: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        policy: RetryPolicy | None,
        method: str,
        idempotency_key: str | None,
    ) -> Any:
        guard = self._guard_for(policy)
        used = self.policy if policy is None else policy
        repeatable = used.retry_non_idempotent or is_idempotent(method, idempotency_key)
        plan = guard.plan_in_context()
        call = Call(plan.setting, is_async, self._send, (send, args, kwargs), properties={IDEMPOTENT: repeatable})
        try:
            outcome = await plan.perform(call)
        finally:
            self.metrics.end_request(call.call_id)
        if outcome.late:
            await discard(call, outcome)
        return answer(outcome)

    def _send(self, send: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return send(endpoint_in(self.pool), *args, **kwargs)

    def _guard_for(self, policy: RetryPolicy | None) -> Guard:
        """The guard of a policy. Guards share the pool, which holds all live state, so they can come and go."""
        key = (self.policy, "global") if policy is None else (policy, "request")
        with self._lock:
            guard = self._guards.get(key)
            if guard is None:
                guard = self._guards[key] = self._make_guard(*key)
                if len(self._guards) > MAX_GUARDS:
                    self._guards.popitem(last=False)
            else:
                self._guards.move_to_end(key)
            return guard

    def _make_guard(self, policy: RetryPolicy, label: str) -> Guard:
        rules = HttpRules(policy.retry_status_codes, self._clock)
        retry, *timeout = policy.policies(abandon=self._abandon)
        return Guard(
            self.name,
            replace(retry, on_retry=self._retrying),
            *timeout,
            replace(self._failover, id=label),
            classify=rules.classify if self._classify is None else self._classify,
            result_classifier=rules.judge if self._judge is None else self._judge,
            **self._options,
        )

    def _retrying(self, attempt: int, outcome: Outcome[Any], wait: float) -> None:
        ctx = current_context()
        if ctx is not None:
            left = str(outcome.metadata.get("endpoint", self.name))
            self.metrics.begin_retry(ctx.call_id, attempt + 1, proxy_id=left, wait=wait)
