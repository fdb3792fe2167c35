"""Stages that start other workflows, and wait for their ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.machine.run import Advance, Child, Wait
from holdfast.machine.workflow import S, moved


def spawn(step: Advance, child: Child, wait: Wait, name: str) -> None:
    """A task has another workflow started; its stage waits for the end of that, or goes on at once."""
    ref = child.ref
    stage = step.touch(ref)
    if not child.waits:
        step.children.append(child)
        step.note("child_started", ref, child=child.id, name=name)
        step.succeed(ref, {"result": child.id}, {})
        return
    if stage.resumes is None:
        stage.child = child.id
        step.children.append(child)
        step.note("child_started", ref, child=child.id, name=name)
    else:
        stage.child, stage.resumes = stage.resumes, None
        step.revived.append(stage.child)
        step.note("child_resumed", ref, child=stage.child, name=name)
    step.suspend(ref, wait)


def join(step: Advance, ref: str, outputs: Mapping[str, Any], error: dict[str, Any] | None) -> None:
    """The workflow that a stage has waited for has ended."""
    stage = step.touch(ref)
    step.note("stage_resumed", ref, child=stage.child)
    stage.status, stage.wait, stage.child = moved(f"stage {ref!r}", stage.status, S.RUNNING), None, None
    step.joined.add(ref)
    if error is None:
        step.succeed(ref, outputs, {})
    else:
        step.fail(ref, error, outputs=outputs)
