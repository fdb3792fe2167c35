"""Group commit: who leads, what is shared, and that nobody pays for another's failure."""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.backends.sql import group
from holdfast.backends.sql.group import GroupWriter, Interrupted


class Notebook:
    """A table of numbers in a file, the writer under test, and every statement that it ran."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.statements: list[str] = []
        self.writer = GroupWriter(self._connect)
        self.writer.submit(lambda connection: connection.execute("CREATE TABLE t (n INTEGER PRIMARY KEY)"), single=True)
        self.statements.clear()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.set_trace_callback(self.statements.append)
        return connection

    def numbers(self) -> list[int]:
        with sqlite3.connect(self.path) as reader:
            return [number for (number,) in reader.execute("SELECT n FROM t ORDER BY n")]

    def count(self, statement: str) -> int:
        return sum(one.startswith(statement) for one in self.statements)


@pytest.fixture
def notebook(tmp_path: Path) -> Iterator[Notebook]:
    made = Notebook(tmp_path / "notes.db")
    yield made
    made.writer.close()


def insert(*numbers: int) -> Callable[[sqlite3.Connection], int]:
    def work(connection: sqlite3.Connection) -> int:
        for number in numbers:
            connection.execute("INSERT INTO t VALUES (?)", (number,))
        return threading.get_ident()

    return work


def wait_for_queue(notebook: Notebook, size: int) -> None:
    """Until so many are queued, which nobody announces."""
    while len(notebook.writer._queue) < size:
        threading.Event().wait(0.001)


def queue_behind(notebook: Notebook, works: list[Callable[[sqlite3.Connection], int]]) -> list[object]:
    """Let these works queue while another leads; what became of each."""
    results: list[object] = [None] * len(works)
    leading, go = threading.Event(), threading.Event()

    def lead(connection: sqlite3.Connection) -> None:
        leading.set()
        go.wait()

    def follow(at: int) -> None:
        try:
            results[at] = notebook.writer.submit(works[at], single=False)
        except Exception as error:
            results[at] = error

    def lead_all() -> None:
        try:
            notebook.writer.submit(lead, single=False)
        except KeyboardInterrupt:
            pass

    leader = threading.Thread(target=lead_all)
    leader.start()
    leading.wait()
    followers = [threading.Thread(target=follow, args=(at,)) for at in range(len(works))]
    for at, thread in enumerate(followers):
        thread.start()
        wait_for_queue(notebook, at + 1)
    go.set()
    for thread in (leader, *followers):
        thread.join()
    return results


def test_a_lone_thread_does_its_work_itself(notebook: Notebook) -> None:
    assert notebook.writer.submit(insert(1, 2), single=False) == threading.get_ident()
    assert notebook.numbers() == [1, 2]
    assert [notebook.count(word) for word in ("BEGIN", "COMMIT", "SAVEPOINT")] == [1, 1, 0]


def test_a_single_statement_needs_no_transaction_around_it(notebook: Notebook) -> None:
    notebook.writer.submit(insert(1), single=True)
    assert notebook.statements == ["INSERT INTO t VALUES (1)"]


def test_those_who_queued_share_one_commit(notebook: Notebook) -> None:
    queue_behind(notebook, [insert(number) for number in range(20)])
    assert notebook.numbers() == list(range(20))
    assert notebook.count("COMMIT") == 1


def test_a_unit_that_fails_is_undone_alone(notebook: Notebook) -> None:
    results = queue_behind(notebook, [insert(1), insert(2, 3, 1), insert(4)])
    assert isinstance(results[1], sqlite3.IntegrityError)
    assert notebook.numbers() == [1, 4]
    assert notebook.count("COMMIT") == 1


def test_a_first_unit_that_fails_leaves_the_others_their_turn(notebook: Notebook) -> None:
    notebook.writer.submit(insert(1), single=True)
    with pytest.raises(sqlite3.IntegrityError):
        notebook.writer.submit(insert(2, 1), single=False)
    notebook.writer.submit(insert(3), single=False)
    assert notebook.numbers() == [1, 3]


def test_those_who_wait_for_an_interrupted_leader_get_their_turn(notebook: Notebook) -> None:
    results: list[int] = []

    def follow() -> None:
        results.append(notebook.writer.submit(insert(1), single=False))

    follower = threading.Thread(target=follow)

    def interrupted(connection: sqlite3.Connection) -> None:
        insert(2)(connection)
        follower.start()
        wait_for_queue(notebook, 1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        notebook.writer.submit(interrupted, single=False)
    follower.join()
    assert results
    assert notebook.numbers() == [1]


def test_those_whose_transaction_was_interrupted_are_told(notebook: Notebook) -> None:
    def interrupted(connection: sqlite3.Connection) -> int:
        raise KeyboardInterrupt

    results = queue_behind(notebook, [insert(1), interrupted, insert(2)])
    assert isinstance(results[0], Interrupted)
    assert notebook.numbers() == [2]


def test_one_who_is_interrupted_while_he_waits_takes_nobody_with_him(notebook: Notebook) -> None:
    class Left(deque[Any]):
        """Who was seen in it first has just taken his own out."""

        looks = 0

        def __bool__(self) -> bool:
            self.looks += 1
            return self.looks == 1 or len(self) > 0

    notebook.writer._queue = Left()
    assert notebook.writer.submit(insert(1), single=False) == threading.get_ident()
    assert notebook.numbers() == [1]


def test_many_threads_lose_nothing(notebook: Notebook) -> None:
    def write(first: int) -> None:
        for number in range(first, first + 50):
            notebook.writer.submit(insert(number), single=number % 2 == 0)

    threads = [threading.Thread(target=write, args=(100 * at,)) for at in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(notebook.numbers()) == 600
    assert notebook.count("COMMIT") < 600


def test_of_two_forks_at_once_the_one_that_waits_in_vain_stops_no_writing(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group, "PAUSED_WITHIN_S", 0.0)
    for _ in range(2):
        notebook.writer._pause()
    for _ in range(2):
        notebook.writer._go_on()
    if is_held := notebook.writer._gate.locked():
        notebook.writer._gate.release()  # the fixture closes it
    assert not is_held
