"""Bulkheads: each task type has slots, a queue and threads of its own, so that no type can take what another needs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final

from holdfast.core.check import check_seconds
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.core.forks import renew_in_forks
from holdfast.workflows.compartment import Compartment
from holdfast.workflows.crew import Crew
from holdfast.workflows.execution import BulkheadLimits, ExecutionResult, TaskCircuit
from holdfast.workflows.task_call import OnDone, TaskCall, Then, work_of
from holdfast.workflows.threads import Alarms

DEFAULT: Final = "default"
_IDLE_S: Final = 10.0


class TaskBulkheadManager:
    """Runs calls by task type, within the limits of the configuration; an unlisted type gets the default ones.

    Threads are daemons. They come when a call needs one and end when there was none for `idle_s` seconds. A forked
    process has slots and threads of its own. `freed` is told of a type whose slot has come back late: its call was
    given up, and has ended since.
    """

    def __init__(
        self,
        config: BulkheadLimits,
        *,
        clock: Clock = SYSTEM_CLOCK,
        idle_s: float = _IDLE_S,
        alarms: Alarms | None = None,
        crew: Crew | None = None,
        freed: Callable[[str], object] | None = None,
    ) -> None:
        self._config = config
        self._freed = freed
        self._clock = clock
        self._idle_s = idle_s
        self._crew = Crew() if crew is None else crew
        self._given_alarms = alarms
        self._is_closed = False
        self._begin_process()
        renew_in_forks(self._begin_process)

    def execute_with_timeout(
        self, task_type: str, func: Callable[..., Any], *args: Any, timeout: float | None = None, **kwargs: Any
    ) -> ExecutionResult:
        """Run a function, sync or async, and wait for it. Its errors, timeouts and refusals are in the answer.

        `timeout` covers the wait for a slot and the run; None takes the type's own. What the surrounding code
        allows (`with deadline(...)`) is not exceeded either. Raises SystemExit, KeyboardInterrupt and CancelledError.
        """
        result = self.execute(task_type, func, args, kwargs, timeout=timeout)
        if result.error is not None and not isinstance(result.error, Exception):
            raise result.error
        return result

    def execute(
        self,
        task_type: str,
        func: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        circuit: TaskCircuit | None = None,
    ) -> ExecutionResult:
        """Like `submit`, and wait for the end."""
        ended = threading.Event()
        results: list[ExecutionResult] = []

        def on_done(result: ExecutionResult) -> None:
            results.append(result)
            ended.set()

        call = self._call(task_type, func, args, kwargs, timeout, on_done, circuit)
        call.enter()
        try:
            if not self._clock.wait(ended, max(0.0, call.at - self._clock.monotonic())):
                call.expire()
                ended.wait()  # it is being reported, if not by us
        except BaseException:  # the one who waits was interrupted
            call.cancel("nobody waits for it any more", abandon=True)
            raise
        return results[0]

    def submit(
        self,
        task_type: str,
        func: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        on_done: OnDone,
        timeout: float | None = None,
        circuit: TaskCircuit | None = None,
        patient: bool = False,
        then: Then | None = None,
    ) -> TaskCall:
        """Run a function and go on; `on_done` is called once with the result, when its slot is free again.

        It is called by whoever learns of the end, be it the thread that submits, and must be quick: the thread that
        ran the call takes the next one after it. The answer can be cancelled. With a circuit, the call asks it for a
        permit when it has a slot, so what a full bulkhead refuses never takes a probe. A `patient` one waits for a
        thread of its type that is at work, and is to be hurried if that takes long. `then` is asked for another call
        when this one has ended well, before its slot is free again.
        """
        call = self._call(task_type, func, args, kwargs, timeout, on_done, circuit, patient, then)
        if self._alarms.watch(call):
            call.enter()
        else:
            call.refuse("could not start a thread")
        return call

    def free_slots(self, task_type: str) -> int:
        """How many calls of this type would run at once if they came now."""
        return 0 if self._is_closed else self._room(task_type).free

    def follows(self, task_type: str) -> bool:
        """Whether the thread that asks, when it has told how a call of this type ended, makes another one."""
        return self._room(task_type).threads.follows()

    def is_behind(self, task_type: str | None = None) -> bool:
        """Whether calls of this type, or of any, wait for a thread."""
        if task_type is None:
            return any(room.threads.is_behind for room in tuple(self._rooms.values()))
        return self._room(task_type).threads.is_behind

    def hurry(self) -> None:
        """Call a thread for each type whose patient calls wait for one."""
        for room in tuple(self._rooms.values()):
            room.threads.hurry()

    def takes_longer(self, task_type: str) -> None:
        """Said by a thread that has told how a call ended and does something else now: others make the next one."""
        self._room(task_type).threads.takes_longer()

    def get_all_stats(self) -> dict[str, dict[str, int]]:
        """The figures of each listed type, of those used, and of `default`, whose limits unlisted ones get."""
        with self._lock:
            rooms = list(self._rooms.values())
        return {room.task_type: room.stats() for room in rooms}

    def shutdown(self, wait: bool = True, *, cancel: bool = False, timeout: float | None = None) -> bool:
        """Take no more calls, refuse those in the queues, and wait for those that run; True when all have ended.

        With `cancel` they are asked to stop. Abandoned calls are not waited for.
        """
        until = None if timeout is None else self._clock.monotonic() + timeout
        with self._lock:
            self._is_closed = True
            rooms = list(self._rooms.values())
        for room in rooms:
            room.close()
            for call in room.unfinished():
                if not call.refuse("was shut down") and cancel:
                    call.cancel("the worker is shutting down")
        if wait:
            for room in rooms:
                self._clock.wait(room.empty(), None if until is None else max(0.0, until - self._clock.monotonic()))
        for room in rooms:
            room.threads.close()
        self._loop.close()
        self._alarms.close()
        return not any(room.unfinished() for room in rooms)

    def __enter__(self) -> TaskBulkheadManager:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def _begin_process(self) -> None:
        """Also a forked one, which has none of its parent's threads: what they are at is the parent's."""
        self._lock = threading.Lock()
        self._loop = self._crew.loop()
        self._alarms = self._crew.alarms(self._clock) if self._given_alarms is None else self._given_alarms
        self._rooms: dict[str, Compartment] = {}
        for task_type in (*self._config.bulkheads_dict(), DEFAULT):
            self._room(task_type)

    def _call(
        self,
        task_type: str,
        func: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None,
        timeout: float | None,
        on_done: OnDone,
        circuit: TaskCircuit | None,
        patient: bool = False,
        then: Then | None = None,
    ) -> TaskCall:
        room = self._room(task_type)
        if timeout is None:
            timeout = room.limits.timeout_seconds
        else:
            check_seconds("timeout", timeout, f"leave it out for the {room.limits.timeout_seconds:g} s of its type")
        return TaskCall(room, work_of(func, tuple(args), kwargs or {}), timeout, on_done, circuit, patient, then)

    def _room(self, task_type: str) -> Compartment:
        room = self._rooms.get(task_type)
        if room is None:
            with self._lock:
                room = self._rooms.get(task_type)
                if room is None:
                    limits = self._config.get_bulkhead(task_type)
                    threads = self._crew.threads(f"holdfast-task-{task_type}", self._idle_s)
                    room = Compartment(task_type, limits, self._clock, self._loop, threads, self._freed)
                    self._rooms[task_type] = room
                    if self._is_closed:
                        room.close()
        return room


def execute_with_resilience(
    bulkhead_manager: TaskBulkheadManager,
    circuit: TaskCircuit | None,
    task_type: str,
    func: Callable[..., Any],
    func_args: Sequence[Any] = (),
    func_kwargs: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> Any:
    """The function's result, through its type's bulkhead and then its circuit.

    Raises what the function raised; TaskTimeoutError; and TransientError, with `retry_after`, when the bulkhead is
    full or the circuit open: then the function has not run.
    """
    return bulkhead_manager.execute(task_type, func, func_args, func_kwargs, timeout=timeout, circuit=circuit).unwrap()
