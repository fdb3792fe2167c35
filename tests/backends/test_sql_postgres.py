"""What is special to PostgreSQL: counters without queues, claims without waiting, restarts, clocks and schema."""

from __future__ import annotations

import os
import shlex
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg.pq import PipelineStatus

from holdfast.backends.sql.plans import LOOKS_EVERY
from holdfast.backends.sql.postgres import PostgresSession
from holdfast.backends.sql.store import SqlStore
from holdfast.errors import Conflict, SchemaError, StoreError, StoreUnavailable
from holdfast.store.change import change
from holdfast.store.codec import micros
from holdfast.store.port import Change, Delete, Insert, Swap
from holdfast.store.query import among, equal
from holdfast.store.record import evolve
from holdfast.testing import ManualClock
from holdfast.testing.store.kinds import ITEM, PLAIN, Plain, fill, item
from tests.services.postgres import Server, private_server, server


@pytest.fixture
def store() -> Iterator[SqlStore]:
    made = SqlStore(server().fresh_database(), kinds=[ITEM, PLAIN])
    made.create_tables()
    yield made
    made.close()


@pytest.fixture(scope="module")
def mortal() -> Iterator[Server]:
    """A server that a test may stop."""
    made = private_server()
    yield made
    made.stop()


def counter_rows(store: SqlStore) -> int:
    with psycopg.connect(store.address.url) as connection:
        found = connection.execute("SELECT count(*) FROM holdfast_conformance_item_tally").fetchone()
    assert found is not None
    return int(found[0])


def test_a_lost_race_is_no_warning_in_the_log_of_the_driver(store: SqlStore, caplog: pytest.LogCaptureFixture) -> None:
    store.commit([Insert(ITEM, item("a", lane="left"))])
    for n in range(20):
        with pytest.raises(Conflict):
            store.commit([Insert(ITEM, item("a", lane="left")), Insert(PLAIN, Plain(f"p-{n}", 1, None, None))])
    assert caplog.records == []


def test_a_forked_child_whose_first_word_is_a_commit_leaves_its_parents_connection_alone(store: SqlStore) -> None:
    fill(store, [item("parent")])
    parents: Any = store._database
    child = os.fork()
    if child == 0:
        try:
            parents.run = lambda *_: os._exit(1)
            fill(store, [item("child")])
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert store.tally(ITEM) == {(): 2}


def test_many_writers_count_right_and_never_deadlock(store: SqlStore) -> None:
    def work(at: int) -> None:
        # Each touches the same few counters, in orders that would make locks meet head on.
        lanes = ("left", "right") if at % 2 else ("right", "left")
        for n in range(10):
            pair = [item(f"{at}-{n}-{lane}", lane=lane) for lane in lanes]
            store.commit([Insert(ITEM, one) for one in pair])
            store.commit([Swap(ITEM, one, evolve(one, state="done")) for one in reversed(pair)])
            store.commit([Delete(ITEM, evolve(pair[0]))])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(16)))
    assert sum(store.tally(ITEM, ("lane", "state")).values()) == 160
    assert store.tally(ITEM, ("state",)) == {("done",): 160}
    assert store.tally(ITEM, arrivals=True) == {(): 320}


def test_counters_are_folded_by_whoever_writes_much(store: SqlStore) -> None:
    for at in range(600):
        fill(store, [item(f"{at}")])
    assert counter_rows(store) < 200
    assert store.tally(ITEM) == {(): 600}


def test_counters_are_folded_by_whoever_reads_many_rows(store: SqlStore) -> None:
    for at in range(300):
        fill(store, [item(f"{at}")])
    assert counter_rows(store) == 300
    assert store.tally(ITEM, ("lane",)) == {("left",): 300}
    assert counter_rows(store) == 1
    assert store.tally(ITEM, ("lane",)) == {("left",): 300}
    store.sweep(ITEM, ())
    store._database.tidy(store._plans(ITEM))
    assert counter_rows(store) == 0


def test_counters_that_are_folded_already_are_left_alone(store: SqlStore) -> None:
    fill(
        store,
        [
            item(f"{lane}-{at}", lane=lane, state=f"s{at}")
            for lane, size in (("a", 200), ("b", 70))
            for at in range(size)
        ],
    )

    def folds() -> int:
        for one in ((), equal(lane="a"), equal(lane="b")):
            for _ in range(LOOKS_EVERY):
                store.tally(ITEM, (), one)
        return store._database._folded  # type: ignore[attr-defined]

    assert folds() == folds() == 3
    for at in range(100):
        fill(store, [item(f"{at}")])
    assert folds() == 4


def test_counters_are_folded_anew_after_there_were_many_rows_once(store: SqlStore) -> None:
    for at in range(300):
        fill(store, [item(f"{at}")])
    for _ in range(2 * LOOKS_EVERY):
        assert store.tally(ITEM, ("lane",)) == {("left",): 300}
    for at in range(300, 400):
        fill(store, [item(f"{at}")])
    for _ in range(LOOKS_EVERY):
        assert store.tally(ITEM, ("lane",)) == {("left",): 400}
    assert counter_rows(store) == 1


def test_counters_are_exact_to_the_last_of_very_many(store: SqlStore) -> None:
    many = 2**53 - 300
    fill(store, [item("0")])
    with psycopg.connect(store.address.url) as connection:
        connection.execute("UPDATE holdfast_conformance_item_tally SET n = %s", (many,))
    for at in range(1, 100):
        fill(store, [item(f"{at}")])
    for _ in range(LOOKS_EVERY + 1):
        assert store.tally(ITEM) == {(): many + 99}


def test_folding_beside_writers_loses_nothing(store: SqlStore) -> None:
    stop = threading.Event()

    def fold() -> None:
        while not stop.is_set():
            store._database.tidy(store._plans(ITEM))

    folders = [threading.Thread(target=fold) for _ in range(2)]
    for folder in folders:
        folder.start()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda at: fill(store, [item(f"{at}")]), range(300)))
    stop.set()
    for folder in folders:
        folder.join()
    assert store.tally(ITEM) == {(): 300}


@pytest.mark.parametrize("where", [equal(state="new"), (among("state", ("new", "old")),)], ids=["one", "some"])
def test_competing_claims_share_the_work(store: SqlStore, where: tuple[object, ...]) -> None:
    fill(store, [item(f"{at:03}", due_at=at, state="new" if at % 2 else "old") for at in range(200)])
    barrier = threading.Barrier(6)

    def work(at: int) -> list[str]:
        mine: list[str] = []
        barrier.wait()
        while found := store.claim(ITEM, where, lambda one: evolve(one, state="mine", due_at=None), limit=3):  # type: ignore[arg-type]
            mine += [one.id for one in found]
        return mine

    with ThreadPoolExecutor(6) as pool:
        claimed = [id for mine in pool.map(work, range(6)) for id in mine]
    assert len(claimed) == len(set(claimed)) == (100 if len(where[0].value) == 3 else 200)  # type: ignore[attr-defined]


def test_a_claim_passes_over_what_another_holds(store: SqlStore) -> None:
    fill(store, [item(f"{at}", due_at=at) for at in range(4)])
    with psycopg.connect(store.address.url) as other:
        other.execute("SELECT * FROM holdfast_conformance_item WHERE id IN ('0', '2') FOR UPDATE")
        store._database._contended_until = time.monotonic() + 60  # type: ignore[attr-defined]
        found = store.claim(ITEM, equal(state="new"), lambda one: evolve(one, state="mine"), limit=10)
        assert [one.id for one in found] == ["1", "3"]
        some = (among("state", ("new", "mine")),)
        found = store.claim(ITEM, some, lambda one: evolve(one, state="again"), limit=1)
        assert [one.id for one in found] == ["1"]


def test_a_long_text_that_stays_is_neither_sent_nor_rewritten(store: SqlStore) -> None:
    (one,) = fill(store, [item("a", body="x" * 100_000)])
    store.commit([Swap(ITEM, one, evolve(one, size=1))])
    sent = [sql for sql, *_ in _statements(store) if sql.startswith("UPDATE")]
    assert sent
    assert all("body=" not in sql for sql in sent)
    assert store.get(ITEM, ["a"]) == [evolve(one, size=1)]


@contextmanager
def connected(store: SqlStore) -> Iterator[PostgresSession]:
    """The connection that the store uses."""
    session = store._database._pool.take()  # type: ignore[attr-defined]
    try:
        yield session
    finally:
        store._database._pool.give(session)  # type: ignore[attr-defined]


def _statements(store: SqlStore) -> list[tuple[str]]:
    with connected(store) as session:
        return list(session.execute("SELECT statement FROM pg_prepared_statements"))


def test_time_is_the_servers_and_costs_no_question(store: SqlStore) -> None:
    store.ping()
    before = micros(datetime.now(UTC))
    assert abs(store.now() - before) < 1_000_000
    with psycopg.connect(store.address.url, autocommit=True) as connection:
        others = "pid <> pg_backend_pid() AND datname = current_database()"
        connection.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
    first = store.now()
    assert first <= store.now() < first + 1_000_000


def test_an_injected_clock_wins() -> None:
    clock = ManualClock()
    assert SqlStore("postgresql://nobody@nowhere/none", clock=clock).now() == micros(clock.wall())


def test_a_subscriber_hears_of_another_store_and_not_twice_of_its_own(store: SqlStore) -> None:
    heard = threading.Semaphore(0)
    store.subscribe("topic", heard.release)
    other = SqlStore(store.address.url)
    other.commit([Insert(ITEM, item("a"))], wake="topic")
    assert heard.acquire(timeout=10)
    store.commit([Insert(ITEM, item("b"))], wake="topic")
    other.commit([Insert(ITEM, item("c"))], wake="topic")
    assert heard.acquire(timeout=10)
    assert heard.acquire(timeout=10)
    assert not heard.acquire(timeout=0.2)
    other.close()


def test_others_hear_of_several_changes_in_the_same_round_trip_and_of_those_that_were_lost_too(store: SqlStore) -> None:
    heard = threading.Semaphore(0)
    other = SqlStore(store.address.url)
    other.subscribe("topic", heard.release)
    changes = [Insert(ITEM, item("a")), Insert(PLAIN, Plain("p", 1, None, None))]
    store.commit(changes, wake="topic")
    assert heard.acquire(timeout=10)
    with pytest.raises(Conflict):
        store.commit(changes, wake="topic")
    assert heard.acquire(timeout=10)
    with connected(store) as session:
        assert session.connection.pgconn.pipeline_status == PipelineStatus.OFF
    other.close()


def test_whoever_changes_does_not_wait_until_others_are_told(store: SqlStore) -> None:
    with connected(store) as session:
        wire = session._wire
    changes = [Insert(ITEM, item("a")), Insert(PLAIN, Plain("p", 1, None, None))]
    store.commit(changes, wake="topic")
    assert wire is not None
    assert wire._owes
    assert store.get(ITEM, ["a"]) == [item("a")]
    assert not wire._owes


def test_a_connection_that_is_lost_before_others_were_told_is_left_for_another(store: SqlStore) -> None:
    store.commit([Insert(ITEM, item("a")), Insert(PLAIN, Plain("p", 1, None, None))], wake="topic")
    with psycopg.connect(store.address.url, autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE application_name = 'holdfast' AND datname = current_database()"
        )
    assert store.get(ITEM, ["a"]) == [item("a")]
    store.commit([Insert(ITEM, item("b")), Insert(PLAIN, Plain("q", 1, None, None))], wake="topic")
    assert store.get(PLAIN, ["p", "q"]) == [Plain("p", 1, None, None), Plain("q", 1, None, None)]


def test_others_hear_of_changes_by_a_connection_whose_last_one_was_undone(store: SqlStore) -> None:
    heard = threading.Semaphore(0)
    other = SqlStore(store.address.url)
    other.subscribe("topic", heard.release)
    store.commit([Insert(ITEM, item("a")), Insert(PLAIN, Plain("p", 1, None, None))], wake="topic")
    assert heard.acquire(timeout=10)
    with pytest.raises(Conflict):  # psycopg has the server forget all statements then
        store.commit([Insert(ITEM, item("a")), Insert(PLAIN, Plain("q", 1, None, None))])
    (one,) = store.get(PLAIN, ["p"])
    assert one is not None
    store.commit([Insert(ITEM, item("b")), Delete(PLAIN, one)], wake="topic")  # of a form that is new here
    assert heard.acquire(timeout=10)
    other.close()


def test_several_changes_are_made_in_their_order(store: SqlStore) -> None:
    (one,) = fill(store, [item("a")])
    changes = [Insert(PLAIN, Plain("p", 1, None, None)), Swap(ITEM, one, evolve(one, size=1))]
    with psycopg.connect(store.address.url) as other, ThreadPoolExecutor(1) as pool:
        other.execute("INSERT INTO holdfast_conformance_plain (id, version) VALUES ('p', 1)")
        waits = pool.submit(store.commit, changes)
        _when_blocked(store.address.url, "SELECT pid")
        other.execute("SELECT 1 FROM holdfast_conformance_item FOR UPDATE NOWAIT")  # it has not come that far
        other.rollback()
        waits.result(30)
    assert store.get(ITEM, ["a"]) == [evolve(one, size=1)]


def test_several_changes_of_one_record_are_made_one_after_the_other(store: SqlStore) -> None:
    first = item("a")
    second = evolve(first, size=1)
    store.commit([Insert(ITEM, first), Swap(ITEM, first, second), Insert(PLAIN, Plain("p", 1, None, None))])
    assert store.get(ITEM, ["a"]) == [second]
    store.commit([Delete(ITEM, second), Insert(ITEM, item("a", size=9)), Insert(PLAIN, Plain("a", 1, None, None))])
    assert (store.get(ITEM, ["a"]), store.get(PLAIN, ["a"])) == ([item("a", size=9)], [Plain("a", 1, None, None)])


def test_a_unique_value_goes_from_one_record_to_another_in_one_commit(store: SqlStore) -> None:
    (one,) = fill(store, [item("a", token="k")])
    store.commit([Delete(ITEM, one), Insert(ITEM, item("b", token="k"))])
    (two,) = store.get(ITEM, ["b"])
    assert two is not None
    store.commit([Swap(ITEM, two, evolve(two, token=None)), Insert(ITEM, item("c", token="k"))])
    found = store.get(ITEM, ["b", "c"])
    assert [one and one.token for one in found] == [None, "k"]


def test_connections_come_back_after_each_call(store: SqlStore) -> None:
    for at in range(30):
        fill(store, [item(f"{at}")])
        with pytest.raises(Conflict):
            fill(store, [item(f"{at}")])
    with psycopg.connect(store.address.url) as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holdfast' AND datname = current_database()"
        ).fetchone()
    assert found == (1,)


def test_statements_that_the_server_has_forgotten_are_prepared_anew(store: SqlStore) -> None:
    (one,) = fill(store, [item("a")])
    with connected(store) as session:
        session.execute("DEALLOCATE ALL")
    fill(store, [item("b")])
    store.commit([Swap(ITEM, one, evolve(one, size=1))])
    assert store.get(ITEM, ["a"]) == [evolve(one, size=1)]


def test_several_changes_are_made_where_the_server_has_forgotten_its_statements(store: SqlStore) -> None:
    for number, a in enumerate((item("a"), item("b"))):
        store.commit([Insert(ITEM, a), Insert(PLAIN, Plain(f"{number}", 1, None, None))])
        with connected(store) as session:
            session.execute("DEALLOCATE ALL")
    assert store.get(PLAIN, ["0", "1"]) == [Plain("0", 1, None, None), Plain("1", 1, None, None)]


def test_a_record_that_does_not_fit_into_a_socket_is_sent_all_the_same(store: SqlStore) -> None:
    long = item("a", body="ä" * 8_000_000)
    fill(store, [long])
    assert store.get(ITEM, ["a"]) == [long]
    other, plain = item("b", body="ö" * 8_000_000), Plain("a", 1, None, "x" * 8_000_000)
    store.commit([Insert(ITEM, other), Insert(PLAIN, plain)])
    assert (store.get(ITEM, ["b"]), store.get(PLAIN, ["a"])) == ([other], [plain])


def test_of_several_changes_none_is_made_if_one_cannot_and_the_connection_is_as_before(store: SqlStore) -> None:
    one, gone = fill(store, [item("a"), item("b")])
    store.commit([Delete(ITEM, gone)])
    for lost in (Swap(ITEM, gone, evolve(gone, size=1)), Insert(ITEM, item("a")), Delete(ITEM, gone)):
        with pytest.raises(Conflict):
            store.commit([Swap(ITEM, one, evolve(one, size=7)), lost, Insert(PLAIN, Plain("p", 1, None, None))])
    assert (store.get(ITEM, ["a", "b"]), store.get(PLAIN, ["p"])) == ([one, None], [None])
    store.commit([Swap(ITEM, one, evolve(one, size=7)), Insert(PLAIN, Plain("p", 1, None, None))])
    assert store.get(ITEM, ["a"]) == [evolve(one, size=7)]
    with connected(store) as session:
        assert session.connection.pgconn.pipeline_status == PipelineStatus.OFF


def test_a_connection_that_is_lost_while_several_changes_wait_leaves_them_in_doubt(store: SqlStore) -> None:
    (one,) = fill(store, [item("a")])
    changes = [Swap(ITEM, one, evolve(one, size=1)), Insert(PLAIN, Plain("p", 1, None, None))]
    with psycopg.connect(store.address.url) as other:
        other.execute("SELECT 1 FROM holdfast_conformance_item FOR UPDATE")
        threading.Thread(target=_when_blocked, args=(store.address.url, "SELECT pg_terminate_backend(pid)")).start()
        with pytest.raises(StoreUnavailable, match="is unknown"):
            store.commit(changes)
    assert store.get(ITEM, ["a"]) == [one]
    store.commit(changes)
    assert store.get(PLAIN, ["p"]) == [Plain("p", 1, None, None)]


def test_values_of_other_types_than_their_columns_are_stored_or_refused_as_ever(store: SqlStore) -> None:
    class State(StrEnum):
        NEW = "new"

    fill(store, [item("a", state=State.NEW, size=True)])
    assert store.get(ITEM, ["a"]) == [item("a", size=1)]
    for wrong in (item("b", size=1 << 63), item("b", size="seven"), item("b", body="a\0b")):
        with pytest.raises((ValueError, StoreError)):
            fill(store, [wrong])
    assert store.get(ITEM, ["b"]) == [None]


@pytest.mark.parametrize("more", [[], [Insert(PLAIN, Plain("p", 1, None, None))]], ids=["one", "several"])
def test_what_a_signal_interrupts_does_not_happen_later(store: SqlStore, more: list[Change]) -> None:
    (one,) = fill(store, [item("a")])

    def interrupt(*_: object) -> None:
        raise InterruptedByTest

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with psycopg.connect(store.address.url) as other:
            other.execute("SELECT 1 FROM holdfast_conformance_item FOR UPDATE")
            threading.Thread(target=_signal_when_blocked, args=(store.address.url,)).start()
            with pytest.raises(InterruptedByTest):
                store.commit([Swap(ITEM, one, evolve(one, size=1)), *more])
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert store.get(ITEM, ["a"]) == [one]
    store.commit([Swap(ITEM, one, evolve(one, size=2)), *more])


@pytest.mark.parametrize("moment", ["is_broken", "_measure"])
def test_a_signal_between_two_uses_of_a_connection_leaves_room_for_another(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    only = SqlStore(store.address.url, kinds=[ITEM, PLAIN], connections=1, patience=0.5)
    fill(only, [item("a")])
    database: Any = only._database
    owner: Any = PostgresSession if moment == "is_broken" else type(database)

    def interrupted(*_: object) -> None:
        raise InterruptedByTest

    with monkeypatch.context() as patched:
        patched.setattr(owner, moment, interrupted)
        database._measured = float("-inf")  # the clocks are to be compared again
        with pytest.raises(InterruptedByTest):
            only.get(ITEM, ["a"])
    try:
        assert only.get(ITEM, ["a"]) != [None]
    finally:
        only.close()


class InterruptedByTest(BaseException):
    pass


def _signal_when_blocked(url: str) -> None:
    _when_blocked(url, "SELECT pid")
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)


def _when_blocked(url: str, query: LiteralString) -> None:
    """As soon as a connection waits for a lock, ask this about it."""
    waiting = query + " FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with psycopg.connect(url, autocommit=True) as connection:
        while connection.execute(waiting).fetchone() is None:
            threading.Event().wait(0.01)


def test_an_interrupted_conversation_does_not_go_on(store: SqlStore) -> None:
    fill(store, [item("a")])

    def interrupted(record: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.claim(ITEM, (), interrupted, limit=1)
    assert store.get(ITEM, ["a"]) == [item("a")]


def test_a_database_without_tables_says_how_to_make_them() -> None:
    store = SqlStore(server().fresh_database())
    with pytest.raises(SchemaError) as told:
        store.get(ITEM, ["a"])
    assert str(told.value).endswith(f"run: holdfast db upgrade --url {shlex.quote(store.url)}")
    store.close()


def test_the_advice_to_make_tables_names_no_url_without_its_password() -> None:
    store = SqlStore(server().fresh_database().replace("postgres@", "postgres:s3cret@", 1))
    with pytest.raises(SchemaError) as told:
        store.get(ITEM, ["a"])
    advice = str(told.value).partition("; ")[2]
    assert advice.startswith("run: holdfast db upgrade, with HOLDFAST_URL, --url or --app")
    assert "***" not in advice
    assert "s3cret" not in str(told.value)
    store.close()


def test_a_kind_without_a_table_says_how_to_make_it() -> None:
    store = SqlStore(server().fresh_database(), kinds=[PLAIN])
    store.create_tables()
    with pytest.raises(SchemaError, match="no table holdfast_conformance_item"):
        store.get(ITEM, ["a"])
    store.close()


def test_tables_of_a_newer_holdfast_are_left_alone(store: SqlStore) -> None:
    with psycopg.connect(store.address.url) as connection:
        connection.execute("DELETE FROM holdfast_version")
        connection.execute("INSERT INTO holdfast_version VALUES ('9999')")
    other = SqlStore(store.address.url)
    with pytest.raises(SchemaError, match="newer Holdfast"):
        other.get(ITEM, ["a"])
    other.close()


def test_many_hosts_may_make_the_tables_at_once() -> None:
    url = server().fresh_database()
    stores = [SqlStore(url, kinds=[ITEM, PLAIN]) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(SqlStore.create_tables, stores))
    fill(stores[0], [item("a")])
    for store in stores:
        assert store.tally(ITEM) == {(): 1}
        store.close()


def test_an_unreachable_server_is_told_in_one_line_without_the_password() -> None:
    store = SqlStore("postgresql://someone:secret@127.0.0.1:1/db")
    for verb in (store.ping, store.now, lambda: store.get(ITEM, ["a"])):
        with pytest.raises(StoreUnavailable, match="is the server running") as caught:
            verb()
        assert "\n" not in str(caught.value)
        assert "secret" not in str(caught.value)
    assert store.url == "postgresql://someone:***@127.0.0.1:1/db"


def test_a_value_that_no_column_holds_is_a_value_error(store: SqlStore) -> None:
    for odd in (item("a")._replace(size=1 << 70), item("a")._replace(state=None), item("a")._replace(body="\0")):
        with pytest.raises(ValueError, match="does not fit"):
            store.commit([Insert(ITEM, odd)])
    assert store.get(ITEM, ["a"]) == [None]


@pytest.mark.parametrize("crash", [False, True], ids=["restart", "crash"])
def test_a_store_outlives_a_restart_of_the_server(mortal: Server, crash: bool) -> None:
    store = SqlStore(mortal.fresh_database(), kinds=[ITEM])
    store.create_tables()
    fill(store, [item("a")])
    heard = threading.Event()
    store.subscribe("topic", heard.set)
    mortal.restart(crash=crash)
    # Nobody has asked yet, so both the pool's and the listener's connections are dead without knowing it.
    assert store.get(ITEM, ["a"]) == [item("a")]
    fill(store, [item("b")])
    assert store.tally(ITEM) == {(): 2}
    assert heard.wait(10)
    heard.clear()
    other = SqlStore(store.address.url)
    other.commit([Insert(ITEM, item("c"))], wake="topic")
    assert heard.wait(10)
    other.close()
    store.close()


def test_while_the_server_is_away_every_verb_says_so_and_then_works_again(mortal: Server) -> None:
    store = SqlStore(mortal.fresh_database(), kinds=[ITEM])
    store.create_tables()
    fill(store, [item("a")])
    mortal.stop()
    try:
        for verb in (
            lambda: store.get(ITEM, ["a"]),
            lambda: store.page(ITEM),
            lambda: fill(store, [item("b")]),
            lambda: store.claim(ITEM, (), lambda one: None, limit=1),
            lambda: store.sweep(ITEM, ()),
            store.ping,
        ):
            with pytest.raises(StoreUnavailable):
                verb()
    finally:
        mortal.start()
    fill(store, [item("b")])
    assert store.tally(ITEM) == {(): 2}
    store.close()


def test_a_database_that_takes_no_changes_for_a_while_is_written_to_again(store: SqlStore) -> None:
    """What the server says of new connections holds for them until they are closed."""
    with psycopg.connect(store.address.url, autocommit=True) as operator:
        name = operator.info.dbname
        operator.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        store.close()
        with pytest.raises(StoreUnavailable, match="takes no changes now"):
            store.commit([Insert(ITEM, item("a"))])
        assert store.get(ITEM, ["a"]) == [None]
        operator.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
        with pytest.raises(StoreUnavailable):
            store.commit([Insert(ITEM, item("a"))])  # by the connection that has read just now
    store.commit([Insert(ITEM, item("b"))])
    assert store.get(ITEM, ["a", "b"]) == [None, item("b")]


def test_nothing_that_was_acknowledged_is_lost_when_the_server_dies_under_load(mortal: Server) -> None:
    store = SqlStore(mortal.fresh_database(), kinds=[ITEM])
    store.create_tables()
    fill(store, [item("counter")])
    stop = threading.Event()
    made: list[str] = []

    def write(name: int) -> None:
        at = 0
        while not stop.is_set():
            at += 1
            try:
                fill(store, [item(f"{name}-{at}")])
                made.append(f"{name}-{at}")
                change(store, ITEM, "counter", lambda found: found and evolve(found, size=found.size + 1))
            except (StoreUnavailable, Conflict):
                continue

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    while len(made) < 100:
        stop.wait(0.005)
    mortal.restart(crash=True)
    enough = len(made) + 100
    while len(made) < enough:
        stop.wait(0.005)
    stop.set()
    for thread in threads:
        thread.join()
    assert None not in store.get(ITEM, made)
    assert store.tally(ITEM) == {(): len(store.page(ITEM, limit=1_000_000))}
    store.close()


def test_a_store_is_closed_while_its_listener_is_busy(store: SqlStore) -> None:
    others = set(threading.enumerate())
    for at in range(30):
        store.subscribe("topic", lambda: None)
        store.commit([Insert(ITEM, item(f"{at}"))], wake="topic")
        store.close()
    left = set(threading.enumerate()) - others
    assert not [thread for thread in left if thread.name == "holdfast-postgres-listener"]


def test_a_listener_may_close_its_store(store: SqlStore) -> None:
    closed = threading.Event()

    def close() -> None:
        store.close()
        closed.set()

    store.subscribe("topic", close)
    other = SqlStore(store.address.url)
    other.commit([Insert(ITEM, item("a"))], wake="topic")
    assert closed.wait(10)
    other.close()
