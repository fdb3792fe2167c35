"""What nearly every step is: the one task of an ordinary stage has ended well, and those after it begin.

It comes to the same as what `Advance` does at length, in one go. What is out of the ordinary about a stage, its plan or
one after it is done at length; `tests/machine/test_plain.py` takes both ways through the same graphs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from holdfast.machine import ends
from holdfast.machine.graph import EDGE
from holdfast.machine.run_state import PART, StageState
from holdfast.machine.workflow import S
from holdfast.store.codec import Written

if TYPE_CHECKING:
    from holdfast.machine.run import Advance


def ends_so(stage: StageState) -> bool:
    """Whether nothing else follows from the success of a stage's task."""
    return (
        stage.plan.is_plain
        and stage.status is S.RUNNING
        and stage.tasks[0].status is S.NOT_STARTED
        and not (stage.flawed or stage.finalizers or stage.told)
    )


def end(step: Advance, stage: StageState) -> None:
    """A stage of which that is so has ended well."""
    plan, now, events, task = stage.plan, step.now, step.events, stage.tasks[0]
    task.status = stage.status = S.SUCCEEDED
    task.ended_at = stage.ended_at = now
    stage.at = 1
    step.run.live -= 1
    events += _ended(plan.ref, task.attempt)
    for ref in plan.after:
        below = step.touch(ref)
        below.edges = below.edges.counting(EDGE.OPEN)
        total, open, halted, dead = below.edges
        if halted or dead or step.cancels or not _begins_so(below):
            ends.heard(step, below)
        elif open == total and step.wants(below):
            _begin(step, below)


def _begins_so(stage: StageState) -> bool:
    return stage.plan.is_plain and stage.status is S.NOT_STARTED and not stage.fired


def _begin(step: Advance, stage: StageState) -> None:
    plan = stage.plan
    stage.fired, stage.at, stage.part = 1, 0, PART.TASKS
    stage.status, stage.started_at = S.RUNNING, step.now
    step.run.live += 1
    step.events.append(_started(plan.ref))
    step.work.append(plan.works[0])


# What the log says of workflows that are alike is alike.
@lru_cache(maxsize=4096)
def _ended(ref: str, attempt: int) -> tuple[Written, Written]:
    word = S.SUCCEEDED.value
    task = Written(type="task_ended", stage=ref, task=0, status=word, attempt=attempt)
    return task, Written(type="stage_ended", stage=ref, status=word)


@lru_cache(maxsize=4096)
def _started(ref: str) -> Written:
    return Written(type="stage_started", stage=ref)
