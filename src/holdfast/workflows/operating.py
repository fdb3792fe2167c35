"""What can be done to a workflow that was started: wait for it, signal, hold, end, or run it again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakSet

from holdfast.core.clock import Clock
from holdfast.errors import Conflict, TaskError, WorkflowNotFoundError
from holdfast.machine.run import Advance, Missing
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.codec import from_json, to_json
from holdfast.store.ids import new_record_id
from holdfast.store.port import Change, Delete, Insert, Store, Subscription
from holdfast.store.query import equal
from holdfast.workflows import control
from holdfast.workflows.binding import resolve
from holdfast.workflows.ending import end_all
from holdfast.workflows.handle import WorkflowRun
from holdfast.workflows.reading import Reading
from holdfast.workflows.records import ITEM, SIGNAL, STAGE, WORKFLOW, SignalRecord, WorkflowRecord
from holdfast.workflows.run import Run
from holdfast.workflows.runs import Blueprints
from holdfast.workflows.settling import WAKE
from holdfast.workflows.worker import WorkflowWorker

_POLL_S: Final = 0.5
Act = Callable[[Run, Advance], "list[Change] | None"]
"""What is to be done; the changes besides those of the workflow itself, or None: nothing."""


class Operating(Reading):
    """The workflows of one store, for whoever operates them."""

    def __init__(self, store: Store, blueprints: Blueprints, clock: Clock) -> None:
        super().__init__(store, blueprints)
        self._clock = clock
        self._ended = threading.Condition()
        self._workers: WeakSet[WorkflowWorker] = WeakSet()
        self._subscription: Subscription | None = None

    def close(self) -> None:
        """Stop listening."""
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    def get(self, id: str) -> WorkflowRun:
        """Raises WorkflowNotFoundError."""
        self.record(id)
        return WorkflowRun(self, id)

    def record(self, id: str) -> WorkflowRecord:
        found = self._store.get(WORKFLOW, [id])[0]
        if found is None:
            raise WorkflowNotFoundError(f"there is no workflow {id!r}")
        return found

    def cancel(self, id: str, reason: str = "canceled", *, by: str = "anonymous") -> WorkflowRun:
        """End a workflow: what has not begun will not, and what is under way counts no more. One that has ended stays.

        Raises WorkflowNotFoundError.
        """

        def act(run: Run, step: Advance) -> list[Change] | None:
            if run.state.status.is_complete:
                return None
            step.cancel(reason, by)
            return end_all(self._store, run, step, ())

        self._change(id, act)
        return WorkflowRun(self, id)

    def pause(self, id: str, *, by: str = "anonymous", reason: str = "") -> WorkflowRun:
        """Hold a workflow: what workers have taken ends, nothing new begins, and no time runs out until it is resumed.

        Raises WorkflowNotFoundError, and InvalidStateTransitionError for one that does not run.
        """
        return self._control(id, control.pause, by=by, reason=reason)

    def resume(self, id: str, *, by: str = "anonymous") -> WorkflowRun:
        """Let a paused workflow go on; what was due meanwhile is due now.

        Raises WorkflowNotFoundError, and InvalidStateTransitionError for one that has ended.
        """
        return self._control(id, control.resume, by=by)

    def restart(self, id: str, ref: str, *, by: str = "anonymous") -> WorkflowRun:
        """Run a stage that has ended again, and everything after it. A workflow that has ended runs again, with what
        its end had cut off.

        Raises WorkflowNotFoundError, InvalidStateTransitionError for a workflow that was cancelled, and TaskError for a
        stage that has not ended.
        """
        return self._control(id, control.restart, ref=ref, by=by)

    def retry(self, id: str, *, by: str = "anonymous") -> WorkflowRun:
        """Restart every stage that has failed. Raises as `restart` does, and TaskError if none has."""
        return self._control(id, control.retry, by=by)

    def skip(self, id: str, ref: str, *, by: str = "anonymous") -> WorkflowRun:
        """Leave out a stage: when its turn comes, or now if it is under way. What comes after it runs all the same.

        Raises WorkflowNotFoundError, and TaskError for a stage that has ended.
        """
        return self._control(id, control.skip, ref=ref, by=by)

    def add_instances(self, id: str, ref: str, *items: Any, by: str = "anonymous") -> WorkflowRun:
        """Start one more instance of a stage for each of these, which it finds as `item` in its context.

        Raises WorkflowNotFoundError, and TaskError for a stage that does not run or takes no more.
        """
        given = from_json(to_json(items))
        return self._control(id, control.add_instances, ref=ref, items=given, by=by)

    def _control(self, id: str, act: Callable[..., list[Change] | None], **facts: Any) -> WorkflowRun:
        self._change(id, lambda run, step: act(self._store, run, step, **facts))
        return WorkflowRun(self, id)

    def signal(self, id: str, name: str, value: Any = None) -> bool:
        """Send a signal. True: a stage waited for it and goes on; False: it is kept until one does.

        Raises WorkflowNotFoundError, and TaskError for a workflow that has ended.
        """
        text = to_json(value)
        found = False

        def act(run: Run, step: Advance) -> list[Change] | None:
            nonlocal found
            if run.state.status.is_complete:
                raise TaskError(f"workflow {id} is {run.state.status.value}; nothing waits for signal {name!r} there")
            changes = self._delivered(run, step, name, from_json(text))
            found = bool(changes)
            if found:
                return changes
            step.note("signal_kept", name=name)
            return [Insert(SIGNAL, SignalRecord(new_record_id(step.now), 1, None, id, name, text))]

        self._change(id, act)
        return found

    def _change(self, id: str, act: Act) -> None:
        """Have the machine do something to a workflow, and store it; again if somebody else changed it meanwhile."""
        needed: dict[str, None] = {}
        while True:
            record = self.record(id)
            run = Run(record, self._blueprints.of([record.definition])[record.definition])
            run.read(self._store, needed)
            step = run.advance(self._store.now())
            try:
                changes = act(run, step)
            except Missing as missing:
                needed |= dict.fromkeys(missing.refs)
                continue
            if changes is None:
                return
            more, after, _ = run.changes(step)
            try:
                self._store.commit([*changes, *more], wake=WAKE)
            except Conflict:
                continue
            self._tell(after)
            return

    def _delivered(self, run: Run, step: Advance, name: str, value: Any) -> list[Change]:
        """Let the first stage that waits for the signal go on; nothing if none does."""
        where = equal(workflow=run.id, status=WorkflowStatus.SUSPENDED.value)
        for stage in self._store.page(STAGE, where, by="id", limit=1000):
            run.add([stage.ref], [stage])
            wait = run.stage(stage.ref).wait
            if wait is not None and wait.takes(name):
                items = self._store.page(ITEM, equal(workflow=run.id, ref=stage.ref, kind="wait"), by="id", limit=10)
                step.resume(stage.ref, name, value)
                return [*(Delete(ITEM, item) for item in items), *control.settled(self._store, run, step)]
        return []

    def stages(self, id: str) -> dict[str, WorkflowStatus]:
        """Where each stage of a workflow stands, in the order of its definition. Raises WorkflowNotFoundError."""
        record = self.record(id)
        refs = list(self._blueprints.of([record.definition])[record.definition].plan.stages)
        found = self._store.get(STAGE, [f"{id}.{ref}" for ref in refs])
        return {
            ref: WorkflowStatus.NOT_STARTED if one is None else WorkflowStatus(one.status)
            for ref, one in zip(refs, found, strict=True)
        }

    def wait(self, id: str, timeout: float | None = None) -> WorkflowRecord:
        """The workflow once it has ended. Raises TimeoutError."""
        if self._subscription is None:  # other processes end workflows, too
            self._subscription = self._store.subscribe(WAKE, self._hear)
        until = None if timeout is None else self._clock.monotonic() + timeout
        while True:
            with self._ended:
                record = self.record(id)
                if WorkflowStatus(record.status).is_complete:
                    return record
                left = _POLL_S if until is None else min(_POLL_S, until - self._clock.monotonic())
                if left <= 0:
                    raise TimeoutError(f"workflow {id} has not ended within {timeout:g} s; it is {record.status}")
                self._ended.wait(left)

    def returned(self, record: WorkflowRecord) -> Any:
        blueprint = self._blueprints.of([record.definition])[record.definition]
        if blueprint.result is None:
            return None
        return resolve(blueprint.result, from_json(record.context), lambda ref: self._left(record.id, ref))

    def _left(self, id: str, ref: str) -> Any:
        found = self._store.get(STAGE, [f"{id}.{ref}"])[0]
        return None if found is None else from_json(found.outputs).get("result")

    def _tell(self, record: WorkflowRecord) -> None:
        if WorkflowStatus(record.status).is_complete:
            for worker in tuple(self._workers):
                worker.cut(record.id, f"its workflow is {record.status}")
        self._hear()

    def _hear(self) -> None:
        with self._ended:
            self._ended.notify_all()
