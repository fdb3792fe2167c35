"""Finalizers: what is done once a stage is over, in whatever way, whoever is alive then.

A finalizer is a row before its task goes on, and it is run because of an item that is written with the end of its
stage. So a crash of any process loses none; each is called at least once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from weakref import WeakSet

from holdfast.core.check import check_seconds
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import ConfigurationError, StageNotFoundError, WorkflowNotFoundError
from holdfast.machine.finalizer import FINALIZER, UNSETTLED, FinalizerForm, FinalizerRecord, FinalizerState, order_of
from holdfast.store.codec import from_json, instant, maybe_instant, to_json
from holdfast.store.paging import every
from holdfast.store.port import Store
from holdfast.store.query import Where, among, equal, outside
from holdfast.workflows.default import Default
from holdfast.workflows.finalizer_rows import Engine, ask_again, drop, put, take_up
from holdfast.workflows.finalizing import FINALIZER_S, PREFIX, Caller, FinalizerResult, Finalizing, hook_type
from holdfast.workflows.records import STAGE
from holdfast.workflows.resilience import ResilienceConfig
from holdfast.workflows.task_context import current_task

if TYPE_CHECKING:
    from holdfast.workflows.shift import Shift

F = TypeVar("F", bound=Callable[..., Any])
_HAND: Final = "by hand"


@dataclass(frozen=True, slots=True)
class Finalizer:
    """A finalizer as it is stored."""

    id: str
    workflow_id: str
    stage_id: str
    stage: str
    incarnation: int
    form: FinalizerForm
    name: str
    args: Mapping[str, Any]
    state: FinalizerState
    attempts: int
    owner: str | None
    last_error: str | None
    created_at: datetime
    ended_at: datetime | None
    duration_ms: float | None


class Entry(NamedTuple):
    """One in memory only."""

    name: str
    work: Callable[[], Any]


class FinalizerRegistry:
    """The finalizers of one engine; without an engine, of this process, and only in its memory.

    Raises ConfigurationError for a name or a function that cannot be, WorkflowNotFoundError for a stage that has not
    begun.
    """

    def __init__(self, engine: Engine | None = None, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._engine = engine
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: dict[str, list[Entry]] = {}
        self._callbacks: dict[str, Callable[[], Any]] = {}
        self._shifts: WeakSet[Shift] = WeakSet()
        self._hand: Caller | None = None
        self.functions: dict[str, Callable[..., Any]] = {}
        """What names stand for."""

    def add(self, function: F, name: str | None = None) -> F:
        """Bind a function to a name, its own if none is given: what is stored is the name. Also a decorator.

        It is called with the arguments that `register` was given, by name; in place of a callback whose process is
        gone, with `stage_id`.
        """
        if not callable(function):
            raise ConfigurationError(f"a finalizer is a function, got {function!r}")
        name = _checked(name or getattr(function, "__name__", ""))
        if self.functions.setdefault(name, function) is not function:
            raise ConfigurationError(f"there are two finalizers {name!r}; name one of them: add(function, name)")
        return function

    def register(
        self,
        stage_id: str,
        name: str,
        callback: Callable[[], Any] | None = None,
        *,
        args: Mapping[str, Any] | None = None,
    ) -> None:
        """Have something done when a stage is over; at once, if it is.

        With a callback: that is called, in this process. Without: the function that `add` has bound to the name, by
        any worker, with `args`, which are JSON. The same again is one. Stored when this returns.
        """
        _checked(name)
        if callback is not None and (args is not None or not callable(callback)):
            raise ConfigurationError(f"finalizer {name!r} takes a function without arguments, or args={{…}}, not both")
        if callback is None and name not in self.functions:
            there = ", ".join(sorted(self.functions)) or "none"
            raise ConfigurationError(
                f"nothing is bound to {name!r}; there are {there}; finalizers.add(…) binds a function"
            )
        given = to_json(dict(args or {}))
        if self._engine is None:
            work = callback or partial(self.functions[name], **from_json(given))
            with self._lock:
                self._entries.setdefault(stage_id, []).append(Entry(name, work))
        elif callback is None:
            self._put(stage_id, FinalizerForm.NAMED, name, given)
        else:
            local = to_json({"stage_id": stage_id})
            self._put(stage_id, FinalizerForm.LOCAL, name, local, owner=self._owner(), callback=callback)

    def hook(self, form: FinalizerForm, type: str, place: int) -> None:
        """Have a hook of the task that runs here called when its stage is over. It is of the stage, and so once."""
        here = current_task()
        assert here is not None
        self._put(here.stage_id, form, type, "{}", place=place)

    def _put(
        self,
        stage_id: str,
        form: FinalizerForm,
        name: str,
        args: str,
        *,
        place: int | None = None,
        owner: str | None = None,
        callback: Callable[[], Any] | None = None,
    ) -> None:
        engine, here = self._engine, current_task()
        assert engine is not None
        workflow, stage, incarnation = _place(engine.store, stage_id)
        if here is not None and here.stage_id == stage_id:
            incarnation = here.incarnation

        def kept(id: str) -> None:
            if callback is not None:
                with self._lock:
                    self._callbacks[id] = callback

        put(engine, workflow, stage, incarnation, form, name, args, place=place, owner=owner, kept=kept)

    def execute(self, stage_id: str, timeout: float = FINALIZER_S) -> list[FinalizerResult]:
        """Run what is pending for a stage now, here, one after another, each within so many seconds.

        What fails here is not tried again by itself, if it is in memory only; else as usual.
        """
        check_seconds("timeout", timeout, "use 30")
        call = self._by_hand()
        if self._engine is None:
            with self._lock:
                entries = self._entries.pop(stage_id, [])
            return [call.result(entry.name, entry.work, timeout)[0] for entry in entries]
        session = self.session(call, _HAND, timeout)
        workflow, stage, _ = _place(self._engine.store, stage_id)
        rows = sorted(self._rows((*equal(workflow=workflow, ref=stage), _UNSETTLED)), key=order_of)
        return session.run(rows).results

    def pending(self) -> list[str]:
        """The stages that have finalizers which have not been run, durable and local."""
        with self._lock:
            found = dict.fromkeys(self._entries)
        if self._engine is not None:
            found |= dict.fromkeys(f"{row.workflow}.{row.ref}" for row in self._rows((_UNSETTLED,)))
        return list(found)

    def pending_count(self, stage_id: str | None = None) -> int:
        """How many finalizers have not been run, of a stage or of all."""
        with self._lock:
            entries = self._entries if stage_id is None else {stage_id: self._entries.get(stage_id, [])}
            number = sum(len(one) for one in entries.values())
        if self._engine is None:
            return number
        where: Where = (_UNSETTLED,)
        if stage_id is not None:
            workflow, stage, _ = _place(self._engine.store, stage_id)
            where += equal(workflow=workflow, ref=stage)
        return number + sum(1 for _ in self._rows(where))

    def clear(self, stage_id: str | None = None) -> int:
        """Forget what has not been run, or has failed, of a stage or of all; how many those were."""
        with self._lock:
            gone = list(self._entries.values()) if stage_id is None else [self._entries.get(stage_id, [])]
            number = sum(len(one) for one in gone)
            if stage_id is None:
                self._entries.clear()
            else:
                self._entries.pop(stage_id, None)
        if self._engine is None:
            return number
        where: Where = (outside("state", (FinalizerState.RUNNING.value, FinalizerState.DONE.value)),)
        if stage_id is not None:
            workflow, stage, _ = _place(self._engine.store, stage_id)
            where += equal(workflow=workflow, ref=stage)
        for row in list(self._rows(where)):
            number += drop(self._engine, row)
            self.forget(row.id)
        return number

    def find(
        self, workflow_id: str | None = None, *, state: FinalizerState | str | None = None, limit: int = 1000
    ) -> list[Finalizer]:
        """Finalizers as they are stored, also those that were run, in the order of their ids."""
        wanted = None if state is None else FinalizerState(state).value
        where = equal(workflow=workflow_id, state=wanted)
        engine = self._engine
        found = [] if engine is None else engine.store.page(FINALIZER, where, by="id", limit=limit)
        return [_shown(row) for row in sorted(found, key=lambda row: (row.workflow, row.ref, *order_of(row)))]

    def run_again(self, id: str, *, by: str = "anonymous") -> None:
        """Have a finalizer that has failed or was lost run once more, by whichever worker.

        Raises WorkflowNotFoundError for one that is not there, InvalidStateTransitionError for one that is pending.
        """
        row = None if self._engine is None else self._engine.store.get(FINALIZER, [id])[0]
        if row is None or self._engine is None:
            raise WorkflowNotFoundError(f"there is no finalizer {id!r}")
        ask_again(self._engine, row, by)

    def recover(self, workflow_id: str) -> int:
        """Have what is pending of a workflow's stages that are over run, if nothing is under way for it.

        That cannot be by itself; it is for recovery, and after items were lost. Raises WorkflowNotFoundError.
        """
        return 0 if self._engine is None else take_up(self._engine, workflow_id)

    def session(self, call: Caller, owner: str, timeout: float = FINALIZER_S) -> Finalizing:
        """What runs durable ones under the name of a worker."""
        assert self._engine is not None
        return Finalizing(self._engine, self, call, owner, timeout)

    def types(self) -> list[str]:
        """The types of items that can be seen to with what is known here."""
        hooked = [] if self._engine is None else self._engine.tasks.hooked()
        return [*(PREFIX + name for name in self.functions), *map(hook_type, hooked)]

    def attend(self, shift: Shift) -> None:
        """A worker of this engine works in this process."""
        self._shifts.add(shift)

    @property
    def has_local(self) -> bool:
        """Whether callbacks of this process wait for the end of their stages."""
        return bool(self._callbacks)

    def callback(self, id: str) -> Callable[[], Any] | None:
        return self._callbacks.get(id)

    def forget(self, id: str) -> None:
        with self._lock:
            self._callbacks.pop(id, None)

    def forget_settled(self) -> None:
        """Others may have taken us for dead, and done what they could in place of our callbacks."""
        ids = list(self._callbacks)
        if ids and self._engine is not None:
            for id, row in zip(ids, self._engine.store.get(FINALIZER, ids), strict=True):
                if row is None or row.state not in UNSETTLED:
                    self.forget(id)

    def _owner(self) -> str | None:
        """A worker of this process, whose life shows that the callback is still there."""
        here = current_task()
        if here is not None and here.registry is self:
            return here.worker
        for shift in list(self._shifts):
            if not shift.stopping.is_set() and shift.presence.be_there():
                shift.wake.set()
                return shift.presence.id
        return None

    def _rows(self, where: Where) -> Iterator[FinalizerRecord]:
        assert self._engine is not None
        return every(self._engine.store, FINALIZER, where)

    def _by_hand(self) -> Caller:
        with self._lock:
            if self._hand is None:
                self._hand = Caller.of(ResilienceConfig(), self._clock)
            return self._hand


def get_finalizer_registry() -> FinalizerRegistry:
    """The registry of the engine whose task asks; else of the first engine of this process; else one in memory."""
    here = current_task()
    if here is not None and here.registry is not None:
        return here.registry
    return _default().get()


@cache
def _default() -> Default[FinalizerRegistry]:
    return Default(FinalizerRegistry)


def offer_default(registry: FinalizerRegistry) -> None:
    """Be the registry of programs that have no engine at hand, if there is no other."""
    _default().offer(registry)


_UNSETTLED: Final = among("state", sorted(state.value for state in UNSETTLED))


def _place(store: Store, stage_id: str) -> tuple[str, str, int]:
    found = store.get(STAGE, [stage_id])[0]
    if found is None:
        raise StageNotFoundError(f"no stage {stage_id!r} has begun; a finalizer is for a stage that has")
    return found.workflow, found.ref, found.incarnation


def _checked(name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"a finalizer has a name, which is stored; got {name!r}")
    return name


def _shown(row: FinalizerRecord) -> Finalizer:
    return Finalizer(
        row.id, row.workflow, f"{row.workflow}.{row.ref}", row.ref, row.incarnation, FinalizerForm(row.form), row.name,
        from_json(row.args), FinalizerState(row.state), row.attempts, row.owner, row.error, instant(row.created_at),
        maybe_instant(row.ended_at), None if row.took_us is None else row.took_us / 1000,
    )  # fmt: skip
