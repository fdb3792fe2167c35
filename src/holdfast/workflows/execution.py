"""What a bulkhead is told of a call, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


class Limits(Protocol):
    """How many calls of one task type run and wait, and for how long."""

    @property
    def max_concurrent(self) -> int: ...
    @property
    def max_queue_size(self) -> int: ...
    @property
    def timeout_seconds(self) -> float: ...


class BulkheadLimits(Protocol):
    """Where the limits come from; `ResilienceConfig` is one."""

    def get_bulkhead(self, task_type: str, /) -> Limits:
        """The limits of a type; those for unlisted ones if it is not listed."""
        ...

    def bulkheads_dict(self) -> Mapping[str, Limits]:
        """The listed types."""
        ...


class TaskCircuit(Protocol):
    """A circuit breaker as a call passes it."""

    def admit(self) -> Any:
        """A permit. Raises TransientError, with `retry_after`, when the circuit is open."""
        ...

    def settle(self, permit: Any, error: BaseException | None, /) -> None:
        """The call of this permit has ended, with this error or well."""
        ...


@dataclass(frozen=True, slots=True)
class ExecutionResult:
    """How a call ended, and how long it waited for a slot and ran.

    `rejected`: it never ran and may be made again, at no cost; `error` then has a `retry_after`. `timed_out`: it never
    ran if `run_s` is 0. Otherwise `error` is the very exception that the function raised.
    """

    success: bool
    result: Any = None
    error: BaseException | None = None
    timed_out: bool = False
    rejected: bool = False
    wait_s: float = 0.0
    run_s: float = 0.0

    def unwrap(self) -> Any:
        """The result. Raises the error."""
        if self.error is not None:
            raise self.error
        return self.result
