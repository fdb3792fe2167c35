"""Prepared statements and their answers, by psycopg's libpq instead of its cursor, which takes half as long again."""

from __future__ import annotations

import select
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Final

import psycopg
from psycopg import errors
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGresult

from holdfast.backends.sql.statement import Statement

MOST_PREPARED: Final = 500
CANCELLING_S: Final = 5.0
_TEXT, _BIGINT = 25, 20  # PostgreSQL's numbers of these types, in every database
_packed: Final = struct.Struct("!q").pack
_CAN_POLL: Final = hasattr(select, "poll")
_DONE: Final = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)
Question = tuple[Statement, Sequence[Any]]


class Wire:
    """The conversation on a connection in autocommit mode that nobody else uses."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._libpq = connection.pgconn
        self._file = connection.fileno()
        self._wait = waiting_for(self._file)
        self._loader = Transformer(connection)
        self._prepared: dict[str, bytes] = {}
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

    def ask_all(self, questions: Sequence[Question], then: Question | None = None) -> bool:
        """Run them in one round trip and one transaction, and another one `then`, whatever came of them and may come of
        it. False, and nothing was sent, as above.

        Raises psycopg.Error; unless the connection is lost, nothing but that is done then.
        """
        sent: list[tuple[Statement, list[bytes | None]]] = []
        for statement, values in (*questions, *([] if then is None else [then])) if self._is_free else ():
            if (one := encoded(statement, values)) is None:
                return False
            sent.append((statement, one))
        try:
            return bool(sent) and self._run_all(sent, len(questions))
        except errors.InvalidSqlStatementName:
            self._prepared.clear()
            return self._run_all(sent, len(questions))

    @property
    def _is_free(self) -> bool:
        return self._libpq.transaction_status == TransactionStatus.IDLE and not self._libpq.pipeline_status

    def rows(self, answer: PGresult) -> list[tuple[Any, ...]]:
        self._loader.set_pgresult(answer)
        return self._loader.load_rows(0, answer.ntuples, tuple)

    def _run(self, statement: Statement, sent: list[bytes | None]) -> PGresult | None:
        name = self._prepared.get(statement.sql) or self._prepare(statement)
        if name is None:
            return None
        self._libpq.send_query_prepared(name, sent, [Format.BINARY] * len(sent), Format.BINARY)
        return self._answer(self._read)

    def _run_all(self, sent: Sequence[tuple[Statement, list[bytes | None]]], together: int) -> bool:
        names = [self._prepared.get(statement.sql) or self._prepare(statement) for statement, _ in sent]
        if None in names:
            return False
        self._libpq.enter_pipeline_mode()
        for number, (name, (_, values)) in enumerate(zip(names, sent, strict=True), 1):
            self._libpq.send_query_prepared(name or b"", values, [Format.BINARY] * len(values), Format.BINARY)
            if number >= together:
                self._libpq.pipeline_sync()
        self._answer(partial(self._read_all, 1 + len(sent) - together))
        return True

    def _prepare(self, statement: Statement) -> bytes | None:
        if len(self._prepared) >= MOST_PREPARED:
            return None  # the cursor forgets what was not used for long
        name = f"holdfast_{next(self._names)}".encode()
        types = [_TEXT if is_text else _BIGINT for is_text in statement.texts or ()]
        self._libpq.send_prepare(name, statement.sql.encode(), types)
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

    def _read_all(self, transactions: int) -> PGresult:
        """The answers up to the end of the pipeline, each followed by a None; of the first transaction the last one, or
        its first failure."""
        answer: PGresult | None = None
        before: PGresult | None = None
        ended = 0
        try:
            while ended < transactions:
                one = self._next()
                if one is None and before is None:
                    raise psycopg.OperationalError("the connection is lost")
                if one is None:
                    pass
                elif one.status == ExecStatus.PIPELINE_SYNC:
                    ended += 1
                elif not ended and (answer is None or answer.status in _DONE):
                    answer = one
                before = one
            self._libpq.exit_pipeline_mode()
        except psycopg.Error:
            self._connection.close()  # it is not where we think it is: nobody may use it any more
            if not ended:
                raise
        assert answer is not None  # to every question there is one
        return answer

    def _next(self) -> PGresult | None:
        libpq = self._libpq
        while libpq.is_busy():
            self._wait()
            libpq.consume_input()
        return libpq.get_result()


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
