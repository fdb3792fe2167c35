"""Fill the stores, serve each, and ask; then very many at once; then a bulk operation whose worker is killed."""

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from threading import Event, Thread
from time import perf_counter
from typing import Any

from benchmarks.run import HERE
from benchmarks.server.rows import FLOODS, OPERATORS, ROWS
from benchmarks.server.served import Client, Served, serving
from benchmarks.server.setup import BULK_DOMAIN, TITLES, Setup
from benchmarks.server.traffic import Order
from benchmarks.store.run import Progress, Wish, start_postgres
from holdfast.app import Holdfast

HEALTH = "/health"
HEALTH_EVERY_S = 0.02
CONNECTIONS = 256
TOKENS = 10
"""Programs that read, each with a token of its own: 200 reads a second are what each of them may ask for."""
WARMING = 2


@dataclass(frozen=True)
class ServerWish(Wish):
    """And how many rows each table holds, letters are replayed, and requests there are in a second, for how long."""

    rows_kept: int
    bulk: int
    rate: int
    load_s: float

    @property
    def stores(self) -> list[str]:
        return [store for store in TITLES if any(self.wants((row.key, store, "")) for row in ROWS)]


@dataclass
class Traffic:
    """What became of very many requests: latencies in milliseconds by status, from when each was due; and what others
    saw meanwhile: milliseconds and refusals by what they asked for.
    """

    sent: int
    took_s: float
    latencies: dict[int, list[float]]
    unanswered: int
    broken: int
    client_cpu: float
    server_cpu: float
    meanwhile: dict[str, list[float]]
    refused: dict[str, int]


@dataclass
class Replayed:
    """A bulk operation whose worker was killed: letters that were done at that time, and in the end."""

    total: int
    done_at_kill: int
    resolved: int
    failed: int
    again: int
    state: str
    took_s: float


@dataclass
class Results:
    """Milliseconds of each request by row and store; whether its pages held something; and what went wrong."""

    figures: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    found: dict[tuple[str, str], float] = field(default_factory=dict)
    traffic: dict[tuple[str, str], Traffic] = field(default_factory=dict)
    replayed: dict[str, Replayed] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    servers: dict[str, str] = field(default_factory=dict)
    took: dict[str, float] = field(default_factory=dict)


@contextmanager
def prepared(wish: ServerWish, results: Results) -> Iterator[Setup]:
    """A private server and a folder, gone afterwards."""
    postgres = ""
    if "postgres" in wish.stores:
        postgres, results.servers["PostgreSQL"] = start_postgres()
    folder = tempfile.mkdtemp(prefix="holdfast-bench-")
    try:
        yield Setup(folder, postgres, wish.rows_kept, wish.bulk, time.time_ns() // 1000)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def load(setup: Setup, stores: Sequence[str], results: Results) -> None:
    """Each store by a process of its own."""

    def fill(store: str) -> str:
        command = [sys.executable, "-m", "benchmarks.server.load", store, setup.to_json()]
        done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else f"{store} was not filled: {done.stderr.strip()[-500:]}"

    with ThreadPoolExecutor(2) as pool:
        results.complaints += [story for story in pool.map(fill, stores) if story]
    os.sync()  # or the disk would still be busy with it when the clock starts


def ask(client: Client, setup: Setup, store: str, wish: ServerWish, progress: Progress, results: Results) -> None:
    """Every row, `samples` times in each round; the rounds apart, so that a noisy moment does not hit one row alone."""
    rows = [row for row in ROWS if wish.wants((row.key, store, ""))]
    for turn in range(wish.rounds):
        for at, row in enumerate(rows):
            progress(turn * len(rows) + at, wish.rounds * len(rows), (row.key, TITLES[store], ""))
            if turn == 0:
                for number in range(WARMING):
                    client.ask(row.address(setup, number))
            for number in range(turn * wish.samples, (turn + 1) * wish.samples):
                took, status, body = client.ask(row.address(setup, number))
                if status != 200:
                    results.complaints.append(f"{row.key} on {store}: {status} {body[:200]!r}")
                    break
                results.figures.setdefault((row.key, store), []).append(took)
                items = json.loads(body).get("items") if body.startswith(b"{") else None
                if items is not None:
                    results.found[row.key, store] = max(results.found.get((row.key, store), 0), len(items))
            if row.finds and results.found.get((row.key, store)) == 0 and row.path.count("/") == 1 and turn == 0:
                results.complaints.append(f"{row.key} on {store} found nothing, and should have")


@dataclass(frozen=True)
class Accounts:
    """Tokens of programs, and the cookie of an operator who has signed in."""

    tokens: tuple[str, ...]
    cookie: str


def accounts(url: str) -> Accounts:
    """From now on everybody has to say who they are."""
    with Holdfast(url, background=False) as hold:
        tokens = tuple(hold.access.create_token(f"reader {at}", role="viewer")[1] for at in range(TOKENS))
        hold.access.add_user("operator", secrets.token_urlsafe(), "operator")
        return Accounts(tokens, hold.access.begin_session("operator")[0])


def flood(served: Served, paths: tuple[str, ...], setup: Setup, known: Accounts, wish: ServerWish) -> Traffic:
    """Readers in a process of their own, while an operator works and somebody asks for the server's health."""
    order = Order(served.host, served.port, paths, wish.rate, wish.load_s, CONNECTIONS, known.tokens)
    stop = Event()
    seen: dict[str, list[float]] = {name: [] for name in (HEALTH, *OPERATORS)}
    refused: Counter[str] = Counter()

    def look(client: Client, every_s: float, wanted: Mapping[str, str]) -> None:
        for at, name in enumerate(cycle(wanted)):
            if stop.wait(every_s):
                return
            took, status, _ = client.ask(wanted[name].format(record=setup.record(1 + at % setup.rows)))
            seen[name].append(took)
            refused[name] += status != 200

    operator = Client(served, known.cookie)
    for address in OPERATORS.values():  # what a server does once is done
        operator.ask(address.format(record=setup.record(1)))
    watchers = [
        Thread(target=look, args=(Client(served), HEALTH_EVERY_S, {HEALTH: "/api/v1/health"})),
        Thread(target=look, args=(operator, 1 / len(OPERATORS), OPERATORS)),
    ]
    cpu, began = served.cpu_s(), perf_counter()
    for watcher in watchers:
        watcher.start()
    command = [sys.executable, "-m", "benchmarks.server.traffic"]
    try:
        done = subprocess.run(
            command, cwd=HERE.parent, input=order.to_json(), capture_output=True, text=True, check=True
        )
    finally:
        stop.set()
        for watcher in watchers:
            watcher.join()
    used = (served.cpu_s() - cpu) / (perf_counter() - began)
    told: dict[str, Any] = json.loads(done.stdout)
    return Traffic(
        told["sent"], told["took_s"], {int(status): times for status, times in told["latencies"].items()},
        told["unanswered"], told["broken"], told["cpu_s"] / told["took_s"], used, seen, dict(refused),
    )  # fmt: skip


def replay(setup: Setup, store: str) -> Replayed:
    """Start an operation by the API, kill its worker in the middle, and let another one end it."""
    url, effects = setup.url(store, "bulk"), Path(setup.folder) / f"{store}-effects"
    with serving(url) as served:
        client, began = Client(served), perf_counter()
        asked = {"action": "replay", "filter": {"domain": BULK_DOMAIN}}
        preview = client.post("/api/v1/bulk/preview", asked)
        started = client.post("/api/v1/bulk", {
            **asked, "filter": preview["filter"], "confirm_count": preview["total"], "reason": "a benchmark",
        })  # fmt: skip
        address = f"/api/v1/bulk/{started['id']}"

        def look(address: str) -> dict[str, Any]:
            # A new connection: one that is not used for seconds is closed by the server.
            found: dict[str, Any] = json.loads(Client(served).ask(address)[2])
            return found

        command = [sys.executable, "-m", "benchmarks.server.bulk_worker", url, str(effects)]
        with subprocess.Popen(command, cwd=HERE.parent) as worker:
            while look(address)["done"] < preview["total"] // 2 and worker.poll() is None:
                time.sleep(0.05)
            worker.kill()
        at_kill = look(address)["done"]
        subprocess.run(command, cwd=HERE.parent, check=True)
        done = look(address)
        counts = look("/api/v1/letters/facets")["by_status"]
        took = perf_counter() - began
    made = Counter(effects.read_text().split())
    if len(made) != setup.bulk:
        raise RuntimeError(f"{store}: {len(made)} of {setup.bulk} letters were replayed")
    again = sum(made.values()) - len(made)
    return Replayed(setup.bulk, at_kill, counts.get("resolved", 0), done["failed"], again, done["state"], took)


def run(wish: ServerWish, progress: Progress) -> Results:
    """A whole run."""
    results = Results()

    @contextmanager
    def timed(what: str) -> Iterator[None]:
        began = perf_counter()
        yield
        results.took[what] = results.took.get(what, 0.0) + perf_counter() - began

    with prepared(wish, results) as setup:
        progress(0, 1, ("loading", f"{wish.rows_kept:,} rows in each table", ""))
        with timed("loading"):
            load(setup, wish.stores, results)
        for store in wish.stores:
            with serving(setup.url(store)) as served:
                client = Client(served)
                with timed("asking"):
                    ask(client, setup, store, wish, progress, results)
            known = accounts(setup.url(store))
            for name, paths in FLOODS.items():
                progress(0, 1, ("reads", TITLES[store], f"{wish.rate:,} a second, {name}"))
                with timed("reads"), serving(setup.url(store)) as served:
                    results.traffic[name, store] = flood(served, paths(setup), setup, known, wish)
            progress(0, 1, ("bulk", TITLES[store], f"{wish.bulk:,} letters"))
            with timed("bulk"):
                results.replayed[store] = replay(setup, store)
    return results
