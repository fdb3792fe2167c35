"""One guarded call on the general path: what it is made of, and what strategies may ask of it.

`guard/perform.py` runs it, `guard/invoke.py` is its inner end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, runtime_checkable

from holdfast.core.classify import Classifier, ResultClassifier, default_classify
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.core.context import (
    Link,
    ResilienceContext,
    TypedKey,
    draw_id,
)
from holdfast.core.deadline import Deadline
from holdfast.core.outcome import Outcome, OutcomeKind, describe_error
from holdfast.errors import GuardRejected, GuardTimeout
from holdfast.guard.driver import Driver
from holdfast.telemetry.events import AttemptCompleted, GuardEvent, LoadShed, TimedOut
from holdfast.telemetry.hub import Hub, Meter

if TYPE_CHECKING:
    from holdfast.machine.circuit import Circuit
    from holdfast.telemetry.tracing import CallSpan

Next = Callable[..., Coroutine[Any, Any, Outcome[Any]]]
"""What a strategy calls to go on: `await nxt(ctx)`, or `await nxt()` for the same context."""

ENDPOINT: Final = TypedKey[object]("holdfast.endpoint")
IDEMPOTENT: Final = TypedKey[bool]("holdfast.idempotent")


@runtime_checkable
class ResilienceStrategy(Protocol):
    """The protocol of every strategy, ours or a user's.

    `execute` returns an Outcome, never raises for a decision of its own, and may return without calling `nxt`.
    """

    def execute(self, nxt: Next, ctx: ResilienceContext) -> Awaitable[Outcome[Any]]: ...


class Keeper(Protocol):
    """Is told of every outcome that the general path comes to, before the caller sees it; it must not raise."""

    async def keep(self, call: Call, ctx: ResilienceContext, outcome: Outcome[Any]) -> None: ...

    def describe(self) -> str:
        """What it keeps, in words: the outermost line of the guard's description."""
        ...


class Setting:
    """What all calls of one guard or pipeline have in common."""

    __slots__ = (
        "async_driver", "classify", "clock", "context", "hub", "judge", "keeper", "meter", "name", "passthrough", "rng",
        "sync_driver",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        hub: Hub,
        *,
        clock: Clock = SYSTEM_CLOCK,
        rng: Callable[[], float],
        classify: Classifier | None = None,
        judge: ResultClassifier | None = None,
        passthrough: tuple[type[BaseException], ...] = (),
        metrics: bool = True,
        context: bool = True,
        keeper: Keeper | None = None,
    ) -> None:
        from holdfast.guard.driver import SyncDriver

        self.name = name
        self.hub = hub
        self.clock = clock
        self.rng = rng
        self.classify = default_classify if classify is None else classify
        self.judge = judge
        self.passthrough = passthrough
        self.context = context
        self.keeper = keeper
        self.meter: Meter | None = hub.meter(name) if metrics else None
        self.sync_driver: Driver = SyncDriver(clock)
        self.async_driver: Driver | None = None

    def driver(self, is_async: bool) -> Driver:
        if not is_async:
            return self.sync_driver
        if self.async_driver is None:
            from holdfast.guard.adriver import AsyncDriver

            self.async_driver = AsyncDriver(self.clock)
        return self.async_driver


TimeLimit = Literal["total", "attempt", "deadline"]
LIMITS: Final[dict[TimeLimit, str]] = {
    "total": "the total time",
    "attempt": "the attempt's time",
    "deadline": "the caller's deadline",
}


class Attempt:
    """One run of the function: what `Outcome.metadata["trail"]` lists and `explain` reads.

    `wait` is the time queued for admission, `delay` the backoff before it, `service` the run itself.
    """

    __slots__ = ("delay", "endpoint", "error", "kind", "number", "service", "wait")

    def __init__(
        self,
        number: int,
        kind: OutcomeKind,
        wait: float,
        delay: float,
        service: float,
        error: BaseException | None,
        endpoint: Any,
    ) -> None:
        self.number = number
        self.kind = kind
        self.wait = wait
        self.delay = delay
        self.service = service
        self.error = error
        self.endpoint = endpoint

    def __repr__(self) -> str:
        what = "" if self.error is None else f" {describe_error(self.error)}"
        after = f"after {self.delay:.3f} s, took {self.service:.3f} s"
        return f"<attempt {self.number + 1} {self.kind.value} {after}{what}>"


def attempt_of(
    number: int,
    kind: OutcomeKind,
    wait: float,
    delay: float,
    service: float,
    error: BaseException | None,
    endpoint: Any,
) -> Attempt:
    """`Attempt(...)` at half the price, as `outcome_of` is to Outcome."""
    made = _new(Attempt)
    made.number = number
    made.kind = kind
    made.wait = wait
    made.delay = delay
    made.service = service
    made.error = error
    made.endpoint = endpoint
    return made


_new: Final = object.__new__


class Replay:
    """A first attempt that the fused path has already made (the last of `trail` and it), to be carried on from here.

    The rate limiter's token and the bulkhead's slot are taken; `permit` is the breaker's. `limit` and `which` name the
    time limit that cut it, `admitted` is when it got its slot. With an `outcome` the attempt is in the trail and the
    breaker knows of it: the retry goes on from there.
    """

    __slots__ = (
        "admitted", "began", "ended", "error", "limit", "link", "outcome", "permit", "started", "timed_out", "trail",
        "value", "which",
    )  # fmt: skip

    def __init__(
        self,
        started: float,
        ended: float,
        permit: int,
        link: Link | None,
        error: BaseException | None,
        value: Any = None,
        timed_out: bool = False,
    ) -> None:
        self.began = self.started = self.admitted = started
        self.ended = ended
        self.permit = permit
        self.link = link
        self.error = error
        self.value = value
        self.timed_out = timed_out
        self.limit: float | None = None
        self.which: TimeLimit = "total"
        self.outcome: Outcome[Any] | None = None
        self.trail: list[Attempt] = []

    def after(self, trail: list[Attempt], began: float | None) -> Replay:
        """The same in a call that began earlier and has a trail."""
        self.trail = trail
        self.began = self.started if began is None else began
        return self


class Call:
    """The running state of one call: who it is, how it waits, what its attempts came to."""

    __slots__ = (
        "_call_id", "args", "circuit", "cut", "deadline", "decided_at", "delay", "driver", "fn", "kwargs",
        "operation_key", "properties", "replay", "reported", "retry_domain", "setting", "span", "started", "trail",
        "wait",
    )  # fmt: skip

    def __init__(
        self,
        setting: Setting,
        is_async: bool,
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        operation_key: str | None = None,
        deadline: Deadline | None = None,
        properties: dict[TypedKey[Any], Any] | None = None,
        replay: Replay | None = None,
    ) -> None:
        self.setting = setting
        self.driver = setting.driver(is_async)
        self.fn = fn
        self.args = args
        self.kwargs = {} if kwargs is None else kwargs
        self.operation_key = setting.name if operation_key is None else operation_key
        self.deadline = deadline
        self.properties = properties
        self.replay = replay
        self.retry_domain: str | None = None
        self.circuit: Circuit | None = None  # the breaker that the next attempt will meet, if the plan has one
        self.span: CallSpan | None = None  # where a listener makes spans of calls
        self.cut = 0  # time limits of ours that have fired and are not absorbed yet
        self.trail: list[Attempt] = [] if replay is None else replay.trail
        self.reported = 0  # how many of them the listeners know
        self.decided_at: datetime | None = None  # when it was clear what follows those that they do not know
        self.wait = 0.0  # time queued for admission before the attempt to come
        self.delay = 0.0  # backoff before it
        self.started = setting.clock.monotonic() if replay is None else replay.began
        # The context refers to the call, not the call to the context: no cycle to collect.
        self._call_id: str | None = None

    @property
    def call_id(self) -> str:
        return draw_id(self) if self._call_id is None else self._call_id

    @property
    def clock(self) -> Clock:
        return self.setting.clock

    @property
    def last_error(self) -> BaseException | None:
        """The error of the last attempt that failed by itself."""
        for attempt in reversed(self.trail):
            if attempt.error is not None:
                return attempt.error
        return None

    def emit(self, event: GuardEvent) -> None:
        self.setting.hub.emit(event)

    def ask(self, callback: Callable[..., Any], *args: Any) -> Any:
        """A user's callback; what it raises is logged and never reaches the call."""
        try:
            return callback(*args)
        except Exception:
            import logging  # not needed until something is wrong, and costly to import

            logging.getLogger("holdfast").warning("%s: callback %r failed", self.operation_key, callback, exc_info=True)
            return None

    def refuse(self, error: GuardRejected, name: str, **metadata: Any) -> Outcome[Any]:
        """The REJECTED outcome of a strategy that sheds this call; the last real error stays its cause."""
        hub = self.setting.hub
        if self.setting.meter is not None:
            self.setting.meter.shed(name, error.reason)
        if hub.loud:
            hub.emit_loud(LoadShed(self.operation_key, self.call_id, name, error.reason, error.retry_after))
        last_error = self.last_error
        if last_error is not None:
            error.__cause__ = last_error
        return Outcome.rejected(error, len(self.trail), **self.notes(), **metadata)

    def time_out(
        self, which: TimeLimit, limit: float | None, how: str, cause: BaseException | None = None, told: bool = False
    ) -> Outcome[Any]:
        """The TIMEOUT outcome of a limit of ours, with the last real error as its cause; who listens may be `told`."""
        hub = self.setting.hub
        if hub.loud and not told:
            hub.emit_loud(TimedOut(self.operation_key, self.call_id, limit, which))
        detail = f"{LIMITS[which]} {how}"
        error = GuardTimeout(self.setting.name, limit, detail)
        error.__cause__ = self.last_error if cause is None else cause
        return Outcome(OutcomeKind.TIMEOUT, None, error, None, self.notes(), attempts=len(self.trail))

    def notes(self) -> dict[str, Any]:
        return {"trail": self.trail} if self.trail else {}

    def record(self, kind: OutcomeKind, service: float, error: BaseException | None, endpoint: Any) -> None:
        trail = self.trail
        trail.append(attempt_of(len(trail), kind, self.wait, self.delay, service, error, endpoint))
        self.wait = self.delay = 0.0

    def report_attempts(self, last: bool) -> None:
        """Tell the listeners of attempts they have not heard of; `last` means that no other one follows."""
        if not self.setting.hub.loud:
            return
        untold, self.reported = self.trail[self.reported :], len(self.trail)
        at, self.decided_at = self.decided_at, None
        for attempt in untold:
            error = None if attempt.error is None else type(attempt.error).__name__
            event = AttemptCompleted(
                self.operation_key,
                self.call_id,
                attempt.number,
                attempt.kind,
                attempt.wait,
                attempt.service,
                None if attempt.endpoint is None else str(attempt.endpoint),
                self.setting.name,
                handled=attempt.kind.is_failure,
                last=last and attempt is self.trail[-1],
                delay=attempt.delay,
                error_type=error,
                reason=attempt.error.reason if isinstance(attempt.error, GuardRejected) else None,
            )
            event.at = at
            self.setting.hub.emit_loud(event)
