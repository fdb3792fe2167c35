"""A call that is to be enqueued, before it is an entry: checked here, once, with messages that name the culprit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from holdfast.errors import InvalidValue
from holdfast.outbox.checks import an_id, moment, span, text
from holdfast.outbox.envelope import check_message
from holdfast.outbox.ids import new_entry_ids
from holdfast.outbox.subject import CompositeSubjectId, SubjectRef, json_value
from holdfast.store.codec import plain_to_json, simple_to_json
from holdfast.telemetry.causation import CAUSATION_HEADER, causation_id
from holdfast.telemetry.tracing import current_trace

PUBLISH: Final = "publish"
DEFAULT_QUEUE: Final = "default"
LARGEST_PAYLOAD: Final = 1 << 20
_LONGEST_OPERATION: Final = 32
_LONGEST_QUEUE: Final = 64
_LONGEST_DIRECTION: Final = 16
_AT_A_TIME: Final = 500
Known = dict[tuple[str, str, str], tuple[str, str, str]]


@dataclass(slots=True)  # to freeze it would cost as much as to make its row
class Draft:
    """One call for `Outbox.put_many`; `Outbox.put` takes the same arguments.

    `target` says who is called. `key` orders it behind every older entry of the same key, `dedupe_key` leaves it out
    while a live entry has the same one. It may start after `delay`, or at a time (`at`). `subject_id` is the group that
    completes together; without one it is the key, or the entry's own id. `ref` is what the target knows the subject by.
    """

    operation: str
    payload: Any = None
    _: KW_ONLY
    target: str
    ref: SubjectRef | None = None
    subject_id: str | CompositeSubjectId | None = None
    key: str | None = None
    dedupe_key: str | None = None
    delay: timedelta | None = None
    at: datetime | None = None
    queue: str = DEFAULT_QUEUE
    headers: Mapping[str, str] | None = None
    saga_id: UUID | None = None
    step: str | None = None
    direction: str | None = None
    depends_on: UUID | None = None
    entry_id: UUID | None = None

    @classmethod
    def publish(
        cls,
        topic: str,
        payload: Any,
        *,
        target: str = "default",
        type: str | None = None,
        content_type: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Draft:
        """A message for a publisher; it takes everything else that a draft does.

        `type`, `content_type` and `attributes` go into its CloudEvent (see docs/publishers.md). Raises ValueError for
        those that none may have.
        """
        said = {"type": type, "content_type": content_type, "attributes": attributes}
        wrapped = {"data": payload, **{name: value for name, value in said.items() if value is not None}}
        ref = SubjectRef(kind="topic", value=text("topic", topic))
        if len(wrapped) > 1 or not topic.isprintable():  # the plain ones, nearly all, make an event for sure
            check_message(topic, wrapped)
        return cls(PUBLISH, wrapped, target=target, ref=ref, **more)

    def row(self, entry_id: UUID, origin: Mapping[str, str], largest: int, known: Known) -> dict[str, Any]:
        """The row to be inserted, with that id unless the draft has one. What is JSON is its text already. `known` are
        names that were checked for earlier rows.

        The time is the database's, so `enqueued_at` is None, and `delay` is still there; what begins with a default of
        the server's is left to it. Raises ValueError for what cannot be stored.
        """
        if self.entry_id is not None:
            entry_id = an_id("entry_id", self.entry_id)
        key = None if self.key is None else text("key", self.key)
        operation, target, queue = self._names(known)
        subject = str(entry_id) if key is None else key
        if self.subject_id is not None:
            subject = text("subject_id", getattr(self.subject_id, "canonical", self.subject_id))
        ref = self.ref
        if ref is not None and not isinstance(ref, SubjectRef):
            raise InvalidValue(f"ref must be a SubjectRef, got {ref!r}; write SubjectRef(kind=…, value=…)")
        gate, delay = (None, None) if self.at is None and self.delay is None else self._start()
        return {
            "entry_id": entry_id,
            "operation": operation,
            "resolver": target,
            "subject_id": subject,
            "ref_kind": target if ref is None else ref.kind,
            "ref_value": subject if ref is None else ref.value,
            "ref_extra": plain_to_json(ref.extra) if ref is not None and ref.extra else "{}",
            "payload": sized(self.payload, largest),
            "queue": queue,
            "ordering_key": key,
            "dedupe_key": None if self.dedupe_key is None else text("dedupe_key", self.dedupe_key),
            "headers": _headers(self.headers, origin) if origin or self.headers is not None else None,
            "saga_id": None if self.saga_id is None else an_id("saga_id", self.saga_id),
            "step": None if self.step is None else text("step", self.step),
            "direction": None if self.direction is None else text("direction", self.direction, _LONGEST_DIRECTION),
            "depends_on": None if self.depends_on is None else an_id("depends_on", self.depends_on),
            "enqueued_at": None,
            "next_attempt_at": gate,
            "delay": delay,
        }

    def _names(self, known: Known) -> tuple[str, str, str]:
        """Operation, target and queue, which many drafts have in common."""
        try:
            found = known.get((self.operation, self.target, self.queue))
        except TypeError:  # what is no text is refused below
            found = None
        if found is None:
            operation = text("operation", str(self.operation), _LONGEST_OPERATION)
            found = operation, text("target", self.target), text("queue", self.queue, _LONGEST_QUEUE)
            known[found] = found
        return found

    def _start(self) -> tuple[datetime | None, timedelta | None]:
        if self.delay is None:
            return None if self.at is None else moment("at", self.at), None
        if self.at is not None:
            raise InvalidValue("give delay or at, not both: each says when the call may start")
        return None, span("delay", self.delay) or None


def rows_of(drafts: Iterable[Draft], number: int, largest: int) -> Iterator[dict[str, Any]]:
    """The rows of so many drafts, each made when it is asked for."""
    origin, known = origin_headers(), Known()
    for draft, entry_id in zip(drafts, _ids(number), strict=True):
        yield draft.row(entry_id, origin, largest, known)


def origin_headers() -> dict[str, str]:
    """What goes along with everything that is enqueued here: the trace of the request, and the id of what caused it."""
    cause, trace = causation_id(), current_trace()
    return trace if cause is None else {**trace, CAUSATION_HEADER: cause}


def _ids(number: int) -> Iterator[UUID]:
    """So many ids; the first rows need not wait for those of the last."""
    for start in range(0, number, _AT_A_TIME):
        yield from new_entry_ids(min(_AT_A_TIME, number - start))


def sized(payload: Any, largest: int) -> str | None:
    """The payload as JSON.

    Raises ValueError for one that is not JSON, or has more than so many bytes.
    """
    if payload is None:
        return None
    written = simple_to_json(payload)
    if written is None or not written.isascii() or len(written) > largest:
        return check_size(json_value("payload", payload), largest)
    return written


def check_size(payload: Any, largest: int) -> str:
    """The payload, which is plain already, as JSON. Raises ValueError for more bytes than that."""
    written = plain_to_json(payload)
    size = len(written) if written.isascii() else len(written.encode())
    if size > largest:
        fix = "store the data elsewhere and send its address, or raise Outbox(max_payload=…)"
        raise InvalidValue(f"payload has {size} bytes as JSON, and {largest} are allowed; {fix}")
    return written


def _headers(headers: Mapping[str, str] | None, origin: Mapping[str, str]) -> str | None:
    found = dict(origin)
    if headers is not None and not isinstance(headers, Mapping):
        raise InvalidValue(f"headers must be a mapping of texts, got {headers!r}")
    for name, value in (headers or {}).items():
        there = value or not isinstance(value, str)  # only a text may be empty
        found[text("a header's name", name)] = text(f"header {name}", value, LARGEST_PAYLOAD) if there else ""
    return plain_to_json(found) if found else None
