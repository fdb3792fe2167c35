"""The libraries that keep calls in a database: each in the fastest form that its documentation shows."""

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import Any
from uuid import uuid4

import asyncpg
import effaced
import procrastinate
import psycopg
import sqlalchemy as sa
from dbos import DBOS, DBOSClient
from effaced.resolvers import ResolverErasure, ResolverRegistry
from effaced.saga import Outbox, OutboxEntry, SagaRunner
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode
from sqlalchemy.orm import sessionmaker

from benchmarks.bench import Makers
from benchmarks.outbox.counting import PostgresLog
from benchmarks.outbox.latency import Started
from benchmarks.outbox.rows import BATCH, SERVERS
from benchmarks.outbox.setup import Counted, Setup, Watched, order
from benchmarks.store.measure import Task

logging.disable(logging.CRITICAL)
SLOW_ENTRIES = 300
"""So many make a sample of what drains a few hundred in a second."""


def json_bytes(payload: dict[str, Any]) -> bytes:
    return json.dumps(payload).encode()


class Peer:
    """What peers on PostgreSQL have in common: they drain, and are counted, in the same way."""

    label = ""
    place = "peers"
    table = ""
    entries = SLOW_ENTRIES
    called = 0

    def __init__(self, setup: Setup, store: str) -> None:
        self.setup = setup
        self.store = store
        self.url = setup.url(store, self.place)
        self.started = Started()
        self.serial = count()
        self.entries = min(self.entries, setup.entries)
        self.open()

    def open(self) -> None:
        raise NotImplementedError

    def put_many(self, payloads: Sequence[dict[str, Any]]) -> Any:
        """Enqueue these in one commit, from outside of any loop."""
        raise NotImplementedError

    async def empty(self, batch: int) -> None:
        """Make all calls that there are."""
        raise NotImplementedError

    def drain(self) -> Task:
        return self._drain(BATCH)

    drain_audited = drain

    def _drain(self, batch: int) -> Task:
        async def drain(_: None) -> int:
            before = self.called
            await self.empty(batch)
            return self.called - before

        def prepare(number: int) -> list[None]:
            self.forget()
            self.put_many([order(at) for at in range(self.entries * number)])
            return [None] * number

        return Task(drain, prepare, lambda done: done == self.entries, self.entries)

    def forget(self) -> None:
        """Everybody begins with an empty table."""
        if self.table:
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute(f"TRUNCATE TABLE {self.table} CASCADE")

    def _orders(self, number: int) -> list[dict[str, Any]]:
        self.forget()
        return [order(next(self.serial)) for _ in range(number)]

    def batch_50(self) -> Counted:
        task, log = self._drain(50), PostgresLog(self.url)

        def counting() -> dict[str, float]:
            task.prepare(1)
            counts = log.count(lambda: task.check(asyncio.run(task.call(None))))  # type: ignore[arg-type]
            return {what: number / self.entries for what, number in counts.items()}

        return Counted(counting)


class Working(Peer):
    """A peer that has a worker of its own, which runs as a task."""

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[Callable[[int], Any]]:
        """A worker that waits for calls to make; what is given enqueues one, `self.started` is told."""
        raise NotImplementedError
        yield

    def latency(self) -> Watched:
        async def figures(samples: int) -> list[float]:
            async with self.worker() as put:
                loop = asyncio.get_running_loop()

                def send(at: int) -> None:
                    asyncio.run_coroutine_threadsafe(put(at), loop).result()

                return await asyncio.to_thread(self.started.medians, send, self.setup.latencies, samples)

        return Watched(figures)


class Pgqueuer(Working):
    """Over asyncpg, and each sample with a connection of its own, as its loop has."""

    label = "pgqueuer"
    table = "pgqueuer"
    entries = 100_000

    def open(self) -> None:
        async def install() -> None:
            async with self._queries() as queries:
                if not await queries.schema_is_installed():
                    await queries.install()

        asyncio.run(install())

    @asynccontextmanager
    async def _queries(self) -> AsyncIterator[Queries]:
        connection = await asyncpg.connect(self.url)
        try:
            yield Queries(AsyncpgDriver(connection))
        finally:
            await connection.close()

    def put_many(self, payloads: Sequence[dict[str, Any]]) -> None:
        async def put() -> None:
            async with self._queries() as queries:
                await _enqueue(queries, payloads)

        asyncio.run(put())

    def _manager(self, queries: Queries) -> QueueManager:
        manager = QueueManager(queries)

        @manager.entrypoint("shop")
        async def shop(job: Job) -> None:
            self.called += 1
            self.started.note()

        return manager

    async def empty(self, batch: int) -> None:
        async with self._queries() as queries:
            await self._manager(queries).run(batch_size=batch, mode=QueueExecutionMode.drain)

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[Callable[[int], Any]]:
        async with self._queries() as queries, self._queries() as sender:
            manager = self._manager(queries)
            running = asyncio.create_task(manager.run(batch_size=BATCH))
            await asyncio.sleep(0.5)
            try:
                yield lambda at: _enqueue(sender, [order(at)])
            finally:
                manager.shutdown.set()
                await running

    def enqueue(self) -> Task:
        return Task(self._sending(1), lambda number: [[one] for one in self._orders(number)], bool)

    enqueue_by_driver = enqueue

    def enqueue_bulk(self) -> Task:
        bulk = self.setup.bulk
        return Task(self._sending(bulk), lambda number: [self._orders(bulk) for _ in range(number)], bool, bulk)

    def _sending(self, number: int) -> Callable[[Any], Any]:
        connections: list[Queries] = []

        async def send(payloads: Sequence[dict[str, Any]]) -> bool:
            if not connections:  # kept: all samples run on one loop
                connections.append(Queries(AsyncpgDriver(await asyncpg.connect(self.url))))
            return len(await _enqueue(connections[0], payloads)) == number

        return send


async def _enqueue(queries: Queries, payloads: Sequence[dict[str, Any]]) -> Any:
    number = len(payloads)
    if number == 1:
        return await queries.enqueue("shop", json_bytes(payloads[0]))
    return await queries.enqueue(["shop"] * number, [json_bytes(one) for one in payloads], [0] * number)


class Procrastinate(Working):
    """It fetches jobs one by one, so a batch is as many at once."""

    label = "procrastinate"
    table = "procrastinate_jobs"

    def open(self) -> None:
        asyncio.run(self._install())

    async def _install(self) -> None:
        async with self._app() as (app, _):
            with suppress(procrastinate.exceptions.ConnectorException):  # it is there already
                await app.schema_manager.apply_schema_async()

    @asynccontextmanager
    async def _app(self) -> AsyncIterator[tuple[procrastinate.App, Any]]:
        app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=self.url, min_size=2, max_size=4))

        @app.task(queue="shop", name="shop")
        async def shop(**order: Any) -> None:
            self.called += 1
            self.started.note()

        async with app.open_async():
            yield app, shop

    def put_many(self, payloads: Sequence[dict[str, Any]]) -> None:
        async def put() -> None:
            async with self._app() as (_, shop):
                await shop.batch_defer_async(*payloads)

        asyncio.run(put())

    async def empty(self, batch: int) -> None:
        async with self._app() as (app, _):
            await app.run_worker_async(wait=False, concurrency=batch, install_signal_handlers=False)

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[Callable[[int], Any]]:
        async with self._app() as (app, shop):
            running = asyncio.create_task(app.run_worker_async(concurrency=BATCH, install_signal_handlers=False))
            await asyncio.sleep(0.5)
            try:
                yield lambda at: shop.defer_async(**order(at))
            finally:
                running.cancel()
                with suppress(asyncio.CancelledError):
                    await running

    def enqueue(self) -> Task:
        return Task(self._sending("defer_async"), self._orders)

    def enqueue_bulk(self) -> Task:
        bulk = self.setup.bulk
        sending = self._sending("batch_defer_async")
        return Task(sending, lambda number: [self._orders(bulk) for _ in range(number)], shared=bulk)

    def _sending(self, method: str) -> Callable[[Any], Any]:
        opened: list[Any] = []

        async def send(given: Any) -> Any:
            if not opened:  # kept: all samples run on one loop
                opened.append(self._app())
                opened.append((await opened[0].__aenter__())[1])
            send = getattr(opened[1], method)
            return await (send(**given) if isinstance(given, dict) else send(*given))

        return send


class Dbos(Peer):
    """Workflows in a queue. It looks for them by itself, here ten times in a second and not once as by default."""

    label = "dbos"
    place = "dbos"  # it is never idle, and its statements are to be nobody else's

    def open(self) -> None:
        DBOS(config={"name": "bench", "system_database_url": self.url, "log_level": "CRITICAL"})
        ended, peer = threading.Event(), self
        self._ended, self._left = ended, 0

        @DBOS.workflow(name="shop")
        def shop(payload: dict[str, Any]) -> None:
            peer.called += 1
            peer.started.note()
            if peer.called == peer._left:
                ended.set()

        self._client = DBOSClient(system_database_url=self.url)
        self._engine = sa.create_engine(self.url.replace("postgresql://", "postgresql+psycopg://"))
        self._options: Any = {"workflow_name": "shop", "queue_name": "shop"}
        DBOS.launch()
        DBOS.register_queue("shop", polling_interval_sec=0.1, worker_concurrency=BATCH)

    def put_many(self, payloads: Sequence[dict[str, Any]]) -> None:
        """They become visible when the measured part commits."""
        self._left = self.called + len(payloads)
        self._ended.clear()
        self._connection = self._engine.connect()
        self._begun = self._connection.begin()
        for payload in payloads:
            self._client.enqueue_in_transaction(self._connection, self._options, payload)

    async def empty(self, batch: int) -> None:
        self._begun.commit()
        self._connection.close()
        await asyncio.to_thread(self._ended.wait, 120)

    def enqueue(self) -> Task:
        def send(payload: dict[str, Any]) -> Any:
            return self._client.enqueue({**self._options, "queue_name": "nobody looks here"}, payload)

        return Task(send, self._orders)

    def latency(self) -> Watched:
        def put(at: int) -> None:
            self._client.enqueue(self._options, order(at))

        return Watched(lambda samples: self.started.medians(put, min(10, self.setup.latencies), 1))


class NullSink:
    """A trail that keeps nothing."""

    def append(self, event: Any) -> None:
        pass

    def read(self, subject_ref: str) -> Sequence[Any]:
        return ()


class Effaced(Peer):
    """With its own trail for what is audited; it calls nothing but resolvers, so every entry is an erasure."""

    label = "effaced"
    name = "crm"
    table = "effaced_outbox"

    def open(self) -> None:
        self._engine = sa.create_engine(self.url.replace("postgresql://", "postgresql+psycopg://"))
        self._sessions = sessionmaker(self._engine)
        metadata = sa.MetaData()
        self._tables = effaced.bind_tables(metadata)
        metadata.create_all(self._engine)
        self._outbox = Outbox(self._sessions, self._tables.outbox)
        self._registry = ResolverRegistry()
        self._registry.register(self)
        self._sink: Any = effaced.DatabaseAuditSink(self._sessions, self._tables.audit_events)

    async def export_subject(self, ref: Any) -> Any:
        return None

    async def erase_subject(self, ref: Any) -> ResolverErasure:
        self.called += 1
        return ResolverErasure(resolver="crm")

    def _entry(self) -> OutboxEntry:
        id = uuid4()
        ref = effaced.SubjectRef(kind="crm", value=str(id))
        return OutboxEntry(entry_id=id, subject_id=str(id), resolver="crm", ref=ref, enqueued_at=datetime.now(UTC))

    def put_many(self, payloads: Sequence[Any]) -> None:
        self._enqueue([self._entry() for _ in payloads])

    def _enqueue(self, entries: Sequence[OutboxEntry]) -> bool:
        with self._sessions() as session, session.begin():
            self._outbox.enqueue(session, entries)
        return True

    async def empty(self, batch: int) -> None:
        runner = SagaRunner(self._registry, self._outbox, self._sink, batch_size=batch)
        while await runner.run_once():
            pass

    def drain(self) -> Task:
        task = self._drain(BATCH)

        async def drain(_: None) -> Any:
            self._sink, kept = NullSink(), self._sink
            try:
                return await task.call(None)
            finally:
                self._sink = kept

        return Task(drain, task.prepare, task.proof, task.shared)

    def drain_audited(self) -> Task:
        return self._drain(BATCH)

    drain_erasures = drain_audited

    def enqueue(self) -> Task:
        return Task(self._enqueue, lambda number: [[self._entry()] for _ in self._orders(number)])

    def enqueue_bulk(self) -> Task:
        bulk = self.setup.bulk

        def prepare(number: int) -> list[list[OutboxEntry]]:
            return [[self._entry() for _ in self._orders(bulk)] for _ in range(number)]

        return Task(self._enqueue, prepare, shared=bulk)


def contenders(setup: Setup) -> Makers:
    made: Makers = {
        store: {peer.label: partial(peer, setup, store) for peer in (Effaced, Pgqueuer, Procrastinate)}
        for store in SERVERS
    }
    made["postgres"]["dbos"] = partial(Dbos, setup, "postgres")  # there is one in a process
    return made
