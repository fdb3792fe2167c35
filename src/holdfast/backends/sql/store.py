"""The store in an SQL database: the six verbs, written once for SQLite, PostgreSQL and MariaDB."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from operator import itemgetter
from typing import Any

from holdfast.backends.sql.changing import swap_step, whole_step
from holdfast.backends.sql.connect import open_database
from holdfast.backends.sql.database import Database, Link, Lost, Step, Taken
from holdfast.backends.sql.join import join
from holdfast.backends.sql.pages import Read
from holdfast.backends.sql.plans import Plans, Write
from holdfast.backends.sql.reading import NO_LIMIT, Question, claim
from holdfast.backends.sql.topics import Subscription, Topics
from holdfast.backends.sql.url import parse
from holdfast.backends.sql.where import ask, is_storable
from holdfast.core.clock import Clock
from holdfast.errors import Conflict
from holdfast.store.codec import micros
from holdfast.store.port import Change, Insert, Swap, conflict, counted
from holdfast.store.query import ANY, Cursor, Where
from holdfast.store.record import Kind, R, Value


class SqlStore:
    """A store at a URL: `sqlite:///file.db`, `postgresql://…`, `mariadb://…`.

    `kinds` are those of `create_tables`; SQLite makes their tables, and those of any kind that it meets, by itself.
    `durable=False` trades the last moments before a power failure for speed: a commit no longer waits for the disk
    (nothing is lost when only the process dies). `connections` bounds what one process opens, `patience` is how many
    seconds it waits for one of them, or for a lock.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        kinds: Iterable[Kind[Any]] = (),
        durable: bool = True,
        connections: int = 8,
        patience: float = 30.0,
    ) -> None:
        self.address = parse(url)
        self._clock = clock
        self._kinds = tuple(kinds)
        self._options: dict[str, Any] = {"durable": durable, "connections": connections, "patience": patience}
        self._left_behind: list[Database] = []
        self._beginning = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._topics = Topics()
        self._database = open_database(self.address, self._topics, **self._options)
        self._known: dict[str, Plans] = {}
        self._watching = threading.Lock()
        self._process = os.getpid()

    @property
    def url(self) -> str:
        return self.address.shown

    def now(self) -> int:
        if self._clock is not None:
            return micros(self._clock.wall())
        self._check_process()
        return self._database.now()

    def get(self, kind: Kind[R], ids: Sequence[str]) -> list[R | None]:
        plans = self._plans(kind)
        id = kind.columns[0]
        if len(ids) == 1:
            found = self._database.query(plans.one, ids) if is_storable(id, ids[0]) else ()
            return [kind.make(found[0]) if found else None]
        wanted = [one for one in dict.fromkeys(ids) if is_storable(id, one)]
        if not wanted:
            return [None] * len(ids)
        rows = self._database.query(plans.several, (plans.dialect.listing(wanted),))
        by_id = {row[0]: kind.make(row) for row in rows}
        return [by_id.get(one) for one in ids]

    def commit(self, changes: Sequence[Change], *, wake: str | None = None, connection: Any = None) -> None:
        if connection is not None:
            self._commit_within(changes, wake, connection)
            return
        steps = self._steps(changes)  # first: a forked child has no database of its own before that
        try:
            self._database.run(steps, wake)
        except Lost:
            self._commit_again(changes, wake)
        if wake is not None:
            self._topics.call(wake)
        if self._database.dialect.counts_changes:
            for change in changes:
                plans = self._known[change.kind.name]
                if plans.counts_changes:
                    self._database.note_changes(plans, 1)

    def claim(
        self, kind: Kind[R], where: Where, decide: Callable[[R], R | None], *, by: str = "due_at", limit: int
    ) -> list[R]:
        question = self._question(kind, where, by)
        if question is None or limit <= 0:
            return []
        try:
            claimed = self._database.claim(lambda link: claim(link, question, decide, limit))
        except Taken as error:
            raise Conflict(f"a claimed {kind.name} would take a unique value of another: {error}") from error
        if claimed and question.plans.counts_changes:
            self._database.note_changes(question.plans, question.plans.counted(claimed))
        return claimed

    def page(
        self,
        kind: Kind[R],
        where: Where = ANY,
        *,
        by: str = "id",
        descending: bool = False,
        after: Cursor | None = None,
        offset: int = 0,
        limit: int = 100,
    ) -> list[R]:
        question = self._question(kind, where, by)
        if question is None or limit <= 0:
            return []
        statement, values = question.page(limit, descending=descending, after=after, offset=max(0, offset))
        return kind.make_all(self._database.query(statement, values))

    def tally(
        self, kind: Kind[Any], by: Sequence[str] = (), where: Where = ANY, *, arrivals: bool = False
    ) -> dict[tuple[Any, ...], int]:
        plans = self._plans(kind)
        asked = ask(kind, where, plans.dialect, counters=arrivals or counted(kind, by, where))
        if asked is None or (arrivals and not kind.arrivals):
            return {}
        counting = plans.tally(asked.terms, tuple(by), arrivals=arrivals)
        size = len(by)
        looking = counting.looking()
        rows = self._database.query(looking or counting.statement, asked.values)
        if looking and counting.is_scattered(asked.values, sum(map(itemgetter(size), rows)), len(rows)):
            self._database.tidy(plans)
        if size == 2 and not looking:  # half the time of what follows, for what every page of letters begins with
            return {(one, other): number for one, other, number in rows if number}
        return {row[:size]: number for row in rows if (number := row[-1])}

    def sweep(
        self,
        kind: Kind[Any],
        where: Where,
        change: Mapping[str, Value] | None = None,
        *,
        by: str = "id",
        limit: int | None = None,
    ) -> int:
        question = self._question(kind, where, by)
        if question is None or (limit is not None and limit <= 0):
            return 0
        plans, asked, _ = question
        if change is not None and (unknown := [name for name in change if name not in kind.positions]):
            raise ValueError(f"{kind.name} has no field {unknown[0]!r}; it has {', '.join(kind.positions)}")
        values = list(asked.values)
        size = limit
        if limit is not None and not plans.dialect.inline_limit:
            values.append(min(limit, NO_LIMIT))
            size = -1
        statement = plans.sweep(
            Read(asked.terms, by, limit=size, lock="" if limit is None else "wait"),
            None if change is None else tuple(change),
        )
        try:
            number = self._database.change(statement, [*values, *(change or {}).values()])
        except Taken as error:
            raise Conflict(f"a unique value cannot be given to several of {kind.name}: {error}") from error
        if number and plans.counts_changes:
            self._database.note_changes(plans, 1)
        return number

    def subscribe(self, topic: str, callback: Callable[[], object]) -> Subscription:
        self._check_process()
        subscription = self._topics.add(topic, callback)
        try:
            with self._watching:  # of two watchers, one would never be stopped
                self._database.watch()
        except BaseException:
            subscription.close()
            raise
        return subscription

    def ping(self) -> None:
        self._check_process()
        self._database.ping()

    def close(self) -> None:
        self._check_process()
        self._database.close()

    def create_tables(self) -> None:
        """Make the tables of the store's kinds, where they are missing: for tests, and for kinds of your own.

        Those that Holdfast brings are made by `holdfast db upgrade`.
        """
        self._check_process()
        self._database.create([Plans(kind, self._database.dialect) for kind in self._kinds])

    def _check_process(self) -> None:
        if self._process != os.getpid():
            with self._beginning:
                if self._process != os.getpid():
                    # The parent's connections are the parent's: never used here, and never closed.
                    self._left_behind.append(self._database)
                    self._begin()

    def _plans(self, kind: Kind[Any], *, joining: bool = False) -> Plans:
        self._check_process()
        plans = self._known.get(kind.name)
        if plans is None:
            plans = Plans(kind, self._database.dialect)
            self._database.prepare(plans, joining=joining)
            self._known[kind.name] = plans
        return plans

    def _question(self, kind: Kind[Any], where: Where, by: str) -> Question | None:
        """What is asked; None if nothing can match."""
        if by not in kind.positions:
            raise ValueError(f"{kind.name} has no field {by!r}; it has {', '.join(kind.positions)}")
        plans = self._plans(kind)
        asked = ask(kind, where, plans.dialect)
        return None if asked is None else Question(plans, asked, by)

    def _steps(self, changes: Sequence[Change]) -> list[Step]:
        """The changes in their order, with neighbours of the same form in one step."""
        self._check_process()
        steps: list[Step] = []
        last: Write | None = None
        rows: list[Any] = []
        plans: Plans | None = None
        for change in changes:
            if plans is None or change.kind is not plans.kind:
                plans = self._known.get(change.kind.name) or self._plans(change.kind)
            if isinstance(change, Swap):
                write, row = swap_step(plans, change.old, change.new)  # type: ignore[arg-type]  # NamedTuples
            elif isinstance(change, Insert):
                write, row = plans.insert, change.record  # type: ignore[assignment]  # a NamedTuple
            else:
                write, row = plans.delete, plans.fence(change.record)
            if write is not last:
                rows = []
                steps.append(Step(write, rows))
                last = write
            rows.append(row)
        return steps

    def _whole_step(self, change: Change) -> tuple[Write, Sequence[Any]]:
        plans = self._plans(change.kind)
        if isinstance(change, Swap):
            return whole_step(plans, change.old, change.new)  # type: ignore[arg-type]  # NamedTuples
        if isinstance(change, Insert):
            return plans.insert, change.record  # type: ignore[return-value]  # a NamedTuple
        return plans.delete, plans.fence(change.record)

    def _commit_again(self, changes: Sequence[Change], wake: str | None) -> None:
        """Of several changes, those that were lost show only when each is tried on its own. And a swap is tried again
        as a whole, since only the version is to tell whether the record is as it was read; where it told, that is all.
        """
        if len(changes) > 1:
            self._database.transact(lambda link: self._make_each(link, changes), wake)
            return
        try:
            if not isinstance(changes[0], Swap) or changes[0].kind.fresh_ids:
                raise Lost
            write, row = self._whole_step(changes[0])
            self._database.run([Step(write, [row])], wake)
        except Lost:
            raise conflict(changes, (0,)) from None

    def _make_each(self, link: Link, changes: Sequence[Change]) -> None:
        """Make the changes one by one.

        Raises Conflict, which names all that could not be made.
        """
        lost = []
        for at, change in enumerate(changes):
            write, row = self._whole_step(change)
            try:
                with link.savepoint():
                    if link.count(write.one, [_plain(value) for value in row]) != 1:
                        lost.append(at)
            except Taken:
                lost.append(at)
        if lost:
            raise conflict(changes, lost)

    def _commit_within(self, changes: Sequence[Change], wake: str | None, connection: Any) -> None:
        for change in changes:
            self._plans(change.kind, joining=True)
        link = join(connection, self._database.dialect)
        with link.savepoint():
            self._make_each(link, changes)
            if wake is not None:
                self._database.announce(link, wake)


def _plain(value: Any) -> Any:
    """A value of an enumeration as what it stands for: drivers of the caller's may store its name instead."""
    return value.value if isinstance(value, Enum) else value
