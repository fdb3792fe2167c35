"""The graph of a workflow: which edges there are, and whether a stage may start.

A stage looks at the stages before it only through `Edges`, four numbers that whoever completes a stage can keep up to
date without reading any other: so the cost of a join does not grow with what is joined. `evaluate_readiness` counts
them from the stages themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

from holdfast.core.members import members
from holdfast.errors import WorkflowDefinitionError
from holdfast.machine.workflow import ACTIVE, CONTINUABLE, HALTED, S, WorkflowStatus


class JoinType(StrEnum):
    """How many of the stages before it a stage waits for."""

    AND = "AND"
    OR = "OR"
    """All that their splits have activated."""
    DISCRIMINATOR = "DISCRIMINATOR"
    """The first."""
    N_OF_M = "N_OF_M"
    MULTI_MERGE = "MULTI_MERGE"
    """Each one anew."""


class SplitType(StrEnum):
    """Which of the stages after it a stage activates."""

    AND = "AND"
    OR = "OR"
    """Those whose condition holds."""


class SkipCause(StrEnum):
    """Why a stage was skipped, which decides what that means to those after it."""

    PRUNED = "pruned"
    """No branch led to it: the edge is dead."""
    UPSTREAM_FAILED = "upstream_failed"
    """It could not run: it halts what comes after it as well."""
    DISABLED = "disabled"
    MANUAL = "manual"
    JUMPED = "jumped"
    EXPIRED = "expired"
    """It could not start in time."""
    WITHDRAWN = "withdrawn"
    """Another stage has taken its place, or ended its region: the edge is dead."""


class PredicatePhase(StrEnum):
    """Whether a stage may start."""

    READY = "READY"
    NOT_READY = "NOT_READY"
    SKIP = "SKIP"
    """It cannot run any more."""
    PRUNE = "PRUNE"
    """No branch leads to it."""
    UNDEFINED = "UNDEFINED"
    """It cannot be told: something is missing or unknown."""


@dataclass(frozen=True, slots=True)
class ReadinessResult:
    """Whether a stage may start, and why."""

    phase: PredicatePhase
    reason: str = ""
    failed_upstream_ids: tuple[str, ...] = ()
    active_upstream_ids: tuple[str, ...] = ()


class Edge(StrEnum):
    """What a stage before means to the one after it."""

    ACTIVE = "active"
    OPEN = "open"
    """It has come to a good end, as far as the one after it is concerned."""
    HALTED = "halted"
    DEAD = "dead"


# For what every step asks; elsewhere the enumerations themselves will do.
EDGE: Final = members(Edge)
JOIN: Final = members(JoinType)
SPLIT: Final = members(SplitType)
PHASE: Final = members(PredicatePhase)
SKIP: Final = members(SkipCause)


class Edges(NamedTuple):
    """How many stages before a stage mean what to it; what is in none of these numbers is active."""

    total: int
    open: int = 0
    halted: int = 0
    dead: int = 0

    @property
    def live(self) -> int:
        return self.total - self.dead

    @property
    def active(self) -> int:
        return self.total - self.dead - self.open - self.halted

    def counting(self, edge: Edge) -> Edges:
        """With one more stage that has ended."""
        total, open, halted, dead = self
        # A wide join has so many of these, one after the other, that none is worth keeping.
        made = edges if total <= _FEW else Edges
        if edge is EDGE.OPEN:
            return made(total, open + 1, halted, dead)
        if edge is EDGE.HALTED:
            return made(total, open, halted + 1, dead)
        if edge is EDGE.DEAD:
            return made(total, open, halted, dead + 1)
        return self


_FEW: Final = 16
edges: Final = lru_cache(maxsize=1024)(Edges)
"""The numbers of most stages are the same, and worth no object each."""


class UpstreamLike(Protocol):
    """What is asked of a stage by those after it."""

    @property
    def status(self) -> WorkflowStatus: ...
    @property
    def skip_cause(self) -> str | None: ...
    @property
    def activated(self) -> Sequence[str] | None:
        """The stages that its split has chosen; None: all."""
        ...


class StageLike(UpstreamLike, Protocol):
    """What is asked of a stage here."""

    @property
    def id(self) -> str: ...
    @property
    def ref_id(self) -> str: ...
    @property
    def requisite_stage_ref_ids(self) -> Iterable[str]: ...
    @property
    def join_type(self) -> Any: ...
    @property
    def join_threshold(self) -> int: ...
    @property
    def split_type(self) -> Any: ...
    @property
    def merges(self) -> int:
        """How often its join has fired."""
        ...


_JOINS: Final = frozenset(JoinType)


def edge_of(upstream: UpstreamLike, ref_id: str) -> Edge:
    """What a stage means to the one after it."""
    status = upstream.status
    if status in HALTED:
        return EDGE.HALTED
    if status is S.SKIPPED and upstream.skip_cause == SKIP.UPSTREAM_FAILED:
        return EDGE.HALTED
    if status is S.SKIPPED and upstream.skip_cause in (SKIP.PRUNED, SKIP.WITHDRAWN):
        return EDGE.DEAD
    if status in CONTINUABLE:
        return EDGE.OPEN if upstream.activated is None or ref_id in upstream.activated else EDGE.DEAD
    return EDGE.ACTIVE


def phase_of(join: JoinType, threshold: int, edges: Edges, fired: int = 0) -> tuple[PredicatePhase, str]:
    """Whether a stage with these edges may start (again), and why; `fired` is how often it has already."""
    total, open, halted, dead = edges
    if total == 0:
        ready = fired == 0
        return (PHASE.READY, "nothing comes before it") if ready else (PHASE.NOT_READY, "has begun")
    if total <= dead:
        return PHASE.PRUNE, "no branch leads to it"
    wanted = threshold if join is JOIN.N_OF_M and threshold > 0 else None
    if join is JOIN.AND or join is JOIN.OR or (join is JOIN.N_OF_M and wanted is None):
        if halted:
            return PHASE.SKIP, f"{_stages(halted)} before it failed or {_were(halted)} stopped"
        if active := total - dead - open:
            return PHASE.NOT_READY, _not_ended(active)
        return _once(fired, "all stages before it are done")
    if join is JOIN.MULTI_MERGE:
        if edges.open > fired:
            new = edges.open - fired
            return PHASE.READY, f"{new} of {edges.live} stages before it {_are(new)} done and not merged"
        if edges.halted == edges.live:
            return PHASE.SKIP, "all stages before it failed or were stopped"
        return PHASE.NOT_READY, _not_ended(edges.active)
    needed = wanted or 1
    if edges.open >= needed:
        return _once(fired, f"{edges.open} of {edges.live} stages before it {_are(edges.open)} done, {needed} needed")
    if edges.open + edges.active < needed:
        return PHASE.SKIP, f"only {edges.open + edges.active} of the {needed} stages needed can still succeed"
    return PHASE.NOT_READY, f"{edges.open} of the {needed} stages needed {_are(edges.open)} done"


def evaluate_readiness(
    stage: StageLike, upstream_stages: Iterable[StageLike | None], jump_bypass: bool = False
) -> ReadinessResult:
    """Whether a stage may start, judging by the stages before it. Pure.

    A stage that it names and that is not given makes the answer UNDEFINED, and so does an unknown join type.
    """
    given = [one for one in upstream_stages if one is not None]
    edges = [(one, edge_of(one, stage.ref_id)) for one in given]
    failed = tuple(one.id for one, edge in edges if edge is EDGE.HALTED)
    active = tuple(one.id for one in given if one.status in ACTIVE)

    def result(phase: PredicatePhase, reason: str) -> ReadinessResult:
        return ReadinessResult(phase, reason, failed, active)

    if jump_bypass:
        return result(PHASE.READY, "a jump leads here")
    missing = sorted(set(stage.requisite_stage_ref_ids) - {one.ref_id for one in given})
    if missing:
        return result(PHASE.UNDEFINED, f"stage {missing[0]!r}, which comes before it, was not given")
    if stage.join_type not in _JOINS:
        return result(PHASE.UNDEFINED, f"unknown join type {stage.join_type!r}; known are {', '.join(JoinType)}")
    return result(*phase_of(JoinType(stage.join_type), stage.join_threshold, count_edges(edges), stage.merges))


def count_edges(edges: Iterable[tuple[Any, Edge]]) -> Edges:
    counted = Edges(0)
    for _, edge in edges:
        counted = counted._replace(total=counted.total + 1).counting(edge)
    return counted


def check_graph(requisites: Mapping[str, Sequence[str]], thresholds: Mapping[str, int] | None = None) -> None:
    """Raises WorkflowDefinitionError for a graph that can never be run: what is wrong, and where."""
    earlier: set[str] = set()
    is_in_order = True
    for ref, before in requisites.items():
        if ref in before:
            raise WorkflowDefinitionError("self_edge", f"stage {ref!r} waits for itself", (ref,))
        for name in before:
            if name not in requisites:
                raise WorkflowDefinitionError(
                    "unknown_ref", f"stage {ref!r} waits for {name!r}, which is not there", (name,)
                )
        wanted = (thresholds or {}).get(ref, 0)
        if wanted > len(before):
            raise WorkflowDefinitionError(
                "unreachable_join", f"stage {ref!r} waits for {wanted} of {len(before)} stages before it", (ref,)
            )
        is_in_order = is_in_order and earlier.issuperset(before)
        earlier.add(ref)
    # Where each stage is named after those that it waits for, as in the body of a function, there is no way round.
    if not is_in_order and (members := cycle_in(requisites)):
        way = " → ".join([*members, members[0]])
        raise WorkflowDefinitionError("cycle", f"stages wait for each other: {way}", tuple(members))


def ordered(requisites: Mapping[str, Sequence[str]]) -> list[str]:
    """The stages with each one after those before it, and by name where the graph leaves it open."""
    from heapq import heapify, heappop, heappush

    waiting = {ref: len(set(before)) for ref, before in requisites.items()}
    after = downstream(requisites)
    free = [ref for ref, number in waiting.items() if number == 0]
    heapify(free)
    found = []
    while free:
        ref = heappop(free)
        found.append(ref)
        for child in after[ref]:
            waiting[child] -= 1
            if waiting[child] == 0:
                heappush(free, child)
    return found


def downstream(requisites: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The stages right after each stage, in the order of the definition."""
    after: dict[str, list[str]] = {ref: [] for ref in requisites}
    for ref, before in requisites.items():
        for name in dict.fromkeys(before):
            after[name].append(ref)
    return after


def cycle_in(requisites: Mapping[str, Sequence[str]]) -> list[str]:
    """The members of one cycle, each waiting for the one before it; none: there is no cycle."""
    left = {ref: set(before) for ref, before in requisites.items()}
    for ref in ordered(requisites):
        left.pop(ref)
    if not left:
        return []
    way, at = [], min(left)
    while at not in way:
        way.append(at)
        at = min(name for name in left[at] if name in left)
    return way[way.index(at) :][::-1]


def _stages(number: int) -> str:
    return f"{number} stage{'' if number == 1 else 's'}"


def _not_ended(number: int) -> str:
    return f"{_stages(number)} before it {'has' if number == 1 else 'have'} not ended"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _were(number: int) -> str:
    return "was" if number == 1 else "were"


def _once(fired: int, reason: str) -> tuple[PredicatePhase, str]:
    return (PHASE.NOT_READY, "has begun already") if fired else (PHASE.READY, reason)
