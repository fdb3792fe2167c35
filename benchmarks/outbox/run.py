"""Start the databases, and let the workers of both environments measure in turns."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from time import perf_counter

from benchmarks.outbox.counting import PREFIX
from benchmarks.outbox.rows import ROWS, SERVERS, TITLES
from benchmarks.outbox.setup import Setup, database
from benchmarks.run import Worker
from benchmarks.store.run import POSTGRES_OPTIONS, Progress, Results, Wish, collect

PLACES = ("mine", "peers", "dbos")


@dataclass(frozen=True)
class OutboxWish(Wish):
    """And how many entries; see `Setup`."""

    entries: int
    bulk: int
    sizes: tuple[int, ...]
    idle_s: float

    @property
    def stores(self) -> list[str]:
        return self.stores_of(ROWS, TITLES)


@contextmanager
def prepared(wish: OutboxWish, results: Results) -> Iterator[Setup]:
    """Private servers and a folder, gone afterwards."""
    urls = {"postgres": "", "mariadb": ""}
    if not set(SERVERS).isdisjoint(wish.stores):
        urls["postgres"], results.servers["PostgreSQL"] = start_postgres()
    if "mariadb" in wish.stores:
        urls["mariadb"] = start_mariadb(results)
    folder = tempfile.mkdtemp(prefix="holdfast-bench-")
    try:
        yield Setup(folder, **urls, entries=wish.entries, bulk=wish.bulk, sizes=wish.sizes, idle_s=wish.idle_s)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def start_postgres() -> tuple[str, str]:
    import psycopg

    from tests.services import postgres

    server = postgres.private_server(*POSTGRES_OPTIONS, "-c", f"log_line_prefix={PREFIX}")
    with psycopg.connect(server.url, autocommit=True) as connection:
        for name in [database(place, store) for place in PLACES for store in SERVERS]:
            connection.execute(f"CREATE DATABASE {name}")
            if name.endswith("_nowait"):
                connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
        ((version,),) = connection.execute("SHOW server_version").fetchall()
    return server.url, str(version)


def start_mariadb(results: Results) -> str:
    """Its URL; empty, and a complaint, on a machine without one."""
    from sqlalchemy import create_engine

    from tests.services import mariadb

    if not mariadb.AVAILABLE:
        results.complaints.append(mariadb.REASON)
        return ""
    server = mariadb.private_server()
    engine = create_engine(server.url)
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {database('mine', 'mariadb')}")
        ((version,),) = connection.exec_driver_sql("SELECT version()").fetchall()
    engine.dispose()
    results.servers["MariaDB"] = str(version).partition("-")[0]
    return server.url


def run(wish: OutboxWish, peers_python: str | None, progress: Progress) -> Results:
    """A whole run."""
    results = Results()
    with ExitStack() as stack:
        setup = stack.enter_context(prepared(wish, results))
        stores = [store for store in wish.stores if store != "mariadb" or setup.mariadb]
        pythons = {"mine": sys.executable} | ({"peers": peers_python} if peers_python else {})
        workers = [
            stack.enter_context(Worker(side, python, "benchmarks.outbox.worker", setup.to_json()))
            for side, python in pythons.items()
        ]
        results.complaints += [f"{worker.side}: {worker.complaint}" for worker in workers if worker.complaint]
        progress(0, 1, ("loading", f"{max(wish.sizes):,} entries", ""))
        began = perf_counter()
        for worker in workers:
            worker.send({"open": stores})
        for worker in workers:
            results.complaints += [f"{who}: {story}" for who, story in worker.read()["errors"].items()]
        results.took["loading"] = perf_counter() - began
        for worker in workers:
            worker.cases = [case for case in worker.cases if case[1] in stores]
        collect(workers, ROWS, wish, progress, results)
    return results
