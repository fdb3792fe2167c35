"""SQLite: readers side by side, one writer with group commit, and as many processes on a file as you like."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import sqlalchemy as sa

from holdfast.backends.sql.database import Link, Lost, Row, Step, T, Taken
from holdfast.backends.sql.ddl import tables_ddl
from holdfast.backends.sql.dialect import BLOCK, Dialect, Sqlite
from holdfast.backends.sql.glance import looking
from holdfast.backends.sql.group import GroupWriter, Interrupted
from holdfast.backends.sql.plans import Plans, Write
from holdfast.backends.sql.pool import Pool
from holdfast.backends.sql.revisions import bring_up
from holdfast.backends.sql.schema import VERSION_TABLE, WAKE_TABLE
from holdfast.backends.sql.statement import Statement
from holdfast.backends.sql.topics import Topics
from holdfast.backends.sql.url import Address
from holdfast.backends.sql.watch import Watcher
from holdfast.errors import InvalidValue, SchemaError, StoreError, StoreUnavailable

MEMORY: Final = ":memory:"
POLL_S: Final = 0.1
BRIEFLY_S: Final = 0.5
# How long the log gets before a commit copies it into the file and waits twice for the disk. After 4000 pages that is
# half the work that it is after SQLite's 1000 (2 instead of 4 µs for a step of a workflow), as most have changed again
# and again; from 4063 on, a page would be looked for in two parts of the log's index. The price is a log of 16 MB, and
# 9 ms to read it when the file is opened after a crash; it was 2.
_LOG_PAGES: Final = 4000
_BLOCKS_FROM: Final = (3, 33)  # takes a thousand parameters, and updates from given rows
_PLAIN_CODE: Final = 0xFF  # of an error, without what SQLite says besides
_TAKEN: Final = (sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY)
_WAKE: Final = f"INSERT INTO {WAKE_TABLE} (topic, n) VALUES (:p0, 1) ON CONFLICT (topic) DO UPDATE SET n = n + 1"


class SqliteLink:
    """A transaction on a connection of ours, or of the caller's."""

    holds = True  # whoever writes is alone

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, statement: Statement, values: Sequence[Any]) -> list[Row]:
        return self._connection.execute(statement.sql, statement.arrange(values)).fetchall()

    def count(self, statement: Statement, values: Sequence[Any]) -> int:
        try:
            return self._connection.execute(statement.sql, statement.arrange(values)).rowcount
        except sqlite3.IntegrityError as error:
            raise _integrity(error) from error

    def make(self, steps: Sequence[Step]) -> set[str]:
        for write, rows in steps:
            _make(self._connection, write, rows)
        return set()

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        self._connection.execute("SAVEPOINT step")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK TO step")
            self._connection.execute("RELEASE step")
            raise
        self._connection.execute("RELEASE step")


class SqliteDatabase:
    """A file, or for `:memory:` a single connection that all threads share."""

    def __init__(self, address: Address, topics: Topics, *, durable: bool, connections: int, patience: float) -> None:
        self.dialect: Dialect = Sqlite()
        self._url = address.shown
        self._path = address.path
        self._topics = topics
        self._durable = durable
        self._patience = patience
        self._waking = Statement(sa.text(_WAKE), self.dialect)
        self._writer = GroupWriter(self._connect_writer)
        self._readers = None if self._path == MEMORY else Pool(self._connect_reader, connections, patience)
        self._opening = threading.Lock()
        self._process = os.getpid()
        self._is_open = False
        self._watcher: Watcher | None = None

    def prepare(self, plans: Plans, *, joining: bool = False) -> None:
        patience = BRIEFLY_S if joining else self._patience
        try:
            self._open_file(patience)
            if not self.query(_named(self.dialect), (plans.tables.rows.name,)):
                self._create([plans], patience)
        except StoreUnavailable as error:
            if joining and "locked" in str(error):
                story = "the tables cannot be made while your own transaction is writing"
                raise SchemaError(f"{self._url}: {story}; use the store once before it") from error
            raise

    def create(self, plans: Sequence[Plans]) -> None:
        self._open_file(self._patience)
        self._create(plans, self._patience)

    def query(self, statement: Statement, values: Sequence[Any]) -> list[Row]:
        sql, given = statement.sql, statement.arrange(values)
        if self._readers is None:
            return self._submit(lambda connection: connection.execute(sql, given).fetchall(), single=True)
        if not self._is_open:
            self._open_file(self._patience)
        try:
            reader = self._readers.take()
            try:
                return reader.execute(sql, given).fetchall()
            finally:
                self._readers.give(reader)
        except (sqlite3.Error, TimeoutError) as error:
            raise self._failure(error) from error

    def change(self, statement: Statement, values: Sequence[Any]) -> int:
        return self._submit(lambda connection: SqliteLink(connection).count(statement, values), single=True)

    def run(self, steps: Sequence[Step], wake: str | None) -> None:
        def work(connection: sqlite3.Connection) -> None:
            for write, rows in steps:
                try:
                    made = _make(connection, write, rows)
                except Taken as error:
                    raise Lost from error
                if made != len(rows):
                    raise Lost
            if wake is not None:
                self._wake(connection, wake)

        self._submit(work, single=wake is None and len(steps) == 1 and len(steps[0].rows) == 1)

    def transact(self, work: Callable[[Link], T], wake: str | None = None) -> T:
        def unit(connection: sqlite3.Connection) -> T:
            result = work(SqliteLink(connection))
            if wake is not None:
                self._wake(connection, wake)
            return result

        return self._submit(unit, single=False)

    def claim(self, work: Callable[[Link], T]) -> T:
        return self.transact(work)

    def note_changes(self, plans: Plans, number: int) -> None:
        """Its counters are always folded."""

    def tidy(self, plans: Plans) -> None:
        """As above."""

    def announce(self, link: Link, topic: str) -> None:
        link.count(self._waking, (topic,))

    def now(self) -> int:
        return time.time_ns() // 1000

    def watch(self) -> None:
        if self._path == MEMORY:
            self._topics.is_prompt = True  # there is no other process
            return
        if self._watcher is not None and self._watcher.is_alive():
            return
        self._open_file(self._patience)
        try:
            reader = self._connect_reader()
        except sqlite3.Error as error:
            raise self._failure(error) from error
        self._watcher = Watcher(looking(reader, self._path), self._topics, POLL_S, reader.close)
        self._watcher.start()

    def ping(self) -> None:
        self._open_file(self._patience)
        if self._readers is not None:
            # A connection of its own, since an open one would not notice that the file is gone.
            try:
                reader = self._connect_reader()
                reader.execute(f"SELECT 1 FROM {VERSION_TABLE}").fetchall()
                reader.close()
            except sqlite3.Error as error:
                raise self._failure(error) from error

    def close(self) -> None:
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher = None
        if self._readers is not None:
            self._readers.close()
            self._writer.close()
            self._is_open = False

    def __del__(self) -> None:
        # A store may just be forgotten, and one in memory is never closed. A forked child's is its parent's.
        if self._process == os.getpid():
            self.close()
            self._writer.close()

    def _submit(self, work: Callable[[sqlite3.Connection], T], *, single: bool) -> T:
        if not self._is_open:
            self._open_file(self._patience)
        try:
            return self._writer.submit(work, single=single)
        except (sqlite3.Error, Interrupted) as error:
            raise self._unwritten(error) from error
        except OverflowError as error:
            raise InvalidValue(f"{error}; the record does not fit its kind") from error

    def _wake(self, connection: sqlite3.Connection, topic: str) -> None:
        # Counted before the commit: then a watcher calls once too often at worst, and not once too seldom.
        connection.execute(self._waking.sql, (topic,))
        self._topics.count_own(topic)

    def _open_file(self, patience: float) -> None:
        """Make the file what this program needs; the first of several processes does it, the others see it done."""
        if self._is_open:
            return

        with self._opening:
            if not self._is_open:
                self._alone(lambda connection: bring_up(connection, self._url), patience)
                self._is_open = True

    def _create(self, plans: Sequence[Plans], patience: float) -> None:
        def work(connection: sqlite3.Connection) -> None:
            with _transaction(connection):
                there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
                for one in plans:
                    if one.tables.rows.name not in there:
                        for statement in tables_ddl(one.kind, one.dialect):
                            connection.execute(statement)

        self._alone(work, patience)

    def _alone(self, work: Callable[[sqlite3.Connection], None], patience: float) -> None:
        def patiently(connection: sqlite3.Connection) -> None:
            with _patient(connection, patience, self._patience), _roomy(connection):
                work(connection)

        try:
            self._writer.alone(patiently)
        except sqlite3.Error as error:
            raise self._unwritten(error) from error

    def _connect_writer(self) -> sqlite3.Connection:
        connection = self._connect()
        if self._path != MEMORY:
            _use_wal(connection, self._patience)
        connection.execute(f"PRAGMA synchronous={'FULL' if self._durable else 'NORMAL'}")
        connection.execute(f"PRAGMA wal_autocheckpoint={_LOG_PAGES}")
        connection.execute("PRAGMA journal_size_limit=67108864")
        # What undoes a statement, or a unit of a shared commit, is kept in memory, and so is what is sorted here. For a
        # row that is counted by a trigger that is all pages that it changes; where those are more than 64 KB, as many
        # indexes make them, it would be a file: 20 µs for a row.
        connection.execute("PRAGMA temp_store=MEMORY")
        return connection

    def _connect_reader(self) -> sqlite3.Connection:
        connection = self._connect()
        connection.execute("PRAGMA query_only=1")
        return connection

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(
            self._path,
            timeout=self._patience,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=512,
        )

    def _unwritten(self, error: sqlite3.Error | Interrupted) -> StoreError:
        if getattr(error, "sqlite_errorcode", 0) & _PLAIN_CODE == sqlite3.SQLITE_READONLY:
            self._writer.close()  # what could only be read when it was opened can only be read until it is closed
        return self._failure(error)

    def _failure(self, error: BaseException) -> StoreError:
        text = str(error)
        for words, advice in _ADVICE.items():
            if words in text:
                return StoreUnavailable(f"{self._url}: {text}; {advice}")
        return StoreError(f"{self._url}: {text}")


_ADVICE: Final = {
    "locked": "another process keeps it busy, or a transaction of this one that is still open",
    "connections are in use": "give the store more connections=, or fewer threads",
    "unable to open": "does the folder exist, and may this user write there?",
    "readonly": "this user may not write there",
    "not a database": "the file is something else; give another path",
    "malformed": "the file is damaged; restore it from a backup",
    "full": "free some space",
    "disk I/O": "look at the disk",
    "interrupted": "try again",
}


def _named(dialect: Dialect) -> Statement:
    return Statement(sa.text("SELECT 1 FROM sqlite_master WHERE name = :p0"), dialect)


def _make(connection: sqlite3.Connection, write: Write, rows: list[Any]) -> int:
    """How many of the rows were there, or are now."""
    one, made = write.one, 0
    try:
        if len(rows) == 1:
            return connection.execute(one.sql, one.arrange(rows[0])).rowcount
        if len(rows) >= BLOCK and write.has_many and sqlite3.sqlite_version_info >= _BLOCKS_FROM:
            whole = len(rows) - len(rows) % BLOCK
            many, blocks = write.many(rows[:whole])
            made, rows = connection.executemany(many.sql, blocks).rowcount, rows[whole:]
        return made + connection.executemany(one.sql, one.arranged(rows)).rowcount if rows else made
    except sqlite3.IntegrityError as error:
        raise _integrity(error) from error


def _integrity(error: sqlite3.IntegrityError) -> Exception:
    if error.sqlite_errorcode in _TAKEN:
        return Taken(str(error))
    return InvalidValue(f"{error}; the record does not fit its kind")


@contextmanager
def _patient(connection: sqlite3.Connection, seconds: float, usual: float) -> Iterator[None]:
    """Wait so long for the lock that another process or connection holds."""
    connection.execute(f"PRAGMA busy_timeout={round(seconds * 1000)}")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA busy_timeout={round(usual * 1000)}")


@contextmanager
def _roomy(connection: sqlite3.Connection) -> Iterator[None]:
    """Have files for what may not fit into memory: a new index sorts a whole table."""
    connection.execute("PRAGMA temp_store=FILE")
    try:
        yield
    finally:
        if not connection.in_transaction:  # which could not be undone, and says so itself
            connection.execute("PRAGMA temp_store=MEMORY")


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _use_wal(connection: sqlite3.Connection, patience: float) -> None:
    """Switch the file to a write-ahead log. While others do the same, SQLite says at once that it is locked."""
    give_up = time.monotonic() + patience
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > give_up:
                raise
            time.sleep(0.01)
        else:
            return
