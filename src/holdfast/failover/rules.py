"""What a proxy's answer means for retry, breaker and records.

| what came back                        | retried                 | breaker | record                 |
|---------------------------------------|-------------------------|---------|------------------------|
| a status in `retry_status_codes`      | yes                     | failure | FAILURE with status    |
| 429 with Retry-After                  | after that time         | success | FAILURE                |
| 401, 407                              | no, returned            | neutral | FAILURE                |
| any other status                      | no, returned            | success | SUCCESS                |
| a timeout                             | yes, if safe            | failure | TIMEOUT                |
| any other error, but programming ones | yes, if safe            | failure | FAILURE                |
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.core.classify import _status as status_of
from holdfast.core.classify import default_classify, retry_after_hint
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.core.outcome import Evidence, OutcomeKind, Verdict
from holdfast.guard.retry_policy import RetryPolicy

_UNAUTHENTICATED: Final = frozenset({401, 407})


class ProxyRules:
    """What a response or an error of `send` means; the module's docstring has the table."""

    __slots__ = ("_clock", "_statuses")

    def __init__(self, policy: RetryPolicy, clock: Clock = SYSTEM_CLOCK) -> None:
        self._statuses = frozenset(policy.retry_status_codes)
        self._clock = clock

    def judge(self, response: Any) -> OutcomeKind | Verdict | None:
        """A result classifier; what has no status is a success."""
        status = status_of(response)
        if status in self._statuses:
            return OutcomeKind.TRANSIENT_FAILURE
        if status in _UNAUTHENTICATED:
            return Verdict(OutcomeKind.TERMINAL_FAILURE, evidence=Evidence.NEUTRAL)
        if status == 429 and (hint := retry_after_hint(response, self._clock.wall)) is not None:
            return Verdict(OutcomeKind.TRANSIENT_FAILURE, retry_after=hint, evidence=Evidence.SUCCESS)
        return None

    def classify(self, error: BaseException) -> OutcomeKind | Verdict:
        """A classifier; an error that carries a response counts like the response, but is raised."""
        if status_of(error) is not None:
            return self.judge(error) or Verdict(OutcomeKind.TERMINAL_FAILURE, evidence=Evidence.SUCCESS)
        # Timeouts of HTTP libraries are no TimeoutErrors, but they are called so.
        if any("Timeout" in base.__name__ for base in type(error).__mro__):
            return OutcomeKind.TIMEOUT
        return default_classify(error)
