"""Holdfast: guard the calls that can fail, keep what still fails, finish what must happen.

Names are loaded when they are first used, so `import holdfast` costs next to nothing and a sync program never
pays for asyncio or pydantic.
"""

from __future__ import annotations

TYPE_CHECKING = False  # what checkers take for true; importing typing would cost more than all the rest

__version__ = "0.1.0"

# Where each public name lives. Type checkers read the imports below; a test keeps the two in step.
_HOMES = {
    "app": "Holdfast",
    "audit.checkpoints": "Checkpoint export_checkpoints import_checkpoints",
    "audit.event": "AuditEvent AuditEventType AuditSink",
    "audit.sink": "DatabaseAuditSink",
    "audit.verify": "ChainVerification",
    "backends.memory": "MemoryStore",
    "backends.open": "open_store",
    "breakers.breakers": "Breakers",
    "breakers.data": (
        "CircuitBreakerCloseAttempt CircuitBreakerOpenAttempt CircuitBreakerStateData CircuitBreakerStateEnum"
    ),
    "breakers.doors": (
        "InMemoryCircuitBreakerStateRepository RedisCircuitBreakerStateRepository SQLCircuitBreakerStateRepository"
    ),
    "breakers.events": "SharingChanged",
    "breakers.repository": "CircuitBreakerStateRepository",
    "breakers.sharing": "Sharing SharingStatus",
    "breakers.threaded": "AsyncCircuitBreakerStateRepository",
    "config": "Settings",
    "core.backoff": "Backoff BackoffStrategy Jitter",
    "core.classify": "Classifier ResultClassifier default_classify http_classifier",
    "core.clock": "Clock SystemClock",
    "core.context": "ResilienceContext TypedKey current_context deadline remaining_time use_context",
    "core.deadline": "Deadline",
    "core.outcome": "Evidence Outcome OutcomeKind Verdict",
    "doctor.examine": "Diagnosis examine",
    "doctor.rules": "Finding",
    "errors": (
        "AuditIntegrityError BudgetExhausted BulkheadFull BulkheadFullError BulkheadTimeoutError CircuitOpen "
        "CircuitOpenError ConcurrencyError ConfigurationError Conflict DeadLetterError DeadlineExpired GuardRejected "
        "GuardTimeout HoldfastError InvalidStateTransitionError InvalidValue MissingExtra OutcomeError PermanentError "
        "PolicyError PoolExhausted RateLimited RecoveryError ResolverContractError ResolverError SchemaError "
        "StageNotFoundError StoreError StoreUnavailable TaskError TaskNotFoundError TaskTimeoutError Throttled "
        "TransientError VerificationError WorkflowDefinitionError WorkflowError WorkflowNotFoundError"
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
    "letters.bulk": "BulkPreview BulkProgress LetterFilter",
    "letters.capture": "DeadLetter IDEMPOTENCY_KEY letter_id_of",
    "letters.data": (
        "DLQCompressedEntry DLQCompressedStatus FailedOperationData FailedOperationDomain FailedOperationStatus "
        "ReplayAttempt"
    ),
    "letters.doors": "InMemoryFailedOperationRepository RedisDLQRepository SQLFailedOperationRepository",
    "letters.events": (
        "BulkChanged DrainEnded LetterKept LetterReplayed MaintenanceRan ReplayPaused SlaBreached WorkerTroubled"
    ),
    "letters.handlers": "ReplayHandler",
    "letters.held": "HeldGuard",
    "letters.letters": "Letters",
    "letters.maintenance": "MaintenanceReport Schedule",
    "letters.metrics": "letter_readings",
    "letters.overflow": "Capacity Overflow",
    "letters.pace": "BatchPolicy BatchResult",
    "letters.recovery": "RecoveryPolicy",
    "letters.replay": "ReplayOutcome ReplayResult",
    "letters.replaying": "current_idempotency_key current_replay",
    "letters.repository": "FailedOperationRepository",
    "letters.threaded": "AsyncFailedOperationRepository",
    "letters.worker": "Worker WorkerPolicy",
    "machine.breaker": "Breaker CircuitBreakerState CircuitState",
    "machine.budget": "Budget",
    "machine.graph": "JoinType PredicatePhase ReadinessResult SkipCause SplitType evaluate_readiness",
    "machine.outbox_entry": "OutboxStatus",
    "machine.saga": "SagaState",
    "machine.trip": "consecutive count k_of_n ratio slow_ratio",
    "machine.workflow": "WorkflowStatus",
    "outbox.async_outbox": "AsyncOutbox",
    "outbox.backoff": "BackoffPolicy",
    "outbox.cdc": "CreateCdcView",
    "outbox.counts": "SqlStatusCountsSource StatusCountsSource",
    "outbox.draft": "Draft",
    "outbox.entry": "OutboxEntry OutboxOperation",
    "outbox.envelope": "CloudEvent",
    "outbox.erasure": "Erasure SubjectRequest",
    "outbox.events": (
        "BatchClaimed EntryAbandoned EntryCalled EntryParked EntryRefunded EntryVerified RunnerTroubled SagaMoved "
        "SettleLost"
    ),
    "outbox.inbox": "Inbox",
    "outbox.joint": "JointWorker",
    "outbox.local": "ErasureStrategy LocalStep",
    "outbox.metrics": "outbox_readings",
    "outbox.operation": "CallContext Discard Done Operation OperationRegistry Park RetryAfter StepEvents",
    "outbox.outbox": "Outbox",
    "outbox.publishers.address": "public_and",
    "outbox.publishers.kafka": "KafkaPublisher",
    "outbox.publishers.memory": "InMemoryPublisher",
    "outbox.publishers.nats": "NatsPublisher",
    "outbox.publishers.rabbitmq": "RabbitPublisher",
    "outbox.publishers.redis_streams": "RedisStreamsPublisher",
    "outbox.publishers.signature": "verify_webhook",
    "outbox.publishers.webhook": "WebhookPublisher",
    "outbox.publishing": "Message PublishError Publisher Publishers Unroutable publish_operation",
    "outbox.resolver": (
        "RectifyingResolver Resolver ResolverErasure ResolverRectification ResolverRegistry ResolverScheduledErasure "
        "ResolverVerification RetentionOnlyResolver VerifyingResolver"
    ),
    "outbox.runner": "SagaRunner",
    "outbox.sagas.definition": "Saga Step",
    "outbox.sagas.rows": "SagaRun",
    "outbox.sagas.sagas": "Sagas",
    "outbox.signal": "AbandonedHook AbandonedSignal",
    "outbox.subject": "CompositeSubjectId Correction PiiCategory StoredSubjectId SubjectRef",
    "outbox.tables": "OutboxTables bind_tables",
    "outbox.worker": "OutboxWorker OutboxWorkerPolicy",
    "store.port": "Store",
    "telemetry.causation": "causation_id caused_by",
    "telemetry.attempts": "AttemptRecorder CircuitBreakerEvent HourlyAggregate RetryAttempt RetryMetrics RetryOutcome",
    "telemetry.events": (
        "AttemptCompleted CallCompleted CallInterrupted ChaosInjected CircuitStateChanged FellBack GuardEvent Hedged "
        "LoadShed ReloadFailed Reloaded RetryDeferred RetryScheduled Severity TimedOut"
    ),
    "telemetry.hub": (
        "Hub TelemetryListener default_hub default_metrics emit get_listeners register_listener unregister_listener"
    ),
    "telemetry.log": "LoggingListener",
    "telemetry.metrics": "InMemoryMetrics",
    "workflows.bulkheads": "TaskBulkheadManager execute_with_resilience",
    "workflows.cancel": "TaskToken current_task_token",
    "workflows.circuits": "WorkflowCircuitFactory",
    "workflows.config": "BackoffConfig EngineConfig HandlerConfig",
    "workflows.dead": "DeadItem",
    "workflows.fingerprint": "config_drift",
    "workflows.messages": (
        "AddMultiInstance CancelRegion CancelStage CancelWorkflow CompleteStage CompleteTask "
        "CompleteWorkflow ContinueParentStage FireTimer JumpToStage Message PauseTask RestartStage "
        "ResumeStage RunFinalizers RunTask SignalStage SkipStage StartStage StartTask "
        "StartWaitingWorkflows StartWorkflow"
    ),
    "workflows.queue": "WorkflowQueue",
    "workflows.recovery": "RecoveryResult RecoveryStatus WorkflowRecovery recover_on_startup",
    "workflows.store": "WorkflowStore",
    "workflows.dedup": "BloomDeduplicator get_deduplicator",
    "workflows.effects": "Effect",
    "workflows.execution": "ExecutionResult",
    "workflows.finalizers": "FinalizerRegistry get_finalizer_registry",
    "workflows.finalizing": "FinalizerResult",
    "workflows.functions": "TaskFunction WorkflowFunction task workflow",
    "workflows.guarantees": "StepGuarantee WorkflowGuarantees",
    "workflows.loops": "repeat_until while_loop",
    "workflows.model": "Workflow WorkflowType",
    "workflows.multi_instance": "MultiInstanceConfig",
    "workflows.owner": "SyntheticStageOwner",
    "workflows.patches": "patched",
    "workflows.registry": "TaskRegistry",
    "workflows.resilience": "BulkheadConfig ResilienceConfig",
    "workflows.result": "TaskResult",
    "workflows.schedule": "Overlap WorkflowSchedule",
    "workflows.serving": "Stranded",
    "workflows.snapshot": "StageStateSnapshot TaskStateSnapshot",
    "workflows.stage": "StageExecution",
    "workflows.sub_workflow": "SubWorkflow",
    "workflows.task": "RetryableTask SkippableTask Task",
    "workflows.task_context": "TaskContext current_task",
    "workflows.task_run": "TaskExecution",
    "workflows.threaded": "AsyncWorkflowRun AsyncWorkflows",
    "workflows.transactions": "current_session",
    "workflows.trigger": "PausedDetails Trigger",
    "workflows.waiting": "sleep wait_signal",
    "workflows.worker": "WorkflowWorker",
    "workflows.handle": "WorkflowRun",
    "workflows.workflows": "Workflows",
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
    from holdfast.app import Holdfast as Holdfast
    from holdfast.audit.checkpoints import Checkpoint as Checkpoint
    from holdfast.audit.checkpoints import export_checkpoints as export_checkpoints
    from holdfast.audit.checkpoints import import_checkpoints as import_checkpoints
    from holdfast.audit.event import AuditEvent as AuditEvent
    from holdfast.audit.event import AuditEventType as AuditEventType
    from holdfast.audit.event import AuditSink as AuditSink
    from holdfast.audit.sink import DatabaseAuditSink as DatabaseAuditSink
    from holdfast.audit.verify import ChainVerification as ChainVerification
    from holdfast.backends.memory import MemoryStore as MemoryStore
    from holdfast.backends.open import open_store as open_store
    from holdfast.breakers.breakers import Breakers as Breakers
    from holdfast.breakers.data import CircuitBreakerCloseAttempt as CircuitBreakerCloseAttempt
    from holdfast.breakers.data import CircuitBreakerOpenAttempt as CircuitBreakerOpenAttempt
    from holdfast.breakers.data import CircuitBreakerStateData as CircuitBreakerStateData
    from holdfast.breakers.data import CircuitBreakerStateEnum as CircuitBreakerStateEnum
    from holdfast.breakers.doors import InMemoryCircuitBreakerStateRepository as InMemoryCircuitBreakerStateRepository
    from holdfast.breakers.doors import RedisCircuitBreakerStateRepository as RedisCircuitBreakerStateRepository
    from holdfast.breakers.doors import SQLCircuitBreakerStateRepository as SQLCircuitBreakerStateRepository
    from holdfast.breakers.events import SharingChanged as SharingChanged
    from holdfast.breakers.repository import CircuitBreakerStateRepository as CircuitBreakerStateRepository
    from holdfast.breakers.sharing import Sharing as Sharing
    from holdfast.breakers.sharing import SharingStatus as SharingStatus
    from holdfast.breakers.threaded import AsyncCircuitBreakerStateRepository as AsyncCircuitBreakerStateRepository
    from holdfast.config import Settings as Settings
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
    from holdfast.doctor.examine import Diagnosis as Diagnosis
    from holdfast.doctor.examine import examine as examine
    from holdfast.doctor.rules import Finding as Finding
    from holdfast.errors import AuditIntegrityError as AuditIntegrityError
    from holdfast.errors import BudgetExhausted as BudgetExhausted
    from holdfast.errors import BulkheadFull as BulkheadFull
    from holdfast.errors import BulkheadFullError as BulkheadFullError
    from holdfast.errors import BulkheadTimeoutError as BulkheadTimeoutError
    from holdfast.errors import CircuitOpen as CircuitOpen
    from holdfast.errors import CircuitOpenError as CircuitOpenError
    from holdfast.errors import ConcurrencyError as ConcurrencyError
    from holdfast.errors import ConfigurationError as ConfigurationError
    from holdfast.errors import Conflict as Conflict
    from holdfast.errors import DeadLetterError as DeadLetterError
    from holdfast.errors import DeadlineExpired as DeadlineExpired
    from holdfast.errors import GuardRejected as GuardRejected
    from holdfast.errors import GuardTimeout as GuardTimeout
    from holdfast.errors import HoldfastError as HoldfastError
    from holdfast.errors import InvalidStateTransitionError as InvalidStateTransitionError
    from holdfast.errors import InvalidValue as InvalidValue
    from holdfast.errors import MissingExtra as MissingExtra
    from holdfast.errors import OutcomeError as OutcomeError
    from holdfast.errors import PermanentError as PermanentError
    from holdfast.errors import PolicyError as PolicyError
    from holdfast.errors import PoolExhausted as PoolExhausted
    from holdfast.errors import RateLimited as RateLimited
    from holdfast.errors import RecoveryError as RecoveryError
    from holdfast.errors import ResolverContractError as ResolverContractError
    from holdfast.errors import ResolverError as ResolverError
    from holdfast.errors import SchemaError as SchemaError
    from holdfast.errors import StageNotFoundError as StageNotFoundError
    from holdfast.errors import StoreError as StoreError
    from holdfast.errors import StoreUnavailable as StoreUnavailable
    from holdfast.errors import TaskError as TaskError
    from holdfast.errors import TaskNotFoundError as TaskNotFoundError
    from holdfast.errors import TaskTimeoutError as TaskTimeoutError
    from holdfast.errors import Throttled as Throttled
    from holdfast.errors import TransientError as TransientError
    from holdfast.errors import VerificationError as VerificationError
    from holdfast.errors import WorkflowDefinitionError as WorkflowDefinitionError
    from holdfast.errors import WorkflowError as WorkflowError
    from holdfast.errors import WorkflowNotFoundError as WorkflowNotFoundError
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
    from holdfast.letters.bulk import BulkPreview as BulkPreview
    from holdfast.letters.bulk import BulkProgress as BulkProgress
    from holdfast.letters.bulk import LetterFilter as LetterFilter
    from holdfast.letters.capture import IDEMPOTENCY_KEY as IDEMPOTENCY_KEY
    from holdfast.letters.capture import DeadLetter as DeadLetter
    from holdfast.letters.capture import letter_id_of as letter_id_of
    from holdfast.letters.data import DLQCompressedEntry as DLQCompressedEntry
    from holdfast.letters.data import DLQCompressedStatus as DLQCompressedStatus
    from holdfast.letters.data import FailedOperationData as FailedOperationData
    from holdfast.letters.data import FailedOperationDomain as FailedOperationDomain
    from holdfast.letters.data import FailedOperationStatus as FailedOperationStatus
    from holdfast.letters.data import ReplayAttempt as ReplayAttempt
    from holdfast.letters.doors import InMemoryFailedOperationRepository as InMemoryFailedOperationRepository
    from holdfast.letters.doors import RedisDLQRepository as RedisDLQRepository
    from holdfast.letters.doors import SQLFailedOperationRepository as SQLFailedOperationRepository
    from holdfast.letters.events import BulkChanged as BulkChanged
    from holdfast.letters.events import DrainEnded as DrainEnded
    from holdfast.letters.events import LetterKept as LetterKept
    from holdfast.letters.events import LetterReplayed as LetterReplayed
    from holdfast.letters.events import MaintenanceRan as MaintenanceRan
    from holdfast.letters.events import ReplayPaused as ReplayPaused
    from holdfast.letters.events import SlaBreached as SlaBreached
    from holdfast.letters.events import WorkerTroubled as WorkerTroubled
    from holdfast.letters.handlers import ReplayHandler as ReplayHandler
    from holdfast.letters.held import HeldGuard as HeldGuard
    from holdfast.letters.letters import Letters as Letters
    from holdfast.letters.maintenance import MaintenanceReport as MaintenanceReport
    from holdfast.letters.maintenance import Schedule as Schedule
    from holdfast.letters.metrics import letter_readings as letter_readings
    from holdfast.letters.overflow import Capacity as Capacity
    from holdfast.letters.overflow import Overflow as Overflow
    from holdfast.letters.pace import BatchPolicy as BatchPolicy
    from holdfast.letters.pace import BatchResult as BatchResult
    from holdfast.letters.recovery import RecoveryPolicy as RecoveryPolicy
    from holdfast.letters.replay import ReplayOutcome as ReplayOutcome
    from holdfast.letters.replay import ReplayResult as ReplayResult
    from holdfast.letters.replaying import current_idempotency_key as current_idempotency_key
    from holdfast.letters.replaying import current_replay as current_replay
    from holdfast.letters.repository import FailedOperationRepository as FailedOperationRepository
    from holdfast.letters.threaded import AsyncFailedOperationRepository as AsyncFailedOperationRepository
    from holdfast.letters.worker import Worker as Worker
    from holdfast.letters.worker import WorkerPolicy as WorkerPolicy
    from holdfast.machine.breaker import Breaker as Breaker
    from holdfast.machine.breaker import CircuitBreakerState as CircuitBreakerState
    from holdfast.machine.breaker import CircuitState as CircuitState
    from holdfast.machine.budget import Budget as Budget
    from holdfast.machine.graph import JoinType as JoinType
    from holdfast.machine.graph import PredicatePhase as PredicatePhase
    from holdfast.machine.graph import ReadinessResult as ReadinessResult
    from holdfast.machine.graph import SkipCause as SkipCause
    from holdfast.machine.graph import SplitType as SplitType
    from holdfast.machine.graph import evaluate_readiness as evaluate_readiness
    from holdfast.machine.outbox_entry import OutboxStatus as OutboxStatus
    from holdfast.machine.saga import SagaState as SagaState
    from holdfast.machine.trip import consecutive as consecutive
    from holdfast.machine.trip import count as count
    from holdfast.machine.trip import k_of_n as k_of_n
    from holdfast.machine.trip import ratio as ratio
    from holdfast.machine.trip import slow_ratio as slow_ratio
    from holdfast.machine.workflow import WorkflowStatus as WorkflowStatus
    from holdfast.outbox.async_outbox import AsyncOutbox as AsyncOutbox
    from holdfast.outbox.backoff import BackoffPolicy as BackoffPolicy
    from holdfast.outbox.cdc import CreateCdcView as CreateCdcView
    from holdfast.outbox.counts import SqlStatusCountsSource as SqlStatusCountsSource
    from holdfast.outbox.counts import StatusCountsSource as StatusCountsSource
    from holdfast.outbox.draft import Draft as Draft
    from holdfast.outbox.entry import OutboxEntry as OutboxEntry
    from holdfast.outbox.entry import OutboxOperation as OutboxOperation
    from holdfast.outbox.envelope import CloudEvent as CloudEvent
    from holdfast.outbox.erasure import Erasure as Erasure
    from holdfast.outbox.erasure import SubjectRequest as SubjectRequest
    from holdfast.outbox.events import BatchClaimed as BatchClaimed
    from holdfast.outbox.events import EntryAbandoned as EntryAbandoned
    from holdfast.outbox.events import EntryCalled as EntryCalled
    from holdfast.outbox.events import EntryParked as EntryParked
    from holdfast.outbox.events import EntryRefunded as EntryRefunded
    from holdfast.outbox.events import EntryVerified as EntryVerified
    from holdfast.outbox.events import RunnerTroubled as RunnerTroubled
    from holdfast.outbox.events import SagaMoved as SagaMoved
    from holdfast.outbox.events import SettleLost as SettleLost
    from holdfast.outbox.inbox import Inbox as Inbox
    from holdfast.outbox.joint import JointWorker as JointWorker
    from holdfast.outbox.local import ErasureStrategy as ErasureStrategy
    from holdfast.outbox.local import LocalStep as LocalStep
    from holdfast.outbox.metrics import outbox_readings as outbox_readings
    from holdfast.outbox.operation import CallContext as CallContext
    from holdfast.outbox.operation import Discard as Discard
    from holdfast.outbox.operation import Done as Done
    from holdfast.outbox.operation import Operation as Operation
    from holdfast.outbox.operation import OperationRegistry as OperationRegistry
    from holdfast.outbox.operation import Park as Park
    from holdfast.outbox.operation import RetryAfter as RetryAfter
    from holdfast.outbox.operation import StepEvents as StepEvents
    from holdfast.outbox.outbox import Outbox as Outbox
    from holdfast.outbox.publishers.address import public_and as public_and
    from holdfast.outbox.publishers.kafka import KafkaPublisher as KafkaPublisher
    from holdfast.outbox.publishers.memory import InMemoryPublisher as InMemoryPublisher
    from holdfast.outbox.publishers.nats import NatsPublisher as NatsPublisher
    from holdfast.outbox.publishers.rabbitmq import RabbitPublisher as RabbitPublisher
    from holdfast.outbox.publishers.redis_streams import RedisStreamsPublisher as RedisStreamsPublisher
    from holdfast.outbox.publishers.signature import verify_webhook as verify_webhook
    from holdfast.outbox.publishers.webhook import WebhookPublisher as WebhookPublisher
    from holdfast.outbox.publishing import Message as Message
    from holdfast.outbox.publishing import Publisher as Publisher
    from holdfast.outbox.publishing import PublishError as PublishError
    from holdfast.outbox.publishing import Publishers as Publishers
    from holdfast.outbox.publishing import Unroutable as Unroutable
    from holdfast.outbox.publishing import publish_operation as publish_operation
    from holdfast.outbox.resolver import RectifyingResolver as RectifyingResolver
    from holdfast.outbox.resolver import Resolver as Resolver
    from holdfast.outbox.resolver import ResolverErasure as ResolverErasure
    from holdfast.outbox.resolver import ResolverRectification as ResolverRectification
    from holdfast.outbox.resolver import ResolverRegistry as ResolverRegistry
    from holdfast.outbox.resolver import ResolverScheduledErasure as ResolverScheduledErasure
    from holdfast.outbox.resolver import ResolverVerification as ResolverVerification
    from holdfast.outbox.resolver import RetentionOnlyResolver as RetentionOnlyResolver
    from holdfast.outbox.resolver import VerifyingResolver as VerifyingResolver
    from holdfast.outbox.runner import SagaRunner as SagaRunner
    from holdfast.outbox.sagas.definition import Saga as Saga
    from holdfast.outbox.sagas.definition import Step as Step
    from holdfast.outbox.sagas.rows import SagaRun as SagaRun
    from holdfast.outbox.sagas.sagas import Sagas as Sagas
    from holdfast.outbox.signal import AbandonedHook as AbandonedHook
    from holdfast.outbox.signal import AbandonedSignal as AbandonedSignal
    from holdfast.outbox.subject import CompositeSubjectId as CompositeSubjectId
    from holdfast.outbox.subject import Correction as Correction
    from holdfast.outbox.subject import PiiCategory as PiiCategory
    from holdfast.outbox.subject import StoredSubjectId as StoredSubjectId
    from holdfast.outbox.subject import SubjectRef as SubjectRef
    from holdfast.outbox.tables import OutboxTables as OutboxTables
    from holdfast.outbox.tables import bind_tables as bind_tables
    from holdfast.outbox.worker import OutboxWorker as OutboxWorker
    from holdfast.outbox.worker import OutboxWorkerPolicy as OutboxWorkerPolicy
    from holdfast.store.port import Store as Store
    from holdfast.telemetry.attempts import AttemptRecorder as AttemptRecorder
    from holdfast.telemetry.attempts import CircuitBreakerEvent as CircuitBreakerEvent
    from holdfast.telemetry.attempts import HourlyAggregate as HourlyAggregate
    from holdfast.telemetry.attempts import RetryAttempt as RetryAttempt
    from holdfast.telemetry.attempts import RetryMetrics as RetryMetrics
    from holdfast.telemetry.attempts import RetryOutcome as RetryOutcome
    from holdfast.telemetry.causation import causation_id as causation_id
    from holdfast.telemetry.causation import caused_by as caused_by
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
    from holdfast.workflows.bulkheads import TaskBulkheadManager as TaskBulkheadManager
    from holdfast.workflows.bulkheads import execute_with_resilience as execute_with_resilience
    from holdfast.workflows.cancel import TaskToken as TaskToken
    from holdfast.workflows.cancel import current_task_token as current_task_token
    from holdfast.workflows.circuits import WorkflowCircuitFactory as WorkflowCircuitFactory
    from holdfast.workflows.config import BackoffConfig as BackoffConfig
    from holdfast.workflows.config import EngineConfig as EngineConfig
    from holdfast.workflows.config import HandlerConfig as HandlerConfig
    from holdfast.workflows.dead import DeadItem as DeadItem
    from holdfast.workflows.dedup import BloomDeduplicator as BloomDeduplicator
    from holdfast.workflows.dedup import get_deduplicator as get_deduplicator
    from holdfast.workflows.effects import Effect as Effect
    from holdfast.workflows.execution import ExecutionResult as ExecutionResult
    from holdfast.workflows.finalizers import FinalizerRegistry as FinalizerRegistry
    from holdfast.workflows.finalizers import get_finalizer_registry as get_finalizer_registry
    from holdfast.workflows.finalizing import FinalizerResult as FinalizerResult
    from holdfast.workflows.fingerprint import config_drift as config_drift
    from holdfast.workflows.functions import TaskFunction as TaskFunction
    from holdfast.workflows.functions import WorkflowFunction as WorkflowFunction
    from holdfast.workflows.functions import task as task
    from holdfast.workflows.functions import workflow as workflow
    from holdfast.workflows.guarantees import StepGuarantee as StepGuarantee
    from holdfast.workflows.guarantees import WorkflowGuarantees as WorkflowGuarantees
    from holdfast.workflows.handle import WorkflowRun as WorkflowRun
    from holdfast.workflows.loops import repeat_until as repeat_until
    from holdfast.workflows.loops import while_loop as while_loop
    from holdfast.workflows.messages import AddMultiInstance as AddMultiInstance
    from holdfast.workflows.messages import CancelRegion as CancelRegion
    from holdfast.workflows.messages import CancelStage as CancelStage
    from holdfast.workflows.messages import CancelWorkflow as CancelWorkflow
    from holdfast.workflows.messages import CompleteStage as CompleteStage
    from holdfast.workflows.messages import CompleteTask as CompleteTask
    from holdfast.workflows.messages import CompleteWorkflow as CompleteWorkflow
    from holdfast.workflows.messages import ContinueParentStage as ContinueParentStage
    from holdfast.workflows.messages import FireTimer as FireTimer
    from holdfast.workflows.messages import JumpToStage as JumpToStage
    from holdfast.workflows.messages import PauseTask as PauseTask
    from holdfast.workflows.messages import RestartStage as RestartStage
    from holdfast.workflows.messages import ResumeStage as ResumeStage
    from holdfast.workflows.messages import RunFinalizers as RunFinalizers
    from holdfast.workflows.messages import RunTask as RunTask
    from holdfast.workflows.messages import SignalStage as SignalStage
    from holdfast.workflows.messages import SkipStage as SkipStage
    from holdfast.workflows.messages import StartStage as StartStage
    from holdfast.workflows.messages import StartTask as StartTask
    from holdfast.workflows.messages import StartWaitingWorkflows as StartWaitingWorkflows
    from holdfast.workflows.messages import StartWorkflow as StartWorkflow
    from holdfast.workflows.model import Workflow as Workflow
    from holdfast.workflows.model import WorkflowType as WorkflowType
    from holdfast.workflows.multi_instance import MultiInstanceConfig as MultiInstanceConfig
    from holdfast.workflows.owner import SyntheticStageOwner as SyntheticStageOwner
    from holdfast.workflows.patches import patched as patched
    from holdfast.workflows.queue import WorkflowQueue as WorkflowQueue
    from holdfast.workflows.recovery import RecoveryResult as RecoveryResult
    from holdfast.workflows.recovery import RecoveryStatus as RecoveryStatus
    from holdfast.workflows.recovery import WorkflowRecovery as WorkflowRecovery
    from holdfast.workflows.recovery import recover_on_startup as recover_on_startup
    from holdfast.workflows.registry import TaskRegistry as TaskRegistry
    from holdfast.workflows.resilience import BulkheadConfig as BulkheadConfig
    from holdfast.workflows.resilience import ResilienceConfig as ResilienceConfig
    from holdfast.workflows.result import TaskResult as TaskResult
    from holdfast.workflows.schedule import Overlap as Overlap
    from holdfast.workflows.schedule import WorkflowSchedule as WorkflowSchedule
    from holdfast.workflows.serving import Stranded as Stranded
    from holdfast.workflows.snapshot import StageStateSnapshot as StageStateSnapshot
    from holdfast.workflows.snapshot import TaskStateSnapshot as TaskStateSnapshot
    from holdfast.workflows.stage import StageExecution as StageExecution
    from holdfast.workflows.store import WorkflowStore as WorkflowStore
    from holdfast.workflows.sub_workflow import SubWorkflow as SubWorkflow
    from holdfast.workflows.task import RetryableTask as RetryableTask
    from holdfast.workflows.task import SkippableTask as SkippableTask
    from holdfast.workflows.task import Task as Task
    from holdfast.workflows.task_context import TaskContext as TaskContext
    from holdfast.workflows.task_context import current_task as current_task
    from holdfast.workflows.task_run import TaskExecution as TaskExecution
    from holdfast.workflows.threaded import AsyncWorkflowRun as AsyncWorkflowRun
    from holdfast.workflows.threaded import AsyncWorkflows as AsyncWorkflows
    from holdfast.workflows.transactions import current_session as current_session
    from holdfast.workflows.trigger import PausedDetails as PausedDetails
    from holdfast.workflows.trigger import Trigger as Trigger
    from holdfast.workflows.waiting import sleep as sleep
    from holdfast.workflows.waiting import wait_signal as wait_signal
    from holdfast.workflows.worker import WorkflowWorker as WorkflowWorker
    from holdfast.workflows.workflows import Workflows as Workflows
