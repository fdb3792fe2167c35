"""The same commands on every store that processes can share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.app import Holdfast
from holdfast.cli.exits import ExitCode
from tests.cli import shop
from tests.cli.conftest import Run
from tests.databases import DATABASES
from tests.stores import SHARED_STORES, make_url

Answer = Callable[..., Any]


@pytest.mark.parametrize("name", SHARED_STORES)
def test_the_commands_work_on_every_shared_store(run: Run, answer: Answer, tmp_path: Path, name: str) -> None:
    url = make_url(name, tmp_path)
    here: dict[str, str | None] = {"HOLDFAST_URL": url, shop.URL: url}
    if name in DATABASES:
        run("db", "upgrade", env=here)
    with Holdfast(url) as hold:
        ids = [hold.letters.create("payments", "F", f"failure {at}").id for at in range(3)]
    assert [one["id"] for one in answer("letters", "list", env=here)["items"]] == ids[::-1]
    assert answer("letters", "facets", env=here)["by_domain"] == {"payments": 3}
    run("breakers", "force-open", "payments", "--reason", "down", env=here)
    assert [one["state"] for one in answer("breakers", "list", env=here)["items"]] == ["open"]
    run("letters", "resolve", ids[0], env=here)
    assert answer("letters", "bulk", "discard", "--yes", env=here)["succeeded"] == 2
    run("worker", "--once", env={**here, "HOLDFAST_APP": shop.APP})
    assert answer("db", "info", env=here)["letters"] == 3


@pytest.mark.parametrize("name", DATABASES)
def test_the_commands_of_the_outbox_work_on_every_database(
    run: Run, answer: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    url = make_url(name, tmp_path)
    here: dict[str, str | None] = {"HOLDFAST_URL": url, shop.URL: url}
    app: dict[str, str | None] = {**here, "HOLDFAST_URL": None, "HOLDFAST_APP": shop.CALLING}
    monkeypatch.setenv(shop.URL, url)
    if name != "sqlite":
        assert "run: holdfast db upgrade" in run("outbox", "list", env=here, code=ExitCode.NO_STORE).stderr
        assert "run: holdfast db upgrade" in run("saga", "list", env=here, code=ExitCode.NO_STORE).stderr
        run("db", "upgrade", env=here)
    with shop.calling() as hold, hold.sessions.begin() as session:
        ids = [
            str(hold.outbox.put(session, "send", {"order_id": f"o-{at}"}, target="mail", key=f"k-{at}"))
            for at in range(3)
        ]
        hold.outbox.put(session, "keep", {"order_id": "o-3"}, target="crm", queue="slow")
    assert answer("outbox", "counts", env=here)["by_status"]["pending"] == 4
    run("worker", "--once", env={**app, shop.DOWN: "1"})
    assert [one["entry_id"] for one in answer("outbox", "abandoned", env=here)["items"]] == ids
    page = answer("outbox", "list", "--status", "abandoned", "--limit", "2", env=here)
    assert [one["entry_id"] for one in page["items"]] == ids[:0:-1]
    assert [one["entry_id"] for one in answer("outbox", "list", "--key", "k-1", env=here)["items"]] == [ids[1]]
    shown = answer("outbox", "show", ids[0], env=app)
    assert (shown["history"][0]["outcome"], shown["events"][0]["event_type"]) == ("abandoned", "send_failed")
    assert shown["history"][0]["finished_at"].endswith("Z")
    assert answer("outbox", "requeue", "--target", "mail", "--yes", env=app)["requeued"] == 3
    assert answer("outbox", "cancel", ids[2], env=app)["cancelled"] == 1
    run("worker", "--once", "--queue", "default", "--queue", "slow", env=app)
    assert answer("outbox", "scheduled", env=here)["items"][0]["queue"] == "slow"
    assert answer("outbox", "prune", "--older-than", "0", "--yes", env=here) == {"matched": 2, "pruned": 2}
    run("outbox", "pause", "slow", env=here)
    [paused] = answer("outbox", "paused", env=here)["paused"]
    assert paused["paused_at"].endswith("Z")
    run("outbox", "resume", "slow", env=here)
    assert answer("saga", "list", env=here) == {"items": [], "next": None}
    assert "verified: " in run("audit", "verify", env=here).stdout
    shown = answer("db", "info", env=here)
    assert (shown["outbox_waiting"], shown["outbox_abandoned"]) == (1, 1)


def test_a_database_without_tables_says_how_to_make_them(run: Run) -> None:
    from tests.services import postgres

    here: dict[str, str | None] = {"HOLDFAST_URL": postgres.server().fresh_database()}
    error = run("letters", "list", env=here, code=ExitCode.NO_STORE).stderr
    assert "run: holdfast db upgrade" in error
    run("db", "check", env=here, code=ExitCode.NO_STORE)
    assert "upgraded from revision none to" in run("db", "upgrade", env=here).stdout
    run("db", "check", env=here)
    assert run("letters", "list", env=here).stderr == "no letters match\n"
