"""MariaDB (10.6 or newer) through PyMySQL."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pymysql  # type: ignore[import-untyped]  # it has no types
import sqlalchemy as sa
from pymysql.constants import CLIENT, ER  # type: ignore[import-untyped]  # as above

from holdfast.backends.sql.database import Link, Lost, Row, Step, T, Taken
from holdfast.backends.sql.dialect import Dialect, Mariadb
from holdfast.backends.sql.plans import Plans
from holdfast.backends.sql.revisions import how_to_upgrade
from holdfast.backends.sql.schema import KEY_LENGTH, WAKE_TABLE
from holdfast.backends.sql.server import Again, ServerDatabase
from holdfast.backends.sql.statement import Statement
from holdfast.backends.sql.topics import Topics
from holdfast.backends.sql.url import Address
from holdfast.backends.sql.watch import Watcher
from holdfast.errors import InvalidValue, SchemaError, StoreError, StoreUnavailable

POLL_S: Final = 1.0
IDLE_S: Final = 1.0
LOCK_WAIT_S: Final = 60
_WAKE: Final = f"INSERT INTO {WAKE_TABLE} (topic, n) VALUES (:p0, 1) ON DUPLICATE KEY UPDATE n = n + 1"
_log = logging.getLogger("holdfast.store")


class MariadbSession:
    """A connection in autocommit mode."""

    def __init__(self, connection: pymysql.Connection[Any]) -> None:
        self.connection = connection
        self._used = time.monotonic()

    def rows(self, statement: Statement, values: Sequence[Any]) -> list[Row]:
        with self.connection.cursor() as cursor:
            cursor.execute(statement.sql, tuple(statement.arrange(values)))
            return list(cursor.fetchall())

    def count(self, statement: Statement, rows: Sequence[Sequence[Any]]) -> int:
        with self.connection.cursor() as cursor:
            return cursor.executemany(statement.sql, [tuple(statement.arrange(row)) for row in rows]) or 0

    def execute(self, sql: str) -> list[Row]:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.execute("BEGIN")
        try:
            yield
        except BaseException:
            if self.connection.open:
                self.execute("ROLLBACK")
            raise
        self.execute("COMMIT")

    def is_broken(self) -> bool:
        if not self.connection.open:
            return True
        now = time.monotonic()
        idle, self._used = now - self._used, now
        if idle > IDLE_S:
            try:
                self.connection.ping(reconnect=False)
            except pymysql.Error:
                return True
        return False

    def close(self) -> None:
        if self.connection.open:
            self.connection.close()


class MariadbLink:
    """A transaction on a session."""

    holds = True

    def __init__(self, session: MariadbSession) -> None:
        self._session = session

    def rows(self, statement: Statement, values: Sequence[Any]) -> list[Row]:
        return self._session.rows(statement, values)

    def count(self, statement: Statement, values: Sequence[Any]) -> int:
        try:
            return self._session.count(statement, [values])
        except pymysql.IntegrityError as error:
            if error.args[0] == ER.DUP_ENTRY:
                raise Taken(str(error)) from error
            raise

    def make(self, steps: Sequence[Step]) -> set[str]:
        for write, rows in steps:
            self._session.count(write.one, rows)
        return set()

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        self._session.execute("SAVEPOINT step")
        try:
            yield
        except BaseException:
            try:
                self._session.execute("ROLLBACK TO step")
            except pymysql.Error:
                pass  # a deadlock has undone the whole transaction, or the connection is gone
            raise
        self._session.execute("RELEASE SAVEPOINT step")


class MariadbDatabase(ServerDatabase[MariadbSession]):
    """A MariaDB database."""

    clock_sql = "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)"
    tables_sql = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"

    def __init__(self, address: Address, topics: Topics, **options: Any) -> None:
        super().__init__(address, topics, **options)
        self.dialect: Dialect = Mariadb()
        self._waking = Statement(sa.text(_WAKE), self.dialect)
        self._watcher: Watcher | None = None

    def change(self, statement: Statement, values: Sequence[Any]) -> int:
        return self._with(lambda session: session.count(statement, [values]), repeat=False)

    def run(self, steps: Sequence[Step], wake: str | None) -> None:
        def work(session: MariadbSession) -> None:
            if len(steps) == 1 and len(steps[0].rows) == 1:
                _insist(session, steps[0])
            else:
                with session.transaction():
                    for step in steps:
                        _insist(session, step)
            self._wake(session, wake)

        try:
            self._with(work, repeat=False)
        except Taken as error:
            raise Lost from error

    def transact(self, work: Callable[[Link], T], wake: str | None = None) -> T:
        def unit(session: MariadbSession) -> T:
            with session.transaction():
                result = work(MariadbLink(session))
            self._wake(session, wake)
            return result

        return self._with(unit, repeat=False)

    def claim(self, work: Callable[[Link], T]) -> T:
        return self.transact(work)

    def announce(self, link: Link, topic: str) -> None:
        link.count(self._waking, (topic[:KEY_LENGTH],))

    def tidy(self, plans: Plans) -> None:
        try:
            for table in plans.tables.all[1:]:
                self._with(lambda session, table=table: _fold(session, table, self.dialect), repeat=False)  # type: ignore[misc]  # bound now
        except StoreError as error:
            _log.debug("counters of %s were not folded: %s", plans.kind.name, error)

    def watch(self) -> None:
        if self._watcher is None or not self._watcher.is_alive():
            self._watcher = Watcher(self._look, self._topics, POLL_S, lambda: None)
            self._watcher.start()

    def close(self) -> None:
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher = None
        super().close()

    def _look(self) -> dict[str, int] | None:
        try:
            return dict(self._with(lambda session: session.execute(f"SELECT topic, n FROM {WAKE_TABLE}"), repeat=True))
        except StoreError:
            return None

    def _wake(self, session: MariadbSession, topic: str | None) -> None:
        """Not in the transaction: all who wake one topic would queue for its row."""
        if topic is None:
            return
        self._topics.count_own(topic)
        try:
            session.count(self._waking, [(topic[:KEY_LENGTH],)])
        except pymysql.Error as error:  # the change itself is made
            _log.debug("nobody was told of %s: %s", topic, error)

    def _connect(self) -> MariadbSession:
        url = sa.make_url(self._address.sqlalchemy)
        given: dict[str, Any] = {"connect_timeout": 10, "charset": "utf8mb4", **url.query}
        given |= url.translate_connect_args(username="user")
        connection = pymysql.connect(
            **given,
            autocommit=True,
            # Rows found and not rows changed, as every other database counts them.
            client_flag=CLIENT.FOUND_ROWS,
            init_command="SET SESSION tx_isolation = 'READ-COMMITTED', sql_mode = 'STRICT_ALL_TABLES'",
        )
        return MariadbSession(connection)

    def _make_tables(self, work: Callable[[MariadbSession], None]) -> None:
        def unit(session: MariadbSession) -> None:
            session.execute(f"SELECT GET_LOCK('holdfast_tables', {LOCK_WAIT_S})")
            try:
                work(session)
            finally:
                session.execute("SELECT RELEASE_LOCK('holdfast_tables')")

        self._with(unit, repeat=False)

    def _is_driver_error(self, error: Exception) -> bool:
        return isinstance(error, pymysql.Error)

    def _failure(self, error: Exception) -> Exception:
        number = error.args[0] if error.args else 0
        text = " ".join(" ".join(map(str, error.args[1:])).split()) or str(error)
        match number:
            case ER.DUP_ENTRY:
                return Taken(text)
            case ER.LOCK_DEADLOCK | ER.LOCK_WAIT_TIMEOUT:
                return Again(text)
            case ER.NO_SUCH_TABLE:
                return SchemaError(f"{self._url}: {text}; {how_to_upgrade(self._url)}")
        if isinstance(error, pymysql.DataError | pymysql.IntegrityError):
            return InvalidValue(f"{text}; the record does not fit its kind")
        if isinstance(error, pymysql.OperationalError | pymysql.InterfaceError):
            return StoreUnavailable(f"{self._url} cannot be reached: {text}")
        return StoreError(f"{self._url}: {text}")


def _insist(session: MariadbSession, step: Step) -> None:
    if session.count(step.write.one, step.rows) != len(step.rows):
        raise Lost


def _fold(session: MariadbSession, table: sa.Table, dialect: Dialect) -> None:
    """Sum up the rows of a counter, unless another does so now."""
    quote = dialect.compiler.identifier_preparer.quote
    fields = ", ".join(quote(column.name) for column in table.c if column.name != "n")
    lock = f"'holdfast_fold_{table.name}'"
    if session.execute(f"SELECT GET_LOCK({lock}, 0)") != [(1,)]:
        return
    try:
        with session.transaction():
            sums: Counter[Row] = Counter()
            for *values, number in session.execute(f"DELETE FROM {table.name} RETURNING {fields}, n"):
                sums[tuple(values)] += number
            left = [(*values, number) for values, number in sums.items() if number]
            if left:
                places = ", ".join(["%s"] * len(table.c))
                with session.connection.cursor() as cursor:
                    cursor.executemany(f"INSERT INTO {table.name} ({fields}, n) VALUES ({places})", left)
    finally:
        session.execute(f"SELECT RELEASE_LOCK({lock})")
