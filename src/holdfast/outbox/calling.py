"""One call of an entry: its context, its time limit, its guard, and what came of it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.core.clock import Clock
from holdfast.core.context import ContextSource, Link, ResilienceContext, ambient_deadline, publish, withdraw
from holdfast.core.deadline import Deadline
from holdfast.errors import Conflict
from holdfast.letters.capture import IDEMPOTENCY_KEY
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.operation import CallContext, Operation
from holdfast.telemetry.causation import CAUSATION, cause_in

if TYPE_CHECKING:
    from holdfast.telemetry.hub import Hub
    from holdfast.telemetry.tracing import Spans

_NO_HEADERS: Final[dict[str, str]] = {}
IMMEDIATE: Final = timedelta(seconds=10)
"""A first call so soon after it was enqueued is a part of the trace that enqueued it; a later one is linked to it."""


class Cut(StrEnum):
    """Why a call was cut off."""

    TIMEOUT = "timeout"
    LOST = "lost"
    """Somebody else has the entry now."""
    ENDED = "ended"
    """The runner stops."""


class Check(NamedTuple):
    """That a call only asks whether an earlier success is real."""

    until: datetime
    """When others may ask; whoever changes it takes the question over."""
    number: int
    """1 for the first time it is asked."""


class Call(ContextSource):
    """A call under way, and what came of it: an answer or an error. It is the source of its context."""

    __slots__ = (
        "answer", "check", "clock", "cut", "ended_at", "entry", "error", "exhausted", "operation", "previous",
        "started_at", "target", "task", "unknown", "until",
    )  # fmt: skip

    retry_domain = None
    clock: Clock

    def __init__(
        self, entry: OutboxEntry, operation: Operation | None, target: Any = None, check: Check | None = None
    ) -> None:
        self.entry = entry
        self.operation = operation
        self.target = target
        self.check = check
        self.previous: Any = None
        self.unknown = False  # nobody here knows the operation, or its target
        self.exhausted = False  # it was begun as often as allowed
        self.answer: Any = None
        self.error: BaseException | None = None
        self.cut: Cut | None = None
        self.task: asyncio.Task[Any] | None = None
        self.started_at: float | None = None
        self.ended_at = 0.0
        self.until = 0.0

    @property
    def operation_key(self) -> str:
        return str(self.entry.operation)

    def context(self, deadline: Deadline) -> ResilienceContext:
        """What guards below see: they find the idempotency key in it."""
        known = {IDEMPOTENCY_KEY: str(self.entry.entry_id), CAUSATION: self.cause}
        return ResilienceContext(self.operation_key, deadline, properties=known)

    @property
    def cause(self) -> str:
        """The id of what the entry follows from: its saga's or its own, when it says nothing else."""
        return cause_in(self.entry.headers) or str(self.entry.saga_id or self.entry.entry_id)

    def cut_off(self, why: Cut) -> None:
        """Cancel the call, unless it was already."""
        if self.cut is None and self.task is not None:
            self.cut = why
            self.task.cancel()

    def assert_held(self) -> None:
        """Raises Conflict if the entry was lost, or the runner no longer waits for the call."""
        if self.cut is not None:
            raise Conflict(f"the call of entry {self.entry.entry_id} was cut off: {self.cut}")

    @property
    def is_fatal(self) -> bool:
        """Whether it raised what is not for a runner to handle, such as SystemExit."""
        return self.error is not None and not isinstance(self.error, Exception | asyncio.CancelledError)

    @property
    def keeps_its_lease(self) -> bool:
        """Whether nothing is to be written of it: its entry is left to the lease, or is somebody else's."""
        return self.cut is Cut.LOST or self.is_fatal or (self.cut is Cut.ENDED and self.error is not None)


class Caller:
    """Makes calls. Functions that are not async run in threads of its own: a slow one must not keep the database's
    threads from settling the others.
    """

    def __init__(self, clock: Clock, timeout: float, threads: int, hub: Hub | None = None) -> None:
        self._clock = clock
        self._hub = hub
        self._timeout = timeout
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None

    def limit(self, operation: Operation) -> float:
        """How long a call may take, in seconds."""
        own = operation.timeout
        return self._timeout if own is None else min(own.total_seconds(), self._timeout)

    async def make(self, call: Call, outer: Link | None, task: asyncio.Task[Any]) -> None:
        """Make the call in this task, and note what came of it.

        Raises CancelledError only if somebody cancelled this task who had not cut the call off.
        """
        call.task, call.clock = task, self._clock
        cancelled_before = task.cancelling()
        limit = call.until if outer is None else ambient_deadline(outer, self._clock).tighten(call.until).at
        operation = call.operation
        assert operation is not None
        token = publish([call, outer, limit, None])
        spans = None if self._hub is None else self._hub.spans
        try:
            if spans is not None:
                await self._make_traced(call, operation, limit, spans)
            elif operation.is_async and operation.guard is None and call.check is None:  # as nearly all are
                given: Any = call.entry if operation.takes_entry else self._context(call, limit)
                call.answer = await operation.call(call.target, given)  # type: ignore[misc]  # it is async
            else:
                call.answer = await self._invoke(call, operation, self._context(call, limit))
        except asyncio.CancelledError as error:
            call.error = error
        except Exception as error:
            call.error = error
        except BaseException as error:  # others are settled before the runner passes it on
            call.error = error
        withdraw(token)
        call.task = None
        if call.cut is not None:
            task.uncancel()
        if task.cancelling() > cancelled_before:
            call.cut = Cut.ENDED
            raise asyncio.CancelledError
        if call.cut is Cut.TIMEOUT and call.error is not None and not call.is_fatal:
            call.error = TimeoutError("the call took too long")

    async def _make_traced(self, call: Call, operation: Operation, limit: float, spans: Spans) -> None:
        """In a span of its own. What the call raises is raised."""
        entry = call.entry
        about: dict[str, str | int] = {
            "outbox.entry_id": str(entry.entry_id), "outbox.operation": str(entry.operation),
            "outbox.target": entry.resolver, "outbox.attempt": entry.attempts, CAUSATION.name: call.cause,
        }  # fmt: skip
        if entry.saga_id is not None:
            about |= {"saga.id": str(entry.saga_id), "saga.step": str(entry.step)}
        called_at = entry.last_attempt_at
        soon = entry.attempts <= 1 and called_at is not None and called_at - entry.enqueued_at <= IMMEDIATE
        name = f"{'outbox' if call.check is None else 'verify'} {entry.operation}"
        with spans.open(name, entry.headers, about, immediate=soon):
            call.answer = await self._invoke(call, operation, self._context(call, limit))

    async def _invoke(self, call: Call, operation: Operation, context: CallContext) -> Any:
        if call.check is not None:
            assert operation.verify is not None
            return await self._colourless(operation.verify, call.target, context)
        guard = operation.guard
        if guard is not None and not hasattr(guard, "acall"):
            guard = guard(call.entry.resolver)
        if guard is None:
            return await self._colourless(operation.call, call.target, context)
        return await guard.acall(partial(self._colourless, operation.call), call.target, context)

    def _context(self, call: Call, limit: float) -> CallContext:
        entry = call.entry
        return CallContext(
            entry.entry_id,
            str(entry.operation),
            entry.resolver,
            entry.attempts,
            entry.subject_id,
            entry.ref,
            entry.payload,
            entry.corrections,
            Deadline(limit, self._clock),
            entry.headers or _NO_HEADERS,
            entry.saga_id,
            entry.step,
            call.previous,
            call.assert_held,
            entry.ordering_key,
            entry.enqueued_at,
        )

    async def _colourless(self, function: Callable[..., Any], target: Any, context: CallContext) -> Any:
        """The function's answer, in whichever colour it is written."""
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004 - it is not asked whether it is callable
            return await function(target, context)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "holdfast-call")
        # Returned rather than raised: a future cannot carry a StopIteration.
        work = partial(_attempt, function, target, context)
        answer, error = await asyncio.get_running_loop().run_in_executor(self._pool, copy_context().run, work)
        if error is not None:
            raise error
        return await answer if inspect.isawaitable(answer) else answer

    def close(self) -> None:
        """Let the threads go; what runs in them goes on to its end."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None


def _attempt(function: Callable[..., Any], target: Any, context: CallContext) -> tuple[Any, BaseException | None]:
    try:
        return function(target, context), None
    except BaseException as error:
        return None, RuntimeError("the call raised StopIteration") if isinstance(error, StopIteration) else error
