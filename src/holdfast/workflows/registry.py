"""TaskRegistry: which tasks there are, by name, and what their exceptions mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from inspect import iscoroutinefunction
from typing import Any, TypeVar, overload

from holdfast.errors import ConfigurationError, TaskNotFoundError
from holdfast.workflows.effects import Effect, check_colour, effect_named
from holdfast.workflows.faults import Fault, Faults, Judgement, Predicate
from holdfast.workflows.provided import how_to_register
from holdfast.workflows.task import FunctionTask, Task

T = TypeVar("T")


class TaskRegistry:
    """The tasks of an application. What is stored is a name; what it stands for is looked up here, never imported.

    A class is made anew for every call, so that two calls share nothing; an instance serves all of them. `reach` is
    where an operator lets those go that can be told so: http tasks.
    """

    def __init__(self, *, reach: Sequence[str] = ()) -> None:
        self._reach = reach
        self._tasks: dict[str, Any] = {}
        self._effects: dict[str, Effect] = {}
        self._faults = Faults()
        self.told: Callable[[], object] = lambda: None
        """Called when something was registered."""

    @overload
    def register(self, name: str, task: T, *, aliases: Iterable[str] = (), effect: str | None = None) -> T: ...
    @overload
    def register(self, name: str, *, aliases: Iterable[str] = (), effect: str | None = None) -> Callable[[T], T]: ...
    def register(self, name: str, task: Any = None, *, aliases: Iterable[str] = (), effect: str | None = None) -> Any:
        """Register a class, an instance or a function of the stage, under a name and its aliases; also a decorator.

        `effect` is what it does to the world, unless its class says so. Raises ConfigurationError for something else,
        and for a name that is taken; WorkflowDefinitionError for an effect that does not fit.
        """
        if task is None:
            return lambda given: self.register(name, given, aliases=aliases, effect=effect)
        kept = self._confined(_kept(name, task))
        names = [name, *aliases, *(task.aliases if _is_task(task) else ())]
        for one in names:
            if not isinstance(one, str) or not one:
                raise ConfigurationError(f"a task's name is a text, got {one!r}")
            if one in self._tasks and _given(self._tasks[one]) is not task:
                raise ConfigurationError(f"a task named {one!r} is registered already; give this one another name")
        declared = effect_named(name, effect or (task.effect if _is_task(task) else None))
        check_colour(name, declared, iscoroutinefunction(getattr(task, "execute", task)))
        if declared is not None:
            self._effects.update(dict.fromkeys(names, declared))
        self._tasks.update(dict.fromkeys(names, kept))
        self.told()
        return task

    def resolve(self, name: str) -> Task:
        """The task of that name. Raises TaskNotFoundError, which says what there is."""
        try:
            found = self._tasks[name]
        except KeyError:
            there = ", ".join(sorted(self._tasks)) or "none"
            story = f"no task named {name!r} is registered; there are {there}{how_to_register(name)}"
            raise TaskNotFoundError(story) from None
        made: Task = self._confined(found()) if isinstance(found, type) else found
        return made

    def _confined(self, task: Any) -> Any:
        if self._reach and not isinstance(task, type) and (confine := getattr(task, "confine", None)) is not None:
            confine(self._reach)
        return task

    def hooked(self) -> list[str]:
        """The tasks that have something to do when their stage is over."""
        return [name for name, task in [*self._tasks.items()] if any(hooks_of(task))]

    def effect_of(self, name: str) -> Effect | None:
        """What a task does to the world, if that was said."""
        return self._effects.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._tasks

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._tasks))

    def __len__(self) -> int:
        return len(self._tasks)

    def declare_transient(self, *kinds: type[BaseException]) -> None:
        """Exceptions of these types are worth another try."""
        self._faults.declare(Fault.TRANSIENT, *kinds)

    def declare_permanent(self, *kinds: type[BaseException]) -> None:
        """Exceptions of these types end the stage."""
        self._faults.declare(Fault.PERMANENT, *kinds)

    def add_predicate(self, predicate: Predicate) -> Predicate:
        """Ask a function what an exception means, before its type is looked at; None: it has no opinion."""
        return self._faults.add_predicate(predicate)

    def classify(self, error: BaseException) -> Fault:
        """Whether an exception is worth another try."""
        return self._faults.classify(error)

    def judge(self, error: BaseException) -> Judgement:
        """The same with what decided it, when to try again, and what to merge into the context first."""
        return self._faults.judge(error)


def hooks_of(task: Any) -> tuple[bool, bool]:
    """Whether a task, or a class of one, has an `on_cancel` and an `on_cleanup` of its own."""
    kind: type[Task] = task if isinstance(task, type) else type(task)
    return kind.on_cancel is not Task.on_cancel, kind.on_cleanup is not Task.on_cleanup


def _is_task(task: Any) -> bool:
    return issubclass(task, Task) if isinstance(task, type) else isinstance(task, Task)


def _given(kept: Any) -> Any:
    return kept.function if isinstance(kept, FunctionTask) else kept


def _kept(name: str, task: Any) -> Any:
    if isinstance(task, type):
        if not issubclass(task, Task):
            raise ConfigurationError(f"task {name!r}: {task.__name__} must derive from Task")
        if task.__abstractmethods__:
            left = ", ".join(sorted(task.__abstractmethods__))
            raise ConfigurationError(f"task {name!r}: {task.__name__} does not define {left}")
        return task
    if isinstance(task, Task):
        return task
    if callable(task):
        return FunctionTask(task)
    raise ConfigurationError(f"task {name!r} must be a Task, a class of one, or a function, got {task!r}")
