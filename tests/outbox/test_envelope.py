"""The envelope of a published message."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.outbox.envelope import STRUCTURED, CloudEvent, is_json

AT = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
NO_CONTROLS = st.characters(exclude_categories=("Cc", "Cs", "Cn"))
TEXTS = st.text(NO_CONTROLS, min_size=1, max_size=30)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(NO_CONTROLS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(NO_CONTROLS), inner, max_size=3),
    max_leaves=8,
)
EVENTS = st.builds(
    CloudEvent,
    id=TEXTS,
    source=st.sampled_from(["holdfast", "https://shop.example/a?b=c", "urn:x:y", "/orders"]),
    type=TEXTS,
    data=JSON_VALUES,
    time=st.none() | st.datetimes(timezones=st.just(UTC), min_value=datetime(1970, 1, 1)),  # noqa: DTZ001  # hypothesis wants it naive
    subject=st.none() | TEXTS,
    extensions=st.dictionaries(st.from_regex(r"x[a-z0-9]{0,8}", fullmatch=True), st.text(NO_CONTROLS), max_size=3),
)


def an_event(**changes: Any) -> CloudEvent:
    return CloudEvent(**{"id": "1", "source": "holdfast", "type": "orders.created", "data": {"a": 1}, **changes})


@given(EVENTS)
def test_an_event_reads_back_equal_from_its_structured_form(event: CloudEvent):
    assert CloudEvent.from_json(event.to_json()) == event
    assert CloudEvent.from_headers({"Content-Type": f"{STRUCTURED}; charset=utf-8"}, event.to_json()) == event


@given(EVENTS, st.booleans())
def test_an_event_reads_back_equal_from_its_binary_form(event: CloudEvent, quoted: bool):
    headers = {**event.to_headers(quoted=quoted), "content-type": "application/json"}
    assert CloudEvent.from_headers(headers, event.body, quoted=quoted) == event


@given(EVENTS)
def test_quoted_headers_are_plain_ascii_without_spaces(event: CloudEvent):
    for value in event.to_headers().values():
        assert all("!" <= mark <= "~" for mark in value)


def test_the_structured_form_is_what_the_specification_shows():
    event = an_event(time=AT, subject="order-7", extensions={"traceparent": "00-x", "sampled": True, "hops": 3})
    assert json.loads(event.to_json()) == {
        "specversion": "1.0",
        "id": "1",
        "source": "holdfast",
        "type": "orders.created",
        "time": "2026-03-04T05:06:07Z",
        "subject": "order-7",
        "datacontenttype": "application/json",
        "traceparent": "00-x",
        "sampled": True,
        "hops": 3,
        "data": {"a": 1},
    }


def test_the_binary_form_quotes_what_a_header_cannot_hold():
    headers = an_event(subject='Euro € "x" 50%', extensions={"sampled": True}).to_headers()
    assert headers["ce-subject"] == "Euro%20%E2%82%AC%20%22x%22%2050%25"
    assert headers["ce-sampled"] == "true"
    assert "ce-datacontenttype" not in headers


def test_bytes_travel_as_base64_in_the_structured_form():
    event = an_event(data=b"\x00\xff", datacontenttype="application/octet-stream")
    assert json.loads(event.to_json())["data_base64"] == "AP8="
    assert CloudEvent.from_json(event.to_json()) == event
    assert (
        CloudEvent.from_headers(event.to_headers(), event.body, content_type="application/octet-stream").data
        == b"\x00\xff"
    )


def test_a_text_is_sent_as_it_is():
    event = an_event(data="a,b\n", datacontenttype="text/csv")
    assert event.body == b"a,b\n"
    assert CloudEvent.from_headers(event.to_headers(), event.body, content_type="text/csv").data == "a,b\n"


def test_a_time_of_another_zone_is_told_in_utc():
    event = an_event(time=AT.astimezone(timezone(timedelta(hours=9))))
    assert event.attributes()["time"] == "2026-03-04T05:06:07Z"


@pytest.mark.parametrize(
    ("changes", "story"),
    [
        ({"id": ""}, "CloudEvent.id must be a text that is not empty"),
        ({"type": None}, "CloudEvent.type must be a text"),
        ({"source": "my shop"}, "CloudEvent.source must be a URI"),
        ({"subject": "a\x1fb"}, r"CloudEvent.subject must not hold control characters, got U\+001F at 1"),
        ({"datacontenttype": "json"}, "must be a media type, got 'json'"),
        ({"extensions": {"Trace": "x"}}, "no extension 'Trace'"),
        ({"extensions": {"my_key": "x"}}, "no extension 'my_key'"),
        ({"extensions": {"data": "x"}}, "no extension 'data'"),
        ({"extensions": {"size": 2**31}}, "CloudEvent.size must be a text, a bool or an int of 32 bits"),
        ({"extensions": {"rate": 0.5}}, "CloudEvent.rate must be"),
    ],
)
def test_an_attribute_that_no_event_may_have_is_refused(changes: dict[str, Any], story: str):
    with pytest.raises(ValueError, match=story):
        an_event(**changes)


def test_data_that_is_not_of_its_type_is_refused():
    with pytest.raises(ValueError, match="must be a text or bytes, got a dict"):
        an_event(datacontenttype="text/plain").body  # noqa: B018  # it is computed


@pytest.mark.parametrize(
    ("document", "story"),
    [
        (b"[]", "a CloudEvent is a JSON object, got a list"),
        (b'{"id": "1", "source": "x", "type": "y"}', "specversion must be '1.0', got None"),
        (b'{"specversion": "0.3", "id": "1", "source": "x", "type": "y"}', "got '0.3'"),
        (b'{"specversion": "1.0", "type": "y"}', "a CloudEvent has id, source, but this one has not"),
        (b"no json", "Expecting value"),
    ],
)
def test_a_document_that_is_no_event_is_refused(document: bytes, story: str):
    with pytest.raises(ValueError, match=story):
        CloudEvent.from_json(document)


def test_types_with_a_json_suffix_are_json():
    assert is_json("application/vnd.shop+json; charset=utf-8")
    assert is_json(None)
    assert not is_json("text/plain")
