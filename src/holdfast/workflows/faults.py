"""Whether a task that raised is worth another try: by what is declared, never by what something is called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any, Final, NamedTuple

from holdfast.core.classify import retry_after_hint
from holdfast.errors import (
    Conflict,
    GuardRejected,
    PermanentError,
    StoreUnavailable,
    TaskTimeoutError,
    TransientError,
)


class Fault(StrEnum):
    """What an exception of a task means."""

    TRANSIENT = "transient"
    """Worth another try."""
    PERMANENT = "permanent"


class MaybeDoneError(TransientError):
    """Worth another try by what is declared. The body of the task has run, and has not said that nothing happened."""


class Judgement(NamedTuple):
    """What an exception means, and what it asks for."""

    fault: Fault
    decided_by: BaseException | None = None
    """The exception of the chain that decided; None: nothing is declared for any of them."""
    retry_after: float | None = None
    context_update: dict[str, Any] | None = None

    @property
    def nothing_happened(self) -> bool:
        """Whether the author says that to try again repeats nothing: by a TransientError of the task's own."""
        is_own = isinstance(self.decided_by, TransientError) and not isinstance(self.decided_by, MaybeDoneError)
        return is_own and self.fault is Fault.TRANSIENT


Predicate = Callable[[BaseException], Fault | None]
DECLARED: Final[tuple[tuple[type[BaseException], Fault], ...]] = (
    (TransientError, Fault.TRANSIENT),
    (PermanentError, Fault.PERMANENT),
    # Whether a timeout is worth another try is a question for the task's policy.
    (TaskTimeoutError, Fault.PERMANENT),
    # The callee never ran.
    (GuardRejected, Fault.TRANSIENT),
    (StoreUnavailable, Fault.TRANSIENT),
    (Conflict, Fault.TRANSIENT),
    (ConnectionError, Fault.TRANSIENT),
)
"""What is known without being told."""


class Faults:
    """What exceptions mean. A predicate that has an opinion decides, then the nearest declared base class.

    For an exception that neither says anything about, the one that it was raised from decides, and so on; an exception
    that nobody knows is permanent. A group is transient if all its members are.
    """

    __slots__ = ("_declared", "_predicates")

    def __init__(self) -> None:
        self._declared = dict(DECLARED)
        self._predicates: list[Predicate] = []

    def declare(self, fault: Fault, *kinds: type[BaseException]) -> None:
        """Exceptions of these types, and of types derived from them, mean that."""
        given: tuple[Any, ...] = kinds
        for kind in given:
            if not isinstance(kind, type) or not issubclass(kind, BaseException):
                raise TypeError(f"declare takes exception types, got {kind!r}")
            self._declared[kind] = Fault(fault)

    def add_predicate(self, predicate: Predicate) -> Predicate:
        """Ask it before anything else; None: it has no opinion. The first one that has decides."""
        self._predicates.append(predicate)
        return predicate

    def judge(self, error: BaseException) -> Judgement:
        """What an exception means, by itself or by what it was raised from."""
        for one in _chain(error):
            fault = self._of(one)
            if fault is Fault.TRANSIENT:
                update = getattr(one, "context_update", None)
                return Judgement(fault, one, _hint(error), dict(update) if isinstance(update, dict) else None)
            if fault is not None:
                return Judgement(fault, one)
        return Judgement(Fault.PERMANENT)

    def classify(self, error: BaseException) -> Fault:
        return self.judge(error).fault

    def _of(self, error: BaseException) -> Fault | None:
        for predicate in self._predicates:
            fault = predicate(error)
            if fault is not None:
                return Fault(fault)
        if isinstance(error, BaseExceptionGroup) and not self._declares(type(error)):
            judged = {self.classify(one) for one in error.exceptions}
            return Fault.TRANSIENT if judged == {Fault.TRANSIENT} else Fault.PERMANENT
        return self._declares(type(error))

    def _declares(self, kind: type[BaseException]) -> Fault | None:
        return next((self._declared[base] for base in kind.__mro__ if base in self._declared), None)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    # Only what somebody has written `from` for: an exception that came up while another one was handled is a new
    # mishap, which says nothing about the first.
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__


def _hint(error: BaseException) -> float | None:
    hints = (retry_after_hint(one) for one in _chain(error))
    return next((hint for hint in hints if hint is not None), None)
