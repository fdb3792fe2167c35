"""What tests of the runner share: an outbox at a time that stands still, a target that does as it is told, a trail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from holdfast.audit.event import AuditEvent
from holdfast.letters.replaying import current_idempotency_key
from holdfast.outbox.backoff import BackoffPolicy
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.ids import new_entry_id
from holdfast.outbox.operation import CallContext, Operation, OperationRegistry, StepEvents
from holdfast.outbox.outbox import Outbox
from holdfast.outbox.resolver import ResolverErasure, ResolverRegistry
from holdfast.outbox.runner import SagaRunner
from holdfast.outbox.subject import SubjectRef
from holdfast.outbox.subject_operations import ERASE, RECTIFY
from holdfast.telemetry.events import GuardEvent
from holdfast.telemetry.hub import Hub
from holdfast.testing.clock import ManualClock
from tests.databases import TABLES

BACKOFF = BackoffPolicy()
SEND = "send"


class Trail:
    """A sink that cannot join a transaction; `refuses(event)` says what it fails to keep. It takes no event twice."""

    def __init__(self) -> None:
        self.events: list[AuditEvent] = []
        self.refuses: Callable[[AuditEvent], bool] = lambda event: False

    def append(self, event: AuditEvent) -> None:
        if self.refuses(event):
            raise ConnectionError("the trail is away")
        assert event.event_id not in {one.event_id for one in self.events}
        self.events.append(event)

    def read(self, subject_ref: str) -> Sequence[AuditEvent]:
        return [event for event in self.events if event.subject_ref == subject_ref]

    @property
    def said(self) -> list[tuple[str, dict[str, Any]]]:
        return [(str(event.event_type), event.payload) for event in self.events]

    @property
    def types(self) -> list[str]:
        return [str(event.event_type) for event in self.events]


class Crm:
    """A resolver whose erasures do what `erases` does: give a value, or raise."""

    name = "crm"

    def __init__(self, erases: Callable[[SubjectRef], Any] | None = None) -> None:
        self.erases = erases or (lambda ref: ResolverErasure(resolver="crm"))
        self.called: list[str] = []

    async def export_subject(self, ref: SubjectRef) -> Any:
        return None

    async def erase_subject(self, ref: SubjectRef) -> Any:
        self.called.append(ref.value)
        answer = self.erases(ref)
        return await answer if asyncio.iscoroutine(answer) else answer


class Mail:
    """The target of `send`: the operation whose answer is whatever `answers(context)` gives."""

    name = "mail"

    def __init__(self) -> None:
        self.answers: Callable[[CallContext], Any] = lambda context: None
        self.contexts: list[CallContext] = []
        self.keys: list[str | None] = []

    async def send(self, context: CallContext) -> Any:
        self.contexts.append(context)
        self.keys.append(current_idempotency_key())
        answer = self.answers(context)
        return await answer if asyncio.iscoroutine(answer) else answer

    @property
    def called(self) -> list[UUID]:
        return [context.entry_id for context in self.contexts]


async def send(target: Mail, context: CallContext) -> Any:
    return await target.send(context)


class Pager:
    """A hook that remembers."""

    def __init__(self) -> None:
        self.abandoned: list[Any] = []
        self.overdue: list[Any] = []
        self.unverified: list[Any] = []

    def on_abandoned(self, signal: Any) -> None:
        self.abandoned.append(signal)

    def on_overdue(self, signal: Any) -> None:
        self.overdue.append(signal)

    def on_unverified(self, signal: Any) -> None:
        self.unverified.append(signal)


class Desk:
    """An outbox, a runner, and everything around them."""

    def __init__(self, sessions: Any, *, clock: ManualClock | None = None, **send_options: Any) -> None:
        self.clock = clock or ManualClock(auto=False)
        self.mail, self.crm = Mail(), Crm()
        self.registry = ResolverRegistry()
        self.registry.register(self.mail)
        self.registry.register(self.crm)
        options: dict[str, Any] = {"events": StepEvents.of(SEND), "facts": frozenset({"code"}), "sensitive": False}
        self.operations = OperationRegistry(ERASE, RECTIFY, Operation(name=SEND, call=send, **(options | send_options)))
        self.sessions = sessions
        self.outbox = Outbox(sessions, TABLES.outbox, operations=self.operations, clock=self.clock)
        self.trail, self.pager, self.hub = Trail(), Pager(), Hub()
        self.events: list[GuardEvent] = []
        self.hub.register(self.events.append)

    def runner(self, **options: Any) -> SagaRunner:
        options = {"rng": None, "telemetry": self.hub, "on_abandoned": self.pager, **options}
        return SagaRunner(self.registry, self.outbox, options.pop("audit", self.trail), **options)

    def entry(self, target: str = "mail", operation: str = SEND, **fields: Any) -> OutboxEntry:
        id = new_entry_id()
        fields = {"subject_id": "ada", "enqueued_at": self.clock.wall(), "entry_id": id, **fields}
        fields.setdefault("ref", SubjectRef(kind=target, value=str(id)))
        return OutboxEntry(resolver=target, operation=operation, **fields)

    def put(self, *entries: OutboxEntry) -> tuple[OutboxEntry, ...]:
        self.outbox.run(lambda session: self.outbox.enqueue(session, entries))
        return entries

    def put_one(self, *args: Any, **fields: Any) -> UUID:
        return self.put(self.entry(*args, **fields))[0].entry_id

    def put_many(self, number: int, **fields: Any) -> list[UUID]:
        return [one.entry_id for one in self.put(*(self.entry(**fields) for _ in range(number)))]

    def erase(self, **fields: Any) -> UUID:
        return self.put_one("crm", "erase", **fields)

    def get(self, id: UUID) -> OutboxEntry:
        found = self.outbox.get(id)
        assert found is not None
        return found

    def statuses(self, ids: Iterable[UUID]) -> list[str]:
        return [str(self.get(id).status) for id in ids]

    def history(self, id: UUID) -> list[tuple[int, str, str | None]]:
        return [(row.number, row.outcome, row.error) for row in self.outbox.attempts(id)]

    def after(self, id: UUID) -> timedelta:
        """How long from now the entry waits."""
        at = self.get(id).next_attempt_at
        assert at is not None
        return at - self.clock.wall()

    def column(self, id: UUID, name: str) -> Any:
        table = TABLES.outbox
        with self.sessions() as session:
            return session.execute(sa.select(table.c[name]).where(table.c.entry_id == id)).scalar()


async def until(condition: Callable[[], Any]) -> None:
    """Let others work until it holds; threads get their turns as well."""
    for _ in range(20_000):
        if condition():
            return
        await asyncio.sleep(0.0005)
    raise AssertionError("it never came to that")
