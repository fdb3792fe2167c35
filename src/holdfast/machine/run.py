"""How a workflow goes on: what follows when a task has ended, a stage may start, or somebody cancels.

Everything here is pure. `Advance` works on the states of one workflow's stages in memory and notes what it changed and
which work is to be done; whoever called it writes all of that in one transaction, or throws it away. A stage that is
needed and not there raises `Missing`: the caller reads it and begins anew.

A stage is counted into its workflow's `live` while something is still to come of it by itself. A workflow whose `live`
is 0 has ended: every stage that can never start was skipped in the transaction that made it so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from holdfast.core.check import LONGEST_S
from holdfast.errors import InvalidStateTransitionError, PermanentError
from holdfast.machine import ends, gates, instances, plain
from holdfast.machine.computed_status import failure_status
from holdfast.machine.graph import PHASE, SKIP, SkipCause, edge_of, phase_of
from holdfast.machine.run_state import (
    OWNER,
    PART,
    WORD,
    Child,
    Cleanup,
    Instances,
    Missing,
    Owner,
    Part,
    Plan,
    RunState,
    StagePlan,
    StageState,
    TaskPlan,
    TaskState,
    Wait,
    Work,
    because,
)
from holdfast.machine.workflow import COMPLETE, HALTED, SUCCESSFUL, S, WorkflowStatus, moved

__all__ = [
    "Advance", "Child", "Cleanup", "Entry", "Instances", "Judge", "Missing", "Owner", "Part", "Plan", "RunState",
    "StagePlan", "StageState", "TaskPlan", "TaskState", "Wait", "Work",
]  # fmt: skip

_BARE: Final = frozenset({"KeyError", "SystemExit"})
"""Exceptions whose text is a key, or a number."""


class Judge(Protocol):
    """Answers what depends on data. It may raise Missing."""

    def branches(self, stage: StageState) -> list[str] | None:
        """Of which stages after it the condition holds that a stage's split has for them; None: of all. Raises
        PermanentError where that cannot be told."""
        ...

    def skips(self, stage: StageState) -> SkipCause | None:
        """Why a stage that could start is not wanted. Raises PermanentError where that cannot be told."""
        ...

    def instances(self, stage: StageState) -> Sequence[Any]:
        """What each instance of a stage is for; None: nothing in particular. Raises TaskError, and
        PermanentError as `skips` does."""
        ...


class _Indifferent:
    def branches(self, stage: StageState) -> list[str] | None:
        return None

    def skips(self, stage: StageState) -> SkipCause | None:
        return None

    def instances(self, stage: StageState) -> Sequence[Any]:
        return (None,)


_INDIFFERENT: Final = _Indifferent()
Entry = dict[str, Any] | str
"""What the log says of a step: an object, or the JSON text of one."""


class Advance:
    """One step of a workflow, in memory. `now` is the store's time in microseconds."""

    ending: frozenset[str] = frozenset()
    """The stages that have ended and clear their regions: what follows for them comes after that."""

    def __init__(
        self, plan: Plan, run: RunState, stages: dict[str, StageState], now: int, judge: Judge = _INDIFFERENT
    ) -> None:
        self.plan = plan
        self.run = run
        self.now = now
        self.changed: dict[str, StageState] = {}
        """The stages whose state is to be written."""
        self.work: list[Work] = []
        self.events: list[Entry] = []
        self.cleanups: list[Cleanup] = []
        self.cancels = False
        """Whether everything that is still under way is to be cancelled."""
        self.dropped: dict[str, int] = {}
        """The stages whose items, as they are stored, are of no use any more; nor is what was noted as work before that
        place in the list of it."""
        self.children: list[Child] = []
        """The workflows that stages start."""
        self.joined: set[str] = set()
        """The stages whose workflow has ended by itself."""
        self.revived: list[str] = []
        """The workflows of stages that have failed and are to go on."""
        self.goal: str | None = None
        """The stage that a jump leads to, while its source ends: it starts whatever that means to it."""
        self.announced: dict[str, StageState] = {}
        """The stages whose new status may matter to those that wait to start."""
        self._stages = stages
        self.judge = judge

    def stage(self, ref: str) -> StageState:
        try:
            return self._stages[ref]
        except KeyError:
            raise Missing(ref) from None

    def need(self, refs: Iterable[str]) -> None:
        """Raises Missing for all of these stages that are not there, so that they are read together."""
        if lacking := [ref for ref in refs if ref not in self._stages]:
            raise Missing(*lacking)

    def drop(self, ref: str) -> None:
        """Whatever was to be done for a stage is not."""
        self.dropped[ref] = len(self.work)

    def wanted(self, since: int = 0) -> list[Work]:
        """The work from a place on that is still to be done."""
        return [one for at, one in enumerate(self.work[since:], since) if at >= self.dropped.get(one.ref, 0)]

    def create(self, ref: str) -> StageState:
        """A stage that was not there before."""
        stage = self._stages[ref] = self.changed[ref] = StageState(self.plan.stages[ref])
        return stage

    def adopt(self, stage: StageState) -> None:
        """A stage as it stood in another run."""
        self._stages[stage.plan.ref] = self.changed[stage.plan.ref] = stage

    def start(self) -> None:
        """Begin with the stages that wait for nothing."""
        self.run.status = moved("workflow", self.run.status, S.RUNNING)
        self.run.started_at = self.now
        self.note("workflow_started")
        for ref in self.plan.roots:
            self.consider(self.stage(ref))
        self.end_if_over()

    def succeed(
        self, ref: str, outputs: Mapping[str, Any], context: Mapping[str, Any], status: WorkflowStatus = S.SUCCEEDED
    ) -> None:
        """The task that was under way has ended well, or had nothing to do."""
        stage = self.touch(ref)
        stage.outputs.update(outputs)
        stage.context.update(context)
        if status is S.SUCCEEDED and plain.ends_so(stage):
            plain.end(self, stage)
        elif gates.choose(self, stage) if stage.plan.rivals else stage.status not in COMPLETE:
            self.end_task(stage, status)
            self.after_task(stage)
        self.end_if_over()

    def pause(self, by: str, reason: str = "") -> None:
        """What runs ends, and nothing new begins. Work that is noted from now on is to be held."""
        self.run.status = moved("workflow", self.run.status, S.PAUSED)
        self.note("workflow_paused", by=by, **because(reason))

    def go_on(self, by: str, reason: str = "") -> None:
        """A paused workflow goes on where it was.

        Raises InvalidStateTransitionError for one that waits for its turn.
        """
        if self.run.status is S.BUFFERED:
            raise InvalidStateTransitionError("workflow", S.BUFFERED.value, S.RUNNING.value, [S.CANCELED.value])
        self.run.status = moved("workflow", self.run.status, S.RUNNING)
        self.note("workflow_resumed", by=by, **because(reason))
        self.end_if_over()

    def expire(self) -> None:
        """The workflow could not begin in time."""
        self._never_begin("it could not start in time")

    def _never_begin(self, reason: str) -> None:
        self.run.status = moved("workflow", self.run.status, S.CANCELED)
        self.run.ended_at, self.run.reason = self.now, reason
        for ref in self.plan.roots:
            self.cancel_stage(ref)
        self.note("workflow_ended", status=S.CANCELED.value, reason=reason)

    def fire(self, kind: str, ref: str) -> None:
        """A time is over."""
        if kind == "start":
            if self.stage(ref).status is S.BUFFERED:
                gates.enter(self, self.touch(ref))
            self.end_if_over()
        elif kind == "limit":
            gates.overrun(self, self.touch(ref))
            self.end_if_over()
        else:
            self.run_out(ref)

    def again(
        self, ref: str, delay: float, context: Mapping[str, Any], error: dict[str, Any] | None, costs: int = 1
    ) -> None:
        """The task is to be run once more, after a while."""
        delay = min(delay, LONGEST_S)  # whoever refused the call may have named any number
        stage = self.touch(ref)
        stage.context.update(context)
        task = stage.tasks[stage.at]
        task.error = error
        facts = {"task": stage.at, "attempt": task.attempt, "delay": delay, **_told(error)}
        if error is None:
            stage.answered = (stage.at, task.attempt)
            self.note("task_repeated", ref, **facts)
        else:
            self.note("task_retried" if costs else "task_parked", ref, **facts)
        self.work.append(Work(ref, stage.at, delay, costs))

    def fail(
        self,
        ref: str,
        error: dict[str, Any] | None,
        status: WorkflowStatus = S.TERMINAL,
        outputs: Mapping[str, Any] = {},
    ) -> None:
        """The task that was under way has failed for good, or ends its stage in another way that is no success."""
        stage = self.touch(ref)
        stage.tasks[stage.at].error = error
        stage.outputs.update(outputs)
        stage.reason = _words(error) or stage.reason
        self.end_task(stage, status)
        if status is S.FAILED_CONTINUE:
            stage.flawed = True
            self.after_task(stage)
        else:
            for task in stage.tasks[stage.at + 1 :]:
                task.status = moved("task", task.status, S.SKIPPED)
            if status is S.TERMINAL:
                self.fail_stage(stage)
            else:
                ends.complete(self, stage, status)
        self.end_if_over()

    def suspend(self, ref: str, wait: Wait, context: Mapping[str, Any] = {}) -> None:
        """The task waits: for a signal, for a time, or for whichever comes first."""
        stage = self.touch(ref)
        stage.status = moved(f"stage {ref!r}", stage.status, S.SUSPENDED)
        stage.context.update(context)
        stage.wait = wait
        if wait.calls:
            stage.answered = (stage.at, stage.tasks[stage.at].attempt)
        facts = {} if stage.child is None else {"child": stage.child}
        self.note("stage_suspended", ref, waits_for=wait.signal, delay=wait.seconds, task=stage.at, **facts)
        self.work.append(Work(ref, stage.at, wait.seconds, costs=0, waits=True))

    def resume(self, ref: str, name: str | None, value: Any) -> None:
        """What a task waited for is here: a signal, or with no name the end of a sleep."""
        stage = self.touch(ref)
        calls = stage.wait is not None and stage.wait.calls
        stage.status, stage.wait = moved(f"stage {ref!r}", stage.status, S.RUNNING), None
        self.note("stage_resumed", ref, signal=name)
        goes_on = gates.choose(self, stage)
        if goes_on and not calls:
            self.succeed(ref, {"result": value}, {})
            return
        if goes_on:
            stage.context[WORD] = {"name": name, "data": value}
            self.work.append(Work(ref, stage.at))
        self.end_if_over()

    def run_out(self, ref: str) -> None:
        """A task has waited as long as it may."""
        stage = self.touch(ref)
        wait = stage.wait
        if wait is None or wait.on_timeout is None:
            self.resume(ref, None, None)
            return
        what = f"signal {wait.signal!r} came" if stage.child is None else f"end of workflow {stage.child} came"
        story = {"type": "TaskTimeoutError", "message": f"no {what} in time"}
        stage.status, stage.wait, stage.child = moved(f"stage {ref!r}", stage.status, S.RUNNING), None, None
        if wait.on_timeout in (S.SUCCEEDED, S.SKIPPED):
            self.succeed(ref, {}, {}, wait.on_timeout)
        else:
            self.fail(ref, story, wait.on_timeout)

    def parts(self, ref: str) -> Iterator[str]:
        """The stages that belong to a stage, and those that belong to them."""
        for refs in self.plan.stages[ref].children.values():
            for one in refs:
                yield one
                yield from self.parts(one)

    def consider(self, stage: StageState) -> None:
        """Start, skip or prune a stage, if what is before it says so."""
        plan = stage.plan
        if stage.status is not S.NOT_STARTED or plan.ref == self.goal:
            return
        if plan.parent is not None and not ends.has_its_turn(self, plan):
            return  # whatever it waits for itself
        phase, reason = phase_of(plan.join, plan.threshold, stage.edges, stage.fired)
        if phase is PHASE.READY and self.cancels:
            self.cancel_stage(plan.ref)  # nothing begins in a workflow that is being cancelled
        elif phase is PHASE.READY:
            self.admit(stage)
        elif phase is PHASE.SKIP:
            self.skip(stage, SKIP.UPSTREAM_FAILED, reason)
        elif phase is PHASE.PRUNE:
            self.skip(stage, SKIP.PRUNED, reason)

    def admit(self, stage: StageState, *, at_will: bool = False) -> None:
        """Start a stage whose turn it is, or skip it if nobody wants it. `at_will`: at whatever time."""
        if self.wants(stage):
            gates.enter(self, stage, at_will=at_will)

    def wants(self, stage: StageState) -> bool:
        """Whether a stage whose turn it is shall start. One that shall not is skipped, and one of which nobody can say
        that fails."""
        try:
            cause = SKIP.MANUAL if stage.unwanted else self.judge.skips(stage)
        except PermanentError as error:
            self.begin(stage, fails=str(error))
            return False
        if cause is not None:
            self.skip(stage, cause, "it is not wanted")
        return cause is None

    def begin(self, stage: StageState, fails: str | None = None) -> None:
        """Start a stage: what belongs before it, or its first task. `fails`: why it ends at once, since nobody can say
        whether it is wanted."""
        plan = stage.plan
        stage.fired += 1
        self.run.live += stage.status is not S.BUFFERED
        stage.status = moved("stage", stage.status, S.RUNNING, plan.ref)
        stage.started_at, stage.reason = self.now, fails
        self.changed[plan.ref] = stage
        self.events.append({"type": "stage_started", "stage": plan.ref})
        if plan.watched_by or plan.peers:
            gates.announce(self, stage)
        if fails is not None:
            self.fail_stage(stage)
        elif not plan.children or not self._begin_children(stage, OWNER.STAGE_BEFORE, PART.BEFORE):
            self.begin_tasks(stage)
        if plan.limit_s is not None and stage.status not in COMPLETE:
            self.work.append(Work(plan.ref, 0, plan.limit_s, waits=True, what="limit"))

    def skip(self, stage: StageState, cause: SkipCause, reason: str) -> None:
        """A stage that will not run. What comes after it is told."""
        ref = stage.plan.ref
        if stage.status is not S.NOT_STARTED:
            self.run.live -= 1
            self.drop(ref)
        if stage.status in (S.SUSPENDED, S.PAUSED):
            stage.status, stage.wait = moved(f"stage {ref!r}", stage.status, S.RUNNING), None
        stage.status = moved(f"stage {ref!r}", stage.status, S.SKIPPED)
        stage.skip_cause, stage.reason, stage.ended_at = cause.value, reason, self.now
        self.changed[ref] = stage
        self.note("stage_skipped", ref, cause=cause.value, reason=reason)
        self.close(stage)
        ends.tell(self, stage)

    def cancel(self, reason: str, by: str) -> None:
        """The workflow is to end; `cancels` asks the caller to cancel every stage that is still under way."""
        self.run.reason = reason
        self.run.halts |= 8
        self.cancels = True
        self.note("workflow_canceled", reason=reason, by=by)
        if self.run.status in (S.NOT_STARTED, S.BUFFERED):
            self._never_begin(reason)
        else:
            self.end_if_over()

    def cancel_stage(self, ref: str) -> None:
        """A stage that is under way ends, whatever its task still does."""
        stage = self.touch(ref)
        if stage.status in COMPLETE:
            return
        if stage.status is not S.NOT_STARTED:
            self.run.live -= 1
            self.drop(ref)
        stage.status = moved(f"stage {ref!r}", stage.status, S.CANCELED)
        stage.ended_at = self.now
        self.note("stage_canceled", ref)
        self.close(stage)
        ends.tell(self, stage)
        self.end_if_over()

    def end_stage(self, ref: str, status: WorkflowStatus) -> None:
        """A stage has ended so, whatever its task still does."""
        stage = self.touch(ref)
        self.run.live += stage.status is S.NOT_STARTED
        self.drop(ref)
        stage.wait = None
        ends.complete(self, stage, status)

    def close(self, stage: StageState) -> None:
        """A stage is over, and so is all that belongs to it."""
        plan, cut = stage.plan, self.close_tasks(stage)
        if plan.children or stage.spawned:
            self.close_parts(stage)
        if stage.finalizers:
            self._clean_up(stage, cut)
        if plan.watched_by or plan.peers:
            gates.announce(self, stage)

    def close_tasks(self, stage: StageState) -> int:
        """What has not been run of a stage that is over will not be. The position of what is under way, which counts
        no more; -1: nothing is."""
        cut = -1
        for number, task in enumerate(stage.tasks):
            if task.status not in COMPLETE:
                begun = stage.part is PART.TASKS and number == stage.at and stage.started_at is not None
                task.status = S.CANCELED if begun else S.SKIPPED
                task.ended_at = self.now
                cut = number if begun else cut
        return cut

    def add_finalizer(self, ref: str, name: str, incarnation: int, **facts: Any) -> None:
        """Something is to be done when an incarnation of a stage is over: now, if it is."""
        stage = self.touch(ref)
        self.note("finalizer_registered", ref, name=name, **facts)
        if stage.incarnation == incarnation and stage.status not in COMPLETE:
            stage.finalizers += 1
        else:
            self.cleanups.append(Cleanup(ref, incarnation))

    def _clean_up(self, stage: StageState, cut: int) -> None:
        if stage.finalizers:
            self.cleanups.append(Cleanup(stage.plan.ref, stage.incarnation, cut))
            stage.finalizers = 0

    def close_parts(self, stage: StageState, *, before_failure: bool = False) -> None:
        """Parts of a stage that is over, or goes on with what is there for its failure, end or are left out."""
        if before_failure or stage.status in HALTED or stage.status is S.SKIPPED:
            instances.close(self, stage)
        for owner, refs in stage.plan.children.items():
            if before_failure and owner is OWNER.STAGE_ON_FAILURE:
                continue
            for part in (self.stage(ref) for ref in refs):
                is_over = part.status in COMPLETE
                if not is_over:
                    self.cut(part)
                if before_failure and (not is_over or ends.rests(part)):
                    self._count_cut(part)

    def _count_cut(self, part: StageState) -> None:
        """What is there for the failure may wait for a part that was cut off by it."""
        for ref in part.plan.after:
            plan = self.plan.stages[ref]
            if plan.parent == part.plan.parent and plan.owner is OWNER.STAGE_ON_FAILURE and ref not in part.told:
                other = self.touch(ref)
                other.edges = other.edges.counting(edge_of(part, ref))
                self.touch(part.plan.ref).told = [*part.told, ref]
                ends.heard(self, other)

    def cut(self, part: StageState) -> None:
        """A part of a stage that goes on without it."""
        ref = part.plan.ref
        if part.status is S.NOT_STARTED:
            part.status, part.skip_cause = S.SKIPPED, SKIP.PRUNED.value
            self.note("stage_skipped", ref, cause=part.skip_cause)
        else:
            part.status = moved(f"stage {ref!r}", part.status, S.CANCELED)
            self.run.live -= 1
            self.drop(ref)
            self.note("stage_canceled", ref)
        part.ended_at = self.now
        self.changed[ref] = part
        self.close(part)

    def touch(self, ref: str) -> StageState:
        """A stage that is going to be changed."""
        try:
            stage = self.changed[ref] = self._stages[ref]
        except KeyError:
            raise Missing(ref) from None
        return stage

    def note(self, kind: str, ref: str | None = None, **facts: Any) -> None:
        """What the log says of it."""
        self.events.append({"type": kind, **facts} if ref is None else {"type": kind, "stage": ref, **facts})

    def begin_tasks(self, stage: StageState) -> None:
        """The first task of a stage, or its instances."""
        if stage.plan.instances is not None:
            instances.spawn(self, stage)
            return
        stage.part = PART.TASKS
        stage.at = -1
        self.after_task(stage)

    def after_task(self, stage: StageState) -> None:
        """The next task of a stage, or what comes after them."""
        stage.at += 1
        if stage.at < len(stage.tasks):
            self.work.append(stage.plan.works[stage.at])
        else:
            self.end_tasks(stage)

    def end_tasks(self, stage: StageState) -> None:
        """All tasks of a stage are done."""
        if not stage.plan.children or not self._begin_children(stage, OWNER.STAGE_AFTER, PART.AFTER):
            ends.complete(self, stage, S.SUCCEEDED)

    def end_task(self, stage: StageState, status: WorkflowStatus) -> None:
        """The task that is under way has ended."""
        task = stage.tasks[stage.at]
        if task.status is S.NOT_STARTED:
            task.status = S.RUNNING
        task.status = moved("task", task.status, status)
        task.ended_at = self.now
        ended = {
            "type": "task_ended", "stage": stage.plan.ref, "task": stage.at, "status": status._value_,
            "attempt": task.attempt,
        }  # fmt: skip
        self.events.append(ended if status in SUCCESSFUL else ended | _told(task.error))

    def _begin_children(self, stage: StageState, owner: Owner, part: Part) -> bool:
        """Whether there are some to wait for. Others may have ended before their turn, by what somebody else did."""
        children = [self.stage(ref) for ref in stage.plan.children.get(owner, ())]
        failed = [one for one in children if ends.has_failed(one)]
        if failed and part is not PART.FAILURE:
            stage.part = part
            ends.part_failed(self, stage, failed[0])
            return True
        left = [one for one in children if one.status not in COMPLETE or ends.rests(one)]
        if not left:
            return False
        stage.part, stage.children_left = part, len(left)
        for child in left:
            self.consider(child)
        return True

    def fail_stage(self, stage: StageState) -> None:
        """A stage has failed: what is there for that begins, or it ends."""
        if stage.part is not PART.FAILURE and (stage.plan.children or stage.spawned):
            self.close_parts(stage, before_failure=True)
            if self._begin_children(stage, OWNER.STAGE_ON_FAILURE, PART.FAILURE):
                return
        plan = stage.plan
        ends.complete(self, stage, failure_status(plan.continue_on_failure, plan.fail_pipeline))

    def reset(self, stage: StageState) -> None:
        """Begin anew: another incarnation of the stage. What it was given and what it has left stays, but for the word
        that it waited for, which was one about the incarnation before.
        """
        under_way = stage.part is PART.TASKS and stage.status not in COMPLETE and stage.at < len(stage.tasks)
        self._clean_up(stage, stage.at if under_way else -1)
        fresh = StageState(stage.plan)
        for name in ("context", "outputs", "edges", "fired", "flawed", "jumps", "told"):
            setattr(fresh, name, getattr(stage, name))
        fresh.context.pop(WORD, None)
        fresh.incarnation = stage.incarnation + 1
        for name in StageState.__slots__:
            setattr(stage, name, getattr(fresh, name))
        self.changed[stage.plan.ref] = stage

    def end_if_over(self) -> None:
        """Each step ends with this: what waited for something that is so now starts, and what has no future ends."""
        while self.announced and not self.cancels:
            gates.look_again(self, self.announced.pop(next(iter(self.announced))))
        run = self.run
        if run.live > 0 or run.status not in (S.RUNNING, S.PAUSED):
            return
        status = S.TERMINAL if run.halts & 1 else S.SUCCEEDED
        if status is S.SUCCEEDED and (self.cancels or run.halts & 14):
            status = S.CANCELED if self.cancels or run.halts & 12 else S.TERMINAL
        if run.status is S.PAUSED and status is S.SUCCEEDED:
            return  # it ends when it goes on
        run.status = moved("workflow", run.status, status)
        run.ended_at = self.now
        self.note("workflow_ended", status=status.value, reason=run.reason)


def _words(error: Mapping[str, Any] | None) -> str:
    """What an error says, and what it is where its text says nothing by itself."""
    type, text = (str((error or {}).get(key) or "") for key in ("type", "message"))
    return text if text and type not in _BARE else ": ".join(part for part in (type, text) if part)


def _told(error: Mapping[str, Any] | None) -> dict[str, str]:
    """What the log says of an error."""
    return {} if error is None else {"error": f"{error.get('type')}: {error.get('message')}"[:200]}
