"""Putting letters in, and an operator's changes to them."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest

from holdfast.letters.data import FailedOperationDomain, FailedOperationStatus
from holdfast.letters.repository import FailedOperationRepository
from holdfast.testing.clock import ManualClock

Letters = FailedOperationRepository
NO_IDS: list[Any] = ["", "nothing", "0" * 24, "x" * 10_000, "ä", "a\0b", "\ud800", 42, 4.2, None, b"id", ["a"], {}]


def test_a_new_letter_is_pending_and_has_the_documented_defaults(letters: Letters, clock: ManualClock) -> None:
    letter = letters.create("payments", "MAX_RETRIES_OSERROR")
    assert letter.status == "pending"
    assert letter.is_pending
    assert letter.can_retry
    assert not letter.is_resolved
    assert letter.created_at == letter.updated_at == clock.wall()
    assert (letter.retry_count, letter.max_retries, letter.occurrences) == (0, 2, 1)
    for name in ("entity_refs", "snapshot_data", "request_data", "response_data", "metadata"):
        assert getattr(letter, name) == {}
    for name in ("error_code", "error_message", "resolution_type", "resolution_note", "next_action_hint"):
        assert getattr(letter, name) == ""
    for name in ("entity_type", "entity_id", "user_id", "resolved_by_id", "last_retry_at", "resolved_at", "expires_at"):
        assert getattr(letter, name) is None
    for name in ("attempt_token", "attempt_cap", "heartbeat_at", "next_attempt_at", "archived_at", "dedup_key"):
        assert getattr(letter, name) is None
    assert letters.get_by_id(letter.id) == letter


def test_everything_that_is_given_comes_back(letters: Letters, clock: ManualClock) -> None:
    given: dict[str, Any] = {
        "domain": "payments", "failure_type": "F", "error_message": "it — broke", "error_code": "E7",
        "entity_type": "order", "entity_id": "o-1", "entity_refs": {"a": [1, {"b": None}]}, "user_id": "u7",
        "snapshot_data": {"s": 1.5}, "request_data": {"r": True}, "response_data": {"x": "é\u2028"},
        "metadata": {"source": "here"}, "retry_count": 1, "max_retries": 5, "next_action_hint": "look",
        "recommended_action": "replay", "expires_at": clock.wall() + timedelta(days=1), "dedup_key": "k",
        "next_attempt_at": clock.wall() + timedelta(minutes=1),
    }  # fmt: skip
    created = letters.create(**given)
    stored = letters.get_by_id(created.id)
    assert stored is not None
    for name, value in given.items():
        assert getattr(stored, name) == value, name
    assert stored == created


def test_arguments_have_the_order_of_the_seed(letters: Letters, clock: ManualClock) -> None:
    soon = clock.wall() + timedelta(days=1)
    letter = letters.create(
        "d", "f", "message", "code", "type", "id", {"ref": 1}, 7, {"s": 1}, {"q": 1}, {"p": 1}, {"m": 1}, 1, 3, "hint",
        "replay", soon,
    )  # fmt: skip
    assert (letter.error_message, letter.error_code, letter.entity_type, letter.entity_id) == (
        "message", "code", "type", "id",
    )  # fmt: skip
    assert (letter.entity_refs, letter.user_id, letter.snapshot_data) == ({"ref": 1}, 7, {"s": 1})
    assert (letter.request_data, letter.response_data, letter.metadata) == ({"q": 1}, {"p": 1}, {"m": 1})
    assert (letter.retry_count, letter.max_retries) == (1, 3)
    assert (letter.next_action_hint, letter.recommended_action, letter.expires_at) == ("hint", "replay", soon)


@pytest.mark.parametrize("user_id", [0, 7, -1, 2**70, "", "7", "alice", "ü"])
def test_a_user_id_keeps_its_type(letters: Letters, user_id: int | str) -> None:
    letter = letters.create("d", "f", user_id=user_id)
    stored = letters.get_by_id(letter.id)
    assert stored is not None
    assert stored.user_id == user_id
    assert type(stored.user_id) is type(user_id)


def test_falsy_is_not_missing(letters: Letters) -> None:
    letter = letters.create("", "", entity_type="", entity_id="", user_id=0, max_retries=0, dedup_key="")
    stored = letters.get_by_id(letter.id)
    assert stored is not None
    assert (stored.domain, stored.failure_type, stored.entity_type, stored.entity_id) == ("", "", "", "")
    assert (stored.user_id, stored.max_retries, stored.dedup_key) == (0, 0, "")
    assert not stored.can_retry
    assert letters.create("", "", dedup_key="").id == letter.id


def test_a_naive_time_is_read_as_utc_and_every_time_comes_back_in_utc(letters: Letters) -> None:
    naive = datetime(2027, 1, 2, 3, 4, 5, 678901)  # noqa: DTZ001  # the point
    east = datetime(2027, 1, 2, 3, 4, 5, 678901, tzinfo=timezone(timedelta(hours=5)))
    first = letters.get_by_id(letters.create("d", "f", expires_at=naive).id)
    second = letters.get_by_id(letters.create("d", "f", expires_at=east).id)
    assert first is not None
    assert second is not None
    assert first.expires_at == naive.replace(tzinfo=UTC)
    assert second.expires_at == east
    assert second.expires_at.tzinfo is UTC


def test_the_codec_writes_what_json_can_say(letters: Letters) -> None:
    class Colour(Enum):
        RED = "red"

    key = uuid.uuid4()
    data = {
        "tuple": (1, (2,)), "when": datetime(2026, 1, 2, tzinfo=UTC), "day": date(2026, 1, 2),
        "amount": Decimal("1.10"), "id": key, "colour": Colour.RED, "domain": FailedOperationDomain.CUSTOM,
    }  # fmt: skip
    stored = letters.get_by_id(letters.create("d", "f", request_data=data).id)
    assert stored is not None
    assert stored.request_data == {
        "tuple": [1, [2]], "when": "2026-01-02T00:00:00+00:00", "day": "2026-01-02",
        "amount": "1.10", "id": str(key), "colour": "red", "domain": "custom",
    }  # fmt: skip


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"in": value}
    return value


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("request_data", {"f": object()}, TypeError),
        ("request_data", {"f": {1, 2}}, TypeError),
        ("request_data", {"f": b"bytes"}, TypeError),
        ("request_data", {1: "a key that is no text"}, TypeError),
        ("request_data", ["no", "dict"], TypeError),
        ("metadata", {"f": float("nan")}, ValueError),
        ("snapshot_data", {"f": [float("inf")]}, ValueError),
        ("response_data", {"f": float("-inf")}, ValueError),
        ("entity_refs", nested(200), ValueError),
        ("entity_refs", nested(100_000), ValueError),
        ("user_id", object(), TypeError),
        ("user_id", ["a"], TypeError),
        ("user_id", float("nan"), ValueError),
        ("domain", None, TypeError),
        ("domain", "x" * 192, ValueError),
        ("entity_id", "x" * 192, ValueError),
        ("failure_type", ["x"], TypeError),
        ("max_retries", "2", TypeError),
        ("max_retries", 2.5, TypeError),
        ("max_retries", -1, ValueError),
        ("retry_count", 2**63, ValueError),
        ("expires_at", "tomorrow", TypeError),
    ],
)
def test_what_cannot_be_stored_is_refused_and_nothing_is_written(
    letters: Letters, name: str, value: Any, error: type[Exception]
) -> None:
    arguments: dict[str, Any] = {"domain": "d", "failure_type": "f", name: value}
    with pytest.raises(error, match=f"^{name}") as refusal:
        letters.create(**arguments)
    assert len(str(refusal.value)) < 200
    with pytest.raises(error):
        letters.create_many([{"domain": "d", "failure_type": "f"}, arguments])
    assert letters.count() == 0
    assert letters.inflow() == 0


def test_u0000_and_half_surrogates_become_the_replacement_character(letters: Letters) -> None:
    data = {"k\0": "v\0\udfff"}
    letter = letters.create("a\0b", "f\ud800", "m\0", "c\0", "t\0", "i\0", request_data=data, user_id="\0")
    stored = letters.get_by_id(letter.id)
    assert stored is not None
    assert stored == letter
    assert (stored.domain, stored.failure_type, stored.error_message) == ("a\ufffdb", "f\ufffd", "m\ufffd")
    assert stored.request_data == {"k\ufffd": "v\ufffd\ufffd"}
    assert [found.id for found in letters.find(domain="a\0b", entity_id="i\0", user_id="\0")] == [letter.id]
    assert letters.count(domain="a\0b") == 1


def test_a_payload_of_ten_megabytes_comes_back(letters: Letters) -> None:
    body = "é0123456789" * 1_000_000
    letter = letters.create("d", "f", request_data={"body": body})
    assert letters.try_acquire_for_replay(letter.id, 2) is not None
    assert letters.complete_replay(letter.id, True)
    stored = letters.get_by_id(letter.id)
    assert stored is not None
    assert stored.request_data == {"body": body}


def test_numbers_and_uuids_are_texts_where_a_text_is_stored(letters: Letters) -> None:
    key = uuid.uuid4()
    assert letters.create("d", "f", entity_id=42).entity_id == "42"  # type: ignore[arg-type]  # what callers do
    assert letters.create("d", "f", entity_id=key).entity_id == str(key)  # type: ignore[arg-type]  # the same
    assert letters.create(FailedOperationDomain.CUSTOM, "f").domain == "custom"
    assert letters.count(domain=FailedOperationDomain.CUSTOM) == 1


def test_nothing_handed_in_or_out_is_the_stored_thing(letters: Letters) -> None:
    data = {"list": [1]}
    letter = letters.create("d", "f", request_data=data, metadata=data)
    data["list"].append(2)
    letter.request_data["list"].append(3)
    letter.metadata.clear()
    letter.status = "resolved"
    stored = letters.get_by_id(letter.id)
    assert stored is not None
    assert (stored.request_data, stored.metadata, stored.status) == ({"list": [1]}, {"list": [1]}, "pending")
    found = letters.find()[0]
    found.request_data["list"].append(4)
    assert letters.find()[0].request_data == {"list": [1]}


@pytest.mark.parametrize("id", NO_IDS, ids=lambda id: repr(id)[:20])
def test_an_unknown_id_of_any_shape_is_simply_not_there(letters: Letters, id: Any) -> None:
    letters.create("d", "f")
    assert letters.get_by_id(id) is None
    assert letters.update_status(id, "resolved") is False
    assert letters.mark_as_resolved(id, "manual") is False
    assert letters.increment_retry_count(id) is False
    assert letters.bulk_update_status([id], "resolved") == 0
    assert letters.try_acquire_for_replay(id, 2) is None
    assert letters.try_acquire_for_replay(id, 2, force=True) is None
    assert letters.complete_replay(id, True) is False
    assert letters.heartbeat(id, "t") is False
    assert letters.return_attempt(id, "t") is False
    assert letters.get_attempts(id) == []
    assert letters.purge_archived(ids=[id]) == 0
    assert letters.delete(id) is False
    assert letters.update_compressed_status(id, "stale") is False
    assert letters.count(status="pending") == 1


def test_ids_ascend_in_the_order_of_creation_though_time_stands_still(letters: Letters) -> None:
    ids = [letters.create("d", "f").id for _ in range(50)]
    ids += [letter.id for letter in letters.create_many([{"domain": "d", "failure_type": "f"}] * 50)]
    assert ids == sorted(set(ids))
    assert len({len(id) for id in ids}) == 1
    assert [letter.id for letter in letters.find_by_status("pending")] == ids
    assert [letter.id for letter in letters.find()] == ids[::-1]


def test_a_dedup_key_of_an_active_letter_raises_its_occurrences(letters: Letters, clock: ManualClock) -> None:
    first = letters.create("d", "f", "the first error", dedup_key="k")
    clock.advance(5)
    again = letters.create("d", "other", "another error", dedup_key="k")
    assert (again.id, again.occurrences, again.error_message) == (first.id, 2, "the first error")
    assert again.updated_at == clock.wall()
    assert again.created_at == first.created_at
    assert letters.get_by_id(first.id) == again
    assert letters.create("elsewhere", "f", dedup_key="k").id != first.id
    assert letters.create("d", "f").id != first.id
    assert letters.count() == 3
    assert letters.inflow("d") == 2


@pytest.mark.parametrize("status", ["resolved", "rejected", "archived"])
def test_a_letter_that_is_done_gives_its_dedup_key_up(letters: Letters, status: str) -> None:
    first = letters.create("d", "f", dedup_key="k")
    letters.update_status(first.id, status)
    second = letters.create("d", "f", dedup_key="k")
    assert second.id != first.id
    assert second.occurrences == 1


@pytest.mark.parametrize("status", ["replaying", "reviewing", "replayed", "requires_review", "expired"])
def test_a_letter_that_is_still_somebodys_business_keeps_it(letters: Letters, status: str) -> None:
    first = letters.create("d", "f", dedup_key="k")
    letters.update_status(first.id, status)
    assert letters.create("d", "f", dedup_key="k").id == first.id


def test_a_letter_that_becomes_active_again_takes_its_key_back_if_it_is_free(letters: Letters) -> None:
    first = letters.create("d", "f", dedup_key="k")
    letters.update_status(first.id, "resolved")
    letters.update_status(first.id, "pending")
    assert letters.create("d", "f", dedup_key="k").id == first.id


def test_a_key_that_another_letter_holds_by_now_does_not_stop_an_operator(letters: Letters) -> None:
    first = letters.create("d", "f", dedup_key="k")
    third = letters.create("d", "f", dedup_key="k3")
    letters.bulk_update_status([first.id, third.id], "resolved")
    second = letters.create("d", "f", dedup_key="k")
    assert letters.update_status(first.id, "pending")
    assert letters.bulk_update_status([first.id, third.id], "resolved") == 2
    assert letters.bulk_update_status([first.id, third.id], "pending") == 2
    assert letters.create("d", "f", dedup_key="k").id == second.id
    assert letters.create("d", "f", dedup_key="k3").id == third.id


def test_of_two_letters_that_ask_for_the_same_key_in_one_step_the_first_gets_it(letters: Letters) -> None:
    first = letters.create("d", "f", dedup_key="k")
    letters.update_status(first.id, "resolved")
    second = letters.create("d", "f", dedup_key="k")
    letters.update_status(second.id, "resolved")
    assert letters.bulk_update_status([second.id, first.id], "pending") == 2
    assert letters.create("d", "f", dedup_key="k").id == second.id


def test_a_dedup_key_may_be_long(letters: Letters) -> None:
    key = "k" * 100_000
    first = letters.create("d", "f", dedup_key=key)
    assert first.dedup_key == key
    assert letters.create("d", "f", dedup_key=key).id == first.id
    assert letters.create("d", "f", dedup_key=key + "!").id != first.id


def test_create_many_keeps_the_order_and_the_rules(letters: Letters) -> None:
    before = letters.create("d", "f", dedup_key="old")
    made = letters.create_many([
        {"domain": "d", "failure_type": "f", "entity_id": "1"},
        {"domain": "d", "failure_type": "f", "dedup_key": "old"},
        {"domain": "d", "failure_type": "f", "dedup_key": "new"},
        {"domain": "d", "failure_type": "f", "dedup_key": "new"},
        {"domain": "d", "failure_type": "f", "dedup_key": "old"},
    ])  # fmt: skip
    assert [letter.entity_id for letter in made] == ["1", None, None, None, None]
    assert made[1].id == made[4].id == before.id
    assert made[2].id == made[3].id
    assert [letter.occurrences for letter in made] == [1, 3, 2, 2, 3]
    assert letters.count() == 3
    assert [letters.get_by_id(letter.id) for letter in made] == made
    assert letters.create_many([]) == []


def test_create_many_has_no_row_cap(letters: Letters) -> None:
    made = letters.create_many({"domain": "d", "failure_type": "f", "entity_id": str(n)} for n in range(3000))
    assert [letter.entity_id for letter in made] == [str(n) for n in range(3000)]
    assert letters.count(domain="d") == 3000


def test_a_letter_wakes_those_who_wait_when_asked_to(letters: Letters) -> None:
    from threading import Event

    told = Event()
    subscription = letters.store.subscribe("letters", told.set)
    letters.create("d", "f", wake=True)
    assert told.wait(5)
    subscription.close()


@pytest.mark.parametrize("status", list(FailedOperationStatus))
@pytest.mark.parametrize("spelled", [str, FailedOperationStatus])
def test_an_operator_may_set_any_status(letters: Letters, status: FailedOperationStatus, spelled: Any) -> None:
    for start in FailedOperationStatus:
        id = letters.create("d", "f").id
        assert letters.update_status(id, start)
        assert letters.update_status(id, spelled(status.value))
        stored = letters.get_by_id(id)
        assert stored is not None
        assert stored.status == status.value
        assert type(stored.status) is str


def test_a_letter_that_comes_late_is_as_old_as_its_failure(letters: Letters, clock: ManualClock) -> None:
    now = clock.wall()
    third = letters.create("d", "f")
    first = letters.create("d", "f", created_at=now - timedelta(hours=3))
    (second,) = letters.create_many(
        [{"domain": "d", "failure_type": "f", "created_at": (now - timedelta(hours=2)).replace(tzinfo=None)}]
    )
    ahead = letters.create("d", "f", created_at=now + timedelta(days=1))
    assert [letter.id for letter in letters.find_replayable(2)] == [first.id, second.id, third.id, ahead.id]
    assert [letter.id for letter in letters.acquire_many(domain="d", limit=1, max_retries=2)] == [first.id]
    assert (first.created_at, first.updated_at) == (now - timedelta(hours=3), now)
    assert (second.created_at, ahead.created_at) == (now - timedelta(hours=2), now)
    assert letters.count_created_in_window(now - timedelta(hours=4), now - timedelta(hours=1)) == 2


def test_an_unknown_status_is_refused_on_write_and_matches_nothing_as_a_filter(letters: Letters) -> None:
    letter = letters.create("d", "f")
    for status in ("PENDING", "done", "", None, 3, "pending "):
        with pytest.raises(ValueError, match="no status"):
            letters.update_status(letter.id, status)  # type: ignore[arg-type]  # bad input
        with pytest.raises(ValueError, match="no status"):
            letters.bulk_update_status([letter.id], status)  # type: ignore[arg-type]  # bad input
    assert letters.get_by_id(letter.id) == letter
    assert letters.find(status="done") == letters.find_by_status("done") == []
    assert letters.count(status="done") == letters.count(status="") == 0
    assert letters.get_facet_counts(status="done")["by_domain"] == {}


def test_empty_arguments_keep_what_was_there(letters: Letters, clock: ManualClock) -> None:
    id = letters.create("d", "f", recommended_action="replay").id
    letters.update_status(id, "reviewing", "manual", "looked at", 0, "escalate")
    clock.advance(1)
    letters.update_status(id, "requires_review", "", "", None, "")
    stored = letters.get_by_id(id)
    assert stored is not None
    assert (stored.resolution_type, stored.resolution_note, stored.resolved_by_id) == ("manual", "looked at", 0)
    assert stored.recommended_action == "escalate"
    assert stored.updated_at == clock.wall()
    letters.update_status(id, "requires_review", resolved_by_id="")
    assert (kept := letters.get_by_id(id)) is not None
    assert kept.resolved_by_id == 0


def test_resolved_at_follows_the_status(letters: Letters, clock: ManualClock) -> None:
    id = letters.create("d", "f").id

    def resolved_at(status: str) -> datetime | None:
        clock.advance(1)
        letters.update_status(id, status)
        stored = letters.get_by_id(id)
        assert stored is not None
        return stored.resolved_at

    for back in ("pending", "replaying", "reviewing", "requires_review"):
        assert resolved_at("resolved") == clock.wall()
        stamp = clock.wall()
        for kept in ("rejected", "archived", "expired", "permanently_failed", "replayed"):
            assert resolved_at(kept) == stamp
        assert resolved_at(back) is None
        assert resolved_at("rejected") is None


def test_archived_at_is_stamped_on_archived(letters: Letters, clock: ManualClock) -> None:
    id = letters.create("d", "f").id
    clock.advance(3)
    letters.update_status(id, "archived")
    stored = letters.get_by_id(id)
    assert stored is not None
    assert (stored.archived_at, stored.resolved_at) == (clock.wall(), None)


def test_resolving_again_restamps(letters: Letters, clock: ManualClock) -> None:
    id = letters.create("d", "f").id
    assert letters.mark_as_resolved(id, "manual", "first", 7)
    clock.advance(60)
    assert letters.mark_as_resolved(id, "manual_fix", resolved_by_id="bob")
    stored = letters.get_by_id(id)
    assert stored is not None
    assert stored.is_resolved
    assert (stored.resolution_type, stored.resolution_note, stored.resolved_by_id) == ("manual_fix", "first", "bob")
    assert stored.resolved_at == stored.updated_at == clock.wall()


def test_an_increment_changes_count_and_times_but_never_the_status(letters: Letters, clock: ManualClock) -> None:
    id = letters.create("d", "f").id
    for status in FailedOperationStatus:
        letters.update_status(id, status)
        clock.advance(1)
        before = letters.get_by_id(id)
        assert letters.increment_retry_count(id)
        after = letters.get_by_id(id)
        assert before is not None
        assert after is not None
        assert after.retry_count == before.retry_count + 1
        assert after.last_retry_at == after.updated_at == clock.wall()
        assert after.status == status


def test_bulk_update_follows_the_same_rules_for_each(letters: Letters, clock: ManualClock) -> None:
    ids = [letters.create("d", "f").id for _ in range(3)]
    held = letters.try_acquire_for_replay(ids[0], 2)
    assert held is not None
    clock.advance(1)
    assert letters.bulk_update_status([*ids, ids[1], "nothing", ids[0]], "resolved") == 3
    for id in ids:
        stored = letters.get_by_id(id)
        assert stored is not None
        assert stored.resolved_at == stored.updated_at == clock.wall()
        assert stored.attempt_token is None
    assert [attempt.outcome for attempt in letters.get_attempts(ids[0])] == ["released"]
    assert letters.bulk_update_status([], "resolved") == 0


def test_bulk_update_has_no_row_cap(letters: Letters) -> None:
    made = letters.create_many([{"domain": "d", "failure_type": "f"}] * 2500)
    assert letters.bulk_update_status([letter.id for letter in made], "rejected") == 2500
    assert letters.count(status="rejected") == 2500


def test_a_letter_of_any_status_can_be_deleted_once(letters: Letters) -> None:
    for status in FailedOperationStatus:
        id = letters.create("d", "f").id
        letters.update_status(id, status)
        assert letters.delete(id) is True
        assert letters.delete(id) is False
        assert letters.get_by_id(id) is None
        assert letters.get_attempts(id) == []
    assert letters.count() == 0
