"""How the client adapters run a request as one guarded call: under which plan, where each attempt goes, what is closed.

What a status or an error means is `guard/http_rules.py`'s matter. No HTTP library is imported here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from enum import StrEnum
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from holdfast.core.classify import RETRIED_STATUSES, default_classify, was_not_sent
from holdfast.core.clock import SYSTEM_CLOCK
from holdfast.core.context import remaining_time
from holdfast.core.outcome import OutcomeKind, Verdict
from holdfast.errors import PolicyError
from holdfast.failover.endpoint import Endpoint
from holdfast.failover.failover import Failover, FailoverStrategy, endpoint_in
from holdfast.failover.pool import EndpointPool
from holdfast.guard.call import IDEMPOTENT, Call, Setting
from holdfast.guard.driver import drive
from holdfast.guard.guard import Guard
from holdfast.guard.http_rules import IDEMPOTENCY_KEY, HttpRules, answer, is_idempotent, mark_unsent
from holdfast.guard.plan import Plan
from holdfast.guard.retry import RetryStrategy
from holdfast.machine.retry import RetrySafety

SMALL_BODY: Final = 65_536
SHORTEST_WAIT_S: Final = 0.001  # a socket timeout of 0 would mean "do not block"


def http_guard(name: str, *policies: Any, retry_status_codes: Iterable[int] | None = None, **options: Any) -> Guard:
    """A guard that knows HTTP: statuses, Retry-After, and the errors of httpx, httpx2 and requests.

    Takes what Guard takes, and a RetryPolicy, whose status codes apply unless `retry_status_codes` says otherwise.

    Raises PolicyError for policies that cannot work together.
    """
    expanded: list[Any] = []
    for policy in policies:
        if hasattr(policy, "retry_status_codes"):
            expanded += policy.policies()
            retry_status_codes = policy.retry_status_codes if retry_status_codes is None else retry_status_codes
        else:
            expanded.append(policy)
    statuses = RETRIED_STATUSES if retry_status_codes is None else retry_status_codes
    rules = HttpRules(statuses, options.get("clock", SYSTEM_CLOCK))
    return Guard(name, *expanded, **{"classify": rules.classify, "result_classifier": rules.judge, **options})


def clamped(seconds: float | None) -> float | None:
    """A socket's timeout, cut to what the guard leaves for this attempt; None means all of that."""
    left = remaining_time()
    if left == math.inf:
        return seconds
    return max(SHORTEST_WAIT_S, left if seconds is None else min(seconds, left))


def moved(url: str, base: str) -> str:
    """The same resource on another server: scheme, host and port of `base`, and its path in front."""
    to, of = urlsplit(base), urlsplit(url)
    return urlunsplit((to.scheme, to.netloc.rpartition("@")[2], to.path.rstrip("/") + of.path, of.query, of.fragment))


class Rotate(StrEnum):
    """What the endpoints of a pool are."""

    SERVERS = "servers"  # other places of the same service: a request's scheme, host and port are replaced
    PROXIES = "proxies"  # ways to the place that a request names


class Route:
    """A guard as an HTTP client uses it, and where each attempt goes."""

    __slots__ = ("_pool", "_rotate", "guard", "rules")

    def __init__(self, guard: Guard, pool: EndpointPool | None = None, rotate: Rotate | str = Rotate.SERVERS) -> None:
        self.guard = guard
        self.rules = HttpRules(clock=guard.plan.clock)
        try:
            self._rotate = Rotate(rotate)
        except ValueError:
            raise PolicyError(f"rotate must be one of {', '.join(Rotate)}, got {rotate!r}") from None
        own = _own_pool(guard.plan)
        if own is not None and pool is not None and own is not pool:
            raise PolicyError(f"guard {guard.name!r} has a Failover over another pool already; leave pool out here")
        self._pool = pool if own is None else own
        if self._pool is not None:
            for endpoint in self._pool.endpoints:
                _url_of(endpoint)

    @contextmanager
    def planned(self) -> Iterator[Plan]:
        """The plan for one request: the guard's own, with failover over the pool where it has none."""
        plan = self.guard.plan_in_context()
        if self._pool is None or _own_pool(plan) is not None:
            yield plan
            return
        with self.guard.override(Failover(self._pool)):
            yield self.guard.plan_in_context()

    @property
    def server(self) -> str | None:
        """The base URL that this attempt was sent to, if it was sent anywhere but where its request says."""
        return self._current() if self._rotate is Rotate.SERVERS else None

    @property
    def proxy(self) -> str | None:
        """The URL of the proxy that this attempt was told to use."""
        return self._current() if self._rotate is Rotate.PROXIES else None

    def _current(self) -> str | None:
        return None if self._pool is None else _url_of(endpoint_in(self._pool))


def _own_pool(plan: Plan) -> EndpointPool | None:
    failover = plan.first(FailoverStrategy)
    return None if failover is None else failover.pool


def _url_of(endpoint: Endpoint) -> str:
    if endpoint.url is None:
        raise PolicyError(f"endpoint {endpoint.id!r} has no URL; use Endpoint({endpoint.id!r}, 'http://host:port')")
    return endpoint.url


class Exchange:
    """One request as one guarded call. Every response that is not handed to the caller is closed."""

    __slots__ = ("_idempotent", "_is_async", "_opened", "_over", "_repeatable", "_route")

    def __init__(
        self, route: Route, is_async: bool, method: str | None, headers: Mapping[str, Any], repeatable: bool
    ) -> None:
        """`headers` ignore case; `repeatable` tells that the request's body can be sent again."""
        self._route = route
        self._is_async = is_async
        self._idempotent = repeatable and is_idempotent(method, headers.get(IDEMPOTENCY_KEY))
        self._repeatable = repeatable
        self._opened: list[Any] = []
        self._over = False

    async def run(self, attempt: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """The response: a good one, or the last one with its failing status.

        Raises the last attempt's own exception, or the guard's refusal or timeout.
        """

        async def marked() -> Any:
            try:
                return await attempt()
            except Exception as error:
                mark_unsent(error)  # here, for the guard's classifier may be one that does not
                raise

        fn: Callable[[], Any] = marked if self._is_async else lambda: drive(marked())
        handed = None
        try:
            with self._route.planned() as plan:
                call = Call(self._setting(plan), self._is_async, fn, properties={IDEMPOTENT: self._idempotent})
                handed = answer(await plan.perform(call))
            return handed
        finally:
            self._over = True
            for response in self._opened:
                if response is not handed:
                    await self.close(response)

    async def open(self, response: Any) -> None:
        """Take charge of a response. One that comes when the caller has already gone is closed at once."""
        self._opened.append(response)
        if self._over:
            await self.close(response)

    async def close(self, response: Any) -> None:
        if self._is_async:
            await response.aclose()
        else:
            response.close()

    def _setting(self, plan: Plan) -> Setting:
        """The guard's setting, with the HTTP rules where it has none of its own."""
        setting = copy(plan.setting)
        if setting.judge is None:
            setting.judge = self._route.rules.judge
        if setting.classify is default_classify:
            setting.classify = self._route.rules.classify
        retry = plan.first(RetryStrategy)
        if not self._repeatable and retry is not None and retry.policy.safety is RetrySafety.ALWAYS:
            # Even who retries everything cannot send a body again that is used up.
            setting.judge = _final(setting.judge)
            setting.classify = _final(setting.classify)
        return setting


def _final(classify: Callable[[Any], OutcomeKind | Verdict | None]) -> Callable[[Any], Any]:
    """The classifier without a right to another try, except for a request that never left."""

    def final(subject: Any) -> OutcomeKind | Verdict | None:
        verdict = classify(subject)
        kind = verdict.kind if isinstance(verdict, Verdict) else verdict
        if kind is None or not kind.is_retryable or (isinstance(subject, BaseException) and was_not_sent(subject)):
            return verdict
        evidence = verdict.evidence if isinstance(verdict, Verdict) else None
        return Verdict(OutcomeKind.TERMINAL_FAILURE, evidence=evidence or kind.evidence)

    return final


def is_small_failure(response: Any) -> bool:
    """Whether to read a body at once: it is short, hardly wanted, and its connection can be used again then."""
    length = response.headers.get("Content-Length") or ""
    failed = response.status_code >= 500 or response.status_code == 429
    return failed and length.isdigit() and int(length) <= SMALL_BODY
