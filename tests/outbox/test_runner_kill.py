"""Runners are killed in the middle of everything: nothing is lost, and nothing is completed twice or not at all."""

from __future__ import annotations

import logging
import os
import queue
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.ids import new_entry_id
from holdfast.outbox.outbox import Outbox
from holdfast.outbox.subject import SubjectRef
from tests.databases import DATABASES, Database, fresh_database
from tests.outbox.running_process import effects_of, trail_of

ROOT = Path(__file__).parents[2]
RUNNERS = 3
PER_SUBJECT = 4
PER_KILL = 20
log = logging.getLogger(__name__)


class Yard:
    """Entries, and processes that run them."""

    def __init__(self, database: Database, folder: Path, number: int) -> None:
        self.database, self.effects = database, str(folder / "effects.db")
        self.outbox = Outbox(database.sessions, database.tables.outbox)
        entries = [_entry(n) for n in range(number)]
        self.ids = [entry.entry_id for entry in entries]
        self.outbox.run(lambda session: self.outbox.enqueue(session, entries))
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.running: list[str] = []
        self.dead: list[str] = []
        self.caught: set[tuple[Any, Any]] = set()
        effects_of(self.effects).close()
        self.nursery = subprocess.Popen(
            [sys.executable, "-m", "tests.outbox.running_process", database.name, database.url, self.effects],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.nursery.stdout is not None
        for line in self.nursery.stdout:
            self.lines.put(line)

    def spawn(self) -> None:
        assert self.nursery.stdin is not None
        self.nursery.stdin.write("\n")
        self.nursery.stdin.flush()
        known = len(self.running)
        while len(self.running) == known:
            assert self.hear()

    def hear(self, patience: float = 60.0) -> bool:
        """Wait for the next line of any runner; False when none came."""
        try:
            who, what = self.lines.get(timeout=patience).split()
        except queue.Empty:
            return False
        if what == "begins":
            self.running.append(who)
        return True

    def kill(self, who: str) -> None:
        """Kill a runner, and end its leases. What it was calling may be called again, and nothing else."""
        pid = int(who.removeprefix("runner-"))
        os.kill(pid, signal.SIGKILL)
        self.running.remove(who)
        self.dead.append(who)
        while _lives(pid):
            threading.Event().wait(0.001)
        self.end_leases(who)

    def end_leases(self, *dead: str) -> None:
        """A server may still have committed a claim after its client had died."""
        table = self.database.tables.outbox

        def work(session: Any) -> set[tuple[Any, Any]]:
            held = sa.select(table.c.entry_id, table.c.claim_token)
            held = held.where(table.c.claimed_by.in_(dead), table.c.status == "in_flight")
            rows = session.execute(held.order_by(table.c.entry_id).with_for_update()).all()
            past = datetime.now(UTC) - timedelta(days=1)
            ids = [row.entry_id for row in rows]
            session.execute(table.update().where(table.c.entry_id.in_(ids)).values(next_attempt_at=past))
            return {(row.entry_id, row.claim_token) for row in rows}

        self.caught |= self.outbox.run(work)

    def left(self) -> int:
        table = self.database.tables.outbox
        count = sa.select(sa.func.count()).where(table.c.status != "succeeded")
        return int(self.outbox.run(lambda session: session.execute(count).scalar_one()))

    def effects_made(self) -> list[tuple[str, str]]:
        """Every call that was made: the entry, and the key that came with it."""
        connection = effects_of(self.effects)
        effects = connection.execute("SELECT entry, key FROM effect").fetchall()
        connection.close()
        return effects

    def close(self) -> None:
        for who in list(self.running):
            self.kill(who)
        assert self.nursery.stdin is not None
        self.nursery.stdin.close()
        self.nursery.wait(60)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _entry(n: int) -> OutboxEntry:
    id = new_entry_id()
    return OutboxEntry(
        entry_id=id,
        subject_id=f"s{n // PER_SUBJECT}",
        resolver="vendor",
        ref=SubjectRef(kind="vendor", value=str(id)),
        enqueued_at=datetime.now(UTC),
    )


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", DATABASES)
def test_killed_runners_lose_nothing_and_complete_nothing_twice(
    tmp_path: Path, name: str, seed: int, size: int
) -> None:
    rng, kills = random.Random(seed), 5 * size
    with fresh_database(name, tmp_path) as database:
        yard = Yard(database, tmp_path, PER_KILL * kills)
        try:
            for _ in range(RUNNERS):
                yard.spawn()
            for _ in range(kills):
                for _ in range(rng.randrange(1, 2 * PER_KILL - 10)):
                    if not yard.hear(0.5):
                        break
                yard.kill(rng.choice(yard.running))
                yard.spawn()
            while yard.left():
                if not yard.hear(0.5):
                    yard.end_leases(*yard.dead)
        finally:
            yard.close()
        _check(yard)


def _check(yard: Yard) -> None:
    assert yard.outbox.status_counts()["succeeded"] == len(yard.ids)
    effects = yard.effects_made()
    assert all(entry == key for entry, key in effects)  # the same key for every call of an entry
    calls = Counter(entry for entry, _ in effects)
    assert set(calls) == {str(id) for id in yard.ids}
    cut_off = Counter(id for id, _ in yard.caught)  # in flight when its runner was killed, how often
    for id in yard.ids:
        assert calls[str(id)] <= 1 + cut_off[id]
    story = "%d entries, %d kills, %d calls, so %d twice; %d were in flight at the kills"
    log.info(story, len(yard.ids), len(yard.dead), len(effects), len(effects) - len(yard.ids), len(yard.caught))
    check_trail(yard)


def check_trail(yard: Yard) -> None:
    table = yard.database.tables.audit_events
    found = sa.select(table.c.event_type, table.c.entry_id, table.c.subject_ref)
    events = yard.outbox.run(lambda session: session.execute(found).all())
    steps = Counter(event.entry_id for event in events if event.event_type == "erasure_step_succeeded")
    assert steps == Counter(yard.ids)
    completed = Counter(event.subject_ref for event in events if event.event_type == "erasure_completed")
    assert completed == Counter(f"s{n}" for n in range(len(yard.ids) // PER_SUBJECT))
    assert all(one.verified for one in trail_of(yard.database).verify_all())
