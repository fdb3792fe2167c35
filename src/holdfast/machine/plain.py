"""What nearly every step is: the one task of an ordinary stage has ended well, and those after it begin.

It comes to the same as what `Advance` does at length, in one go. What is out of the ordinary about a stage, its plan or
one after it is done at length; `tests/machine/test_plain.py` takes both ways through the same graphs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.machine import ends
from holdfast.machine.graph import EDGE
from holdfast.machine.run_state import PART, StageState
from holdfast.machine.workflow import S

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
    plan, now, task = stage.plan, step.now, stage.tasks[0]
    word = plan.word
    task.status = stage.status = S.SUCCEEDED
    task.ended_at = stage.ended_at = now
    stage.at = 1
    step.run.live -= 1
    # The encoder takes ten times as long for these.
    step.events.append(f'{{"type":"task_ended","stage":{word},"task":0,"status":"SUCCEEDED","attempt":{task.attempt}}}')
    step.events.append(f'{{"type":"stage_ended","stage":{word},"status":"SUCCEEDED"}}')
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
    step.events.append(f'{{"type":"stage_started","stage":{plan.word}}}')
    step.work.append(plan.works[0])
