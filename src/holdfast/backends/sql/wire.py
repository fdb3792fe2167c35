"""Prepared statements and their answers, by psycopg's libpq instead of its cursor, which takes half as long again."""

from __future__ import annotations

import re
import select
import struct
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Final

import psycopg
from psycopg import errors
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGresult

from holdfast.backends.sql.plans import Write
from holdfast.backends.sql.statement import Statement

MOST_PREPARED: Final = 500
CANCELLING_S: Final = 5.0
_TEXT, _BIGINT = 25, 20  # PostgreSQL's numbers of these types, in every database
_PARAMETER: Final = re.compile(r"\$(\d+)")
_packed: Final = struct.Struct("!q").pack
_CAN_POLL: Final = hasattr(select, "poll")
_DONE: Final = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)
Question = tuple[Statement, Sequence[Any]]


class Joint:
    """Changes of one row each as one statement, with one answer: a little quicker than one after the other. It fails,
    by dividing by nothing, unless all rows are there.

    All of it sees what was there before. So no two changes may be of one record, nor may more than one take or free a
    unique value.
    """

    __slots__ = ("parts", "sql", "texts")

    def __init__(self, writes: Sequence[Write]) -> None:
        self.parts = [write.one for write in writes]
        self.texts = tuple(is_text for part in self.parts for is_text in part.texts or ())
        made, found, before = [], [], 0
        for number, part in enumerate(self.parts):
            text = _shifted(part.sql, before)
            before += len(part.texts or ())
            made.append(f"c{number} AS ({text} RETURNING 1 AS n)")
            found.append(f"(SELECT n FROM c{number})")
        # Looked at one by one, they are made in this order; what nobody asks for would be made last, and backwards.
        self.sql = f"WITH {', '.join(made)} SELECT 1 / coalesce({' * '.join(found)}, 0)"

    @classmethod
    def of(cls, writes: Sequence[Write]) -> Joint | None:
        """None for changes whose order matters, and for such as `Wire` does not send."""
        is_plain = all(write.one.texts is not None for write in writes)
        return cls(writes) if is_plain and sum(write.in_turn for write in writes) <= 1 else None


class Wire:
    """The conversation on a connection in autocommit mode that nobody else uses."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._libpq = connection.pgconn
        self._file = connection.fileno()
        self._wait = waiting_for(self._file)
        self._loader = Transformer(connection)
        self._prepared: dict[str, bytes] = {}
        self._owes = False
        self._names = count()  # each of them once: of those that we forget, the server may know some

    def ask(self, statement: Statement, values: Sequence[Any]) -> PGresult | None:
        """The server's answer. None, and nothing was sent, where it takes a cursor: within a transaction, for a list,
        and for a value that is not of its column's type.

        Raises psycopg.Error.
        """
        sent = encoded(statement, values) if self._is_free else None
        if sent is None:
            return None
        try:
            return self._run(statement, sent)
        except errors.InvalidSqlStatementName:
            # psycopg has the server forget everything that is prepared, after a transaction that was undone.
            self._prepared.clear()
            return self._run(statement, sent)

    def ask_jointly(self, joint: Joint, rows: Iterable[Sequence[Any]], then: Question | None = None) -> bool:
        """Make these changes, and ask something else `then`, whatever came of them and may come of it, without waiting
        for that. False, and nothing was sent, as above.

        Raises psycopg.Error; unless the connection is lost, nothing but what was asked `then` is done.
        """
        sent: list[bytes | None] = []
        for statement, row in zip(joint.parts, rows, strict=True) if self._is_free else ():
            if (one := encoded(statement, row)) is None:
                return False
            sent += one
        after = None if then is None else encoded(*then)
        if not sent or (then is not None and after is None):
            return False
        last = None if then is None or after is None else (then[0], after)
        try:
            return self._run_jointly(joint, sent, last)
        except errors.InvalidSqlStatementName:
            self.settle()
            self._prepared.clear()
            return self._run_jointly(joint, sent, last)

    def settle(self) -> None:
        """Hear what became of what was asked `then`: before anything else is asked. It may have ended the connection,
        which is closed then."""
        if self._owes:
            self._owes = False
            try:
                self._read_transaction()
                self._libpq.exit_pipeline_mode()
            except psycopg.Error:
                self._connection.close()

    @property
    def _is_free(self) -> bool:
        return self._libpq.transaction_status == TransactionStatus.IDLE and not self._libpq.pipeline_status

    def rows(self, answer: PGresult) -> list[tuple[Any, ...]]:
        self._loader.set_pgresult(answer)
        return self._loader.load_rows(0, answer.ntuples, tuple)

    def _run(self, statement: Statement | Joint, sent: list[bytes | None]) -> PGresult | None:
        name = self._prepared.get(statement.sql) or self._prepare(statement)
        if name is None:
            return None
        self._libpq.send_query_prepared(name, sent, [Format.BINARY] * len(sent), Format.BINARY)
        return self._answer(self._read)

    def _run_jointly(
        self, joint: Joint, sent: list[bytes | None], then: tuple[Statement, list[bytes | None]] | None
    ) -> bool:
        if then is None:
            return self._run(joint, sent) is not None
        name = self._prepared.get(joint.sql) or self._prepare(joint)
        if name is None:
            return False
        statement, after = then
        self._libpq.enter_pipeline_mode()
        self._libpq.send_query_prepared(name, sent, [Format.BINARY] * len(sent), Format.BINARY)
        self._libpq.pipeline_sync()
        # Without a name: the server may have forgotten it, and nobody would ask again.
        formats = [Format.BINARY] * len(after)
        self._libpq.send_query_params(statement.sql.encode(), after, _types(statement), formats, Format.BINARY)
        self._libpq.pipeline_sync()
        self._owes = True
        self._answer(self._read_transaction)
        return True

    def _prepare(self, statement: Statement | Joint) -> bytes | None:
        if len(self._prepared) >= MOST_PREPARED:
            return None  # the cursor forgets what was not used for long
        name = f"holdfast_{next(self._names)}".encode()
        self._libpq.send_prepare(name, statement.sql.encode(), _types(statement))
        self._answer(self._read)
        self._prepared[statement.sql] = name
        return name

    def _answer(self, read: Callable[[], PGresult]) -> PGresult:
        try:
            while self._libpq.flush():  # it did not fit into the socket
                if wait_for(self._file, writing=True):
                    self._libpq.consume_input()
            answer = read()
        except psycopg.Error:
            raise
        except BaseException:  # of a signal's handler: what was asked for shall not happen later
            with suppress(psycopg.Error):
                self._connection.cancel_safe(timeout=CANCELLING_S)
            self._owes = False
            self._connection.close()
            raise
        if answer.status not in _DONE:
            raise errors.error_from_result(answer, encoding=self._connection.info.encoding)
        return answer

    def _read(self) -> PGresult:
        answer = self._next()
        while self._next() is not None:  # until the server says that it is ready
            pass
        assert answer is not None  # to every question there is one
        return answer

    def _read_transaction(self) -> PGresult:
        """The answers up to the end of a transaction in a pipeline, each followed by a None: its last one, or its first
        failure."""
        answer: PGresult | None = None
        before: PGresult | None = None
        while True:
            one = self._next()
            if one is None and before is None:
                self._connection.close()  # it is not where we think it is: nobody may use it any more
                raise psycopg.OperationalError("the connection is lost")
            if one is not None and one.status == ExecStatus.PIPELINE_SYNC:
                break
            if one is not None and (answer is None or answer.status in _DONE):
                answer = one
            before = one
        if answer is None:
            raise psycopg.OperationalError("the server has answered nothing")
        return answer

    def _next(self) -> PGresult | None:
        libpq = self._libpq
        while libpq.is_busy():
            self._wait()
            libpq.consume_input()
        return libpq.get_result()


def _types(statement: Statement | Joint) -> list[int]:
    return [_TEXT if is_text else _BIGINT for is_text in statement.texts or ()]


def _shifted(sql: str, by: int) -> str:
    """The text, with each of its parameters so many places further on."""
    return _PARAMETER.sub(lambda one: f"${int(one[1]) + by}", sql)


def encoded(statement: Statement, values: Sequence[Any]) -> list[bytes | None] | None:
    """The values as PostgreSQL has them; None if one of them is neither a text nor a number where that belongs."""
    if not statement.texts:
        return None if statement.texts is None else []
    given = zip(statement.texts, statement.arrange(values), strict=True)
    try:
        return [None if value is None else str.encode(value) if is_text else _packed(value) for is_text, value in given]
    except (TypeError, struct.error):
        return None


def waiting_for(file: int) -> Callable[[], object]:
    """What waits until there is something to read, made once for many waits."""
    if not _CAN_POLL:
        return lambda: wait_for(file)
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return poll.poll


def wait_for(file: int, *, writing: bool = False, seconds: float | None = None) -> bool:
    """Whether there is something to read, after a wait for it, or for room to write. A signal's handler is let in."""
    if not _CAN_POLL:
        return bool(select.select([file], [file] if writing else [], [], seconds)[0])
    poll = select.poll()
    poll.register(file, select.POLLIN | select.POLLOUT if writing else select.POLLIN)
    found = poll.poll(None if seconds is None else seconds * 1000)
    return bool(found and found[0][1] & ~select.POLLOUT)
