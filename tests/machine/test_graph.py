"""Readiness against an oracle that tries every future, and graphs against what a graph is.

The oracle is written from the table of rulings, not from the code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import permutations, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import WorkflowDefinitionError
from holdfast.machine.graph import (
    Edge,
    Edges,
    JoinType,
    PredicatePhase,
    check_graph,
    cycle_in,
    downstream,
    edge_of,
    evaluate_readiness,
    ordered,
    phase_of,
)
from holdfast.machine.workflow import WorkflowStatus

S = WorkflowStatus
P = PredicatePhase
ME = "me"


@dataclass
class Stage:
    ref_id: str = ME
    status: WorkflowStatus = S.NOT_STARTED
    skip_cause: str | None = None
    activated: tuple[str, ...] | None = None
    requisite_stage_ref_ids: tuple[str, ...] = ()
    join_type: Any = JoinType.AND
    join_threshold: int = 0
    split_type: str = "AND"
    merges: int = 0
    id: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        self.id = self.id or f"id-{self.ref_id}"


# What an upstream can be. A split chooses when its stage has come to a good end, and then only.
ENDS = [
    Stage("u", S.SUCCEEDED),
    Stage("u", S.SUCCEEDED, activated=(ME, "other")),
    Stage("u", S.SUCCEEDED, activated=("other",)),
    Stage("u", S.FAILED_CONTINUE),
    Stage("u", S.FAILED_CONTINUE, activated=("other",)),
    Stage("u", S.TERMINAL),
    Stage("u", S.STOPPED),
    Stage("u", S.CANCELED),
    *(Stage("u", S.SKIPPED, skip_cause=cause) for cause in (None, "pruned", "upstream_failed", "disabled", "manual")),
]
ALL = [*ENDS, *(Stage("u", status) for status in S if status.is_active)]


def is_dead(one: Stage) -> bool:
    unchosen = one.activated is not None and ME not in one.activated
    return unchosen or (one.status == "SKIPPED" and one.skip_cause == "pruned")


def is_halted(one: Stage) -> bool:
    return one.status in ("TERMINAL", "STOPPED", "CANCELED") or (
        one.status == "SKIPPED" and one.skip_cause == "upstream_failed"
    )


def is_continuable(one: Stage) -> bool:
    return one.status in ("SUCCEEDED", "FAILED_CONTINUE", "REDIRECT", "SKIPPED") and not is_halted(one)


def futures(live: list[Stage]) -> Iterator[list[Stage]]:
    """Every way in which those that are undecided can end, with their edges alive."""
    ends = [
        [one]
        if is_halted(one) or is_continuable(one)
        else [replace(one, status=S.SUCCEEDED), replace(one, status=S.TERMINAL)]
        for one in live
    ]
    for way in product(*ends):
        yield list(way)


def oracle(stage: Stage, given_stages: list[Stage | None], jump_bypass: bool = False) -> PredicatePhase:
    """The rulings, in their order."""
    if jump_bypass:
        return P.READY
    upstream = [one for one in given_stages if one is not None]
    if not {*stage.requisite_stage_ref_ids} <= {one.ref_id for one in upstream}:
        return P.UNDEFINED
    if stage.join_type not in ("AND", "OR", "DISCRIMINATOR", "N_OF_M", "MULTI_MERGE"):
        return P.UNDEFINED
    if not upstream:
        return P.READY
    live = [one for one in upstream if not is_dead(one)]
    if not live:
        return P.PRUNE
    done = sum(map(is_continuable, live))
    match stage.join_type:
        case "DISCRIMINATOR":
            ready, skip = done >= 1 and not stage.merges, all(map(is_halted, live))
        case "MULTI_MERGE":
            ready, skip = done > stage.merges, all(map(is_halted, live))
        case "N_OF_M" if stage.join_threshold > 0:
            reachable = any(sum(map(is_continuable, way)) >= stage.join_threshold for way in futures(live))
            ready, skip = done >= stage.join_threshold and not stage.merges, not reachable
        case _:
            ready, skip = all(map(is_continuable, live)), any(map(is_halted, live))
    return P.READY if ready else P.SKIP if skip else P.NOT_READY


upstreams = st.lists(st.sampled_from(ALL), max_size=6).map(
    lambda kinds: [replace(one, ref_id=f"u{at}", id="") for at, one in enumerate(kinds)]
)
joins = st.sampled_from(list(JoinType))
thresholds = st.integers(-1, 7)


def waiting(upstream: list[Stage], join: Any = JoinType.AND, threshold: int = 0, merges: int = 0) -> Stage:
    refs = tuple(one.ref_id for one in upstream)
    return Stage(requisite_stage_ref_ids=refs, join_type=join, join_threshold=threshold, merges=merges)


def many(*kinds: Stage) -> list[Stage]:
    return [replace(one, ref_id=f"u{at}", id="") for at, one in enumerate(kinds)]


@given(upstreams, joins, thresholds)
def test_readiness_is_what_the_oracle_says(upstream: list[Stage], join: JoinType, threshold: int) -> None:
    stage = waiting(upstream, join, threshold)
    assert evaluate_readiness(stage, upstream).phase is oracle(stage, [*upstream])


def test_readiness_is_what_the_oracle_says_for_every_pair() -> None:
    for first, second, join, threshold in product(ALL, ALL, JoinType, (0, 1, 2)):
        upstream = many(first, second)
        stage = waiting(upstream, join, threshold)
        assert evaluate_readiness(stage, upstream).phase is oracle(stage, [*upstream]), (first, second, join, threshold)


@given(upstreams, st.sampled_from(["DISCRIMINATOR", "N_OF_M", "MULTI_MERGE"]), st.integers(1, 4), st.integers(0, 6))
def test_what_has_fired_is_what_the_oracle_says(upstream: list[Stage], join: str, threshold: int, merges: int) -> None:
    if not upstream:
        return
    stage = waiting(upstream, JoinType(join), threshold, merges)
    assert evaluate_readiness(stage, upstream).phase is oracle(stage, [*upstream])


@given(upstreams, joins, thresholds, st.data())
def test_what_is_missing_leaves_it_undefined_and_a_jump_makes_it_ready(
    upstream: list[Stage], join: JoinType, threshold: int, data: st.DataObject
) -> None:
    kept: list[Stage | None] = data.draw(
        st.permutations([one if data.draw(st.integers(0, 3)) else None for one in upstream])
        if upstream
        else st.just([])
    )
    unknown = data.draw(st.booleans())
    stage = waiting(upstream, "XOR" if unknown else join, threshold)
    for bypass in (False, True):
        assert evaluate_readiness(stage, kept, jump_bypass=bypass).phase is oracle(stage, kept, bypass)


@given(upstreams, joins, thresholds, st.integers(0, 6), st.randoms(use_true_random=False))
def test_counts_kept_one_by_one_say_the_same_as_the_stages(
    upstream: list[Stage], join: JoinType, threshold: int, merges: int, chance: Any
) -> None:
    counts = Edges(len(upstream))
    for one in chance.sample(upstream, len(upstream)):
        counts = counts.counting(edge_of(one, ME))
    stage = waiting(upstream, join, threshold, merges)
    result = evaluate_readiness(stage, upstream)
    assert phase_of(join, threshold, counts, merges) == (result.phase, result.reason)
    assert counts.live + counts.dead == counts.total
    assert counts.open + counts.halted + counts.active == counts.live


@given(upstreams, joins, thresholds, st.booleans())
def test_the_ids_of_what_failed_and_of_what_is_active_are_always_there(
    upstream: list[Stage], join: JoinType, threshold: int, bypass: bool
) -> None:
    result = evaluate_readiness(waiting(upstream, join, threshold), upstream, jump_bypass=bypass)
    assert result.failed_upstream_ids == tuple(one.id for one in upstream if is_halted(one))
    assert result.active_upstream_ids == tuple(
        one.id for one in upstream
        if one.status in ("NOT_STARTED", "RUNNING", "PAUSED", "SUSPENDED", "REDIRECT", "BUFFERED")
    )  # fmt: skip
    assert result.reason


@given(upstreams, joins, thresholds, st.data())
def test_a_skip_is_final(upstream: list[Stage], join: JoinType, threshold: int, data: st.DataObject) -> None:
    stage = waiting(upstream, join, threshold)
    before = evaluate_readiness(stage, upstream).phase
    later = [
        replace(data.draw(st.sampled_from(ENDS)), ref_id=one.ref_id, id=one.id) if one.status.is_active else one
        for one in upstream
    ]
    after = evaluate_readiness(stage, later).phase
    if before is P.SKIP:
        assert after in (P.SKIP, P.PRUNE)  # the last live edge may turn out dead
    if before is P.PRUNE:
        assert after is P.PRUNE
    if upstream:
        assert after is not P.NOT_READY, "everything has ended and it still waits"


@given(st.lists(st.sampled_from(ENDS), min_size=1, max_size=6), joins, thresholds)
def test_a_join_fires_once_and_a_merge_once_for_each(ends: list[Stage], join: JoinType, threshold: int) -> None:
    counts, fired = Edges(len(ends)), 0
    for one in ends:
        counts = counts.counting(edge_of(one, ME))
        while phase_of(join, threshold, counts, fired)[0] is P.READY:
            fired += 1
    if join is JoinType.MULTI_MERGE:
        assert fired == sum(is_continuable(one) and not is_dead(one) for one in ends)
    else:
        assert fired <= 1


def test_a_halted_upstream_wins_over_a_running_one() -> None:
    upstream = many(Stage("u", S.RUNNING), Stage("u", S.TERMINAL))
    result = evaluate_readiness(waiting(upstream), upstream)
    assert (result.phase, result.failed_upstream_ids, result.active_upstream_ids) == (P.SKIP, ("id-u1",), ("id-u0",))


@pytest.mark.parametrize("status", [S.BUFFERED, S.NOT_STARTED, S.RUNNING, S.PAUSED, S.SUSPENDED])
def test_one_waits_for_whatever_is_active(status: WorkflowStatus) -> None:
    upstream = many(Stage("u", status), Stage("u", S.SUCCEEDED))
    assert evaluate_readiness(waiting(upstream), upstream).phase is P.NOT_READY


def test_a_skip_for_a_failure_goes_on_and_one_by_hand_does_not() -> None:
    for cause, phase in (("upstream_failed", P.SKIP), ("pruned", P.PRUNE), ("disabled", P.READY), ("manual", P.READY)):
        upstream = many(Stage("u", S.SKIPPED, skip_cause=cause))
        assert evaluate_readiness(waiting(upstream), upstream).phase is phase


def test_a_stage_that_halted_has_chosen_nothing() -> None:
    assert edge_of(Stage("u", S.TERMINAL, activated=("other",)), ME) is Edge.HALTED


def test_what_is_missing_or_unknown_is_named() -> None:
    stage = Stage(requisite_stage_ref_ids=("a", "b"))
    assert "'b'" in evaluate_readiness(stage, [Stage("a", S.SUCCEEDED), None]).reason
    assert "'XOR'" in evaluate_readiness(Stage(join_type="XOR"), []).reason


def test_a_join_type_may_be_a_text() -> None:
    upstream = many(Stage("u", S.SUCCEEDED), Stage("u", S.RUNNING))
    assert evaluate_readiness(waiting(upstream, "DISCRIMINATOR"), upstream).phase is P.READY


def refusal(requisites: dict[str, list[str]], thresholds: dict[str, int] | None = None) -> tuple[str, tuple[str, ...]]:
    with pytest.raises(WorkflowDefinitionError) as caught:
        check_graph(requisites, thresholds)
    return caught.value.code, caught.value.members


def test_a_graph_that_can_never_run_is_refused_by_name() -> None:
    assert refusal({"a": ["a"]}) == ("self_edge", ("a",))
    assert refusal({"a": ["gone"]}) == ("unknown_ref", ("gone",))
    assert refusal({"a": [], "b": ["a"]}, {"b": 2}) == ("unreachable_join", ("b",))
    code, members = refusal({"a": ["c"], "b": ["a"], "c": ["b"], "d": ["c"], "e": []})
    assert (code, sorted(members)) == ("cycle", ["a", "b", "c"])


graphs = st.integers(1, 6).flatmap(
    lambda size: st.fixed_dictionaries(
        {f"s{at}": st.lists(st.sampled_from([f"s{one}" for one in range(size)]), max_size=3) for at in range(size)}
    )
)


@given(graphs)
def test_a_graph_has_an_order_or_a_cycle(requisites: dict[str, list[str]]) -> None:
    def fits(way: tuple[str, ...]) -> bool:
        return all(way.index(before) < way.index(ref) for ref in way for before in requisites[ref])

    orders = [way for way in permutations(sorted(requisites)) if fits(way)]
    members = cycle_in(requisites)
    if orders:
        assert not members
        assert ordered(requisites) == list(orders[0])  # the first by name
    else:
        assert members
        for before, ref in zip([members[-1], *members], members, strict=False):
            assert before in requisites[ref]


@given(graphs)
def test_a_graph_is_refused_if_it_has_a_cycle_however_its_stages_are_named(requisites: dict[str, list[str]]) -> None:
    requisites = {ref: [one for one in before if one != ref] for ref, before in requisites.items()}
    for order in (list(requisites), list(reversed(requisites))):
        graph = {ref: requisites[ref] for ref in order}
        if cycle_in(graph):
            assert refusal(graph)[0] == "cycle"
        else:
            check_graph(graph)


@given(graphs)
def test_downstream_is_upstream_the_other_way_round(requisites: dict[str, list[str]]) -> None:
    after = downstream(requisites)
    assert {(a, b) for a in after for b in after[a]} == {(a, b) for b in requisites for a in requisites[b]}
    assert all(len(found) == len(set(found)) for found in after.values())


@pytest.mark.parametrize(
    ("join", "edges", "reason"),
    [
        (JoinType.AND, Edges(1), "1 stage before it has not ended"),
        (JoinType.AND, Edges(2), "2 stages before it have not ended"),
        (JoinType.MULTI_MERGE, Edges(1), "1 stage before it has not ended"),
        (JoinType.AND, Edges(2, halted=1), "1 stage before it failed or was stopped"),
        (JoinType.AND, Edges(2, halted=2), "2 stages before it failed or were stopped"),
        (JoinType.MULTI_MERGE, Edges(2, open=1), "1 of 2 stages before it is done and not merged"),
        (JoinType.DISCRIMINATOR, Edges(2, open=1), "1 of 2 stages before it is done, 1 needed"),
        (JoinType.N_OF_M, Edges(3, open=2), "2 of 3 stages before it are done, 2 needed"),
        (JoinType.N_OF_M, Edges(3, open=1), "1 of the 2 stages needed is done"),
    ],
)
def test_a_reason_is_a_sentence_for_one_stage_and_for_several(join: JoinType, edges: Edges, reason: str) -> None:
    assert phase_of(join, 2, edges)[1] == reason
