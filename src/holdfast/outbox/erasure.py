"""Erase or correct a subject: the application's own rows now, every external system through the outbox."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, Literal, NamedTuple
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from holdfast.audit.event import AuditEvent, AuditSink, JoiningSink
from holdfast.audit.event import AuditEventType as Event
from holdfast.audit.sessions import dialect_of, plain_session
from holdfast.errors import ConfigurationError
from holdfast.outbox.checks import each
from holdfast.outbox.checks import text as checked_text
from holdfast.outbox.entry import OutboxOperation
from holdfast.outbox.evidence import Evidence
from holdfast.outbox.ids import new_entry_id
from holdfast.outbox.local import ErasureStrategy, LocalStep, children_first
from holdfast.outbox.outbox import Outbox
from holdfast.outbox.resolver import ResolverRegistry
from holdfast.outbox.runner_errors import error_name
from holdfast.outbox.sagas.after import audit_at_commit
from holdfast.outbox.subject import LONGEST, SEPARATOR, CompositeSubjectId, Correction, SubjectRef

SubjectId = str | CompositeSubjectId
_ALONE: Final = frozenset(
    {
        Event.ERASURE_REQUESTED,
        Event.ERASURE_STEP_FAILED,
        Event.RECTIFICATION_REQUESTED,
        Event.RECTIFICATION_STEP_FAILED,
    }
)


class SubjectRequest(NamedTuple):
    """What a request has done here, and what it has asked of others."""

    subject_id: str
    rows: dict[str, int]
    """How many rows each table had."""
    entries: tuple[UUID, ...]
    skipped_resolvers: tuple[str, ...]
    """Resolvers that were not asked: no reference named them, or they cannot do it."""


class Overdue(NamedTuple):
    """A request that should be complete by now."""

    subject_id: str
    requested_at: datetime


class _Names(NamedTuple):
    """The events of one kind of request."""

    requested: Event
    succeeded: Event
    failed: Event
    local_completed: Event
    completed: Event


_ERASURE: Final = _Names(
    Event.ERASURE_REQUESTED,
    Event.ERASURE_STEP_SUCCEEDED,
    Event.ERASURE_STEP_FAILED,
    Event.ERASURE_LOCAL_COMPLETED,
    Event.ERASURE_COMPLETED,
)
_RECTIFICATION: Final = _Names(
    Event.RECTIFICATION_REQUESTED,
    Event.RECTIFICATION_STEP_SUCCEEDED,
    Event.RECTIFICATION_STEP_FAILED,
    Event.RECTIFICATION_LOCAL_COMPLETED,
    Event.RECTIFICATION_COMPLETED,
)


class Erasure:
    """Requests of subjects to be forgotten, or to be corrected.

    `steps` are the application's own tables. The audit events live and die with the caller's transaction; if that is
    undone, the request itself is still written down. `evidence="own"` writes it down before anything else, on a
    connection of its own, so that even a crash leaves it (not with SQLite, which has one writer at a time).
    """

    def __init__(
        self,
        outbox: Outbox,
        registry: ResolverRegistry,
        audit: AuditSink,
        *,
        steps: Sequence[LocalStep] = (),
        evidence: Literal["joined", "own"] = "joined",
    ) -> None:
        if evidence not in ("joined", "own"):
            raise ConfigurationError(f"evidence must be 'joined' or 'own', got {evidence!r}")
        names = [step.name for step in steps]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigurationError(f"table {twice[0]!r} has two local steps; give it one")
        self._outbox = outbox
        self._registry = registry
        self._audit = audit
        self._steps = children_first(steps)
        self._own = evidence == "own"

    def erase_subject(
        self, session: Session, subject_id: SubjectId, *, refs: Iterable[SubjectRef] = ()
    ) -> SubjectRequest:
        """Erase the subject's rows in the caller's transaction, and enqueue an erasure for each reference. It does not
        commit.

        Raises ResolverError for a reference that no resolver knows, ValueError for an impossible id; neither leaves an
        event.
        """
        session, given = self._checked(session), tuple(dict.fromkeys(each("refs", refs, SubjectRef)))
        planned = [(self._registry.get(ref.kind).name, ref) for ref in given]
        request = _Request(self, session, subject_id, _ERASURE)
        request.begin({"local_steps": len(self._steps), "external_steps": len(planned), "refs": len(given)})
        for step in self._steps:
            label = {"target": step.name, "strategy": str(step.strategy)}
            request.do(step.name, label, partial(step.erase, session, request.subject))
        ids = request.enqueue(planned, OutboxOperation.ERASE, None, None)
        of = {kind: sum(request.rows[s.name] for s in self._steps if s.strategy is kind) for kind in ErasureStrategy}
        counts = {
            "deleted": of[ErasureStrategy.DELETE],
            "anonymized": of[ErasureStrategy.ANONYMIZE],
            "retained": of[ErasureStrategy.RETAIN],
        }
        return request.end(counts, ids, self._skipped({name for name, _ in planned}))

    def rectify_subject(
        self,
        session: Session,
        subject_id: SubjectId,
        corrections: Sequence[Correction],
        *,
        refs: Iterable[SubjectRef] = (),
    ) -> SubjectRequest:
        """Correct the subject's rows in the caller's transaction, and enqueue a correction for each reference whose
        resolver can rectify. It does not commit.

        Raises ValueError without corrections or for two of one category, and as `erase_subject` does.
        """
        session, corrections = self._checked(session), each("corrections", corrections, Correction)
        categories = [one.category for one in corrections]
        if not corrections:
            raise ValueError("corrections must not be empty: name at least one category and its right value")
        if len(set(categories)) != len(categories):
            twice = next(one for one in categories if categories.count(one) > 1)
            raise ValueError(f"corrections name {twice} twice; give each category one value")
        found = [(self._registry.get(ref.kind), ref) for ref in dict.fromkeys(each("refs", refs, SubjectRef))]
        planned = [(resolver.name, ref) for resolver, ref in found if hasattr(resolver, "rectify_subject")]
        local = [(step, one) for step in self._steps for one in corrections if one.category in step.categories]
        request = _Request(self, session, subject_id, _RECTIFICATION)
        known = ",".join(sorted(categories))
        request.begin({"categories": known, "local_steps": len(local), "external_steps": len(planned)})
        for step, one in local:
            label = {"target": step.name, "category": str(one.category)}
            work = partial(step.rectify, session, request.subject, one.category, one.value)
            request.do(step.name, label, work, {"target": step.name})
        payload = {"corrections": [one.model_dump(mode="json") for one in corrections]}
        # A group of its own: a correction that was abandoned cannot be requeued, and must not hold up its successor.
        ids = request.enqueue(planned, OutboxOperation.RECTIFY, payload, new_entry_id())
        counts = {"rectified": sum(request.rows.values())}
        return request.end(counts, ids, self._skipped({name for name, _ in planned}))

    async def aerase_subject(self, session: Any, subject_id: SubjectId, **options: Any) -> SubjectRequest:
        """`erase_subject` in the transaction of an AsyncSession."""
        done: SubjectRequest = await session.run_sync(lambda inner: self.erase_subject(inner, subject_id, **options))
        return done

    async def arectify_subject(
        self, session: Any, subject_id: SubjectId, corrections: Sequence[Correction], **options: Any
    ) -> SubjectRequest:
        """`rectify_subject` in the transaction of an AsyncSession."""
        done: SubjectRequest = await session.run_sync(
            lambda inner: self.rectify_subject(inner, subject_id, corrections, **options)
        )
        return done

    def verify_subject(self, session: Session, subject_id: SubjectId) -> bool:
        """Look whether any row is left that should be gone, and write down what was found: in the caller's transaction
        if one is open, and otherwise in one of its own.
        """
        subject, text = _checked(subject_id)
        session = plain_session(session)
        was_open = session.in_transaction()
        left, surviving, failed = 0, 0, 0
        for step in self._steps:
            try:
                with session.begin_nested():  # PostgreSQL ends a transaction in which anything failed
                    rows = step.remaining(session, subject)
            except SQLAlchemyError:
                failed += 1
                continue
            left += rows if step.strategy is ErasureStrategy.DELETE else 0
            surviving += rows if step.strategy is not ErasureStrategy.DELETE else 0
        facts = {"tables_checked": len(self._steps) - failed, "residual_rows": left}
        facts |= {"surviving_rows": surviving, "failed_tables": failed}
        gone = not left and not failed
        kind = Event.ERASURE_VERIFIED if gone else Event.ERASURE_VERIFICATION_FAILED
        event = self._event(session, kind, text, facts)
        if was_open and isinstance(self._audit, JoiningSink):
            audit_at_commit(session, self._audit, [event])
        else:
            if not was_open:
                session.rollback()  # of what was read here, so that the trail can have the only connection
            self._audit.append(event)
        return gone

    def overdue(self, after: timedelta, *, limit: int = 100) -> Sequence[Overdue]:
        """Requests that were written down longer ago and have not been completed since, oldest first."""
        asked = self._outbox.tables.audit_events
        done = asked.alias("done")

        def work(session: Session) -> tuple[Overdue, ...]:
            before = self._outbox.now(session) - after
            found: list[Any] = []
            for names in (_ERASURE, _RECTIFICATION):
                finished = sa.select(sa.literal(1)).where(
                    done.c.subject_ref == asked.c.subject_ref,
                    done.c.event_type == str(names.completed),
                    done.c.occurred_at >= asked.c.occurred_at,
                )
                found += session.execute(
                    sa.select(asked.c.subject_ref, asked.c.occurred_at)
                    .where(asked.c.event_type == str(names.requested), asked.c.occurred_at < before)
                    .where(~finished.exists())
                    .order_by(asked.c.occurred_at)
                    .limit(max(0, limit))
                )
            rows = sorted((Overdue(*row) for row in found), key=lambda one: one.requested_at)
            return tuple(rows[: max(0, limit)])

        return self._outbox.run(work)

    def _checked(self, session: Any) -> Session:
        """Raises ConfigurationError for a session in which a request cannot be made."""
        plain = plain_session(session)
        if self._own and dialect_of(plain) == "sqlite":
            fix = "use evidence='joined'"
            raise ConfigurationError(f"evidence='own' needs a second writer, and SQLite has one at a time; {fix}")
        return plain

    def _skipped(self, asked: set[str]) -> tuple[str, ...]:
        return tuple(one.name for one in self._registry.all() if one.name not in asked)

    def _event(self, session: Session, type: Event, subject: str, facts: Any) -> AuditEvent:
        return AuditEvent(event_type=type, subject_ref=subject, occurred_at=self._outbox.now(session), payload=facts)


class _Request:
    """One request on its way through the caller's transaction."""

    def __init__(self, erasure: Erasure, session: Session, subject_id: SubjectId, names: _Names) -> None:
        self.subject, self.text = _checked(subject_id)
        for step in erasure._steps:
            step.check(self.subject)
        self.rows: dict[str, int] = {}
        self._erasure = erasure
        self._session = session
        self._names = names
        self._evidence: Evidence | None = None

    def begin(self, facts: dict[str, Any]) -> None:
        erasure, requested = self._erasure, self._event(self._names.requested, facts)
        self._evidence = Evidence(self._session, erasure._audit, alone=lambda event: event.event_type in _ALONE)
        if erasure._own:
            erasure._audit.append(requested)
        else:
            self._evidence.add(requested)

    def do(
        self, name: str, label: dict[str, Any], work: Callable[[], int], blame: dict[str, Any] | None = None
    ) -> None:
        """Do a local step; what it raises is written down and goes on."""
        try:
            rows = work()
        except Exception as error:
            self.note(self._names.failed, {**(label if blame is None else blame), "error": error_name(error)})
            raise
        self.rows[name] = self.rows.get(name, 0) + rows
        self.note(self._names.succeeded, {**label, "rows": rows})

    def enqueue(
        self, planned: Sequence[tuple[str, SubjectRef]], operation: OutboxOperation, payload: Any, saga_id: UUID | None
    ) -> tuple[UUID, ...]:
        outbox = self._erasure._outbox
        try:
            return tuple(
                outbox.put(
                    self._session, operation, payload, target=target, ref=ref, subject_id=self.text,
                    key=_order(target, ref), saga_id=saga_id,
                )
                for target, ref in planned
            )  # fmt: skip
        except Exception as error:
            self.note(self._names.failed, {"target": "outbox", "strategy": "enqueue", "error": error_name(error)})
            raise

    def end(self, counts: dict[str, int], ids: tuple[UUID, ...], skipped: tuple[str, ...]) -> SubjectRequest:
        facts = {**counts, "enqueued": len(ids), "skipped_resolvers": ",".join(skipped)}
        self.note(self._names.local_completed, facts)
        if not ids:
            self.note(self._names.completed, {})
        return SubjectRequest(self.text, self.rows, ids, skipped)

    def note(self, type: Event, facts: dict[str, Any]) -> None:
        assert self._evidence is not None
        self._evidence.add(self._event(type, facts))

    def _event(self, type: Event, facts: dict[str, Any]) -> AuditEvent:
        return self._erasure._event(self._session, type, self.text, facts)


def _checked(subject_id: SubjectId) -> tuple[SubjectId, str]:
    """The id, and its text as it is stored.

    Raises ValueError for one that cannot be stored, or could be taken for a composite.
    """
    given: Any = subject_id.canonical if isinstance(subject_id, CompositeSubjectId) else subject_id
    text = checked_text("subject_id", given)
    if isinstance(subject_id, str) and SEPARATOR in subject_id:
        raise ValueError(
            f"subject_id {subject_id!r} holds U+001F, which joins the values of a CompositeSubjectId; use one"
        )
    return subject_id, text


def _order(target: str, ref: SubjectRef) -> str:
    """One line for everything that one system is told of one reference."""
    key = f"{target}/{ref.kind}/{ref.value}"
    return key if len(key) <= LONGEST else hashlib.sha256(key.encode()).hexdigest()
