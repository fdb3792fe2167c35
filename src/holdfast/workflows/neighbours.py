"""Who comes before and after whom among the stages of a workflow, as they are now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from holdfast.machine.graph import ordered
from holdfast.workflows.owner import SyntheticStageOwner

if TYPE_CHECKING:
    from holdfast.workflows.stage import StageExecution


class Neighbours:
    """The edges between stages. A stage that is named and not there is left out."""

    __slots__ = ("_by_id", "_by_ref", "_parts")

    def __init__(self, stages: Iterable[StageExecution]) -> None:
        self._by_ref = {stage.ref_id: stage for stage in stages}
        self._by_id = {stage.id: stage for stage in self._by_ref.values()}
        self._parts: dict[str, list[StageExecution]] = {}
        for stage in self._by_ref.values():
            if stage.parent_stage_id is not None:
                self._parts.setdefault(stage.parent_stage_id, []).append(stage)

    def upstream(self, stage: StageExecution) -> list[StageExecution]:
        """The stages right before it, by name."""
        return [self._by_ref[ref] for ref in sorted(stage.requisite_stage_ref_ids) if ref in self._by_ref]

    def downstream(self, stage: StageExecution) -> list[StageExecution]:
        """The stages right after it, by name."""
        found = [one for one in self._by_ref.values() if stage.ref_id in one.requisite_stage_ref_ids]
        return sorted(found, key=lambda one: one.ref_id)

    def ancestors(self, stage: StageExecution) -> list[StageExecution]:
        """All stages that come before it, each after those before it, and by name where that leaves it open."""
        found: dict[str, StageExecution] = {}
        left = list(self._right_before(stage))
        while left:
            one = left.pop()
            if one.ref_id not in found and one is not stage:
                found[one.ref_id] = one
                left.extend(self._right_before(one))
        edges = {
            ref: [before.ref_id for before in self._right_before(one) if before.ref_id in found]
            for ref, one in found.items()
        }
        return [found[ref] for ref in ordered(edges)]

    def _right_before(self, stage: StageExecution) -> Iterator[StageExecution]:
        for part in self._parts.get(stage.id, ()):
            if part.synthetic_stage_owner == SyntheticStageOwner.STAGE_BEFORE:
                yield from self._whole(part)
        yield from self._outside(stage)

    def _outside(self, stage: StageExecution) -> Iterator[StageExecution]:
        """What comes before a stage, without what belongs to it."""
        for one in self.upstream(stage):
            yield from self._whole(one)
        parent = self._by_id.get(stage.parent_stage_id or "")
        if parent is None:
            return
        if stage.synthetic_stage_owner == SyntheticStageOwner.STAGE_BEFORE:
            yield from self._outside(parent)
        else:
            yield parent

    def _whole(self, stage: StageExecution) -> Iterator[StageExecution]:
        """A stage and all that belongs to it."""
        yield stage
        for part in self._parts.get(stage.id, ()):
            yield from self._whole(part)
