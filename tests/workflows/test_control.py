"""What operators do to workflows: pause and resume, restart and retry, skip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.errors import (
    InvalidStateTransitionError,
    PolicyError,
    StageNotFoundError,
    TaskError,
    WorkflowNotFoundError,
)
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.codec import from_json
from holdfast.store.port import Store
from holdfast.store.query import equal
from holdfast.testing.clock import ManualClock
from holdfast.views.workflows import ended_because
from holdfast.workflows.cancel import current_task_token
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.model import Workflow
from holdfast.workflows.multi_instance import MultiInstanceConfig
from holdfast.workflows.owner import SyntheticStageOwner
from holdfast.workflows.records import EVENT, ITEM
from holdfast.workflows.result import TaskResult
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task_context import current_task
from holdfast.workflows.task_run import TaskExecution
from holdfast.workflows.waiting import sleep, wait_signal
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows
from tests.workflows.journal import Journal, stage, start

S = WorkflowStatus


@pytest.fixture
def journal(flows: Workflows) -> Journal:
    return Journal(flows)


@task
def echo(value: Any) -> Any:
    return value


@workflow
def slept() -> Any:
    return echo("woken", after=sleep(60))


@workflow
def asked() -> Any:
    return echo(wait_signal("answer"))


def test_a_paused_workflow_begins_nothing_until_it_is_resumed(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    run = start(flows, stage("a"), stage("b", "a"))
    flows.pause(run.id, by="ann")
    assert (worker.run_once(), run.status, journal.ran) == (0, S.PAUSED, [])
    flows.resume(run.id)
    worker.run_once()
    assert (run.status, journal.ran) == (S.SUCCEEDED, ["a", "b"])


def test_what_runs_when_a_workflow_is_paused_ends_and_its_result_counts(
    flows: Workflows, worker: WorkflowWorker
) -> None:
    @task
    def pauses() -> str:
        here = current_task()
        assert here is not None
        flows.pause(here.workflow_id)
        return "left"

    @workflow
    def held() -> Any:
        return echo(pauses())

    run = flows.start(held)
    worker.run_once()
    assert run.status is S.PAUSED
    assert flows.stages(run.id) == {"pauses": S.SUCCEEDED, "echo": S.RUNNING}
    assert worker.run_once() == 0
    flows.resume(run.id)
    worker.run_once()
    assert run.result(0) == "left"


def test_a_workflow_whose_last_task_ends_while_it_is_paused_ends_when_it_is_resumed(
    flows: Workflows, worker: WorkflowWorker
) -> None:
    @task
    def last() -> int:
        here = current_task()
        assert here is not None
        flows.pause(here.workflow_id)
        return 1

    run = flows.start(workflow(name="only-last")(lambda: last()))
    worker.run_once()
    assert run.status is S.PAUSED
    flows.resume(run.id)
    assert run.result(0) == 1


def test_a_wait_keeps_its_time_through_a_pause(flows: Workflows, worker: WorkflowWorker, clock: ManualClock) -> None:
    run = flows.start(slept)
    worker.run_once()
    flows.pause(run.id)
    clock.advance(30)
    flows.resume(run.id)
    clock.advance(29)
    worker.run_once()
    assert flows.stages(run.id)["sleep"] is S.SUSPENDED
    clock.advance(1)
    worker.run_once()
    assert run.result(0) == "woken"


def test_a_time_that_runs_out_during_a_pause_has_run_out_when_it_ends(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    run = flows.start(slept)
    worker.run_once()
    flows.pause(run.id)
    clock.advance(3600)
    assert worker.run_once() == 0
    flows.resume(run.id)
    worker.run_once()
    assert run.result(0) == "woken"


def test_a_signal_reaches_a_paused_workflow_and_what_it_starts_is_held(
    flows: Workflows, worker: WorkflowWorker
) -> None:
    run = flows.start(asked)
    worker.run_once()
    flows.pause(run.id)
    assert flows.signal(run.id, "answer", 42)
    assert worker.run_once() == 0
    flows.resume(run.id)
    worker.run_once()
    assert run.result(0) == 42


def test_the_work_of_a_dead_worker_is_held_if_its_workflow_is_paused(
    flows: Workflows, worker_of: Any, store: Store, clock: ManualClock
) -> None:
    run = flows.start(slept)
    worker_of().run_once()
    clock.advance(60)
    [item] = store.page(ITEM, equal(workflow=run.id))
    dead = worker_of()
    dead.presence.show()
    store.claim(
        ITEM,
        equal(id=item.id),
        lambda one: one._replace(version=one.version + 1, owner=dead.presence.id, due_at=None),
        limit=1,
    )
    flows.pause(run.id)
    clock.advance(60)
    worker_of().run_once()
    assert flows.stages(run.id)["sleep"] is S.SUSPENDED
    flows.resume(run.id)
    worker_of().run_once()
    assert run.result(0) == "woken"


def test_a_paused_workflow_can_be_cancelled(flows: Workflows, worker: WorkflowWorker) -> None:
    run = flows.start(slept)
    worker.run_once()
    flows.pause(run.id)
    flows.cancel(run.id)
    assert (run.status, flows.stages(run.id)["sleep"]) == (S.CANCELED, S.CANCELED)


def test_to_pause_or_resume_twice_changes_nothing_and_what_has_ended_refuses_both(
    flows: Workflows, worker: WorkflowWorker, store: Store
) -> None:
    run = flows.start(slept)
    flows.pause(run.id, by="ann", reason="night")
    version = run.record.version
    flows.pause(run.id, by="bob")
    assert run.record.version == version
    paused = from_json(run.record.about)["paused"]
    assert (paused["paused_by"], paused["reason"]) == ("ann", "night")
    flows.resume(run.id, by="bob")
    flows.resume(run.id, by="cid")
    assert from_json(run.record.about)["paused"]["resumed_by"] == "bob"
    assert [one["type"] for one in _log(store, run.id)][-2:] == ["workflow_paused", "workflow_resumed"]
    flows.cancel(run.id)
    for act in (flows.pause, flows.resume):
        with pytest.raises(
            InvalidStateTransitionError, match=f"workflow {run.id} cannot go from CANCELED .* it has ended"
        ):
            act(run.id)
    with pytest.raises(WorkflowNotFoundError):
        flows.pause("nowhere")


def test_a_workflow_that_failed_runs_again_from_the_stage_that_is_restarted(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, store: Store
) -> None:
    journal.answers["b"] = [TaskResult.terminal("no")]
    run = start(flows, stage("a"), stage("b", "a"), stage("c", "b"))
    worker.run_once()
    assert (run.status, flows.stages(run.id)["c"]) == (S.TERMINAL, S.SKIPPED)
    flows.restart(run.id, "b", by="ann")
    assert (run.status, run.record.reason, run.record.ended_at) == (S.RUNNING, None, None)
    worker.run_once()
    assert (run.status, journal.ran) == (S.SUCCEEDED, ["a", "b", "b", "c"])
    assert {"type": "restarted", "stages": ["b"], "reset": ["b", "c"], "by": "ann"} in _log(store, run.id)


def test_a_retry_restarts_what_failed_and_what_the_failure_cut_off(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    journal.answers |= {"a": [TaskResult.terminal("no")], "w": [TaskResult.wait_signal("go")]}
    run = start(flows, stage("w"), stage("a", "w", join_type="DISCRIMINATOR"), stage("first"), stage("b", "first"))
    worker.run_once()
    flows.signal(run.id, "go")
    worker.run_once()
    assert run.status is S.TERMINAL
    again = flows.retry(run.id)
    worker.run_once()
    assert again.status is S.SUCCEEDED
    assert [journal.ran.count(ref) for ref in ("first", "b", "a")] == [1, 1, 2]


@pytest.mark.parametrize("again", ["restart", "jump"])
def test_a_stage_that_begins_anew_waits_for_a_word_of_its_own(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, again: str
) -> None:
    seen: list[object] = []
    flows.registry.register("asks", lambda stage: _asks(stage, seen))
    run = flows.start(Workflow.create("shop", "w", [_asking(), stage("b", "a")]))
    if again == "jump":
        journal.answers["b"] = [TaskResult.jump_to("a")]
    worker.run_once()
    flows.signal(run.id, "go", "old")
    worker.run_once()
    if again == "restart":
        flows.restart(run.id, "a")
        worker.run_once()
    assert (flows.stages(run.id)["a"], seen) == (S.SUSPENDED, ["old"])
    flows.signal(run.id, "go", "new")
    worker.run_once()
    assert (run.status, seen) == (S.SUCCEEDED, ["old", "new"])


def test_a_retry_goes_on_with_the_word_that_had_come(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    seen: list[object] = []
    flows.registry.register("asks", lambda stage: _asks(stage, seen, fails=1))
    run = flows.start(Workflow.create("shop", "w", [_asking()]))
    worker.run_once()
    flows.signal(run.id, "go", "yes")
    worker.run_once()
    assert run.status is S.TERMINAL
    flows.retry(run.id)
    worker.run_once()
    assert (run.status, seen) == (S.SUCCEEDED, ["yes", "yes"])


def _asking() -> StageExecution:
    return StageExecution.create("a", "a", "a", tasks=[TaskExecution.create("asks", "asks")])


def _asks(stage: StageExecution, seen: list[object], fails: int = 0) -> TaskResult:
    word = stage.context.get("signal")
    if word is None:
        return TaskResult.wait_signal("go")
    seen.append(word["data"])
    return TaskResult.terminal("no") if len(seen) <= fails else TaskResult.success()


def test_a_restart_while_a_workflow_runs_takes_back_what_is_after_it(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, store: Store
) -> None:
    journal.answers["b"] = [TaskResult.wait_signal("go")]
    run = start(flows, stage("a"), stage("b", "a"))
    worker.run_once()
    flows.restart(run.id, "a")
    assert [item.ref for item in store.page(ITEM, equal(workflow=run.id))] == ["a"]
    worker.run_once()
    assert (run.status, journal.ran) == (S.SUCCEEDED, ["a", "b", "a", "b"])


def test_a_restart_runs_the_parts_of_a_stage_again(flows: Workflows, worker: WorkflowWorker, journal: Journal) -> None:
    whole = stage("whole")
    first = stage("first", parent_stage_id=whole.id, synthetic_stage_owner=SyntheticStageOwner.STAGE_BEFORE)
    run = start(flows, whole, first)
    worker.run_once()
    flows.restart(run.id, "whole")
    worker.run_once()
    assert (run.status, journal.ran) == (S.SUCCEEDED, ["first", "whole"] * 2)


def test_a_restart_gives_the_parts_of_a_stage_all_their_jumps_again(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    whole = stage("whole")
    owned = {"parent_stage_id": whole.id, "synthetic_stage_owner": SyntheticStageOwner.STAGE_BEFORE}
    run = start(flows, whole, stage("first", max_jumps=1, **owned))
    for _ in range(2):
        journal.answers["first"] = [TaskResult.jump_to("first", outputs={"old": True}), TaskResult.success()]
        worker.run_once()
        assert run.status is S.SUCCEEDED
        flows.restart(run.id, "whole")
        assert flows.workflow(run.id).stage("first").outputs == {}


def test_a_stage_that_is_not_there_is_named_with_twenty_that_are(flows: Workflows, journal: Journal) -> None:
    run = start(flows, *(stage(f"s{number:02}") for number in range(30)))
    asked: list[Callable[[], Any]] = [
        lambda: flows.restart(run.id, "z"), lambda: flows.skip(run.id, "z"), lambda: flows.cancel_stage(run.id, "z"),
        lambda: flows.add_instances(run.id, "z"), lambda: flows.jump(run.id, "z", "s01"),
        lambda: flows.signal(run.id, "go", stage="z"), lambda: flows.workflow(run.id).stage("z"),
    ]  # fmt: skip
    for ask in asked:
        with pytest.raises(StageNotFoundError, match=r"has no stage 'z'; there are s00, .*, s19 and 10 more$"):
            ask()
    with pytest.raises(WorkflowNotFoundError) as caught:
        flows.skip("nobody", "z")
    assert not isinstance(caught.value, StageNotFoundError)


def test_what_cannot_be_restarted_says_why(flows: Workflows, worker: WorkflowWorker, journal: Journal) -> None:
    journal.answers["a"] = [TaskResult.wait_signal("go")]
    run = start(flows, stage("a"), stage("b", "a"))
    worker.run_once()
    with pytest.raises(TaskError, match="'a' is SUSPENDED"):
        flows.restart(run.id, "a")
    with pytest.raises(TaskError, match="no stage of it has failed"):
        flows.retry(run.id)
    with pytest.raises(StageNotFoundError, match=r"no stage 'z'; there are a, b"):
        flows.restart(run.id, "z")
    flows.cancel(run.id)
    for again in (lambda: flows.restart(run.id, "a"), lambda: flows.retry(run.id)):
        with pytest.raises(InvalidStateTransitionError) as caught:
            again()
        said = f"workflow {run.id} cannot go from CANCELED to RUNNING: it has ended; fork it to run it again"
        assert str(caught.value) == said


def test_the_idempotency_key_of_a_restarted_task_is_a_new_one(flows: Workflows, worker: WorkflowWorker) -> None:
    @task
    def named() -> str:
        here = current_task()
        assert here is not None
        return here.idempotency_key

    run = flows.start(workflow(name="only-named")(lambda: named()))
    worker.run_once()
    first = run.result(0)
    flows.restart(run.id, "named")
    worker.run_once()
    assert (first, run.result(0)) == (f"{run.id}.named.1.0", f"{run.id}.named.2.0")


def test_a_stage_is_skipped_when_its_turn_comes(flows: Workflows, worker: WorkflowWorker, journal: Journal) -> None:
    run = start(flows, stage("a"), stage("b", "a"), stage("c", "b"))
    flows.skip(run.id, "b", by="ann")
    assert flows.stages(run.id)["b"] is S.NOT_STARTED
    worker.run_once()
    assert (run.status, journal.ran, flows.stages(run.id)["b"]) == (S.SUCCEEDED, ["a", "c"], S.SKIPPED)


def test_a_stage_that_waits_can_be_skipped_and_the_rest_goes_on(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, store: Store
) -> None:
    journal.answers["a"] = [TaskResult.wait_signal("never")]
    run = start(flows, stage("a"), stage("b", "a"))
    worker.run_once()
    flows.skip(run.id, "a")
    worker.run_once()
    assert (run.status, journal.ran) == (S.SUCCEEDED, ["a", "b"])
    assert store.page(ITEM, equal(workflow=run.id)) == []
    with pytest.raises(TaskError, match="SKIPPED"):
        flows.skip(run.id, "a")


@pytest.mark.parametrize(
    ("act", "status", "ended"),
    [
        ("skip", S.SKIPPED, S.SUCCEEDED),
        ("cancel_stage", S.CANCELED, S.TERMINAL),
        ("signal", S.SUCCEEDED, S.SUCCEEDED),
    ],
)
def test_one_of_several_instances_is_skipped_cancelled_or_signalled_by_itself(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, act: str, status: WorkflowStatus, ended: WorkflowStatus
) -> None:
    journal.answers["many"] = [TaskResult.wait_signal("go")] * 3
    run = start(flows, stage("many", mi_config=MultiInstanceConfig(count=3)), stage("end", "many"))
    worker.run_once()
    if act == "signal":
        assert flows.signal(run.id, "go", stage="many#1.1") is True
    else:
        getattr(flows, act)(run.id, "many#1.1", by="ann", reason="enough")
    worker.run_once()
    stands = {one.ref_id: one.status for one in flows.workflow(run.id).stages}
    others = S.CANCELED if act == "cancel_stage" else S.SUSPENDED  # all three of them were to end well
    assert stands["many#1.1"] is status
    assert {stands["many#1.0"], stands["many#1.2"]} == {others}
    if act != "cancel_stage":
        flows.signal(run.id, "go")
        flows.signal(run.id, "go")
        worker.run_once()
    assert run.status is ended
    now = flows.state_at(run.id, run.record.version)
    assert {ref: one.status for ref, one in now.stages.items()} == {
        one.ref_id: one.status for one in flows.workflow(run.id).stages
    }


def test_what_cannot_be_done_to_an_instance_says_why(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    journal.answers["many"] = [TaskResult.wait_signal("go")] * 2
    run = start(flows, stage("many", mi_config=MultiInstanceConfig(count=2)), stage("end", "many"))
    worker.run_once()
    flows.signal(run.id, "go", stage="many#1.1")
    worker.run_once()
    with pytest.raises(TaskError, match=r"'many#1.0' is one of several instances, which cannot jump"):
        flows.jump(run.id, "many#1.0", "end")
    with pytest.raises(TaskError, match=r"'many#1.1' is a part of 'many'; restart that one"):
        flows.restart(run.id, "many#1.1")
    with pytest.raises(TaskError, match=r"'many#1.1' .* is SUCCEEDED; what has ended"):
        flows.skip(run.id, "many#1.1")
    for ref in ("many#1.2", "many#2.0", "end#1.0"):
        with pytest.raises(StageNotFoundError, match=f"no stage '{ref}'"):
            flows.skip(run.id, ref)


def test_a_workflow_that_has_not_begun_is_neither_paused_nor_resumed(flows: Workflows, journal: Journal) -> None:
    limit = {"pipeline_config_id": "one", "is_limit_concurrent": True, "max_concurrent_executions": 1}
    start(flows, stage("a"), **limit)
    waits = start(flows, stage("a"), **limit)
    stored = flows.keep(Workflow.create("shop", "made", [stage("a")]))
    for run, status in ((waits, S.BUFFERED), (stored, S.NOT_STARTED)):
        for act in (flows.pause, flows.resume):
            with pytest.raises(InvalidStateTransitionError, match=rf"workflow {run.id} .* from {status.value} to"):
                act(run.id)
        assert (run.status, len(flows.log(run.id))) == (status, 1)


def test_why_somebody_asked_for_something_is_in_the_log(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    journal.answers["a"] = [TaskResult.terminal("no")]
    journal.answers["b"] = [TaskResult.wait_signal("go")] * 3
    run = start(flows, stage("a", allow_sibling_stages_to_continue=True), stage("b"), stage("c", "b"), stage("d"))
    worker.run_once()
    flows.pause(run.id, by="ann", reason="stocktaking")
    flows.resume(run.id, by="ann", reason="all counted")
    flows.retry(run.id, by="ann", reason="bank is back")
    worker.run_once()
    flows.restart(run.id, "a", by="ann", reason="wrong sum")
    worker.run_once()
    flows.skip(run.id, "c", by="ann", reason="nobody waits")
    flows.cancel_stage(run.id, "b", by="ann", reason="no answer")
    told = {one.type: one.facts for one in flows.log(run.id) if one.facts.get("by") == "ann"}
    assert {kind: facts["reason"] for kind, facts in told.items()} == {
        "workflow_paused": "stocktaking", "workflow_resumed": "all counted", "restarted": "wrong sum",
        "skip_asked": "nobody waits", "cancel_asked": "no answer",
    }  # fmt: skip
    restarts = [one.facts["reason"] for one in flows.log(run.id) if one.type == "restarted"]
    assert restarts == ["bank is back", "wrong sum"]
    now = flows.state_at(run.id, run.record.version)
    assert (now.status, {ref: one.status for ref, one in now.stages.items()}) == (run.status, flows.stages(run.id))


def test_a_stage_that_somebody_has_ended_says_who_and_why(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    journal.answers |= {ref: [TaskResult.wait_signal("go")] for ref in "abcd"}
    run = start(flows, *map(stage, "abcd"))
    worker.run_once()
    flows.skip(run.id, "a", by="ann", reason="nobody waits")
    flows.skip(run.id, "b", by="ann")
    flows.cancel_stage(run.id, "c", by="bob", reason="no answer")
    flows.cancel_stage(run.id, "d", by="bob")
    ended = {one.ref_id: ended_because(one) for one in flows.workflow(run.id).stages}
    assert ended == {
        "a": "manual: skipped by ann: nobody waits", "b": "manual: skipped by ann",
        "c": "canceled by bob: no answer", "d": "canceled by bob",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b"])
def test_a_reason_that_no_store_could_keep_is_kept_without_what_none_can(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, text: str
) -> None:
    journal.answers["many"] = [TaskResult.wait_signal("go")] * 8
    acts: list[Callable[[str], Any]] = [
        lambda id: flows.cancel(id, text, by=text), lambda id: flows.pause(id, by=text, reason=text),
        lambda id: flows.cancel_stage(id, "many#1.0", by=text, reason=text),
        lambda id: flows.resume(flows.pause(id).id, by=text, reason=text),
        lambda id: flows.fork(flows.cancel(id).id, "many", by=text, reason=text),
    ]  # fmt: skip
    for act in acts:
        run = start(flows, stage("many", mi_config=MultiInstanceConfig(count=1)))
        worker.run_once()
        told = [one.facts for one in flows.log(act(run.id).id) if one.facts.get("reason") == "a\ufffdb"]
        assert [facts["by"] for facts in told if "by" in facts] == ["a\ufffdb"]


def test_who_gives_no_reason_leaves_none_in_the_log(flows: Workflows, journal: Journal) -> None:
    run = start(flows, stage("a"), stage("b", "a"))
    flows.pause(run.id)
    flows.resume(run.id)
    flows.skip(run.id, "b")
    flows.cancel_stage(run.id, "a")
    asked = [one.facts for one in flows.log(run.id) if "by" in one.facts]
    assert asked == [{"by": "anonymous"}] * 4


def _log(store: Store, id: str) -> list[dict[str, Any]]:
    return [one for record in store.page(EVENT, equal(workflow=id), by="id") for one in from_json(record.events)]


def test_who_hears_late_that_a_workflow_had_ended_leaves_the_tasks_of_its_restart_alone(
    flows: Workflows, worker: WorkflowWorker
) -> None:
    cut: list[bool] = []

    @task
    def looks() -> None:
        worker.cut(run.id, "its workflow has ended")
        cut.append(current_task_token().cancelled)

    @workflow
    def once() -> Any:
        return looks()

    run = flows.start(once)
    worker.run_once()
    flows.restart(run.id, "looks")
    worker.run_once()
    assert (run.status, cut) == (S.SUCCEEDED, [False, False])


@pytest.mark.parametrize(
    "act",
    [
        lambda flows, id: flows.pause(id, by=7),
        lambda flows, id: flows.resume(id, by=7),
        lambda flows, id: flows.cancel(id, by=7),
        lambda flows, id: flows.restart(id, "a", by=7),
    ],
)
def test_who_acts_is_a_text(flows: Workflows, act: Callable[[Workflows, str], Any]) -> None:
    run = flows.start(workflow(name="acted on")(lambda: sleep(60, ref="a")))
    with pytest.raises(PolicyError, match="by must be a text, got 7"):
        act(flows, run.id)


def test_workflows_are_pruned_before_a_time(flows: Workflows) -> None:
    with pytest.raises(PolicyError, match="prune takes the time before which they ended, a datetime, got 30"):
        flows.prune(30)  # type: ignore[arg-type]
