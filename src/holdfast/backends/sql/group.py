"""Group commit for SQLite: one connection writes, and many units of work share one commit.

A thread that finds nobody writing leads: it does its own unit and those that others queued meanwhile, and commits them
together. So a lone thread pays no hop to another one, and under load the wait for the disk is shared.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from holdfast.core.forks import pause_for_forks

T = TypeVar("T")
MOST_TOGETHER: Final = 256
PAUSED_WITHIN_S: Final = 1.0
_INTERRUPTED: Final = "the thread that wrote for several was interrupted, and nothing was kept"

Work = Callable[[sqlite3.Connection], Any]


class _Unit:
    """A unit of work and what became of it. If it waits, `settled` is locked until there is something to know."""

    __slots__ = ("work", "settled", "leads", "result", "error")

    def __init__(self, work: Work, *, waits: bool) -> None:
        self.work = work
        if waits:
            self.settled = threading.Lock()
            self.settled.acquire()
        self.leads = False
        self.result: Any = None
        self.error: BaseException | None = None


class Interrupted(Exception):  # a condition, and never seen outside
    """The leading thread was interrupted; nothing of this unit was kept."""


class GroupWriter:
    """The one writer of a process. `connect` gives its connection, in autocommit mode."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        # Held by whoever leads, and handed on while held: a lock may be released by another thread.
        self._gate = threading.Lock()
        self._queue: deque[_Unit] = deque()
        self._paused_by: int | None = None
        pause_for_forks(self._pause, self._go_on)

    def submit(self, work: Callable[[sqlite3.Connection], T], *, single: bool) -> T:
        """The result of the work, once it is on disk. What it raises undoes it, and nothing else.

        `single` promises that the work is one statement, which needs no transaction around it. Work may be done by
        another thread, and must not submit work itself.
        """
        if self._gate.acquire(blocking=False):
            if single and not self._queue:
                try:
                    return work(self._open())
                finally:
                    self._hand_on()
            unit = _Unit(work, waits=False)
            self._lead(unit)
        else:
            unit = _Unit(work, waits=True)
            self._queue.append(unit)
            self._follow(unit)
        if unit.error is not None:
            raise unit.error
        return cast("T", unit.result)

    def alone(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The result of work that begins and ends its transactions itself, while nobody else writes."""
        self._gate.acquire()
        try:
            return work(self._open())
        finally:
            self._hand_on()

    def close(self) -> None:
        with self._gate:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
        self._look_again()

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _follow(self, unit: _Unit) -> None:
        # The leader may have looked at the queue just before: then the gate is free, or will be looked at again.
        self._look_again()
        try:
            unit.settled.acquire()
        except BaseException:
            try:
                self._queue.remove(unit)
            except ValueError:
                unit.settled.acquire()  # somebody has taken it up, and may count on this thread to lead
                if unit.leads:
                    self._lead(unit)
            raise
        if unit.leads:
            self._lead(unit)

    def _lead(self, own: _Unit) -> None:
        """Do this unit and those that have queued, in one transaction. The gate is ours."""
        together: list[_Unit] = []
        try:
            self._do_together(own, together)
        except BaseException as error:
            self._undo()
            for unit in together:
                unit.error = error if isinstance(error, Exception) or unit is own else Interrupted(_INTERRUPTED)
            own.error = error
        finally:
            for unit in together:
                if unit is not own:
                    unit.settled.release()
            self._hand_on()

    def _do_together(self, own: _Unit, together: list[_Unit]) -> None:
        connection = self._open()
        unit: _Unit | None = own
        while unit is not None:
            together.append(unit)
            if connection.in_transaction:
                self._do_next(connection, unit)
            else:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    unit.result = unit.work(connection)
                except Exception as error:  # alone so far, it takes the transaction with it
                    unit.error = error
                    self._undo()
            unit = self._take() if len(together) < MOST_TOGETHER else None
        if connection.in_transaction:
            connection.execute("COMMIT")

    def _do_next(self, connection: sqlite3.Connection, unit: _Unit) -> None:
        connection.execute("SAVEPOINT unit")
        try:
            unit.result = unit.work(connection)
        except Exception as error:
            unit.error = error
            if not connection.in_transaction:
                raise  # the database itself has undone everything, the units before included
            connection.execute("ROLLBACK TO unit")
        connection.execute("RELEASE unit")

    def _undo(self) -> None:
        if self._connection is not None and self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except sqlite3.Error:
                self._connection.close()
                self._connection = None

    def _hand_on(self) -> None:
        """Let the first in the queue lead, or open the gate."""
        following = self._take()
        if following is None:
            self._gate.release()
            if self._queue:
                self._look_again()
        else:
            following.leads = True
            following.settled.release()

    def _take(self) -> _Unit | None:
        """The first in the queue."""
        if self._queue:
            try:
                return self._queue.popleft()
            except IndexError:  # whoever was interrupted has taken his own out
                pass
        return None

    def _pause(self) -> None:
        """While a process is forked nothing is written: in the child SQLite would still count the lock that this writer
        holds, and no connection of the child's could ever write. Who forks in the midst of his own work waits in vain,
        and not for long."""
        if self._gate.acquire(timeout=PAUSED_WITHIN_S):
            self._paused_by = threading.get_ident()

    def _go_on(self) -> None:
        if self._paused_by == threading.get_ident():  # and not another thread that forks, too
            self._paused_by = None
            self._hand_on()

    def _look_again(self) -> None:
        if self._queue and self._gate.acquire(blocking=False):
            self._hand_on()
