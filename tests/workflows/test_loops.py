"""Loops: stages that are run again and again, by jumps, from the body of a workflow and as stages of a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ConfigurationError, TaskError, TransientError, WorkflowDefinitionError
from holdfast.machine.workflow import WorkflowStatus
from holdfast.testing import ManualClock, WorkflowTestKit, crash_matrix
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.loops import repeat_until, while_loop
from holdfast.workflows.model import Workflow
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task_context import current_task
from holdfast.workflows.task_run import TaskExecution
from holdfast.workflows.tasks.loop import LoopSettings, LoopTask
from holdfast.workflows.waiting import sleep, wait_signal
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows

S = WorkflowStatus
DOWN: set[str] = set()
KEYS: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_is_down() -> None:
    DOWN.clear()
    KEYS.clear()


@task
def less(number: int, by: int = 1) -> int:
    here = current_task()
    if here is not None:
        KEYS.append(here.idempotency_key)
    if f"at {number}" in DOWN:
        raise ValueError(f"down at {number}")
    return number - by


@task
def is_positive(number: int) -> bool:
    return number > 0


@workflow
def count_down(number: int) -> Any:
    return while_loop("value > 0", less, number)


@workflow
def at_least_once(number: int) -> Any:
    return repeat_until(less, "value <= 0", number)


def refs(flows: Workflows, id: str) -> dict[str, str]:
    return {ref: status.value for ref, status in flows.stages(id).items()}


@pytest.mark.parametrize(("number", "rounds"), [(3, 3), (1, 1), (0, 0)])
def test_a_while_loop_goes_on_for_as_long_as_its_condition_holds_perhaps_never(
    flows: Workflows, worker: WorkflowWorker, number: int, rounds: int
) -> None:
    run = flows.start(count_down, number)
    worker.run_once()
    assert (run.result(0), len(KEYS)) == (0, rounds)
    assert refs(flows, run.id) == {
        "while_loop-begin": "SUCCEEDED", "while_loop-check": "SUCCEEDED", "less": "SKIPPED", "while_loop": "SUCCEEDED",
    }  # fmt: skip


@pytest.mark.parametrize(("number", "rounds"), [(3, 3), (0, 1)])
def test_repeat_until_ends_when_its_condition_holds_for_what_a_round_has_left(
    flows: Workflows, worker: WorkflowWorker, number: int, rounds: int
) -> None:
    run = flows.start(at_least_once, number)
    worker.run_once()
    assert (run.result(0), len(KEYS)) == (number - rounds, rounds)


def test_every_round_has_keys_of_its_own_and_a_retry_within_one_keeps_them(
    flows: Workflows, worker: WorkflowWorker
) -> None:
    run = flows.start(count_down, 4)
    DOWN.add("at 2")
    worker.run_once()
    assert (run.status, len(KEYS), len(set(KEYS))) == (S.TERMINAL, 3, 3)
    DOWN.clear()
    flows.retry(run.id)
    worker.run_once()
    assert (run.result(0), KEYS[2] == KEYS[3], len(set(KEYS))) == (0, True, 4)  # it went on in the third round


def test_a_loop_that_is_restarted_begins_with_its_first_round(flows: Workflows, worker: WorkflowWorker) -> None:
    run = flows.start(count_down, 10)  # as many as it may go
    worker.run_once()
    assert run.result(0) == 0
    flows.restart(run.id, "while_loop-begin")
    worker.run_once()
    assert (run.result(0), len(KEYS), len(set(KEYS))) == (0, 20, 20)
    flows.restart(run.id, "while_loop")
    worker.run_once()
    assert (run.result(0), len(KEYS)) == (0, 20)


def test_a_fork_from_the_midst_of_a_loop_goes_on_with_its_round(flows: Workflows, worker: WorkflowWorker) -> None:
    run = flows.start(count_down, 4)
    DOWN.add("at 2")
    worker.run_once()
    DOWN.clear()
    other = flows.fork(run.id, "less")
    worker.run_once()
    assert (other.result(0), len(KEYS)) == (0, 3 + 2)


def test_a_condition_may_be_a_task(flows: Workflows, worker: WorkflowWorker) -> None:
    @task
    def is_over(number: int) -> bool:
        return number <= 0

    first = flows.start(workflow(name="a")(lambda n: while_loop(is_positive, less, n)), 2)
    other = flows.start(workflow(name="b")(lambda n: repeat_until(less, is_over, n)), 2)
    worker.run_once()
    assert (first.result(0), other.result(0), len(KEYS)) == (0, 0, 4)


def test_the_body_may_be_several_tasks_that_wait_and_take_what_is_outside(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    @task
    def step() -> int:
        here = current_task()
        assert here is not None
        steps.append(here.idempotency_key)
        return 2

    @task
    def both(one: int, other: int) -> int:
        return min(one, other)

    steps: list[str] = []

    @workflow
    def polled(number: int) -> Any:
        by = step()

        def round(value: Any) -> Any:
            rested = sleep(60)
            return both(less(value, by, after=rested), less(value, ref="beside"))

        last = repeat_until(round, "value <= 0", number, ref="poll")
        return less(last)

    run = flows.start(polled, 3)
    for round in (1, 2):
        worker.run_once()
        assert flows.stages(run.id)["sleep"] is S.SUSPENDED, round
        clock.advance(60)
    worker.run_once()
    assert (run.result(0), len(steps), len(set(KEYS))) == (-2, 1, 5)
    inside = {one.ref_id: one for one in flows.workflow(run.id).stages}
    assert inside["poll-begin"].requisite_stage_ref_ids == {"step"}
    assert {ref: one.incarnation for ref, one in inside.items() if ref in ("less", "step", "poll")} == {
        "step": 1, "less": 2, "poll": 2,
    }  # fmt: skip


def test_the_body_may_be_a_workflow_of_which_each_round_starts_one(flows: Workflows, worker: WorkflowWorker) -> None:
    @workflow
    def pay(number: int) -> Any:
        return less(number)

    run = flows.start(workflow(name="pays")(lambda n: while_loop("value > 0", pay, n)), 3)
    worker.run_once()
    assert (run.result(0), len(flows.find(parent=run.id))) == (0, 3)


def test_a_signal_in_each_round(flows: Workflows, worker: WorkflowWorker) -> None:
    @workflow
    def asks() -> Any:
        return repeat_until(lambda _: wait_signal("word"), "value == 'enough' or round == 9", "")

    run = flows.start(asks)
    for word in ("more", "more", "enough"):
        worker.run_once()
        assert flows.signal(run.id, "word", word)
    worker.run_once()
    assert run.result(0) == "enough"


def test_a_loop_in_a_loop_begins_anew_in_each_round_of_it(flows: Workflows, worker: WorkflowWorker) -> None:
    @workflow
    def nested(rounds: int) -> Any:
        def outer(value: Any) -> Any:
            zero = while_loop("value > 0", less, 7, max_rounds=7)
            return less(value, after=zero)

        return while_loop("value > 0", outer, rounds, max_rounds=5)

    run = flows.start(nested, 5)
    worker.run_once()
    assert (run.result(0), len(KEYS), len(set(KEYS))) == (0, 5 * 8, 5 * 8)


@pytest.mark.parametrize("made", [count_down, at_least_once])
def test_a_loop_fails_after_as_many_rounds_as_it_may_go(flows: Workflows, worker: WorkflowWorker, made: Any) -> None:
    fits, endless = flows.start(made, 10), flows.start(made, 11)
    worker.run_once()
    assert (fits.result(0), endless.status, len(KEYS)) == (0, S.TERMINAL, 20)
    assert endless.record.reason == ("the loop has gone 10 rounds, which is as many as it may; give it more max_rounds")


@given(st.integers(-2, 12), st.integers(1, 9), st.sampled_from([while_loop, repeat_until]))
def test_a_loop_of_stages_comes_to_what_a_loop_of_calls_does(number: int, most: int, kind: Any) -> None:
    """Outside of a workflow a loop is one."""

    def looped(value: Any) -> Any:
        given: tuple[Any, Any] = ("value > 0", less) if kind is while_loop else (less, "value <= 0 or round == 6")
        return kind(*given, value, max_rounds=most)

    def came_to(call: Callable[[], Any]) -> Any:
        KEYS.clear()
        try:
            return call()
        except TaskError:
            return "too many rounds"

    with WorkflowTestKit() as kit:
        run = kit.start(workflow(name="looped")(looped), number)
        assert came_to(lambda: kit.finish(run)) == came_to(lambda: looped(number))


def test_a_loop_bears_a_crash_at_every_durable_point() -> None:
    @workflow
    def counted(number: int) -> Any:
        return less(while_loop("value > 0", less, number))

    report = crash_matrix(counted, 2)
    assert (report.findings, len(report.rows) > 10) == ([], True)


@pytest.mark.parametrize(
    ("loop", "code"),
    [
        (lambda n: while_loop("value >", less, n), "bad_expression"),
        (lambda n: while_loop("less(value)", less, n), "bad_expression"),
        (lambda n: while_loop("valeu > 0", less, n), "bad_expression"),
        (lambda n: repeat_until(less, "value == 0 or rounds > 3", n), "bad_expression"),
        (lambda n: while_loop(7, less, n), "bad_arguments"),  # type: ignore[arg-type]  # what is tested
        (lambda n: while_loop("value > 0", lambda value: value, n), "no_stages"),
        (lambda n: [while_loop("value > 0", less, n, ref="one"), less(n, ref="one")], "duplicate_ref"),
        (lambda n: [while_loop("value > 0", less, n, ref="one"), less(n, ref="one-begin")], "duplicate_ref"),
    ],
)
def test_a_loop_that_cannot_be_is_refused(flows: Workflows, loop: Any, code: str) -> None:
    with pytest.raises(WorkflowDefinitionError) as refused:
        flows.start(workflow(name="loop")(loop), 3)
    assert refused.value.code == code


def test_a_stage_outside_must_not_take_what_a_round_leaves(flows: Workflows) -> None:
    @workflow
    def leaks(number: int) -> Any:
        leaked: list[Any] = []

        def body(value: Any) -> Any:
            leaked.append(less(value))
            return leaked[0]

        while_loop("value > 0", body, number)
        return less(leaked[0])

    with pytest.raises(WorkflowDefinitionError, match="'less-2' waits for 'less', which every round") as refused:
        flows.start(leaks, 3)
    assert refused.value.code == "inside_of_loop"


@pytest.mark.parametrize("most", [0, 1.5, None])
def test_the_number_of_rounds_is_a_whole_number(most: Any) -> None:
    with pytest.raises(WorkflowDefinitionError, match="max_rounds must be a whole number"):
        while_loop("value > 0", less, 3, max_rounds=most)


def looping(ref: str, *before: str, does: str = "count", **context: Any) -> StageExecution:
    tasks = [TaskExecution.create(does, does)]
    return StageExecution.create(does, ref, ref, tasks=tasks, requisite_stage_ref_ids=set(before), context=context)


@pytest.fixture
def counted(flows: Workflows) -> list[tuple[str, int]]:
    """What the stages of models have counted: the stage, and the page that it was given."""
    seen: list[tuple[str, int]] = []

    def count(stage: StageExecution) -> dict[str, Any]:
        page = stage.context.get("page", 1)
        seen.append((stage.ref_id, page))
        return {"next": page + 1}

    flows.registry.register("count", count)
    flows.registry.register("loop", LoopTask())
    return seen


def test_a_loop_task_goes_back_until_its_condition_holds_and_carries_along_what_it_is_told(
    flows: Workflows, worker: WorkflowWorker, counted: list[tuple[str, int]]
) -> None:
    run = flows.start(
        Workflow.create("shop", "pages", [
            looping("fetch"),
            looping(
                "again", "fetch", does="loop", back_to="fetch", repeat_until="next > 3", carry={"page": "next"}
            ),
            looping("done", "again"),
        ])
    )  # fmt: skip
    worker.run_once()
    assert (run.status, counted) == (S.SUCCEEDED, [("fetch", 1), ("fetch", 2), ("fetch", 3), ("done", 4)])


@pytest.mark.parametrize(("most", "fetched"), [(3, [1, 2]), (1, [])])
def test_loop_tasks_at_both_ends_make_a_loop_that_may_not_run_at_all(
    flows: Workflows, worker: WorkflowWorker, counted: list[tuple[str, int]], most: int, fetched: list[int]
) -> None:
    run = flows.start(
        Workflow.create("shop", "pages", context={"most": most}, stages=[
            looping("head", does="loop", page=1, repeat_while="page < most", leave_to="done", carry={"page": "page"}),
            looping("fetch", "head"),
            looping("tail", "fetch", does="loop", back_to="head", carry={"page": "next"}),
            looping("done", "tail"),
        ])
    )  # fmt: skip
    worker.run_once()
    assert (run.status, [page for ref, page in counted if ref == "fetch"]) == (S.SUCCEEDED, fetched)


def test_a_loop_task_goes_back_at_most_as_often_as_its_stage_may_jump(
    flows: Workflows, worker: WorkflowWorker, counted: list[tuple[str, int]]
) -> None:
    again = looping("again", "fetch", does="loop", back_to="fetch")
    again.max_jumps = 3
    run = flows.start(Workflow.create("shop", "pages", [looping("fetch"), again]))
    worker.run_once()
    assert (run.status, len(counted)) == (S.TERMINAL, 4)
    assert "has jumped 3 times" in str(run.record.reason)
    flows.restart(run.id, "fetch")  # who asks for it gets all of them again
    worker.run_once()
    assert (run.status, len(counted)) == (S.TERMINAL, 8)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "needs 'back_to', 'leave_to' or both"),
        ({"back_to": ""}, "back_to must be a text"),
        ({"back_to": "a", "repeat_while": "x", "repeat_until": "y"}, "either repeat_while or repeat_until"),
        ({"back_to": "a", "carry": ["page"]}, "carry must be a mapping"),
        ({"back_to": "a", "carry": {"page": 7}}, "carry must be a mapping"),
    ],
)
def test_a_wrong_loop_task_is_refused_by_name(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        LoopSettings(**settings)


def test_a_task_that_is_refused_for_now_is_tried_again_within_its_round(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    calls: list[tuple[int, str]] = []

    @task
    def flaky(number: int) -> int:
        here = current_task()
        assert here is not None
        calls.append((number, here.idempotency_key))
        if len(calls) % 2:
            raise TransientError("not now", retry_after=5)
        return number - 1

    run = flows.start(workflow(name="flakily")(lambda n: while_loop("value > 0", flaky, n)), 2)
    for _ in range(3):
        worker.run_once()
        clock.advance(5)
    assert run.result(0) == 0
    assert [number for number, _ in calls] == [2, 2, 1, 1]
    assert len({key for _, key in calls}) == 2
