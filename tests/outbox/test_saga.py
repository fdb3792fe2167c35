"""Sagas on real databases: forwards, backwards, and nothing lost in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa

from holdfast.errors import ConfigurationError
from holdfast.machine.outbox_entry import ABANDON, FAIL, SUCCEED
from holdfast.outbox.events import SagaMoved
from holdfast.outbox.sagas.sagas import Saga, Sagas, Step
from tests.databases import DATABASES, fresh_database
from tests.outbox.sagas import REFUSED, Shop, order_saga

ORDER = order_saga()
PIVOTED = Saga(
    "order",
    (
        Step("reserve", "reserve", compensation="release"),
        Step("charge", "charge", pivot=True),
        Step("ship", "ship"),
    ),
)
BRANCHES = Saga(
    "order",
    (
        Step("reserve", "reserve", compensation="release"),
        Step("charge", "charge", compensation="refund", after=["reserve"]),
        Step("wrap", "wrap", compensation="unwrap", after=["reserve"]),
        Step("ship", "ship", compensation="unship", after=["charge", "wrap"]),
    ),
)
Make = Callable[..., Shop]


@pytest.fixture(params=DATABASES)
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    with fresh_database(request.param, tmp_path) as database:
        yield lambda *definitions, **options: Shop(database, *(definitions or (ORDER,)), **options)


async def test_a_saga_runs_to_its_end_and_each_step_gets_the_result_of_the_one_before(shop: Make) -> None:
    own = shop()
    saga_id = own.start("order", subject_id="o-7", headers={"traceparent": "t"})
    assert own.rows() == {("reserve", "forward"): "pending"}
    await own.drain()
    assert own.called == ["reserve", "charge", "ship"]
    assert [context.previous for _, context in own.calls] == [None, {"by": "reserve"}, {"by": "charge"}]
    assert {context.payload["order"] for _, context in own.calls} == {7}
    assert {context.headers["traceparent"] for _, context in own.calls} == {"t"}
    run = own.sagas.get(saga_id)
    assert run is not None
    assert (run.state, run.reason, run.subject_id) == ("completed", None, "o-7")
    assert (run.steps[0].state, run.steps[0].result) == ("done", {"by": "reserve"})
    assert own.trail("o-7") == [
        "saga_started", "reserve_succeeded", "charge_succeeded", "ship_succeeded", "saga_completed",
    ]  # fmt: skip


async def test_a_refused_step_has_everything_undone_in_reverse_order(shop: Make) -> None:
    own = shop()
    own.answers["ship"] = [REFUSED]
    saga_id = own.start("order", subject_id="o-7")
    await own.drain()
    assert own.called == ["reserve", "charge", "ship", "unship", "refund", "release"]
    undoing = {context.step: context for _, context in own.calls[3:]}
    assert undoing["ship"].previous is None, "nobody knows whether it was shipped"
    assert undoing["charge"].previous == {"by": "charge"}
    assert undoing["charge"].ref.extra == {"compensates": str(own.calls[1][1].entry_id)}
    run = own.sagas.get(saga_id)
    assert run is not None
    assert (run.state, run.reason) == ("compensated", "ship: CardDeclined")
    assert set(own.steps(saga_id).values()) == {"compensated"}
    assert [one for one in own.trail("o-7") if one.startswith("saga")] == [
        "saga_started", "saga_compensating", "saga_compensated",
    ]  # fmt: skip


def test_nothing_of_a_saga_is_there_if_the_caller_rolls_back(shop: Make) -> None:
    own = shop()
    with own.database.sessions() as session:
        saga_id = own.sagas.start(session, "order", {}, subject_id="o-7")
        session.rollback()
    assert own.sagas.get(saga_id) is None
    assert (own.rows(), own.told, own.trail("o-7")) == ({}, [], [])


def test_a_savepoint_that_is_undone_takes_its_saga_along(shop: Make) -> None:
    own = shop()
    with own.database.sessions() as session, session.begin():
        kept = own.sagas.start(session, "order", {}, subject_id="kept")
        with session.begin_nested() as savepoint:
            own.sagas.start(session, "order", {}, subject_id="undone")
            savepoint.rollback()
    assert [run.saga_id for run in own.sagas.find()] == [kept]
    assert (own.trail("kept"), own.trail("undone")) == (["saga_started"], [])
    assert [event.saga_id for event in own.told if isinstance(event, SagaMoved)] == [str(kept)]


def test_a_repeated_start_is_harmless(shop: Make) -> None:
    own = shop()
    first = own.start("order", key="o-7")
    assert own.start("order", key="o-7") == first
    assert own.start("order", key="o-8") != first
    saga_id = uuid4()
    assert own.start("order", saga_id=saga_id) == own.start("order", saga_id=saga_id) == saga_id
    assert len(own.sagas.find()) == 3
    own.sagas.register(Saga("other", [Step("ship", "ship")]))
    with pytest.raises(ConfigurationError, match="there already, as a 'order'"):
        own.start("other", saga_id=saga_id)
    with pytest.raises(ConfigurationError, match="not both"):
        own.start("order", key="x", saga_id=saga_id)


def test_an_abandonment_and_its_compensations_are_one_transaction(shop: Make) -> None:
    own = shop()
    saga_id = own.start("order")
    own.succeed("reserve")
    [entry] = own.claim("charge")
    before = own.rows()

    class Broken:
        def follow(self, session: Any, settled: Any) -> Any:
            row = own.database.tables.outbox.c
            seen = session.execute(sa.select(row.step, row.status).where(row.direction == "backward")).all()
            assert seen == [("charge", "pending")], "within the transaction it is all there"
            raise RuntimeError("the process dies here")

    own.outbox.followers.append(Broken())
    with pytest.raises(RuntimeError, match="dies"):
        own.settle((entry, ABANDON))
    assert own.rows() == before
    assert (own.state(saga_id), own.steps(saga_id)["charge"]) == ("running", "started")
    assert not any(event.state == "compensating" for event in own.told if isinstance(event, SagaMoved))
    own.outbox.followers.pop()
    assert own.settle((entry, ABANDON)) == [True]
    assert own.rows()["charge", "backward"] == "pending"
    assert own.state(saga_id) == "compensating"


def test_a_settle_by_a_lost_claim_moves_nothing(shop: Make) -> None:
    own = shop()
    saga_id = own.start("order")
    [old] = own.claim("reserve")
    own.clock.advance(600)
    [new] = own.claim("reserve")
    assert own.settle((old, ABANDON)) == [False]
    assert own.steps(saga_id)["reserve"] == "started"
    assert own.settle((new, SUCCEED)) == [True]
    assert own.steps(saga_id)["charge"] == "started"


def test_after_the_pivot_a_saga_is_stuck_and_goes_on_when_it_is_resumed(shop: Make) -> None:
    own = shop(PIVOTED)
    saga_id = own.start("order", subject_id="o-7")
    own.succeed("reserve")
    own.succeed("charge")
    assert own.sagas.cancel(saga_id) is False
    own.abandon("ship")
    assert own.state(saga_id) == "stuck"
    assert [(run.saga_id, run.reason) for run in own.stuck] == [(saga_id, "ship: Refused")]
    assert ("reserve", "backward") not in own.rows()
    assert own.sagas.resume(saga_id) is True
    assert (own.state(saga_id), own.rows()["ship", "forward"]) == ("running", "pending")
    own.succeed("ship")
    assert own.state(saga_id) == "completed"
    assert [one for one in own.trail("o-7") if one.startswith("saga")] == [
        "saga_started", "saga_stuck", "saga_resumed", "saga_completed",
    ]  # fmt: skip


def test_a_refused_pivot_has_the_steps_before_it_undone(shop: Make) -> None:
    own = shop(PIVOTED)
    saga_id = own.start("order")
    own.succeed("reserve")
    own.abandon("charge")
    own.succeed("reserve")
    assert own.state(saga_id) == "compensated"


def test_a_saga_cancelled_before_its_first_call_has_nothing_to_undo(shop: Make) -> None:
    own = shop()
    saga_id = own.start("order")
    assert own.sagas.cancel(saga_id, "ChangedMind") is True
    assert own.rows() == {("reserve", "forward"): "abandoned"}
    run = own.sagas.get(saga_id)
    assert run is not None
    assert (run.state, run.reason) == ("compensated", "ChangedMind")
    assert own.sagas.cancel(saga_id) is False


def test_a_call_that_failed_once_is_undone_though_it_may_never_have_happened(shop: Make) -> None:
    own = shop()
    saga_id = own.start("order")
    [entry] = own.claim("reserve")
    own.settle((entry, FAIL))
    assert own.sagas.cancel(saga_id) is True
    assert own.rows() == {("reserve", "forward"): "abandoned", ("reserve", "backward"): "pending"}
    own.succeed("reserve")
    assert own.state(saga_id) == "compensated"


@pytest.mark.parametrize("outcome", [SUCCEED, FAIL, ABANDON])
def test_a_call_under_way_is_undone_after_it_has_come_back_however_it_ends(shop: Make, outcome: Any) -> None:
    own = shop()
    saga_id = own.start("order")
    [entry] = own.claim("reserve")
    assert own.sagas.cancel(saga_id) is True
    assert own.state(saga_id) == "compensating"
    assert own.rows() == {("reserve", "forward"): "in_flight"}
    assert own.settle((entry, outcome)) == [True]
    assert own.rows()["reserve", "backward"] == "pending"
    assert own.rows()["reserve", "forward"] in ("succeeded", "abandoned")
    own.succeed("reserve")
    assert own.state(saga_id) == "compensated"
    assert ("charge", "forward") not in own.rows()


def test_branches_run_side_by_side_are_joined_and_undone_before_what_they_share(shop: Make) -> None:
    own = shop(BRANCHES)
    saga_id = own.start("order")
    own.succeed("reserve")
    charge, wrap = own.claim("charge", "wrap")
    own.settle((charge, ABANDON))
    assert own.state(saga_id) == "compensating"
    own.succeed("charge")
    assert ("reserve", "backward") not in own.rows(), "the other branch has not come back"
    own.settle((wrap, SUCCEED))
    own.succeed("wrap")
    own.succeed("reserve")
    assert own.state(saga_id) == "compensated"


def test_both_branches_of_one_batch_begin_the_step_behind_them_once(shop: Make) -> None:
    own = shop(BRANCHES)
    saga_id = own.start("order")
    own.succeed("reserve")
    charge, wrap = own.claim("charge", "wrap")
    own.settle((charge, SUCCEED), (wrap, SUCCEED))
    own.succeed("ship")
    assert own.state(saga_id) == "completed"


def test_a_branch_that_waits_for_its_retry_is_taken_back(shop: Make) -> None:
    own = shop(BRANCHES)
    saga_id = own.start("order")
    own.succeed("reserve")
    charge, wrap = own.claim("charge", "wrap")
    own.settle((wrap, FAIL), (charge, ABANDON))
    assert own.rows()["wrap", "forward"] == "abandoned"
    own.succeed("charge", "wrap")
    own.succeed("reserve")
    assert own.state(saga_id) == "compensated"


def test_an_abandoned_compensation_is_stuck_and_its_requeue_goes_on(shop: Make) -> None:
    own = shop()
    saga_id = own.start("order", subject_id="o-7")
    own.succeed("reserve")
    own.abandon("charge")
    own.abandon("charge")
    assert (own.state(saga_id), own.steps(saga_id)["charge"]) == ("stuck", "unresolved")
    assert [run.reason for run in own.stuck] == ["compensation of charge: Refused"]
    [entry] = [one for one in own.outbox.list_abandoned() if one.direction == "backward"]
    assert own.outbox.requeue([entry.entry_id])[0].entry_id == entry.entry_id
    assert own.state(saga_id) == "compensating"
    own.succeed("charge")
    own.succeed("reserve")
    assert own.state(saga_id) == "compensated"


def test_a_resumed_call_has_the_same_id_and_its_payload_again(shop: Make) -> None:
    own = shop(sensitive=True)
    saga_id = own.start("order")
    own.succeed("reserve")
    own.abandon("charge")
    [first] = own.claim("charge")
    own.settle((first, ABANDON))
    assert own.outbox.get(first.entry_id).payload is None  # type: ignore[union-attr]
    assert own.sagas.resume(saga_id) is True
    [again] = own.claim("charge")
    assert (again.entry_id, again.payload, again.attempts) == (first.entry_id, {"order": 7}, 1)


def test_the_requeue_of_what_a_saga_no_longer_wants_is_refused(shop: Make) -> None:
    own = shop()
    own.start("order")
    own.abandon("reserve")
    [entry] = [one for one in own.outbox.list_abandoned() if one.direction == "forward"]
    with pytest.raises(ConfigurationError, match="is compensating, and does not wait for it"):
        own.outbox.requeue([entry.entry_id])
    assert own.rows()["reserve", "forward"] == "abandoned"


def test_a_step_cancelled_in_the_outbox_turns_its_saga_round(shop: Make) -> None:
    own = shop()
    saga_id = own.start("order")
    own.succeed("reserve")
    [entry] = [one for one in own.sagas.history(saga_id) if one.step == "charge"]
    own.outbox.cancel([entry.entry_id])
    assert own.steps(saga_id) == {"reserve": "compensating", "charge": "skipped", "ship": "skipped"}


def test_what_a_person_did_by_hand_lets_a_stuck_saga_go_on(shop: Make) -> None:
    own = shop()
    saga_id = own.start("order")
    own.succeed("reserve")
    own.abandon("charge")
    own.abandon("charge")
    assert own.sagas.resolve(saga_id, "reserve") is False
    assert own.sagas.resolve(saga_id, "nothing") is False
    assert own.sagas.resolve(saga_id, "charge") is True
    own.succeed("reserve")
    assert own.state(saga_id) == "compensated"


def test_a_saga_past_its_deadline_is_undone(shop: Make) -> None:
    own = shop(order_saga(deadline=timedelta(minutes=1)))
    saga_id = own.start("order")
    own.succeed("reserve")
    assert own.sagas.sweep_deadlines() == 0
    own.clock.advance(60)
    assert own.sagas.sweep_deadlines() == 1
    run = own.sagas.get(saga_id)
    assert run is not None
    assert (run.state, run.reason, run.deadline_at) == ("compensating", "DeadlineExceeded", None)
    assert own.rows()["charge", "forward"] == "abandoned"
    assert own.sagas.sweep_deadlines() == 0


def test_a_deadline_after_the_pivot_changes_nothing(shop: Make) -> None:
    own = shop(Saga("order", PIVOTED.steps, deadline=timedelta(minutes=1)))
    saga_id = own.start("order")
    own.succeed("reserve")
    own.succeed("charge")
    own.clock.advance(60)
    assert own.sagas.sweep_deadlines() == 1
    assert own.sagas.sweep_deadlines() == 0
    assert own.state(saga_id) == "running"


def test_payloads_are_made_of_data_and_results(shop: Make) -> None:
    saga = Saga(
        "order",
        (
            Step("reserve", "reserve", target="stock", payload={"amount": 1}, compensation="release"),
            Step(
                "charge",
                "charge",
                payload=lambda data, results: {"order": data["order"], "by": results["reserve"]["by"]},
                compensation="refund",
                compensation_payload=lambda data, results: {"known": sorted(results)},
            ),
            Step("ship", "ship"),
        ),
    )
    own = shop(saga)
    own.start("order")
    [reserve] = own.claim("reserve")
    assert (reserve.payload, reserve.resolver, reserve.ref.kind) == ({"amount": 1}, "stock", "stock")
    own.settle((reserve, SUCCEED))
    [charge] = own.claim("charge")
    assert charge.payload == {"order": 7, "by": "reserve"}
    own.settle((charge, SUCCEED))
    own.abandon("ship")
    [refund] = own.claim("charge")
    assert refund.payload == {"known": ["charge", "reserve"]}


def test_a_payload_that_cannot_be_made_gives_its_step_up_and_not_the_settle(shop: Make) -> None:
    saga = Saga(
        "order",
        (
            Step("reserve", "reserve", compensation="release"),
            Step("charge", "charge", payload=lambda data, results: {"x": data["absent"]}),
        ),
    )
    own = shop(saga)
    saga_id = own.start("order")
    own.succeed("reserve")
    run = own.sagas.get(saga_id)
    assert run is not None
    assert (run.state, run.reason) == ("compensating", "charge: KeyError")
    own.succeed("reserve")
    assert own.state(saga_id) == "compensated"


def test_a_compensation_whose_payload_cannot_be_made_is_stuck_and_can_be_resumed(shop: Make) -> None:
    wrong = [True]

    def payload(data: Any, results: Any) -> dict[str, Any]:
        return {"x": object() if wrong[0] else 1}

    own = shop(Saga("order", [Step("reserve", "reserve", compensation="release", compensation_payload=payload)]))
    saga_id = own.start("order")
    own.abandon("reserve")
    assert own.state(saga_id) == "stuck"
    wrong[0] = False
    assert own.sagas.resume(saga_id) is True
    own.succeed("reserve")
    assert own.state(saga_id) == "compensated"


def test_data_of_a_sensitive_saga_is_gone_when_it_has_ended(shop: Make) -> None:
    own = shop(sensitive=True)
    saga_id = own.start("order", {"card": "4111"})
    own.succeed("reserve")
    assert own.sagas.get(saga_id).data == {"card": "4111"}  # type: ignore[union-attr]
    own.succeed("charge")
    own.succeed("ship")
    assert own.sagas.get(saga_id).data is None  # type: ignore[union-attr]


def test_a_saga_that_nobody_here_knows_waits_and_is_brought_on_by_who_knows_it(shop: Make) -> None:
    knowing = shop()
    saga_id = knowing.start("order")
    ignorant = shop(Saga("order", ORDER.steps, version=2))
    ignorant.succeed("reserve")
    assert (knowing.steps(saga_id)["reserve"], knowing.state(saga_id)) == ("started", "running")
    assert ignorant.sagas.catch_up() == 0
    assert ignorant.sagas.cancel(saga_id) is False
    assert knowing.sagas.catch_up() == 1
    assert knowing.steps(saga_id)["charge"] == "started"
    assert knowing.sagas.catch_up() == 0
    ignorant.abandon("charge")
    assert knowing.sagas.catch_up() == 1
    assert knowing.state(saga_id) == "compensating"


def test_sagas_that_have_begun_keep_their_version(shop: Make) -> None:
    own = shop(ORDER, Saga("order", ORDER.steps[:1], version=2))
    old = own.start(ORDER)
    new = own.start("order")
    own.succeed("reserve", "reserve")
    assert (own.state(old), own.state(new)) == ("running", "completed")


def test_sagas_are_found_by_state_definition_and_subject(shop: Make) -> None:
    own = shop()
    first, second = own.start("order", subject_id="a"), own.start("order", subject_id="b")
    own.sagas.cancel(second)
    assert [run.saga_id for run in own.sagas.find(state="running")] == [first]
    assert [run.saga_id for run in own.sagas.find(subject_id="b", definition="order")] == [second]
    assert own.sagas.find(definition="other") == ()
    assert own.sagas.find(limit=0) == ()
    with pytest.raises(ValueError, match="nonsense"):
        own.sagas.find(state="nonsense")


def test_states_are_told_after_the_commit_and_a_failing_hook_changes_nothing(shop: Make) -> None:
    own = shop()
    own.sagas = Sagas(own.outbox, ORDER, hub=own.hub, on_stuck=lambda run: 1 / 0)
    own.outbox.followers.pop(0)
    saga_id = own.start("order")
    own.abandon("reserve")
    own.abandon("reserve")
    moves = [(event.state, event.reason) for event in own.told if isinstance(event, SagaMoved)]
    assert moves == [
        ("running", None), ("compensating", "reserve: Refused"), ("stuck", "compensation of reserve: Refused"),
    ]  # fmt: skip
    assert own.state(saga_id) == "stuck"


async def test_compensations_have_a_larger_budget(shop: Make) -> None:
    own = shop()
    own.answers["charge"] = [REFUSED]
    own.answers["refund"] = [ConnectionError()] * 20
    saga_id = own.start("order")
    await own.drain(own.runner(max_attempts=3))
    assert own.called.count("refund") == 21
    assert own.state(saga_id) == "compensated"


async def test_functions_are_steps_and_get_of_the_data_what_they_ask_for(shop: Make) -> None:
    made: list[Any] = []

    async def reserve(order: int) -> dict[str, int]:
        made.append(("reserve", order))
        return {"shelf": 3}

    def release(order: int, context: Any) -> None:
        made.append(("release", order, context.previous))

    def ship(amount: int) -> None:
        raise LookupError("no van")

    saga = Saga("trip", [Step("reserve", reserve, compensation=release), Step("ship", ship)])
    own = shop(saga)
    saga_id = own.start(saga, {"order": 7, "amount": 1})
    await own.drain(own.runner(max_attempts=2))
    assert made == [("reserve", 7), ("release", 7, {"shelf": 3})]
    assert own.sagas.get(saga_id).reason == "ship: LookupError"  # type: ignore[union-attr]
