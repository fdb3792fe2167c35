"""Restarting stages of a workflow, also of one that has ended.

A stage that is restarted begins anew with everything after it, whatever else that waits for. In a workflow that has
ended, what its end cut off begins anew as well.

A retry is a restart that goes on with the idempotency keys of what failed or was cut off: its effect may have happened,
and the callee knows it by the key. It goes on with the signal that had come for it, too. Where something was run
because of the failure, to undo it perhaps, that is not so, and the keys are new.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from holdfast.errors import TaskError
from holdfast.machine import gates
from holdfast.machine.anew import begin_anew, without_past
from holdfast.machine.ends import reweigh
from holdfast.machine.graph import ordered
from holdfast.machine.instances import lost_some
from holdfast.machine.run import Advance, Owner, StageState
from holdfast.machine.run_state import WORD, because
from holdfast.machine.workflow import COMPLETE, S, reopened

_GIVEN_UP: Final = frozenset({S.TERMINAL, S.STOPPED})


def restart(step: Advance, refs: Iterable[str], by: str, reason: str = "", *, keeps_keys: bool = False) -> None:
    """Begin anew with these stages, which have ended. All stages must be there. `keeps_keys`: as a retry does.

    Raises InvalidStateTransitionError in a workflow that was cancelled, and TaskError for a stage that has not ended.
    """
    run, targets = step.run, list(refs)
    status = reopened("workflow", S.CANCELED if run.halts & 8 else run.status)
    for ref in targets:
        stage = step.stage(ref)
        if stage.plan.parent is not None:
            raise TaskError(f"stage {ref!r} is a part of {stage.plan.parent!r}; restart that one")
        if stage.status not in COMPLETE:
            raise TaskError(f"stage {ref!r} is {stage.status.value}; only a stage that has ended can be restarted")
    if run.status in COMPLETE:
        targets += [ref for ref in _tops(step) if _is_cut_off(step.stage(ref)) and ref not in targets]
    scope = scope_of(step, targets)
    step.note("restarted", stages=targets, reset=scope, by=by, **because(reason))
    keyed = _keyed(step, scope) if keeps_keys else {}
    words = {ref: step.stage(ref).context[WORD] for ref in keyed if WORD in step.stage(ref).context}
    begin_anew(step, scope)
    for ref, incarnation in keyed.items():
        step.stage(ref).keyed = incarnation
    for ref, word in words.items():
        step.stage(ref).context[WORD] = word
    run.status, run.ended_at = status, None
    reweigh(step)
    for ref in (part for whole in scope for part in (whole, *step.parts(whole))):
        stage = step.touch(ref)
        stage.outputs, stage.jumps = {}, 0  # who asks for it wants all rounds of a loop
    for ref in scope:
        stage = step.stage(ref)
        is_free = stage.status is S.NOT_STARTED  # unless the start of another one has withdrawn it
        if ref in targets and is_free and not any(one in scope for one in stage.plan.before):
            gates.enter(step, stage, at_will=True)
    step.end_if_over()


def retry(step: Advance, by: str, reason: str = "") -> bool:
    """Begin anew with every stage that has failed; False if none has. Workflows that such stages have started, and
    that have failed as well, go on in place of new ones. Raises as `restart` does.
    """
    step.need(step.plan.stages)
    refs = failed(step)
    if not refs:
        return False
    # What a stage that waited for a workflow leaves of its failure names that workflow.
    left = {ref: step.stage(ref).outputs.get("sub_workflow") for ref in refs}
    restart(step, refs, by, reason, keeps_keys=True)
    scope = set(scope_of(step, refs))
    for ref, child in left.items():
        stage = step.stage(ref)
        as_before = len(stage.tasks) == 1 and not scope.intersection(stage.plan.before)
        if as_before and isinstance(child, dict) and child.get("status") == S.TERMINAL:
            stage.resumes = child.get("id")
    return True


def failed(step: Advance) -> list[str]:
    """The stages that have failed for good."""
    found = ((ref, step.stage(ref)) for ref in _tops(step))
    return [ref for ref, one in found if one.status in _GIVEN_UP or (one.bad and lost_some(one))]


def _keyed(step: Advance, scope: Iterable[str]) -> dict[str, int]:
    """The stages that go on with their keys, and the parts of them: the incarnation that these name."""
    found: dict[str, int] = {}
    for ref in scope:
        stage = step.stage(ref)
        if stage.status in _GIVEN_UP or _is_cut_off(stage):
            undone = stage.plan.children.get(Owner.STAGE_ON_FAILURE, ())
            if all(step.stage(one).status in (S.NOT_STARTED, S.SKIPPED) for one in undone):
                found |= {one: step.stage(one).key_incarnation for one in (ref, *step.parts(ref))}
    return found


def _is_cut_off(stage: StageState) -> bool:
    return stage.status is S.CANCELED or lost_some(stage)


def _tops(step: Advance) -> Iterator[str]:
    return (ref for ref, plan in step.plan.stages.items() if plan.parent is None)


def scope_of(step: Advance, targets: Iterable[str]) -> list[str]:
    """These stages and all that come after them, in their order."""
    found: set[str] = set()
    left = list(targets)
    while left:
        ref = left.pop()
        if ref not in found:
            found.add(ref)
            left += step.plan.stages[ref].after
    order = ordered({ref: plan.before for ref, plan in step.plan.stages.items()})
    return without_past(step, [ref for ref in order if ref in found])
