"""Start the servers, fill them, and let the workers of both environments measure in turns."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, ClassVar

from benchmarks.run import HERE, Case, Worker
from benchmarks.store.rows import ROWS, TITLES
from benchmarks.store.setup import Setup

SERVED = ("postgres", "redis")
# What is loaded once serves the rows with and without the wait for the disk.
POSTGRES_OPTIONS = ("-c", "max_wal_size=8GB", "-c", "shared_buffers=512MB")
# Four copies of the letters are in one server, and a checkpoint would come over one contender and not the other.
STEADY_OPTIONS = ("-c", "checkpoint_timeout=1h", "-c", "shared_buffers=2GB")
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

    def all(self, key: str, store: str) -> dict[str, list[float]]:
        """The figures by label, in the order in which they were taken."""
        return {case[2]: figures for case, figures in self.figures.items() if case[:2] == (key, store)}

    def labels(self, key: str, store: str) -> set[str]:
        return {case[2] for case in self.figures if case[:2] == (key, store)}


@dataclass(frozen=True)
class Wish:
    """What to measure: rows by a regular expression over `key store`, rounds, samples, seconds per sample."""

    rows: re.Pattern[str]
    rounds: int
    samples: int
    seconds: float
    by_turns: ClassVar[bool] = False
    """Whether contenders take turns with each sample, so that those that are compared are taken at the same time."""
    asked_once: ClassVar[frozenset[str]] = frozenset()
    """The contenders that take so long that one sample has to do."""

    def wants(self, case: Case) -> bool:
        return bool(self.rows.search(f"{case[0]} {case[1]}"))

    def stores_of(self, rows: Iterable[Any], order: Iterable[str]) -> list[str]:
        wanted = {store for row in rows for store in row.stores if self.wants((row.key, store, ""))}
        return [store for store in order if store in wanted]


@dataclass(frozen=True)
class StoreWish(Wish):
    """And how many letters."""

    letters: int
    done: int
    redis_done: int
    by_turns = True

    @property
    def stores(self) -> list[str]:
        return self.stores_of(ROWS, TITLES)


@contextmanager
def prepared(wish: StoreWish, results: Results) -> Iterator[Setup]:
    """Private servers and a folder, gone afterwards."""
    urls = {"postgres": "", "redis": ""}
    families = {store.partition("-")[0] for store in wish.stores}
    with on_core(0):
        if "postgres" in families:
            urls["postgres"], results.servers["PostgreSQL"] = start_postgres()
        if "redis" in families:
            urls["redis"], results.servers["Redis"] = start_redis()
    folder = tempfile.mkdtemp(prefix="holdfast-bench-")
    try:
        yield Setup(folder, letters=wish.letters, done=wish.done, redis_done=wish.redis_done, **urls)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def on_core(place: int) -> Iterator[None]:
    """Start processes on one core, where there are several.

    An answer from the same core comes after 35 µs, from another one after 90: by whatever the scheduler has just done.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) < 2:
        yield
        return
    os.sched_setaffinity(0, {cores[place]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def start_postgres() -> tuple[str, str]:
    import psycopg

    from tests.services import postgres

    server = postgres.private_server(*POSTGRES_OPTIONS, *STEADY_OPTIONS)
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


def collect(workers: list[Worker], rows: Sequence[Any], wish: Wish, progress: Progress, results: Results) -> None:
    """Measure every wanted case in each round: row by row, store by store, worker by worker."""
    by_key = {row.key: row for row in rows}
    groups = [
        [
            (worker, case)
            for worker in workers
            for case in worker.cases
            if case[:2] == (row.key, store) and wish.wants(case)
        ]
        for row in rows
        for store in row.stores
    ]
    plan = [asked for group in groups for asked in group]
    turns, samples = (wish.samples, 1) if wish.by_turns else (1, wish.samples)
    order = [asked for group in groups for asked in group * turns]
    order += [(worker, case) for worker, case in order if case[2] not in wish.asked_once] * (wish.rounds - 1)
    began = perf_counter()
    for index, (worker, case) in enumerate(order):
        progress(index, len(order), case)
        if case not in results.errors:
            answer = worker.ask(case, 1 if case[2] in wish.asked_once else samples, wish.seconds)
            if "error" in answer:
                results.errors[case] = answer["error"]
            else:
                results.figures.setdefault(case, []).extend(answer["figures"])
    for worker, case in plan:
        if case not in results.errors and case[1] in by_key[case[0]].counted:
            worker.send({"case": case, "count": True})
            answer: dict[str, Any] = worker.read()
            if "error" in answer:
                results.complaints.append(f"{' '.join(case)} could not be counted: {answer['error']}")
            else:
                results.counts[case] = answer["counts"]
    results.took["measuring"] = results.took.get("measuring", 0.0) + perf_counter() - began


def run(wish: StoreWish, peers_python: str | None, progress: Progress) -> Results:
    """A whole run."""
    results = Results()
    with ExitStack() as stack:
        setup = stack.enter_context(prepared(wish, results))
        pythons = {"mine": sys.executable} | ({"peers": peers_python} if peers_python else {})
        with on_core(1):
            workers = [
                stack.enter_context(Worker(side, python, "benchmarks.store.worker", setup.to_json()))
                for side, python in pythons.items()
            ]
        results.complaints += [f"{worker.side}: {worker.complaint}" for worker in workers if worker.complaint]
        progress(0, 1, ("loading", f"{wish.letters:,} letters", ""))
        load(setup, workers, wish.stores, results)
        collect(workers, ROWS, wish, progress, results)
    return results
