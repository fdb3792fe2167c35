"""From an exception or a result to an outcome kind."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from holdfast.core.outcome import Evidence, OutcomeKind, Verdict
from holdfast.errors import GuardRejected, OutcomeError

Classifier = Callable[[BaseException], OutcomeKind | Verdict]
ResultClassifier = Callable[[Any], OutcomeKind | Verdict | None]
K = TypeVar("K")

# The first of these among an exception's bases, in method resolution order, decides; GuardTimeout is a TimeoutError.
_KINDS: Final[dict[type[BaseException], OutcomeKind]] = {
    GuardRejected: OutcomeKind.REJECTED,
    TimeoutError: OutcomeKind.TIMEOUT,
    OSError: OutcomeKind.TRANSIENT_FAILURE,
    TypeError: OutcomeKind.TERMINAL_FAILURE,
    AttributeError: OutcomeKind.TERMINAL_FAILURE,
    NameError: OutcomeKind.TERMINAL_FAILURE,
    AssertionError: OutcomeKind.TERMINAL_FAILURE,
    NotImplementedError: OutcomeKind.TERMINAL_FAILURE,
    ImportError: OutcomeKind.TERMINAL_FAILURE,
}

RETRIED_STATUSES: Final = frozenset({502, 503, 504})
# By name, so that nothing is imported to ask: socket, ssl, httpx and requests/urllib3.
_NOT_SENT: Final = frozenset(
    {
        "gaierror", "herror", "SSLCertVerificationError", "ConnectError", "ConnectTimeout", "PoolTimeout",
        "NewConnectionError", "NameResolutionError", "ConnectTimeoutError",
    }
)  # fmt: skip
# Built-in exceptions say nothing about retrying, unless somebody set an attribute on one; their types cannot change.
_IMMUTABLE_TYPE: Final = 1 << 8
_MUTE: Final = frozenset(
    found
    for found in vars(builtins).values()
    if isinstance(found, type) and issubclass(found, BaseException) and found.__flags__ & _IMMUTABLE_TYPE
)
_UNAUTHENTICATED: Final = frozenset({401, 407})


class _ByType(dict[type, K]):
    """Remembers what was found out about each exception type; bounded, for types may be made at run time."""

    __slots__ = ("_find",)

    def __init__(self, find: Callable[[type[BaseException]], K]) -> None:
        self._find = find

    def __missing__(self, error_type: type[BaseException]) -> K:
        found = self._find(error_type)
        if len(self) < 1024:
            self[error_type] = found
        return found


def _by_bases(error_type: type[BaseException]) -> OutcomeKind:
    return next((_KINDS[base] for base in error_type.__mro__ if base in _KINDS), OutcomeKind.TRANSIENT_FAILURE)


def _by_type_alone(error_type: type[BaseException]) -> OutcomeKind | None:
    if not issubclass(error_type, Exception) or error_type is OutcomeError:
        return None
    kind = _kind_of(error_type)
    return None if kind is OutcomeKind.REJECTED else kind


_kind_of: Final = _ByType(_by_bases).__getitem__
plain_kind: Final = _ByType(_by_type_alone).__getitem__
"""The kind of a failure of that type, where `default_classify` looks at nothing else; None for what is no failure."""


def default_classify(error: BaseException) -> OutcomeKind:
    """The kind of a raised exception: programming errors are terminal, timeouts are timeouts, the rest is transient.

    What a nested guard raised keeps the kind that the guard gave it.
    """
    if type(error) is OutcomeError:
        return error.kind  # type: ignore[no-any-return]
    return _kind_of(type(error))


def http_classifier(subject: Any, now: datetime | None = None) -> OutcomeKind | Verdict:
    """Classify a response, or an exception that may carry one, by its HTTP status. Serves both classifier roles.

    See `judge_status` for the rule. What has no status is classified as an exception, or as a success.
    """
    verdict = judge_status(subject, now=now)
    if verdict is not None:
        return verdict
    return default_classify(subject) if isinstance(subject, BaseException) else OutcomeKind.SUCCESS


def judge_status(
    subject: Any,
    retried: Collection[int] = RETRIED_STATUSES,
    now: datetime | Callable[[], datetime] | None = None,
) -> OutcomeKind | Verdict | None:
    """What the HTTP status of a response, or of an exception that carries one, means; None if there is no status.

    Statuses in `retried` may be retried, and 429 if it says after how long; a 429 still shows that the dependency is
    alive. 401 and 407 say nothing about its health. Any other response is a success: the dependency answered.
    Where one was raised instead of returned, it is a failure that is not retried.
    """
    status = status_of(subject)
    if status is None:
        return None
    if status in retried:
        return Verdict(OutcomeKind.TRANSIENT_FAILURE, retry_after=retry_after_hint(subject, now))
    if status == 429 and (hint := retry_after_hint(subject, now)) is not None:
        return Verdict(OutcomeKind.TRANSIENT_FAILURE, retry_after=hint, evidence=Evidence.SUCCESS)
    if status in _UNAUTHENTICATED:
        return Verdict(OutcomeKind.TERMINAL_FAILURE, evidence=Evidence.NEUTRAL)
    if isinstance(subject, BaseException):
        return Verdict(OutcomeKind.TERMINAL_FAILURE, evidence=Evidence.SUCCESS)
    return OutcomeKind.SUCCESS


def retry_after_hint(subject: Any, now: datetime | Callable[[], datetime] | None = None) -> float | None:
    """The seconds after which an error or result asks to be retried; None if it does not say. Never raises.

    Reads the attribute `retry_after` (a number or timedelta), else a Retry-After header of it or of its `response`.
    A header with a date counts from `now` (a time, or a clock to ask), else from the response's own Date header.
    """
    if type(subject) in _MUTE and not subject.__dict__:
        return None
    try:
        hint = getattr(subject, "retry_after", None)
        if hint is not None:
            return _seconds(hint)
        headers = getattr(subject, "headers", None)
        if headers is None:
            headers = getattr(getattr(subject, "response", None), "headers", None)
        value = None if headers is None else _header(headers, "Retry-After")
        if value is None:
            return None
        return _header_seconds(value, (now() if callable(now) else now) or _date(_header(headers, "Date")))
    except Exception:  # properties of a foreign object; a hint is never worth failing a call
        return None


def may_hint(error_type: type[BaseException]) -> bool:
    """Whether exceptions of that type may ask to be retried later although no attribute was set on them."""
    return error_type not in _MUTE


def was_not_sent(error: BaseException) -> bool:
    """Whether the request surely never left: no name, no connection, no handshake, no free pooled connection.

    Adapters mark errors of their libraries with a true `not_sent` attribute.
    """
    if getattr(error, "not_sent", False):
        return True
    if isinstance(error, ConnectionRefusedError):
        return True
    return any(base.__name__ in _NOT_SENT for base in type(error).__mro__)


def status_of(subject: Any) -> int | None:
    """The HTTP status of a response, or of the response that an exception carries."""
    for owner in (subject, getattr(subject, "response", None)):
        for name in ("status_code", "status"):
            status = getattr(owner, name, None)
            if isinstance(status, int) and 100 <= status <= 599:
                return int(status)
    return None


def _header(headers: Any, name: str) -> str | None:
    value = headers.get(name)
    if value is None:
        value = headers.get(name.lower())
    return None if value is None else str(value).strip()


def _header_seconds(value: str, now: datetime | None) -> float | None:
    try:
        return _seconds(float(value))
    except ValueError:
        at = _date(value)
    return None if at is None or now is None else _seconds(at - now)


def _date(value: str | None) -> datetime | None:
    if value is None:
        return None
    from email.utils import parsedate_to_datetime  # a heavy import for a rare header

    try:
        at = parsedate_to_datetime(value)
    except ValueError:
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _seconds(value: Any) -> float | None:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value < math.inf else None
