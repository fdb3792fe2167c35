"""Asking a target, after a success, whether it is real."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from holdfast.errors import ConfigurationError
from holdfast.outbox.outbox import Outbox
from holdfast.outbox.resolver import ResolverVerification
from holdfast.outbox.subject import SubjectRef
from tests.databases import Database
from tests.databases import database as database
from tests.outbox.runner_kit import Crm, Desk, until


class VerifyingCrm(Crm):
    def __init__(self) -> None:
        super().__init__()
        self.finds: Callable[[SubjectRef], Any] = lambda ref: _verdict(True)
        self.asked: list[str] = []

    async def verify_absent(self, ref: SubjectRef) -> Any:
        self.asked.append(ref.value)
        answer = self.finds(ref)
        return await answer if asyncio.iscoroutine(answer) else answer


def _verdict(absent: bool) -> ResolverVerification:
    return ResolverVerification(resolver="crm", confirmed_absent=absent)


@pytest.fixture
def desk(database: Database) -> Desk:
    desk = Desk(database.sessions)
    desk.crm = VerifyingCrm()
    desk.registry._resolvers["crm"] = desk.crm
    desk.outbox.audit_sink = desk.trail
    return desk


def _crm(desk: Desk) -> VerifyingCrm:
    assert isinstance(desk.crm, VerifyingCrm)
    return desk.crm


def _state(desk: Desk, id: UUID) -> tuple[Any, Any, bool]:
    entry = desk.get(id)
    return str(entry.status), entry.verification, entry.verify_at is None


@pytest.mark.parametrize(
    ("absent", "column", "event"),
    [
        (True, "confirmed", "erasure_external_verified"),
        (False, "failed", "erasure_external_verification_failed"),
    ],
)
async def test_a_verdict_is_audited_after_the_completion_and_reverts_nothing(
    desk: Desk, absent: bool, column: str, event: str
) -> None:
    _crm(desk).finds = lambda ref: _verdict(absent)
    id = desk.erase()
    assert await desk.runner().run_once() == 1
    assert _state(desk, id) == ("succeeded", column, True)
    assert desk.trail.types == ["erasure_step_succeeded", "erasure_completed", event]
    facts = {"target": "crm", "external": True, "confirmed_absent": absent, "attempts": 1}
    assert desk.trail.said[2] == (event, facts)
    assert desk.trail.events[2].entry_id == id


async def test_a_target_that_cannot_tell_is_not_asked(database: Database) -> None:
    desk = Desk(database.sessions)
    id = desk.erase()
    await desk.runner().run_once()
    assert _state(desk, id) == ("succeeded", None, True)
    assert desk.trail.types == ["erasure_step_succeeded", "erasure_completed"]


async def test_success_is_on_disk_before_anybody_asks(desk: Desk) -> None:
    seen: list[Any] = []
    id = desk.erase()

    def find(ref: SubjectRef) -> ResolverVerification:
        seen.append((_state(desk, id)[:2], desk.trail.types[:]))
        return _verdict(True)

    _crm(desk).finds = find
    await desk.runner().run_once()
    assert seen == [(("succeeded", "pending"), ["erasure_step_succeeded", "erasure_completed"])]


async def test_a_question_that_fails_is_asked_again_later(desk: Desk) -> None:
    def away(ref: SubjectRef) -> Any:
        raise ConnectionError

    _crm(desk).finds = away
    id, runner = desk.erase(), desk.runner()
    await runner.run_once()
    assert _state(desk, id) == ("succeeded", "pending", False)
    assert desk.get(id).verify_at == desk.clock.wall() + timedelta(seconds=30)
    desk.clock.advance(29)
    await runner.run_once()
    assert len(_crm(desk).asked) == 1
    desk.clock.advance(1)
    await runner.run_once()
    assert desk.get(id).verify_at == desk.clock.wall() + timedelta(seconds=60)
    desk.clock.advance(60)
    _crm(desk).finds = lambda ref: _verdict(True)
    assert await runner.run_once() == 0
    assert _state(desk, id) == ("succeeded", "confirmed", True)
    assert desk.trail.types[-1] == "erasure_external_verified"
    assert len(desk.crm.called) == 1


async def test_a_question_that_nobody_can_answer_is_given_up_loudly(desk: Desk) -> None:
    def away(ref: SubjectRef) -> Any:
        raise ConnectionError

    _crm(desk).finds = away
    id, runner = desk.erase(), desk.runner(verify_attempts=2)
    await runner.run_once()
    assert desk.pager.unverified == []
    desk.clock.advance(30)
    await runner.run_once()
    assert _state(desk, id) == ("succeeded", "pending", True)
    (signal,) = desk.pager.unverified
    assert (signal.entry_id, signal.error, signal.attempts) == (id, "ConnectionError", 2)
    desk.clock.advance(10_000)
    await runner.run_once()
    assert len(_crm(desk).asked) == 2


async def test_an_answer_of_another_type_is_a_question_that_failed(desk: Desk) -> None:
    _crm(desk).finds = lambda ref: "gone"
    id = desk.erase()
    await desk.runner().run_once()
    assert _state(desk, id) == ("succeeded", "pending", False)


async def test_a_runner_that_dies_before_it_asks_leaves_the_question_to_another(desk: Desk) -> None:
    def die(ref: SubjectRef) -> Any:
        raise SystemExit

    _crm(desk).finds = die
    id = desk.erase()
    with pytest.raises(SystemExit):
        await desk.runner().run_once()
    assert _state(desk, id) == ("succeeded", "pending", False)
    _crm(desk).finds = lambda ref: _verdict(True)
    await desk.runner().run_once()
    assert len(_crm(desk).asked) == 1  # it is held for a lease
    desk.clock.advance(300)
    await desk.runner().run_once()
    assert _state(desk, id) == ("succeeded", "confirmed", True)


async def test_questions_that_kill_their_runners_end(desk: Desk) -> None:
    def die(ref: SubjectRef) -> Any:
        raise SystemExit

    _crm(desk).finds = die
    id = desk.erase()
    for _ in range(2):
        with pytest.raises(SystemExit):
            await desk.runner(verify_attempts=2).run_once()
        desk.clock.advance(300)
    await desk.runner(verify_attempts=2).run_once()
    assert _state(desk, id) == ("succeeded", "pending", True)
    assert desk.pager.unverified[0].error == "AttemptsExhausted"


async def test_a_verdict_of_a_question_that_another_runner_took_over_changes_nothing(desk: Desk) -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    async def slowly(ref: SubjectRef) -> ResolverVerification:
        asked.set()
        await answered.wait()
        return _verdict(False)

    _crm(desk).finds = slowly
    id = desk.erase()
    run = asyncio.create_task(desk.runner().run_once())
    await asked.wait()
    table, past = desk.outbox.tables.outbox, desk.clock.wall() - timedelta(seconds=1)
    desk.outbox.run(lambda session: session.execute(table.update().values(verify_at=past)))
    _crm(desk).finds = lambda ref: _verdict(True)
    await desk.runner().run_once()
    answered.set()
    await run
    assert _state(desk, id) == ("succeeded", "confirmed", True)
    assert desk.trail.types.count("erasure_external_verification_failed") == 0


async def test_a_trail_that_refuses_a_verdict_leaves_the_question_open(desk: Desk) -> None:
    desk.trail.refuses = lambda event: "verified" in str(event.event_type)
    id = desk.erase()
    await desk.runner().run_once()
    assert _state(desk, id) == ("succeeded", "pending", False)
    desk.trail.refuses = lambda event: False
    desk.clock.advance(300)
    await desk.runner().run_once()
    assert _state(desk, id) == ("succeeded", "confirmed", True)


async def test_a_slow_call_does_not_hold_up_a_question(desk: Desk) -> None:
    go = asyncio.Event()

    async def wait(context: Any) -> None:
        await go.wait()

    desk.mail.answers = wait
    slow, id = desk.put_one(), desk.erase()
    run = asyncio.create_task(desk.runner().run_once())
    await until(lambda: desk.get(id).verification == "confirmed")
    assert desk.get(slow).status == "in_flight"
    go.set()
    await run


async def _given_up(desk: Desk) -> UUID:
    def away(ref: SubjectRef) -> Any:
        raise ConnectionError

    _crm(desk).finds = away
    id = desk.erase()
    await desk.runner(verify_attempts=1).run_once()
    assert _state(desk, id) == ("succeeded", "pending", True)
    return id


async def _denied(desk: Desk) -> UUID:
    _crm(desk).finds = lambda ref: _verdict(False)
    id = desk.erase()
    await desk.runner().run_once()
    assert _state(desk, id) == ("succeeded", "failed", True)
    return id


@pytest.mark.parametrize(("before", "word"), [(_given_up, "given_up"), (_denied, "failed")])
async def test_a_question_that_was_given_up_or_denied_is_asked_again_when_somebody_says_so(
    desk: Desk, before: Any, word: str
) -> None:
    id = await before(desk)
    desk.clock.advance(10_000)
    number = len(_crm(desk).asked)
    (entry,) = await asyncio.to_thread(desk.outbox.verify_again, [id])
    assert entry == desk.get(id)
    assert (entry.verification, entry.verify_at) == ("pending", desk.clock.wall())
    facts = {"operation": "erase", "target": "crm", "external": True, "prior": word}
    assert desk.trail.said[-1] == ("verification_requested", facts)
    assert desk.trail.events[-1].entry_id == id
    _crm(desk).finds = lambda ref: _verdict(True)
    assert await desk.runner(verify_attempts=1).run_once() == 0  # with a new budget
    assert len(_crm(desk).asked) == number + 1
    assert _state(desk, id) == ("succeeded", "confirmed", True)
    assert desk.trail.types[-1] == "erasure_external_verified"


async def test_only_what_needs_somebody_is_asked_about_again(desk: Desk, database: Database) -> None:
    given_up, confirmed = await _given_up(desk), desk.erase()
    waiting = desk.erase(ref=SubjectRef(kind="crm", value="cat"))

    def find(ref: SubjectRef) -> ResolverVerification:
        if ref.value == "cat":
            raise ConnectionError
        return _verdict(True)

    _crm(desk).finds = find
    await desk.runner().run_once()
    pending = desk.erase()
    ids, number = [given_up, confirmed, waiting, pending, UUID(int=7)], len(desk.trail.events)
    again = await asyncio.to_thread(desk.outbox.verify_again, ids)
    assert [entry.entry_id for entry in again] == [given_up]
    assert desk.outbox.verify_again(ids) == ()
    assert desk.outbox.verify_again([]) == ()
    assert len(desk.trail.events) == number + 1


def test_asking_again_needs_a_trail(database: Database) -> None:
    outbox = Outbox(database.sessions, database.tables.outbox)
    with pytest.raises(ConfigurationError, match="verify_again is audited: give the Outbox an audit_sink"):
        outbox.verify_again([UUID(int=7)])


async def test_a_trail_that_refuses_leaves_the_question_as_it_was(desk: Desk) -> None:
    id = await _given_up(desk)

    def refuse(event: Any) -> bool:
        return str(event.event_type) == "verification_requested"

    desk.trail.refuses = refuse
    with pytest.raises(ConnectionError, match="the trail is away"):
        await asyncio.to_thread(desk.outbox.verify_again, [id])
    assert _state(desk, id) == ("succeeded", "pending", True)
