"""What HTTP means to a guard: what is retried, what a breaker learns, which requests may be made twice.

| what came back                          | retried                 | breaker | record              |
|-----------------------------------------|-------------------------|---------|---------------------|
| a status in `retry_status_codes`        | yes, if safe            | failure | FAILURE with status |
| 429 with Retry-After                    | after that time         | success | FAILURE             |
| 401, 407                                | no, returned            | neutral | FAILURE             |
| any other status                        | no, returned            | success | SUCCESS             |
| connect, network, protocol, proxy error | yes, if safe            | failure | FAILURE             |
| a timeout                               | yes, if safe            | failure | TIMEOUT             |
| the caller's own mistake                | no                      | neutral | FAILURE             |

No HTTP library is imported: errors are known by their names, responses by `status_code` (or `status`) and `headers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from holdfast.core.classify import RETRIED_STATUSES, default_classify, judge_status, was_not_sent
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.core.outcome import Outcome, OutcomeKind, Verdict
from holdfast.errors import PolicyError
from holdfast.guard.plan import delivered

IDEMPOTENT_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
IDEMPOTENCY_KEY: Final = "Idempotency-Key"

# The caller's own mistakes: they say nothing about the dependency, and another try would make them again.
_MISTAKES: Final = frozenset(
    {
        "UnsupportedProtocol", "LocalProtocolError", "InvalidURL", "InvalidSchema", "MissingSchema", "InvalidHeader",
        "StreamError", "UnrewindableBodyError", "PolicyError",
    }
)  # fmt: skip
_NO_FREE_CONNECTION: Final = "EmptyPoolError"  # urllib3's pool timeout, by another name
# A proxy error is a proxy that could not be reached or refused the tunnel; what a proxy forwards has a status.
_UNSENT: Final = frozenset({"ProxyError", _NO_FREE_CONNECTION})


class HttpRules:
    """What a response or an error means for retry and breaker; the module's docstring has the table.

    Raises PolicyError for a status that is no server error.
    """

    __slots__ = ("_clock", "_statuses")

    def __init__(self, retry_status_codes: Iterable[int] = RETRIED_STATUSES, clock: Clock = SYSTEM_CLOCK) -> None:
        self._statuses = frozenset(retry_status_codes)
        self._clock = clock
        for status in self._statuses:
            if status not in range(500, 600):
                raise PolicyError(
                    f"retry_status_codes must be 500..599, got {status!r}; for others use a result_classifier"
                )

    def judge(self, response: Any) -> OutcomeKind | Verdict | None:
        """A result classifier; what has no status is a success."""
        return judge_status(response, self._statuses, self._clock.wall)

    def classify(self, error: BaseException) -> OutcomeKind | Verdict:
        """A classifier. An error made from a response (`raise_for_status`) counts like the response, but is raised."""
        mark_unsent(error)
        verdict = judge_status(error, self._statuses, self._clock.wall)
        if verdict is not None:
            return verdict
        names = frozenset().union(*(_names(reason) for reason in _reasons(error)))
        if names & _MISTAKES:
            return OutcomeKind.TERMINAL_FAILURE
        # Timeouts of HTTP libraries are no TimeoutErrors, but they are called so.
        if _NO_FREE_CONNECTION in names or any("Timeout" in name for name in names):
            return OutcomeKind.TIMEOUT
        return default_classify(error)


def is_idempotent(method: str | None, key: object) -> bool:
    """Whether a request may be made twice, by its method or its Idempotency-Key."""
    return (method or "").upper() in IDEMPOTENT_METHODS or bool(key)


def mark_unsent(error: BaseException) -> None:
    """Note on an error that its request never left, where only what it wraps can tell."""
    if any(was_not_sent(reason) or _names(reason) & _UNSENT for reason in _reasons(error)):
        error.not_sent = True  # type: ignore[attr-defined]  # what core.classify.was_not_sent asks for


def answer(outcome: Outcome[Any]) -> Any:
    """A response whose status is a failure is an answer if there is no better one; the rest is a value or raises."""
    if outcome.error is None and not outcome.kind.has_value and "result" in outcome.metadata:
        return outcome.metadata["result"]
    return delivered(outcome)


def _reasons(error: BaseException) -> Iterator[BaseException]:
    """The error and those it was made from: requests packs urllib3's errors, and those pack the socket's."""
    seen: list[BaseException] = [error]
    for reason in seen:
        yield reason
        inner = (getattr(reason, "reason", None), getattr(reason, "original_error", None), *reason.args)
        seen += [one for one in inner if isinstance(one, BaseException) and one not in seen]


def _names(error: BaseException) -> frozenset[str]:
    return frozenset(base.__name__ for base in type(error).__mro__)
