"""The tasks that come with Holdfast, under their names."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.guard.guard import Guard
from holdfast.outbox.publishers.address import Reach, public_only
from holdfast.workflows.children import CHILD
from holdfast.workflows.task import Task
from holdfast.workflows.tasks.docker import DockerTask
from holdfast.workflows.tasks.http import HttpTask
from holdfast.workflows.tasks.loop import LoopTask
from holdfast.workflows.tasks.python import PythonTask
from holdfast.workflows.tasks.shell import ShellTask
from holdfast.workflows.tasks.ssh import SshTask
from holdfast.workflows.tasks.sub_workflow import SubWorkflowTask
from holdfast.workflows.tasks.waiting import ApprovalTask, NoopTask, WaitTask


def builtin_tasks(
    *,
    guards: Callable[[str], Guard] | None = None,
    reach: Reach = public_only,
    tls: ssl.SSLContext | None = None,
    functions: Mapping[str, Callable[..., Any]] | None = None,
    prefixes: Sequence[str] = (),
    scripts: bool = True,
    clock: Clock = SYSTEM_CLOCK,
) -> dict[str, Task]:
    """Each task by the name that stages have for it, ready to be registered.

    The arguments are what an application allows its stages: see HttpTask and PythonTask.
    """
    return {
        "shell": ShellTask(),
        "python": PythonTask(functions, prefixes=prefixes, scripts=scripts),
        "http": HttpTask(guards=guards, reach=reach, tls=tls),
        "docker": DockerTask(),
        "ssh": SshTask(),
        "wait": WaitTask(clock),
        "noop": NoopTask(),
        "approval": ApprovalTask(),
        "loop": LoopTask(),
        CHILD: SubWorkflowTask(),
    }
