"""Guards around tasks: what a refusal parks, for how long, and what wakes it; what reaches the task and the guard."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    Breaker,
    Bulkhead,
    Holdfast,
    Hub,
    RateLimit,
    Retry,
    StageExecution,
    TaskExecution,
    TransientError,
    Workflow,
    WorkflowStatus,
    consecutive,
    current_idempotency_key,
    current_task,
    remaining_time,
    task,
    workflow,
)
from holdfast.testing import ManualClock
from holdfast.workflows.worker import WorkflowWorker
from tests.stores import fresh_url

S = WorkflowStatus


class Bank:
    """A task behind a guard, and how often it was called."""

    def __init__(self, hold: Holdfast, *policies: Any, **options: Any) -> None:
        self.hold = hold
        self.guard = hold.guard("bank", *policies)
        self.calls: list[int] = []
        self.down = False

        @task(guard="bank", **options)
        def pay() -> str:
            here = current_task()
            assert here is not None
            self.calls.append(here.attempt)
            if self.down:
                raise TransientError("away", retry_after=1)
            return "paid"

        @workflow
        def paying() -> Any:
            return pay()

        self.paying = paying
        hold.workflows.register(pay)

    def open(self) -> None:
        """Have the breaker open, by calls of others."""
        while self.guard.circuit.state == "closed":
            with pytest.raises(OSError, match="away"):
                self.guard.call(_away)


def _away() -> None:
    raise OSError("away")


def test_an_open_breaker_parks_a_task_and_that_costs_no_attempt(hold: Holdfast, clock: ManualClock) -> None:
    bank = Bank(hold, Breaker(consecutive(2), open_for=100), retry=Retry(attempts=1))
    bank.open()
    run, worker = hold.workflows.start(bank.paying), hold.workflows.worker()
    for _ in range(3):
        worker.run_once()
        clock.advance(30)
    assert (bank.calls, run.status) == ([], S.RUNNING)
    clock.advance(20)
    worker.run_once()
    worker.close()
    assert (bank.calls, run.result(0)) == ([1], "paid")


def test_a_breaker_that_closes_wakes_what_it_had_parked_and_nothing_else(hold: Holdfast, clock: ManualClock) -> None:
    bank = Bank(hold, Breaker(consecutive(2), open_for=100))
    other = hold.guard("other", Breaker(consecutive(1), open_for=100))
    bank.open()
    with pytest.raises(OSError, match="away"):
        other.call(_away)
    later: list[int] = []

    @task
    def waits() -> str:
        later.append(1)
        if len(later) == 1:
            raise TransientError("not yet", retry_after=100)
        return other.call(lambda: "done")

    @workflow
    def waiting() -> Any:
        return waits()

    runs, worker = [hold.workflows.start(one) for one in (bank.paying, waiting)], hold.workflows.worker()
    worker.run_once()
    clock.advance(10)
    worker.run_once()
    assert (bank.calls, later) == ([], [1])
    bank.guard.circuit.command("reset")
    worker.run_once()
    assert (runs[0].result(0), bank.calls, later) == ("paid", [1], [1])
    worker.close()


def test_a_breaker_that_closes_in_another_process_wakes_what_is_parked_here(hold: Holdfast, clock: ManualClock) -> None:
    url = hold.store.address.url  # type: ignore[attr-defined]  # it is a SQL store
    with Holdfast(url, telemetry=Hub(), background=False, clock=clock) as there:
        bank, far = (
            Bank(hold, Breaker(consecutive(2), open_for=100)),
            Bank(there, Breaker(consecutive(2), open_for=100)),
        )
        bank.open()
        _sync(hold, there)
        assert far.guard.circuit.state == "open"
        run, worker = there.workflows.start(far.paying), there.workflows.worker()
        worker.run_once()
        clock.advance(10)
        bank.guard.circuit.command("reset")
        worker.run_once()
        assert far.calls == []
        _sync(hold, there)
        worker.run_once()
        worker.close()
        assert (run.result(0), far.calls) == ("paid", [1])


@pytest.mark.parametrize("name", ["sqlite", "postgres"])
def test_a_worker_that_waits_is_woken_at_once(name: str, tmp_path: Path) -> None:
    with fresh_url(name, tmp_path) as url, Holdfast(url, telemetry=Hub(), background=False) as hold:
        bank = Bank(hold, Breaker(consecutive(2), open_for=3600))
        bank.open()
        parked = threading.Event()
        run, worker = hold.workflows.start(bank.paying), hold.workflows.worker(idle_s=3600)
        worker.start()
        while not any(one.type == "task_parked" for one in hold.workflows.log(run.id)):
            parked.wait(0.01)
        bank.guard.circuit.command("reset")
        assert run.result(timeout=30) == "paid"
        worker.stop()


def test_a_full_bulkhead_and_a_spent_rate_park_a_task_for_as_long_as_they_say(
    hold: Holdfast, clock: ManualClock
) -> None:
    bank = Bank(hold, RateLimit(1, per=60), retry=Retry(attempts=1))
    runs, worker = [hold.workflows.start(bank.paying) for _ in range(3)], hold.workflows.worker()
    for number in (1, 2, 3):
        worker.run_once()
        assert len(bank.calls) == number
        worker.run_once()
        assert len(bank.calls) == number
        clock.advance(60)
    worker.close()
    assert [run.result(0) for run in runs] == ["paid"] * 3
    assert bank.calls == [1, 1, 1]


def test_a_call_that_its_breaker_cut_short_after_some_tries_has_cost_an_attempt(
    hold: Holdfast, clock: ManualClock
) -> None:
    bank = Bank(hold, Retry(attempts=5, base=0), Breaker(consecutive(2), open_for=100), retry=Retry(attempts=2))
    bank.down = True
    run, worker = hold.workflows.start(bank.paying), hold.workflows.worker()
    worker.run_once()
    assert bank.calls == [1, 1]
    clock.advance(100)
    worker.run_once()
    worker.close()
    assert (bank.calls, run.status) == ([1, 1, 2], S.TERMINAL)


def test_the_time_of_a_stage_bounds_what_is_parked_and_its_letter_drains_with_the_breaker(
    hold: Holdfast, clock: ManualClock
) -> None:
    bank = Bank(hold, Breaker(consecutive(2), open_for=100))
    bank.open()
    pay = StageExecution.create("pay", "pay", "pay", tasks=[TaskExecution.create("pay", "pay")], stage_timeout=30)
    run, worker = hold.workflows.start(Workflow.create("shop", "paying", [pay])), hold.workflows.worker()
    worker.run_once()
    clock.advance(30)
    worker.run_once()
    assert run.status is S.TERMINAL
    (letter,) = hold.letters.find()
    assert (letter.domain, letter.failure_type) == ("bank", "CIRCUIT_BREAKER_OPEN")
    bank.guard.circuit.command("reset")
    assert [one.counts for one in hold.letters.recovery.run()] == [{"started": 1}]
    worker.run_once()
    worker.close()
    assert (run.status, hold.letters.find()[0].status) == (S.SUCCEEDED, "resolved")


@pytest.mark.parametrize("is_async", [False, True])
def test_the_deadline_and_the_key_reach_the_task_and_the_guards_inside(
    hold: Holdfast, crew: WorkflowWorker, is_async: bool
) -> None:
    hold.guard("bank", Bulkhead(2))
    inner = hold.guard("inner", Retry(attempts=2))
    seen: list[Any] = []

    def look() -> None:
        here = current_task()
        assert here is not None
        seen.append((here.idempotency_key, current_idempotency_key(), remaining_time()))
        inner.call(lambda: seen.append((here.idempotency_key, current_idempotency_key(), remaining_time())))

    if is_async:

        @task(guard="bank", timeout=7)
        async def pay() -> None:
            look()
    else:

        @task(guard="bank", timeout=7)
        def pay() -> None:
            look()

    @workflow
    def paying() -> Any:
        return pay()

    run = hold.workflows.start(paying)
    crew.run_once()
    assert run.status is S.SUCCEEDED
    assert seen == [(f"{run.id}.pay.1.0", f"{run.id}.pay.1.0", 7.0)] * 2


def _sync(*holds: Holdfast) -> None:
    for _ in range(2):
        for hold in holds:
            hold.breakers.sharing.sync()
