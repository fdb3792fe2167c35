"""From an entry's call to a message, and publishers by name."""

from __future__ import annotations

import pytest

from holdfast.errors import ResolverError
from holdfast.outbox.operation import OperationRegistry
from holdfast.outbox.publishers.memory import InMemoryPublisher
from holdfast.outbox.publishing import Publisher, Publishers, message_of, publish_operation
from tests.outbox.publishers.messages import AT, TRACE, a_context, a_message


def test_an_entry_becomes_a_cloud_event():
    context = a_context("orders.created", {"id": 7})
    message = message_of(context, "https://shop.example")
    event = message.envelope
    assert (message.id, message.topic, message.key) == (str(context.entry_id), "orders.created", "order-7")
    assert (event.id, event.source, event.type) == (str(context.entry_id), "https://shop.example", "orders.created")
    assert (event.time, event.subject, event.datacontenttype) == (AT, "order-7", "application/json")
    assert event.extensions == {"traceparent": TRACE, "partitionkey": "order-7"}
    assert message.body == b'{"id":7}'


def test_every_attempt_gives_the_same_message():
    context = a_context()
    assert message_of(context) == message_of(context)


def test_an_entry_without_key_has_neither_subject_nor_partition_key():
    event = a_message(ordering_key=None, headers={}).envelope
    assert event.subject is None
    assert event.extensions == {}


def test_a_key_that_no_attribute_could_hold_is_told_percent_encoded():
    message = a_message(ordering_key="acme\x1f7")
    assert message.key == "acme\x1f7"
    assert message.envelope.subject == message.envelope.extensions["partitionkey"] == "acme%1F7"


def test_the_caller_may_choose_type_content_type_and_attributes():
    attributes = {"subject": "order/7", "dataschema": "https://shop.example/schema", "tenant": "acme"}
    payload = {"data": "a,b", "content_type": "text/csv", "type": "shop.order", "attributes": attributes}
    message = a_message(payload=payload)
    event = message.envelope
    assert (event.type, event.subject, event.dataschema) == ("shop.order", "order/7", "https://shop.example/schema")
    assert event.extensions["tenant"] == "acme"
    assert (message.content_type, message.body) == ("text/csv", b"a,b")


@pytest.mark.parametrize(
    ("changes", "story"),
    [
        ({"payload": None}, "has no data to publish"),
        ({"payload": {}}, "has no data to publish"),
        ({"payload": {"data": 1, "type": "a\x1fb"}}, "control characters"),
        ({"payload": {"data": 1, "attributes": {"Not Allowed": "x"}}}, "no extension 'Not Allowed'"),
        ({"payload": {"data": 1, "attributes": {"id": "mine"}}}, "no extension 'id'"),
    ],
)
def test_an_entry_of_which_no_event_can_be_made_is_given_up(changes, story):
    with pytest.raises(ResolverError, match=story):
        a_message(**changes)


async def test_the_operation_hands_the_message_to_the_publisher():
    memory = InMemoryPublisher()
    operation = publish_operation(Publishers(memory), source="https://shop.example/orders")
    context = a_context()
    assert await operation.call(operation.targets.get("memory"), context) is None
    assert memory.messages == [message_of(context, "https://shop.example/orders")]


async def test_a_publisher_that_fails_makes_the_call_fail():
    memory = InMemoryPublisher()
    memory.fail(ConnectionError("gone"))
    with pytest.raises(ConnectionError):
        await memory.publish(a_message())
    await memory.publish(a_message())
    assert len(memory.messages) == 1


def test_the_operation_is_registered_like_any_other():
    operation = publish_operation(Publishers(), max_attempts=3)
    registry = OperationRegistry(operation)
    assert operation.name == "publish"
    assert operation.unknown_target == "defer"
    assert operation.needs_payload
    assert operation.max_attempts == 3
    assert not registry.is_sensitive("publish")
    assert {"publish_succeeded", "publish_failed", "publish_requeued"} <= registry.event_types()


def test_an_operation_that_is_not_audited_has_no_events():
    assert OperationRegistry(publish_operation(Publishers(), events=None)).event_types() == frozenset()


def test_a_source_that_is_no_uri_is_refused_at_once():
    with pytest.raises(ValueError, match=r"CloudEvent.source must be a URI"):
        publish_operation(Publishers(), source="my shop")


def test_publishers_are_found_by_name_and_registered_once():
    publishers = Publishers(InMemoryPublisher(name="a"))
    assert isinstance(publishers.get("a"), Publisher)
    with pytest.raises(ResolverError, match="no publisher 'b'; registered: a"):
        publishers.get("b")
    with pytest.raises(ResolverError, match="'a' is already registered"):
        publishers.register(InMemoryPublisher(name="a"))


async def test_one_publisher_that_cannot_be_closed_leaves_none_open():
    closed = []

    class Closing(InMemoryPublisher):
        async def close(self) -> None:
            closed.append(self.name)
            if self.name == "a":
                raise OSError("stuck")

    with pytest.raises(OSError, match="stuck"):
        async with Publishers(Closing(name="a"), InMemoryPublisher(), Closing(name="b")):
            pass
    assert closed == ["a", "b"]
