"""Somebody with access to the database changes the trail at random: it always shows."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa

from holdfast.audit.chain import link_hash
from holdfast.audit.rows import COLUMNS, in_utc, link_of
from holdfast.audit.sink import DatabaseAuditSink
from tests.audit.trail import event, sink_on
from tests.databases import TABLES, Database

EVENTS, HEADS, CHECKPOINTS = TABLES.audit_events, TABLES.chain_heads, TABLES.checkpoints
NUMBER = 40
log = logging.getLogger(__name__)
EVERYDAY = 50
"""So that the long run, of twenty times that, makes a thousand on each database."""


class Intruder:
    """Changes things on one connection. Each act gives False if it changed nothing."""

    def __init__(self, connection: sa.Connection, rng: random.Random, key: bytes | None) -> None:
        self.connection, self.rng, self.guess = connection, rng, key
        self.rows: list[Any] = list(connection.execute(sa.select(EVENTS).order_by(EVENTS.c.stream, EVENTS.c.seq)))
        self.heads: list[Any] = list(connection.execute(sa.select(HEADS).order_by(HEADS.c.stream)))

    def act(self) -> str:
        acts: list[Callable[[], Any]] = [
            self.edit, self.edit, self.delete, self.swap_contents, self.swap_places, self.insert, self.insert_unhashed,
            self.truncate, self.edit_head, self.delete_head, self.move, self.edit_and_hash, self.rewrite_everything,
            self.truncate_with_head, self.remove_stream, self.insert_between, self.repeat, self.remove_everything,
        ]  # fmt: skip
        while True:
            act = self.rng.choice(acts)
            if act() is not False:
                return act.__name__

    def edit(self) -> Any:
        row, name = self.rng.choice(self.rows), self.rng.choice(COLUMNS)
        value = self._other(name, getattr(row, name))
        if name in ("stream", "seq") and any(
            (one.stream, one.seq) == ((value, row.seq) if name == "stream" else (row.stream, value))
            for one in self.rows
        ):
            return False
        return self._set(row, **{name: value})

    def _other(self, name: str, old: Any) -> Any:
        match name:
            case "event_id" | "entry_id":
                return UUID(int=self.rng.getrandbits(128), version=4)
            case "occurred_at":
                return in_utc(old) + timedelta(microseconds=self.rng.choice((1, -1, 10**6, 3600 * 10**6)))
            case "payload":
                changes: list[dict[str, Any]] = [
                    {"new": 1},
                    {"external": int(old["external"])},
                    {"refs": str(old["refs"])},
                ]
                return {**old, **self.rng.choice(changes)}
            case "seq":
                return old + self.rng.choice((1, -1, 100))
            case "stream":
                return self.rng.choice(["zz", *{row.stream for row in self.rows} - {old}, None])
            case "prior_hash" | "event_hash":
                return self.rng.choice([f"{self.rng.getrandbits(256):064x}", None if old else "0" * 64])
        return old + "x" if self.rng.random() < 0.5 else old.upper()

    def delete(self) -> None:
        for row in self.rng.sample(self.rows, self.rng.randint(1, 3)):
            self.connection.execute(EVENTS.delete().where(EVENTS.c.event_id == row.event_id))

    def swap_contents(self) -> None:
        one, two = self.rng.sample(self.rows, 2)
        names = ("event_type", "subject_ref", "occurred_at", "payload", "entry_id")
        for to, source in ((one, two), (two, one)):
            self._set(to, **{name: getattr(source, name) for name in names})

    def swap_places(self) -> None:
        one, two = self.rng.sample(self.rows, 2)
        names = ("stream", "seq", "prior_hash", "event_hash")
        self._set(one, stream="aside")
        self._set(two, **{name: getattr(one, name) for name in names})
        self._set(one, **{name: getattr(two, name) for name in names})

    def insert(self) -> None:
        """After the end, linked properly, but hashed without the key and without moving the head."""
        last = self.rng.choice([row for row in self.rows if self._is_last(row)])
        self._add(last, self.guess)

    def insert_unhashed(self) -> None:
        row = self.rng.choice(self.rows)
        new = {**row._asdict(), "event_id": UUID(int=self.rng.getrandbits(128), version=4), "stream": None, "seq": None}
        latest = max(one.occurred_at for one in self.rows)
        self.connection.execute(
            EVENTS.insert(), [{**new, "prior_hash": None, "event_hash": None, "occurred_at": latest}]
        )

    def truncate(self) -> None:
        row = self.rng.choice(self.rows)
        self.connection.execute(EVENTS.delete().where(EVENTS.c.stream == row.stream, EVENTS.c.seq >= row.seq))

    def edit_head(self) -> None:
        head = self.rng.choice(self.heads)
        mine = HEADS.update().where(HEADS.c.stream == head.stream)
        changes: list[dict[str, Any]] = [
            {"seq": head.seq + 1}, {"seq": head.seq - 1}, {"last_hash": "0" * 64}, {"last_hash": None},
            {"stream": "zz"},
        ]  # fmt: skip
        self.connection.execute(mine.values(self.rng.choice(changes)))

    def delete_head(self) -> None:
        head = self.rng.choice(self.heads)
        self.connection.execute(HEADS.delete().where(HEADS.c.stream == head.stream))

    def move(self) -> None:
        """The end of one stream to the end of another, with both heads set to match."""
        last = self.rng.choice([row for row in self.rows if self._is_last(row) and row.seq > 1])
        to = self.rng.choice([head for head in self.heads if head.stream != last.stream])
        self._set(last, stream=to.stream, seq=to.seq + 1)
        self._head(last.stream, last.seq - 1, last.prior_hash)
        self._head(to.stream, to.seq + 1, last.event_hash)

    def edit_and_hash(self) -> None:
        """One event, hashed anew as if there were no key."""
        row = self.rng.choice(self.rows)
        link = link_of(row)._replace(payload={"refs": -1})
        self._set(row, payload={"refs": -1}, event_hash=link_hash(link, self.guess))

    def rewrite_everything(self) -> Any:
        """A whole stream, hashed anew, head included: only a key that is not known prevents that."""
        if self.guess is None:
            return False
        stream = self.rng.choice(self.heads).stream
        prior, seq = None, 0
        for row in self.rows:
            if row.stream == stream:
                link = link_of(row)._replace(prior_hash=prior, payload={"refs": -1})
                prior, seq = link_hash(link, self.guess), row.seq
                self._set(row, payload={"refs": -1}, prior_hash=link.prior_hash, event_hash=prior)
        self._head(stream, seq, prior)
        return None

    def truncate_with_head(self) -> None:
        """The end and the head together: only a checkpoint shows that."""
        row = self.rng.choice([row for row in self.rows if row.seq > 1])
        self.connection.execute(EVENTS.delete().where(EVENTS.c.stream == row.stream, EVENTS.c.seq >= row.seq))
        self._head(row.stream, row.seq - 1, row.prior_hash)

    def remove_stream(self) -> None:
        stream = self.rng.choice(self.heads).stream
        for table in (EVENTS, HEADS):
            self.connection.execute(table.delete().where(table.c.stream == stream))

    def insert_between(self) -> None:
        """An event in the midst of a stream: all behind it move on by one, hashed anew, head included."""
        at = self.rng.choice(self.rows)
        behind = [row for row in self.rows if row.stream == at.stream and row.seq > at.seq]
        for row in reversed(behind):
            self._set(row, seq=row.seq + 1)
        prior = self._add(at, self.guess)
        for row in behind:
            link = link_of(row)._replace(seq=row.seq + 1, prior_hash=prior)
            prior = link_hash(link, self.guess)
            self._set(row, prior_hash=link.prior_hash, event_hash=prior)
        self._head(at.stream, at.seq + 1 + len(behind), prior)

    def repeat(self) -> None:
        """An event once more, at the end of its stream, with the head set to match: only the id is new."""
        row = self.rng.choice(self.rows)
        last = next(one for one in self.rows if one.stream == row.stream and self._is_last(one))
        self._head(row.stream, last.seq + 1, self._add(last, self.guess))

    def remove_everything(self) -> None:
        """All events and all heads: only checkpoints know that there was a trail."""
        for table in (EVENTS, HEADS):
            self.connection.execute(table.delete())

    def _is_last(self, row: Any) -> bool:
        return any((head.stream, head.seq) == (row.stream, row.seq) for head in self.heads)

    def _add(self, last: Any, key: bytes | None) -> str:
        link = link_of(last)._replace(
            event_id=UUID(int=self.rng.getrandbits(128), version=4), seq=last.seq + 1, prior_hash=last.event_hash
        )
        hashed = link_hash(link, key)
        self.connection.execute(EVENTS.insert(), [{**link._asdict(), "event_hash": hashed}])
        return hashed

    def _set(self, row: Any, **values: Any) -> Any:
        if all(getattr(row, name) == value for name, value in values.items() if name != "payload") and (
            "payload" not in values
        ):
            return False
        self.connection.execute(EVENTS.update().where(EVENTS.c.event_id == row.event_id).values(values))
        return None

    def _head(self, stream: str, seq: int, last_hash: str | None) -> None:
        self.connection.execute(HEADS.update().where(HEADS.c.stream == stream).values(seq=seq, last_hash=last_hash))


def filled(database: Database, rng: random.Random) -> DatabaseAuditSink:
    """A trail with a key, four streams and checkpoints of all of them."""
    sink = sink_on(database, streams=4, key=b"secret")
    events = [event(n, f"subject-{rng.randrange(12)}", entry_id=UUID(int=n)) for n in range(NUMBER)]
    sink.run(lambda session: sink.append_in(session, events))
    sink.checkpoint()
    assert all(sink.verify_all())
    return sink


@pytest.mark.torture
def test_every_manipulation_is_detected(database: Database, seed: int, size: int) -> None:
    rng, kinds = random.Random(seed), Counter[str]()
    sink = filled(database, rng)
    with database.engine.connect() as connection:
        kept = {table: [row._asdict() for row in connection.execute(table.select())] for table in (EVENTS, HEADS)}
    missed = []
    for number in range(EVERYDAY * size):
        with database.engine.begin() as connection:
            what = Intruder(connection, rng, rng.choice((None, b"guess"))).act()
        kinds[what] += 1
        if all(sink.verify_all()):
            missed.append((number, what))
        with database.engine.begin() as connection:
            for table, rows in kept.items():
                connection.execute(table.delete())
                connection.execute(table.insert(), rows)
    log.info("%d manipulations, all to be found: %s", sum(kinds.values()), dict(kinds))
    assert missed == []
    assert all(sink.verify_all())
