"""The body of a workflow is run for each start, and what it has called before is known again: only that."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast.errors import WorkflowDefinitionError
from holdfast.workflows import trace as traces
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.loops import repeat_until
from holdfast.workflows.patches import patched


@task
def show(value: Any = None, *, more: Any = None) -> Any:
    return [value, more]


@task
def other(value: Any = None) -> Any:
    return value


def form_of(body: Callable[..., Any], *args: Any) -> str:
    """What the graph is when nothing was called before."""
    return workflow(body).trace(args, {})[0].form


def test_the_same_calls_are_the_same_graph() -> None:
    @workflow
    def twice(n: int) -> Any:
        return show(show(n), more=[{"n": n, "at": 1.5}])

    assert twice.trace((1,), {})[0] is twice.trace((2,), {})[0]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (1, True), (0, False), (0, None), (1, 1.0), (0.0, -0.0), ("1", 1), ([1], [True]), ({"a": 1}, {"a": True}),
        ({"a": 1}, {"b": 1}), ([1, 2], [[1, 2]]), (["a"], {"a": "a"}), (timedelta(seconds=1), timedelta(seconds=2)),
        ("out", ["out"]), ((1, 2), (2, 1)),
    ],
)  # fmt: skip
def test_calls_with_other_constants_are_other_graphs(one: Any, two: Any) -> None:
    given: list[Any] = []

    def body() -> Any:
        return show(given[-1])

    made, forms = workflow(body), []
    for value in (one, two, one):
        given.append(value)
        forms.append(made.trace((), {})[0].form)
        assert forms[-1] == form_of(body)
    assert forms[0] == forms[2] != forms[1]


@pytest.mark.parametrize(
    "bodies",
    [
        (lambda n: show(n), lambda n: show(1), lambda n: show("n"), lambda n: show(more=n), lambda n: other(n)),
        (lambda n: show(show()[0]), lambda n: show(show()["0"]), lambda n: show(show()[0][0]), lambda n: show(show())),
        (lambda n: show(show()[1]), lambda n: show(show()[True])),
        (lambda n: [show(), other(after=show())], lambda n: [show(), other(show())], lambda n: [other(), show()]),
        (lambda n: show(n), lambda n: [show(n)], lambda n: [show(n), 1], lambda n: {"n": show(n)}),
        (lambda n: show(n, ref="a"), lambda n: show(n, ref="b"), lambda n: show(n)),
        (lambda n: show() if patched("new") else None, lambda n: show()),
        (lambda n: repeat_until(other, "value > 1", n), lambda n: repeat_until(other, "value > 2", n)),
        (lambda n: repeat_until(other, "value > 1", n, max_rounds=2), lambda n: repeat_until(other, "value > 1", n)),
    ],
)  # fmt: skip
def test_bodies_that_call_differently_have_different_graphs(bodies: tuple[Callable[[Any], Any], ...]) -> None:
    turn = [0]

    def body(n: Any) -> Any:
        return bodies[turn[-1]](n)

    made, forms = workflow(body), dict[int, str]()
    for _ in range(2):
        for number in range(len(bodies)):
            turn.append(number)
            forms[number] = made.trace((5,), {})[0].form
            assert forms[number] == form_of(body, 5)
    assert len(set(forms.values())) == len(bodies)


@pytest.mark.parametrize(
    ("body", "args", "inputs"),
    [
        (lambda: show(), (), {}),
        (lambda n, /, m: show(n, more=m), (1, 2), {"n": 1, "m": 2}),
        (lambda n, m=2: show(n, more=m), (1,), {"n": 1, "m": 2}),
        (lambda n, m=2: show(n, more=m), (1, timedelta(seconds=3)), {"n": 1, "m": 3.0}),
        (lambda *, m=2: show(m), (), {"m": 2}),
        (lambda n, *more: show(n, more=more[0]), (1, 2), {"n": 1, "more": (2,)}),
        (lambda n, **more: show(n), (1,), {"n": 1, "more": {}}),
    ],
)  # fmt: skip
def test_the_input_is_known_by_name_however_it_is_given(
    body: Callable[..., Any], args: tuple[Any, ...], inputs: dict[str, Any]
) -> None:
    assert workflow(body).trace(args, {})[1] == inputs


@pytest.mark.parametrize("args", [(), (1, 2)])
def test_too_few_and_too_many_arguments_are_refused(args: tuple[Any, ...]) -> None:
    with pytest.raises(WorkflowDefinitionError, match="argument"):
        workflow(lambda n: show(n)).trace(args, {})


def test_what_was_refused_before_is_refused_again() -> None:
    @workflow
    def cannot(n: int) -> Any:
        return [show(n, ref="a"), show(n, ref="a")]

    for _ in range(2):
        with pytest.raises(WorkflowDefinitionError, match="two stages 'a'"):
            cannot.trace((1,), {})


def test_a_call_that_is_refused_takes_no_name() -> None:
    @workflow
    def tries() -> Any:
        try:
            show(object())
        except TypeError:
            return show(1)

    for _ in range(2):
        assert list(tries.trace((), {})[2].stages) == ["show"]


def test_no_more_is_kept_than_the_last_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "MOST_STAGES", 5)
    monkeypatch.setattr(traces, "MOST_GRAPHS", 3)

    def body(n: int) -> Any:
        return [show(int(n)), show(int(n) + 1)]

    made = workflow(body)
    for number in range(20):
        assert made.trace((number,), {})[0].form == form_of(body, number)
    assert len(made._traces.stages) <= 5
    assert len(made._traces.graphs) <= 3


def test_what_is_called_with_what_others_leave_is_known_again_and_no_more_of_it_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(traces, "MOST_STAGES", 5)

    def body(n: int) -> Any:
        # Of a set of floats nothing is known again, nor is the promise of what it becomes.
        first = show({"a": [float(n)]}) if int(n) % 2 else show(n)
        return show(show(first))

    made = workflow(body)
    for number in range(20):
        graph, _, trace = made.trace((number,), {})
        assert graph.form == form_of(body, number)
        assert [stage.requires for stage in trace.stages.values()] == [(), ("show",), ("show-2",)]
        assert len(made._traces.calls) <= len(made._traces.stages) <= 5


def test_a_name_that_somebody_took_is_not_given_to_a_call_that_is_known_again() -> None:
    @workflow
    def chooses(n: int) -> Any:
        first = show(n)
        taken = [show(n, ref="show-2")] if int(n) else []
        return [show(first), *taken]

    assert list(chooses.trace((0,), {})[2].stages) == ["show", "show-2"]
    assert list(chooses.trace((1,), {})[2].stages) == ["show", "show-2", "show-3"]
    assert list(chooses.trace((0,), {})[2].stages) == ["show", "show-2"]


def test_graphs_are_kept_up_to_so_many_stages_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "MOST_STAGES", 10)

    @workflow
    def wide(n: int) -> Any:
        return [show(at) for at in range(int(n))]

    for number in (4, 5, 4, 5, 4, 5):
        assert len(wide.trace((number,), {})[2].stages) == number
        assert len(wide._traces.graphs) <= 2
    assert len(wide._traces.graphs) == 2
    wide.trace((6,), {})
    assert len(wide._traces.graphs) == 1


def test_long_texts_and_lists_are_known_again_only_as_far_as_memory_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "MOST_WORDS", 2_000)

    @workflow
    def chunks(n: int) -> Any:
        return [show(f"{int(n)}" * 5_000), show([int(n)] * 100)]

    for number in range(40):
        chunks.trace((number,), {})
        assert sum(map(traces._words_of, chunks._traces.stages)) <= 2_000


def test_a_part_of_what_a_task_leaves_is_a_new_promise_and_fills_no_memory() -> None:
    @workflow
    def parts(n: int) -> Any:
        return show(show(show(n)["a"]))

    for _ in range(20):
        parts.trace((1,), {})
    assert len(parts._traces.stages) == 3
    assert len(parts._traces.calls) == 1


@pytest.mark.parametrize("value", ["order-7", 7, 0.5])
def test_a_copy_of_an_input_is_the_input_and_a_pickle_of_it_is_its_value(value: Any) -> None:
    handed_on = form_of(lambda given: show(given, more=[given]), value)
    assert form_of(lambda given: show(copy.copy(given), more=copy.deepcopy([given])), value) == handed_on
    assert form_of(lambda given: show(pickle.loads(pickle.dumps(given))), value) == form_of(
        lambda given: show(value), value
    )
