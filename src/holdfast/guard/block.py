"""The block form of a guard: its attempts as a loop, sync or async.

The body of the loop is the function. The guard's strategies run as ever, as a coroutine; where they would call the
function, that coroutine hands control to the loop, and takes it back when the block is left. Nothing else differs from
`guard.call`, so every strategy applies, except those that would run the block twice at a time or in another thread.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import TracebackType, coroutine
from typing import TYPE_CHECKING, Any, Final, Self

from holdfast.core.clock import Clock, TimerHandle
from holdfast.core.context import CURRENT, SOURCE, ResilienceContext
from holdfast.core.deadline import Deadline
from holdfast.core.outcome import Outcome
from holdfast.errors import PolicyError
from holdfast.guard.call import Call, Next
from holdfast.guard.invoke import attempt_facts
from holdfast.guard.perform import link_chain, perform
from holdfast.guard.plan import Plan, delivered
from holdfast.guard.traced import traced

if TYPE_CHECKING:
    from holdfast.guard.guard import Guard
    from holdfast.telemetry.tracing import CallSpan


class Attempts:
    """A guarded block: `for attempt in guard.attempts():`, or `async for …`, and inside it `with attempt:`.

    The loop goes round while the guard retries and ends after a success. A final failure raises the block's own
    exception, a refusal raises GuardRejected. Work belongs inside the `with`, which is also a good place for `return`;
    what stands after it runs after failed attempts too. `outcome` tells what the last loop came to.

    Raises PolicyError, when the loop begins, for hedging and, in a sync loop, for `Timeout(abandon=True)`.
    """

    __slots__ = ("_guard", "outcome")

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self.outcome: Outcome[Any] | None = None

    def __iter__(self) -> AttemptLoop:
        return AttemptLoop(self, self._guard.plan_in_context(), is_async=False)

    def __aiter__(self) -> AttemptLoop:
        return AttemptLoop(self, self._guard.plan_in_context(), is_async=True)


class AttemptLoop:
    """One loop over the attempts of a call. Leaving it early gives back whatever the call still holds."""

    __slots__ = ("_attempt", "_run")

    def __init__(self, attempts: Attempts, plan: Plan, *, is_async: bool) -> None:
        _check(plan, is_async)
        self._run = _Run(attempts, plan, is_async)
        self._attempt: BlockAttempt | None = None

    def __iter__(self) -> Self:
        return self

    def __aiter__(self) -> Self:
        return self

    def __next__(self) -> BlockAttempt:
        self._go_on()
        if self._run.work is None:
            self._run.deliver()
            raise StopIteration
        return self._turn()

    async def __anext__(self) -> BlockAttempt:
        self._go_on()
        await self._run.forward()
        if self._run.work is None:
            self._run.deliver()
            raise StopAsyncIteration
        return self._turn()

    def _go_on(self) -> None:
        if self._attempt is not None and self._attempt.state != "left":
            self._run.close()
            raise RuntimeError("an attempt was passed over; run the block inside `with attempt:`")
        if self._attempt is None and self._run.work is not None:
            self._run.resume()

    def _turn(self) -> BlockAttempt:
        self._attempt = BlockAttempt(self._run)
        return self._attempt

    def __del__(self) -> None:
        run = getattr(self, "_run", None)
        if run is not None:
            run.close()


class BlockAttempt:
    """One attempt of the block. `number` is 0 for the first; `result`, if set, is what a result classifier judges."""

    __slots__ = ("_deadline", "_run", "_token", "number", "result", "state")

    def __init__(self, run: _Run) -> None:
        self._run: _Run | None = run
        self._deadline = run.block.deadline
        self.number = run.block.begun - 1
        self.result: Any = None
        self.state = "new"
        self._token: object = None

    @property
    def remaining(self) -> float:
        """Seconds left for this attempt; infinite without a limit."""
        return self._deadline.remaining()

    def __enter__(self) -> Self:
        if self.state != "new":
            raise RuntimeError("an attempt can be entered once; take the next one from the loop")
        self.state = "entered"
        if self._run is not None:
            self._run.attend()
            # Entered here, as spans that the loop's body has around the block must outlive it.
            span = self._run.block.span
            self._token = None if span is None else span.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        run, self._run, self.state = self._run, None, "left"
        assert run is not None
        if self._token is not None and run.block.span is not None:
            run.block.span.leave(self._token)
        try:
            return run.take(self.result, error)
        finally:
            if error is not None:
                error.with_traceback(traceback)  # without the frames of the strategies that it went through
            del error

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        return self.__exit__(kind, error, traceback)


class _Run:
    """The guarded call behind a loop: a coroutine that stops wherever the block has to run.

    `work` is None once the call has ended. `waiting` is what the coroutine yielded last: the block's turn or, in
    an async loop, something that the event loop must see.
    """

    __slots__ = (
        "_attempts", "_before", "_call", "_is_async", "_outcome", "block", "waiting", "work",
    )  # fmt: skip

    def __init__(self, attempts: Attempts, plan: Plan, is_async: bool) -> None:
        self._attempts = attempts
        self._is_async = is_async
        self._before = CURRENT.get()
        self.block = block = _Block()
        self._call = call = Call(plan.setting, is_async, block.ended)
        if is_async:
            from holdfast.guard.adriver import AsyncDriver

            call.driver = AsyncDriver(_BlockClock(plan.clock, block))
        strategies = () if plan.setting.hub.off else plan.strategies
        chain = link_chain((*strategies, block))
        spans = plan.setting.hub.call_spans
        work = perform(call, chain) if spans is None else traced(call, chain, spans, enters=False)
        self.work: Coroutine[Any, Any, Outcome[Any]] | None = work
        self.waiting: Any = None
        self._outcome: Outcome[Any] | None = None

    def resume(self, sent: Any = None, thrown: BaseException | None = None) -> None:
        """Let the strategies go on until it is the block's turn, they wait for the event loop, or the call ends."""
        work = self.work
        assert work is not None
        try:
            self.waiting = work.send(sent) if thrown is None else work.throw(thrown)
        except StopIteration as stop:
            self.work = None
            self._outcome = self._attempts.outcome = stop.value
        except BaseException:
            self.work = None
            raise
        else:
            if self.waiting is not _TURN and not self._is_async:
                self.close()
                raise RuntimeError(
                    "a strategy suspended during a sync loop; it may only await nxt() and the driver's own methods. "
                    "Use `async for` instead."
                )

    @coroutine
    def forward(self) -> Generator[Any, Any, None]:
        """Hand what the strategies wait for to the event loop until it is the block's turn, or the call ends."""
        self.attend()
        while self.work is not None and self.waiting is not _TURN:
            try:
                sent = yield self.waiting
            except BaseException as error:  # a cancellation, for the strategies to see
                self.resume(thrown=error)
            else:
                self.resume(sent)
        self.block.attended = False

    def attend(self) -> None:
        """The task is with the guard again, so time limits may strike, and those that came due meanwhile do."""
        block = self.block
        block.attended = True
        while block.struck:
            block.struck.pop().strike_soon()

    def take(self, result: Any, error: BaseException | None) -> bool:
        """What the block came to. The answer says whether its exception ends here."""
        self.block.result, self.block.error, self.block.attended = result, error, False
        cut_by_us = self._call.cut
        try:
            self.resume()
            if self.work is None:
                self.deliver()
                return True
        except BaseException as raised:
            if raised is error:
                return False
            raise
        if cut_by_us or error is None or isinstance(error, Exception):
            return True
        self.close()  # interrupted; a strategy wants to wait, but nobody will wait for it
        return False

    def deliver(self) -> None:
        """Raises the exception of a call that failed, once."""
        outcome, self._outcome = self._outcome, None
        if outcome is not None:
            delivered(outcome)

    def close(self) -> None:
        """Give back what the call holds, if it has not ended, and the context that it published."""
        work, self.work = self.work, None
        if work is not None:
            try:
                work.close()
            except ValueError:
                pass  # closed from another context, whose variables are not ours to reset
        link = CURRENT.get()
        if link is not None and link[SOURCE] is self._call:
            # A block inside the loop but around the attempt ended after the call and brought its context back.
            CURRENT.set(self._before)


class _Block:
    """The innermost strategy: lets the block run, then the function that stands for it. Knows nothing of the loop.

    `attended` tells that an async task is inside the block or waits for the strategies.
    """

    passes_context = True

    def __init__(self) -> None:
        self.attended = False
        self.struck: list[_Alarm] = []
        self.begun = 0
        self.deadline = Deadline.never()
        self.result: Any = None
        self.error: BaseException | None = None
        self.span: CallSpan | None = None  # of the attempt

    async def execute(self, nxt: Next, ctx: ResilienceContext) -> Outcome[Any]:
        call: Call = ctx.call
        self.begun += 1
        self.deadline = ctx.deadline
        started, made = call.clock.monotonic(), len(call.trail)
        around, call.span, outcome = call.span, None, None
        self.span = None if around is None else around.attempt(made)
        try:
            await _await_block()
            service = call.clock.monotonic() - started
            try:
                outcome = await nxt(ctx)
                return outcome
            finally:
                if len(call.trail) > made:
                    call.trail[-1].service = service
        finally:
            span, self.span, call.span = self.span, None, around
            if span is not None:
                span.end(*attempt_facts(made, outcome, ctx))

    def ended(self) -> Any:
        """Does what the block did: returns its result or raises its exception."""
        error, self.error = self.error, None
        if error is None:
            return self.result
        try:
            raise error
        finally:
            del error, self  # this frame will be in its traceback: no cycle


class _BlockClock:
    """The guard's clock. Its timers do not strike while the task is busy with code beside the block.

    A time limit ends a block by cancelling the task, and only inside the block is that taken back again.
    """

    def __init__(self, clock: Clock, block: _Block) -> None:
        self._clock = clock
        self._block = block
        self.monotonic, self.wall = clock.monotonic, clock.wall
        self.sleep, self.asleep, self.wait = clock.sleep, clock.asleep, clock.wait

    def call_at(self, when: float, callback: Callable[[], object]) -> _Alarm:
        alarm = _Alarm(self._block, callback)
        alarm.handle = self._clock.call_at(when, alarm.strike)
        return alarm


class _Alarm:
    """A timer of such a clock."""

    __slots__ = ("_block", "_callback", "_cancelled", "handle")

    handle: TimerHandle

    def __init__(self, block: _Block, callback: Callable[[], object]) -> None:
        self._block = block
        self._callback = callback
        self._cancelled = False

    def strike(self) -> None:
        if self._cancelled:
            return
        if self._block.attended:
            self._callback()
        else:
            self._block.struck.append(self)

    def strike_soon(self) -> None:
        """Once the task waits for something: what runs now cannot be cancelled cleanly."""
        import asyncio

        asyncio.get_running_loop().call_soon(self.strike)

    def cancel(self) -> None:
        self._cancelled = True
        self.handle.cancel()


class _Turn:
    """What the strategies' coroutine yields when it is the block's turn."""

    def __repr__(self) -> str:
        return "TURN"


_TURN: Final = _Turn()


@coroutine
def _await_block() -> Generator[_Turn, None, None]:
    yield _TURN


def _check(plan: Plan, is_async: bool) -> None:
    for strategy in plan.strategies:
        if getattr(strategy, "kind", "custom") == "cache":
            raise PolicyError(
                f"guard {plan.setting.name!r} caches, but a block has no arguments to be known by; use guard.call(fn)"
            )
        if getattr(strategy, "kind", "custom") == "hedge":
            raise PolicyError(
                f"guard {plan.setting.name!r} hedges, but a block cannot run twice at a time; use guard.call(fn)"
            )
        if getattr(strategy, "abandon", False) and not is_async:
            raise PolicyError(
                f"guard {plan.setting.name!r} has Timeout(abandon=True), but a block cannot move to a thread; "
                "use guard.call(fn), or leave abandon out"
            )
