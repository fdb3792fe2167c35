"""What is hashed, and where an event belongs."""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.audit.chain import Link, canonical_link, key_bytes, link_hash, stream_namer
from holdfast.errors import ConfigurationError

LINK = Link(
    stream="07",
    seq=2,
    event_id=UUID(int=1),
    event_type="erasure_requested",
    subject_ref="ann é",
    occurred_at=datetime(2026, 3, 1, 12, tzinfo=UTC),
    entry_id=None,
    payload={"b": True, "a": 1},
    prior_hash="ab",
)
BYTES = (
    '{"entry_id":null,"event_id":"00000000-0000-0000-0000-000000000001","event_type":"erasure_requested",'
    '"occurred_at":"2026-03-01T12:00:00.000000+00:00","payload":{"a":1,"b":true},"prior_hash":"ab","seq":2,'
    '"stream":"07","subject_ref":"ann é"}'
).encode()


def test_the_bytes_that_are_hashed_stay_the_same_for_ever():
    assert canonical_link(LINK) == BYTES
    assert link_hash(LINK) == hashlib.sha256(BYTES).hexdigest()
    assert link_hash(LINK, b"secret") == hmac.new(b"secret", BYTES, "sha256").hexdigest()


TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
FACTS = st.dictionaries(TEXTS, TEXTS | st.integers() | st.booleans(), max_size=4)
CENTURY = timedelta(days=36525)


@given(
    st.builds(
        Link,
        stream=TEXTS,
        seq=st.integers(min_value=1),
        event_id=st.uuids(),
        event_type=TEXTS,
        subject_ref=TEXTS,
        occurred_at=st.timedeltas(-CENTURY, CENTURY).map(lambda gone: LINK.occurred_at + gone),
        entry_id=st.none() | st.uuids(),
        payload=FACTS,
        prior_hash=st.none() | TEXTS,
    )
)
def test_the_bytes_are_those_of_plain_canonical_json(link):
    fields = {
        **link._asdict(),
        "event_id": str(link.event_id),
        "entry_id": None if link.entry_id is None else str(link.entry_id),
        "occurred_at": link.occurred_at.astimezone(UTC).isoformat(timespec="microseconds"),
    }
    plain = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert canonical_link(link) == plain.encode()


def test_a_number_that_is_none_is_not_hashed_as_if_it_were():
    """SQLite keeps anything in any column: what only looks the same must not verify."""
    for seq in ("2", 2.0, b"2"):
        with pytest.raises(TypeError):
            canonical_link(LINK._replace(seq=seq))


@pytest.mark.parametrize(
    "change",
    [
        {"stream": "08"},
        {"seq": 3},
        {"event_id": UUID(int=2)},
        {"event_type": "erasure_completed"},
        {"subject_ref": "ann e"},
        {"occurred_at": LINK.occurred_at + timedelta(microseconds=1)},
        {"entry_id": UUID(int=3)},
        {"payload": {"b": True, "a": 2}},
        {"payload": {"b": True, "a": True}},
        {"payload": {"b": True, "a": "1"}},
        {"payload": {"b": 1, "a": 1}},
        {"payload": {"b": True}},
        {"prior_hash": None},
    ],
    ids=str,
)
def test_every_field_is_covered_by_the_hash(change):
    assert link_hash(LINK._replace(**change)) != link_hash(LINK)


def test_the_order_of_a_payload_and_the_zone_of_a_time_do_not_matter():
    there = LINK.occurred_at.astimezone(timezone(timedelta(hours=-5)))
    assert link_hash(LINK._replace(payload={"a": 1, "b": True}, occurred_at=there)) == link_hash(LINK)


@given(st.text(min_size=1, max_size=255))
def test_a_subject_always_has_the_same_stream_among_so_many(subject):
    for number in (2, 16, 100, 1000):
        name = stream_namer(number)(subject)
        assert name == stream_namer(number)(subject)
        assert len(name) == max(2, len(str(number - 1)))
        assert 0 <= int(name) < number


def test_streams_do_not_move_from_release_to_release():
    assert [stream_namer(16)(name) for name in ("ann", "bob", "", "é\x1f1")] == ["14", "10", "04", "05"]
    assert stream_namer(1)("ann") == "all"
    assert stream_namer("subject")("ann") == "ann"


@pytest.mark.parametrize("streams", [0, -1, True, 1.5, "subjects", None])
def test_another_number_of_streams_is_refused(streams):
    with pytest.raises(ConfigurationError, match="streams must be"):
        stream_namer(streams)


@pytest.mark.parametrize("key", ["", b"", 5])
def test_an_empty_key_is_refused(key):
    with pytest.raises(ConfigurationError, match="key must be"):
        key_bytes(key)
