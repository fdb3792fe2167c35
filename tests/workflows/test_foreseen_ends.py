"""A workflow whose tasks always answer the same comes to the same end, whatever the order of its steps, whoever dies on
the way, whatever goes back or is tried again, and in a fork of it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from holdfast.errors import InvalidStateTransitionError, TaskError, TransientError
from holdfast.machine.graph import JoinType, SplitType
from holdfast.machine.run_state import Owner
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.query import Condition
from holdfast.testing.failpoints import Side
from holdfast.testing.workflow_kit import OWN_FILE, WorkflowTestKit
from holdfast.workflows.handle import WorkflowRun
from holdfast.workflows.model import Workflow
from holdfast.workflows.multi_instance import MultiInstanceConfig
from holdfast.workflows.owner import SyntheticStageOwner
from holdfast.workflows.records import ITEM, MESSAGE
from holdfast.workflows.result import TaskResult
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task_run import TaskExecution
from tests.workflows.foreseen import Ends, Foreseen
from tests.workflows.test_random_histories import check, story

S = WorkflowStatus
ANSWERS = [S.SUCCEEDED] * 5 + [S.TERMINAL, S.FAILED_CONTINUE, S.STOPPED, S.CANCELED]
PARTS = (Owner.STAGE_BEFORE, Owner.STAGE_AFTER, Owner.STAGE_ON_FAILURE)

pytestmark = pytest.mark.torture


@pytest.mark.parametrize(("url", "graphs"), [("memory://", 30), (OWN_FILE, 6)])
def test_what_a_workflow_comes_to_depends_on_nothing_but_its_stages(
    url: str, graphs: int, seed: int, size: int
) -> None:
    for number in range(graphs * size):
        random = Random(f"{seed}.{number}")
        history = History(url, random, drawn(random))
        try:
            history.play()
        finally:
            history.kit.close()


def drawn(random: Random) -> dict[str, Foreseen]:
    """A graph, and some stages that belong to others."""
    found: dict[str, Foreseen] = {}
    for ref in "abcdef"[: random.randint(1, 6)]:
        found[ref] = _stage(random, ref, [*found])
    for ref in "pqrs"[: random.choice((0, 0, 2, 4))]:
        parent, owner = random.choice([*found][:3]), random.choice(PARTS)
        kin = [one.ref for one in found.values() if (one.parent, one.owner) == (parent, owner)]
        found[ref] = part = _stage(random, ref, kin)
        part.parent, part.owner = parent, owner
        part.answer = random.choice((S.SUCCEEDED, S.TERMINAL))
    for one in found.values():
        after = [other.ref for other in found.values() if one.ref in other.before]
        if after and random.random() < 0.3:
            one.branches = {ref: random.random() < 0.5 for ref in after}
    return found


def _stage(random: Random, ref: str, earlier: list[str]) -> Foreseen:
    before = random.sample(earlier, min(len(earlier), random.randint(0, 3)))
    return Foreseen(
        ref, random.choice(ANSWERS), before, random.choice([*JoinType]), random.randint(0, len(before)),
        goes_on=random.random() < 0.1, is_disabled=random.random() < 0.05, tasks=random.choice((1, 1, 2)),
        instances=random.choice((0, 0, 0, 0, 2)),
    )  # fmt: skip


class History:
    """A run of a graph, with everything that must not matter."""

    def __init__(self, url: str, random: Random, stages: dict[str, Foreseen]) -> None:
        self.kit = WorkflowTestKit(url, seed=random.randrange(1000), workers=2)
        self.kit.workflows.registry.register("acts", self.act)
        self.random, self.stages, self.ends = random, stages, Ends(stages)
        self.noise = {ref: self._noise(ref) for ref in stages}
        self.run = self.kit.start(self._workflow())

    def _noise(self, ref: str) -> list[str]:
        """What a stage's task does at first: it fails for now, or goes back to what has run."""
        stage, random = self.stages[ref], self.random
        back = [one for one in self._before(ref) if self.ends.status[one] is not S.SKIPPED]
        words = random.sample(["later", "sleep", "again"], random.choice((0, 0, 1, 2)))
        return words + ([f"to {random.choice(back)}"] if back and not stage.instances and random.random() < 0.3 else [])

    def _before(self, ref: str) -> set[str]:
        return {ref}.union(*(self._before(one) for one in self.stages[ref].before))

    def act(self, stage: StageExecution) -> Any:
        ref = stage.ref_id.partition("#")[0]
        word = self.noise[ref].pop(0) if self.noise[ref] else ""
        if word == "later":
            raise TransientError("not now", retry_after=5.0)
        if word.startswith("to "):
            return TaskResult.jump_to(word.removeprefix("to "))
        if word:
            return TaskResult.sleep(10.0) if word == "sleep" else TaskResult.running()
        return TaskResult.builder(self.stages[ref].answer).build()

    def _workflow(self) -> Workflow:
        made = {ref: self._made(one) for ref, one in self.stages.items()}
        for ref, one in self.stages.items():
            if one.parent is not None and one.owner is not None:
                made[ref].parent_stage_id = made[one.parent].id
                made[ref].synthetic_stage_owner = SyntheticStageOwner(one.owner.value)
        return Workflow.create("shop", "foreseen", made.values(), clock=self.kit.clock)

    def _made(self, one: Foreseen) -> StageExecution:
        fields: dict[str, Any] = {}
        if one.branches is not None:
            conditions = {ref: "1 == 1" if holds else "1 == 2" for ref, holds in one.branches.items()}
            fields = {"split_type": SplitType.OR, "split_conditions": conditions}
        return StageExecution.create(
            "acts", one.ref, one.ref, tasks=[TaskExecution.create("acts", "acts") for _ in range(one.tasks)],
            requisite_stage_ref_ids=set(one.before), join_type=one.join, enabled=not one.is_disabled,
            join_threshold=one.threshold if one.join is JoinType.N_OF_M else 0, continue_on_failure=one.goes_on,
            mi_config=MultiInstanceConfig(count=one.instances) if one.instances else None,
            allow_sibling_stages_to_continue=True, **fields,
        )  # fmt: skip

    def play(self) -> None:
        for _ in range(self.random.randint(0, 15)):
            self._happen()
            check(self.kit, self.run)
        self._end(self.run)
        for act in self.random.sample(["restart", "retry", "fork"], self.random.randint(0, 3)):
            self._end(self._again(act))

    def _happen(self) -> None:
        random, kit = self.random, self.kit
        match random.choice(("turns", "turns", "time", "die", "will die", "pause", "resume", "restart")):
            case "turns":
                for _ in range(random.randint(1, 5)):
                    kit._turn()
            case "time":
                kit.skip_time()
            case "die":
                kit.crash(random.randint(0, 1))
            case "will die":
                kit.crash_at(random.randint(1, 6), random.choice([*Side]))
            case "restart":
                self._again("restart")
            case asked:
                self._ask(asked)

    def _ask(self, asked: str, *args: Any) -> WorkflowRun:
        try:
            found: WorkflowRun = getattr(self.kit.workflows, asked)(self.run.id, *args)
        except (TaskError, InvalidStateTransitionError):
            return self.run  # it said no
        return found

    def _again(self, act: str) -> WorkflowRun:
        """Again from a stage that runs by itself, or with what has failed."""
        if act == "retry":
            return self._ask(act)
        refs = [ref for ref, status in self.ends.status.items() if status is not S.SKIPPED]
        return self._ask(act, self.random.choice(refs)) if refs else self.run

    def _end(self, run: WorkflowRun) -> None:
        if run.status is S.PAUSED:
            self.kit.workflows.resume(run.id)
        for _ in range(500):
            if not self.kit.skip_time() and run.status.is_complete:
                break
        check(self.kit, run)
        stages, known = self.kit.workflows.stages(run.id), self.ends.known()
        found = {ref: stages[ref] for ref in known}
        assert (run.status, found) == (self.ends.workflow, known), (self.stages, story(self.kit, run))
        assert not self.kit.store.page(ITEM)
        assert not self.kit.store.page(MESSAGE, (Condition("dead_at", "is set"),), by="id")
