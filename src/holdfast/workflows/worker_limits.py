"""How many calls of each type a worker makes at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from holdfast.workflows.execution import BulkheadLimits, Limits
from holdfast.workflows.resilience import DEFAULT_TYPE, BulkheadConfig, variable_name


class WorkerLimits:
    """The slots of a worker: those of the listed types, and for any other so many threads, or so many async calls."""

    def __init__(
        self,
        threads: int,
        tasks: int,
        is_async: Callable[[str], bool],
        listed: BulkheadLimits | None,
        timeout_s: float = BulkheadConfig().timeout_seconds,
    ) -> None:
        self._plain = BulkheadConfig(max_concurrent=threads, timeout_seconds=timeout_s)
        self._async = BulkheadConfig(max_concurrent=tasks, timeout_seconds=timeout_s)
        self._is_async = is_async
        self._listed = {} if listed is None else dict(listed.bulkheads_dict())
        self._found: dict[str, Limits | None] = {}

    def get_bulkhead(self, task_type: str, /) -> Limits:
        try:
            found = self._found[task_type]
        except KeyError:
            found = self._found[task_type] = self._listed_for(task_type)
        return found or (self._async if self._is_async(task_type) else self._plain)

    def _listed_for(self, task_type: str) -> Limits | None:
        listed = self._listed
        return listed.get(task_type) or listed.get(variable_name(task_type)) or listed.get(DEFAULT_TYPE)

    def bulkheads_dict(self) -> Mapping[str, Limits]:
        return self._listed
