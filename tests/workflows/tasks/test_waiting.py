"""Tasks that wait: they say until when, and are called again then."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.errors import ConfigurationError, TaskError
from holdfast.machine.workflow import WorkflowStatus
from holdfast.testing import WorkflowTestKit
from holdfast.testing.clock import ManualClock
from holdfast.workflows.functions import workflow
from holdfast.workflows.model import Workflow
from holdfast.workflows.result import TaskResult
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task import Task
from holdfast.workflows.task_run import TaskExecution
from holdfast.workflows.tasks.waiting import ApprovalTask, NoopTask, WaitTask
from holdfast.workflows.waiting import wait_signal
from tests.workflows.tasks.stages import stage


def executed(task: Task, of: StageExecution) -> TaskResult:
    """A call of the task, with what it leaves in the context, as the engine does it."""
    result = task.execute(of)
    assert isinstance(result, TaskResult)
    of.context.update(result.context)
    return result


def signalled(of: StageExecution, name: str = "approval", **data: Any) -> None:
    of.context["signal"] = {"name": name, "data": data}


def test_noop_succeeds() -> None:
    assert NoopTask().execute(stage()) == TaskResult.success()


def test_a_wait_is_one_timer_and_not_a_poll() -> None:
    clock, one = ManualClock(), stage(seconds=90)
    end = clock.wall() + timedelta(seconds=90)
    first = executed(WaitTask(clock), one)
    assert (first.status, first.wake_at) == (WorkflowStatus.SUSPENDED, end)
    clock.advance(90)
    assert executed(WaitTask(clock), one).status is WorkflowStatus.SUCCEEDED


def test_a_wait_that_is_woken_early_waits_for_the_rest() -> None:
    clock, one = ManualClock(), stage(seconds=90)
    end = executed(WaitTask(clock), one).wake_at
    clock.advance(50)
    again = executed(WaitTask(clock), one)
    assert (again.status, again.wake_at) == (WorkflowStatus.SUSPENDED, end)


def test_a_wait_in_a_loop_waits_in_every_round() -> None:
    clock, one = ManualClock(), stage(seconds=90)
    executed(WaitTask(clock), one)
    clock.advance(90)
    assert executed(WaitTask(clock), one).status is WorkflowStatus.SUCCEEDED
    one.incarnation += 1
    assert executed(WaitTask(clock), one).wake_at == clock.wall() + timedelta(seconds=90)


def test_a_wait_may_end_at_a_time() -> None:
    clock = ManualClock()
    later = clock.wall() + timedelta(days=100)
    assert executed(WaitTask(clock), stage(until=later.isoformat())).wake_at == later
    assert executed(WaitTask(clock), stage(until=later.replace(tzinfo=None).isoformat())).wake_at == later
    assert executed(WaitTask(clock), stage(until="2001-01-01T00:00:00Z")).status is WorkflowStatus.SUCCEEDED


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "either 'seconds' or 'until'"),
        ({"seconds": 1, "until": "2030-01-01"}, "either 'seconds' or 'until'"),
        ({"seconds": -1}, "seconds must be a number of seconds above 0, got -1"),
        ({"seconds": 1e15}, "seconds is beyond the calendar"),
        ({"until": "tomorrow"}, "until must be a time such as 2030-01-31T08:00:00Z, got 'tomorrow'"),
    ],
)
def test_a_wrong_wait_is_refused_by_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        WaitTask(ManualClock()).execute(stage(**settings))


def test_an_approval_waits_for_its_signal() -> None:
    result = executed(ApprovalTask(), stage(approval_timeout=60, on_timeout="STOPPED"))
    assert (result.status, result.signal) == (WorkflowStatus.SUSPENDED, "approval")
    assert (result.wake_after, result.on_timeout) == (60, WorkflowStatus.STOPPED)
    assert executed(ApprovalTask(), stage(approval_signal="go")).signal == "go"
    assert executed(ApprovalTask(), stage()).wake_after is None


def test_an_approval_tells_who_gave_it() -> None:
    one = stage()
    executed(ApprovalTask(), one)
    signalled(one, approved=True, user="ann", comment="fine")
    assert executed(ApprovalTask(), one) == TaskResult.success({"approved": True, "user": "ann", "comment": "fine"})


def test_a_rejection_fails_the_task_unless_it_is_an_answer() -> None:
    one = stage()
    executed(ApprovalTask(), one)
    signalled(one, approved=False, user="ann", comment="too early")
    assert executed(ApprovalTask(), one) == TaskResult.terminal("rejected by ann: too early")
    one.context["fail_on_reject"] = False
    assert executed(ApprovalTask(), one).outputs["approved"] is False


def test_an_approval_of_an_earlier_round_does_not_count() -> None:
    one = stage()
    executed(ApprovalTask(), one)
    signalled(one, approved=True)
    executed(ApprovalTask(), one)
    one.incarnation += 1
    assert executed(ApprovalTask(), one).status is WorkflowStatus.SUSPENDED
    assert executed(ApprovalTask(), one).status is WorkflowStatus.SUSPENDED


def test_another_signal_is_no_approval() -> None:
    one = stage()
    executed(ApprovalTask(), one)
    signalled(one, "other", approved=True)
    assert executed(ApprovalTask(), one).status is WorkflowStatus.SUSPENDED


def test_a_signal_must_say_what_it_means() -> None:
    one = stage()
    executed(ApprovalTask(), one)
    signalled(one, approved="yes")
    with pytest.raises(ConfigurationError, match="must say approved: true or false"):
        ApprovalTask().execute(one)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"approval_timeout": 0}, "approval_timeout must be a number of seconds"),
        ({"on_timeout": "RUNNING"}, "on_timeout must be one of"),
        ({"fail_on_reject": "no"}, "fail_on_reject must be true or false"),
        ({"approval_signal": ""}, "approval_signal must be a text"),
    ],
)
def test_a_wrong_approval_is_refused_by_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ApprovalTask().execute(stage(**settings))


def approving(kit: WorkflowTestKit, **settings: Any) -> Any:
    kit.workflows.registry.register("approval", ApprovalTask())
    word = StageExecution.create("a", "a", "a", tasks=[TaskExecution.create("a", "approval")], context=settings)
    run = kit.start(Workflow.create("shop", "word", [word]))
    kit.run_until_idle()
    return run


def test_somebody_approves_a_workflow_and_the_stages_after_it_know_who() -> None:
    with WorkflowTestKit() as kit:
        run = approving(kit)
        assert kit.workflows.approve(run.id, user="ann", comment="fine", signal_id="click-1")
        assert not kit.workflows.approve(run.id, user="ann", comment="fine", signal_id="click-1")  # the same click
        kit.finish(run)
        left = kit.workflows.workflow(run.id).stage("a").outputs
        assert left == {"approved": True, "user": "ann", "comment": "fine"}


def test_somebody_rejects_a_workflow_which_fails_with_his_words() -> None:
    with WorkflowTestKit() as kit:
        run = approving(kit)
        assert kit.workflows.reject(run.id, user="bob", comment="too dear")
        kit.run_until_idle()
        assert (run.status, run.record.reason) == (WorkflowStatus.TERMINAL, "rejected by bob: too dear")


def test_a_rejected_workflow_that_is_retried_asks_again() -> None:
    with WorkflowTestKit() as kit:
        run = approving(kit)
        kit.workflows.reject(run.id, user="bob", comment="too dear")
        kit.run_until_idle()
        kit.workflows.retry(run.id, by="ann")
        kit.run_until_idle()
        assert kit.workflows.stages(run.id)["a"] is WorkflowStatus.SUSPENDED
        assert kit.workflows.approve(run.id, user="bob")
        kit.run_until_idle()
        assert run.status is WorkflowStatus.SUCCEEDED


def test_a_retry_of_what_failed_after_an_approval_does_not_ask_again() -> None:
    with WorkflowTestKit() as kit:
        answers = [TaskResult.terminal("no"), TaskResult.success()]
        kit.workflows.registry.register("approval", ApprovalTask())
        kit.workflows.registry.register("deploy", lambda _: answers.pop(0))
        tasks = [TaskExecution.create(name, name) for name in ("approval", "deploy")]
        run = kit.start(Workflow.create("shop", "word", [StageExecution.create("a", "a", "a", tasks=tasks)]))
        kit.run_until_idle()
        kit.workflows.approve(run.id, user="bob")
        kit.run_until_idle()
        assert run.status is WorkflowStatus.TERMINAL
        kit.workflows.retry(run.id)
        kit.run_until_idle()
        assert run.status is WorkflowStatus.SUCCEEDED


def test_a_rejection_can_be_an_answer_too() -> None:
    with WorkflowTestKit() as kit:
        run = approving(kit, fail_on_reject=False)
        kit.workflows.reject(run.id)
        kit.finish(run)
        left = kit.workflows.workflow(run.id).stage("a").outputs
        assert left == {"approved": False, "user": "anonymous", "comment": None}


def test_a_word_that_comes_early_is_kept_and_one_of_another_name_is_none() -> None:
    with WorkflowTestKit() as kit:
        run = approving(kit, approval_signal="release")
        assert not kit.workflows.approve(run.id)
        assert kit.workflows.approve(run.id, "release", stage="a")
        kit.finish(run)
        with pytest.raises(TaskError, match="SUCCEEDED"):
            kit.workflows.reject(run.id, "release")


def test_a_function_that_waits_for_the_signal_gets_the_word() -> None:
    with WorkflowTestKit() as kit:
        run = kit.start(workflow(name="asks")(lambda: wait_signal("approval")))
        kit.run_until_idle()
        kit.workflows.reject(run.id, user="ann")
        assert kit.finish(run) == {"approved": False, "user": "ann", "comment": None}
