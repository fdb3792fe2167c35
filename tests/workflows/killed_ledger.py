"""A worker whose tasks write with their steps, to be killed: `python -m tests.workflows.killed_ledger URL`."""

from __future__ import annotations

import sys
from typing import Any

import sqlalchemy as sa

from holdfast import Holdfast, current_session, current_task, task, workflow

ENTRIES = sa.Table("entries", sa.MetaData(), sa.Column("key", sa.String(100)))
"""Nothing in it is unique: what is written twice is there twice."""
STEPS = 4
hold: Holdfast


@task(effect="transactional")
def book(number: int) -> int:
    here = current_task()
    assert here is not None
    session = current_session()
    session.execute(ENTRIES.insert().values(key=here.idempotency_key))
    hold.outbox.publish(session, "booked", {"key": here.idempotency_key})
    return number + 1


@workflow
def books(number: int) -> Any:
    for _ in range(STEPS):
        number = book(number)
    return number


def hold_at(url: str) -> Holdfast:
    made = Holdfast(url, background=False)
    made.workflows.add(books)
    return made


if __name__ == "__main__":
    hold = hold_at(sys.argv[1])
    hold.workflows.worker(ttl_s=2).run()
