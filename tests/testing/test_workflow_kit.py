"""The kit for testing workflows: no threads, no waiting, the order of a seed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from holdfast.errors import TaskError, TransientError
from holdfast.guard.retry import Retry
from holdfast.machine.workflow import WorkflowStatus
from holdfast.testing import WorkflowTestKit
from holdfast.workflows.finalizers import get_finalizer_registry
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.messages import SkipStage
from holdfast.workflows.task_context import current_task
from holdfast.workflows.transactions import current_session
from holdfast.workflows.waiting import sleep, wait_signal
from tests.conftest import Threads

S = WorkflowStatus


@pytest.fixture
def kit() -> Iterator[WorkflowTestKit]:
    with WorkflowTestKit() as kit:
        yield kit


@task
def double(number: int) -> int:
    return 2 * number


@task
async def later(number: int) -> int:
    return number


@workflow
def monthly(number: int) -> Any:
    doubled = double(number)
    slept = sleep(timedelta(days=30), after=[doubled])
    return later(doubled, after=[slept])


def test_a_workflow_that_sleeps_for_a_month_ends_at_once_and_without_a_thread(
    kit: WorkflowTestKit, begun_threads: Threads
) -> None:
    begun = kit.clock.wall()
    assert kit.finish(kit.start(monthly, 4)) == 8
    assert kit.clock.wall() - begun >= timedelta(days=30)
    assert not begun_threads()


def test_nothing_happens_by_itself(kit: WorkflowTestKit) -> None:
    run = kit.start(monthly, 4)
    assert kit.ran == []
    kit.run_until_idle()
    assert [task.ref for task in kit.ran] == ["double", "sleep"]
    assert kit.workflows.stages(run.id)["sleep"] is S.SUSPENDED
    kit.advance(timedelta(days=29))
    assert run.status is S.RUNNING
    kit.advance(timedelta(days=1, seconds=1))
    assert run.status is S.SUCCEEDED
    assert kit.log(run)[-2:] == ["stage_ended later", "workflow_ended"]


def test_time_goes_from_one_timer_to_the_next(kit: WorkflowTestKit) -> None:
    moments: list[float] = []

    @task
    def note(_: Any) -> None:
        moments.append(kit.clock.monotonic())

    @workflow
    def naps() -> Any:
        return [note(sleep(10)), note(sleep(20))]

    begun = kit.clock.monotonic()
    kit.start(naps)
    kit.advance(60)
    assert [round(at - begun, 3) for at in moments] == [10.0, 20.0]
    assert not kit.skip_time()


def test_a_workflow_that_waits_for_a_signal_says_so(kit: WorkflowTestKit) -> None:
    run = kit.start(workflow(name="asks")(lambda: wait_signal("approved")))
    with pytest.raises(AssertionError, match=r"does not go on by itself; .* waits for signal 'approved'"):
        kit.finish(run)
    assert kit.signal(run, "approved", "yes")
    assert kit.finish(run) == "yes"


def test_a_workflow_that_nobody_can_run_says_so(kit: WorkflowTestKit) -> None:
    run = kit.start(workflow(name="orphan")(lambda: double(1)))
    del kit.workflows.tasks["double"]
    with pytest.raises(AssertionError, match=r"nobody takes double \(double\)"):
        kit.finish(run)


def test_a_workflow_that_never_ends_is_given_up(kit: WorkflowTestKit) -> None:
    @task
    def never() -> None:
        raise TransientError("not yet", retry_after=60)

    run = kit.start(workflow(name="never")(lambda: never()))
    with pytest.raises(AssertionError, match="has not ended within 120 s"):
        kit.finish(run, within=120)


def test_a_failure_is_told_as_the_engine_tells_it(kit: WorkflowTestKit) -> None:
    @task
    def broken() -> None:
        raise ValueError("it is broken")

    with pytest.raises(TaskError, match="is TERMINAL: it is broken"):
        kit.finish(kit.start(workflow(name="breaks")(lambda: broken())))


def test_what_fails_a_test_inside_of_a_task_fails_the_test(kit: WorkflowTestKit) -> None:
    kit.start(workflow(name="fails")(lambda: task(name="fails")(lambda: pytest.fail("inside"))()))
    with pytest.raises(pytest.fail.Exception, match="inside"):
        kit.run_until_idle()


def test_a_task_that_takes_too_long_on_the_kits_clock_is_cut(kit: WorkflowTestKit) -> None:
    @task(timeout=5)
    def slow() -> None:
        kit.clock.sleep(60)

    with pytest.raises(TaskError, match="took longer than 5 s"):
        kit.finish(kit.start(workflow(name="slow")(lambda: slow())))


def test_guards_of_the_kit_guard_tasks(kit: WorkflowTestKit) -> None:
    calls: list[int] = []

    @task(guard="bank")
    def charge() -> int:
        calls.append(1)
        if len(calls) < 3:
            raise ConnectionError
        return len(calls)

    kit.hold.guard("bank", Retry(attempts=3))
    assert kit.finish(kit.start(workflow(name="guarded")(lambda: charge()))) == 3


def orders(seed: int | None) -> list[str]:
    with WorkflowTestKit(seed=seed, workers=2) as kit:
        flow = workflow(name="wide")(lambda: [double(number) for number in range(6)])
        assert kit.finish(kit.start(flow)) == [0, 2, 4, 6, 8, 10]
        return [task.ref for task in kit.ran]


def test_finalizers_run_without_a_thread_and_their_time_is_the_kits(
    kit: WorkflowTestKit, begun_threads: Threads
) -> None:
    called = list[str]()

    @kit.workflows.finalizers.add
    def remove(path: str) -> None:
        called.append(path)
        if len(called) == 1:
            raise OSError("busy")

    @kit.workflows.finalizers.add
    async def slow() -> None:
        called.append("slow")
        kit.clock.advance(31)

    @task
    def unpack() -> None:
        here = current_task()
        assert here is not None
        here.finalize("remove", path="a")
        here.finalize("slow")

    run = kit.start(workflow(name="tidy")(lambda: unpack()))
    kit.finish(run)
    assert called == ["a", "slow"]
    while kit.skip_time():  # what failed is tried again, later each time
        pass
    assert called == ["a", "slow", "a", "slow", "slow", "slow"]
    states = {one.name: (one.state, one.last_error) for one in kit.workflows.finalizers.find(run.id)}
    assert states["remove"] == ("DONE", None)
    assert states["slow"] == ("FAILED", "TaskTimeoutError: finalizer 'slow' took longer than 30 s")
    assert not begun_threads()


def test_a_callback_dies_with_its_worker(kit: WorkflowTestKit) -> None:
    called: list[str] = []

    @task
    def opens() -> None:
        here = current_task()
        assert here is not None
        get_finalizer_registry().register(f"{here.workflow_id}.opens", "close", lambda: called.append("callback"))
        kit.crash_at(1, "after")  # the end of its stage is stored

    run = kit.start(workflow(name="opening")(lambda: opens()))
    kit.finish(run)
    assert (kit.crashes, called) == (1, [])
    assert [one.state for one in kit.workflows.finalizers.find(run.id)] == ["LOST"]


def test_a_workflow_in_a_workflow_skips_its_time_too(kit: WorkflowTestKit, begun_threads: Threads) -> None:
    assert kit.finish(kit.start(workflow(name="outer")(lambda: double(monthly(4))))) == 16
    assert kit.workflows.counts() == {S.SUCCEEDED: 2}
    assert not begun_threads()


def test_time_goes_from_tick_to_tick_of_a_schedule_without_a_thread(
    kit: WorkflowTestKit, begun_threads: Threads
) -> None:
    kit.workflows.schedule("nightly", monthly, [4], cron="0 3 * * *", overlap="queue")
    kit.run_until_idle()
    assert kit.workflows.counts() == {}
    assert kit.skip_time()
    assert (kit.clock.wall().hour, kit.clock.wall().minute) == (3, 0)
    assert kit.workflows.counts() == {S.RUNNING: 1}
    kit.advance(timedelta(days=2))
    assert kit.workflows.counts() == {S.RUNNING: 1, S.BUFFERED: 2}
    kit.workflows.schedules.pause("nightly")
    while kit.skip_time():
        pass
    assert kit.workflows.counts() == {S.SUCCEEDED: 3}
    assert not begun_threads()


def test_what_follows_from_a_message_is_due_at_once(kit: WorkflowTestKit) -> None:
    run = kit.start(monthly, 4)
    kit.run_until_idle()
    kit.workflows.queue.push(SkipStage(execution_id=run.id, stage_id="sleep"))
    kit.run_until_idle()
    assert run.result(0) == 4 * 2


def test_transactional_tasks_run_on_a_database_and_a_crash_undoes_what_they_wrote(tmp_path: Path) -> None:
    entries = sa.Table("entries", sa.MetaData(), sa.Column("key", sa.String(100)))

    @task(effect="transactional")
    def book() -> int:
        current_session().execute(entries.insert().values(key="k"))
        if not kit.crashes:
            kit.crash_at(1, "after")  # the step is written, and not committed
        return 5

    with WorkflowTestKit(f"sqlite:///{tmp_path}/kit.db") as kit:
        with kit.hold.sessions() as session, session.begin():
            entries.create(session.connection())
        assert kit.finish(kit.start(workflow(name="books")(lambda: book()))) == 5
        with kit.hold.sessions() as session:
            written = list(session.scalars(sa.select(entries.c.key)))
        assert (kit.crashes, len(kit.ran), written) == (1, 2, ["k"])


def test_a_seed_decides_the_order_and_repeats_it() -> None:
    assert orders(None) == orders(None) == ["double", *(f"double-{number}" for number in range(2, 7))]
    assert orders(3) == orders(3)
    assert len({tuple(orders(seed)) for seed in range(10)}) > 5


def test_a_race_is_found_by_shuffling() -> None:
    def last_of(seed: int) -> str:
        seen: list[str] = []

        @task
        def add(name: str) -> None:
            seen.append(name)

        with WorkflowTestKit(seed=seed) as kit:
            kit.finish(kit.start(workflow(name="race")(lambda: [add("left"), add("right")])))
        return seen[-1]

    assert {last_of(seed) for seed in range(20)} == {"left", "right"}


def test_what_a_dead_worker_had_begun_is_run_again_and_what_it_had_done_is_not(kit: WorkflowTestKit) -> None:
    run = kit.start(monthly, 4)
    kit.crash_at(5)  # when the first step is to be written down
    assert kit.finish(run) == 8
    assert kit.crashes == 1
    assert [task.ref for task in kit.ran].count("double") == 2
    kit.crash()
    assert [task.ref for task in kit.ran].count("later") == 1


def test_the_kit_works_on_a_database(tmp_path: Path) -> None:
    with WorkflowTestKit(f"sqlite:///{tmp_path}/kit.db") as kit:
        run = kit.start(monthly, 4)
        kit.crash_at(3)
        assert kit.finish(run) == 8


def test_a_kit_may_have_a_database_of_its_own_which_goes_with_it() -> None:
    with WorkflowTestKit("sqlite://") as kit, WorkflowTestKit("sqlite://") as other:
        file = Path(kit.hold.store.url.removeprefix("sqlite:///"))
        assert kit.finish(kit.start(workflow(name="own")(lambda: double(1)))) == 2
        assert file.exists()
        assert other.workflows.counts() == {}
    assert not file.parent.exists()


def test_bad_values_are_refused() -> None:
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        WorkflowTestKit(workers=0)
    with WorkflowTestKit() as kit, pytest.raises(ValueError, match="counts from 1, got 0"):
        kit.crash_at(0)
