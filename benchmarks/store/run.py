"""Start the servers, fill them, and let the workers of both environments measure in turns."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from benchmarks.run import HERE, Case, Worker
from benchmarks.store.rows import BY_KEY, ROWS, TITLES
from benchmarks.store.setup import Setup

SERVED = ("postgres", "redis")
# What is loaded once serves the rows with and without the wait for the disk.
POSTGRES_OPTIONS = ("-c", "max_wal_size=8GB", "-c", "shared_buffers=512MB")
REDIS_OPTIONS = ("--auto-aof-rewrite-percentage", "0")
Progress = Callable[[int, int, Case], None]


@dataclass
class Results:
    """Every figure of a run by row, store and label; the counts; and what went wrong."""

    figures: dict[Case, list[float]] = field(default_factory=dict)
    counts: dict[Case, dict[str, float]] = field(default_factory=dict)
    errors: dict[Case, str] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    servers: dict[str, str] = field(default_factory=dict)
    took: dict[str, float] = field(default_factory=dict)

    def value(self, key: str, store: str, label: str) -> float | None:
        figures = self.figures.get((key, store, label))
        return min(figures) if figures else None

    def labels(self, key: str, store: str) -> set[str]:
        return {case[2] for case in self.figures if case[:2] == (key, store)}


@dataclass(frozen=True)
class Wish:
    """What to measure: rows by a regular expression over `key store`, sizes, rounds, seconds per sample."""

    rows: re.Pattern[str]
    letters: int
    done: int
    redis_done: int
    rounds: int
    samples: int
    seconds: float

    def wants(self, case: Case) -> bool:
        return bool(self.rows.search(f"{case[0]} {case[1]}"))

    @property
    def stores(self) -> list[str]:
        wanted = {store for row in ROWS for store in row.stores if self.wants((row.key, store, ""))}
        return [store for store in TITLES if store in wanted]


@contextmanager
def prepared(wish: Wish, results: Results) -> Iterator[Setup]:
    """Private servers and a folder, gone afterwards."""
    urls = {"postgres": "", "redis": ""}
    families = {store.partition("-")[0] for store in wish.stores}
    if "postgres" in families:
        urls["postgres"], results.servers["PostgreSQL"] = start_postgres()
    if "redis" in families:
        urls["redis"], results.servers["Redis"] = start_redis()
    folder = tempfile.mkdtemp(prefix="holdfast-bench-")
    try:
        yield Setup(folder, letters=wish.letters, done=wish.done, redis_done=wish.redis_done, **urls)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def start_postgres() -> tuple[str, str]:
    import psycopg

    from tests.services import postgres

    server = postgres.private_server(*POSTGRES_OPTIONS)
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE bench_peers")
        ((version,),) = connection.execute("SHOW server_version").fetchall()
    return server.url, str(version)


def start_redis() -> tuple[str, str]:
    from tests.services import redis

    server = redis.private_server(*REDIS_OPTIONS)
    with server.client() as client:
        return server.url, str(client.info("server")["redis_version"])


def load(setup: Setup, workers: list[Worker], stores: list[str], results: Results) -> None:
    """Fill the places: one process per kind of store, and each worker for what only it has."""
    families = list(dict.fromkeys(store.partition("-")[0] for store in stores))

    def fill(family: str) -> str:
        command = [sys.executable, "-m", "benchmarks.store.load", family, setup.to_json()]
        done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else f"{family} was not filled: {done.stderr.strip()[-500:]}"

    began = perf_counter()
    with ThreadPoolExecutor(2) as pool:
        peers = [worker for worker in workers if worker.side == "peers"]
        for worker in peers:
            worker.send({"open": stores})
        filled = pool.map(fill, [family for family in families if family != "memory"])
        results.complaints += [story for story in filled if story]
        answers = [worker.read() for worker in peers]
    for worker in workers:
        if worker not in peers:
            worker.send({"open": stores})
            answers.append(worker.read())
    results.complaints += [f"{who}: {story}" for answer in answers for who, story in answer["errors"].items()]
    os.sync()  # or the disk would still be busy with it when the clock starts
    results.took["loading"] = perf_counter() - began


def collect(workers: list[Worker], wish: Wish, progress: Progress, results: Results) -> None:
    """Measure every wanted case in each round: row by row, store by store, worker by worker."""
    plan = [
        (worker, case)
        for row in ROWS
        for store in row.stores
        for worker in workers
        for case in worker.cases
        if case[:2] == (row.key, store) and wish.wants(case)
    ]
    began = perf_counter()
    for turn in range(wish.rounds):
        for index, (worker, case) in enumerate(plan):
            progress(turn * len(plan) + index, wish.rounds * len(plan), case)
            if case not in results.errors:
                answer = worker.ask(case, wish.samples, wish.seconds)
                if "error" in answer:
                    results.errors[case] = answer["error"]
                else:
                    results.figures.setdefault(case, []).extend(answer["figures"])
    for worker, case in plan:
        if case not in results.errors and case[1] in BY_KEY[case[0]].counted:
            worker.send({"case": case, "count": True})
            answer: dict[str, Any] = worker.read()
            if "error" in answer:
                results.complaints.append(f"{' '.join(case)} could not be counted: {answer['error']}")
            else:
                results.counts[case] = answer["counts"]
    results.took["measuring"] = perf_counter() - began


def run(wish: Wish, peers_python: str | None, progress: Progress) -> Results:
    """A whole run."""
    results = Results()
    with ExitStack() as stack:
        setup = stack.enter_context(prepared(wish, results))
        pythons = {"mine": sys.executable} | ({"peers": peers_python} if peers_python else {})
        workers = [
            stack.enter_context(Worker(side, python, "benchmarks.store.worker", setup.to_json()))
            for side, python in pythons.items()
        ]
        results.complaints += [f"{worker.side}: {worker.complaint}" for worker in workers if worker.complaint]
        progress(0, 1, ("loading", f"{wish.letters:,} letters", ""))
        load(setup, workers, wish.stores, results)
        collect(workers, wish, progress, results)
    return results
