"""A guarded call that fails for good is kept before its caller sees the failure; in both colours."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    Breaker,
    Bulkhead,
    Capacity,
    CircuitOpen,
    DeadLetter,
    Fallback,
    Guard,
    GuardTimeout,
    Holdfast,
    Hub,
    LetterKept,
    OutcomeKind,
    PolicyError,
    Retry,
    Timeout,
    consecutive,
    current_context,
    deadline,
    letter_id_of,
)
from holdfast.errors import StoreUnavailable
from holdfast.letters.capture import IDEMPOTENCY_KEY
from holdfast.testing.clock import ManualClock
from tests.guard.colours import Colour


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def hold(clock: ManualClock) -> Iterator[Holdfast]:
    with Holdfast("memory://", clock=clock, telemetry=Hub(), background=False) as hold:
        yield hold


def only(hold: Holdfast) -> Any:
    (letter,) = hold.letters.find()
    return letter


def test_the_letter_is_there_before_the_exception(hold: Holdfast, colour: Colour) -> None:
    pay = hold.guard("payments", Retry(attempts=2, base=0), dead_letter=True)
    fn = colour.fn([ConnectionError("down"), ConnectionResetError("reset")])
    with pytest.raises(ConnectionResetError) as caught:
        colour.call(pay, fn, "o7")
    letter = only(hold)
    assert letter_id_of(caught.value) == letter.id
    assert (letter.domain, letter.status) == ("payments", "pending")
    assert letter.failure_type == "MAX_RETRIES_CONNECTIONRESETERROR"
    assert letter.error_message == "ConnectionResetError: reset"
    assert letter.metadata["attempts"] == 2
    assert letter.metadata["source"] == "guard"


def test_a_success_leaves_no_letter(hold: Holdfast, colour: Colour) -> None:
    pay = hold.guard("payments", Retry(attempts=2, base=0), dead_letter=True)
    assert colour.call(pay, colour.fn([ConnectionError("down"), 5])) == 5
    assert colour.call(pay, colour.fn([5])) == 5
    assert hold.letters.count() == 0


def test_without_dead_letter_nothing_is_kept(hold: Holdfast, colour: Colour) -> None:
    assert not colour.run(hold.guard("plain", Retry(attempts=1)), colour.fn([OSError("x")])).is_success
    assert hold.letters.count() == 0


def test_an_open_breakers_refusal_is_kept_as_such(hold: Holdfast, colour: Colour) -> None:
    stock = hold.guard("stock", Breaker(consecutive(1), open_for=30), dead_letter=True)
    colour.run(stock, colour.fn([OSError("down")]))
    with pytest.raises(CircuitOpen) as refused:
        colour.call(stock, colour.fn([5]))
    kinds = [letter.failure_type for letter in hold.letters.find()]
    assert kinds == ["CIRCUIT_BREAKER_OPEN", "MAX_RETRIES_OSERROR"]
    assert letter_id_of(refused.value) == hold.letters.find()[0].id


def test_refusals_can_be_left_out(hold: Holdfast, colour: Colour) -> None:
    stock = hold.guard("stock", Breaker(consecutive(1), open_for=30), dead_letter=DeadLetter(refusals=False))
    colour.run(stock, colour.fn([OSError("down")]))
    colour.run(stock, colour.fn([5]))
    assert [letter.failure_type for letter in hold.letters.find()] == ["MAX_RETRIES_OSERROR"]


def test_what_a_fallback_answers_is_no_failure(hold: Holdfast, colour: Colour) -> None:
    stock = hold.guard("stock", Fallback(value=0), dead_letter=True)
    assert colour.call(stock, colour.fn([OSError("down")])) == 0
    assert hold.letters.count() == 0


def test_a_call_that_the_callers_deadline_cuts_is_kept(hold: Holdfast, clock: ManualClock) -> None:
    pay = hold.guard("payments", Retry(attempts=1), dead_letter=True)

    async def slow() -> None:
        await clock.asleep(10)

    async def main() -> None:
        with deadline(2.0, clock=clock):
            with pytest.raises(GuardTimeout):
                await pay.acall(slow)

    asyncio.run(main())
    assert only(hold).failure_type == "MAX_RETRIES_GUARDTIMEOUT"


def test_a_call_refused_because_its_deadline_had_passed_is_kept(hold: Holdfast, clock: ManualClock) -> None:
    pay = hold.guard("payments", Retry(attempts=1), dead_letter=True)
    with deadline(1.0, clock=clock):
        clock.advance(2)
        outcome = pay.run(lambda: 5)
    assert outcome.kind is OutcomeKind.REJECTED
    assert only(hold).metadata["reason"] == "deadline_expired"


def test_a_time_limit_of_the_guards_own_is_kept(hold: Holdfast, clock: ManualClock, colour: Colour) -> None:
    pay = hold.guard("payments", Timeout(total=1), dead_letter=True)

    def body() -> Any:
        yield colour.sleep(clock, 5)

    assert colour.run(pay, colour.fn(body)).kind is OutcomeKind.TIMEOUT
    assert only(hold).failure_type == "MAX_RETRIES_GUARDTIMEOUT"


def test_a_cancelled_call_leaves_no_letter(hold: Holdfast) -> None:
    pay = hold.guard("payments", Retry(attempts=3), dead_letter=True)

    async def main() -> None:
        started = asyncio.Event()

        async def wait() -> None:
            started.set()
            await asyncio.Event().wait()

        task = asyncio.ensure_future(pay.acall(wait))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert hold.letters.count() == 0


def test_a_guard_around_a_guard_does_not_keep_the_same_failure_twice(hold: Holdfast, colour: Colour) -> None:
    inner = hold.guard("inner", Retry(attempts=1), dead_letter=True)
    outer = hold.guard("outer", Retry(attempts=1, domain="outer"), dead_letter=True)

    def body() -> Any:
        outcome = yield colour.inner(inner, colour.fn([OSError("down")]))
        raise outcome.error

    assert not colour.run(outer, colour.fn(body)).is_success
    assert only(hold).domain == "inner"


def test_one_exception_object_raised_by_many_calls_gives_a_letter_for_each(hold: Holdfast, colour: Colour) -> None:
    pay = hold.guard("payments", Bulkhead(5), dead_letter=True)
    always = OSError("always this one")
    for _ in range(3):
        colour.run(pay, colour.fn([always]))
    assert hold.letters.count() == 3


def test_arguments_are_kept_by_name_with_entity_and_user(hold: Holdfast) -> None:
    pay = hold.guard("payments", dead_letter=True)

    @pay
    def charge(order_id: str, amount: int, user_id: int, token: str = "") -> None:
        raise OSError("down")

    with pytest.raises(OSError, match="down"):
        charge("o7", 5, user_id=0, token="t0p")
    letter = only(hold)
    assert letter.request_data["args"] == {"order_id": "o7", "amount": 5, "user_id": 0, "token": "***"}
    assert letter.request_data["masked"] == ["token"]
    assert (letter.entity_id, letter.user_id) == ("o7", 0)


def test_a_non_integer_user_id_is_kept(hold: Holdfast) -> None:
    pay = hold.guard("payments", dead_letter=True)
    pay.run(lambda user_id: 1 / 0, "u-77")
    assert only(hold).user_id == "u-77"


def test_an_odd_argument_costs_only_itself(hold: Holdfast) -> None:
    hold.guard("payments", dead_letter=True).run(lambda order_id, thing: 1 / 0, "o1", object())
    letter = only(hold)
    assert letter.request_data["args"] == {"order_id": "o1"}
    assert list(letter.request_data["omitted"]) == ["thing"]


def test_a_replay_is_recommended_only_where_the_arguments_are_those_of_the_call(hold: Holdfast) -> None:
    pay = hold.guard("payments", dead_letter=True)

    @pay.replayable
    def charge(order_id: str, token: Any = None) -> None:
        raise OSError("down")

    def advised(fn: Any, *given: Any) -> tuple[str, str]:
        pay.run(fn, *given)
        letter = hold.letters.find()[0]
        return letter.recommended_action, hold.letters.replay(letter.id).outcome

    assert advised(charge.__wrapped__, "o1") == ("replay", "failed")
    assert advised(charge.__wrapped__, "o2", "secret") == ("manual_check", "refused")
    assert advised(charge.__wrapped__, object()) == ("manual_check", "refused")
    assert advised(charge.__wrapped__, "x" * 300_000) == ("manual_check", "refused")
    assert advised(lambda: 1 / 0) == ("manual_check", "refused")


def test_the_entity_can_be_another_argument_or_be_computed(hold: Holdfast) -> None:
    by_name = hold.guard("a", dead_letter=DeadLetter(entity="invoice"))
    by_name.run(lambda invoice: 1 / 0, 17)
    computed = hold.guard("b", dead_letter=DeadLetter(entity=lambda args: args["invoice"]["no"]))
    computed.run(lambda invoice: 1 / 0, {"no": "x9"})
    broken = hold.guard("c", dead_letter=DeadLetter(entity=lambda args: args["nowhere"]))
    broken.run(lambda invoice: 1 / 0, 1)
    assert [(letter.domain, letter.entity_id) for letter in reversed(hold.letters.find())] == [
        ("a", "17"), ("b", "x9"), ("c", None),
    ]  # fmt: skip


def test_a_huge_payload_is_kept_as_a_preview_and_no_replay_takes_it_for_whole(hold: Holdfast) -> None:
    pay = hold.guard("payments", dead_letter=True)

    @pay.replayable
    def charge(order_id: str, blob: str) -> None:
        raise OSError("down")

    with pytest.raises(OSError, match="down"):
        charge("o1", "x" * 10_000_000)
    letter = only(hold)
    assert letter.request_data["_truncated"] is True
    assert letter.request_data["original_size"] > 10_000_000
    assert letter.entity_id == "o1"
    result = hold.letters.replay(letter.id)
    assert result.outcome == "refused"
    assert "too large" in result.reason


def test_the_callers_idempotency_key_is_kept_with_the_letter(hold: Holdfast) -> None:
    pay = hold.guard("payments", dead_letter=True)

    def charge() -> None:
        context = current_context()
        assert context is not None
        context.set(IDEMPOTENCY_KEY, "order-7")
        raise OSError("down")

    pay.run(charge)
    assert only(hold).metadata["idempotency_key"] == "order-7"


def test_equal_failures_can_share_a_letter(hold: Holdfast) -> None:
    pay = hold.guard("payments", dead_letter=DeadLetter(dedup=lambda args: args["order_id"]))
    for _ in range(3):
        pay.run(lambda order_id: 1 / 0, "o1")
    assert only(hold).occurrences == 3


def test_a_letter_can_expire(hold: Holdfast, clock: ManualClock) -> None:
    hold.guard("payments", dead_letter=DeadLetter(expires_after=60)).run(lambda: 1 / 0)
    letter = only(hold)
    assert (letter.expires_at - clock.wall()).total_seconds() == 60
    clock.advance(61)
    assert hold.letters.run_maintenance().expired == 1


def test_a_guards_odd_name_is_filed_under_a_proper_domain(hold: Holdfast) -> None:
    hold.guard("Payments API", dead_letter=True).run(lambda: 1 / 0)
    hold.guard("日本", dead_letter=True).run(lambda: 1 / 0)
    found = {letter.domain: letter.metadata.get("raw_domain") for letter in hold.letters.find()}
    assert found == {"payments_api": None, "other": "日本"}


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


class Mute(OSError):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Moody(OSError):
    @property
    def status_code(self) -> int:
        raise RuntimeError("ask me later")


class Unnamed:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")

    def __call__(self, *args: Any) -> None:
        raise OSError("down")


@pytest.mark.parametrize("depth", [96, 97, 98, 99, 100, 101])
def test_a_deeply_nested_argument_costs_only_itself(hold: Holdfast, depth: int) -> None:
    hold.guard("payments", dead_letter=True).run(lambda order_id, tree: 1 / 0, "o1", nested(depth))
    letter = only(hold)
    assert letter.entity_id == "o1"
    assert ("tree" in letter.request_data["args"]) == (depth <= 97)


def test_a_number_too_long_to_write_costs_only_itself(hold: Holdfast) -> None:
    hold.guard("payments", dead_letter=True).run(lambda order_id, n: 1 / 0, "o1", {"n": 10**5000})
    assert list(only(hold).request_data["omitted"]) == ["n"]


@pytest.mark.parametrize("error", [Mute("x"), Moody("x")])
def test_an_odd_exception_reaches_its_caller_and_is_kept(hold: Holdfast, colour: Colour, error: OSError) -> None:
    with pytest.raises(type(error)):
        colour.call(hold.guard("payments", dead_letter=True), colour.fn([error]))
    assert only(hold).failure_type == f"MAX_RETRIES_{type(error).__name__.upper()}"


def test_an_odd_function_is_kept_under_the_name_of_its_type(hold: Holdfast) -> None:
    hold.guard("payments", dead_letter=True).run(Unnamed(), 1)
    assert only(hold).request_data["function"] == "Unnamed"


@pytest.mark.parametrize(
    "policy",
    [
        DeadLetter(entity=lambda args: Unnamed().name),
        DeadLetter(entity=lambda args: Mute()),
        DeadLetter(dedup=lambda args: {}),  # type: ignore[arg-type,return-value]  # what a user may get wrong
        DeadLetter(dedup=lambda args: args["nothing"]),
        DeadLetter(connection=lambda: 1 / 0),
    ],
)
def test_a_policy_that_fails_costs_neither_the_exception_nor_the_letter(
    hold: Holdfast, colour: Colour, policy: DeadLetter
) -> None:
    with pytest.raises(OSError, match="down"):
        colour.call(hold.guard("payments", dead_letter=policy), colour.fn([OSError("down")]))
    assert only(hold).entity_id is None


@pytest.mark.parametrize("key", [object(), "k" * 10_000])
def test_an_odd_idempotency_key_costs_only_itself(hold: Holdfast, key: Any) -> None:
    def charge() -> None:
        context = current_context()
        assert context is not None
        context.set(IDEMPOTENCY_KEY, key)
        raise OSError("down")

    hold.guard("payments", dead_letter=True).run(charge)
    letter = only(hold)
    assert "idempotency_key" not in letter.metadata
    assert letter.metadata["source"] == "guard"


def test_whatever_goes_wrong_in_keeping_is_counted_and_the_exception_reaches_the_caller(
    hold: Holdfast, colour: Colour
) -> None:
    pay = hold.guard("payments", dead_letter=True)

    def broken() -> Any:
        raise RuntimeError("cannot schedule new futures after shutdown")

    hold.letters.box.put = hold.letters.box.writers = broken  # type: ignore[method-assign]
    with pytest.raises(OSError, match="down"):
        colour.call(pay, colour.fn([OSError("down")]))
    assert hold.letters.box.counts["lost"] == 1


def test_a_masked_argument_is_nobodys_entity(hold: Holdfast) -> None:
    hold.guard("payments", dead_letter=DeadLetter(entity="token")).run(lambda token: 1 / 0, "t0p")
    assert only(hold).entity_id is None


def test_a_letter_is_written_although_every_thread_of_the_event_loop_waits(hold: Holdfast) -> None:
    pay = hold.guard("payments", dead_letter=True)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        over = threading.Event()
        waiting = loop.run_in_executor(None, over.wait)
        try:
            async with asyncio.timeout(10):
                await pay.arun(lambda: 1 / 0)
        finally:
            over.set()
            await waiting

    asyncio.run(main())
    assert hold.letters.count() == 1


def test_a_caller_that_is_cancelled_during_the_write_does_not_undo_it(hold: Holdfast) -> None:
    pay = hold.guard("payments", dead_letter=True)
    writing, go_on = threading.Event(), threading.Event()
    create = hold.letters.create

    def slowly(*args: Any, **fields: Any) -> Any:
        writing.set()
        assert go_on.wait(10)
        return create(*args, **fields)

    hold.letters.create = slowly  # type: ignore[method-assign]

    async def main() -> None:
        task = asyncio.ensure_future(pay.arun(lambda: 1 / 0))
        await asyncio.to_thread(writing.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())  # its loop ends before the write does
    go_on.set()
    hold.letters.box.close()
    assert hold.letters.count() == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"domain": "No Good"}, "use 'no_good'"),
        ({"max_retries": -1}, "max_retries must be 0 or more"),
        ({"expires_after": 0}, "expires_after must be above 0"),
        ({"limit": 0}, "limit must be a number of bytes"),
    ],
)
def test_an_impossible_policy_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        DeadLetter(**options)


class Away:
    """A store of which every verb fails, until it is back."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.away = True

    def __getattr__(self, name: str) -> Any:
        if self.away and name in ("commit", "get", "page", "tally", "claim", "sweep"):
            raise StoreUnavailable("memory:// is away")
        return getattr(self.store, name)


def test_a_store_that_is_away_never_replaces_the_callers_own_exception(
    hold: Holdfast,
    colour: Colour,
    caplog: pytest.LogCaptureFixture,
) -> None:
    pay = hold.guard("payments", dead_letter=True)
    hold.letters.store = Away(hold.letters.store)  # type: ignore[assignment]
    for _ in range(5):
        with pytest.raises(OSError, match="down"):
            colour.call(pay, colour.fn([OSError("down")]))
    assert hold.letters.box.counts["lost"] == 5
    assert len([record for record in caplog.records if "lost" in record.message]) == 1  # not one line per failure


def test_the_spool_takes_what_the_store_could_not_and_gives_it_back_once(tmp_path: Path, clock: ManualClock) -> None:
    with Holdfast("memory://", clock=clock, telemetry=Hub(), background=False, spool=tmp_path / "spool") as hold:
        pay = hold.guard("payments", dead_letter=DeadLetter(expires_after=60))
        real = hold.letters.store
        hold.letters.store = away = Away(real)  # type: ignore[assignment]
        outcome = pay.run(lambda order_id: 1 / 0, "o1")
        assert letter_id_of(outcome.error) == "spooled"
        away.away = False
        worker = hold.worker()
        assert worker.run_once().chores == {"spool": 1}
        letter = only(hold)
        assert (letter.entity_id, letter.failure_type) == ("o1", "MAX_RETRIES_ZERODIVISIONERROR")
        assert letter.expires_at is not None
        assert worker.run_once().chores == {}
        assert hold.letters.count() == 1


def test_a_spooled_letter_is_as_old_as_its_failure_and_goes_before_what_failed_later(
    tmp_path: Path, clock: ManualClock
) -> None:
    with Holdfast("memory://", clock=clock, telemetry=Hub(), background=False, spool=tmp_path / "spool") as hold:
        pay = hold.guard("payments", dead_letter=True)
        hold.letters.store = away = Away(hold.letters.store)  # type: ignore[assignment]
        failed_at = clock.wall()
        pay.run(lambda order_id: 1 / 0, "o1")
        clock.advance(3600)
        away.away = False
        pay.run(lambda order_id: 1 / 0, "o2")  # is stored, and then what waited
        first, second = hold.letters.find_by_status("pending")
        assert [first.entity_id, second.entity_id] == ["o1", "o2"]
        assert (first.created_at, second.created_at) == (failed_at, clock.wall())
        assert first.updated_at == clock.wall()


def test_a_letter_may_join_the_callers_transaction(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with Holdfast(f"sqlite:///{path}", telemetry=Hub(), background=False) as hold:
        hold.letters.count()  # the schema is made outside of the transaction
        own = sqlite3.connect(path, isolation_level=None)
        pay = hold.guard("payments", dead_letter=DeadLetter(connection=lambda: own))
        own.execute("BEGIN IMMEDIATE")
        pay.run(lambda: 1 / 0)
        own.execute("ROLLBACK")
        assert hold.letters.count() == 0
        own.execute("BEGIN IMMEDIATE")
        pay.run(lambda: 1 / 0)
        own.execute("COMMIT")
        assert hold.letters.count() == 1
        own.close()


@pytest.mark.parametrize("overflow", ["drop_oldest", "compress_oldest", "reject"])
def test_more_letters_than_there_is_room_for(clock: ManualClock, overflow: str) -> None:
    capacity = Capacity(total=10, per_domain=5, overflow=overflow)
    with Holdfast("memory://", clock=clock, telemetry=Hub(), background=False, capacity=capacity) as hold:
        pay = hold.guard("payments", dead_letter=True)
        for number in range(8):
            pay.run(lambda order_id: 1 / 0, f"o{number}")
        kept = [letter.entity_id for letter in reversed(hold.letters.find())]
        assert len(kept) == 5
        assert hold.letters.box.counts["rejected"] == (3 if overflow == "reject" else 0)
        assert kept[0] == ("o0" if overflow == "reject" else "o3")
        summed = hold.letters.get_compressed_summary()["total_compressed_items"]
        assert summed == (3 if overflow == "compress_oldest" else 0)


def test_what_is_in_flight_is_never_evicted_and_the_failure_is_kept_over_the_cap(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    capacity = Capacity(total=2, per_domain=2)
    with Holdfast("memory://", clock=clock, telemetry=Hub(), background=False, capacity=capacity) as hold:
        pay = hold.guard("payments", dead_letter=True)
        for _ in range(2):
            pay.run(lambda: 1 / 0)
        for letter in hold.letters.find():
            assert hold.letters.try_acquire_for_replay(letter.id, 2)
        for _ in range(2):
            pay.run(lambda: 1 / 0)
            for letter in hold.letters.find(status="pending"):
                assert hold.letters.try_acquire_for_replay(letter.id, 2)
        assert hold.letters.count() == 4
        assert len([record for record in caplog.records if "none may go" in record.message]) == 1


def test_a_letter_in_the_callers_transaction_waits_for_no_eviction(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    capacity = Capacity(total=2, per_domain=2)
    with Holdfast(f"sqlite:///{path}", telemetry=Hub(), background=False, capacity=capacity) as hold:
        own = sqlite3.connect(path, isolation_level=None)
        pay = hold.guard("payments", dead_letter=DeadLetter(connection=lambda: own if own.in_transaction else None))
        for _ in range(2):
            pay.run(lambda: 1 / 0)
        own.execute("BEGIN IMMEDIATE")
        pay.run(lambda: 1 / 0)
        own.execute("COMMIT")
        assert hold.letters.box.counts["lost"] == 0
        assert hold.letters.count() == 3
        pay.run(lambda: 1 / 0)
        assert hold.letters.count() == 2
        own.close()


def test_a_plain_guard_takes_any_keeper(colour: Colour) -> None:
    class Keeper:
        def __init__(self) -> None:
            self.kinds: list[OutcomeKind] = []

        async def keep(self, call: Any, ctx: Any, outcome: Any) -> None:
            self.kinds.append(outcome.kind)

        def describe(self) -> str:
            return "a list of kinds"

    keeper = Keeper()
    guard = Guard("x", Retry(attempts=2, base=0), Breaker(consecutive(2), open_for=30), keeper=keeper, telemetry=Hub())
    colour.run(guard, colour.fn([OSError("a")]))
    colour.run(guard, colour.fn([5]))
    assert keeper.kinds == [OutcomeKind.TRANSIENT_FAILURE, OutcomeKind.REJECTED]
    assert guard.describe().order[0] == "a list of kinds"


def test_listeners_hear_what_became_of_a_failure(hold: Holdfast, colour: Colour) -> None:
    heard: list[LetterKept] = []
    hold.telemetry.register(lambda event: heard.append(event) if isinstance(event, LetterKept) else None)
    pay = hold.guard("payments", dead_letter=True)
    colour.run(pay, colour.fn([OSError("down")]))
    (told,) = heard
    assert (told.operation_key, told.how, told.letter_id) == ("payments", "stored", only(hold).id)
    hold.letters.store = Away(hold.letters.store)  # type: ignore[assignment]
    colour.run(pay, colour.fn([OSError("down")]))
    assert (heard[1].how, heard[1].letter_id, heard[1].severity) == ("lost", None, "error")


def test_the_spool_is_read_back_without_a_worker_when_the_store_takes_letters_again(
    tmp_path: Path, clock: ManualClock
) -> None:
    with Holdfast("memory://", clock=clock, telemetry=Hub(), background=False, spool=tmp_path / "spool") as hold:
        pay = hold.guard("payments", dead_letter=True)
        hold.letters.store = away = Away(hold.letters.store)  # type: ignore[assignment]
        pay.run(lambda order_id: 1 / 0, "o1")
        away.away = False
        pay.run(lambda order_id: 1 / 0, "o2")
        assert {letter.entity_id for letter in hold.letters.find()} == {"o1", "o2"}


def test_a_guard_says_that_its_failures_are_kept(hold: Holdfast) -> None:
    assert "1. dead letter: final failures and refusals are kept as payments" in str(
        hold.guard("payments", Retry(attempts=2), dead_letter=True).describe()
    )
