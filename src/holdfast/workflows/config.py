"""How workflows run: frozen configurations that are checked when they are made, and have fingerprints.

    ResilienceConfig   bulkheads per task type, circuits, the database
    HandlerConfig      retries and their delays, limits of the worker
    EngineConfig       isolation, leases, recovery, retention, drift

Each has `from_env()`. A variable is HOLDFAST_ or STABILIZE_ and the name that stands beside the field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Self

from holdfast.core import backoff
from holdfast.core.check import LONGEST_S
from holdfast.core.environment import (
    MOST,
    Configured,
    Environment,
    choice,
    flag,
    made,
    number,
    whole,
    whole_or_none,
)
from holdfast.errors import PolicyError
from holdfast.workflows.fingerprint import combined_fingerprint as combined_fingerprint
from holdfast.workflows.fingerprint import config_drift as config_drift
from holdfast.workflows.fingerprint import config_values as config_values
from holdfast.workflows.fingerprint import fingerprint
from holdfast.workflows.resilience import BulkheadConfig as BulkheadConfig
from holdfast.workflows.resilience import ResilienceConfig as ResilienceConfig


@dataclass(frozen=True, slots=True)
class BackoffConfig(Configured):
    """Delays that grow by `factor` from `min_delay_ms` to `max_delay_ms`, each spread by a share of `jitter`."""

    min_delay_ms: int = whole(100, "", 0, 10**9, "use 0 for no wait")
    max_delay_ms: int = whole(1000, "", 0, 10**9, "use the longest wait that is still of use")
    factor: float = number(2.0, "", 1, 1000, "use 1 for a constant wait")
    jitter: float = number(0.25, "", 0, 1, "use 0 for no jitter")

    def _check_together(self) -> None:
        _check_order(self, "min_delay_ms", "max_delay_ms")

    def delay(self, k: int, rng: Callable[[], float]) -> float:
        """The seconds to wait after failure k + 1, so k = 0 is the first; `rng` draws from [0, 1)."""
        base, cap = self.min_delay_ms / 1000, self.max_delay_ms / 1000
        wait = backoff.delay("exponential", base, self.factor, cap, "none", k, rng)
        return min(wait * (1 - self.jitter + 2 * self.jitter * rng()), cap)

    def config_fingerprint(self) -> str:
        """16 hexadecimal digits over every field."""
        return fingerprint(self)


@dataclass(frozen=True, slots=True)
class HandlerConfig(Configured):
    """Retries of the engine's own work, the delays of tasks, and the limits of a worker.

    `concurrency_*` is for a change that somebody else made first (0 retries: none in place), `error_handling_*` for
    storing that a task failed.
    """

    concurrency_max_retries: int = whole(3, "HANDLER_MAX_RETRIES", 0, 1000, "use 0 for no retry in place")
    concurrency_min_delay_ms: int = whole(100, "HANDLER_MIN_DELAY_MS", 0, 10**9, "use 0 for no wait")
    concurrency_max_delay_ms: int = whole(1000, "HANDLER_MAX_DELAY_MS", 0, 10**9, "use the longest useful wait")
    concurrency_backoff_factor: float = number(2.0, "HANDLER_BACKOFF_FACTOR", 1, 1000, "use 1 for a constant wait")
    concurrency_jitter: float = number(0.25, "HANDLER_JITTER", 0, 1, "use 0 for no jitter")
    error_handling_max_retries: int = whole(10, "ERROR_MAX_RETRIES", 0, 1000, "use 0 for no retry")
    error_handling_min_delay_ms: int = whole(25, "ERROR_MIN_DELAY_MS", 0, 10**9, "use 0 for no wait")
    error_handling_max_delay_ms: int = whole(10000, "ERROR_MAX_DELAY_MS", 0, 10**9, "use the longest useful wait")
    error_handling_backoff_factor: float = number(2.0, "ERROR_BACKOFF_FACTOR", 1, 1000, "use 1 for a constant wait")
    error_handling_jitter: float = number(0.3, "ERROR_JITTER", 0, 1, "use 0 for no jitter")
    max_stage_wait_retries: int = whole(240, "MAX_STAGE_WAIT_RETRIES", 1, MOST, "use 240")
    default_task_timeout_seconds: float = number(
        14400, "DEFAULT_TASK_TIMEOUT_S", 0, LONGEST_S, "use 14400 for four hours", above=True
    )
    task_backoff_min_delay_ms: int = whole(1000, "TASK_BACKOFF_MIN_MS", 0, 10**9, "use 0 for no wait")
    task_backoff_max_delay_ms: int = whole(60000, "TASK_BACKOFF_MAX_MS", 0, 10**9, "use the longest useful wait")
    handler_retry_delay_seconds: float = number(15, "HANDLER_RETRY_DELAY_S", 0, LONGEST_S, "use 15", above=True)
    poll_frequency_ms: int = whole(50, "PROCESSOR_POLL_MS", 1, 10**9, "use 50; wake-ups make it a fallback")
    max_workers: int = whole(10, "PROCESSOR_MAX_WORKERS", 1, 10_000, "use 1 for one thread")
    default_page_size: int = whole(100, "DEFAULT_PAGE_SIZE", 1, 10_000, "use 100")
    signal_buffer_max: int = whole(1000, "SIGNAL_BUFFER_MAX", 0, MOST, "use 0 to keep no early signal")

    def _check_together(self) -> None:
        for start in ("concurrency", "error_handling", "task_backoff"):
            _check_order(self, f"{start}_min_delay_ms", f"{start}_max_delay_ms")

    @property
    def concurrency_backoff(self) -> BackoffConfig:
        return BackoffConfig(
            self.concurrency_min_delay_ms,
            self.concurrency_max_delay_ms,
            self.concurrency_backoff_factor,
            self.concurrency_jitter,
        )

    @property
    def error_handling_backoff(self) -> BackoffConfig:
        return BackoffConfig(
            self.error_handling_min_delay_ms,
            self.error_handling_max_delay_ms,
            self.error_handling_backoff_factor,
            self.error_handling_jitter,
        )

    @property
    def task_backoff(self) -> BackoffConfig:
        """Of a task without a policy of its own: doubling, a quarter of jitter."""
        return BackoffConfig(self.task_backoff_min_delay_ms, self.task_backoff_max_delay_ms)

    def config_fingerprint(self) -> str:
        """16 hexadecimal digits over every field."""
        return fingerprint(self)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Self:
        """As the environment says, else the defaults. Raises ConfigurationError that names the variable."""
        config: Self = made(cls, Environment(environ).read(cls))
        return config


@dataclass(frozen=True, slots=True)
class EngineConfig(Configured):
    """Where task bodies run, how a dead worker is noticed, what is taken up again, and how long things are kept.

    `drift_policy` says what to do with a workflow that was started under another configuration.
    """

    isolation_mode: Literal["thread", "process"] = choice(
        "thread", "ISOLATION_MODE", ("thread", "process"), "use process to be able to kill a task"
    )
    lease_heartbeat_seconds: float = number(0.5, "LEASE_HEARTBEAT_S", 0, 3600, "use 0.5", above=True)
    lease_ttl_seconds: float = number(3, "LEASE_TTL_S", 0, 86400, "use 3", above=True)
    recovery_enabled: bool = flag(True, "RECOVERY_ENABLED", "use True to take up what dead workers left")
    recovery_max_age_hours: float = number(24, "RECOVERY_MAX_AGE_HOURS", 0, MOST, "use 24 for a day", above=True)
    retention_days: int | None = whole_or_none(
        None, "RETENTION_DAYS", 1, 100_000, "use None to keep workflows for ever"
    )
    merge_strict: bool = flag(False, "MERGE_STRICT", "use True to refuse outputs that clash")
    drift_policy: Literal["ignore", "warn", "refuse"] = choice(
        "warn", "DRIFT_POLICY", ("ignore", "warn", "refuse"), "use warn to be told"
    )

    def _check_together(self) -> None:
        if self.lease_ttl_seconds < 2 * self.lease_heartbeat_seconds:
            raise PolicyError(
                f"EngineConfig.lease_ttl_seconds must be at least twice lease_heartbeat_seconds = "
                f"{self.lease_heartbeat_seconds:g}, got {self.lease_ttl_seconds:g}; a late beat must not lose the lease"
            )

    def config_fingerprint(self) -> str:
        """16 hexadecimal digits over every field."""
        return fingerprint(self)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Self:
        """As the environment says, else the defaults. Raises ConfigurationError that names the variable."""
        config: Self = made(cls, Environment(environ).read(cls))
        return config


def _check_order(config: Configured, low: str, high: str) -> None:
    least, most = getattr(config, low), getattr(config, high)
    if most < least:
        owner = type(config).__name__
        raise PolicyError(f"{owner}.{high} must be at least {low} = {least}, got {most}; raise it or lower {low}")
