"""One of everything in a shop, for tests that go through all commands."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from holdfast.app import Holdfast
from holdfast.letters.bulk import LetterFilter
from holdfast.workflows.messages import CancelWorkflow
from tests.cli import shop
from tests.outbox.entries import enqueue, make_entry

SECRET = "hunter2"


class Things(NamedTuple):
    """What there is, by what commands call it."""

    letter: str
    other: str
    entry: str
    again: str
    verified: str
    saga: str
    flow: str
    failed: str
    finalizer: str
    dead: str
    gone: str
    operation: str


def filled(hold: Holdfast, monkeypatch: pytest.MonkeyPatch) -> Things:
    """Has a shop that is `whole` fail at everything."""
    letters = [
        hold.letters.create("payments", "F", error_message="ConnectionError: refused", request_data={"token": SECRET})
        for _ in range(3)
    ]
    hold.breakers.atomic_force_open("stock", "provider is down", "ann")
    rotator: Any = hold.pools["proxies"]
    rotator.request(lambda endpoint: "ok")
    with monkeypatch.context() as down:
        down.setenv(shop.DOWN, "1")
        with hold.sessions.begin() as session:
            entries = [
                hold.outbox.put(session, "send", {"order": 7, "password": SECRET}, target="mail") for _ in range(2)
            ]
        hold.worker().run_once()
        failed = hold.workflows.start("fulfil", {"id": 8, "password": SECRET}).id
        worker = hold.workflows.worker()
        worker.run_once()
        for _ in range(3):
            hold.workflows.finalizers.execute(f"{failed}.pack")
    now = datetime.now(UTC)
    denied = make_entry("ann", at=now, status="succeeded", last_attempt_at=now, verification="failed")
    enqueue(hold.outbox, denied)
    with hold.sessions.begin() as session:
        saga: UUID = hold.sagas.start(session, "order", {"order": 7, "password": SECRET}, subject_id="o-7")
    flow = hold.workflows.start("fulfil", {"id": 7, "password": SECRET}).id
    worker.run_once()
    for id in ("lost-1", "lost-2"):
        hold.workflows.queue.push(CancelWorkflow(execution_id="none", message_id=id, max_attempts=1))
    worker.run_once()
    worker.close()
    order = {"order": {"id": 9, "password": SECRET}}
    hold.workflows.schedules.add("daily", "fulfil", order, cron="0 3 * * *", by="ann")
    operation = hold.letters.bulk.start(LetterFilter(domain="nothing"), "resolve")
    [finalizer, *_] = hold.workflows.finalizers.find(failed)
    return Things(
        letters[0].id, letters[1].id, str(entries[0]), str(entries[1]), str(denied.entry_id), str(saga), flow, failed,
        finalizer.id, "lost-1", "lost-2", operation.id,
    )  # fmt: skip
