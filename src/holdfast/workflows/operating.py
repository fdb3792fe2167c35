"""What can be done to a workflow that was started: wait for it, signal, hold, end, or run it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from weakref import WeakSet

from holdfast.core.check import check_text
from holdfast.core.clock import Clock
from holdfast.errors import ConcurrencyError, Conflict, DeadLetterError, PolicyError, TaskError
from holdfast.machine.run import Advance, Missing
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.codec import clean_text, from_json, micros, to_json
from holdfast.store.port import Change, Insert, Store
from holdfast.workflows import control
from holdfast.workflows.children import result_of
from holdfast.workflows.configs import Configs
from holdfast.workflows.dead import DeadItems
from holdfast.workflows.delivery import Delivery
from holdfast.workflows.ending import end_all
from holdfast.workflows.following import follow
from holdfast.workflows.handle import WorkflowRun
from holdfast.workflows.limit import check_limit
from holdfast.workflows.lines import place_of
from holdfast.workflows.messages import ResumeStage, SignalStage
from holdfast.workflows.patience import Patience
from holdfast.workflows.preparing import Ending
from holdfast.workflows.pruning import PruneReport, prune
from holdfast.workflows.queue import WorkflowQueue
from holdfast.workflows.reading import Reading
from holdfast.workflows.records import MESSAGE, PROCESSED, STAGE, ProcessedRecord, WorkflowRecord
from holdfast.workflows.reporting import Reporter
from holdfast.workflows.run import Run
from holdfast.workflows.runs import Blueprints
from holdfast.workflows.sending import record_of
from holdfast.workflows.settling import WAKE
from holdfast.workflows.signals import APPROVAL, Signal, send, word_of
from holdfast.workflows.starting import start_waiting
from holdfast.workflows.story import named
from holdfast.workflows.waiters import Ended, Waiters
from holdfast.workflows.worker import WorkflowWorker

Act = Callable[[Run, Advance], "list[Change] | None"]
"""What is to be done; the changes besides those of the workflow itself, or None: nothing."""


class Operating(Reading):
    """The workflows of one store, for whoever operates them."""

    def __init__(
        self, store: Store, blueprints: Blueprints, clock: Clock, configs: Configs, reporter: Reporter, ending: Ending
    ) -> None:
        super().__init__(store, blueprints, configs)
        self._reporter = reporter
        self.ending = ending
        self._clock = clock
        self.queue = WorkflowQueue(store)
        self.dead = DeadItems(store, configs.handler.default_page_size)
        self.delivery = Delivery(store, self, configs.handler)
        self.delivery.handlers["ResumeStage"] = self._resume_by_message
        self._workers: WeakSet[WorkflowWorker] = WeakSet()
        self.waiters = Waiters(store, self._record, self._goes_on_here, clock)

    def close(self) -> None:
        """Stop listening."""
        self.waiters.close()

    def _goes_on_here(self, id: str) -> bool:
        return any(worker.has(id) for worker in tuple(self._workers))

    def get(self, id: str) -> WorkflowRun:
        """Raises WorkflowNotFoundError."""
        self._record(id)
        return WorkflowRun(self, id)

    @property
    def records(self) -> Store:
        """Where everything is kept."""
        return self._store

    @property
    def clock(self) -> Clock:
        return self._clock

    def run_of(self, id: str) -> Run:
        """A workflow as it is stored now, for a step. Raises WorkflowNotFoundError."""
        record, seq = self._standing(id)
        return Run(record, self._blueprint(record), seq, strict=self.configs.engine.merge_strict)

    def cancel(self, id: str, reason: str = "canceled", *, by: str = "anonymous") -> WorkflowRun:
        """End a workflow: what has not begun will not, and what is under way counts no more. One that has ended stays.

        Raises WorkflowNotFoundError.
        """

        def act(run: Run, step: Advance) -> list[Change] | None:
            if run.state.status.is_complete:
                return None
            step.cancel(words("reason", reason), words("by", by))
            return end_all(self._store, run, step, ())

        self.change(id, act)
        return WorkflowRun(self, id)

    def pause(self, id: str, *, by: str = "anonymous", reason: str = "") -> WorkflowRun:
        """Hold a workflow: what workers have taken ends, nothing new begins, and no time runs out until it is resumed.

        Raises WorkflowNotFoundError, and InvalidStateTransitionError for one that does not run.
        """
        return self._control(id, control.pause, by=by, reason=reason)

    def resume(self, id: str, *, by: str = "anonymous", reason: str = "") -> WorkflowRun:
        """Let a paused workflow go on; what was due meanwhile is due now.

        Raises WorkflowNotFoundError, and InvalidStateTransitionError for one that has ended, or not begun.
        """
        self.change(id, lambda run, step: self._resumed(run, step, words("by", by), words("reason", reason)))
        return WorkflowRun(self, id)

    def _resumed(self, run: Run, step: Advance, by: str, reason: str = "") -> list[Change] | None:
        changes = control.resume(self._store, run, step, by=by, reason=reason)
        if changes is not None:
            self.drifting.tell(run, step)
        return changes

    def _resume_by_message(self, message: ResumeStage, extra: Sequence[Change]) -> None:
        def act(run: Run, step: Advance) -> list[Change] | None:
            control.check_ref(self._store, run, message.ref)
            return self._resumed(run, step, message.user)

        self.change(message.execution_id, act, extra=extra, in_place=True)

    def restart(
        self, id: str, ref: str, *, by: str = "anonymous", reason: str = "", code_version: str | None = None
    ) -> WorkflowRun:
        """Run a stage that has ended again, and everything after it, with new idempotency keys. A workflow that has
        ended runs again, with what its end had cut off. Tasks are found by name, so it is the code of today that runs;
        `code_version` is for workers that take certain versions only.

        Raises WorkflowNotFoundError, InvalidStateTransitionError for a workflow that was cancelled, and TaskError for a
        stage that has not ended.
        """
        return self._control(id, control.restart, ref=ref, by=by, reason=reason, code=code_version)

    def retry(
        self, id: str, *, by: str = "anonymous", reason: str = "", code_version: str | None = None
    ) -> WorkflowRun:
        """Restart every stage that has failed, with the idempotency keys that it had: its effect may have happened.

        Raises as `restart` does, and TaskError if none has failed.
        """
        return self._control(id, control.retry, by=by, reason=reason, code=code_version)

    def skip(self, id: str, ref: str, *, by: str = "anonymous", reason: str = "") -> WorkflowRun:
        """Leave out a stage: when its turn comes, or now if it is under way. What comes after it runs all the same.

        Raises WorkflowNotFoundError, and TaskError for a stage that has ended.
        """
        return self._control(id, control.skip, ref=ref, by=by, reason=reason)

    def add_instances(self, id: str, ref: str, *items: Any, by: str = "anonymous") -> WorkflowRun:
        """Start one more instance of a stage for each of these, which it finds as `item` in its context.

        Raises WorkflowNotFoundError, and TaskError for a stage that does not run or takes no more.
        """
        given = from_json(to_json(items))
        return self._control(id, control.add_instances, ref=ref, items=given, by=by)

    def cancel_stage(self, id: str, ref: str, *, by: str = "anonymous", reason: str = "") -> WorkflowRun:
        """End a stage; what comes after it is halted. One that has ended stays. Raises WorkflowNotFoundError, and
        StageNotFoundError."""
        return self._control(id, control.cancel_stage, ref=ref, by=by, reason=reason)

    def jump(
        self, id: str, ref: str, target: str, context: Mapping[str, Any] | None = None, *, by: str = "anonymous"
    ) -> WorkflowRun:
        """Leave a stage whose task is under way, and go on with another, which gets `context` into its own.

        Raises WorkflowNotFoundError, and TaskError where that cannot be.
        """
        given = from_json(to_json(dict(context or {})))
        return self._control(id, control.jump, ref=ref, target=target, context=given, outputs={}, by=by)

    def _control(self, id: str, act: Callable[..., list[Change] | None], **facts: Any) -> WorkflowRun:
        facts |= {name: words(name, facts[name]) for name in ("by", "reason") if name in facts}
        self.change(id, lambda run, step: act(self._store, run, step, **facts))
        return WorkflowRun(self, id)

    def prune(self, before: datetime, *, limit: int | None = None, dry_run: bool = False) -> PruneReport:
        """Delete workflows that ended before that time, with their stages, logs, signals and finalizers.

        Those stay that have dead letters, finalizers that were not done, or a parent that is under way, and those that
        have failed for as long as their parent is there.
        """
        if not isinstance(before, datetime):
            raise PolicyError(f"prune takes the time before which they ended, a datetime, got {before!r}")
        return prune(self._store, micros(before), limit=limit, dry_run=dry_run)

    def signal(
        self,
        id: str,
        name: str,
        value: Any = None,
        *,
        stage: str | None = None,
        persistent: bool = True,
        signal_id: str | None = None,
    ) -> bool:
        """Send a signal. True: a stage waited for it and goes on; False: it is kept until one does.

        For one `stage`, or for whichever waits for the name. What is not `persistent` and nobody waits for is dropped.
        The same `signal_id` again changes nothing, and gives False. Raises WorkflowNotFoundError, TaskError for a
        workflow that has ended, and DeadLetterError when too many are kept: the signal is a dead item then.
        """
        sent, found = Signal(name, to_json(value), stage, persistent), False

        def act(run: Run, step: Advance) -> list[Change] | None:
            nonlocal found
            found, changes = send(self._store, run, step, sent, self.configs.handler.signal_buffer_max)
            return changes

        mark = "" if signal_id is None else f"{id}.{signal_id}.signal"
        if mark and self._store.get(PROCESSED, [mark])[0] is not None:
            return False
        now = self._store.now()
        try:
            once = [Insert(PROCESSED, ProcessedRecord(mark, 1, None, id, "signal", now))] if mark else []
            self.change(id, act, extra=once)
        except Conflict:  # the same one was sent at the same time
            return False
        except DeadLetterError as error:
            raise DeadLetterError(f"{error}; it is the dead item {self._bury(id, sent, mark, error)}") from None
        return found

    def approve(
        self,
        id: str,
        name: str = APPROVAL,
        *,
        user: str = "anonymous",
        comment: str | None = None,
        stage: str | None = None,
        signal_id: str | None = None,
    ) -> bool:
        """Say yes to a workflow that waits for somebody's word: an `approval` task goes on, and `wait_signal(name)`
        gives `approved`, `user` and `comment`. Answers and raises as `signal` does."""
        return self.signal(id, name, word_of(True, user, comment), stage=stage, signal_id=signal_id)

    def reject(
        self,
        id: str,
        name: str = APPROVAL,
        *,
        user: str = "anonymous",
        comment: str | None = None,
        stage: str | None = None,
        signal_id: str | None = None,
    ) -> bool:
        """Say no: an `approval` task fails, or with `fail_on_reject=False` goes on with that. Else as `approve`."""
        return self.signal(id, name, word_of(False, user, comment), stage=stage, signal_id=signal_id)

    def _bury(self, id: str, signal: Signal, mark: str, error: DeadLetterError) -> str:
        message = SignalStage(
            execution_id=id, stage_id=signal.ref or "", signal_name=signal.name, signal_data=from_json(signal.value),
            message_id=mark,
        )  # fmt: skip
        now = self._store.now()
        try:
            self._store.commit([Insert(MESSAGE, record_of(message, now, now, named(error)))])
        except Conflict:
            pass  # the same one is dead already
        return message.message_id

    def change(self, id: str, act: Act, *, extra: Sequence[Change] = (), in_place: bool = False) -> None:
        """Have the machine do something to a workflow, and store it; again if somebody else changed it meanwhile.

        `extra` is stored with it, also where there is nothing to do. Raises WorkflowNotFoundError, ConcurrencyError
        when others are always faster, and Conflict if it is the extra that cannot be.
        """
        needed: dict[str, None] = {}
        patience = Patience(self.configs.handler, self._clock, in_place=in_place)
        while True:
            run = self.run_of(id)
            run.read(self._store, needed)
            step = run.advance(self._store.now())
            try:
                changes = act(run, step)
            except Missing as missing:
                needed |= dict.fromkeys(missing.refs)
                continue
            after = run.record
            if changes is None:
                changes = []
            else:
                ending = self.ending(run, step) if run.state.status.is_complete else []
                more, after, _ = run.changes(step)
                changes = [*more, *changes, *ending]
            if not changes and not extra:
                return
            try:
                following = follow(self._store, self._blueprints, [(run, step)], step.now)
                self._store.commit([*extra, *changes, *following.changes], wake=WAKE)
            except Conflict as conflict:
                if conflict.lost and conflict.lost[0] < len(extra):
                    raise
                if not patience.lost():
                    raise self._too_slow(run) from conflict
                continue
            self.was_stored(run, step, after)
            return

    def was_stored(self, run: Run, step: Advance, record: WorkflowRecord) -> None:
        """A step that was decided here is in the store: workers, listeners and whoever waits for its end hear of it."""
        for worker in tuple(self._workers):
            worker.heard(run.id)
        self._reporter.stored([(run, step.events)])
        self.heard(record)

    def _too_slow(self, run: Run) -> ConcurrencyError:
        now = self.record(run.id)
        return ConcurrencyError(
            f"workflow {run.id} is changed by others all the time: read at version {run.seq}, and found at "
            f"{now.version}; try again later",
            expected=(run.record.status, run.seq),
            found=(now.status, now.version),
        )

    def start_waiting(self, pipeline: str, *, limit: int | None = None) -> None:
        """Let workflows of a pipeline begin that wait for their turn, if there is room. With `limit` so many run at
        once from now on, until one is started with another limit.

        That is done by whoever ends one, too. Raises WorkflowNotFoundError for a pipeline that has had no limit so far.
        """
        check_limit("limit", limit)
        start_waiting(self._store, self._blueprints, pipeline, limit)

    def place(self, id: str) -> int | None:
        """Where a workflow that waits for others of its pipeline is in line: 1 is next; None for one that does not."""
        return place_of(self._store, id)

    def stages(self, id: str) -> dict[str, WorkflowStatus]:
        """Where each stage of a workflow stands, in the order of its definition. Raises WorkflowNotFoundError."""
        record = self._record(id)
        refs = list(self._blueprints.of([record.definition])[record.definition].plan.stages)
        found = self._store.get(STAGE, [f"{id}.{ref}" for ref in refs])
        return {
            ref: WorkflowStatus.NOT_STARTED if one is None else WorkflowStatus(one.status)
            for ref, one in zip(refs, found, strict=True)
        }

    def wait(self, id: str, timeout: float | timedelta | None = None) -> WorkflowRecord:
        """The workflow once it has ended. Raises TimeoutError."""
        return self.waiters.wait(id, timeout).record

    def returned(self, id: str, timeout: float | timedelta | None = None) -> Any:
        """What it has returned, once it has ended. Raises TimeoutError when it takes longer, TaskError when it did not
        succeed."""
        return self.answer_of(self.waiters.wait(id, timeout))

    def answer_of(self, ended: Ended) -> Any:
        """What a workflow that has ended has returned. Raises TaskError when it did not succeed."""
        record, run = ended
        if record.status != WorkflowStatus.SUCCEEDED:
            why = record.reason or "no reason given"
            raise TaskError(f"workflow {record.name!r} ({record.id}) is {record.status}: {why}")
        return result_of(self._store, self._blueprint(record), record, run)

    def heard(self, record: WorkflowRecord, run: Run | None = None) -> None:
        """A workflow was changed here: whoever waits for it looks, and if it has ended its tasks are asked to stop."""
        if WorkflowStatus(record.status).is_complete:
            self.waiters.tell(Ended(record, run))
            for worker in tuple(self._workers):
                worker.cut(record.id, f"its workflow is {record.status}")
        else:
            self.waiters.forget(record.id)


def words(field: str, text: Any) -> str:
    """What somebody has said, as every store can hold it. Raises PolicyError for what is no text."""
    check_text(field, text)
    return clean_text(text)
