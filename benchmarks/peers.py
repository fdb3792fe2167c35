"""The peers: one class each, one method per policy it offers, in the fastest form its documentation shows.

Same settings for everybody: three attempts without waiting, five failures open for an hour, no logging and no
listeners, twenty slots, a limit of 10⁹ calls per second that never refuses. A class without a method does not
offer the policy.
"""

import asyncio
import threading
from datetime import timedelta
from functools import partial
from inspect import iscoroutinefunction
from itertools import count

import aiobreaker
import aiolimiter
import backoff
import circuitbreaker
import hyx.bulkhead
import hyx.circuitbreaker
import hyx.ratelimit
import hyx.retry
import hyx.timeout
import purgatory
import pybreaker
import pyresilience
import stamina
import stamina.instrumentation
import tenacity

from benchmarks.rows import BOTH

SYNC, ASYNC = ("sync",), ("async",)
ATTEMPTS = 3
OPEN_FOR = 3600
SECONDS = 2.0


def only(*colours):
    """Mark a policy that its library offers in some colours only."""

    def mark(policy):
        policy.colours = colours
        return policy

    return mark


def no_wait(seconds):
    """Tenacity's `sleep`: even `time.sleep(0)` costs a system call."""


async def async_no_wait(seconds):
    """The same for coroutines."""


class PyResilience:
    label = "pyresilience"
    colours = BOTH
    imports = "import pyresilience"
    first = (
        "from pyresilience import CircuitBreakerConfig, RetryConfig, resilient\n"
        "resilient(retry=RetryConfig(), circuit_breaker=CircuitBreakerConfig())(abs)(1)"
    )
    attempts = pyresilience.RetryConfig(max_attempts=ATTEMPTS, delay=0, jitter=False)
    circuit = pyresilience.CircuitBreakerConfig(failure_threshold=5, recovery_timeout=OPEN_FOR)
    seconds = pyresilience.TimeoutConfig(SECONDS)

    def retry(self, fn):
        return pyresilience.resilient(retry=self.attempts)(fn)

    def breaker(self, fn, failures=5):
        config = pyresilience.CircuitBreakerConfig(failure_threshold=failures, recovery_timeout=OPEN_FOR)
        return pyresilience.resilient(circuit_breaker=config)(fn)

    def breaker_ratio(self, fn):
        # The last hundred calls: it has no window of time.
        config = pyresilience.CircuitBreakerConfig(sliding_window_size=100, recovery_timeout=OPEN_FOR)
        return pyresilience.resilient(circuit_breaker=config)(fn)

    def bulkhead(self, fn, limit=None):
        # Without a wait it is faster, but refuses instead of queueing; the row of tasks needs the queue.
        config = pyresilience.BulkheadConfig(limit or 20, max_wait=60 if limit else 0)
        return pyresilience.resilient(bulkhead=config)(fn)

    def rate_burst(self, fn):
        return pyresilience.resilient(rate_limiter=pyresilience.RateLimiterConfig(10**9, 1.0))(fn)

    def rate_steady(self, fn):
        return pyresilience.resilient(rate_limiter=pyresilience.RateLimiterConfig(1, 1e-9))(fn)

    def timeout(self, fn):
        return pyresilience.resilient(timeout=self.seconds)(fn)

    def retry_breaker(self, fn):
        return pyresilience.resilient(retry=self.attempts, circuit_breaker=self.circuit)(fn)

    def retry_breaker_timeout(self, fn):
        policies = {"retry": self.attempts, "circuit_breaker": self.circuit, "timeout": self.seconds}
        return pyresilience.resilient(**policies)(fn)

    def one_breaker(self):
        return pyresilience.CircuitBreaker(self.circuit)


class Hyx:
    label = "hyx"
    colours = ASYNC
    imports = "from hyx.circuitbreaker import consecutive_breaker"

    def retry(self, fn):
        # Its `attempts` are the ones after the first.
        return hyx.retry.retry(attempts=ATTEMPTS - 1, backoff=0)(fn)

    def breaker(self, fn, failures=5):
        made = hyx.circuitbreaker.consecutive_breaker(failure_threshold=failures, recovery_time_secs=OPEN_FOR)
        return made(fn)

    def bulkhead(self, fn, limit=20):
        block = hyx.bulkhead.bulkhead(max_concurrency=limit, max_capacity=limit + 1_000)

        async def call(x):
            async with block:
                return await fn(x)

        return call

    def rate_burst(self, fn):
        return hyx.ratelimit.tokenbucket(1e9, 1.0, bucket_size=1_000_000)(fn)

    def rate_steady(self, fn):
        return hyx.ratelimit.tokenbucket(1e9, 1.0, bucket_size=1)(fn)

    def timeout(self, fn):
        async def call(x):
            async with hyx.timeout.timeout(SECONDS):
                return await fn(x)

        return call

    def retry_breaker(self, fn):
        return self.retry(self.breaker(fn))

    def retry_breaker_timeout(self, fn):
        return self.retry(self.breaker(self.timeout(fn)))

    def one_breaker(self):
        return hyx.circuitbreaker.consecutive_breaker()


class Purgatory:
    label = "purgatory"
    colours = BOTH
    imports = "import purgatory"
    first = "from purgatory import SyncCircuitBreakerFactory\nSyncCircuitBreakerFactory()('first')(abs)(1)"
    many = purgatory.SyncCircuitBreakerFactory()
    names = map(str, count())

    def breaker(self, fn, failures=5):
        colour = "Async" if iscoroutinefunction(fn) else "Sync"
        factory = getattr(purgatory, f"{colour}CircuitBreakerFactory")
        return factory(default_threshold=failures, default_ttl=OPEN_FOR)("bench")(fn)

    def one_breaker(self):
        return self.many.get_breaker(next(self.names))


class CircuitBreaker:
    label = "circuitbreaker"
    colours = BOTH
    imports = "import circuitbreaker"
    first = "from circuitbreaker import circuit\ncircuit(abs)(1)"

    def breaker(self, fn, failures=5):
        return circuitbreaker.circuit(failure_threshold=failures, recovery_timeout=OPEN_FOR)(fn)

    def one_breaker(self):
        return circuitbreaker.CircuitBreaker()


class PyBreaker:
    label = "pybreaker"
    colours = SYNC
    imports = "import pybreaker"
    first = "from pybreaker import CircuitBreaker\nCircuitBreaker()(abs)(1)"

    def breaker(self, fn, failures=5):
        return partial(pybreaker.CircuitBreaker(fail_max=failures, reset_timeout=OPEN_FOR).call, fn)

    def one_breaker(self):
        return pybreaker.CircuitBreaker()


class AioBreaker:
    label = "aiobreaker"
    colours = BOTH
    imports = "import aiobreaker"
    first = "from aiobreaker import CircuitBreaker\nCircuitBreaker().call(abs, 1)"

    def breaker(self, fn, failures=5):
        made = aiobreaker.CircuitBreaker(fail_max=failures, timeout_duration=timedelta(seconds=OPEN_FOR))
        return partial(made.call_async if iscoroutinefunction(fn) else made.call, fn)

    def one_breaker(self):
        return aiobreaker.CircuitBreaker()


class Tenacity:
    label = "tenacity"
    colours = BOTH
    imports = "import tenacity"
    first = "from tenacity import retry, stop_after_attempt\nretry(stop=stop_after_attempt(3))(abs)(1)"

    def retry(self, fn):
        stop = tenacity.stop_after_attempt(ATTEMPTS)
        if iscoroutinefunction(fn):
            return partial(tenacity.AsyncRetrying(stop=stop, reraise=True, sleep=async_no_wait), fn)
        return partial(tenacity.Retrying(stop=stop, reraise=True, sleep=no_wait), fn)


class Stamina:
    label = "stamina"
    colours = BOTH
    imports = "import stamina"
    first = "import stamina\nstamina.retry(on=OSError, attempts=3)(abs)(1)"

    def retry(self, fn):
        stamina.instrumentation.set_on_retry_hooks([])
        no_wait = {"wait_initial": 0, "wait_max": 0, "wait_jitter": 0}
        return stamina.retry(on=Exception, attempts=ATTEMPTS, timeout=None, **no_wait)(fn)


class Backoff:
    label = "backoff"
    colours = BOTH
    imports = "import backoff"
    first = "import backoff\nbackoff.on_exception(backoff.expo, OSError, max_tries=3)(abs)(1)"

    def retry(self, fn):
        quiet = {"jitter": None, "logger": None}
        return backoff.on_exception(backoff.constant, Exception, interval=0, max_tries=ATTEMPTS, **quiet)(fn)


class AioLimiter:
    label = "aiolimiter"
    colours = ASYNC
    imports = "import aiolimiter"

    def limited(self, fn, limiter):
        async def call(x):
            async with limiter:
                return await fn(x)

        return call

    def rate_burst(self, fn):
        return self.limited(fn, aiolimiter.AsyncLimiter(1_000_000, 1e-3))

    def rate_steady(self, fn):
        return self.limited(fn, aiolimiter.AsyncLimiter(1, 1e-9))


class Stdlib:
    label = "stdlib"
    colours = BOTH

    def bulkhead(self, fn, limit=20):
        slots, async_slots = threading.Semaphore(limit), asyncio.Semaphore(limit)

        def call(x):
            with slots:
                return fn(x)

        async def async_call(x):
            async with async_slots:
                return await fn(x)

        return async_call if iscoroutinefunction(fn) else call

    @only("async")
    def timeout(self, fn):
        async def call(x):
            async with asyncio.timeout(SECONDS):
                return await fn(x)

        return call


class Stacked:
    """The fastest single-purpose libraries, one decorator over the other."""

    label = "stacked"
    colours = BOTH

    def retry_breaker(self, fn):
        retrying = Hyx() if iscoroutinefunction(fn) else PyResilience()
        return retrying.retry(CircuitBreaker().breaker(fn))

    @only("async")
    def retry_breaker_timeout(self, fn):
        return self.retry_breaker(Stdlib().timeout(fn))


CONTENDERS = (
    PyResilience(),
    Hyx(),
    Purgatory(),
    CircuitBreaker(),
    PyBreaker(),
    AioBreaker(),
    Tenacity(),
    Stamina(),
    Backoff(),
    AioLimiter(),
    Stdlib(),
    Stacked(),
)
