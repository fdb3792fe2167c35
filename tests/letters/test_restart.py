"""PostgreSQL and Redis are restarted under load: nothing that was kept is lost, and guarded calls do not notice."""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.app import Holdfast
from holdfast.guard.retry import Retry
from holdfast.kinds import KINDS
from holdfast.letters.recovery import RecoveryPolicy
from holdfast.letters.replaying import current_replay
from holdfast.letters.worker import WorkerPolicy
from holdfast.telemetry.hub import Hub
from tests.services import postgres, redis
from tests.stores import Place

PATIENCE_S = 60.0
# A call that waits for the store would take its patience; only `make torture` has the machine to itself.
UNNOTICED_S = 1.0 if "SIZE" in os.environ else 10.0
CALLERS = 4


class Shop:
    """Callers whose calls fail for good, and a worker that replays them, over a server that comes and goes."""

    def __init__(self, url: str, spool: Path) -> None:
        self.hold = Holdfast(
            url, spool=spool, telemetry=Hub(), recovery=RecoveryPolicy(concurrency=2, settle_s=0.0, lease_s=1.0)
        )
        self.lock = threading.Lock()
        self.done: dict[str, int] = {}
        self.called: list[str] = []
        self.slowest = 0.0
        self.strange: list[BaseException] = []
        self.enough = threading.Event()
        kept = self.hold.guard("payments", Retry(attempts=1), dead_letter=True)
        self.charge = kept.replayable(name="charge")(self._charge)
        self.ask = self.hold.guard("prices", Retry(attempts=1), dead_letter=True)(lambda: 7)

    def _charge(self, order_id: str) -> None:
        if current_replay() is None:
            raise ConnectionError("the bank is away")
        with self.lock:
            self.done[order_id] = self.done.get(order_id, 0) + 1

    def call(self, caller: int) -> None:
        number = 0
        while not self.enough.is_set():
            order, number = f"{caller}-{number}", number + 1
            try:
                self.charge(order)
            except ConnectionError:
                self.called.append(order)
            except BaseException as error:
                self.strange.append(error)
            began = time.monotonic()
            if self.ask() != 7:
                self.strange.append(AssertionError("a wrong answer"))
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.enough.wait(0.005)  # a server of one core is to be loaded, not to be buried

    def settle(self) -> None:
        """Wait until everything that was called was replayed."""
        give_up = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up:
            self.hold.letters.box.ingest()
            self.hold.letters.release_stale_replaying(0)
            if not self.hold.letters.box.spool and not self.hold.letters.count_all():
                return
            self.enough.wait(0.05)
            self.hold.letters.replay_many("payments")


@pytest.mark.torture
@pytest.mark.parametrize("crash", [False, True], ids=["restart", "crash"])
@pytest.mark.parametrize("name", ["postgres", "redis"])
def test_restarts_under_load_lose_no_letter_and_no_call_notices(
    tmp_path: Path, name: str, crash: bool, seed: int, size: int
) -> None:
    rng = random.Random(seed)
    server: Any = postgres.private_server() if name == "postgres" else redis.private_server("--appendfsync", "always")
    url = server.fresh_database() if name == "postgres" else server.fresh()
    if name == "postgres":
        store: Any = Place(name, url, KINDS).open()
        store.create_tables()
        store.close()
    shop = Shop(url, tmp_path / "spool.jsonl")
    worker = shop.hold.worker(WorkerPolicy(poll_s=0.05, idle_s=0.2)).start()
    callers = [threading.Thread(target=shop.call, args=(n,)) for n in range(CALLERS)]
    for caller in callers:
        caller.start()
    try:
        for _ in range(size):
            _wait_for_more(shop, rng.randrange(20, 60))
            server.stop(crash=crash)
            _wait_for_more(shop, 10)
            server.start()
            _wait_for_more(shop, 20)
            _wait_for_replays(shop)
    finally:
        shop.enough.set()
        for caller in callers:
            caller.join(PATIENCE_S)
    shop.settle()
    assert worker.stop(PATIENCE_S)
    counts = shop.hold.letters.box.counts
    assert shop.strange == []
    assert counts["lost"] == 0
    assert counts["spooled"] > 0  # it was away while calls failed
    assert set(shop.called) - shop.done.keys() == set()
    assert shop.hold.letters.count(status="resolved") == shop.hold.letters.count()
    assert shop.hold.letters.count() >= len(shop.called)
    assert shop.slowest < UNNOTICED_S
    shop.hold.close()
    server.stop()


def _wait_for_more(shop: Shop, calls: int) -> None:
    give_up, enough = time.monotonic() + PATIENCE_S, len(shop.called) + calls
    while len(shop.called) < enough:
        assert time.monotonic() < give_up
        assert not shop.strange
        shop.enough.wait(0.01)


def _wait_for_replays(shop: Shop) -> None:
    """The worker goes on by itself, and soon."""
    give_up, before = time.monotonic() + 10.0, len(shop.done)
    while len(shop.done) == before:
        assert time.monotonic() < give_up
        shop.enough.wait(0.01)
