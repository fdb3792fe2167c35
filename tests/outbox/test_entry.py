"""OutboxEntry and the rows it becomes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from uuid import uuid4

import pytest

from holdfast.machine.outbox_entry import OutboxStatus
from holdfast.outbox.entry import OutboxEntry, OutboxOperation
from holdfast.outbox.rows import COLUMNS, entry_of, row_of, status_of
from holdfast.outbox.subject import CompositeSubjectId, Correction, PiiCategory, SubjectRef
from tests.outbox.entries import START, make_entry, make_rectify


def as_row(entry: OutboxEntry) -> list[object]:
    row = row_of(entry)
    return [row[name] for name in COLUMNS]


def test_an_entry_comes_back_from_its_row_as_it_was() -> None:
    entry = make_entry(headers={"traceparent": "00-1"}, payload={"a": [1, None]}, operation="charge", queue="slow")
    assert entry_of(as_row(entry)) == entry


def test_corrections_come_back_as_corrections() -> None:
    entry = make_rectify()
    assert row_of(entry)["payload"] == {"corrections": [{"category": "contact", "value": "new@example.org"}]}
    assert entry_of(as_row(entry)) == entry


def test_a_read_entry_is_as_frozen_and_as_copyable_as_a_made_one() -> None:
    entry = entry_of(as_row(make_entry()))
    with pytest.raises(ValueError, match="frozen"):
        entry.attempts = 3  # type: ignore[misc]
    copied = entry.model_copy(update={"attempts": 3})
    assert (copied.attempts, entry.attempts) == (3, 0)
    assert OutboxEntry.model_validate(entry.model_dump()) == entry
    assert hash(entry) == hash(copied)


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(ValueError, match="colour"):
        make_entry(colour="red")


@pytest.mark.parametrize("field", ["resolver", "subject_id"])
def test_names_have_1_to_255_characters(field: str) -> None:
    for bad in ("", "x" * 256):
        with pytest.raises(ValueError, match=field):
            make_entry(**{field: bad})
    assert getattr(make_entry(**{field: "x" * 255}), field) == "x" * 255


@pytest.mark.parametrize(
    ("field", "most"), [("subject_id", 255), ("operation", 32), ("queue", 64), ("direction", 16), ("verification", 16)]
)
def test_a_text_of_a_wrong_length_is_told_its_length_in_characters(field: str, most: int) -> None:
    given = make_entry().model_dump()
    with pytest.raises(ValueError, match=f"at most {most} characters") as refused:
        OutboxEntry(**given | {field: "x" * (most + 1)})
    assert " item" not in str(refused.value)
    assert getattr(OutboxEntry(**given | {field: "x" * most}), field) == "x" * most


def test_a_naive_time_is_read_as_utc_and_another_zone_is_converted() -> None:
    naive = make_entry(at=datetime(2026, 5, 1, 12, tzinfo=UTC).replace(tzinfo=None))
    east = make_entry(at=datetime(2026, 5, 1, 14, tzinfo=timezone(timedelta(hours=2))))
    assert naive.enqueued_at == east.enqueued_at == datetime(2026, 5, 1, 12, tzinfo=UTC)


def test_a_copy_with_a_time_of_another_zone_is_stored_in_utc() -> None:
    east = datetime(2026, 5, 1, 14, tzinfo=timezone(timedelta(hours=2)))
    assert row_of(make_entry().model_copy(update={"next_attempt_at": east}))["next_attempt_at"].hour == 12


def test_a_composite_subject_is_collapsed() -> None:
    entry = make_entry(subject_id=CompositeSubjectId(values=("acme", "ann")))
    assert entry.subject_id == "acme\x1fann"


def test_a_plain_subject_id_may_hold_a_separator_since_stored_composites_read_back_that_way() -> None:
    assert make_entry(subject_id="acme\x1fann").subject_id == "acme\x1fann"


def test_known_operations_are_members_and_registered_ones_stay_texts() -> None:
    assert make_entry(operation="rectify").operation is OutboxOperation.RECTIFY
    assert type(make_entry(operation="charge").operation) is str
    with pytest.raises(ValueError, match="operation"):
        make_entry(operation="x" * 33)


@pytest.mark.parametrize("payload", [{"at": object()}, {"x": float("nan")}, {1: "a"}])
def test_a_payload_that_is_not_json_is_a_value_error_that_names_the_place(payload: object) -> None:
    with pytest.raises(ValueError, match="payload"):
        make_entry(payload=payload)


def test_corrections_and_payload_together_are_refused() -> None:
    with pytest.raises(ValueError, match="not both"):
        make_rectify(payload={"a": 1})


@pytest.mark.parametrize("status", [OutboxStatus.SUCCEEDED, OutboxStatus.ABANDONED])
def test_an_entry_that_has_ended_is_stored_without_its_payload(status: OutboxStatus) -> None:
    assert row_of(make_rectify(status=status))["payload"] is None


def test_a_row_with_an_unknown_status_is_a_value_error_that_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'lost' is no status .* pending"):
        status_of("lost")


def test_what_an_older_release_stored_stays_readable() -> None:
    row = row_of(make_rectify()) | {
        "operation": "forgotten_operation",
        "ref_extra": None,
        "headers": None,
        "payload": {"corrections": "of another shape"},
    }
    entry = entry_of([row[name] for name in COLUMNS])
    assert (entry.operation, entry.ref.extra, entry.payload) == (
        "forgotten_operation",
        {},
        {"corrections": "of another shape"},
    )


def test_a_category_that_nobody_knows_any_more_does_not_make_the_row_unreadable() -> None:
    row = row_of(make_rectify()) | {"payload": {"corrections": [{"category": "horoscope", "value": "lion"}]}}
    (correction,) = entry_of([row[name] for name in COLUMNS]).corrections
    assert (correction.category, correction.value) == ("horoscope", "lion")


def test_values_of_corrections_keep_their_types() -> None:
    values = ["a", 1, 1.5, True]
    made = tuple(Correction(category=PiiCategory.IDENTITY, value=value) for value in values)
    read = entry_of(as_row(make_entry(operation="rectify", corrections=made)))
    assert [(type(one.value), one.value) for one in read.corrections] == [(type(one), one) for one in values]


def test_ref_values_are_flattened() -> None:
    row = row_of(make_entry(ref=SubjectRef(kind="crm", value="7", extra={"a": 1})))
    assert (row["ref_kind"], row["ref_value"], row["ref_extra"]) == ("crm", "7", {"a": 1})


def test_an_entry_needs_an_id_and_a_time() -> None:
    with pytest.raises(ValueError, match="enqueued_at"):
        OutboxEntry(entry_id=uuid4(), ref=SubjectRef(kind="a", value="b"), resolver="a", subject_id="s")  # type: ignore[call-arg]
    assert make_entry().enqueued_at == START
