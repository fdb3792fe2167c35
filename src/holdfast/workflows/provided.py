"""The names of the tasks that come with Holdfast, and how a program gets them: nothing runs a shell that nobody let."""

from __future__ import annotations

from typing import Final

PROVIDED: Final = frozenset({
    "shell", "python", "http", "docker", "ssh", "wait", "noop", "approval", "loop", "sub_workflow",
})  # fmt: skip
"""What `tasks/builtin.py` makes."""


def how_to_register(name: str) -> str:
    """What a message about a task that nobody has registered adds, if it is one of Holdfast's own."""
    if name not in PROVIDED:
        return ""
    where = "from holdfast.workflows.tasks.builtin import builtin_tasks"
    return f"; it is one of Holdfast's: {where}; hold.workflows.registry.register({name!r}, builtin_tasks()[{name!r}])"
