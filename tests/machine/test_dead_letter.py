from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.letters.draft import draft
from holdfast.machine import dead_letter as machine
from holdfast.machine.dead_letter import (
    ACTIVE,
    EVICTABLE,
    IN_FLIGHT,
    LETTER,
    TRANSITIONS,
    FailedOperationStatus,
    LetterRecord,
    Step,
    SummaryRecord,
    diagram,
)
from holdfast.machine.letter_history import LONGEST
from holdfast.machine.letter_summary import change_status, summary_id
from holdfast.store.record import evolve

NOW = 1_000_000
STATUSES = [status.value for status in FailedOperationStatus]


def letter(**columns: Any) -> LetterRecord:
    made = draft(NOW, domain="d", failure_type="f", dedup_key="k")
    return made._replace(**columns)


def in_status(status: str) -> LetterRecord:
    return machine.operate(letter(), NOW, status)


def test_active_is_all_but_what_is_done() -> None:
    assert set(STATUSES) - ACTIVE == {"resolved", "rejected", "archived"}
    assert {"replaying", "reviewing"} == IN_FLIGHT
    assert EVICTABLE == ACTIVE - IN_FLIGHT


def test_the_table_says_who_moves_what() -> None:
    assert {(step.value, *map(frozenset, moves)) for step, moves in TRANSITIONS.items()} == {
        ("acquire", frozenset({"pending"}), frozenset({"replaying"})),
        ("redrive", frozenset({"pending", "requires_review"}), frozenset({"replaying"})),
        ("complete", frozenset({"replaying"}), frozenset({"resolved", "pending", "requires_review"})),
        ("release", frozenset({"replaying"}), frozenset({"pending", "requires_review"})),
        ("return", frozenset({"replaying"}), frozenset({"pending"})),
        ("expire", frozenset({"pending", "requires_review"}), frozenset({"expired"})),
        ("archive", frozenset({"resolved"}), frozenset({"archived"})),
        ("operate", frozenset(STATUSES), frozenset(STATUSES)),
    }


STEPS: dict[Step, Callable[[LetterRecord], LetterRecord | None]] = {
    Step.ACQUIRE: lambda found: machine.acquire(found, NOW, 9, "t"),
    Step.REDRIVE: lambda found: machine.redrive(found, NOW, "t"),
    Step.COMPLETE: lambda found: machine.complete(found, NOW, False),
    Step.RELEASE: lambda found: machine.release(found, NOW + 10, NOW + 5),
    Step.RETURN: lambda found: machine.return_attempt(found._replace(token="t"), NOW, "t"),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("status", STATUSES)
def test_a_step_moves_exactly_what_the_table_allows(step: Step, status: str) -> None:
    after = STEPS[step](in_status(status))
    sources, targets = TRANSITIONS[step]
    assert (after is not None) is (status in sources)
    assert after is None or after.status in targets


def test_the_diagram_is_drawn_from_the_table() -> None:
    lines = diagram().splitlines()
    assert lines[0] == "stateDiagram-v2"
    assert "    requires_review --> replaying: redrive" in lines
    assert not any("operate" in line for line in lines)


def test_an_acquire_rewrites_only_small_columns() -> None:
    before = letter(payload="{}" * 1000)
    after = machine.acquire(before, NOW, 2, "t")
    assert after is not None
    changed = {name for name in LETTER.positions if getattr(before, name) is not getattr(after, name)}
    assert not changed & {"payload", "metadata", "history", "domain", "unique_key", "created_at"}


def test_a_completion_appends_to_the_history_without_reading_it() -> None:
    broken = "[not json]"
    held = machine.acquire(letter(history=broken), NOW, 2, "t")
    assert held is not None
    after = machine.complete(held, NOW, False)
    assert after is not None
    assert after.history.startswith("[not json,{")


def test_the_history_is_in_order_also_when_the_clocks_of_two_hosts_are_not() -> None:
    taken = machine.acquire(letter(), NOW, 9, "a")
    assert taken is not None
    back = machine.complete(taken, NOW + 500, False)
    assert back is not None
    again = machine.acquire(back, NOW + 200, 9, "b")
    assert again is not None
    done = machine.complete(again, NOW + 300, True)
    assert done is not None
    first, second = json.loads(done.history)
    assert first["finished_at"] <= second["started_at"] <= second["finished_at"]
    assert (again.last_retry_at, again.updated_at) == (NOW + 200, NOW + 200)  # leases count from what the holder says


def test_the_history_is_bounded_and_keeps_the_newest() -> None:
    found = letter(max_retries=10**6)
    for number in range(1, 200):
        held = machine.acquire(found, NOW, 10**6, f"t{number}")
        assert held is not None
        done = machine.complete(held, NOW, False, note="x" * 1000)
        assert done is not None
        found = done
        assert len(found.history) <= LONGEST
    tokens = [attempt["token"] for attempt in json.loads(found.history)]
    assert tokens == [f"t{number}" for number in range(200 - len(tokens), 200)]
    assert len(tokens) > 20


def test_one_huge_attempt_is_kept_all_the_same() -> None:
    found = letter(max_retries=9)
    for _ in range(2):
        held = machine.acquire(found, NOW, 9, "t")
        assert held is not None
        done = machine.complete(held, NOW, False, note="x" * (2 * LONGEST))
        assert done is not None
        found = done
    assert len(json.loads(found.history)) == 1


def test_odd_metadata_does_not_stop_a_redrive() -> None:
    odd = letter(metadata='{"previous_total_retries":"many","force_redrive_count":null}', retry_count=3)
    after = machine.redrive(odd, NOW, "t")
    assert after is not None
    assert json.loads(after.metadata) == {"previous_total_retries": 3, "force_redrive_count": 1}
    assert machine.acquire(odd, NOW, 9, "t") is not None


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_redrive_takes_back_what_the_end_of_the_last_budget_wrote(interrupted: bool) -> None:
    held = machine.acquire(letter(max_retries=1), NOW, 1, "t")
    assert held is not None
    spent = machine.release(held, NOW + 2, NOW + 1) if interrupted else machine.complete(held, NOW, False, note="why")
    assert spent is not None
    assert (spent.resolution_type, spent.recommended_action) == ("max_retries_exhausted", "escalate")
    driven = machine.redrive(spent, NOW, "u")
    assert driven is not None
    assert (driven.resolution_type, driven.recommended_action) == ("", "")
    assert driven.resolution_note == ("" if interrupted else "why")


def test_a_redrive_leaves_what_a_person_wrote() -> None:
    seen = machine.operate(letter(), NOW, "requires_review", resolution_type="manual", recommended_action="escalate")
    driven = machine.redrive(seen, NOW, "t")
    assert driven is not None
    assert (driven.resolution_type, driven.recommended_action) == ("manual", "escalate")


def test_keys_of_two_domains_do_not_meet() -> None:
    assert machine.unique_key("a", "b") != machine.unique_key("ab", "") != machine.unique_key("", "ab")
    assert machine.unique_key("a", None) is None


def test_a_summarys_id_is_as_documented_and_never_too_long() -> None:
    assert summary_id("d", "f", "e", 7) == "compressed:d:f:e:7"
    long = {summary_id("d" * 191, "f" * 191, "e" * number, 7) for number in range(100, 110)}
    assert len(long) == 10
    assert {len(id) for id in long} == {191}


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[str, Any]]:
    one = st.one_of(
        st.tuples(st.just("acquire"), st.integers(0, 4)),
        st.tuples(st.just("redrive"), st.none()),
        st.tuples(st.just("complete"), st.booleans()),
        st.tuples(st.just("retry_at"), st.integers(0, 10)),
        st.tuples(st.just("heartbeat"), st.none()),
        st.tuples(st.just("return"), st.none()),
        st.tuples(st.just("release"), st.integers(0, 10)),
        st.tuples(st.just("operate"), st.sampled_from(STATUSES)),
        st.tuples(st.just("count"), st.none()),
        st.tuples(st.just("recur"), st.none()),
        st.tuples(st.just("sweep"), st.sampled_from(["expire", "archive"])),
    )
    return draw(st.lists(one, max_size=25))


def apply(found: LetterRecord, now: int, step: str, value: Any) -> LetterRecord | None:
    token = found.token or "none"
    match step:
        case "acquire":
            return machine.acquire(found, now, value, f"t{now}")
        case "redrive":
            return machine.redrive(found, now, f"t{now}")
        case "complete":
            return machine.complete(found, now, value, token=found.token)
        case "retry_at":
            return machine.complete(found, now, False, retry_at=now + value)
        case "heartbeat":
            return machine.heartbeat(found, now, token)
        case "return":
            return machine.return_attempt(found, now, token)
        case "release":
            return machine.release(found, now, now - value)
        case "operate":
            return machine.operate(found, now, value)
        case "count":
            return machine.count_retry(found, now)
        case "recur":
            return machine.recur(found, now) if found.status in ACTIVE else None
    if value == "expire":
        return evolve(found, **machine.expired(now)) if found.status in machine.EXPIRABLE else None
    return evolve(found, **machine.archived(now)) if found.status == "resolved" else None


@given(steps())
def test_the_columns_for_the_indexes_always_follow_from_the_others(path: list[tuple[str, Any]]) -> None:
    found, now = letter(), NOW
    acquires = 0
    for step, value in path:
        now += 3
        after = apply(found, now, step, value)
        if after is None:
            continue
        acquires += step in ("acquire", "redrive")
        assert after.version == found.version + 1
        assert after.updated_at == now
        assert (after.payload, after.id, after.created_at) == (found.payload, found.id, found.created_at)
        found = after
        assert (found.due_at is not None) is (found.status == "pending")
        assert (found.touched_at is not None) is (found.status == "replaying")
        assert (found.aged_at is not None) is (found.status in ("resolved", "archived"))
        assert (found.unique_key is not None) is (found.status in ACTIVE)
        assert found.status == "replaying" or (found.token, found.attempt_cap, found.started_at) == (None, None, None)
        assert found.retry_count >= 0
    attempts = json.loads(found.history)
    numbers = [attempt["number"] for attempt in attempts]
    assert numbers == sorted(set(numbers))
    assert len(numbers) + (found.started_at is not None) == acquires


def test_a_summary_keeps_the_stamps_of_earlier_statuses() -> None:
    found = SummaryRecord("s", 1, None, "d", "f", "e", "active", 1, 0, 0, 0, None, None, "", "{}")
    stale = change_status(found, 5, "stale")
    again = change_status(stale, 6, "stale")
    archived = change_status(again, 7, "archived")
    back = change_status(archived, 8, "active")
    assert [(s.stale_at, s.archived_at) for s in (stale, again, archived, back)] == [
        (5, None),
        (5, None),
        (5, 7),
        (5, 7),
    ]
