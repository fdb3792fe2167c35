"""What a stage and a workflow have come to, judging by their parts as a whole. Pure.

The engine comes to the same answers part by part; here they are as rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from holdfast.machine.workflow import COMPLETE, CONTINUABLE, S, WorkflowStatus

_FIRST: Final = (S.TERMINAL, S.STOPPED, S.CANCELED, S.PAUSED, S.BUFFERED, S.SUSPENDED)
"""The first of these that there is decides."""


class TopStage(Protocol):
    """What a workflow asks of a stage that belongs to no other."""

    @property
    def status(self) -> WorkflowStatus: ...
    @property
    def allow_sibling_stages_to_continue(self) -> bool: ...
    @property
    def complete_other_branches_then_fail(self) -> bool: ...


def failure_status(continue_on_failure: bool, fail_pipeline: bool) -> WorkflowStatus:
    """What a stage that has failed becomes."""
    if continue_on_failure:
        return S.FAILED_CONTINUE
    return S.TERMINAL if fail_pipeline else S.STOPPED


def stage_status(
    parts: Iterable[WorkflowStatus], after: Iterable[WorkflowStatus] = (), failure: WorkflowStatus = S.TERMINAL
) -> WorkflowStatus:
    """What a running stage has come to; RUNNING while something is left to do.

    `parts` are its tasks and the stages before them, `after` the stages that follow them, and `failure` is what it
    becomes if one of them is TERMINAL.
    """
    groups = (tuple(parts), tuple(after))
    for group in groups:
        for status in _FIRST:
            if status in group:
                return failure if status is S.TERMINAL else status
        if any(status not in COMPLETE for status in group):
            return S.RUNNING
    return S.FAILED_CONTINUE if any(S.FAILED_CONTINUE in group for group in groups) else S.SUCCEEDED


def workflow_status(stages: Iterable[TopStage], is_canceled: bool = False) -> WorkflowStatus:
    """What a running workflow has come to; RUNNING while something is left to do.

    A stage that has failed ends it at once, unless it lets the others go on first.
    """
    tops = tuple(stages)
    failed = [one for one in tops if one.status is S.TERMINAL]
    if any(not one.allow_sibling_stages_to_continue for one in failed):
        return S.TERMINAL
    if any(one.status not in COMPLETE for one in tops):
        return S.RUNNING
    if failed:
        return S.TERMINAL
    if all(one.status in CONTINUABLE for one in tops):
        return S.SUCCEEDED
    if is_canceled or any(one.status is S.CANCELED for one in tops):
        return S.CANCELED
    fails = any(one.status is S.STOPPED and one.complete_other_branches_then_fail for one in tops)
    return S.TERMINAL if fails else S.SUCCEEDED
