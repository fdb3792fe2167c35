"""A letter as its reader sees it: a plain dataclass, whose fields are read when somebody looks."""

from __future__ import annotations

import copy
import pickle
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime

import pytest

from holdfast.letters.data import FailedOperationData, letter_of, read_whole, record_of
from holdfast.letters.draft import draft
from holdfast.machine.dead_letter import LetterRecord

NOW = 1_700_000_000_000_000
AT = datetime.fromtimestamp(1_700_000_000, UTC)


def record() -> LetterRecord:
    return draft(
        NOW, domain="payments", failure_type="X", entity_type="order", entity_id="o1", user_id=7,
        error_message="no route", request_data={"args": {"order_id": "o1"}}, metadata={"source": "shop"},
    )  # fmt: skip


def made_by_hand() -> FailedOperationData:
    return FailedOperationData(
        record().id, "payments", "X", "pending", "order", "o1", user_id=7, error_message="no route",
        request_data={"args": {"order_id": "o1"}}, metadata={"source": "shop"}, created_at=AT, updated_at=AT,
    )  # fmt: skip


def test_an_unread_letter_equals_one_that_was_made_by_hand() -> None:
    kept = record()
    by_hand = replace(made_by_hand(), id=kept.id)
    assert letter_of(kept) == by_hand
    assert repr(letter_of(kept)) == repr(by_hand)
    assert asdict(letter_of(kept)) == asdict(by_hand)


@pytest.mark.parametrize("name", [field.name for field in fields(FailedOperationData)])
def test_each_field_can_be_the_first_to_be_read(name: str) -> None:
    kept = record()
    assert getattr(letter_of(kept), name) == getattr(replace(made_by_hand(), id=kept.id), name)


def test_a_letter_that_is_read_at_once_is_like_one_that_is_read_field_by_field() -> None:
    kept = record()
    letter = letter_of(kept)
    letter.status = "mine"
    letter.metadata["seen"] = True
    whole = read_whole(letter)
    assert whole is letter
    assert {field.name for field in fields(letter)} <= vars(letter).keys()
    expected = replace(made_by_hand(), id=kept.id, status="mine", metadata={"source": "shop", "seen": True})
    assert letter == expected
    assert read_whole(made_by_hand()).domain == "payments"


def test_what_was_set_before_anything_was_read_stays() -> None:
    letter = letter_of(record())
    letter.status = "mine"
    letter.error_message = "another"
    letter.metadata = {}
    assert (letter.domain, letter.error_code, letter.user_id) == ("payments", "", 7)
    assert (letter.status, letter.error_message, letter.metadata) == ("mine", "another", {})


def test_a_value_that_was_handed_out_stays_the_letters_own() -> None:
    letter = letter_of(record())
    letter.metadata["seen"] = True
    letter.request_data["more"] = 1
    assert letter.status == "pending"
    assert letter.metadata == {"source": "shop", "seen": True}
    assert letter.request_data == {"args": {"order_id": "o1"}, "more": 1}


@pytest.mark.parametrize("is_read", [False, True])
def test_copies_are_letters_of_their_own(is_read: bool) -> None:
    letter = letter_of(record())
    if is_read:
        repr(letter)
    deep, shallow, thawed = copy.deepcopy(letter), copy.copy(letter), pickle.loads(pickle.dumps(letter))
    assert deep == shallow == thawed == letter
    deep.metadata["x"] = 1
    shallow.status = "other"
    assert (letter.metadata, letter.status) == ({"source": "shop"}, "pending")


def test_a_letter_made_by_hand_has_its_defaults_and_no_record() -> None:
    letter = FailedOperationData("1", "d", "X", "pending")
    assert (letter.max_retries, letter.occurrences, letter.error_code, letter.entity_type) == (2, 1, "", None)
    assert record_of(letter) is None
    with pytest.raises(AttributeError, match="nothing"):
        letter.nothing  # noqa: B018
    with pytest.raises(AttributeError, match="nothing"):
        letter_of(record()).nothing  # noqa: B018


@pytest.mark.parametrize("user", [0, 7, -7, "7", "", "u7", None, 10**30])
def test_who_it_was_keeps_its_type(user: int | str | None) -> None:
    assert letter_of(draft(NOW, domain="d", failure_type="f", user_id=user)).user_id == user
