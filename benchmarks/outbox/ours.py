"""Holdfast's outbox, as a program uses it: `Holdfast(url)`, an operation, a runner or a worker."""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from itertools import count
from time import perf_counter, process_time, sleep
from typing import Any

import psycopg
import sqlalchemy as sa
from sqlalchemy.orm import sessionmaker

import holdfast as hf
from benchmarks.outbox.counting import PostgresLog
from benchmarks.outbox.latency import Started
from benchmarks.outbox.rows import BATCH
from benchmarks.outbox.setup import Counted, Setup, Watched, order
from benchmarks.store.counting import SqliteTrace
from benchmarks.store.measure import Task
from holdfast.backends.sql import migrate
from holdfast.backends.sql.url import parse
from holdfast.outbox.draft import Draft
from holdfast.outbox.resolver import ResolverErasure

CALM_S = 3.0
"""What an idle worker gets before it is watched: at first it looks more often."""


class Crm:
    """An external system that has erased everything already."""

    name = "crm"

    async def export_subject(self, ref: Any) -> Any:
        return None

    async def erase_subject(self, ref: Any) -> ResolverErasure:
        return ResolverErasure(resolver="crm")


class Ours:
    label = "ours"
    serial = count()

    def __init__(self, setup: Setup, store: str) -> None:
        self.setup = setup
        self.store = store
        url = setup.url(store, "mine")
        self._statements: Callable[[Callable[[], object]], dict[str, float]] | None = None
        if store == "sqlite":
            trace = SqliteTrace()  # before anything is connected
            self._statements = lambda run: _without_transactions(trace.count(run, everywhere=True))
        elif store == "postgres":
            self._statements = PostgresLog(url).count
        if store != "sqlite":
            migrate.upgrade(url)
        self.started = Started()
        self.hold = self._program(url)
        self.engine = sa.create_engine(parse(url).sqlalchemy)
        if store == "sqlite":
            sa.event.listen(self.engine, "connect", _tune)
        self.sessions = sessionmaker(self.engine)

    def _program(self, url: str) -> hf.Holdfast:
        hold = hf.Holdfast(url, background=False, telemetry=hf.Hub())

        @hold.operation(events=None)
        async def note(**order: Any) -> None:
            pass

        @hold.operation
        async def charge(**order: Any) -> None:
            pass

        @hold.operation
        async def begin(**order: Any) -> None:
            self.started.note()

        hold.resolvers.register(Crm())
        return hold

    def put_many(self, operation: str, number: int) -> None:
        drafts = [Draft(operation, order(at), target=Crm.name) for at in range(number)]
        with self.sessions() as session, session.begin():
            self.hold.outbox.put_many(session, drafts)

    def drain(self) -> Task:
        return self._drain("note")

    def drain_audited(self) -> Task:
        return self._drain("charge")

    def drain_erasures(self) -> Task:
        return self._drain("erase")

    def _drain(self, operation: str, batch: int = BATCH) -> Task:
        entries, worker = self.setup.entries, self.hold.works.worker(batch_size=batch)

        async def drain(_: None) -> int:
            return await worker.arun_once()

        def prepare(number: int) -> list[None]:
            self._forget()
            self.put_many(operation, entries * number)
            return [None] * number

        return Task(drain, prepare, lambda done: done == entries, entries)

    def enqueue(self) -> Task:
        sessions, outbox = self.sessions, self.hold.outbox

        def enqueue(payload: dict[str, Any]) -> Any:
            with sessions() as session, session.begin():
                return outbox.put(session, "note", payload, target="shop")

        return Task(enqueue, self._orders)

    def enqueue_by_driver(self) -> Task:
        put = self._putting("note")
        return Task(put, self._orders)

    def _putting(self, operation: str) -> Callable[[dict[str, Any]], Any]:
        """An enqueue in a transaction on the driver's own connection."""
        outbox, url = self.hold.outbox, self.setup.url(self.store, "mine")
        if self.store == "sqlite":
            connection: Any = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=60)
            _tune(connection, None)
            execute, begin = connection.execute, "BEGIN IMMEDIATE"
        else:
            connection = psycopg.connect(url, autocommit=True, prepare_threshold=0)
            execute, begin = psycopg.RawCursor(connection).execute, "BEGIN"

        def put(payload: dict[str, Any]) -> Any:
            execute(begin)
            entry_id = outbox.put(connection, operation, payload, target="shop")
            execute("COMMIT")
            return entry_id

        return put

    def _orders(self, number: int) -> list[dict[str, Any]]:
        self._forget()
        return [order(next(self.serial)) for _ in range(number)]

    def enqueue_bulk(self) -> Task:
        sessions, outbox, bulk = self.sessions, self.hold.outbox, self.setup.bulk

        def enqueue(payloads: Sequence[dict[str, Any]]) -> Any:
            with sessions() as session, session.begin():
                return outbox.put_many(session, [Draft("note", payload, target="shop") for payload in payloads])

        def prepare(number: int) -> list[list[dict[str, Any]]]:
            self._forget()
            return [[order(at) for at in range(bulk)] for _ in range(number)]

        return Task(enqueue, prepare, lambda ids: len(ids) == bulk, bulk)

    def latency(self) -> Watched:
        """Sent from another connection of another outbox, so that only the database can tell the worker; on SQLite by a
        Session of the same program, as nothing else tells it at once.
        """
        if self.store == "sqlite":

            def put(at: int) -> None:
                with self.sessions() as session, session.begin():
                    self.hold.outbox.put(session, "begin", order(at), target="shop")

        else:
            send = Ours(self.setup, self.store)._putting("begin")

            def put(at: int) -> None:
                send(order(at))

        def figures(samples: int) -> list[float]:
            self._forget()
            worker = self.hold.worker()
            worker.start()
            try:
                return self.started.medians(put, self.setup.latencies, samples)
            finally:
                worker.stop()

        return Watched(figures)

    def batch_50(self) -> Counted:
        task = self._drain("charge", 50)

        def count() -> dict[str, float]:
            assert self._statements is not None
            task.prepare(1)
            asyncio.run(task.call(None))  # it connects: only what is there before is traced
            task.prepare(1)
            counts = self._statements(lambda: task.check(asyncio.run(task.call(None))))
            return {what: number / self.setup.entries for what, number in counts.items()}

        return Counted(count)

    def idle(self) -> Counted:
        def count() -> dict[str, float]:
            assert self._statements is not None
            self._forget()
            worker = self.hold.worker()
            worker.start()
            sleep(min(CALM_S, self.setup.idle_s))
            used, began = process_time(), perf_counter()
            counts = self._statements(lambda: sleep(self.setup.idle_s))
            used, took = process_time() - used, perf_counter() - began
            worker.stop()
            return {"statements": counts["statements"] / took, "cpu": used / took * 100}

        return Counted(count)

    def _forget(self) -> None:
        """Everybody begins with an empty table."""
        table = self.hold.tables.outbox.name
        with self.sessions() as session, session.begin():
            session.execute(sa.text(f"DELETE FROM {table}" if self.store == "sqlite" else f"TRUNCATE TABLE {table}"))


def _tune(connection: Any, _: Any) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")


def _without_transactions(counts: dict[str, int]) -> dict[str, float]:
    return {"statements": counts["sent"] - 2 * counts["commits"], "commits": counts["commits"]}
