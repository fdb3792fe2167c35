"""Changing what a task does without touching the workflows that are under way."""

from __future__ import annotations

from holdfast.errors import WorkflowDefinitionError
from holdfast.workflows.functions import current_trace
from holdfast.workflows.task_context import current_task


def patched(name: str) -> bool:
    """Whether the workflow that this runs in was started with the patch of that name.

    In the body of a workflow it notes the patch in the definition, and is True: whatever is started from now on has it.
    In a task it is True for those, and False for workflows that were started before. Elsewhere it is True: that is new
    code, which no workflow is behind.
    """
    if not name:
        raise WorkflowDefinitionError("bad_arguments", "a patch has a name, got an empty one")
    trace = current_trace()
    if trace is not None:
        trace.patches.add(name)
        return True
    task = current_task()
    return task is None or name in task.patches
