"""What is special to SQLite: one file and many processes, one memory and many threads, and files that are none."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

from holdfast.backends.sql.dialect import BLOCK
from holdfast.backends.sql.sqlite import SqliteDatabase
from holdfast.backends.sql.store import SqlStore
from holdfast.errors import Conflict, InvalidValue, SchemaError, StoreUnavailable
from holdfast.store.change import change
from holdfast.store.lease import LEASE, LeaseRecord
from holdfast.store.port import Insert, Swap
from holdfast.store.record import Kind, evolve
from holdfast.testing.store.kinds import ITEM, fill, item

NOBODY = 65534
OTHER_PROCESS = """
import sys
from holdfast.backends.sql.store import SqlStore
from holdfast.store.change import change
from holdfast.store.port import Insert
from holdfast.store.record import evolve
from holdfast.testing.store.kinds import ITEM, item

store = SqlStore(sys.argv[1])
for at in range(int(sys.argv[3])):
    store.commit([Insert(ITEM, item(f"{sys.argv[2]}-{at}"))], wake="topic")
    change(store, ITEM, "shared", lambda found: item("shared") if found is None else evolve(found, size=found.size + 1))
"""


class Odd(NamedTuple):
    """Its fields are called as words that databases keep for themselves."""

    id: str
    version: int
    due_at: int | None
    order: str
    given: str | None
    at: int


ODD: Kind[Odd] = Kind("odd", Odd)


def url_of(path: Path) -> str:
    return f"sqlite:///{path / 'store.db'}"


def other_process(url: str, name: str, number: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", OTHER_PROCESS, url, name, str(number)])


def test_construction_touches_no_file(tmp_path: Path) -> None:
    SqlStore(url_of(tmp_path))
    assert not list(tmp_path.iterdir())


def test_the_log_is_copied_into_the_file_before_it_gets_long(tmp_path: Path) -> None:
    store = SqlStore(url_of(tmp_path), durable=False)
    sizes = []
    for at in range(12):
        fill(store, [item(f"{at}-{n}", body="x" * 4000) for n in range(1000)])
        sizes.append((tmp_path / "store.db-wal").stat().st_size)
    assert 15_000_000 < max(sizes) < 22_000_000  # 4000 pages, and what a single commit adds
    assert (tmp_path / "store.db").stat().st_size > 20_000_000
    store.close()


def test_several_processes_make_and_use_one_new_file(tmp_path: Path) -> None:
    processes = [other_process(url_of(tmp_path), f"p{at}", 20) for at in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    store = SqlStore(url_of(tmp_path))
    assert store.tally(ITEM) == {(): 81}
    shared = store.get(ITEM, ["shared"])[0]
    assert shared is not None
    assert (shared.size, shared.version) == (79, 80)
    store.close()


def test_a_subscriber_hears_of_another_process(tmp_path: Path) -> None:
    store = SqlStore(url_of(tmp_path))
    heard, other = threading.Event(), threading.Event()
    store.subscribe("topic", heard.set)
    store.subscribe("another topic", other.set)
    assert other_process(url_of(tmp_path), "p", 1).wait() == 0
    assert heard.wait(10)
    assert not other.is_set()
    store.close()


def test_a_forked_child_opens_connections_of_its_own(tmp_path: Path) -> None:
    store = SqlStore(url_of(tmp_path))
    fill(store, [item("parent")])
    child = os.fork()
    if child == 0:
        try:
            fill(store, [item("child")])
            store.close()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    fill(store, [item("parent again")])
    assert store.tally(ITEM) == {(): 3}
    store.close()


def test_a_fork_while_another_thread_writes_does_not_hang_the_child(tmp_path: Path) -> None:
    store = SqlStore(url_of(tmp_path))
    fill(store, [item("first")])
    inside, go = threading.Event(), threading.Event()

    def decide(record: object) -> None:
        inside.set()
        go.wait()

    writer = threading.Thread(target=store.claim, args=(ITEM, (), decide), kwargs={"limit": 1})
    writer.start()
    inside.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if store.get(ITEM, ["first"])[0] is not None else 1)
    assert os.waitpid(child, 0)[1] == 0
    go.set()
    writer.join()
    store.close()


def test_a_child_that_is_forked_while_another_thread_writes_can_write(tmp_path: Path) -> None:
    store = SqlStore(url_of(tmp_path), patience=1.0)
    fill(store, [item("first")])
    inside, go = threading.Event(), threading.Event()

    def decide(record: object) -> None:
        inside.set()
        go.wait()

    writer = threading.Thread(target=store.claim, args=(ITEM, (), decide), kwargs={"limit": 1})
    writer.start()
    inside.wait()
    threading.Timer(0.05, go.set).start()
    child = os.fork()
    if child == 0:
        try:
            fill(store, [item("child")])
            os._exit(0)
        finally:
            os._exit(1)
    go.set()
    writer.join()
    assert os.waitpid(child, 0)[1] == 0
    fill(store, [item("parent")])
    assert store.tally(ITEM) == {(): 3}
    store.close()


def test_a_memory_is_shared_by_all_threads() -> None:
    store = SqlStore("sqlite:///:memory:")

    def work(at: int) -> None:
        store.commit([Insert(ITEM, item(f"{at}", token=f"{at % 10}" if at < 10 else None))])
        change(
            store, LEASE, "one", lambda found: LeaseRecord("one", 1, None, None, 1) if found is None else evolve(found)
        )

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(100)))
    assert store.tally(ITEM) == {(): 100}
    lease = store.get(LEASE, ["one"])[0]
    assert lease is not None
    assert lease.version == 100


def test_a_closed_store_opens_again(tmp_path: Path) -> None:
    store = SqlStore(url_of(tmp_path))
    fill(store, [item("a")])
    store.close()
    assert store.get(ITEM, ["a"]) == [item("a")]
    store.close()


@pytest.mark.parametrize(("durable", "synchronous"), [(True, 2), (False, 1)])
def test_only_a_durable_store_waits_for_the_disk(tmp_path: Path, durable: bool, synchronous: int) -> None:
    store = SqlStore(url_of(tmp_path), durable=durable)
    fill(store, [item("a")])
    database = store._database
    found = database._writer.submit(  # type: ignore[attr-defined]
        lambda connection: connection.execute("PRAGMA synchronous").fetchone(), single=True
    )
    assert found == (synchronous,)
    with sqlite3.connect(tmp_path / "store.db") as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


def test_a_folder_that_is_not_there_is_told_in_one_line(tmp_path: Path) -> None:
    store = SqlStore(url_of(tmp_path / "nowhere"))
    with pytest.raises(StoreUnavailable, match=r"nowhere/store.db: .* does the folder exist") as caught:
        store.get(ITEM, ["a"])
    assert "\n" not in str(caught.value)


def test_who_could_not_subscribe_is_told_nothing_later(tmp_path: Path) -> None:
    folder, told = tmp_path / "later", list[str]()
    store = SqlStore(f"sqlite:///{folder}/h.db", kinds=[ITEM])
    with pytest.raises(StoreUnavailable):
        store.subscribe("topic", lambda: told.append("refused"))
    folder.mkdir()
    store.create_tables()
    store.subscribe("topic", lambda: told.append("taken"))
    store.commit([], wake="topic")
    store.close()
    assert told == ["taken"]


def test_a_file_that_is_no_database_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_text("a diary, and nobody's business\n" * 100)
    with pytest.raises(StoreUnavailable, match="something else"):
        SqlStore(url_of(tmp_path)).ping()


def test_a_file_that_others_keep_busy_is_unavailable_and_usable_later(tmp_path: Path) -> None:
    store = SqlStore(url_of(tmp_path), patience=0.05)
    fill(store, [item("a")])
    blocker = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="busy"):
        fill(store, [item("b")])
    assert store.get(ITEM, ["a"]) == [item("a")]
    blocker.execute("ROLLBACK")
    blocker.close()
    fill(store, [item("b")])
    store.close()


@contextmanager
def an_ordinary_user() -> Iterator[None]:
    """Root may write everywhere."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


def test_a_file_that_may_be_written_again_is_written_by_whoever_might_only_read_it() -> None:
    with TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        store = SqlStore(url_of(Path(folder)))
        store.get(ITEM, ["a"])
        store.close()
        file = Path(folder) / "store.db"
        file.chmod(0o444)
        with an_ordinary_user(), pytest.raises(StoreUnavailable, match="this user may not write there"):
            store.commit([Insert(ITEM, item("a"))])
        for one in Path(folder).iterdir():  # its log was made with the file's own mode
            one.chmod(0o666)
        with an_ordinary_user():
            store.commit([Insert(ITEM, item("b"))])
        assert store.get(ITEM, ["a", "b"]) == [None, item("b")]
        store.close()


def test_a_file_of_a_newer_holdfast_is_left_alone(tmp_path: Path) -> None:
    store = SqlStore(url_of(tmp_path))
    fill(store, [item("a")])
    store.close()
    with sqlite3.connect(tmp_path / "store.db") as connection:
        connection.execute("DELETE FROM holdfast_version")
        connection.execute("INSERT INTO holdfast_version VALUES ('9999')")
    with pytest.raises(SchemaError, match=r"newer Holdfast.*upgrade this program"):
        store.get(ITEM, ["a"])


def test_a_record_that_does_not_fit_its_kind_is_a_value_error(tmp_path: Path) -> None:
    store = SqlStore(url_of(tmp_path))
    with pytest.raises(ValueError, match="does not fit its kind"):
        store.commit([Insert(ITEM, item("a")._replace(state=None))])
    assert store.get(ITEM, ["a"]) == [None]
    store.close()


def test_a_record_that_does_not_fit_its_kind_is_a_value_error_among_many_too(tmp_path: Path) -> None:
    store = SqlStore(url_of(tmp_path))
    records = [item(f"{at:02}") for at in range(40)]
    with pytest.raises(InvalidValue, match="does not fit its kind"):
        fill(store, [*records, item("40")._replace(body=None)])
    with pytest.raises(InvalidValue, match="does not fit its kind"):
        fill(store, [*records, item("40", size=2**70)])
    assert store.page(ITEM) == []
    store.close()


def test_many_records_are_written_in_few_statements(tmp_path: Path) -> None:
    store = SqlStore(url_of(tmp_path))
    fill(store, [item("first")])
    told: list[str] = []
    database = store._database
    assert isinstance(database, SqliteDatabase)
    database._writer._open().set_trace_callback(told.append)
    records = fill(store, [item(f"{at:03}", size=at) for at in range(200)])
    store.commit([Swap(ITEM, one, evolve(one, rank=one.size)) for one in records])
    # With its values each is another one; what a trigger does is told as the statement that it is for.
    written = {sql for sql in told if sql.startswith(("INSERT", "UPDATE"))}
    assert len(written) == 200 // BLOCK * 2
    store.close()


def test_fields_may_be_called_as_databases_call_things(tmp_path: Path) -> None:
    store = SqlStore(url_of(tmp_path))
    records = [Odd(f"i{at:04}", 1, None, f"order {at}", "given" if at % 2 else None, at) for at in range(60)]
    store.commit([Insert(ODD, one) for one in records])
    new = [evolve(one, order="same", given=f"{one.at}") for one in records]
    store.commit([Swap(ODD, *pair) for pair in zip(records, new, strict=True)])
    assert store.page(ODD, limit=100) == new
    store.close()


def test_an_sqlite_that_cannot_take_many_rows_gets_them_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 31, 1))
    store = SqlStore(url_of(tmp_path))
    records = fill(store, [item(f"{at:02}", size=at) for at in range(60)])
    new = [evolve(one, rank=one.size) for one in records]
    store.commit([Swap(ITEM, *pair) for pair in zip(records, new, strict=True)])
    assert store.page(ITEM) == new
    store.close()


def test_a_conflict_among_many_writers_hurts_only_the_loser(tmp_path: Path) -> None:
    store = SqlStore(url_of(tmp_path))
    (first,) = fill(store, [item("shared")])

    def work(at: int) -> bool:
        store.commit([Insert(ITEM, item(f"{at}"))])
        try:
            store.commit([Swap(ITEM, first, evolve(first, size=at)), Insert(ITEM, item(f"{at}-too"))])
        except Conflict as error:
            return error.lost == (0,)
        return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(40))) == 39
    assert store.tally(ITEM) == {(): 42}
    store.close()
