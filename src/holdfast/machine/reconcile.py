"""A workflow in which something is missing: what should be under way and is not gets its turn.

Nothing here happens in the ordinary course, where the step that ends one thing begins the next. It is for what a crash
of the database, an older program or a person has left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from holdfast.machine import gates, instances
from holdfast.machine.ends import OWNED, after_parts, edge_now, has_failed, has_its_turn, part_failed, rests
from holdfast.machine.graph import Edges
from holdfast.machine.run import Advance, Part, StageState, Work
from holdfast.machine.workflow import ACTIVE, COMPLETE, CONTINUABLE, S, moved

_WAITING: Final = frozenset({S.BUFFERED, S.REDIRECT, S.PAUSED})


def reconcile(step: Advance, held: Collection[str], under_way: Iterable[str] = ()) -> list[str]:
    """Let go on what can. `held` are the stages that have an item, `under_way` those that have begun, also instances of
    an earlier incarnation; all stages must be there. What was found, in words.

    A workflow that has not begun begins.
    """
    if step.run.status is S.NOT_STARTED:
        step.start()
        return ["it had not begun"]
    found: list[str] = []
    stages = [step.stage(ref) for ref in dict.fromkeys((*_refs(step), *under_way))]
    live = sum(stage.status in ACTIVE and stage.status is not S.NOT_STARTED for stage in stages)
    if live != step.run.live:
        found.append(f"{live} stages are under way, and not {step.run.live}")
        step.run.live = live
    for stage in stages:
        story = _look(step, stage, held)
        if story is not None:
            step.changed[stage.plan.ref] = stage
            found.append(f"stage {stage.plan.ref!r} {story}")
    before = step.run.status
    step.end_if_over()
    if step.run.status is not before:
        found.append("nothing was left to do")
    return found


def stuck(step: Advance) -> list[str]:
    """The stages that wait while nothing is under way that could wake them."""
    stages = {ref: step.stage(ref) for ref in _refs(step)}
    if any(_goes_on(stage, step.now) for stage in stages.values()):
        return []
    return [ref for ref, stage in stages.items() if stage.status in _WAITING]


def give_up(step: Advance, refs: Collection[str], reason: str) -> None:
    """These stages have waited in vain: they fail."""
    for ref in refs:
        stage = step.touch(ref)
        if stage.status in COMPLETE:
            continue  # it was a part of one that has failed by now
        stage.status = moved(f"stage {ref!r}", stage.status, S.RUNNING)
        stage.reason = reason
        step.drop(ref)
        step.fail_stage(stage)
    step.note("recovered", found=[f"stage {ref!r} waited in vain" for ref in refs])
    step.end_if_over()


def _goes_on(stage: StageState, now: int) -> bool:
    """Whether something of a stage is under way, or it waits for a time that will come. Its parts and instances are
    looked at themselves."""
    plan = stage.plan
    if stage.status is S.BUFFERED:
        return not stage.at_will and any(at is not None and at >= now for at in (plan.scheduled_at, plan.expires_at))
    if stage.status is S.RUNNING and stage.part is Part.INSTANCES:
        return plan.instances is not None and plan.instances.allow_dynamic  # somebody may add some
    return stage.status is S.SUSPENDED or (stage.status is S.RUNNING and stage.part not in OWNED)


def _refs(step: Advance) -> Iterator[str]:
    for ref in step.plan.stages:
        yield ref
        yield from instances.names_of(step.stage(ref))


def _look(step: Advance, stage: StageState, held: Collection[str]) -> str | None:
    ref = stage.plan.ref
    if stage.status is S.NOT_STARTED:
        return _not_started(step, stage)
    if ref in held:
        return None
    if stage.status is S.SUSPENDED:
        seconds = None if stage.wait is None else stage.wait.seconds
        step.work.append(Work(ref, stage.at, seconds, waits=True))
        return "waited for something that nothing would have told"
    if stage.status is S.BUFFERED:
        gates.enter(step, stage)
        return None if step.stage(ref).status is S.BUFFERED else "could have begun"
    return _running(step, stage) if stage.status is S.RUNNING else None


def _not_started(step: Advance, stage: StageState) -> str | None:
    plan = stage.plan
    before = [step.stage(one) for one in plan.before]
    if not has_its_turn(step, plan) or any(one.status not in COMPLETE or rests(one) for one in before):
        return None
    edges = Edges(len(plan.before))
    for one in before:
        edges = edges.counting(edge_now(one, plan.ref))
    stage.edges = edges
    step.consider(stage)
    return None if stage.status is S.NOT_STARTED else "was not told that it could begin"


def _running(step: Advance, stage: StageState) -> str | None:
    if stage.part is Part.TASKS:
        if stage.at < len(stage.tasks) and stage.tasks[stage.at].status not in COMPLETE:
            step.work.append(Work(stage.plan.ref, stage.at, costs=0))
            return "had a task that nobody would have run"
        step.after_task(stage)
        return "had ended its task and did not go on"
    if stage.part is Part.INSTANCES:
        return _instances(step, stage)
    parts = [step.stage(ref) for ref in stage.plan.children.get(OWNED[stage.part], ())]
    if any(part.status not in COMPLETE or rests(part) for part in parts):
        return None
    failed = [part for part in parts if has_failed(part)]
    stage.children_left = 0
    if failed and stage.part is not Part.FAILURE:
        part_failed(step, stage, failed[0])
    else:
        after_parts(step, stage)
    return "was not told that its parts had ended"


def _instances(step: Advance, stage: StageState) -> str | None:
    ended = [step.stage(ref).status for ref in instances.names_of(stage) if step.stage(ref).status in COMPLETE]
    good = sum(status in CONTINUABLE for status in ended)
    if (stage.good, stage.bad) == (good, len(ended) - good):
        return None
    stage.good, stage.bad = good, len(ended) - good
    instances.settle(step, stage)
    return "was not told how its instances had ended"
