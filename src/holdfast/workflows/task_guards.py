"""The guards that tasks are called through, as an application has them: whether they fit, and what recovers by them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import REJECTIONS, ConfigurationError, PolicyError, TaskError, WorkflowDefinitionError
from holdfast.workflows.dead_letters import Trouble
from holdfast.workflows.effects import REPEATABLE, Effect
from holdfast.workflows.functions import TaskFunction
from holdfast.workflows.guarded import check_guard
from holdfast.workflows.letter_route import FUNCTION, Retries, WorkflowRoute
from holdfast.workflows.transactions import SessionsOf

if TYPE_CHECKING:
    from holdfast.guard.guard import Guard
    from holdfast.letters.handlers import ReplayHandlers

_NEVER_RAN: Final = frozenset(kind.__name__ for kind in REJECTIONS.values())


class TaskGuards:
    """`find` gives the guard of a name, or raises PolicyError or TaskError where there is none."""

    def __init__(
        self,
        tasks: Mapping[str, TaskFunction[Any, Any]],
        find: Callable[[str], Guard],
        sessions: SessionsOf,
        letters: ReplayHandlers | None,
        workflows: Retries,
    ) -> None:
        self._tasks = tasks
        self.find = find
        self.sessions = sessions
        self._letters = letters
        self._workflows = workflows

    def check(self, task: TaskFunction[Any, Any]) -> None:
        """See that a task can be run as it says, with its guard if that is there already.

        Raises WorkflowDefinitionError.
        """
        self.check_effect(task.name, task.effect)
        guard = None if task.guard is None else self._found(task.guard)
        if guard is None:
            return
        check_guard(task, guard)
        domain = getattr(guard, "domain", None)
        if self._letters is not None and domain is not None:
            self._letters.register_route(FUNCTION, WorkflowRoute(lambda: self._workflows, guard), domain)

    def check_effect(self, task: str, effect: Effect | None) -> None:
        """Raises WorkflowDefinitionError for a task that is to write in a transaction where there is none."""
        if effect is Effect.TRANSACTIONAL:
            try:
                self.sessions()
            except ConfigurationError as error:
                story = f"task {task!r} is transactional: {error}"
                raise WorkflowDefinitionError("no_transactions", story, (task,)) from error

    def recovering_domain(self, troubles: Sequence[Trouble]) -> str | None:
        """The domain of the guard behind a failure, if all that a retry would repeat may be repeated unasked."""
        task = self._tasks.get(troubles[0][0]) if troubles else None
        guard = None if task is None or task.guard is None else self._found(task.guard)
        if guard is None or not all(self._may_repeat(*one) for one in troubles):
            return None
        return getattr(guard, "domain", None)

    def _may_repeat(self, type: str, error: str) -> bool:
        task = self._tasks.get(type)
        if task is None:
            return False
        return error in _NEVER_RAN or task.retry is not None or task.effect in REPEATABLE

    def _found(self, name: str) -> Guard | None:
        try:
            return self.find(name)
        except (PolicyError, TaskError):
            return None
