"""What the body of a workflow has called: the stages of its graph, in the order of the calls.

A body is run for every workflow that starts, and mostly calls what it has called before. So the stages that its calls
have made are kept, and found again by what was called; the same stages in the same order are the same graph.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.errors import WorkflowDefinitionError
from holdfast.machine.instances import check_ref
from holdfast.workflows.binding import Binding, Promise, bind, sources

if TYPE_CHECKING:
    from holdfast.workflows.functions import TaskFunction, WorkflowFunction

MOST_STAGES: Final = 16_000
MOST_WORDS: Final = 16 * MOST_STAGES
MOST_GRAPHS: Final = 16
"""How many stages of one body are known again, how much they were called with (a usual call is six words), and how many
graphs with no more stages than that in all. What calls more at once is not worth the memory."""
_LETTERS: Final = 50
"""Of a text, for a word."""
_PLAIN: Final = (str, int, float, timedelta, type(None))
_CONSTANT: Final = frozenset({str, int, bool, timedelta, type(None)})
_KEY: Final = frozenset({str, int})
_PROMISES: Final = frozenset({Promise})


@dataclass(frozen=True, slots=True, eq=False)
class TracedStage:
    """A call of a task in the body of a workflow."""

    ref: str
    task: TaskFunction[Any, Any]
    args: Sequence[Binding]
    kwargs: dict[str, Binding]
    requires: Sequence[str]
    promise: Promise
    is_known: bool = False
    """Whether the same call in a later run of the body gives it, too."""
    max_jumps: int | None = None


class Loop(NamedTuple):
    """Stages that are run again and again, and the one that ends that."""

    end: str
    inside: frozenset[str]


class Graph(NamedTuple):
    """What a body has called, as a document. `form` tells it from every other one."""

    document: dict[str, Any]
    form: str
    tasks: Sequence[TaskFunction[Any, Any]]


class Traces:
    """The stages and graphs that the body of one workflow has had so far."""

    def __init__(self) -> None:
        self.stages: dict[Hashable, TracedStage] = {}
        self.calls: dict[tuple[Any, ...], TracedStage] = {}
        """The same by number, task and arguments, of calls that got only what such stages will leave: as most do."""
        self.graphs: dict[Hashable, Graph] = {}
        self._words = self._in_graphs = 0

    def stage(self, key: Hashable, made: TracedStage) -> TracedStage:
        """The same stage, known from now on; with no key it is not."""
        if key is not None:
            words = _words_of(key)
            self._words += words
            if len(self.stages) >= MOST_STAGES or self._words > MOST_WORDS:
                self.stages.clear()
                self.calls.clear()
                self._words = words
            self.stages[key] = made
        return made

    def graph(self, trace: Trace, returned: Any, make: Callable[[], dict[str, Any]]) -> Graph:
        """The graph of a body that has returned this; it is made if there was none like it."""
        word = trace.word(returned)
        key: Hashable = None
        if word is not None and not trace.loops and len(trace.stages) <= MOST_STAGES:
            key = (word, frozenset(trace.patches), *trace.stages.values())
        found = self.graphs.get(key)
        if found is None:
            document, tasks = make(), dict.fromkeys(one.task for one in trace.stages.values())
            found = Graph(document, repr(document), tuple(tasks))  # of what JSON holds, each value has its own word
            if key is not None:
                self._in_graphs += len(trace.stages)
                if len(self.graphs) >= MOST_GRAPHS or self._in_graphs > MOST_STAGES:
                    self.graphs.clear()
                    self._in_graphs = len(trace.stages)
                self.graphs[key] = found
        return found


@dataclass(slots=True)
class Trace:
    """The calls of tasks that the body of a workflow has made."""

    inputs: dict[int, str]
    before: Traces
    """What earlier runs of the body have called."""
    stages: dict[str, TracedStage] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    """How many stages have been named after a task."""
    workflows: dict[str, WorkflowFunction[Any, Any]] = field(default_factory=dict)
    """The workflows that it has called."""
    patches: set[str] = field(default_factory=set)
    loops: list[Loop] = field(default_factory=list)
    rounds: int = 1
    """How often what is called here may be run, by the loops around it."""

    def add(self, task: TaskFunction[Any, Any], args: Any, kwargs: Any, after: Any, ref: str | None) -> Promise:
        stem = task.stem
        call = None
        if ref is None and not kwargs and type(after) is tuple and not after and _PROMISES.issuperset(map(type, args)):
            number = self.names.get(stem, 0) + 1
            call = (number, task, *args)
            found = self.before.calls.get(call)
            if found is not None and found.ref not in self.stages:
                self.names[stem] = number
                self.stages[found.ref] = found
                return found.promise
        if task.refuses_early and all(isinstance(one, _PLAIN) for one in (*args, *kwargs.values())):
            task.function(*args, **kwargs)
        waits = [after.ref] if isinstance(after, Promise) else _refs(after) if after else ()
        number = 0
        if ref is None:
            ref, number = self._free(stem)
        elif ref in self.stages:
            raise WorkflowDefinitionError("duplicate_ref", f"there are two stages {ref!r}", (ref,))
        key = self._key(ref, task, args, kwargs, waits) if len(self.stages) < MOST_STAGES else None
        stage = self.before.stages.get(key)
        if stage is None:
            made = self._stage(ref, task, args, kwargs, waits, is_known=key is not None)
            stage = self.before.stage(key, made)
        if number:
            self.names[stem] = number
        if call is not None and key is not None and call[0] == number and all(map(self._is_known, args)):
            self.before.calls[call] = stage
        self.stages[ref] = stage
        return stage.promise

    def _is_known(self, promise: Promise) -> bool:
        """Whether it is the one that a later run of the body will get, too."""
        stage = self.stages.get(promise.ref)
        return stage is not None and stage.is_known and stage.promise is promise

    def _stage(
        self,
        ref: str,
        task: TaskFunction[Any, Any],
        args: Any,
        kwargs: Mapping[str, Any],
        waits: Sequence[str],
        *,
        is_known: bool,
    ) -> TracedStage:
        check_ref(ref)
        given = tuple([bind(value, self.inputs, f"{ref}: args[{at}]") for at, value in enumerate(args)])
        named = {key: bind(value, self.inputs, f"{ref}: {key}") for key, value in kwargs.items()}
        needs = [name for binding in (*given, *named.values()) for name in sources(binding)]
        return TracedStage(ref, task, given, named, tuple(dict.fromkeys((*needs, *waits))), Promise(ref), is_known)

    def _key(
        self, ref: str, task: TaskFunction[Any, Any], args: Any, kwargs: Mapping[str, Any], waits: Sequence[str]
    ) -> Hashable:
        """Tells this call from every other one; None of one that is not worth to be known again."""
        key: list[Any] = [ref, task, *waits, *kwargs]
        for value in (*args, *kwargs.values()) if kwargs else args:
            word = self.word(value)
            if word is None:
                return None
            key.append(word)
        if kwargs or waits:
            key.append(len(kwargs))
        return tuple(key)

    def word(self, value: Any) -> tuple[Any, ...] | None:
        """Tells what a value is bound to from everything else; None of one that there is no short word for."""
        kind = type(value)
        if kind is Promise:
            path = value.path
            return ("out", value.ref, *path) if not path or _KEY.issuperset(map(type, path)) else None
        if kind in _CONSTANT:
            return kind, value  # else 1 and True would be the same
        if kind is float:
            return kind, repr(value)  # and so would 0.0 and -0.0
        name = self.inputs.get(id(value))
        if name is not None:
            return "in", name
        if kind is list or kind is tuple:
            return self._words("list", value)
        if kind is dict and all(type(key) is str for key in value):
            return self._words("dict", value.values(), *value)
        return None

    def _words(self, kind: str, values: Any, *names: str) -> tuple[Any, ...] | None:
        words = [self.word(one) for one in values]
        return None if None in words else (kind, *names, *words)

    def free(self, name: str) -> str:
        """A name for a stage, which no other has: this one, or with a number."""
        ref, self.names[name] = self._free(name)
        return ref

    def _free(self, name: str) -> tuple[str, int]:
        number = self.names.get(name, 0)
        while True:
            number += 1
            ref = name if number == 1 else f"{name}-{number}"
            if ref not in self.stages:
                return ref, number


def _refs(after: Any) -> list[str]:
    ones: list[Any] = [after] if isinstance(after, str) or not isinstance(after, Iterable) else list(after)
    for one in ones:
        if not isinstance(one, Promise):
            story = f"after= takes what the call of a task has returned, or a list of that, got {one!r}"
            raise WorkflowDefinitionError("bad_arguments", story)
    return [one.ref for one in ones]


def _words_of(key: Any) -> int:
    """How much memory a key takes, about."""
    if isinstance(key, tuple):
        return 1 + sum(map(_words_of, key))
    return 1 + len(key) // _LETTERS if isinstance(key, str) else 1
