"""Runners that are killed: for test_runner_kill.py.

    python -m tests.outbox.running_process <database> <url> <effects file>

It forks a runner for every line that it reads, as a fork takes a hundredth of the time that a new interpreter takes.
Each runner prints its name and the entry's id for every call, until nothing is left or it is killed.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import sys
import traceback
from datetime import timedelta

from holdfast.audit.sink import DatabaseAuditSink
from holdfast.outbox.backoff import BackoffPolicy
from holdfast.outbox.outbox import Outbox
from holdfast.outbox.resolver import ResolverErasure, ResolverRegistry
from holdfast.outbox.runner import SagaRunner
from holdfast.outbox.subject import SubjectRef
from holdfast.telemetry.hub import Hub
from tests.databases import Database, open_database

# Nobody waits for a lease to end: the killer ends those of the dead.
PATIENT = BackoffPolicy(lease=timedelta(hours=1))


def effects_of(path: str) -> sqlite3.Connection:
    """The outside world: every call that was really made, with the key that came with it."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute("CREATE TABLE IF NOT EXISTS effect (entry TEXT, key TEXT)")
    return connection


def trail_of(database: Database) -> DatabaseAuditSink:
    tables = database.tables
    return DatabaseAuditSink(database.sessions, tables.audit_events, chain_heads=tables.chain_heads)


class Vendor:
    """Writes down each call, and takes its time over some."""

    name = "vendor"

    def __init__(self, runner: str, path: str) -> None:
        self._runner = runner
        self._effects = effects_of(path)

    async def export_subject(self, ref: SubjectRef) -> None: ...

    async def erase_subject(self, ref: SubjectRef, idempotency_key: object) -> ResolverErasure:
        self._effects.execute("INSERT INTO effect VALUES (?, ?)", (ref.value, str(idempotency_key)))
        os.write(1, f"{self._runner} {ref.value}\n".encode())
        await asyncio.sleep(random.choice((0.0, 0.01, 0.03)))
        return ResolverErasure(resolver=self.name)


async def run(name: str, url: str, path: str) -> None:
    database, me = open_database(name, url), f"runner-{os.getpid()}"
    registry = ResolverRegistry()
    registry.register(Vendor(me, path))
    outbox = Outbox(database.sessions, database.tables.outbox, name=me)
    runner = SagaRunner(
        registry, outbox, trail_of(database), max_attempts=1_000_000, batch_size=6, backoff=PATIENT, telemetry=Hub()
    )
    while True:
        if not await runner.run_once():
            await asyncio.sleep(0.02)


def main(name: str, url: str, path: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead are buried by the system
    for _ in sys.stdin:
        if os.fork() == 0:
            random.seed()
            os.write(1, f"runner-{os.getpid()} begins\n".encode())
            try:
                asyncio.run(run(name, url, path))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
