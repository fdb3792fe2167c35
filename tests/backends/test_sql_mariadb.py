"""What is special to MariaDB."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.backends.sql.store import SqlStore
from holdfast.errors import StoreUnavailable
from holdfast.store.port import Insert, Swap
from holdfast.store.record import evolve
from holdfast.testing.store.kinds import ITEM, fill, item
from tests.services import mariadb

pytestmark = pytest.mark.skipif(not mariadb.AVAILABLE, reason=mariadb.REASON)


@pytest.fixture
def store() -> Iterator[SqlStore]:
    made = SqlStore(mariadb.server().fresh_database(), kinds=[ITEM])
    made.create_tables()
    yield made
    made.close()


def test_counters_are_folded_and_right(store: SqlStore) -> None:
    def work(at: int) -> None:
        (one,) = fill(store, [item(f"{at}", lane=f"{at % 3}")])
        store.commit([Swap(ITEM, one, evolve(one, state="done"))])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(200)))
    assert store.tally(ITEM, ("state",)) == {("done",): 200}  # and folds, since it has read so many rows
    assert store.tally(ITEM, ("lane",)) == {("0",): 67, ("1",): 67, ("2",): 66}
    rows = store._database._with(  # type: ignore[attr-defined]
        lambda session: session.execute("SELECT count(*) FROM holdfast_conformance_item_tally"), repeat=True
    )
    assert rows == [(3,)]


def test_a_subscriber_hears_of_another_store(store: SqlStore) -> None:
    heard = threading.Event()
    store.subscribe("topic", heard.set)
    other = SqlStore(store.address.url)
    other.commit([Insert(ITEM, item("a"))], wake="topic")
    assert heard.wait(10)
    other.close()


def test_a_store_outlives_a_restart_of_the_server() -> None:
    server = mariadb.private_server()
    store = SqlStore(server.fresh_database(), kinds=[ITEM])
    store.create_tables()
    fill(store, [item("a")])
    server.stop()
    with pytest.raises(StoreUnavailable):
        store.get(ITEM, ["a"])
    server.start()
    fill(store, [item("b")])
    assert store.tally(ITEM) == {(): 2}
    store.close()


def test_an_unreachable_server_is_told_in_one_line_without_the_password() -> None:
    with pytest.raises(StoreUnavailable, match="is the server running") as caught:
        SqlStore("mysql://someone:secret@127.0.0.1:1/db").ping()
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
