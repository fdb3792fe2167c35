"""Publishing as an operation of the outbox: an entry becomes a CloudEvent, and a publisher hands it to its broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol, runtime_checkable

from holdfast.errors import HoldfastError, ResolverError
from holdfast.outbox.envelope import HTTP_PREFIX, JSON, STRUCTURED, CloudEvent, event_with, tellable
from holdfast.outbox.operation import Answer, CallContext, Operation, StepEvents, Targets
from holdfast.telemetry.causation import cause_in

PUBLISH: Final = "publish"
PUBLISH_EVENTS: Final = StepEvents.of(PUBLISH)
SOURCE: Final = "holdfast"
DEFAULT_TARGET: Final = "default"
"""Where `Outbox.publish` sends to when nobody says where."""
Mode = Literal["binary", "structured"]

_TRACE: Final = ("traceparent", "tracestate")
CORRELATION: Final = "correlationid"
"""The attribute of an event that has the causation id: what CloudEvents calls the id of everything in one flow."""


class PublishError(HoldfastError):
    """The broker did not take a message. It is tried again."""


class Unroutable(PublishError):
    """Nobody would get the message: no stream, queue or topic takes it. It is tried again, as one may come."""


class Message(NamedTuple):
    """What a publisher sends. `id` is the entry's id, the same for every attempt, and `key` what it is ordered by."""

    id: str
    topic: str
    key: str | None
    body: bytes
    """The data alone; `form` gives what goes over the wire."""
    headers: Mapping[str, str]
    """Those of the entry, without the envelope's."""
    content_type: str
    envelope: CloudEvent

    def form(self, mode: Mode, *, prefix: str = HTTP_PREFIX, quoted: bool = True) -> Form:
        """The message in one of the two forms of a CloudEvent, with the entry's own headers."""
        if mode == "structured":
            return Form(dict(self.headers), STRUCTURED, self.envelope.to_json())
        attributes = self.envelope.to_headers(prefix, quoted=quoted)
        return Form({**self.headers, **attributes}, self.content_type, self.body)


class Form(NamedTuple):
    """Headers, content type and body, as they are sent."""

    headers: dict[str, str]
    content_type: str
    body: bytes


@runtime_checkable
class Publisher(Protocol):
    """Sends messages to one broker. What it raises is retried, but for ResolverError, which gives the entry up.

    It returns only when the broker has the message for sure. The same message may come again: its id is the same.
    A publisher may have `async def close()`, and may answer RetryAfter or Discard instead of None.
    """

    @property
    def name(self) -> str: ...

    async def publish(self, message: Message) -> Answer | None: ...


class Publishers:
    """Publishers by name, which is how an entry says where it goes.

    `reach` is where an operator lets those go that can be told so: webhooks.
    """

    def __init__(self, *publishers: Publisher, reach: Sequence[str] = ()) -> None:
        self._publishers: dict[str, Publisher] = {}
        self._reach = reach
        for publisher in publishers:
            self.register(publisher)

    def register(self, publisher: Publisher) -> Publisher:
        """Raises ResolverError for a name that is taken."""
        if publisher.name in self._publishers:
            raise ResolverError(f"a publisher {publisher.name!r} is already registered")
        confine = getattr(publisher, "confine", None)
        if self._reach and confine is not None:
            confine(self._reach)
        self._publishers[publisher.name] = publisher
        return publisher

    def get(self, name: str) -> Publisher:
        """Raises ResolverError for a name that nobody registered. Where there is only one, it is the default."""
        found = self._publishers.get(name)
        if found is None and name == DEFAULT_TARGET and len(self._publishers) == 1:
            (found,) = self._publishers.values()
        if found is None:
            known = ", ".join(self._publishers) or "none"
            raise ResolverError(f"no publisher {name!r}; registered: {known}")
        return found

    def __iter__(self) -> Iterator[Publisher]:
        return iter(tuple(self._publishers.values()))

    async def close(self) -> None:
        """Close all of them, also when one cannot be closed; the first such error is raised in the end."""
        errors = []
        for publisher in self:
            close = getattr(publisher, "close", None)
            try:
                if close is not None:
                    await close()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    async def __aenter__(self) -> Publishers:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def publish_operation(publishers: Targets, *, source: str = SOURCE, **settings: Any) -> Operation:
    """The operation `publish`, to be registered with the outbox. `source` names this program in every event.

    An entry for a publisher that is not registered waits for one, as in a rolling deploy. `settings` are further
    fields of Operation, such as `timeout`, `max_attempts` or `guard`; `events=None` leaves what was published out of
    the audit trail. Raises ValueError for a source that is no URI.
    """
    CloudEvent(id="0", source=source, type="check")

    async def publish(publisher: Publisher, context: CallContext) -> Answer | None:
        return await publisher.publish(message_of(context, source))

    usual = {"unknown_target": "defer", "sensitive": False, "events": PUBLISH_EVENTS}
    chosen: dict[str, Any] = usual | settings
    return Operation(
        name=PUBLISH,
        call=publish,
        targets=publishers,
        needs_payload=True,
        grouped=False,
        **chosen,
    )


def message_of(context: CallContext, source: str = SOURCE) -> Message:
    """The message that an entry's call is about.

    Raises ResolverError for an entry of which no CloudEvent can be made: trying again would not help.
    """
    if not isinstance(context.payload, Mapping) or "data" not in context.payload:
        raise ResolverError(f"entry {context.entry_id} has no data to publish; enqueue it with Outbox.publish")
    try:
        event = event_of(context, source)
        body = event.body
    except (TypeError, ValueError) as error:
        raise ResolverError(f"entry {context.entry_id} cannot be published: {error}") from error
    headers, kind = context.headers or {}, event.datacontenttype or JSON
    return Message(event.id, context.ref.value, context.ordering_key, body, headers, kind, event)


def event_of(context: CallContext, source: str = SOURCE) -> CloudEvent:
    """The envelope of an entry's call. Raises ValueError for attributes that no event may have."""
    payload, key = context.payload, None if context.ordering_key is None else tellable(context.ordering_key)
    headers = _lowered(context.headers)
    traced: dict[str, str] = {name: headers[name] for name in _TRACE if name in headers}
    if (cause := cause_in(context.headers)) is not None:
        traced[CORRELATION] = tellable(cause)
    keyed = {} if key is None else {"partitionkey": key}
    return event_with(
        payload.get("attributes"),
        id=context.idempotency_key,
        source=source,
        subject=key,
        type=payload.get("type") or context.ref.value,
        time=context.enqueued_at,
        datacontenttype=payload.get("content_type") or JSON,
        data=payload["data"],
        extensions={**traced, **keyed},
    )


def _lowered(headers: Mapping[str, str] | None) -> dict[str, str]:
    return {name.lower(): value for name, value in (headers or {}).items()}
