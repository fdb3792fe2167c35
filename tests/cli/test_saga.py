"""`holdfast saga`, on the database of a shop whose orders are sagas."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from click.testing import Result

from holdfast.app import Holdfast
from holdfast.core.clock import SYSTEM_CLOCK
from tests.cli import conftest
from tests.databases import open_database
from tests.outbox.sagas import Shop, order_saga

Run = Callable[..., Result]
WIDE: dict[str, str | None] = {"COLUMNS": "200"}
APP: dict[str, str | None] = {**WIDE, "HOLDFAST_APP": "tests.cli.shop:ordering", "HOLDFAST_URL": None}


@pytest.fixture
def shop(url: str, hold: Holdfast) -> Iterator[Shop]:
    database = open_database("sqlite", url)
    yield Shop(database, order_saga(), clock=cast("Any", SYSTEM_CLOCK))
    database.engine.dispose()


@pytest.fixture
def run(run: conftest.Run) -> Run:
    return lambda *args, **options: run("saga", *args, **{"env": APP, **options})


def test_sagas_are_listed_with_where_they_are(shop: Shop, run: Run) -> None:
    assert "no sagas match" in run("list").stderr
    saga_id = shop.start("order", subject_id="o-7")
    shop.succeed("reserve")
    line = conftest.lines(run("list", "--state", "running"))[1].split()
    assert line == [str(saga_id), "order", "1", "running", "charge", "0s", "o-7"]
    assert json.loads(run("list", "--state", "stuck", "--json").stdout) == {"items": [], "next": None}
    [found] = json.loads(run("list", "--subject", "o-7", "--json").stdout)["items"]
    assert (found["saga_id"], found["state"], found["steps"][0]["state"]) == (str(saga_id), "running", "done")


def test_one_saga_is_shown_with_its_steps_and_calls_and_without_secrets(shop: Shop, run: Run) -> None:
    saga_id = shop.start("order", {"order": 7, "password": "hunter2"})
    shop.succeed("reserve")
    shop.abandon("charge")
    shown = run("show", str(saga_id)).stdout
    assert "hunter2" not in shown
    assert "charge: Refused" in shown
    assert shown.count("backward") == 1
    full = json.loads(run("show", str(saga_id), "--json").stdout)
    assert [entry["status"] for entry in full["entries"]] == ["succeeded", "abandoned", "pending"]
    assert "hunter2" not in json.dumps(full)


def test_a_saga_is_cancelled_once(shop: Shop, run: Run) -> None:
    saga_id = str(shop.start("order"))
    assert run("cancel", saga_id, "--reason", "ChangedMind").stdout == f"saga {saga_id} is compensated\n"
    assert "cannot be cancelled: it is compensated" in run("cancel", saga_id, code=1).stderr


def test_a_stuck_saga_is_resumed_or_resolved(shop: Shop, run: Run) -> None:
    saga_id = str(shop.start("order"))
    assert "it is running, not stuck" in run("resume", saga_id, code=1).stderr
    shop.abandon("reserve")
    shop.abandon("reserve")
    assert json.loads(run("resume", saga_id, "--json").stdout)["state"] == "compensating"
    shop.abandon("reserve")
    assert "given up nothing in step 'ship'" in run("resolve", saga_id, "ship", code=1).stderr
    assert run("resolve", saga_id, "reserve").stdout == f"saga {saga_id} is compensated\n"


def test_what_is_not_there_is_said(shop: Shop, run: Run) -> None:
    assert "no id of a saga" in run("show", "seven", code=2).stderr
    assert "there is no saga" in run("show", "00000000-0000-0000-0000-000000000000", code=3).stderr
    saga_id = str(shop.start("order"))
    assert "give --app of its program" in run("cancel", saga_id, code=1, env=WIDE).stderr
    assert "order 1" in run("show", saga_id, env=WIDE).stdout
