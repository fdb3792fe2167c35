"""Workflows that fail for good leave a dead letter, which is replayed by running what failed again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast import (
    Breaker,
    FailedOperationData,
    Holdfast,
    Hub,
    MultiInstanceConfig,
    PermanentError,
    Retry,
    TaskError,
    TaskResult,
    TransientError,
    WorkflowStatus,
    consecutive,
    current_task,
    task,
    workflow,
)
from holdfast.store.codec import instant, to_json
from holdfast.testing import ManualClock
from holdfast.workflows.worker import WorkflowWorker
from tests.workflows.journal import Journal, stage, start

S = WorkflowStatus


class Shop:
    """An application whose payments fail as long as they are told to."""

    def __init__(self, hold: Holdfast, **options: Any) -> None:
        self.hold = hold
        self.down = True
        self.keys: list[str] = []

        @task(**options)
        def pay(order: dict[str, Any]) -> str:
            here = current_task()
            assert here is not None
            self.keys.append(here.idempotency_key)
            if self.down:
                raise self.error
            return f"paid {order['id']}"

        @task(effect="idempotent")
        def ship(paid: str) -> str:
            return f"{paid}, shipped"

        @workflow
        def fulfil(order: dict[str, Any]) -> Any:
            return ship(pay(order))

        self.error: Exception = PermanentError("no money; card 4111 1111 1111 1111")
        self.fulfil = fulfil

    @property
    def letters(self) -> list[FailedOperationData]:
        return self.hold.letters.find()


def test_a_workflow_that_fails_leaves_a_letter_that_says_what_failed(hold: Holdfast, crew: WorkflowWorker) -> None:
    shop = Shop(hold)
    run = hold.workflows.start(shop.fulfil, {"id": 7, "card_token": "tok_secret"})
    crew.run_once()
    (letter,) = shop.letters
    assert (letter.domain, letter.status, letter.failure_type) == (
        "workflow.fulfil", "pending", "WORKFLOW_PERMANENTERROR",
    )  # fmt: skip
    assert (letter.entity_type, letter.entity_id) == ("workflow", run.id)
    assert letter.request_data["args"] == {"workflow_id": run.id}
    assert letter.snapshot_data["input"]["order"]["id"] == 7
    assert "tok_secret" not in to_json(letter.snapshot_data)
    (failed,) = letter.response_data["stages"]
    assert (failed["stage"], failed["type"], failed["error"]["type"]) == ("pay", "pay", "PermanentError")
    assert letter.metadata["idempotency_key"] == failed["key"] == shop.keys[0]
    assert letter.metadata["causation_id"] == run.id  # nothing else has caused it
    assert letter.metadata["log_entry"] == f"{run.id}.{run.record.version:09d}"
    assert letter.metadata["source"] == "workflow"


def test_a_letter_names_the_entry_of_the_log_that_says_why_after_steps_of_stages_alone(
    hold: Holdfast, crew: WorkflowWorker
) -> None:
    journal = Journal(hold.workflows)
    journal.answers["c"] = [TaskResult.terminal("no")]
    run = start(hold.workflows, stage("a"), stage("b", "a"), stage("c", "b"))
    crew.run_once()
    [letter] = hold.letters.find(domain="workflow.made")
    last = hold.workflows.log(run.id)[-1]
    assert (last.type, letter.metadata["log_entry"]) == ("workflow_ended", f"{run.id}.{last.seq:09d}")


def test_the_replay_of_a_letter_runs_what_failed_and_the_letter_ends_with_the_workflow(
    hold: Holdfast, crew: WorkflowWorker
) -> None:
    shop = Shop(hold)
    run = hold.workflows.start(shop.fulfil, {"id": 7})
    crew.run_once()
    (letter,) = shop.letters
    shop.down = False
    result = hold.letters.replay(letter.id)
    assert (result.outcome, shop.letters[0].status) == ("started", "replaying")
    assert f"workflow {run.id} runs again" in result.reason
    crew.run_once()
    assert run.result(0) == "paid 7, shipped"
    (letter,) = shop.letters
    assert (letter.status, letter.resolution_type) == ("resolved", "manual_replay")
    assert [one.outcome for one in hold.letters.get_attempts(letter.id)] == ["succeeded"]
    assert shop.keys[0] == shop.keys[1]


def test_a_replay_that_fails_uses_up_an_attempt_and_at_last_somebody_has_to_look(
    hold: Holdfast, crew: WorkflowWorker, clock: ManualClock
) -> None:
    shop = Shop(hold)
    hold.workflows.start(shop.fulfil, {"id": 7})
    crew.run_once()
    statuses = []
    for _ in range(2):
        clock.advance(3600)
        assert hold.letters.replay(shop.letters[0].id).outcome == "started"
        crew.run_once()
        statuses.append(shop.letters[0].status)
    assert (statuses, len(shop.letters)) == (["pending", "requires_review"], 1)
    assert "no money" in shop.letters[0].resolution_note
    assert hold.letters.replay(shop.letters[0].id).outcome == "skipped"
    shop.down = False
    assert hold.letters.replay(shop.letters[0].id, force=True).outcome == "started"
    crew.run_once()
    assert shop.letters[0].status == "resolved"


def test_a_workflow_that_somebody_retries_takes_its_letter_along(hold: Holdfast, crew: WorkflowWorker) -> None:
    shop = Shop(hold)
    run = hold.workflows.start(shop.fulfil, {"id": 7})
    crew.run_once()
    hold.workflows.retry(run.id)
    assert hold.letters.replay(shop.letters[0].id).outcome == "refused"  # it runs already
    crew.run_once()
    (letter,) = shop.letters
    assert (letter.status, letter.occurrences) == ("pending", 2)
    shop.down = False
    hold.workflows.retry(run.id)
    crew.run_once()
    (letter,) = shop.letters
    assert (letter.status, letter.resolution_type) == ("resolved", "workflow_succeeded")


def test_who_resolves_a_letter_leaves_the_workflow_alone_and_the_next_failure_is_a_new_letter(
    hold: Holdfast, crew: WorkflowWorker
) -> None:
    shop = Shop(hold)
    run = hold.workflows.start(shop.fulfil, {"id": 7})
    crew.run_once()
    hold.letters.mark_as_resolved(shop.letters[0].id, "manual_fix", "called the bank")
    assert run.status is S.TERMINAL
    hold.workflows.retry(run.id)
    crew.run_once()
    assert sorted(one.status for one in shop.letters) == ["pending", "resolved"]


def test_a_letter_is_over_when_its_workflow_is_cancelled(hold: Holdfast, crew: WorkflowWorker) -> None:
    shop = Shop(hold)
    run = hold.workflows.start(shop.fulfil, {"id": 7})
    crew.run_once()
    hold.workflows.retry(run.id)
    hold.workflows.cancel(run.id, "not needed")
    (letter,) = shop.letters
    assert (letter.status, letter.resolution_type, letter.resolution_note) == (
        "resolved", "workflow_canceled", "not needed",
    )  # fmt: skip


def test_workflows_that_are_cancelled_or_want_none_leave_no_letter(hold: Holdfast, crew: WorkflowWorker) -> None:
    journal = Journal(hold.workflows)
    hold.workflows.cancel(start(hold.workflows, stage("a")).id)
    journal.answers["a"] = [TaskResult.terminal("no")]
    run = start(hold.workflows, stage("a"), dead_letter=False)
    crew.run_once()
    assert (run.status, hold.letters.find()) == (S.TERMINAL, [])


def test_all_stages_that_failed_stand_in_the_letter_also_those_that_failed_before(
    hold: Holdfast, crew: WorkflowWorker, clock: ManualClock
) -> None:
    journal = Journal(hold.workflows)
    journal.answers = {
        "a": [TaskResult.terminal("a is out")],
        "b": [TaskResult.sleep(60), TaskResult.terminal("b too")],
    }
    start(hold.workflows, stage("a", allow_sibling_stages_to_continue=True), stage("b"))
    crew.run_once()
    assert hold.letters.find() == []
    clock.advance(61)
    crew.run_once()
    (letter,) = hold.letters.find()
    assert [one["stage"] for one in letter.response_data["stages"]] == ["a", "b"]
    assert "a is out" in letter.error_message


@pytest.mark.parametrize(
    ("options", "error", "domain"),
    [
        ({"retry": Retry(attempts=1)}, OSError("down"), "bank"),
        ({"effect": "idempotent"}, OSError("down"), "bank"),
        ({}, OSError("down"), "workflow.fulfil"),  # nobody says that it may be repeated unasked
        ({"effect": "at_least_once"}, OSError("down"), "workflow.fulfil"),
    ],
)
def test_a_failure_behind_a_guard_belongs_to_its_domain_if_it_may_be_repeated(
    hold: Holdfast, options: dict[str, Any], error: Exception, domain: str
) -> None:
    hold.guard("bank", Breaker(consecutive(5)))
    shop = Shop(hold, guard="bank", **options)
    shop.error = error
    hold.workflows.start(shop.fulfil, {"id": 7})
    _do(hold)
    assert [one.domain for one in shop.letters] == [domain]


def test_letters_of_workflows_drain_when_the_breaker_behind_their_failure_closes(
    hold: Holdfast, clock: ManualClock
) -> None:
    guard = hold.guard("bank", Breaker(consecutive(2), open_for=300))
    shop = Shop(hold, guard="bank", effect="idempotent")
    shop.error = OSError("the bank is away")
    runs = [hold.workflows.start(shop.fulfil, {"id": number}) for number in range(2)]
    _do(hold)
    assert guard.circuit.state == "open"
    assert [one.domain for one in shop.letters] == ["bank", "bank"]
    clock.advance(60)
    assert [one.reason for one in hold.letters.recovery.run()] == ["the breaker of 'bank' is open"]
    shop.down = False
    clock.advance(300)
    guard.call(lambda: "somebody asks, and gets an answer")
    assert guard.circuit.state == "closed"
    (drained,) = hold.letters.recovery.run()
    assert drained.counts == {"started": 2}
    _do(hold)
    assert [run.result(0) for run in runs] == ["paid 0, shipped", "paid 1, shipped"]
    assert {one.status for one in shop.letters} == {"resolved"}


def test_letters_of_others_in_the_domain_drain_no_sooner_than_their_handler_says(
    hold: Holdfast, clock: ManualClock
) -> None:
    class Careful:
        failure_types = ("MAX_RETRIES_TIMEOUT",)

        def can_replay(self, op: FailedOperationData) -> tuple[bool, str]:
            return True, ""

        def replay(self, op: FailedOperationData) -> None:
            raise AssertionError("not this one")

    hold.guard("bank", Breaker(consecutive(5)))
    shop = Shop(hold, guard="bank", effect="idempotent")
    hold.letters.handle("bank", Careful())
    hold.letters.create("bank", "MAX_RETRIES_OSERROR")
    shop.error = OSError("down")
    hold.workflows.start(shop.fulfil, {"id": 7})
    _do(hold)
    clock.advance(60)
    assert [one.counts for one in hold.letters.recovery.run()] == [{"started": 1}]


def test_a_guards_own_letters_are_not_kept_for_tasks_that_their_workflow_keeps(
    hold: Holdfast, clock: ManualClock
) -> None:
    hold.guard("bank", Breaker(consecutive(1), open_for=30), dead_letter=True)
    shop = Shop(hold, guard="bank")
    shop.error = TransientError("busy", retry_after=1)
    hold.workflows.start(shop.fulfil, {"id": 7})
    for _ in range(3):
        _do(hold)
        clock.advance(10)
    assert shop.letters == []  # it failed once, and is parked since


def test_a_process_that_knows_no_task_can_replay_a_letter(
    hold: Holdfast, crew: WorkflowWorker, clock: ManualClock
) -> None:
    shop = Shop(hold)
    run = hold.workflows.start(shop.fulfil, {"id": 7})
    crew.run_once()
    with Holdfast(hold.store.address.url, clock=clock, telemetry=Hub(), background=False) as other:
        assert other.letters.replay(shop.letters[0].id).outcome == "started"
    shop.down = False
    crew.run_once()
    assert run.status is S.SUCCEEDED
    with pytest.raises(TaskError, match="no stage of it has failed"):
        hold.workflows.retry(run.id)


def _do(hold: Holdfast) -> None:
    """What a worker does that is made now, after the guards."""
    worker = hold.workflows.worker()
    worker.run_once()
    worker.close()


def test_of_a_workflow_that_another_waits_for_only_that_one_leaves_a_letter(hold: Holdfast) -> None:
    shop = Shop(hold)

    @workflow
    def buy(order: dict[str, Any]) -> Any:
        return shop.fulfil(order)

    run, worker = hold.workflows.start(buy, {"id": 7}), hold.workflows.worker()
    worker.run_once()
    (letter,) = hold.letters.find()
    assert (run.status, letter.domain) == (S.TERMINAL, "workflow.buy")
    shop.down = False
    assert hold.letters.replay(letter.id).outcome == "started"
    worker.run_once()
    worker.close()
    assert run.result(0) == "paid 7, shipped"
    assert len(set(shop.keys)) == 1
    assert hold.letters.count(status="pending") == 0


def test_a_workflow_that_nobody_waits_for_leaves_a_letter_of_its_own(hold: Holdfast) -> None:
    shop = Shop(hold)

    @workflow
    def buy(order: dict[str, Any]) -> Any:
        return shop.fulfil(order, wait=False)  # type: ignore[call-arg]  # an option of every workflow

    run, worker = hold.workflows.start(buy, {"id": 7}), hold.workflows.worker()
    worker.run_once()
    worker.close()
    assert run.status is S.SUCCEEDED
    assert [letter.domain for letter in hold.letters.find()] == ["workflow.fulfil"]


def test_a_workflow_whose_letter_waits_is_not_pruned(hold: Holdfast, clock: ManualClock) -> None:
    shop = Shop(hold)
    hold.workflows.start(shop.fulfil, {"id": 7})
    worker = hold.workflows.worker()
    worker.run_once()
    worker.close()
    clock.advance(40 * 86400)
    before = instant(hold.store.now()) - timedelta(days=30)
    report = hold.workflows.prune(before)
    assert (report.pruned, dict(report.kept)) == (0, {"it has a dead letter": 1})
    (letter,) = hold.letters.find()
    hold.letters.mark_as_resolved(letter.id, "manual")
    assert hold.workflows.prune(before).pruned == 1
    assert hold.workflows.find() == []


@pytest.mark.parametrize("refs", ["az", "za"])
def test_a_workflow_that_fails_as_soon_as_it_begins_leaves_a_letter_and_cancels_what_has_begun(
    hold: Holdfast, crew: WorkflowWorker, refs: str
) -> None:
    journal = Journal(hold.workflows)
    stages = {"a": stage("a"), "z": stage("z", mi_config=MultiInstanceConfig(count_from_context="unknown"))}
    run = start(hold.workflows, *(stages[ref] for ref in refs))
    crew.run_once()
    assert (run.status, hold.workflows.stages(run.id)) == (S.TERMINAL, {"a": S.CANCELED, "z": S.TERMINAL})
    assert journal.ran == []
    assert [letter.entity_id for letter in hold.letters.find()] == [run.id]
