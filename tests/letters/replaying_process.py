"""A process that replays letters until it is killed, or until nothing is left: for test_kill.py.

    python -m tests.letters.replaying_process many|drain|bulk <store url> <effects file>

It prints a line for every effect and for every result, so that its killer knows where it is.
"""

from __future__ import annotations

import random
import sqlite3
import sys
import threading
from typing import Any

from holdfast.backends.open import open_store
from holdfast.letters.bulk import Bulk
from holdfast.letters.events import LetterReplayed
from holdfast.letters.handlers import ReplayHandlers
from holdfast.letters.pace import BatchPolicy, replay_many
from holdfast.letters.recovery import Recovery, RecoveryPolicy
from holdfast.letters.replay import DELAYS, Replayer
from holdfast.letters.replaying import current_replay
from holdfast.letters.repository import FailedOperationRepository
from holdfast.machine.bulk import BULK
from holdfast.machine.drain import DOMAIN
from holdfast.machine.letter_record import LETTER
from holdfast.machine.letter_summary import SUMMARY
from holdfast.store.lease import LEASE
from holdfast.store.port import Store
from holdfast.telemetry.events import GuardEvent
from holdfast.telemetry.hub import Hub

KINDS = (LETTER, SUMMARY, BULK, DOMAIN, LEASE)
LEASE_S = 0.3


def store_at(url: str) -> Store:
    """Not fsynced where it is SQLite: a process is killed, and not the machine."""
    options: dict[str, Any] = {"durable": False} if url.startswith("sqlite") else {}
    return open_store(url, kinds=KINDS, **options)


def effects_of(path: str) -> sqlite3.Connection:
    """The outside world: what was really done, by the token of the attempt that did it."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=30, check_same_thread=False)
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute("CREATE TABLE IF NOT EXISTS effect (letter TEXT, token TEXT PRIMARY KEY, number INTEGER)")
    return connection


def main(mode: str, url: str, path: str) -> None:
    store = store_at(url)
    letters, handlers, hub = FailedOperationRepository(store), ReplayHandlers(), Hub()
    effects, lock = effects_of(path), threading.Lock()
    tokens: dict[str, str] = {}  # of the attempts that have begun here and are not told yet

    def say(*words: object) -> None:
        with lock:
            sys.stdout.write(" ".join(map(str, words)) + "\n")
            sys.stdout.flush()

    def work(number: int) -> None:
        replay = current_replay()
        assert replay is not None
        with lock:
            effects.execute("INSERT INTO effect VALUES (?, ?, ?)", (replay.id, replay.token, number))
        tokens[replay.id] = replay.token
        say("effect", replay.id, replay.token)
        if random.random() < 0.1:
            threading.Event().wait(0.05)  # long enough to lose the letter to somebody else
        # A drain slows down for failures, and being killed is enough for it.
        if mode != "drain" and random.random() < 0.1:
            raise ConnectionError("now and then")

    def told(event: GuardEvent) -> None:
        # An attempt that was acquired ahead of its turn can be lost before it has begun.
        if isinstance(event, LetterReplayed) and (token := tokens.pop(event.letter_id, None)) is not None:
            say(event.outcome, event.letter_id, token)

    hub.register(told)
    handlers.register_function("payments", "work", work)
    delays = type(DELAYS)(base=0.0)
    replayer = Replayer(letters, handlers, hub=hub, delays=delays, heartbeat_s=0.05)
    while letters.count_all():
        if mode == "many":
            replay_many(replayer, "payments", policy=BatchPolicy(limit=4, concurrency=2))
        elif mode == "drain":
            Recovery(replayer, RecoveryPolicy(concurrency=2, settle_s=0.0, lease_s=LEASE_S)).run()
        else:
            bulk = Bulk(replayer, concurrency=2, lease_s=LEASE_S)
            bulk.run_due()
            if all(one.is_over for one in bulk.find()):
                break
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
