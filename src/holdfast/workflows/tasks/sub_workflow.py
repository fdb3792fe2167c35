"""A stage that has another workflow started, and waits for its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import ConfigurationError
from holdfast.workflows.children import SubWorkflow
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task import Task
from holdfast.workflows.tasks.settings import check_flag, check_text, check_time, settings_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SubWorkflowSettings:
    """Which workflow, by the name that it is known by, and with what.

    `input` is a mapping by name or a list by place; `input_from` names, for further arguments, what in the stage's
    context they are taken from.
    """

    workflow: str
    input: Any = field(default_factory=dict)
    input_from: Any = field(default_factory=dict)
    wait: bool = True
    timeout: float | None = None
    """Seconds; None: for as long as it takes."""

    def __post_init__(self) -> None:
        check_text("workflow", self.workflow)
        if not isinstance(self.input, Mapping | list):
            raise ConfigurationError(f"input must be a mapping by name or a list by place, got {self.input!r}")
        if not isinstance(self.input_from, Mapping) or not all(
            isinstance(one, str) for one in self.input_from.values()
        ):
            raise ConfigurationError(f"input_from must be a mapping of names to keys, got {self.input_from!r}")
        check_flag("wait", self.wait)
        if self.timeout is not None:
            check_time("timeout", self.timeout)


class SubWorkflowTask(Task):
    """Starts a workflow; the stage leaves its `result`, and what became of it as `sub_workflow`."""

    def execute(self, stage: StageExecution) -> Any:
        settings = settings_of(SubWorkflowSettings, "sub_workflow", stage.context)
        taken: dict[str, Any] = {}
        for name, key in settings.input_from.items():
            if key not in stage.context:
                raise ConfigurationError(f"input_from has {name!r} from {key!r}, which nothing in the context is")
            taken[name] = stage.context[key]
        args = settings.input if isinstance(settings.input, list) else []
        kwargs = dict(settings.input) if isinstance(settings.input, Mapping) else {}
        return SubWorkflow(settings.workflow, args, kwargs | taken, settings.wait, settings.timeout)
