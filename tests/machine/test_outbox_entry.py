"""The moves of an outbox entry: what they need, what they change, and that the SQL made from them does the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from holdfast.machine.outbox_entry import (
    ABANDON,
    CANCEL,
    CLAIM,
    CLAIMABLE,
    MOVES,
    REFUND,
    RELEASE,
    RENEW,
    REQUEUE,
    SETTLING,
    SUCCEED,
    TERMINAL,
    WAITING,
    Move,
    OutboxStatus,
    Put,
    apply,
    is_due,
    is_exhausted,
    is_held,
    may_requeue,
)
from holdfast.outbox.statements import Statements
from tests.databases import Database, database

__all__ = ["database"]

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
S = OutboxStatus
TOKENS = (UUID(int=1), UUID(int=2))
GIVEN: dict[str, Any] = {
    "attempts": 5,
    "last_error": "Boom",
    "last_attempt_at": NOON,
    "next_attempt_at": NOON + timedelta(minutes=5),
    "claim_token": TOKENS[1],
    "claimed_by": "me",
}
rows = st.fixed_dictionaries(
    {
        "status": st.sampled_from(S),
        "attempts": st.integers(0, 9),
        "parks": st.integers(0, 3),
        "last_error": st.none() | st.just("Old"),
        "last_attempt_at": st.none() | st.just(NOON - timedelta(hours=2)),
        "next_attempt_at": st.none() | st.just(NOON - timedelta(hours=1)),
        "claim_token": st.none() | st.just(TOKENS[0]),
        "claimed_by": st.none() | st.just("somebody"),
        "payload": st.none() | st.just({"a": [1, None]}),
        "scrubbed": st.none() | st.booleans(),
    }
)
moves = st.sampled_from(MOVES)


def given_for(move: Move) -> dict[str, Any]:
    return {name: GIVEN[name] for name, put in move.puts.items() if put is Put.GIVEN}


@given(moves, rows, st.booleans())
def test_a_move_starts_from_its_sources_only_and_touches_what_it_names(move: Move, row: Any, scrub: bool) -> None:
    if row["status"] not in move.sources:
        with pytest.raises(ValueError, match=f"{move.name} starts from .* and not from {row['status']}"):
            apply(move, row, scrub=scrub, **GIVEN)
        return
    after = apply(move, row, scrub=scrub, **given_for(move))
    assert after["status"] is move.to
    scrubs = {"scrubbed"} if scrub and "payload" in move.puts else set()
    assert {name for name in row if row[name] != after[name]} <= {"status", *move.puts} | scrubs
    assert 0 <= after["attempts"] == _attempts(move, row["attempts"])


def _attempts(move: Move, before: int) -> int:
    match move.puts.get("attempts", before):
        case Put.GIVEN:
            return int(GIVEN["attempts"])
        case Put.ONE_MORE:
            return before + 1
        case Put.ONE_LESS:
            return max(0, before - 1)
        case number:
            return int(number)


def test_a_value_that_a_move_needs_must_be_given() -> None:
    row = {"status": S.IN_FLIGHT, "attempts": 1, "next_attempt_at": None}
    with pytest.raises(KeyError, match="next_attempt_at"):
        apply(RENEW, row, scrub=False)


@given(st.lists(moves, max_size=30), st.booleans())
def test_however_an_entry_moves_it_keeps_what_is_promised(walk: list[Move], scrub: bool) -> None:
    row: dict[str, Any] = {"status": S.PENDING, "attempts": 0, "parks": 0, "payload": {"a": 1}, "scrubbed": None}
    row |= dict.fromkeys(("last_error", "last_attempt_at", "next_attempt_at", "claim_token", "claimed_by"))
    for move in walk:
        if row["status"] not in move.sources:
            continue
        row = apply(move, row, scrub=scrub, **given_for(move))
        assert (row["claim_token"] is not None) is (row["status"] is S.IN_FLIGHT)  # whoever is not claimed has no owner
        assert row["attempts"] >= 0
        if row["status"] in TERMINAL:
            assert row["next_attempt_at"] is None
            assert row["payload"] is None or not scrub
        assert bool(row["scrubbed"]) is (row["payload"] is None)  # what is gone is known to be gone


def test_only_an_operators_requeue_leaves_an_end() -> None:
    assert {move.name for move in MOVES if move.sources & TERMINAL} == {REQUEUE.name}
    assert REQUEUE.sources == {S.ABANDONED}


def test_every_settle_park_and_requeue_gives_the_claim_back() -> None:
    """A reset counter of attempts must not bring an old claim back to life."""
    for move in MOVES:
        frees = move.puts.get("claim_token", "kept") is None
        assert frees is (move not in (CLAIM, RENEW))
    assert {move.name for move in MOVES if move.sources == {S.IN_FLIGHT}} >= SETTLING


def test_every_status_but_succeeded_leads_on_and_every_one_is_reached() -> None:
    assert {move.to for move in MOVES} == set(S)
    assert {status for status in S if not any(status in move.sources for move in MOVES)} == {S.SUCCEEDED}
    assert CLAIMABLE - {S.IN_FLIGHT} == WAITING


@given(st.sampled_from(S), st.none() | st.integers(-2, 2))
def test_an_entry_is_due_from_its_gate_on_that_moment_included(status: OutboxStatus, away: int | None) -> None:
    gate = None if away is None else NOON + timedelta(microseconds=away)
    assert is_due(status, gate, NOON) is (status not in TERMINAL and (away is None or away <= 0))


@given(
    st.sampled_from(S),
    st.sampled_from((None, *TOKENS)),
    st.sampled_from((None, *TOKENS)),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_a_claim_holds_by_its_token_and_without_one_by_its_attempts(
    status: OutboxStatus, token: Any, mine: Any, attempts: int, known: int
) -> None:
    held = is_held(status, token, attempts, by=mine, at_attempts=known)
    if mine is not None:
        assert held is (status is S.IN_FLIGHT and token == mine)
    else:
        assert held is (status not in TERMINAL and attempts <= known)


def test_as_many_calls_as_allowed_may_begin() -> None:
    assert [is_exhausted(attempts, 8) for attempts in (1, 8, 9)] == [False, False, True]


@given(st.sampled_from(S), st.booleans(), st.booleans(), st.booleans())
def test_what_an_entry_needs_must_be_there_to_requeue_it(
    status: OutboxStatus, needs: bool, has: bool, scrubbed: bool
) -> None:
    may = may_requeue(status, needs_payload=needs, has_payload=has, scrubbed=scrubbed)
    assert may is (status is S.ABANDONED and (has or not (needs or scrubbed)))


# -- the SQL

SHAPES: list[dict[str, Any]] = [
    {"attempts": 0, "payload": None, "scrubbed": None, "claim_token": None, "claimed_by": None},
    {"attempts": 1, "payload": {"a": [1, None]}, "scrubbed": None, "claim_token": TOKENS[0], "claimed_by": "x"},
    {"attempts": 7, "payload": {"a": "é"}, "scrubbed": False, "claim_token": TOKENS[0], "claimed_by": "x"},
    {"attempts": 3, "payload": None, "scrubbed": True, "claim_token": None, "claimed_by": None},
]


def insert(database: Database, status: OutboxStatus, shape: dict[str, Any]) -> dict[str, Any]:
    """A row, and what there is of it in the database."""
    outbox, entry_id = database.tables.outbox, uuid4()
    values = {
        "entry_id": entry_id, "subject_id": "ann", "resolver": "crm", "ref_kind": "crm", "ref_value": "1",
        "ref_extra": {}, "enqueued_at": NOON, "last_attempt_at": NOON - timedelta(hours=1), "last_error": "Old",
        "next_attempt_at": NOON - timedelta(seconds=1), "parks": 2, "status": str(status), **shape,
    }  # fmt: skip
    with database.engine.begin() as connection:
        connection.execute(outbox.insert(), values)
    return read(database, entry_id)


def read(database: Database, entry_id: UUID) -> dict[str, Any]:
    outbox = database.tables.outbox
    with database.engine.connect() as connection:
        row = connection.execute(sa.select(outbox).where(outbox.c.entry_id == entry_id)).one()._asdict()
    aware = {
        name: value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        for name, value in row.items()
        if isinstance(value, datetime)
    }
    return row | aware


GENERATED = ("fresh_at", "gate_at", "order_key", "called_key", "live_dedupe_key")


def expected(move: Move, row: dict[str, Any], scrub: bool) -> dict[str, Any]:
    after = apply(move, row | {"status": OutboxStatus(row["status"])}, scrub=scrub, **given_for(move))
    after["status"] = str(after["status"])
    return {name: value for name, value in after.items() if name not in GENERATED}


@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.name)
def test_the_statements_do_what_the_moves_say(database: Database, move: Move) -> None:
    dialect = database.engine.dialect.name
    statements = Statements(database.tables, dialect, server_time=False, block=False)
    given_values = given_for(move)
    for scrub in (False, True):
        for form in ("all", "each", "update", "held"):
            shapes = SHAPES if form != "held" else [one | {"claim_token": TOKENS[0]} for one in SHAPES]
            status = S.IN_FLIGHT if form == "held" else sorted(move.sources)[0]
            if form == "held" and (not statements.returns_updates or status not in move.sources):
                continue
            before = [insert(database, status, shape) for shape in shapes]
            ids = [row["entry_id"] for row in before]
            with database.sessions.begin() as session:
                if form == "all":
                    statements.move_all(session, move, ids, scrub, given_values)
                elif form == "each":
                    statements.move_each(session, move, scrub, [(id, given_values) for id in ids])
                elif form == "held":
                    held = statements.move_held(session, move, ids, TOKENS[0], scrub, given_values)
                    assert set(held) == set(ids)
                else:
                    session.execute(statements.update(move, ids, scrub=scrub, given=given_values))
            for row in before:
                after = read(database, row["entry_id"])
                mine = {name: value for name, value in after.items() if name not in GENERATED}
                mine["scrubbed"] = _truth(mine["scrubbed"])
                wanted = expected(move, row, scrub)
                wanted["scrubbed"] = _truth(wanted["scrubbed"])
                assert mine == wanted, (move.name, form, scrub)


def _truth(value: Any) -> bool | None:
    return None if value is None else bool(value)


def test_an_update_of_what_is_held_leaves_what_others_hold_alone(database: Database) -> None:
    dialect = database.engine.dialect.name
    statements = Statements(database.tables, dialect, server_time=False, block=False)
    mine = insert(database, S.IN_FLIGHT, SHAPES[1])
    others = [
        insert(database, S.IN_FLIGHT, SHAPES[1] | {"claim_token": TOKENS[1]}),
        insert(database, S.SUCCEEDED, SHAPES[1]),
        insert(database, S.FAILED, SHAPES[1] | {"claim_token": None}),
    ]
    table = database.tables.outbox
    with database.sessions.begin() as session:
        found = sa.select(table.c.entry_id).where(statements.held_by(TOKENS[0]))
        assert session.execute(found).scalars().all() == [mine["entry_id"]]
    assert [read(database, row["entry_id"]) for row in others] == others


def test_the_columns_that_are_searched_hold_only_what_is_to_be_found(database: Database) -> None:
    """A live row has a time in one of two indexes, and one that has ended in none."""
    for status in S:
        for gate in (None, NOON):
            row = insert(database, status, SHAPES[0] | {"next_attempt_at": gate, "ordering_key": "k"})
            live = status in CLAIMABLE
            assert (row["fresh_at"] is not None) is (live and gate is None)
            assert (row["gate_at"] is not None) is (live and gate is not None)
            assert (row["order_key"] is not None) is (status is not S.SUCCEEDED)
            assert (row["called_key"] is not None) is (status is S.IN_FLIGHT)


def test_what_moves_do_to_attempts_is_said_in_one_place() -> None:
    counted = {move.name: move.puts.get("attempts") for move in MOVES}
    assert {name for name, put in counted.items() if put is Put.ONE_MORE} == {CLAIM.name}
    assert {name for name, put in counted.items() if put is Put.ONE_LESS} == {REFUND.name, RELEASE.name}
    scrubbing = {move.name for move in MOVES if move.puts.get("payload") is Put.SCRUBBED}
    assert scrubbing == {SUCCEED.name, ABANDON.name, CANCEL.name}
