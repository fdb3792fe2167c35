"""Random workflows under random operators, signals, time and crashes: whatever happens, each stays legal and ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.errors import InvalidStateTransitionError, StageNotFoundError, TaskError, WorkflowDefinitionError
from holdfast.machine.ends import edge_now, rests
from holdfast.machine.graph import count_edges
from holdfast.machine.instances import names_of
from holdfast.machine.run_state import Part, StagePlan, StageState
from holdfast.machine.workflow import ACTIVE, WorkflowStatus
from holdfast.store.query import among, equal
from holdfast.testing.failpoints import Side
from holdfast.testing.workflow_kit import WorkflowTestKit
from holdfast.workflows.handle import WorkflowRun
from holdfast.workflows.records import ITEM, MESSAGE, STAGE, WAITING, WORKFLOW, ItemRecord, stage_state
from holdfast.workflows.recovery import RecoveryStatus, WorkflowRecovery
from holdfast.workflows.stage import StageExecution
from tests.conftest import SIZE
from tests.workflows.random_graphs import CHILD, PARTS, REFS, SIGNALS, TIDY, answered, child, scripts, workflows

S = WorkflowStatus
MOST_SKIPS = 500
MOST_RUNS = 6
BEGUN = ACTIVE - {S.NOT_STARTED}
_NEXT = ("run", "wait", "start", "limit", "child")
"""Items of a stage that is under way, and not of one that is over."""


class Histories(RuleBasedStateMachine):
    """One or two workflows, two workers, and everybody who can interfere."""

    @initialize(seed=st.integers(0, 1000), script=scripts())
    def begin(self, seed: int, script: dict[str, list[str]]) -> None:
        self.kit = WorkflowTestKit(seed=seed, workers=2)
        self.script = script
        self.kit.workflows.registry.register("acts", self.act)
        self.kit.workflows.add(child, CHILD)
        self.kit.workflows.finalizers.add(lambda: None, TIDY)

    def act(self, stage: StageExecution) -> Any:
        words = self.script[stage.context.get("script", stage.ref_id.partition("#")[0])]
        return answered(words.pop(0) if words else "success")

    def teardown(self) -> None:
        if hasattr(self, "kit"):
            try:
                self.come_to_an_end()
            finally:
                self.kit.close()

    @property
    def runs(self) -> list[WorkflowRun]:
        """Those that were started, forked, and started by stages."""
        return [self.kit.workflows.get(one.id) for one in self.kit.store.page(WORKFLOW, by="created_at", limit=1000)]

    @precondition(lambda self: len(self.kit.runs) < 2)
    @rule(flow=workflows())
    def start(self, flow: Any) -> None:
        assume(flow is not None)
        try:
            self.kit.start(flow)
        except WorkflowDefinitionError:
            assume(False)  # its stages would wait for each other

    @precondition(lambda self: self.kit.runs)
    @rule(data=st.data(), ref=st.sampled_from(REFS))
    def fork(self, data: st.DataObject, ref: str) -> None:
        if len(self.runs) < MOST_RUNS:
            self.operate(data, lambda run: self.kit.workflows.fork(run.id, ref))

    @rule(number=st.integers(1, 5))
    def some_turns(self, number: int) -> None:
        for _ in range(number):
            self.kit._turn()

    @rule()
    def all_that_is_due(self) -> None:
        self.kit.run_until_idle()

    @rule()
    def time_passes(self) -> None:
        self.kit.skip_time()

    @rule(worker=st.integers(0, 1))
    def a_worker_dies(self, worker: int) -> None:
        self.kit.crash(worker)

    @rule(number=st.integers(1, 6), side=st.sampled_from(Side))
    def a_worker_will_die(self, number: int, side: Side) -> None:
        self.kit.crash_at(number, side)

    @precondition(lambda self: self.kit.runs)
    @rule(data=st.data(), name=st.sampled_from(SIGNALS))
    def signal(self, data: st.DataObject, name: str) -> None:
        self.operate(data, lambda run: self.kit.signal(run, name, 1))

    @precondition(lambda self: self.kit.runs)
    @rule(data=st.data(), what=st.sampled_from(["pause", "resume", "cancel", "retry"]))
    def steer(self, data: st.DataObject, what: str) -> None:
        self.operate(data, lambda run: getattr(self.kit.workflows, what)(run.id))

    @precondition(lambda self: self.kit.runs)
    @rule(data=st.data(), what=st.sampled_from(["restart", "skip", "cancel_stage"]), ref=st.sampled_from(REFS + PARTS))
    def steer_a_stage(self, data: st.DataObject, what: str, ref: str) -> None:
        def act(run: WorkflowRun) -> Any:
            if ref in self.kit.workflows.stages(run.id):
                getattr(self.kit.workflows, what)(run.id, ref)

        self.operate(data, act)

    @precondition(lambda self: self.kit.runs)
    @rule(data=st.data(), ref=st.sampled_from(REFS))
    def add_an_instance(self, data: st.DataObject, ref: str) -> None:
        def act(run: WorkflowRun) -> Any:
            if ref in self.kit.workflows.stages(run.id):
                self.kit.workflows.add_instances(run.id, ref, {"n": 1})

        self.operate(data, act)

    @precondition(lambda self: self.kit.runs)
    @rule(data=st.data(), ref=st.sampled_from(REFS + PARTS), to=st.sampled_from(REFS + PARTS))
    def jump(self, data: st.DataObject, ref: str, to: str) -> None:
        def act(run: WorkflowRun) -> Any:
            if ref in self.kit.workflows.stages(run.id):
                self.kit.workflows.jump(run.id, ref, to)

        self.operate(data, act)

    @rule()
    def look_for_what_is_missing(self) -> None:
        for one in WorkflowRecovery(self.kit.workflows.store).recover_pending_workflows():
            assert one.status is RecoveryStatus.SKIPPED, one

    def operate(self, data: st.DataObject, act: Any) -> None:
        try:
            act(data.draw(st.sampled_from(self.runs)))
        except (TaskError, InvalidStateTransitionError, StageNotFoundError):
            pass  # it said no, and that is an answer

    @invariant()
    def every_workflow_is_legal(self) -> None:
        for run in self.runs if hasattr(self, "kit") else ():
            check(self.kit, run)

    def come_to_an_end(self) -> None:
        """Whoever is asked for a signal gets it; what is paused is resumed; then everything ends."""
        for _ in range(MOST_SKIPS):
            left = [run for run in self.runs if not run.status.is_complete]
            if not left:
                break
            for run in left:
                if run.status is S.PAUSED:
                    self.kit.workflows.resume(run.id)
            if self.kit.skip_time():
                continue
            for run in left:
                self.help(run)
        while self.kit.skip_time():
            pass  # what is left to be done for workflows that have ended
        for run in self.runs:
            check(self.kit, run)
            assert run.status.is_complete, story(self.kit, run)
        assert self.kit.store.page(ITEM) == []
        assert self.kit.store.page(WAITING) == []
        assert self.kit.store.page(MESSAGE) == []  # nor is anything there that nobody could do

    def help(self, run: WorkflowRun) -> None:
        for name in SIGNALS:
            if not run.status.is_complete:
                self.kit.signal(run, name, 1)
        for ref, status in self.kit.workflows.stages(run.id).items():
            stage = self.kit.store.get(STAGE, [f"{run.id}.{ref}"])[0]
            if status is S.RUNNING and '"instances"' in stage.state and not run.status.is_complete:
                self.kit.workflows.skip(run.id, ref)  # it waits for instances that nobody will add


def check(kit: WorkflowTestKit, run: WorkflowRun) -> None:
    record = run.record
    past = kit.workflows.state_at(run.id, record.version)
    stages = kit.workflows.stages(run.id)
    assert past.status is run.status, story(kit, run)
    assert {ref: past.stages[ref].status for ref in stages} == stages, story(kit, run)
    items = kit.store.page(ITEM, (*equal(workflow=run.id), among("kind", _NEXT)), limit=1000)
    if run.status in (S.NOT_STARTED, S.BUFFERED):
        return
    if run.status.is_complete:
        assert record.live == 0, story(kit, run)
        assert not items, story(kit, run)
        assert not [ref for ref, one in stages.items() if one.is_active], story(kit, run)
        return
    assert record.live > 0 or run.status is S.PAUSED, story(kit, run)  # what ends in a pause ends with it
    blueprint = kit.workflows._blueprints.of([record.definition])[record.definition]
    found = {
        one.ref: stage_state(blueprint.plan.stages[one.ref], one)
        for one in kit.store.page(STAGE, equal(workflow=run.id), limit=1000)
    }
    for ref, stage in found.items():
        own = [one for one in items if one.ref == ref]
        assert is_carried(stage, blueprint.plan.stages, found, own), (ref, story(kit, run))
        if stage.plan.parent is None:
            assert has_heard(stage, found), (ref, stage.edges, story(kit, run))


def is_carried(
    stage: StageState, plans: Mapping[str, StagePlan], found: dict[str, StageState], items: list[ItemRecord]
) -> bool:
    """Whether a stage that is under way has work to be done, waits for something with a name, or has a part that is
    under way."""
    current = [one for one in items if one.incarnation == stage.incarnation]
    if stage.status is S.SUSPENDED:
        return stage.wait is not None and any(one.kind in ("wait", "child") for one in current)
    if stage.status is S.BUFFERED:
        return any(one.kind == "start" for one in current) or bool(stage.reason)
    if stage.status is not S.RUNNING:
        return True
    if stage.part is Part.TASKS:
        return any(one.kind == "run" for one in current)
    if stage.part is Part.INSTANCES:
        config = stage.plan.instances
        waits = config is not None and config.allow_dynamic
        return waits or any(found[ref].status.is_active for ref in names_of(stage) if ref in found)
    parts = [(ref, found.get(ref)) for refs in stage.plan.children.values() for ref in refs]
    if any(part is not None and (rests(part) or part.status in BEGUN) for _, part in parts):
        return True
    return any(waits_elsewhere(plans[ref], found) for ref, part in parts if part is None or part.status.is_active)


def waits_elsewhere(part: StagePlan, found: dict[str, StageState]) -> bool:
    """Whether a part has not begun because of a stage that is none."""
    return any(one not in found or found[one].status.is_active for one in part.before)


def has_heard(stage: StageState, found: dict[str, StageState]) -> bool:
    """Whether a stage has counted the ends of those before it, and no other ones."""
    ref, before = stage.plan.ref, [found[one] for one in stage.plan.before if one in found]
    if any(one.plan.parent is not None for one in before):
        return True  # a part that goes with its stage tells nobody
    earlier = [one for one in before if ref in one.told]
    counted = count_edges((one, edge_now(one, ref)) for one in before if one not in earlier)
    edges = stage.edges
    if not earlier:
        return edges == counted._replace(total=edges.total)
    return edges.total - edges.active == counted.total - counted.active + len(earlier)


def story(kit: WorkflowTestKit, run: WorkflowRun) -> str:
    stages = {ref: status.value for ref, status in kit.workflows.stages(run.id).items()}
    return f"{run.record.status} live={run.record.live} {stages} {kit.workflows.work(run.id)} {kit.log(run)}"


TestHistories = pytest.mark.torture(Histories.TestCase)
TestHistories.settings = settings(
    max_examples=40 * SIZE, stateful_step_count=25, suppress_health_check=[*HealthCheck], deadline=None
)
