"""Start the databases, and let the workers of both environments measure in turns, each in a process for each store."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from benchmarks.outbox.counting import PREFIX
from benchmarks.run import Worker
from benchmarks.store.run import POSTGRES_OPTIONS, Progress, Results, Wish, collect, on_core
from benchmarks.workflows.rows import ROWS, TITLES
from benchmarks.workflows.setup import PLACES, Setup


@dataclass(frozen=True)
class WorkflowsWish(Wish):
    """And how much; see `Setup`."""

    chain: int
    crowd: int
    fans: tuple[int, ...]
    kept: tuple[int, ...]
    idle_s: float
    asked_once = frozenset({"stabilize"})

    @property
    def stores(self) -> list[str]:
        return self.stores_of(ROWS, TITLES)


@contextmanager
def prepared(wish: WorkflowsWish, results: Results) -> Iterator[Setup]:
    """A private server and a folder, gone afterwards."""
    postgres = ""
    if "postgres" in wish.stores:
        postgres, results.servers["PostgreSQL"] = start_postgres()
    folder = tempfile.mkdtemp(prefix="holdfast-bench-")
    try:
        yield Setup(folder, postgres, wish.chain, wish.crowd, wish.fans, wish.kept, wish.idle_s)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def start_postgres() -> tuple[str, str]:
    import psycopg

    from tests.services import postgres

    server = postgres.private_server(*POSTGRES_OPTIONS, "-c", f"log_line_prefix={PREFIX}")
    with psycopg.connect(server.url, autocommit=True) as connection:
        for place in PLACES:
            connection.execute(f"CREATE DATABASE bench_{place}")
        ((version,),) = connection.execute("SHOW server_version").fetchall()
    return server.url, str(version)


def run(wish: WorkflowsWish, peers_python: str | None, progress: Progress) -> Results:
    """A whole run."""
    results = Results()
    with ExitStack() as stack:
        setup = stack.enter_context(prepared(wish, results))
        pythons = {"mine": sys.executable} | ({"peers": peers_python} if peers_python else {})
        for store in reversed(wish.stores):  # SQLite first, while the server has nothing to tidy up
            with on_core(1):  # on two, the threads of one process hand the interpreter to and fro
                workers = [
                    stack.enter_context(Worker(side, python, "benchmarks.workflows.worker", setup.to_json(), store))
                    for side, python in pythons.items()
                ]
            results.complaints += [f"{worker.side}: {worker.complaint}" for worker in workers if worker.complaint]
            collect(workers, ROWS, wish, progress, results)
    return results
