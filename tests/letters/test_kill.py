"""Workers are killed while they replay: nothing is lost, nothing stale is completed, no letter has two owners."""

from __future__ import annotations

import queue
import random
import subprocess
import sys
import threading
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast.letters.bulk import Bulk, LetterFilter
from holdfast.letters.handlers import ReplayHandlers
from holdfast.letters.replay import Replayer
from holdfast.letters.repository import FailedOperationRepository
from tests.letters.replaying_process import KINDS, LEASE_S, effects_of, store_at
from tests.stores import make_place

ROOT = Path(__file__).parents[2]
WORKERS = 3
STORES = ("sqlite", "postgres", "redis")


class Yard:
    """A store, its letters, and processes that replay them."""

    def __init__(self, name: str, folder: Path, mode: str, number: int) -> None:
        self.url, self.effects = make_place(name, folder, KINDS).url, str(folder / "effects.db")
        self.mode = mode
        self.store = store_at(self.url)
        self.letters = FailedOperationRepository(self.store)
        self.ids = [letter.id for letter in self.letters.create_many(_letter(n) for n in range(number))]
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.said: list[tuple[str, str, str]] = []
        self.running: list[subprocess.Popen[str]] = []
        effects_of(self.effects).close()

    def spawn(self) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.letters.replaying_process", self.mode, self.url, self.effects],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.running.append(process)
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()

    def kill(self, process: subprocess.Popen[str]) -> None:
        process.kill()
        process.wait()
        self.running.remove(process)

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.lines.put(line)
        process.stdout.close()
        self.lines.put("")

    def hear(self, patience: float = 60.0) -> bool:
        """Wait for the next line of any process; False when none came."""
        try:
            words = self.lines.get(timeout=patience).split()
        except queue.Empty:
            return False
        if len(words) == 3:
            self.said.append((words[0], words[1], words[2]))
        return True

    def close(self) -> None:
        for process in list(self.running):
            self.kill(process)
        self.store.close()


def _letter(n: int) -> dict[str, Any]:
    return {
        "domain": "payments",
        "failure_type": "CIRCUIT_BREAKER_OPEN",
        "entity_type": "order",
        "entity_id": f"o{n % 50}",
        "request_data": {"function": "work", "args": {"number": n}},
        "max_retries": 100_000,
    }


@pytest.mark.torture
@pytest.mark.parametrize("mode", ["many", "drain"])
@pytest.mark.parametrize("name", STORES)
def test_killed_replays_lose_nothing_and_complete_nothing_twice(
    tmp_path: Path, name: str, mode: str, seed: int, size: int
) -> None:
    """Leases are taken from the living as well as from the dead, so that late owners try to complete."""
    rng, kills = random.Random(seed), 5 * size
    yard = Yard(name, tmp_path, mode, 100 * kills)
    try:
        for _ in range(WORKERS):
            yard.spawn()
        for _ in range(kills):
            for _ in range(rng.randrange(1, 60)):
                assert yard.hear()
                if rng.random() < 0.5:
                    yard.letters.release_stale_replaying(0)
            yard.kill(rng.choice(yard.running))
            yard.letters.release_stale_replaying(0)
            yard.spawn()
        while yard.letters.count_all():
            if not yard.hear(0.1):
                yard.letters.release_stale_replaying(0)
        for process in list(yard.running):
            assert process.wait(60) == 0
        while yard.hear(0.1):
            pass
        _check(yard)
    finally:
        yard.close()


def _check(yard: Yard) -> None:
    assert yard.letters.count() == len(yard.ids)
    effects: dict[str, set[str]] = {}
    with effects_of(yard.effects) as connection:
        for letter, token in connection.execute("SELECT letter, token FROM effect"):
            effects.setdefault(letter, set()).add(token)
    connection.close()
    ended: dict[str | None, str | None] = {}
    for id in yard.ids:
        attempts = yard.letters.get_attempts(id)
        outcomes = [attempt.outcome for attempt in attempts]
        ended.update({attempt.token: attempt.outcome for attempt in attempts})
        assert outcomes.count("succeeded") == 1
        assert outcomes[-1] == "succeeded"
        # What an attempt did counts only if its token was the letter's when it ended.
        assert attempts[-1].token in effects[id]
        assert effects[id] <= {attempt.token for attempt in attempts}
        assert len({attempt.token for attempt in attempts}) == len(attempts)
        assert [attempt.number for attempt in attempts] == list(range(1, len(attempts) + 1))
        for one, after in pairwise(attempts):
            assert one.finished_at is not None
            assert one.finished_at <= after.started_at
    for said, _, token in yard.said:
        if said in ("succeeded", "failed"):
            assert ended[token] == said  # who was told that it counts ended its own attempt
        elif said == "lost":
            assert ended[token] == "released"
    assert "released" in ended.values()


@pytest.mark.torture
@pytest.mark.parametrize("name", STORES)
def test_a_killed_bulk_operation_is_carried_on(tmp_path: Path, name: str, seed: int, size: int) -> None:
    rng, kills = random.Random(seed), 3 * size
    yard = Yard(name, tmp_path, "bulk", 150 * kills)
    bulk = Bulk(Replayer(yard.letters, ReplayHandlers()), lease_s=LEASE_S)
    begun = bulk.start(LetterFilter(domain="payments"), confirm_count=len(yard.ids))
    try:
        for _ in range(kills):
            yard.spawn()
            for _ in range(rng.randrange(1, 120)):
                assert yard.hear()
            yard.kill(yard.running[0])
            yard.letters.release_stale_replaying(0)
        yard.spawn()
        assert yard.running[0].wait(60) == 0
        progress = bulk.progress(begun.id)
        assert progress is not None
        assert (progress.state, progress.total) == ("done", len(yard.ids))
        assert progress.done <= len(yard.ids)
        statuses = Counter(letter.status for letter in yard.letters.find(limit=len(yard.ids)))
        # A letter is left if its one try in this operation failed, or if its worker was killed over it.
        assert statuses["resolved"] >= len(yard.ids) * 0.7
        assert statuses["resolved"] + statuses["pending"] == len(yard.ids)
    finally:
        yard.close()
