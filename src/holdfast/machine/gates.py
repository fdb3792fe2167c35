"""What else decides when a stage starts, and what its start or end means to stages that do not come after it.

A stage whose turn it is waits in BUFFERED: for its time, for its milestone, or for the stages that it must not meet. It
is looked at again by whatever could have changed the answer, so nothing is polled. The log of the workflow orders all
of its steps: no other claim is needed for two stages to exclude each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.machine.graph import SKIP
from holdfast.machine.run_state import PART, StageState, Work, because
from holdfast.machine.workflow import COMPLETE, S, WorkflowStatus, moved

if TYPE_CHECKING:
    from holdfast.machine.run import Advance

UNDER_WAY: Final = frozenset({S.RUNNING, S.SUSPENDED, S.PAUSED, S.REDIRECT})


def enter(step: Advance, stage: StageState, *, at_will: bool = False) -> None:
    """Start a stage whose turn it is, skip it if it is too late, or let it wait. `at_will`: at whatever time, also when
    it has waited for something else."""
    plan = stage.plan
    stage.at_will |= at_will
    if not stage.at_will:
        if plan.expires_at is not None and step.now > plan.expires_at:
            step.skip(stage, SKIP.EXPIRED, "it could not start in time")
            return
        if plan.scheduled_at is not None and step.now < plan.scheduled_at:
            _wait(step, stage, "its time has not come", plan.scheduled_at)
            return
    if plan.milestone is not None:
        ref, wanted = plan.milestone
        there = step.stage(ref).status
        if not _reached(there, wanted):
            if there in COMPLETE:
                step.skip(stage, SKIP.PRUNED, f"its milestone {ref!r} is {there.value}, and not {wanted.value}")
            else:
                _wait(step, stage, f"its milestone {ref!r} is {there.value}, and not {wanted.value}")
            return
    for ref in plan.peers:
        if step.stage(ref).status in UNDER_WAY:
            _wait(step, stage, f"{ref!r} is under way, which has the same mutex key")
            return
    if stage.status is S.BUFFERED:
        step.drop(plan.ref)  # a time that it waited for as well
    stage.at_will = False
    step.begin(stage)


def _wait(step: Advance, stage: StageState, reason: str, until: int | None = None) -> None:
    plan = stage.plan
    stage.reason = reason
    step.changed[plan.ref] = stage
    if stage.status is S.BUFFERED:
        step.drop(plan.ref)  # the time that it waited for until now
    else:
        stage.status = moved(f"stage {plan.ref!r}", stage.status, S.BUFFERED)
        step.run.live += 1
        step.note("stage_buffered", plan.ref, reason=reason)
    if until is None and plan.expires_at is not None and not stage.at_will:
        until = plan.expires_at + 1
    if until is not None:
        step.work.append(Work(plan.ref, 0, (until - step.now) / 1e6, waits=True, what="start"))


def _reached(there: WorkflowStatus, wanted: WorkflowStatus) -> bool:
    return there is wanted or (wanted is S.RUNNING and there in UNDER_WAY)


def announce(step: Advance, stage: StageState) -> None:
    """A stage has another status. Who waits for that looks again at the end of the step, when all is settled."""
    if stage.plan.watched_by or stage.plan.peers:
        step.announced[stage.plan.ref] = stage


def look_again(step: Advance, stage: StageState) -> None:
    """Those that wait for a stage's status or for its end may go on."""
    for ref in (*stage.plan.watched_by, *stage.plan.peers):
        if step.stage(ref).status is S.BUFFERED:
            enter(step, step.touch(ref))


def choose(step: Advance, stage: StageState) -> bool:
    """A stage of a choice goes on: it is the one, and the others are withdrawn. Whether it still goes on then."""
    for ref in stage.plan.rivals:
        rival = step.stage(ref)
        if rival.status not in COMPLETE:
            step.skip(step.touch(ref), SKIP.WITHDRAWN, f"{stage.plan.ref!r} was chosen")
    return stage.status not in COMPLETE


def clear_region(step: Advance, stage: StageState) -> None:
    """A stage has come to a good end: those of its region are withdrawn, if they have not ended."""
    for ref in stage.plan.cancel_region:
        if step.stage(ref).status not in COMPLETE:
            step.skip(step.touch(ref), SKIP.WITHDRAWN, f"{stage.plan.ref!r} has cleared its region")


def overrun(step: Advance, stage: StageState) -> None:
    """A stage has taken as long as it may: it fails, whatever its task still does."""
    plan = stage.plan
    message = f"stage {plan.ref!r} took longer than {plan.limit_s:g} s"
    step.note("stage_timed_out", plan.ref, limit=plan.limit_s)
    step.drop(plan.ref)
    if stage.status is not S.RUNNING:
        stage.status, stage.wait = moved(f"stage {plan.ref!r}", stage.status, S.RUNNING), None
    stage.reason = message
    if stage.part is PART.TASKS and stage.at < len(stage.tasks):
        last = stage.tasks[stage.at].error
        stage.tasks[stage.at].error = {
            "type": "TaskTimeoutError", "message": message, **({"last": last["type"]} if last else {}),
        }  # fmt: skip
        step.end_task(stage, S.TERMINAL)
    step.close_tasks(stage)
    step.fail_stage(stage)


def skip_by_hand(step: Advance, stage: StageState, by: str, reason: str = "") -> None:
    """Somebody does not want a stage: it ends now if it is under way, and otherwise when its turn comes."""
    step.note("skip_asked", stage.plan.ref, by=by, **because(reason))
    if stage.status is S.NOT_STARTED:
        stage.unwanted = True
        step.touch(stage.plan.ref)
    else:
        step.skip(stage, SKIP.MANUAL, f"skipped by {by}" + (f": {reason}" if reason else ""))
    step.end_if_over()
