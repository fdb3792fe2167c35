"""PostgreSQL through psycopg 3: one round trip for each verb where that can be done."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, StrEnum
from typing import Any, Final, cast

import psycopg
import sqlalchemy as sa
from psycopg import RawCursor, errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Format, TransactionStatus
from psycopg.rows import tuple_row
from psycopg.types.array import ListBinaryDumper
from psycopg.types.numeric import Int8BinaryDumper
from psycopg.types.string import StrBinaryDumper

from holdfast.backends.sql.database import Link, Lost, Row, Step, T, Taken
from holdfast.backends.sql.dialect import Dialect, Postgresql
from holdfast.backends.sql.listen import CHANNEL, Listener, message
from holdfast.backends.sql.plans import Plans, Write
from holdfast.backends.sql.revisions import how_to_upgrade
from holdfast.backends.sql.server import Again, ServerDatabase
from holdfast.backends.sql.statement import Statement
from holdfast.backends.sql.topics import Topics
from holdfast.backends.sql.url import Address
from holdfast.backends.sql.wire import Joint, Question, Wire, wait_for
from holdfast.errors import InvalidValue, SchemaError, StoreError, StoreUnavailable

CONTENDED_S: Final = 2.0
IDLE_S: Final = 0.2
FOLDS_PER_VACUUM: Final = 2
MOST_JOINED: Final = 8  # changes that go in one statement
MOST_JOINTS: Final = 100  # a connection keeps 500 statements
# The server plans a statement once, for a table as it is then. One that was vacuumed while there was nothing in it is
# best read from its beginning to its end, and it stays so for that plan, whatever has come since: 10 instead of 0.3 ms
# for a step. So plans are made again, on a connection that is used: at 0.3 ms each, that is less than 1 %.
PLANNED_FOR_S: Final = 2.0
PLANNED_FOR_USES: Final = 50
# Any numbers; whoever makes tables holds the one, whoever folds a counter the other.
SCHEMA_LOCK: Final = 0x686F6C64
FOLD_LOCK: Final = 0x686F6C65
# Every page of ours is read in the order of its index, whatever the values. Left to itself the server would plan most
# of them anew each time, which takes longer than to read them, and now and then read and sort all that could match.
_SETTINGS: Final = {
    "plan_cache_mode": "force_generic_plan",
    "enable_bitmapscan": "off",
    "enable_incremental_sort": "off",
    "random_page_cost": "1.1",
}
_NO_WAIT: Final = {"synchronous_commit": "off"}
# A listener's connection is silent for hours. What lies in between may drop it, and nobody would hear of that.
_ALIVE: Final = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
_log = logging.getLogger("holdfast.store")


class _ValueDumper(StrBinaryDumper):
    """psycopg would store the name of an enumeration's member; we store its value."""

    def dump(self, obj: Any) -> Any:
        return super().dump(obj.value if isinstance(obj, Enum) else obj)


class _TruthDumper(Int8BinaryDumper):
    """To every other database, truth is a number."""

    def dump(self, obj: Any) -> Any:
        return super().dump(int(obj))


class PostgresSession:
    """A connection, with a cursor that is used again and again. Its own, in autocommit mode, unless `wire` is None."""

    def __init__(self, connection: psycopg.Connection[Any], wire: Wire | None) -> None:
        self.connection = connection
        self.cursor = RawCursor(connection, row_factory=tuple_row)
        self.cursor.format = Format.BINARY
        self._wire = wire
        self._joints: dict[tuple[Write, ...], Joint | None] = {}
        self._used = self._planned = time.monotonic()
        self._uses = 0

    def rows(self, statement: Statement, values: Sequence[Any]) -> list[Row]:
        if self._wire is None or (answer := self._wire.ask(statement, values)) is None:
            return self.cursor.execute(statement.sql, statement.arrange(values)).fetchall()
        return self._wire.rows(answer)

    def count(self, statement: Statement, values: Sequence[Any]) -> int:
        if self._wire is None or (answer := self._wire.ask(statement, values)) is None:
            return self.cursor.execute(statement.sql, statement.arrange(values)).rowcount
        return answer.command_tuples or 0

    def make_surely(self, steps: Sequence[Step], then: Question | None) -> bool:
        """All in one round trip, and in one transaction. Whether what is to be asked `then` was asked in the same go:
        its answer is not waited for.

        Raises psycopg.Error unless all rows are there.
        """
        if self._wire is not None and len(steps) <= MOST_JOINED and all(len(rows) == 1 for _, rows in steps):
            joint = self._joint(tuple([write for write, _ in steps]))
            # Those of one record must be made one after the other; ids of several kinds may be the same as well.
            ids = {rows[0][write.id_at] for write, rows in steps}
            rows = [rows[0] for _, rows in steps]
            if joint is not None and len(ids) == len(rows) and self._wire.ask_jointly(joint, rows, then):
                return True
        _make_all_surely(self, steps)
        return False

    def _joint(self, writes: tuple[Write, ...]) -> Joint | None:
        if writes not in self._joints:
            if len(self._joints) >= MOST_JOINTS:
                self._joints.clear()
            self._joints[writes] = Joint.of(writes)
        return self._joints[writes]

    def execute(self, sql: str) -> list[Row]:
        done = self.connection.execute(cast("Any", sql), prepare=False)
        return done.fetchall() if done.description is not None else []

    def is_broken(self) -> bool:
        """Whether the server has hung up: known without asking it, since it says so. Asked before each use."""
        if self._wire is not None:
            self._wire.settle()
        libpq = self.connection.pgconn
        if libpq.transaction_status != TransactionStatus.IDLE or libpq.pipeline_status:
            return True
        now = time.monotonic()
        idle, self._used = now - self._used, now
        if idle > IDLE_S and wait_for(self.connection.fileno(), seconds=0):
            return True
        self._uses += 1
        return self._uses > PLANNED_FOR_USES and now - self._planned > PLANNED_FOR_S and not self._plans_again(now)

    def _plans_again(self, now: float) -> bool:
        """Have what is prepared planned again when it is used next. False if the connection is lost."""
        self._uses, self._planned = 0, now
        try:
            self.execute("DISCARD PLANS")
        except psycopg.Error:
            return False
        return True

    def close(self) -> None:
        self.connection.close()


class PostgresLink:
    """A transaction on a session. One that does not hold what it reads is no transaction, but a statement each."""

    def __init__(self, session: PostgresSession, *, holds: bool) -> None:
        self.holds = holds
        self.lost = False
        self._session = session

    def rows(self, statement: Statement, values: Sequence[Any]) -> list[Row]:
        return self._session.rows(statement, values)

    def count(self, statement: Statement, values: Sequence[Any]) -> int:
        try:
            return self._session.count(statement, values)
        except errors.UniqueViolation as error:
            raise Taken(str(error)) from error

    def make(self, steps: Sequence[Step]) -> set[str]:
        if self.holds:
            for write, rows in steps:
                _make(self._session.cursor, write, rows)
            return set()
        if len(steps) == 1:
            gone = self._make_step(*steps[0])
        else:
            gone = self._make_together(steps)
        self.lost = self.lost or bool(gone)
        return gone

    def _make_step(self, write: Write, rows: list[Any]) -> set[str]:
        _make(self._session.cursor, write, rows)
        if self._session.cursor.rowcount == len(rows):
            return set()
        made = [] if len(rows) == 1 else self._session.cursor.fetchall()
        return {row[write.id_at] for row in rows} - {row[0] for row in made}

    def _make_together(self, steps: Sequence[Step]) -> set[str]:
        """In one transaction, which makes what can be made."""
        cursors = []
        with self._session.connection.pipeline():
            for write, rows in steps:
                cursors.append(cursor := RawCursor(self._session.connection, row_factory=tuple_row))
                _make_many(cursor, write, rows)
        made = {row[0] for cursor in cursors for row in cursor.fetchall()}
        return {row[write.id_at] for write, rows in steps for row in rows} - made

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        with self._session.connection.transaction():
            yield


def _make_all_surely(session: PostgresSession, steps: Sequence[Step]) -> None:
    """By the cursor: the transaction ends where the pipeline does."""
    failed: psycopg.Error | None = None
    try:
        with session.connection.pipeline():
            try:
                for write, rows in steps:
                    _make_surely(session.cursor, write, rows)
            except psycopg.Error as error:
                # Raised in here, it would be warned of in psycopg's log; that another was first is nothing to warn of.
                failed = error
    except psycopg.Error:
        if failed is None:
            raise
    if failed is not None:
        raise failed


def joined(connection: object) -> Link | None:
    """The transaction of a connection of the caller's, if it is psycopg's; None otherwise."""
    if not isinstance(connection, psycopg.Connection):
        return None
    if not connection.autocommit and connection.pgconn.transaction_status == TransactionStatus.IDLE:
        connection.execute("SELECT 1")  # begins it; our savepoint would otherwise be all of it, and commit
    return PostgresLink(PostgresSession(connection, None), holds=True)


class PostgresDatabase(ServerDatabase[PostgresSession]):
    """A PostgreSQL database."""

    clock_sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    tables_sql = "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p') AND pg_table_is_visible(oid)"

    def __init__(self, address: Address, topics: Topics, **options: Any) -> None:
        super().__init__(address, topics, **options)
        self.dialect: Dialect = Postgresql()
        self._name = uuid.uuid4().hex[:12]
        self._notifying = Statement(
            # Notifying takes a lock that all who notify queue for: held up to the disk's answer, but for this setting.
            _telling(f"SELECT pg_notify('{CHANNEL}', :p0), set_config('synchronous_commit', 'off', true)"),
            self.dialect,
        )
        self._notifying_then = Statement(_telling(f"SELECT pg_notify('{CHANNEL}', :p0)"), self.dialect)
        self._contended_until = 0.0
        self._folded = 0
        self._listener: Listener | None = None

    def change(self, statement: Statement, values: Sequence[Any]) -> int:
        return self._with(lambda session: session.count(statement, values), repeat=False)

    def run(self, steps: Sequence[Step], wake: str | None) -> None:
        def work(session: PostgresSession) -> None:
            then = None if wake is None else (self._notifying, (message(self._name, wake),))
            if len(steps) == 1 and len(steps[0].rows) == 1:
                if session.count(steps[0].write.one, steps[0].rows[0]) != 1:
                    raise Lost
            elif steps and session.make_surely(steps, then):
                return
            if wake is not None:
                self._notify(session, wake)

        try:
            self._with(work, repeat=False)
        except Taken as error:
            raise Lost from error

    def transact(self, work: Callable[[Link], T], wake: str | None = None) -> T:
        def unit(session: PostgresSession) -> T:
            with session.connection.transaction():
                result = work(PostgresLink(session, holds=True))
            if wake is not None:
                self._notify(session, wake)
            return result

        return self._with(unit, repeat=False)

    def claim(self, work: Callable[[Link], T]) -> T:
        """Where nobody competes, read and then write what is still as it was read: two statements. Who loses a record
        in between locks what it reads for a while, and passes over what others have locked."""

        def freely(session: PostgresSession) -> T:
            link = PostgresLink(session, holds=False)
            result = work(link)
            if link.lost:
                self._contended_until = time.monotonic() + CONTENDED_S
            return result

        def holding(session: PostgresSession) -> T:
            # The transaction lasts until the pipeline ends, whether it was waited for answers in between or not.
            with session.connection.pipeline():
                return work(PostgresLink(session, holds=True))

        if time.monotonic() >= self._contended_until:
            result = self._with(freely, repeat=False)
            if result or time.monotonic() >= self._contended_until:
                return result
        return self._with(holding, repeat=False)

    def announce(self, link: Link, topic: str) -> None:
        link.rows(self._notifying_then, (message("", topic),))

    def tidy(self, plans: Plans) -> None:
        """Sum up the rows of the counters. What a crash undoes of it changes no sum, so it need not be waited for."""
        counters = plans.tables.all[1:]
        self._folded += 1
        vacuum = self._folded % FOLDS_PER_VACUUM == 0
        try:
            self._with(lambda session: _fold(session, counters, self.dialect, vacuum=vacuum), repeat=False)
        except StoreError as error:
            _log.debug("counters of %s were not folded: %s", plans.kind.name, error)

    def watch(self) -> None:
        if self._listener is None or not self._listener.is_alive():
            self._listener = Listener(self._connect_plainly, self._topics, self._name)
            self._listener.start()
        self._listener.wait_until_listening()

    def close(self) -> None:
        if self._listener is not None:
            self._listener.stop()
            self._listener = None
        super().close()

    def _notify(self, session: PostgresSession, topic: str) -> None:
        try:
            session.rows(self._notifying, (message(self._name, topic),))
        except psycopg.Error as error:  # the change itself is made
            _log.debug("nobody was told of %s: %s", topic, error)

    def _connect_plainly(self) -> psycopg.Connection[Any]:
        usual: dict[str, Any] = {"connect_timeout": 10, "application_name": "holdfast", **_ALIVE}
        return psycopg.connect(make_conninfo("", **usual | conninfo_to_dict(self._address.url)), autocommit=True)

    def _connect(self) -> PostgresSession:
        connection = self._connect_plainly()
        connection.prepare_threshold = 0
        connection.prepared_max = 500
        connection.adapters.register_dumper(StrEnum, _ValueDumper)
        connection.adapters.register_dumper(bool, _TruthDumper)
        # Always the same type, or each size of number would make another prepared statement. Lists are far quicker
        # in binary than as text with everything quoted.
        connection.adapters.register_dumper(int, Int8BinaryDumper)
        connection.adapters.register_dumper(list, ListBinaryDumper)
        settings = _SETTINGS if self._durable else _SETTINGS | _NO_WAIT
        made = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in settings.items())
        connection.execute(cast("Any", f"SELECT {made}"), prepare=False)
        return PostgresSession(connection, Wire(connection))

    def _make_tables(self, work: Callable[[PostgresSession], None]) -> None:
        def unit(session: PostgresSession) -> None:
            with session.connection.transaction():
                session.execute(f"SELECT pg_advisory_xact_lock({SCHEMA_LOCK})")
                work(session)

        self._with(unit, repeat=False)

    def _is_driver_error(self, error: Exception) -> bool:
        return isinstance(error, psycopg.Error | OverflowError)

    def _may_not_write(self, error: Exception) -> bool:
        return isinstance(error, errors.ReadOnlySqlTransaction)

    def _failure(self, error: Exception) -> Exception:
        match error:
            case errors.UniqueViolation():
                return Taken(str(error))
            case errors.DivisionByZero():
                return Lost()  # plans.py: a change that insists
            case errors.DeadlockDetected() | errors.SerializationFailure():
                return Again(str(error))
            case errors.UndefinedTable():
                return SchemaError(f"{self._url}: {_line(error)}; {how_to_upgrade(self._url)}")
            case psycopg.DataError() | psycopg.IntegrityError() | OverflowError():
                return InvalidValue(f"{_line(error)}; the record does not fit its kind")
            case errors.ReadOnlySqlTransaction():
                return StoreUnavailable(f"{self._url} takes no changes now: {_line(error)}")
            case psycopg.OperationalError() | psycopg.InterfaceError():
                return StoreUnavailable(f"{self._url} cannot be reached: {_line(error)}")
        return StoreError(f"{self._url}: {_line(error)}")


def _make(cursor: RawCursor[Row], write: Write, rows: Sequence[Sequence[Any]]) -> None:
    if len(rows) == 1:
        cursor.execute(write.one.sql, write.one.arrange(rows[0]))
    else:
        _make_many(cursor, write, rows)


def _make_many(cursor: RawCursor[Row], write: Write, rows: Sequence[Sequence[Any]]) -> None:
    statement, (values,) = write.many(rows)
    cursor.execute(statement.sql, statement.arrange(values))


def _make_surely(cursor: RawCursor[Row], write: Write, rows: Sequence[Sequence[Any]]) -> None:
    """The same, failing unless all rows are there."""
    statement, values = write.sure, rows[0]
    if len(rows) > 1:
        statement, values = write.surely_many, [list(column) for column in zip(*rows, strict=True)]
    cursor.execute(statement.sql, statement.arrange(values))


def _fold(session: PostgresSession, counters: Sequence[sa.Table], dialect: Dialect, *, vacuum: bool) -> None:
    quote = dialect.compiler.identifier_preparer.quote
    for table in counters:
        fields = ", ".join(quote(column.name) for column in table.c if column.name != "n")
        session.execute(
            f"WITH gone AS (DELETE FROM {table.name} WHERE "
            f"(SELECT pg_try_advisory_xact_lock({FOLD_LOCK}, hashtext('{table.name}')) "
            f"AND set_config('synchronous_commit', 'off', true) = 'off') RETURNING {fields}, n) "
            f"INSERT INTO {table.name} ({fields}, n) SELECT {fields}, sum(n) FROM gone GROUP BY {fields} "
            "HAVING sum(n) <> 0"
        )
        if vacuum:
            # Autovacuum comes once a minute at best, and until then every tally reads past the folded rows.
            session.execute(f"VACUUM (SKIP_LOCKED, TRUNCATE false) {table.name}")


def _telling(sql: str) -> sa.TextClause:
    return sa.text(sql).bindparams(sa.bindparam("p0", type_=sa.Text()))


def _line(error: BaseException) -> str:
    """The error on one line."""
    return " ".join(str(error).split())
