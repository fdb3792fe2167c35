"""A call in a bulkhead. It is in the queue, runs, or is over.

One whose time ran out while it ran is abandoned: its caller and its circuit have been told, and it keeps its slot until
it really ends, for a hung thread takes room whether we like it or not. Whoever changes the state does what follows, so
each call is reported once and gives its slot back once.
"""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context, copy_context
from enum import Enum, auto
from functools import partial
from inspect import CO_COROUTINE, iscoroutinefunction
from math import inf
from types import FunctionType
from typing import Any, Final, NamedTuple

from holdfast.core.context import CURRENT, ambient_deadline, impose
from holdfast.core.deadline import Deadline
from holdfast.core.members import members
from holdfast.errors import BulkheadFullError, BulkheadTimeoutError
from holdfast.workflows.cancel import TOKEN, TaskToken
from holdfast.workflows.compartment import Compartment
from holdfast.workflows.execution import ExecutionResult, TaskCircuit

OnDone = Callable[[ExecutionResult], object]
_NOWHERE: Final = Context()
"""The context of what is over: whoever watches the time still holds the call, which must not hold its workflow."""
_ANSWERS: Final = frozenset({type(None), bool, int, float, str, list, dict})
"""What most calls answer with, and nobody waits for."""
_log: Final = logging.getLogger("holdfast.workflows")


class _State(Enum):
    QUEUED = auto()
    RUNNING = auto()
    BETWEEN = auto()
    """One call has ended, and another one is about to be made in its place."""
    ABANDONED = auto()
    OVER = auto()


_AT: Final = members(_State)


class Turn(NamedTuple):
    """A call that is made in the place of one that has ended well: by its thread, in its slot, with its time limit."""

    work: Callable[[], Any]
    on_done: OnDone
    circuit: TaskCircuit | None
    then: Then


class Gone(NamedTuple):
    """Nothing is made in the place of a call that has ended well, and whoever was asked has heard of that."""

    after: Callable[[], object]
    """To be called when its slot is free."""


Then = Callable[["TaskCall", Any, float], Turn | Gone | None]
"""Asked by the thread that has made a call, with what it answered and how long it ran: what is made in its place? None:
nothing, and how it ended is told as always. Otherwise whoever is asked has heard of it by this."""


class TaskCall:
    """A ticket in the queue for slots, then the work of a thread or of the event loop."""

    __slots__ = (
        "_circuit", "_entered", "_has_begun", "_is_barred", "_on_done", "_patient", "_permit", "_room", "_started",
        "_state", "_then", "_timeout", "_turn", "_work", "at", "context", "granted", "token",
    )  # fmt: skip

    def __init__(
        self,
        room: Compartment,
        work: Callable[[], Any],
        timeout: float,
        on_done: OnDone,
        circuit: TaskCircuit | None,
        patient: bool = False,
        then: Then | None = None,
    ) -> None:
        self.granted = False
        self._timeout = timeout
        self._then = then
        self._turn = 0
        self._patient = patient
        self.token = TaskToken(room.clock)
        self._room = room
        self._work: Callable[[], Any] | None = work
        self._on_done = on_done
        self._circuit = circuit
        self._permit: tuple[Any] | None = None
        self._is_barred = False
        self.context = copy_context()
        self._state = _AT.QUEUED
        self._has_begun = False
        self._entered = room.clock.monotonic()
        self._started: float | None = None
        self.at, around = self._entered + timeout, CURRENT.get()
        if around is not None:
            self.at = ambient_deadline(around, room.clock).tighten(self.at).at

    @property
    def is_over(self) -> bool:
        """Whether the caller has been told how it ended."""
        return self._state is _AT.OVER or self._state is _AT.ABANDONED

    def enter(self) -> None:
        """Run now, or when a slot comes free, or be refused."""
        self._room.enter(self)

    def wake(self) -> bool:
        """Begin, for a slot is ours; False when it is too late, and the slot is somebody else's."""
        room, work = self._room, self._work
        with room.lock:
            if self._state is not _AT.QUEUED:
                return self._has_begun
            self._state, self._has_begun = _AT.RUNNING, True
        if self._on_loop() if _is_async(work) else room.threads.run(self._run, patient=self._patient):
            return True
        self._has_begun = False
        if not self.refuse("could not start a thread", _AT.RUNNING):
            self._end_abandoned()
        return False

    def refuse(self, why: str, before: _State = _AT.QUEUED) -> bool:
        """Report that it has not run and will not; False when it is too late for that."""
        room = self._room
        if not self._move(before, "rejected"):
            return False
        if before is _AT.QUEUED:  # else whoever woke it passes the slot on
            self._out_of_queue()
        error = BulkheadFullError(f"bulkhead {room.task_type!r} {why}", retry_after=room.retry_after)
        self._report(error=error, rejected=True)
        return True

    def expire(self, turn: int | None = None) -> None:
        """The time is up: report that, whatever the call does. `turn` as for `cancel`."""
        limit, name = self.at - self._entered, f"bulkhead {self._room.task_type!r}"
        if self._move(_AT.QUEUED, "timed_out"):
            self._out_of_queue()
            self._report(error=BulkheadTimeoutError(f"{name}: no slot came free within {limit:.3g} s"), timed_out=True)
        else:
            self._abandon(BulkheadTimeoutError(f"{name}: not done within {limit:.3g} s"), "timed_out", turn=turn)

    @property
    def turn(self) -> int:
        """How many calls were made with this ticket before the one that is made now."""
        return self._turn

    def cancel(self, reason: str, *, abandon: bool = False, turn: int | None = None) -> None:
        """Ask it to stop: what waits never runs, a coroutine is cut, a thread may look at its token.

        With `abandon` the caller is told at once; without, when the call ends. `turn`: only if that call is still the
        one that is made.
        """
        with self._room.lock:
            if turn is not None and turn != self._turn:
                return
            token = self.token
        if self._move(_AT.QUEUED):
            self._out_of_queue()
            self._report(error=CancelledError(reason))
        elif abandon:
            self._abandon(CancelledError(reason), turn=turn)
        token.cancel(reason)

    def _move(self, before: _State, *counters: str, to: _State = _AT.OVER, turn: int | None = None) -> bool:
        """Change the state, if it still is `before`."""
        with self._room.lock:
            if self._state is not before or (turn is not None and turn != self._turn):
                return False
            self._state = to
            for counter in counters:
                self._room.counts[counter] += 1
            return True

    def _out_of_queue(self) -> None:
        if self._room.slots.leave(self):
            self._room.slots.give()  # handed to us too late; the next one takes it

    def _abandon(self, error: BaseException, *counters: str, turn: int | None = None) -> None:
        if self._move(_AT.RUNNING, "abandoned", *counters, to=_AT.ABANDONED, turn=turn):
            self._settle(error)
            self.token.cancel(str(error))
            self._report(error=error, timed_out="timed_out" in counters)

    def _run(self) -> None:
        """In a thread."""
        value: Any = None
        error: BaseException | None = None
        goes_on = self._is_in_time()
        while goes_on:
            try:
                value = self.context.run(self._call)
            except BaseException as raised:  # SystemExit too: whoever waits for the call decides what it means
                error = raised
                break
            goes_on = self._then is not None and self._gives_way(self._then, value)
        if self._state is _AT.OVER:  # somebody else has heard of it
            return
        self._room.threads.about_to_be_free()
        if error is not None or not _is_awaited(value):
            self._end(value, error)
        elif not self._on_loop(value):
            self._end(None, RuntimeError("could not start a thread for the event loop"))

    def _gives_way(self, then: Then, value: Any) -> bool:
        """Whether another call is to be made in the place of one that has ended well."""
        room, began = self._room, self._started
        if _is_awaited(value):
            return False
        run_s = 0.0 if began is None else room.clock.monotonic() - began
        with room.lock:
            if self._state is not _AT.RUNNING:
                return False
            self._state = _AT.BETWEEN
            permit, self._permit = self._permit, None
        if permit is not None and self._circuit is not None:
            self._safely(self._circuit.settle, permit[0], None)
        try:
            following = then(self, value, run_s)
        except BaseException:
            _log.exception("what follows a %s task failed", room.task_type)
            following = None
        if not isinstance(following, Turn):
            if following is None:
                self._state = _AT.RUNNING
            else:
                self._go(following, run_s)
            return False
        token, self.context = TaskToken(room.clock), copy_context()
        now = room.clock.monotonic()
        with room.lock:
            room.counts["completed"] += 1
            room.note_run(run_s)
            self._work, self._on_done, self._circuit, self._then = following
            self.token, self.at, self._entered, self._started = token, now + self._timeout, now, now
            self._turn += 1
            self._state = _AT.RUNNING
        return True

    def _go(self, gone: Gone, run_s: float) -> None:
        room = self._room
        self._work, self._then, self._on_done, self.context = None, None, _nobody, _NOWHERE
        with room.lock:
            room.counts["completed"] += 1
            room.note_run(run_s)
            self._state = _AT.OVER
        room.threads.about_to_be_free()
        room.slots.give()
        room.forget(self)
        self._safely(gone.after)

    def _is_in_time(self) -> bool:
        now = self._room.clock.monotonic()
        if now >= self.at:
            self.expire()
        if self._state is not _AT.RUNNING:
            return False
        self._started = now
        return True

    def _call(self) -> Any:
        self._announce()
        return self._admitted()()

    def _announce(self) -> None:
        """In the call's own context: by when it must end, and who says so."""
        TOKEN.set(self.token)
        if CURRENT.get() is None:
            # The same as below, but for what is made only if somebody asks.
            CURRENT.set([self._room.scope, None, None if self.at == inf else self.at, None])
        else:
            impose(Deadline(self.at, self._room.clock))

    def _on_loop(self, begun: Awaitable[Any] | None = None) -> bool:
        return self._room.loop.run(self._perform(begun), self.token, self.context)

    async def _perform(self, begun: Awaitable[Any] | None) -> None:
        """On the event loop; `begun` when a thread has called the function already, and it answered with this."""
        value: Any = None
        error: BaseException | None = None
        try:
            if begun is not None or self._is_in_time():
                self._announce()
                value = await (self._admitted()() if begun is None else begun)
        except BaseException as raised:  # a SystemExit would end the loop, and every other task on it
            error = raised
        self._end(value, error)

    def _admitted(self) -> Callable[[], Any]:
        """The function, once the circuit has let us through. Raises what the circuit raises."""
        work, circuit = self._work, self._circuit
        assert work is not None
        self.token.raise_if_cancelled()
        if circuit is None:
            return work
        try:
            permit = circuit.admit()
        except BaseException:
            self._is_barred = True
            raise
        with self._room.lock:
            if self._state is _AT.RUNNING:
                self._permit = (permit,)
                return work
        circuit.settle(permit, CancelledError())  # abandoned at this moment
        raise CancelledError

    def _end(self, value: Any, error: BaseException | None) -> None:
        room, self._work, self._then, self.context = self._room, None, None, _NOWHERE
        if error is not None and isinstance(error, Exception | CancelledError) and room.clock.monotonic() >= self.at:
            self.expire()  # it read what time was left, or was cut; the alarm would have come in a moment
        run_s = self._run_s()
        with room.lock:
            is_told = self._state is _AT.RUNNING
            if is_told:
                self._state = _AT.OVER
                counter = None if self._is_barred else _counted(error)
                if counter is not None:
                    room.counts[counter] += 1
                    room.note_run(run_s)
        if is_told:
            self._settle(error)
        else:
            self._end_abandoned()
        room.slots.give()
        if is_told:
            self._report(value, error, rejected=self._is_barred, run_s=run_s)
        elif room.freed is not None:
            self._safely(room.freed, room.task_type)

    def _end_abandoned(self) -> None:
        if self._move(_AT.ABANDONED):
            with self._room.lock:
                self._room.counts["abandoned"] -= 1

    def _settle(self, error: BaseException | None) -> None:
        with self._room.lock:
            permit, self._permit = self._permit, None
        if permit is not None and self._circuit is not None:
            self._safely(self._circuit.settle, permit[0], error)

    def _report(
        self,
        value: Any = None,
        error: BaseException | None = None,
        *,
        timed_out: bool = False,
        rejected: bool = False,
        run_s: float | None = None,
    ) -> None:
        begun = self._room.clock.monotonic() if self._started is None else self._started
        run_s = 0.0 if rejected else self._run_s() if run_s is None else run_s
        result = ExecutionResult(error is None, value, error, timed_out, rejected, begun - self._entered, run_s)
        # Whoever is told may hold this call, and must not be held by it: the two would be left for Python to find.
        told, self._on_done = self._on_done, _nobody
        self._safely(told, result)
        self._room.forget(self)

    def _run_s(self) -> float:
        return 0.0 if self._started is None else self._room.clock.monotonic() - self._started

    def _safely(self, listener: Callable[..., object], *what: Any) -> None:
        """Whatever a listener raises: the thread goes on, and the slot goes back."""
        try:
            listener(*what)
        except BaseException:
            _log.exception("what follows a %s task failed", self._room.task_type)


def _is_awaited(value: Any) -> bool:
    """Whether a function that is none of asyncio's has answered with something to be awaited."""
    return type(value) not in _ANSWERS and hasattr(type(value), "__await__")


def _is_async(work: Any) -> bool:
    # What `iscoroutinefunction` finds out at length, for the kind of function that nearly all are.
    return bool(work.__code__.co_flags & CO_COROUTINE) if type(work) is FunctionType else iscoroutinefunction(work)


def work_of(func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[[], Any]:
    return partial(func, *args, **kwargs) if args or kwargs else func


def _nobody(result: ExecutionResult) -> None:
    """Was told already."""


def _counted(error: BaseException | None) -> str | None:
    if error is None:
        return "completed"
    return None if isinstance(error, CancelledError | KeyboardInterrupt) else "failed"
