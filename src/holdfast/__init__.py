"""Holdfast: guard the calls that can fail, keep what still fails, finish what must happen.

Names are loaded when they are first used, so `import holdfast` costs next to nothing and a sync program never
pays for asyncio or pydantic.
"""

from __future__ import annotations

TYPE_CHECKING = False  # what checkers take for true; importing typing would cost more than all the rest

__version__ = "0.1.0"

# Where each public name lives. Type checkers read the imports below; a test keeps the two in step.
_HOMES = {
    "core.backoff": "Backoff BackoffStrategy Jitter",
    "core.classify": "Classifier ResultClassifier default_classify http_classifier",
    "core.clock": "Clock SystemClock",
    "core.context": "ResilienceContext TypedKey current_context deadline remaining_time use_context",
    "core.deadline": "Deadline",
    "core.outcome": "Evidence Outcome OutcomeKind Verdict",
    "errors": (
        "BudgetExhausted BulkheadFull CircuitOpen DeadlineExpired GuardRejected GuardTimeout "
        "HoldfastError OutcomeError PolicyError PoolExhausted RateLimited Throttled"
    ),
    "failover.endpoint": "Endpoint",
    "failover.failover": "Failover current_endpoint",
    "failover.pool": "EndpointPool",
    "failover.rotation": "ProxyRotator",
    "guard.adaptive": "AdaptiveLimit",
    "guard.bulkhead": "Bulkhead BulkheadStrategy",
    "guard.cache": "Cache",
    "guard.call": "ENDPOINT IDEMPOTENT ResilienceStrategy",
    "guard.chaos": "Chaos",
    "guard.circuit": "CircuitBreakerStrategy",
    "guard.circuit_breaker": "CircuitBreaker",
    "guard.describe": "Description",
    "guard.explain": "Explanation",
    "guard.fallback": "Fallback FallbackStrategy",
    "guard.guard": "Guard",
    "guard.hedge": "Hedge HedgeStrategy",
    "guard.pipeline": "ResiliencePipeline ResiliencePipelineBuilder",
    "guard.priority": "PRIORITY Priority PriorityBulkhead PriorityBulkheadStrategy",
    "guard.rate_limit": "RateLimit RateLimiterStrategy",
    "guard.registry": "ResiliencePipelineRegistry get_pipeline_registry",
    "guard.retry": "Retry RetrySafety RetryStrategy",
    "guard.retry_policy": "RetryPolicy",
    "guard.seam": "GuardedFn guarded_call guarded_call_sync",
    "guard.throttle": "Throttle",
    "guard.timeout": "Timeout TimeoutStrategy",
    "machine.breaker": "Breaker CircuitBreakerState CircuitState",
    "machine.budget": "Budget",
    "machine.trip": "consecutive count k_of_n ratio slow_ratio",
    "telemetry.attempts": (
        "AttemptRecorder CircuitBreakerEvent HourlyAggregate RetryAttempt RetryMetrics RetryOutcome"
    ),
    "telemetry.events": (
        "AttemptCompleted CallCompleted CallInterrupted ChaosInjected CircuitStateChanged FellBack "
        "GuardEvent Hedged LoadShed ReloadFailed Reloaded RetryDeferred RetryScheduled Severity TimedOut"
    ),
    "telemetry.hub": (
        "Hub TelemetryListener default_hub default_metrics emit get_listeners register_listener unregister_listener"
    ),
    "telemetry.log": "LoggingListener",
    "telemetry.metrics": "InMemoryMetrics",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME_OF)  # pyright: ignore[reportUnsupportedDunderAll]  # computed from the table


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"holdfast.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})


if TYPE_CHECKING:
    from holdfast.core.backoff import Backoff as Backoff
    from holdfast.core.backoff import BackoffStrategy as BackoffStrategy
    from holdfast.core.backoff import Jitter as Jitter
    from holdfast.core.classify import Classifier as Classifier
    from holdfast.core.classify import ResultClassifier as ResultClassifier
    from holdfast.core.classify import default_classify as default_classify
    from holdfast.core.classify import http_classifier as http_classifier
    from holdfast.core.clock import Clock as Clock
    from holdfast.core.clock import SystemClock as SystemClock
    from holdfast.core.context import ResilienceContext as ResilienceContext
    from holdfast.core.context import TypedKey as TypedKey
    from holdfast.core.context import current_context as current_context
    from holdfast.core.context import deadline as deadline
    from holdfast.core.context import remaining_time as remaining_time
    from holdfast.core.context import use_context as use_context
    from holdfast.core.deadline import Deadline as Deadline
    from holdfast.core.outcome import Evidence as Evidence
    from holdfast.core.outcome import Outcome as Outcome
    from holdfast.core.outcome import OutcomeKind as OutcomeKind
    from holdfast.core.outcome import Verdict as Verdict
    from holdfast.errors import BudgetExhausted as BudgetExhausted
    from holdfast.errors import BulkheadFull as BulkheadFull
    from holdfast.errors import CircuitOpen as CircuitOpen
    from holdfast.errors import DeadlineExpired as DeadlineExpired
    from holdfast.errors import GuardRejected as GuardRejected
    from holdfast.errors import GuardTimeout as GuardTimeout
    from holdfast.errors import HoldfastError as HoldfastError
    from holdfast.errors import OutcomeError as OutcomeError
    from holdfast.errors import PolicyError as PolicyError
    from holdfast.errors import PoolExhausted as PoolExhausted
    from holdfast.errors import RateLimited as RateLimited
    from holdfast.errors import Throttled as Throttled
    from holdfast.failover.endpoint import Endpoint as Endpoint
    from holdfast.failover.failover import Failover as Failover
    from holdfast.failover.failover import current_endpoint as current_endpoint
    from holdfast.failover.pool import EndpointPool as EndpointPool
    from holdfast.failover.rotation import ProxyRotator as ProxyRotator
    from holdfast.guard.adaptive import AdaptiveLimit as AdaptiveLimit
    from holdfast.guard.bulkhead import Bulkhead as Bulkhead
    from holdfast.guard.bulkhead import BulkheadStrategy as BulkheadStrategy
    from holdfast.guard.cache import Cache as Cache
    from holdfast.guard.call import ENDPOINT as ENDPOINT
    from holdfast.guard.call import IDEMPOTENT as IDEMPOTENT
    from holdfast.guard.call import ResilienceStrategy as ResilienceStrategy
    from holdfast.guard.chaos import Chaos as Chaos
    from holdfast.guard.circuit import CircuitBreakerStrategy as CircuitBreakerStrategy
    from holdfast.guard.circuit_breaker import CircuitBreaker as CircuitBreaker
    from holdfast.guard.describe import Description as Description
    from holdfast.guard.explain import Explanation as Explanation
    from holdfast.guard.fallback import Fallback as Fallback
    from holdfast.guard.fallback import FallbackStrategy as FallbackStrategy
    from holdfast.guard.guard import Guard as Guard
    from holdfast.guard.hedge import Hedge as Hedge
    from holdfast.guard.hedge import HedgeStrategy as HedgeStrategy
    from holdfast.guard.pipeline import ResiliencePipeline as ResiliencePipeline
    from holdfast.guard.pipeline import ResiliencePipelineBuilder as ResiliencePipelineBuilder
    from holdfast.guard.priority import PRIORITY as PRIORITY
    from holdfast.guard.priority import Priority as Priority
    from holdfast.guard.priority import PriorityBulkhead as PriorityBulkhead
    from holdfast.guard.priority import PriorityBulkheadStrategy as PriorityBulkheadStrategy
    from holdfast.guard.rate_limit import RateLimit as RateLimit
    from holdfast.guard.rate_limit import RateLimiterStrategy as RateLimiterStrategy
    from holdfast.guard.registry import ResiliencePipelineRegistry as ResiliencePipelineRegistry
    from holdfast.guard.registry import get_pipeline_registry as get_pipeline_registry
    from holdfast.guard.retry import Retry as Retry
    from holdfast.guard.retry import RetrySafety as RetrySafety
    from holdfast.guard.retry import RetryStrategy as RetryStrategy
    from holdfast.guard.retry_policy import RetryPolicy as RetryPolicy
    from holdfast.guard.seam import GuardedFn as GuardedFn
    from holdfast.guard.seam import guarded_call as guarded_call
    from holdfast.guard.seam import guarded_call_sync as guarded_call_sync
    from holdfast.guard.throttle import Throttle as Throttle
    from holdfast.guard.timeout import Timeout as Timeout
    from holdfast.guard.timeout import TimeoutStrategy as TimeoutStrategy
    from holdfast.machine.breaker import Breaker as Breaker
    from holdfast.machine.breaker import CircuitBreakerState as CircuitBreakerState
    from holdfast.machine.breaker import CircuitState as CircuitState
    from holdfast.machine.budget import Budget as Budget
    from holdfast.machine.trip import consecutive as consecutive
    from holdfast.machine.trip import count as count
    from holdfast.machine.trip import k_of_n as k_of_n
    from holdfast.machine.trip import ratio as ratio
    from holdfast.machine.trip import slow_ratio as slow_ratio
    from holdfast.telemetry.attempts import AttemptRecorder as AttemptRecorder
    from holdfast.telemetry.attempts import CircuitBreakerEvent as CircuitBreakerEvent
    from holdfast.telemetry.attempts import HourlyAggregate as HourlyAggregate
    from holdfast.telemetry.attempts import RetryAttempt as RetryAttempt
    from holdfast.telemetry.attempts import RetryMetrics as RetryMetrics
    from holdfast.telemetry.attempts import RetryOutcome as RetryOutcome
    from holdfast.telemetry.events import AttemptCompleted as AttemptCompleted
    from holdfast.telemetry.events import CallCompleted as CallCompleted
    from holdfast.telemetry.events import CallInterrupted as CallInterrupted
    from holdfast.telemetry.events import ChaosInjected as ChaosInjected
    from holdfast.telemetry.events import CircuitStateChanged as CircuitStateChanged
    from holdfast.telemetry.events import FellBack as FellBack
    from holdfast.telemetry.events import GuardEvent as GuardEvent
    from holdfast.telemetry.events import Hedged as Hedged
    from holdfast.telemetry.events import LoadShed as LoadShed
    from holdfast.telemetry.events import Reloaded as Reloaded
    from holdfast.telemetry.events import ReloadFailed as ReloadFailed
    from holdfast.telemetry.events import RetryDeferred as RetryDeferred
    from holdfast.telemetry.events import RetryScheduled as RetryScheduled
    from holdfast.telemetry.events import Severity as Severity
    from holdfast.telemetry.events import TimedOut as TimedOut
    from holdfast.telemetry.hub import Hub as Hub
    from holdfast.telemetry.hub import TelemetryListener as TelemetryListener
    from holdfast.telemetry.hub import default_hub as default_hub
    from holdfast.telemetry.hub import default_metrics as default_metrics
    from holdfast.telemetry.hub import emit as emit
    from holdfast.telemetry.hub import get_listeners as get_listeners
    from holdfast.telemetry.hub import register_listener as register_listener
    from holdfast.telemetry.hub import unregister_listener as unregister_listener
    from holdfast.telemetry.log import LoggingListener as LoggingListener
    from holdfast.telemetry.metrics import InMemoryMetrics as InMemoryMetrics
