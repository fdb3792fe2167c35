"""What cannot be stored or meant is refused: with the name, the value and the way out, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from inspect import signature
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa

from holdfast.audit.event import AuditEvent
from holdfast.audit.sink import DatabaseAuditSink
from holdfast.errors import ConfigurationError, PolicyError, RateLimited, ResolverError
from holdfast.outbox.backoff import BackoffPolicy
from holdfast.outbox.draft import Draft
from holdfast.outbox.erasure import Erasure
from holdfast.outbox.local import LocalStep
from holdfast.outbox.operation import Done, Operation, OperationRegistry
from holdfast.outbox.outbox import Outbox
from holdfast.outbox.resolver import ResolverRegistry
from holdfast.outbox.runner import SagaRunner
from holdfast.outbox.sagas.sagas import Saga, Sagas, Step
from holdfast.outbox.subject import CompositeSubjectId, Correction, PiiCategory, SubjectRef
from holdfast.testing import ManualClock
from tests.databases import METADATA, ORDERS, TABLES, Database, fresh_database
from tests.outbox.entries import HOUR, START, enqueue, make_entry, nothing, open_outbox, stored
from tests.outbox.runner_kit import Desk

NUL = "a\0b"
HALF = "a\ud800b"
NAN = float("nan")
HUGE = (Correction(category=PiiCategory.CONTACT, value="v" * 2_000_000),)


def written(database: Database) -> int:
    """How many rows there are in all tables."""
    with database.engine.connect() as connection:
        counts = [sa.select(sa.func.count()).select_from(table) for table in METADATA.sorted_tables]
        return sum(connection.execute(count).scalar_one() for count in counts)


PUTS: list[tuple[dict[str, Any], str]] = [
    ({"operation": "chrage"}, r"unknown operation 'chrage'; registered: charge, erase, ping, rectify"),
    ({"operation": 7}, r"unknown operation '7'"),
    ({"target": 7}, r"target must be a text, got a int"),
    ({"target": None}, r"target must be a text, got a NoneType"),
    ({"payload": {"a": {"b": [1, object()]}}}, r"payload\.a\.b\[1\] is a object, which is not JSON; store"),
    ({"payload": {"n": NAN}}, r"payload\.n is nan, which JSON cannot hold; store None"),
    ({"payload": {"n": float("inf")}}, r"payload\.n is inf"),
    ({"payload": {"n": {1: 2}}}, r"payload\.n has the key 1; keys of stored data are texts"),
    ({"payload": {"n": [NUL]}}, r"payload\.n\[0\] holds U\+0000 or half of a surrogate pair"),
    ({"payload": {"n": HALF}}, r"payload\.n holds U\+0000 or half of a surrogate pair"),
    ({"payload": {NUL: 1}}, r"a key of payload holds U\+0000"),
    ({"payload": {"x": "y" * 5000}}, r"payload has 5008 bytes as JSON, and 1000 are allowed; store .*max_payload"),
    ({"payload": {1, 2}}, r"payload is a set, which is not JSON"),
    ({"ref": {"kind": "crm", "value": "1"}}, r"ref must be a SubjectRef, got .*; write SubjectRef\(kind=…"),
    ({"subject_id": ""}, r"subject_id must have 1 to 255 characters, got 0"),
    ({"subject_id": "s" * 256}, r"subject_id must have 1 to 255 characters, got 256"),
    ({"subject_id": NUL}, r"subject_id holds U\+0000"),
    ({"subject_id": CompositeSubjectId(values=("a" * 200, "b" * 100))}, r"subject_id must have 1 to 255"),
    ({"key": 7}, r"key must be a text, got a int"),
    ({"key": ""}, r"key must have 1 to 255"),
    ({"dedupe_key": HALF}, r"dedupe_key holds U\+0000 or half"),
    ({"delay": 5}, r"delay must be a timedelta, got 5; write timedelta\(seconds=…\)"),
    ({"delay": timedelta(-1)}, r"delay must not be below 0"),
    ({"at": "tomorrow"}, r"at must be a datetime, got 'tomorrow'; write datetime\(..., tzinfo=UTC\)"),
    ({"at": 0}, r"at must be a datetime, got 0"),
    ({"queue": ""}, r"queue must have 1 to 64"),
    ({"queue": None}, r"queue must be a text"),
    ({"headers": ["a"]}, r"headers must be a mapping of texts, got \['a'\]"),
    ({"headers": {"a": 1}}, r"header a must be a text, got a int"),
    ({"headers": {"a": None}}, r"header a must be a text, got a NoneType"),
    ({"headers": {NUL: "x"}}, r"a header's name holds U\+0000"),
    ({"saga_id": "x"}, r"saga_id must be a UUID, got 'x'; write UUID"),
    ({"depends_on": 5}, r"depends_on must be a UUID, got 5"),
    ({"entry_id": str(uuid4())}, r"entry_id must be a UUID"),
    ({"step": ""}, r"step must have 1 to 255"),
    ({"direction": "sideways and on"  + "!" * 9}, r"direction must have 1 to 16"),
]  # fmt: skip


def test_what_cannot_be_put_is_named_and_nothing_is_written(database: Database) -> None:
    outbox = open_outbox(database, max_payload=1000)
    for wrong, story in PUTS:
        given = {"operation": "charge", "target": "bank", "payload": None, **wrong}
        with pytest.raises((ValueError, ConfigurationError), match=story), database.sessions.begin() as session:
            outbox.put(session, **given)
        with pytest.raises((ValueError, ConfigurationError), match=story), database.sessions.begin() as session:
            outbox.put_many(session, [Draft("charge", target="bank", key="k"), Draft(**given)])
    assert written(database) == 0


def test_a_bad_call_leaves_the_callers_transaction_usable(database: Database) -> None:
    """It is refused before anything reaches the database, so the rest can be kept."""
    outbox = open_outbox(database)
    with database.sessions.begin() as session:
        session.execute(ORDERS.insert(), {"id": 1})
        for wrong in ({"payload": {"n": NAN}}, {"key": NUL}, {"at": "x"}):
            with pytest.raises(ValueError, match=r"."):
                outbox.put(session, "charge", target="bank", **wrong)
        outbox.put(session, "charge", target="bank")
    assert written(database) == 2


@pytest.mark.parametrize(
    ("act", "story"),
    [
        (lambda box, session: box.put_many(session, Draft("ping", target="x")), "drafts must be several of Draft"),
        (lambda box, session: box.put_many(session, [{"operation": "ping"}]), "each of drafts must be of Draft"),
        (lambda box, session: box.enqueue(session, make_entry()), "entries must be several of OutboxEntry"),
        (lambda box, session: box.enqueue(session, [make_entry().model_dump()]), "each of entries must be of"),
        (lambda box, session: box.publish(session, "", {}), "topic must have 1 to 255"),
        (lambda box, session: box.publish(session, 7, {}), "topic must be a text"),
        (lambda box, session: box.publish(session, "t", {"n": NAN}), r"payload.data.n is nan"),
        (lambda box, session: box.publish(session, "a\nb", {}), r"for 'a\\nb' .*type must not hold control characters"),
        (lambda box, session: box.publish(session, "t", {}, type="a\nb"), r"type must not hold control characters"),
        (lambda box, session: box.publish(session, "t", {}, content_type="json"), r"must be a media type, got 'json'"),
        (lambda box, session: box.publish(session, "t", {}, content_type="text/plain"), r"must be a text or bytes"),
        (lambda box, session: box.publish(session, "t", {}, attributes=["a"]), r"attributes must be a mapping .*'a'"),
        (lambda box, session: box.publish(session, "t", {}, attributes={1: "a"}), r"attributes must be a mapping"),
        (lambda box, session: box.publish(session, "t", {}, attributes={"id": "a"}), r"no extension 'id'; use"),
        (lambda box, session: box.publish(session, "t", {}, attributes={"Bad Key": 1}), r"no extension 'Bad Key'"),
        (lambda box, session: box.publish(session, "t", {}, attributes={"tenant": 1.5}), r"tenant must be .* got 1.5"),
        (lambda box, session: box.publish(session, "t", {}, attributes={"source": "a b"}), r"source must be a URI"),
        (lambda box, session: box.put("session", "ping", target="x"), "session must be a SQLAlchemy Session"),
        (lambda box, session: box.enqueue(session, [make_entry(operation="rectify", corrections=HUGE)]), "has 20000"),
    ],
)  # fmt: skip
def test_several_things_that_are_none(database: Database, act: Callable[..., Any], story: str) -> None:
    outbox = open_outbox(database)
    with pytest.raises((ValueError, ConfigurationError), match=story), database.sessions.begin() as session:
        act(outbox, session)
    assert written(database) == 0


@pytest.mark.parametrize("wrong", ["no id", "0b3e5a6c-6f44-4ab8-9d2a-4b0a6f1c3a55", None, 7])
def test_what_is_looked_for_by_an_id_that_is_none_is_told_so_everywhere(database: Database, wrong: Any) -> None:
    """A text is one to PostgreSQL and none to SQLite; nobody shall find out by changing the database."""
    outbox = open_outbox(database)
    sagas, audit = Sagas(outbox), DatabaseAuditSink(database.sessions, database.tables.audit_events)
    looks: dict[str, list[Callable[[], Any]]] = {
        "entry_id": [lambda: outbox.get(wrong), lambda: outbox.attempts(wrong), lambda: audit.read_entry(wrong)],
        "saga_id": [
            lambda: sagas.get(wrong), lambda: sagas.history(wrong), lambda: sagas.cancel(wrong),
            lambda: sagas.resume(wrong), lambda: sagas.resolve(wrong, "pay"),
        ],
    }  # fmt: skip
    if wrong is not None:
        looks["after"] = [lambda: outbox.find(after=wrong), lambda: outbox.search(after=wrong)]
        looks["saga_id"].append(lambda: outbox.find(saga_id=wrong))
    for name, ways in looks.items():
        for look in ways:
            with pytest.raises(ValueError, match=rf"^{name} must be a UUID, got {wrong!r}; write UUID"):
                look()


def test_arguments_come_by_name(database: Database) -> None:
    registry = OperationRegistry(Operation(name="greet", call=nothing, signature=signature(lambda name: None)))
    outbox = open_outbox(database, operations=registry)
    for payload in (["ann"], "ann", 7):
        with pytest.raises(ValueError, match=r"'greet' takes a payload of its arguments by name, got .*; give a dict"):
            with database.sessions.begin() as session:
                outbox.put(session, "greet", payload, target="ann")


def test_a_saga_that_could_neither_be_done_nor_undone_is_not_begun(database: Database) -> None:
    sagas = Sagas(open_outbox(database))

    def reserve(order_id: str) -> None: ...

    def release(order_id: str, shelf: int) -> None: ...

    def post(label: str) -> None: ...

    sagas.register(
        Saga("order", (
            Step("stock", reserve, compensation=release),
            Step("parcel", post, payload=lambda data, results: {"label": results["stock"]}),
        ))
    )  # fmt: skip
    wrong: dict[str, Any] = {"missing a required argument: 'order_id'": None, "'shelf'": {"order_id": "o-1"}}
    for story, data in wrong.items():
        with pytest.raises(ValueError, match=story), database.sessions.begin() as session:
            sagas.start(session, "order", data)
    assert written(database) == 0
    with database.sessions.begin() as session:
        sagas.start(session, "order", {"order_id": "o-1", "shelf": 4, "colour": "red"})
    assert written(database) > 0


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"resolver": NUL}, "resolver"), ({"subject_id": NUL}, "subject_id"), ({"ordering_key": NUL}, "ordering_key"),
        ({"dedupe_key": HALF}, "dedupe_key"), ({"last_error": NUL}, "last_error"), ({"queue": NUL}, "queue"),
        ({"operation": NUL}, "operation"), ({"headers": {"a": NUL}}, "headers"), ({"headers": {NUL: "a"}}, "headers"),
        ({"payload": {"a": NUL}}, "payload"), ({"payload": {"a": NAN}}, "payload"), ({"result": object()}, "result"),
        ({"attempts": -1}, "attempts"), ({"attempts": "many"}, "attempts"), ({"parks": -1}, "parks"),
        ({"entry_id": "x"}, "entry_id"), ({"enqueued_at": "x"}, "enqueued_at"), ({"status": "lost"}, "status"),
        ({"next_attempt_at": object()}, "next_attempt_at"), ({"corrections": ["x"]}, "corrections"),
        ({"ref": "crm"}, "ref"), ({"claimed_by": "x" * 300}, "claimed_by"), ({"subject_id": 7}, "subject_id"),
        ({"subject_id": None}, "subject_id"),
    ],
)  # fmt: skip
def test_an_entry_that_cannot_be_stored_cannot_be_made(fields: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        make_entry(**fields)


@pytest.mark.parametrize(
    "make",
    [
        lambda: SubjectRef(kind=NUL, value="1"),
        lambda: SubjectRef(kind="crm", value=HALF),
        lambda: SubjectRef(kind="crm", value="1", extra={"a": NUL}),
        lambda: SubjectRef(kind="crm", value="1", extra={"a": NAN}),
        lambda: Correction(category=PiiCategory.CONTACT, value=NUL),
        lambda: Correction(category=PiiCategory.CONTACT, value=NAN),
        lambda: Correction(category="horoscope", value="lion"),  # type: ignore[arg-type]
        lambda: CompositeSubjectId(values=("a", "")),
        lambda: AuditEvent(event_type="x", subject_ref=NUL),
        lambda: AuditEvent(event_type=NUL, subject_ref="ann"),
        lambda: AuditEvent(event_type="x", subject_ref="ann", payload={"a": NUL}),
        lambda: AuditEvent(event_type="x", subject_ref="ann", payload={NUL: "a"}),
        lambda: AuditEvent(event_type="x", subject_ref="ann", payload={"a": 1.5}),  # type: ignore[dict-item]
    ],
)
def test_a_value_that_cannot_be_stored_cannot_be_made(make: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        make()


def test_naive_times_are_read_as_utc_everywhere(database: Database) -> None:
    outbox = open_outbox(database, ManualClock())
    naive = datetime(2026, 5, 1, 12, tzinfo=UTC).replace(tzinfo=None)
    with database.sessions.begin() as session:
        put = outbox.put(session, "ping", target="x", at=naive)
    (entry,) = enqueue(outbox, make_entry())
    (claimed,) = outbox.claim_batch()
    assert claimed.entry_id == entry.entry_id
    assert outbox.mark_failed(claimed, error="E", next_attempt_at=naive)
    for id in (put, entry.entry_id):
        assert stored(outbox, id).next_attempt_at == naive.replace(tzinfo=UTC)


WRONG_CALLS: list[tuple[Callable[[Outbox], Any], str]] = [
    (lambda box: box.claim_batch("5"), "limit must be a whole number, got '5'"),
    (lambda box: box.claim_batch(True), "limit must be a whole number, got True"),
    (lambda box: box.claim_batch(lease=5), "lease must be a timedelta, got 5"),
    (lambda box: box.claim_batch(lease=timedelta(0)), "lease must be above 0"),
    (lambda box: box.claim_batch(queues="slow"), "queues must be several of str, got a str; give a list"),
    (lambda box: box.renew([make_entry()], lease=0), "lease must be a timedelta"),
    (lambda box: box.release(make_entry()), "entries must be several of OutboxEntry"),
    (lambda box: box.mark_failed(make_entry(), error=KeyError("ann"), next_attempt_at=START),
     r"error must be the name of an exception's class, got KeyError\('ann'\); use type\(error\).__name__"),
    (lambda box: box.mark_failed(make_entry(), error="", next_attempt_at=START), "error must be the name"),
    (lambda box: box.mark_failed(make_entry(), error="E", next_attempt_at=5), "next_attempt_at must be a"),
    (lambda box: box.mark_scheduled(make_entry(), resume_at=HOUR), "resume_at must be a datetime"),
    (lambda box: box.mark_abandoned(make_entry(), error=None), "error must be the name"),
    (lambda box: box.mark_abandoned(uuid4(), error="E"), "entry must be an OutboxEntry"),
    (lambda box: box.mark_succeeded(make_entry(), on_subject_complete=7), "must be a plain function, got 7"),
    (lambda box: box.mark_succeeded("x", on_subject_complete=nothing), "entry must be an OutboxEntry"),
    (lambda box: box.requeue("abc"), "entry_ids must be several UUIDs, got 'abc'; give a list"),
    (lambda box: box.requeue(uuid4()), "entry_ids must be several UUIDs"),
    (lambda box: box.requeue(["abc"]), "each of entry_ids must be a UUID, got 'abc'"),
    (lambda box: box.cancel([None]), "each of entry_ids must be a UUID, got None"),
    (lambda box: box.list_abandoned(limit="5"), "limit must be a whole number"),
    (lambda box: box.list_scheduled(limit=1.5), "limit must be a whole number"),
    (lambda box: box.prune(7), "older_than must be a timedelta, got 7"),
    (lambda box: box.prune(timedelta(-1)), "older_than must not be below 0"),
    (lambda box: box.pause(""), "queue must have 1 to 64"),
    (lambda box: box.pause(7), "queue must be a text"),
    (lambda box: box.pause("q", by=7), "by must be a text"),
    (lambda box: box.pause("q", reason=NUL), r"reason holds U\+0000"),
    (lambda box: box.find(status="lost"), "'lost' is no status"),
]  # fmt: skip


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("act", "story"), WRONG_CALLS)
def test_a_wrong_argument_is_named(database: Database, act: Callable[[Outbox], Any], story: str) -> None:
    outbox = open_outbox(database)
    enqueue(outbox, make_entry())
    with pytest.raises(ValueError, match=story):
        act(outbox)
    assert written(database) == 1
    assert outbox.status_counts()["pending"] == 1


# -- wiring


def test_an_outbox_that_cannot_work_is_refused(database: Database) -> None:
    table = database.tables.outbox
    other = sa.Table("my_outbox", sa.MetaData(), sa.Column("entry_id", sa.Uuid()))
    for args, options, story in (
        (("sqlite://", table), {}, "session_factory must be a sessionmaker, got str"),
        ((database.sessions, "outbox"), {}, "outbox must be a table, got a str; give bind_tables"),
        ((database.sessions, database.tables.audit_events), {}, "holdfast_audit_events is not the table of an outbox"),
        ((database.sessions, other), {}, "my_outbox is not the table of an outbox"),
        (
            (database.sessions, table),
            {"abandoned_head": "wait"},
            "abandoned_head must be 'skip' or 'block', got 'wait'",
        ),
        ((database.sessions, table), {"max_payload": 0}, "max_payload must be at least 1 byte, got 0"),
    ):
        with pytest.raises(ConfigurationError, match=story):
            Outbox(*args, **options)
    assert len(TABLES.outbox.metadata.tables) == len(METADATA.tables)


@pytest.mark.parametrize(
    ("options", "story"),
    [
        ({"max_attempts": "8"}, "max_attempts must be a whole number of at least 1, got '8'"),
        ({"batch_size": 1.5}, "batch_size must be a whole number"),
        ({"concurrency": True}, "concurrency must be a whole number"),
        ({"verify_attempts": 0}, "verify_attempts must be a whole number of at least 1, got 0"),
        ({"timeout": 5}, "timeout must be a timedelta that is not below 0, got 5"),
        ({"grace": 10}, "grace must be a timedelta"),
        ({"max_park_age": 5}, "max_park_age must be a timedelta"),
        ({"backoff": 30}, "backoff must be a BackoffPolicy, got 30"),
        ({"on_abandoned": print}, "on_abandoned must have a method on_abandoned"),
        ({"unknown_target": "ignore"}, "unknown_target must be 'abandon' or 'defer', got 'ignore'"),
        ({"queues": "default"}, "queues must name at least one queue, got 'default'"),
        ({"queues": ()}, "queues must name at least one queue"),
    ],
)
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_runner_that_cannot_work_is_refused(database: Database, options: dict[str, Any], story: str) -> None:
    with pytest.raises(PolicyError, match=f"SagaRunner.{story}"):
        SagaRunner(ResolverRegistry(), open_outbox(database), None, **options)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_runner_needs_parts_that_it_can_use(database: Database) -> None:
    class Hook:
        async def on_abandoned(self, signal: Any) -> None: ...

    outbox = open_outbox(database)
    with pytest.raises(PolicyError, match=r"SagaRunner.audit must have a method append, and a dict has none"):
        SagaRunner(ResolverRegistry(), outbox, {})  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match=r"SagaRunner.on_abandoned.on_abandoned must be a plain method"):
        SagaRunner(ResolverRegistry(), outbox, None, on_abandoned=Hook())  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match=r"SagaRunner.outbox must be an Outbox, got a sessionmaker"):
        SagaRunner(ResolverRegistry(), database.sessions, None)  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match=r"SagaRunner.registry must have a method get"):
        SagaRunner(None, open_outbox(database), None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "story"),
    [
        ({"name": ""}, "Operation.name must be a text of 1 to 32 characters, got ''"),
        ({"name": "x" * 33}, "Operation.name"),
        ({"name": 7}, "Operation.name must be a text of 1 to 32 characters, got 7"),
        ({"name": NUL}, "Operation.name"),
        ({"call": "send"}, r"Operation.call must be a function of \(target, context\), got 'send'"),
        ({"max_attempts": 0}, "Operation.max_attempts must be a whole number of at least 1, got 0"),
        ({"concurrency": 0}, "Operation.concurrency must be a whole number of at least 1, got 0"),
        ({"complete_in": 7}, "Operation.complete_in must be a plain function, got 7"),
        ({"timeout": 5}, "Operation.timeout must be a timedelta above 0, got 5"),
        ({"timeout": timedelta(0)}, "Operation.timeout must be a timedelta above 0"),
        ({"unknown_target": "wait"}, "Operation.unknown_target must be 'abandon', 'defer' or None, got 'wait'"),
    ],
)
def test_an_operation_that_cannot_work_is_refused(fields: dict[str, Any], story: str) -> None:
    with pytest.raises(ConfigurationError, match=story):
        Operation(**{"name": "send", "call": lambda target, context: Done(), **fields})


def test_registries_refuse_what_they_cannot_find_again() -> None:
    send = Operation(name="send", call=lambda target, context: Done())
    with pytest.raises(ConfigurationError, match="'send' is already registered"):
        OperationRegistry(send, send)
    with pytest.raises(ConfigurationError, match="an Operation is registered here, got 'send'"):
        OperationRegistry("send")  # type: ignore[arg-type]
    registry = ResolverRegistry()
    with pytest.raises(ConfigurationError, match="a resolver has a name of 1 to 255 characters"):
        registry.register(object())
    with pytest.raises(ResolverError, match=r"no resolver 'crm'; registered: none"):
        registry.get("crm")


def test_a_builder_names_the_keys_that_are_missing_and_no_value() -> None:
    registry, made = ResolverRegistry(), []

    class Crm:
        name = "crm"

    def build(settings: Any) -> Any:
        made.append(settings)
        return Crm()

    assert not registry.register_from({"other": 1}, ("crm_url", "crm_key"), build)
    with pytest.raises(ConfigurationError, match=r"incomplete: crm_key must be set as well") as caught:
        registry.register_from({"crm_url": "https://hunter2@crm"}, ("crm_url", "crm_key"), build)
    assert "hunter2" not in str(caught.value)
    assert registry.register_from({"crm_url": "u", "crm_key": "k"}, ("crm_url", "crm_key"), build)
    assert (len(made), [one.name for one in registry.all()]) == (1, ["crm"])
    with pytest.raises(ResolverError, match="already registered"):
        registry.register(Crm())


# -- erasures


@pytest.mark.parametrize(
    ("act", "story"),
    [
        (lambda made, session: made.erase_subject(session, ""), "subject_id must have 1 to 255 characters, got 0"),
        (lambda made, session: made.erase_subject(session, 7), "subject_id must be a text, got a int"),
        (lambda made, session: made.erase_subject(session, NUL), r"subject_id holds U\+0000"),
        (lambda made, session: made.erase_subject(session, HALF), r"subject_id holds U\+0000 or half"),
        (lambda made, session: made.erase_subject(session, "a\x1fb"), r"holds U\+001F, which joins .*; use one"),
        (lambda made, session: made.erase_subject(session, "ann", refs=["crm"]), "each of refs must be of SubjectRef"),
        (lambda made, session: made.erase_subject(session, "ann", refs=7), "refs must be several of SubjectRef"),
        (lambda made, session: made.rectify_subject(session, "ann", []), "corrections must not be empty"),
        (lambda made, session: made.rectify_subject(session, "ann", ["x"]), "each of corrections must be of"),
        (lambda made, session: made.erase_subject("session", "ann"), "session must be a SQLAlchemy Session"),
        (
            lambda made, session: made.erase_subject(session, "ann", refs=[SubjectRef(kind="crm", value="1")]),
            "no resolver 'crm'",
        ),
    ],
)  # fmt: skip
def test_a_request_that_cannot_be_meant_leaves_nothing(database: Database, act: Callable[..., Any], story: str) -> None:
    outbox = open_outbox(database)
    assert outbox.audit_sink is not None
    erasure = Erasure(outbox, ResolverRegistry(), outbox.audit_sink, steps=[LocalStep(ORDERS, "note")])
    with (
        database.sessions.begin() as session,
        pytest.raises((ValueError, ConfigurationError, ResolverError), match=story),
    ):
        act(erasure, session)
    assert written(database) == 0


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_evidence_of_its_own_is_refused_where_there_is_one_writer(database: Database) -> None:
    outbox = open_outbox(database)
    assert outbox.audit_sink is not None
    erasure = Erasure(outbox, ResolverRegistry(), outbox.audit_sink, evidence="own")
    with database.sessions.begin() as session, pytest.raises(ConfigurationError, match="use evidence='joined'"):
        erasure.erase_subject(session, "ann")
    with pytest.raises(ConfigurationError, match="evidence must be 'joined' or 'own', got 'none'"):
        Erasure(outbox, ResolverRegistry(), outbox.audit_sink, evidence="none")  # type: ignore[arg-type]


# -- what calls answer


async def test_facts_that_a_database_cannot_hold_do_not_keep_a_success_from_being_written(database: Database) -> None:
    desk = Desk(database.sessions)
    assert desk.operations.find("send") is not None
    desk.mail.answers = lambda context: Done({"text": NUL, "half": HALF}, {"code": NUL, "other": 1})
    id = desk.put_one()
    tables = database.tables
    trail = DatabaseAuditSink(
        database.sessions, tables.audit_events, chain_heads=tables.chain_heads, event_types=desk.operations.event_types
    )
    await desk.runner(audit=trail).run_once()
    assert desk.get(id).status == "succeeded"
    assert desk.get(id).result == {"text": "a\ufffdb", "half": "a\ufffdb"}
    assert trail.read("ada")[0].payload["code"] == "a\ufffdb"
    assert all(trail.verify_all())


@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), 1e300, -5.0, 0.0])
async def test_a_refusal_without_a_sensible_end_is_tried_again_after_the_usual_time(
    tmp_path: Any, seconds: float
) -> None:
    with fresh_database("sqlite", tmp_path) as database:
        desk = Desk(database.sessions)

        def refuse(context: Any) -> None:
            raise RateLimited("mail", seconds)

        desk.mail.answers = refuse
        id = desk.put_one()
        await desk.runner().run_once()
        entry = desk.get(id)
        assert (entry.status, entry.attempts, desk.after(id)) == ("failed", 0, BackoffPolicy().base_delay)


def test_a_completion_callback_that_is_a_coroutine_function_is_refused(database: Database) -> None:
    """It would never be awaited; the entry must not look complete."""
    outbox = open_outbox(database)
    enqueue(outbox, make_entry())
    (claimed,) = outbox.claim_batch()

    async def completed() -> None: ...

    with pytest.raises(ValueError, match="on_subject_complete must be a plain function"):
        outbox.mark_succeeded(claimed, on_subject_complete=completed)  # type: ignore[arg-type]
    assert stored(outbox, claimed).status == "in_flight"


def test_ids_of_another_kind_are_not_found(database: Database) -> None:
    outbox = open_outbox(database)
    assert outbox.get(UUID(int=5)) is None
    assert outbox.requeue([UUID(int=5)]) == outbox.cancel([UUID(int=5)]) == ()
