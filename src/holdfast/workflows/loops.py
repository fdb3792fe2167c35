"""Loops in the body of a workflow: stages that are run again and again, by jumps back to the first of them.

    begin ──▶ the stages of the body ──▶ end      `end` jumps back to `begin`, with what the round has left
      ╰──▶ check, of a `while_loop` ──▶           `check` jumps on to `end` when it is over

A round is a new incarnation of everything between `begin` and `end`, so each has idempotency keys of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from holdfast.errors import TaskError, WorkflowDefinitionError
from holdfast.workflows.binding import Own, Promise
from holdfast.workflows.effects import Effect
from holdfast.workflows.expressions import Expression, evaluate
from holdfast.workflows.functions import current_trace, task
from holdfast.workflows.result import TaskResult
from holdfast.workflows.task_context import current_task
from holdfast.workflows.trace import Loop, Trace, TracedStage

T = TypeVar("T")
Holds = str | Callable[[T], Any]
"""A condition: a text about `value` and `round`, or a task of the value."""
ROUNDS: Final = 10
_GIVEN, _OVER, _VALUE = "loop_given", "loop_over", "value"
_NAMES: Final = frozenset({_VALUE, "round"})
"""What a condition may ask for."""


def while_loop(
    condition: Holds[T],
    body: Callable[[T], T],
    value: T,
    *,
    max_rounds: int = ROUNDS,
    ref: str | None = None,
    after: Any = (),
) -> T:
    """Go on with what `body` makes of a value for as long as the condition holds for it, perhaps never.

    `body` is a task, a workflow, or a function that calls some. The condition is a text such as "value.left > 0 and
    round < 5", or a task that is given the value. Gives the last value; fails after `max_rounds`.
    Raises WorkflowDefinitionError for a body that calls no task, and for a condition that cannot be.
    """
    last: T = _loop("while_loop", condition, body, value, max_rounds, ref, after)
    return last


def repeat_until(
    body: Callable[[T], T],
    condition: Holds[T],
    value: T,
    *,
    max_rounds: int = ROUNDS,
    ref: str | None = None,
    after: Any = (),
) -> T:
    """Go on with what `body` makes of a value until the condition holds for what it has made, at least once.

    As `while_loop` otherwise.
    """
    last: T = _loop("repeat_until", condition, body, value, max_rounds, ref, after)
    return last


def _loop(kind: str, condition: Any, body: Any, value: Any, most: int, ref: str | None, after: Any) -> Any:
    if type(most) is not int or most < 1:
        story = f"{kind}.max_rounds must be a whole number of at least 1, got {most!r}; use {ROUNDS}"
        raise WorkflowDefinitionError("bad_arguments", story)
    if isinstance(condition, str):
        for name in sorted(Expression.parse(condition).names - _NAMES):  # else it would be None, and the loop over
            story = f"{kind}: the condition {condition!r} asks for {name!r}; there are {' and '.join(sorted(_NAMES))}"
            raise WorkflowDefinitionError("bad_expression", story)
    elif not callable(condition):
        raise WorkflowDefinitionError("bad_arguments", f"{kind}: a condition is a text or a task, got {condition!r}")
    trace = current_trace()
    if trace is None:
        return _here(kind, condition, body, value, most)
    return _Traced(trace, kind, condition, most, ref).add(body, value, after)


class _Traced:
    """A loop that becomes stages of a graph."""

    def __init__(self, trace: Trace, kind: str, condition: Any, most: int, ref: str | None) -> None:
        self._trace = trace
        self._kind = kind
        self._condition = condition
        self._most = most
        self._ref = ref or trace.free(kind)
        self._entries = trace.rounds
        """How often it may begin, if it is itself in a loop."""

    def add(self, body: Any, value: Any, after: Any) -> Promise:
        trace, ref = self._trace, self._ref
        begin = trace.add(_begin, (value, Own(_GIVEN)), {}, after, f"{ref}-begin")
        entry, checks = begin, set[str]()
        if self._kind == "while_loop":
            answer, checks = self._asked(begin[_VALUE])
            self._enclose(checks, begin, begin)
            asked = (begin, self._text, answer, ref, self._most)
            entry = trace.add(_check, asked, {}, [begin, *map(Promise, checks)], f"{ref}-check")
            self._change(entry.ref, max_jumps=self._entries)
        trace.rounds = self._entries * self._most
        left, inside = self._grown(lambda: body(begin[_VALUE]))
        if not inside:
            raise WorkflowDefinitionError("no_stages", f"the body of loop {ref!r} calls no task", (ref,))
        answer, more = self._asked(left) if self._kind == "repeat_until" else (None, set[str]())
        trace.rounds = self._entries
        inside |= more
        self._enclose(inside, begin, entry)
        repeats = self._kind == "repeat_until"
        given = (begin, left, repeats, self._text if repeats else None, answer, begin.ref, self._most, Own(_OVER))
        end = trace.add(_end, given, {}, [*map(Promise, self._last(inside))], ref)
        self._change(ref, max_jumps=self._entries * self._most)
        trace.loops.append(Loop(ref, frozenset(inside | checks | {begin.ref, entry.ref})))
        return end

    @property
    def _text(self) -> str | None:
        return self._condition if isinstance(self._condition, str) else None

    def _asked(self, value: Any) -> tuple[Any, set[str]]:
        """What answers the condition, and the stages that it takes."""
        return (None, set()) if self._text is not None else self._grown(lambda: self._condition(value))

    def _grown(self, call: Callable[[], Any]) -> tuple[Any, set[str]]:
        before = set(self._trace.stages)
        made = call()
        return made, set(self._trace.stages) - before

    def _enclose(self, refs: set[str], begin: Promise, entry: Promise) -> None:
        """Stages of the loop wait for its entry and for each other only, or a jump could not begin them anew; what they
        wait for elsewhere, the loop waits for."""
        stages = self._trace.stages
        for ref in [one for one in stages if one in refs]:
            requires = stages[ref].requires
            outside = [one for one in requires if one not in refs and one not in (begin.ref, entry.ref)]
            self._change(begin.ref, requires=list(dict.fromkeys([*stages[begin.ref].requires, *outside])))
            self._change(ref, requires=[one for one in requires if one in refs] or [entry.ref])

    def _change(self, ref: str, **what: Any) -> None:
        stages = self._trace.stages
        stages[ref] = replace(stages[ref], **what)

    def _last(self, refs: set[str]) -> list[str]:
        """The stages of the loop that none of its others waits for."""
        stages: Mapping[str, TracedStage] = self._trace.stages
        waited_for = {one for ref in refs for one in stages[ref].requires}
        return [ref for ref in stages if ref in refs - waited_for]


@task(name="holdfast.loop_begin", effect=Effect.PURE)
def _begin(value: Any, given: Any) -> Any:
    here = current_task()
    round = {"value": value, "round": 1} if given is None else given
    # What the jump here has brought is used up: whoever restarts the loop begins with its first round.
    return TaskResult.success({"result": {**round, "key": here and here.idempotency_key}}, {_GIVEN: None})


@task(name="holdfast.loop_check", effect=Effect.PURE)
def _check(state: Any, text: str | None, answer: Any, end: str, most: int) -> Any:
    if not _holds(text, answer, state["value"], state["round"]):
        return TaskResult.jump_to(end, {_OVER: state["key"]})
    if state["round"] > most:
        raise _endless(most)
    return None


@task(name="holdfast.loop_end", effect=Effect.PURE)
def _end(
    state: Any, left: Any, repeats: bool, until: str | None, answer: Any, begin: str, most: int, over: str | None
) -> Any:
    if over is not None and over == state["key"]:
        return state["value"]
    if repeats and _holds(until, answer, left, state["round"]):
        return left
    if repeats and state["round"] >= most:
        raise _endless(most)
    return TaskResult.jump_to(begin, {_GIVEN: {"value": left, "round": state["round"] + 1}})


LOOP_TASKS: Final = (_begin, _check, _end)


def _holds(text: str | None, answer: Any, value: Any, round: int) -> bool:
    return bool(answer if text is None else evaluate(text, {"value": value, "round": round}))


def _endless(most: int) -> TaskError:
    return TaskError(f"the loop has gone {most} rounds, which is as many as it may; give it more max_rounds")


def _here(kind: str, condition: Any, body: Any, value: Any, most: int) -> Any:
    """Outside of a workflow tasks are functions, and a loop is one."""

    def holds(round: int) -> bool:
        if isinstance(condition, str):
            return _holds(condition, None, value, round)
        return bool(condition(value))

    for round in range(1, most + 1):
        if kind == "while_loop" and not holds(round):
            return value
        value = body(value)
        if kind == "repeat_until" and holds(round):
            return value
    if kind == "while_loop" and not holds(most + 1):
        return value
    raise _endless(most)
