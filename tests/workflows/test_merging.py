"""What a stage sees of the stages before it."""

from __future__ import annotations

from copy import deepcopy
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import PermanentError, WorkflowDefinitionError
from holdfast.workflows.merging import REDUCERS, Clash, joined, merge_ancestors, reducer_named

CHAIN = {"a": [], "b": ["a"], "c": ["b"]}
DIAMOND: dict[str, list[str]] = {"start": [], "left": ["start"], "right": ["start"], "end": ["left", "right"]}


def test_all_stages_before_are_seen_and_no_others() -> None:
    graph = {**DIAMOND, "after": ["end"], "aside": []}
    outputs = {ref: {ref: 1} for ref in graph}
    assert merge_ancestors("end", graph, outputs).values == {"start": 1, "left": 1, "right": 1}
    assert merge_ancestors("start", graph, outputs).values == {}


def test_the_later_stage_of_a_chain_wins_without_a_clash() -> None:
    merged = merge_ancestors("c", CHAIN, {"a": {"x": 1}, "b": {"x": 2}})
    assert merged == ({"x": 2}, ())


def test_lists_are_joined_without_repeating_an_item() -> None:
    outputs = {"a": {"x": [1, 2, {"k": 1, "l": 2}]}, "b": {"x": [2, 3, 3, {"l": 2, "k": 1}]}}
    assert merge_ancestors("c", CHAIN, outputs).values == {"x": [1, 2, {"k": 1, "l": 2}, 3]}


def test_true_and_one_are_two_items() -> None:
    assert joined([1], [True, 1.0, "1"]) == [1, True, 1.0, "1"]


def test_a_list_and_another_value_do_not_mix() -> None:
    assert merge_ancestors("c", CHAIN, {"a": {"x": [1]}, "b": {"x": "word"}}).values == {"x": "word"}
    assert merge_ancestors("c", CHAIN, {"a": {"x": "word"}, "b": {"x": [1]}}).values == {"x": [1]}


def test_ties_go_by_name_and_are_reported() -> None:
    merged = merge_ancestors("end", DIAMOND, {"left": {"x": 1}, "right": {"x": 2}})
    assert merged.values == {"x": 2}
    assert merged.clashes == (Clash("x", ("left", "right"), "right"),)
    assert "stages 'left', 'right' publish different values of 'x'" in str(merged.clashes[0])


def test_the_order_of_the_definition_does_not_matter() -> None:
    turned = {ref: list(reversed(before)) for ref, before in reversed(DIAMOND.items())}
    outputs = {"left": {"x": 1, "l": [1]}, "right": {"x": 2, "l": [2]}}
    assert merge_ancestors("end", turned, outputs) == merge_ancestors("end", DIAMOND, outputs)


def test_equal_values_do_not_clash() -> None:
    assert merge_ancestors("end", DIAMOND, {"left": {"x": {"a": 1}}, "right": {"x": {"a": 1}}}).clashes == ()


def test_lists_of_two_branches_do_not_clash() -> None:
    merged = merge_ancestors("end", DIAMOND, {"left": {"x": [1]}, "right": {"x": [2]}})
    assert merged == ({"x": [1, 2]}, ())


def test_a_stage_after_both_settles_their_clash() -> None:
    graph = {**DIAMOND, "after": ["end"]}
    outputs = {"left": {"x": 1}, "right": {"x": 2}, "end": {"x": 3}}
    assert merge_ancestors("after", graph, outputs) == ({"x": 3}, ())


def test_only_the_last_of_each_branch_clashes() -> None:
    graph = {"a1": [], "a2": ["a1"], "b1": [], "end": ["a2", "b1"]}
    merged = merge_ancestors("end", graph, {"a1": {"x": 1}, "a2": {"x": 2}, "b1": {"x": 3}})
    assert merged.clashes == (Clash("x", ("a2", "b1"), "b1"),)


def test_strict_mode_refuses_a_clash_with_its_key_and_stages() -> None:
    with pytest.raises(PermanentError, match="'left', 'right' publish different values of 'x'"):
        merge_ancestors("end", DIAMOND, {"left": {"x": 1}, "right": {"x": 2}}, strict=True)


@pytest.mark.parametrize(
    ("reducer", "left", "right", "value"),
    [
        ("collect", 1, [2], [1, [2]]),
        ("extend", [1], [1, 2], [1, 1, 2]),
        ("sum", 1, 2.5, 3.5),
        ("max", 1, 2, 2),
        ("min", "a", "b", "a"),
        ("merge", {"a": 1, "b": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ("first", 1, 2, 1),
        ("last", 1, 2, 2),
    ],
)
def test_a_join_combines_its_branches_as_it_says(reducer: str, left: Any, right: Any, value: Any) -> None:
    outputs = {"left": {"x": left}, "right": {"x": right}}
    merged = merge_ancestors("end", DIAMOND, outputs, reducers={"end": {"x": reducer}}, strict=True)
    assert merged == ({"x": value}, ())


def test_a_registered_function_may_be_a_reducer() -> None:
    merged = merge_ancestors(
        "end",
        DIAMOND,
        {"left": {"x": 2}, "right": {"x": 3}},
        reducers={"end": {"x": "product"}},
        functions={"product": lambda values: values[0] * values[1]},
    )
    assert merged.values == {"x": 6}


def test_a_registered_function_raises_its_own_exception() -> None:
    def fail(values: list[Any]) -> Any:
        raise TypeError("mine")

    with pytest.raises(TypeError, match=r"^mine$"):
        merge_ancestors("end", DIAMOND, {"left": {"x": 2}}, reducers={"end": {"x": "f"}}, functions={"f": fail})


def test_a_reducer_gets_one_value_per_branch() -> None:
    graph = {"start": [], "a1": ["start"], "a2": ["a1"], "b1": ["start"], "end": ["a2", "b1"]}
    outputs = {"start": {"x": 100}, "a1": {"x": 1}, "a2": {"x": 2}, "b1": {"x": 3}}
    assert merge_ancestors("end", graph, outputs, reducers={"end": {"x": "collect"}}).values == {"x": [2, 3]}


def test_stages_after_a_join_see_what_it_combined() -> None:
    graph = {**DIAMOND, "after": ["end"], "last": ["after"]}
    outputs = {"left": {"x": [1]}, "right": {"x": [2]}}
    merged = merge_ancestors("last", graph, outputs, reducers={"end": {"x": "collect"}})
    assert merged == ({"x": [[1], [2]]}, ())


def test_what_a_join_publishes_itself_wins_over_its_reducer() -> None:
    graph = {**DIAMOND, "after": ["end"]}
    outputs = {"left": {"x": 1}, "right": {"x": 2}, "end": {"x": 50}}
    assert merge_ancestors("after", graph, outputs, reducers={"end": {"x": "sum"}}) == ({"x": 50}, ())


def test_a_reducer_leaves_other_branches_alone() -> None:
    graph = {"a": [], "b": [], "join": ["a", "b"], "aside": [], "end": ["aside", "join"]}
    outputs = {"a": {"x": 1}, "b": {"x": 2}, "aside": {"x": 10}}
    merged = merge_ancestors("end", graph, outputs, reducers={"join": {"x": "sum"}})
    assert merged.clashes == (Clash("x", ("aside", "join"), "join"),)
    assert merge_ancestors("end", graph, outputs, reducers={"join": {"x": "sum"}, "end": {"x": "sum"}}).values == {
        "x": 13
    }


def test_a_key_that_nobody_published_stays_away() -> None:
    assert merge_ancestors("end", DIAMOND, {}, reducers={"end": {"x": "collect"}}) == ({}, ())


@pytest.mark.parametrize(
    ("reducer", "left", "right"),
    [("sum", 1, "2"), ("sum", 1, True), ("max", 1, "2"), ("extend", [1], 2), ("merge", {}, 1)],
)
def test_values_that_a_reducer_cannot_take_are_named(reducer: str, left: Any, right: Any) -> None:
    with pytest.raises(PermanentError, match="stage 'end' cannot combine 'x'"):
        merge_ancestors("end", DIAMOND, {"left": {"x": left}, "right": {"x": right}}, reducers={"end": {"x": reducer}})


def test_an_unknown_reducer_is_refused_by_name() -> None:
    with pytest.raises(WorkflowDefinitionError, match=r"no reducer 'avg'; known are collect, extend, .*, last, mine"):
        reducer_named("avg", {"mine": len})
    assert all(reducer_named(name) is REDUCERS[name] for name in REDUCERS)


def test_nothing_that_is_given_is_changed() -> None:
    outputs = {"left": {"x": [1], "y": {"a": 1}}, "right": {"x": [2], "y": {"b": 2}}}
    before = deepcopy(outputs)
    values = merge_ancestors("end", DIAMOND, outputs, reducers={"end": {"y": "merge"}}).values
    values["x"].append(3)
    values["y"]["c"] = 3
    assert outputs == before


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[str, list[str]], dict[str, dict[str, Any]]]:
    size = draw(st.integers(1, 7))
    names = draw(st.permutations([f"s{number}" for number in range(size)]))
    graph: dict[str, list[str]] = {}
    for place, name in enumerate(names):
        graph[name] = draw(st.lists(st.sampled_from(names[:place]), unique=True)) if place else []
    values = st.integers(0, 2) | st.lists(st.integers(0, 2), max_size=2)
    return {**graph, "end": list(names)}, {name: draw(st.dictionaries(st.sampled_from("xy"), values)) for name in names}


@given(graphs())
def test_a_clash_is_two_last_writers_that_differ(drawn: tuple[dict[str, list[str]], dict[str, dict[str, Any]]]) -> None:
    graph, outputs = drawn

    def before(ref: str) -> set[str]:
        return set(graph[ref]).union(*(before(one) for one in graph[ref]))

    merged = merge_ancestors("end", graph, outputs)
    for key in "xy":
        writers = [ref for ref in outputs if key in outputs[ref]]
        last = [ref for ref in writers if not any(ref in before(other) for other in writers)]
        differ = any(
            outputs[one][key] != outputs[other][key]
            and not (isinstance(outputs[one][key], list) and isinstance(outputs[other][key], list))
            for one, other in combinations(last, 2)
        )
        assert [set(clash.refs) for clash in merged.clashes if clash.key == key] == ([set(last)] if differ else [])


def test_a_wide_join_and_a_long_chain_stay_affordable() -> None:
    wide: dict[str, list[str]] = {f"s{number}": [] for number in range(3000)}
    outputs = {ref: {"x": place} for place, ref in enumerate(wide)}
    graph = {**wide, "end": list(wide)}
    assert merge_ancestors("end", graph, outputs, reducers={"end": {"x": "sum"}}).values == {"x": sum(range(3000))}
    long = {f"s{number}": [f"s{number - 1}"] if number else [] for number in range(3000)}
    assert merge_ancestors("s2999", long, outputs) == ({"x": 2998}, ())
