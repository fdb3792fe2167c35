"""Running the finalizers of a stage: in order, each within its time, and what came of each written down at once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import Conflict, TaskTimeoutError
from holdfast.machine import finalizer as machine
from holdfast.machine.finalizer import FINALIZER, FinalizerForm, FinalizerRecord, FinalizerState, order_of
from holdfast.machine.run import Advance
from holdfast.store.codec import from_json
from holdfast.store.paging import every
from holdfast.store.port import Change, Delete, Swap
from holdfast.store.query import equal
from holdfast.workflows.bulkheads import TaskBulkheadManager
from holdfast.workflows.crew import Crew
from holdfast.workflows.execution import BulkheadLimits, ExecutionResult
from holdfast.workflows.finalizer_rows import Engine
from holdfast.workflows.records import WORKER, WORKFLOW
from holdfast.workflows.result import TaskResult, as_result
from holdfast.workflows.run import Run
from holdfast.workflows.stage_tasks import read_shown
from holdfast.workflows.story import named
from holdfast.workflows.threads import Alarms, Unhurried

if TYPE_CHECKING:
    from holdfast.workflows.task import Task

FINALIZER_S: Final = 30.0
HOOKS: Final = "holdfast.hooks"
"""The type whose slots finalizers and `on_timeout` are called in: those of a task's own type may all be hung."""
_log: Final = logging.getLogger("holdfast")


@dataclass(frozen=True, slots=True)
class FinalizerResult:
    """What came of a finalizer."""

    name: str
    success: bool
    error: str | None
    duration_ms: float


class Local(Protocol):
    """What this process knows of finalizers."""

    functions: dict[str, Callable[..., Any]]

    def callback(self, id: str) -> Callable[[], Any] | None: ...
    def forget(self, id: str) -> None: ...


class Caller:
    """Calls a function in a slot, within a time, and waits for it."""

    def __init__(self, slots: TaskBulkheadManager, crew: Crew) -> None:
        self._slots = slots
        self._crew = crew

    @classmethod
    def of(cls, limits: BulkheadLimits, clock: Clock) -> Caller:
        """With slots of its own."""
        alarms = Alarms(clock if clock is SYSTEM_CLOCK else Unhurried(clock))
        crew = Crew()
        return cls(TaskBulkheadManager(limits, clock=clock, alarms=alarms, crew=crew), crew)

    def result(self, name: str, work: Callable[[], Any], timeout: float) -> tuple[FinalizerResult, Any]:
        """How it ended, and what it returned."""
        ended = threading.Event()
        came: list[ExecutionResult] = []

        def told(result: ExecutionResult) -> None:
            came.append(result)
            ended.set()

        self._slots.submit(HOOKS, work, on_done=told, timeout=timeout)
        self._crew.wait(ended)
        error = came[0].error
        if came[0].timed_out:
            error = TaskTimeoutError(f"finalizer {name!r} took longer than {timeout:g} s")
        said = None if error is None else named(error)
        return FinalizerResult(name, error is None, said, 1000 * came[0].run_s), came[0].result


@dataclass(slots=True)
class Left:
    """What one look at a stage's finalizers has brought, and left to others."""

    results: list[FinalizerResult] = field(default_factory=list)
    again: bool = False
    """Whether some are to be tried again after a while."""
    tries: int = 0
    """The most tries that one of those has had."""
    unknown: set[str] = field(default_factory=set)
    """What a worker must know to run the others: a type of items."""
    owners: set[str] = field(default_factory=set)
    """The workers in whose processes callbacks are."""


class Handed(NamedTuple):
    """Somebody else runs it."""

    type: str = ""
    owner: str = ""


class Finalizing:
    """Runs finalizers under the name of `owner`."""

    def __init__(self, engine: Engine, local: Local, call: Caller, owner: str, timeout: float = FINALIZER_S) -> None:
        self._engine = engine
        self._store = engine.store
        self._local = local
        self._call = call
        self._owner = owner
        self._timeout = timeout

    def stage(self, workflow: str, ref: str, incarnation: int, cut: int, wanted: Callable[[str, str], bool]) -> Left:
        """Run those of a stage that is over, of the forms and types that are `wanted`; `cut` is the task that was under
        way."""
        where = equal(workflow=workflow, ref=ref, incarnation=incarnation)
        found = every(self._store, FINALIZER, where)
        rows = [row for row in found if row.state in machine.UNSETTLED and wanted(row.form, type_of(row))]
        return self.run(sorted(rows, key=order_of), cut)

    def run(self, rows: Sequence[FinalizerRecord], cut: int = -1) -> Left:
        """Run these, one after another. One that fails is in nobody's way."""
        left = Left()
        for row in rows:
            if row.form == FinalizerForm.CANCEL and row.place != cut:
                self._commit(Delete(FINALIZER, row))  # nothing was cancelled
            elif row.state == FinalizerState.RUNNING and self._is_elsewhere(row):
                left.again = True
            elif machine.exhausted(row):
                self._settle(row, "its worker died while it ran", 0.0)
            else:
                self._do(row, left)
        return left

    def _do(self, row: FinalizerRecord, left: Left) -> None:
        work = self._work(row)
        if work is None:
            self._lose(row)
        elif isinstance(work, Handed):
            left.unknown |= {work.type} - {""}
            left.owners |= {work.owner} - {""}
        else:
            mine = machine.begun(row, self._owner)
            if not self._commit(Swap(FINALIZER, row, mine)):
                return  # somebody else has it
            result, value = self._call.result(row.name, work, self._timeout)
            error, brought = result.error, None
            if error is None and row.form == FinalizerForm.CANCEL and value is not None:
                try:
                    brought = as_result(value, row.name)
                except Exception as wrong:  # a value that is no result
                    error = named(wrong)
                    result = FinalizerResult(row.name, False, error, result.duration_ms)
            left.results.append(result)
            after = self._settle(mine, error, result.duration_ms, brought)
            if after.state == FinalizerState.PENDING:
                left.again, left.tries = True, max(left.tries, after.attempts)

    def _work(self, row: FinalizerRecord) -> Callable[[], Any] | Handed | None:
        """What is to be called here, or who calls it; None: nobody can."""
        known = self._local.functions.get(row.name)
        if row.form in (FinalizerForm.CANCEL, FinalizerForm.CLEANUP):
            if row.name not in self._engine.tasks:
                return Handed(type=type_of(row))
            return partial(self._hook, self._engine.tasks.resolve(row.name), row)
        if row.form == FinalizerForm.NAMED:
            return Handed(type=type_of(row)) if known is None else partial(known, **from_json(row.args))
        if (callback := self._local.callback(row.id)) is not None:
            return callback
        if row.owner is not None and row.owner != self._owner and self._is_elsewhere(row):
            return Handed(owner=row.owner)
        return None if known is None else partial(known, **from_json(row.args))

    def _hook(self, task: Task, row: FinalizerRecord) -> Any:
        record = self._store.get(WORKFLOW, [row.workflow])[0]
        assert record is not None
        run = Run(record, self._engine.blueprints.of([record.definition])[record.definition], record.version)
        stage = read_shown(self._store, run, row.ref)
        return task.on_cancel(stage) if row.form == FinalizerForm.CANCEL else task.on_cleanup(stage)

    def _is_elsewhere(self, row: FinalizerRecord) -> bool:
        """Whether the owner is another one who lives, as far as anybody knows."""
        if row.owner is None or row.owner == self._owner:
            return False
        return self._store.get(WORKER, [row.owner])[0] is not None

    def _settle(
        self, mine: FinalizerRecord, error: str | None, took_ms: float, brought: TaskResult | None = None
    ) -> FinalizerRecord:
        """Write down what came of it; somebody who has it by now has the last word."""
        after = mine

        def act(run: Run, step: Advance) -> list[Change] | None:
            nonlocal after
            took = round(1000 * took_ms)
            if error is None:
                after = machine.succeeded(mine, step.now, took)
                self._keep(run, step, mine, brought)
            else:
                after = machine.failed(mine, error, step.now, took)
            step.note(
                "finalizer_ended", mine.ref, name=mine.name, form=mine.form, status=after.state, attempt=mine.attempts,
                error=error,
            )  # fmt: skip
            return [Swap(FINALIZER, mine, after)] if self._is_still(mine) else None

        self._engine.change(mine.workflow, act)
        if after.state == FinalizerState.FAILED:
            _log.error("workflow %s, stage %s: finalizer %s failed: %s", mine.workflow, mine.ref, mine.name, error)
        if after.state != FinalizerState.PENDING:
            self._local.forget(mine.id)
        return after

    def _keep(self, run: Run, step: Advance, mine: FinalizerRecord, result: TaskResult | None) -> None:
        """What `on_cancel` brought is kept with the stage."""
        if result is None:
            return
        run.read(self._store, [mine.ref])
        if run.stage(mine.ref).incarnation == mine.incarnation:
            stage = step.touch(mine.ref)
            stage.outputs.update(result.outputs)
            stage.context.update(result.context)

    def _lose(self, row: FinalizerRecord) -> None:
        error = f"its callback was in a process that is gone, and no function is bound to {row.name!r}"

        def act(run: Run, step: Advance) -> list[Change] | None:
            step.note("finalizer_lost", row.ref, name=row.name, error=error)
            return [Swap(FINALIZER, row, machine.lost(row, error, step.now))] if self._is_still(row) else None

        self._engine.change(row.workflow, act)
        _log.error("workflow %s, stage %s: finalizer %s is lost: %s", row.workflow, row.ref, row.name, error)

    def _is_still(self, row: FinalizerRecord) -> bool:
        found = self._store.get(FINALIZER, [row.id])[0]
        return found is not None and found.version == row.version

    def _commit(self, change: Change) -> bool:
        try:
            self._store.commit([change])
        except Conflict:
            return False
        return True


PREFIX: Final = "finalizer."


def type_of(row: FinalizerRecord) -> str:
    """The type of an item that only workers take who know what is to be called."""
    hook = row.form in (FinalizerForm.CANCEL, FinalizerForm.CLEANUP)
    return hook_type(row.name) if hook else f"{PREFIX}{row.name}"


def hook_type(task: str) -> str:
    return f"{PREFIX}task.{task}"
