"""Who can replay a letter: a handler for its domain, or the registered function that its request names.

Nothing is imported because stored data says so: only registered names are found.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast.core.outcome import Outcome, OutcomeKind, describe_error
from holdfast.errors import GuardRejected, GuardTimeout, PolicyError
from holdfast.guard.guard import Guard, is_coroutine_function
from holdfast.guard.timeout import TimeoutStrategy
from holdfast.letters.data import FailedOperationData, may_hold
from holdfast.letters.entry import CIRCUIT_OPEN, unreplayable

if TYPE_CHECKING:
    from holdfast.letters.loops import Loops

PROGRAMMING_ERRORS: Final = frozenset(
    f"MAX_RETRIES_{kind.__name__.upper()}"
    for kind in (TypeError, AttributeError, NameError, AssertionError, NotImplementedError, ImportError)
)
"""Failure types that time does not heal: a recovery leaves them for a person."""


class ReplayHandler(Protocol):
    """Replays the letters of one domain.

    Optional: `failure_types`, those that a recovery replays by itself besides refusals of an open breaker, and
    `entity_key(op)`, what keeps its order (None: nothing to keep); without it `(entity_type, entity_id)` does.
    `replay` may be async, and may return an Outcome.
    """

    def can_replay(self, op: FailedOperationData) -> tuple[bool, str]:
        """Whether it can be replayed now, and why not. Refusing costs no attempt."""
        ...

    def replay(self, op: FailedOperationData) -> Any:
        """Do it again; to raise is to fail."""
        ...


class Ending(StrEnum):
    """What a replay came to, as far as the letter is concerned."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    NEVER_RAN = "never_ran"
    MAY_RUN_ON = "may_run_on"
    GOES_ON = "goes_on"
    """It is done by others from here on, and whoever ends it ends the letter."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a replay: what it was, in words, and when it would be worth trying again."""

    ending: Ending
    error: BaseException | None = None
    detail: str = ""
    retry_after: float | None = None


class Route(Protocol):
    """One way to replay a letter."""

    @property
    def guard(self) -> Guard | None: ...

    def refusal(self, op: FailedOperationData) -> str | None:
        """Why this letter cannot be replayed; None when it can."""
        ...

    def run(self, op: FailedOperationData, key: str, loops: Loops) -> Ended: ...

    def recovers(self, failure_type: str) -> bool:
        """Whether a recovery replays letters of this failure type by itself."""
        ...

    @property
    def entity_key(self) -> Callable[[FailedOperationData], Any] | None:
        """Tells what keeps its order; None: the letter's entity type and id do."""
        ...


class ReplayHandlers:
    """The registry: at most one handler per domain, any number of functions."""

    def __init__(self) -> None:
        self._handlers: dict[str, Route] = {}
        self._functions: dict[str, dict[str, Route]] = {}  # by domain and name
        self._anywhere: dict[str | None, tuple[str, Route]] = {}  # by entity type

    def register(self, domain: str, handler: ReplayHandler, *, guard: Guard | None = None) -> None:
        """Let `handler` replay the domain's letters. `guard` is the one that it calls through, if any.

        Raises PolicyError when the domain has one already.
        """
        if domain in self._handlers:
            raise PolicyError(f"domain {domain!r} has a replay handler already; a domain has one")
        for method in ("can_replay", "replay"):
            if not callable(getattr(handler, method, None)):
                raise TypeError(f"the replay handler of {domain!r} needs {method}(op), got {handler!r}")
        self._handlers[domain] = _Handled(handler, guard)

    def register_function(
        self,
        domain: str,
        name: str,
        fn: Callable[..., Any],
        guard: Guard | None = None,
        *,
        replay_on: Collection[str] | None = None,
    ) -> None:
        """Let `fn` be called again, through the guard, for letters whose request names it.

        A recovery replays refusals of an open breaker and the failure types in `replay_on`; by default all but
        programming errors. Raises PolicyError when the name is taken by another function.
        """
        if not callable(fn):
            raise TypeError(f"{domain}/{name} must be a function, got {fn!r}")
        named = self._functions.setdefault(domain, {})
        known = named.get(name)
        if isinstance(known, _Function) and known.fn is not fn:
            raise PolicyError(f"domain {domain!r} has another function called {name!r}; give one of them another name")
        named[name] = _Function(name, fn, guard, None if replay_on is None else frozenset(replay_on))

    def register_route(self, name: str, route: Route, domain: str) -> None:
        """Let a route replay the letters of a domain whose request names it; the domain drains by itself as it says."""
        self._functions.setdefault(domain, {})[name] = route

    def register_everywhere(self, name: str, route: Route, entity_type: str) -> None:
        """Let a route replay the letters of such entities in any domain, if their request names it; somebody asks."""
        self._anywhere[entity_type] = (name, route)

    def find(self, op: FailedOperationData) -> Route | None:
        """Who replays this letter."""
        domain = op.domain
        named, apart = self._functions.get(domain), self._anywhere.get(op.entity_type)
        if named or apart:
            name = op.request_data.get("function")
            if isinstance(name, str) and named and (route := named.get(name)) is not None:
                return route
            if apart is not None and apart[0] == name:
                return apart[1]
        return self._handlers.get(domain)

    def missing(self, op: FailedOperationData) -> str:
        """Why nobody replays this letter."""
        name = op.request_data.get("function")
        what = f"no function {name!r}" if isinstance(name, str) else "no handler"
        return f"{what} is registered for domain {op.domain!r} in this process"

    @property
    def domains(self) -> frozenset[str]:
        """The domains of which something can be replayed here."""
        return frozenset(self._handlers) | frozenset(self._functions)

    def routes(self, domain: str) -> list[Route]:
        found = [*self._functions.get(domain, {}).values()]
        return [*found, self._handlers[domain]] if domain in self._handlers else found

    def recovers(self, domain: str, failure_type: str) -> bool:
        """Whether a recovery in this process replays such letters by itself."""
        return any(route.recovers(failure_type) for route in self.routes(domain))

    def guard_of(self, domain: str) -> Guard | None:
        """The guard whose breaker speaks for the domain."""
        return next((route.guard for route in self.routes(domain) if route.guard is not None), None)


class _Handled:
    """A handler object."""

    def __init__(self, handler: ReplayHandler, guard: Guard | None) -> None:
        self._handler = handler
        self.guard = guard if guard is not None else getattr(handler, "guard", None)
        self.entity_key: Callable[[FailedOperationData], Any] | None = getattr(handler, "entity_key", None)

    def refusal(self, op: FailedOperationData) -> str | None:
        if may_hold(op, "payload", "_truncated") and op.request_data.get("_truncated"):
            return unreplayable(op.request_data)
        can, reason = self._handler.can_replay(op)
        return None if can else reason or "the handler refuses it"

    def run(self, op: FailedOperationData, key: str, loops: Loops) -> Ended:
        try:
            result = self._handler.replay(op)
            if inspect.iscoroutine(result):
                result = loops.run(result)
        except loops.RAISED as error:  # user code: to raise is to fail
            return ending_of_error(error)
        return ending_of(result, True) if isinstance(result, Outcome) else Ended(Ending.SUCCEEDED)

    def recovers(self, failure_type: str) -> bool:
        return failure_type == CIRCUIT_OPEN or failure_type in getattr(self._handler, "failure_types", ())


class _Function:
    """A registered function, called with the arguments that the letter names."""

    entity_key = None

    def __init__(
        self, name: str, fn: Callable[..., Any], guard: Guard | None, replay_on: frozenset[str] | None
    ) -> None:
        self.name = name
        self.fn = fn
        self.guard: Guard | None = getattr(fn, "__holdfast_guard__", None) if guard is None else guard
        self._replay_on = replay_on
        self._is_async = is_coroutine_function(fn)
        self._call = self._caller(fn)

    def refusal(self, op: FailedOperationData) -> str | None:
        reason = unreplayable(op.request_data)
        if reason is not None:
            return reason
        try:
            arguments(self.fn, op.request_data.get("args") or {}, "")
        except TypeError as error:
            return f"the kept arguments do not fit {self.name}: {error}"
        return None

    def run(self, op: FailedOperationData, key: str, loops: Loops) -> Ended:
        args, kwargs = arguments(self.fn, op.request_data.get("args") or {}, key)
        try:
            result = self._call(*args, **kwargs)
            if inspect.iscoroutine(result):
                result = loops.run(result)
        except loops.RAISED as error:  # user code, and a guard's passthrough
            return ending_of_error(error)
        if not isinstance(result, Outcome):
            return Ended(Ending.SUCCEEDED)
        return ending_of(result, self.guard is None or (not self._is_async and _abandons(self.guard)))

    def _caller(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The function behind its guard, once: an Outcome tells whether the body ran, an exception does not."""
        if self.guard is None:
            return fn
        guard: Guard = self.guard
        if getattr(fn, "__holdfast_guard__", None) is guard:
            inner = fn.__wrapped__  # type: ignore[attr-defined]  # what the guard decorated
            if getattr(inner, "__holdfast_guard__", None) is guard:
                return fn  # another decorator around the guarded function, which copied its attributes
            fn = inner
        return partial(guard.arun if self._is_async else guard.run, fn)

    def recovers(self, failure_type: str) -> bool:
        if failure_type == CIRCUIT_OPEN:
            return True
        return failure_type not in PROGRAMMING_ERRORS if self._replay_on is None else failure_type in self._replay_on


def ending_of(outcome: Outcome[Any], may_run_on: bool) -> Ended:
    """What an outcome means for the letter. `may_run_on`: a timeout may have left the work running."""
    original = outcome.metadata.get("original")
    if isinstance(original, Outcome):
        outcome = original  # a fallback's answer is no effect
    if outcome.kind.has_value or outcome.late:
        return Ended(Ending.SUCCEEDED)  # a late result is bad for the caller, and still the effect
    ending = Ending.FAILED
    if outcome.kind is OutcomeKind.REJECTED and not outcome.attempts:
        ending = Ending.NEVER_RAN
    elif outcome.kind is OutcomeKind.TIMEOUT and may_run_on and isinstance(outcome.error, GuardTimeout):
        ending = Ending.MAY_RUN_ON
    return Ended(ending, outcome.error, outcome.detail or outcome.kind.value, outcome.retry_after)


def ending_of_error(error: BaseException) -> Ended:
    """What a raised exception means: our refusal says that nothing ran, our timeout that it may still be running."""
    ending = Ending.FAILED
    if isinstance(error, GuardRejected):
        ending = Ending.NEVER_RAN
    elif isinstance(error, GuardTimeout):
        ending = Ending.MAY_RUN_ON
    return Ended(ending, error, describe_error(error), getattr(error, "retry_after", None))


def arguments(fn: Callable[..., Any], kept: Mapping[str, Any], key: str) -> tuple[list[Any], dict[str, Any]]:
    """The kept arguments as the function takes them, with the idempotency key if it has a parameter for one.

    Raises TypeError when they do not fit.
    """
    try:
        signature = inspect.signature(fn)
    except ValueError:
        return [], dict(kept)
    named = dict(kept)
    parameters = signature.parameters
    if "idempotency_key" in parameters and named.get("idempotency_key") is None:
        named["idempotency_key"] = key
    positional: list[Any] = []
    spread = next((name for name, p in parameters.items() if p.kind is p.VAR_POSITIONAL and named.get(name)), None)
    for name, parameter in parameters.items():
        by_position = parameter.kind is parameter.POSITIONAL_ONLY or (
            spread is not None and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        )
        if by_position and name in named:
            positional.append(named.pop(name))
        elif parameter.kind is parameter.VAR_POSITIONAL and name in named:
            positional.extend(named.pop(name))
    signature.bind(*positional, **named)
    return positional, named


def _abandons(guard: Guard) -> bool:
    return any(isinstance(strategy, TimeoutStrategy) and strategy.abandon for strategy in guard.plan.strategies)
