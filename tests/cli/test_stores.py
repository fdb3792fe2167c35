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
from tests.stores import SHARED_STORES, fresh_place

Answer = Callable[..., Any]


@pytest.mark.parametrize("name", SHARED_STORES)
def test_the_commands_work_on_every_shared_store(run: Run, answer: Answer, tmp_path: Path, name: str) -> None:
    with fresh_place(name, tmp_path) as place:
        with Holdfast(place.url) as hold:
            ids = [hold.letters.create("payments", "F", f"failure {at}").id for at in range(3)]
        here: dict[str, str | None] = {"HOLDFAST_URL": place.url, shop.URL: place.url}
        assert [one["id"] for one in answer("letters", "list", env=here)["letters"]] == ids[::-1]
        assert answer("letters", "facets", env=here)["by_domain"] == {"payments": 3}
        run("breakers", "force-open", "payments", "--reason", "down", env=here)
        assert [one["state"] for one in answer("breakers", "list", env=here)["breakers"]] == ["open"]
        run("letters", "resolve", ids[0], env=here)
        assert answer("letters", "bulk", "discard", "--yes", env=here)["succeeded"] == 2
        run("worker", "--once", env={**here, "HOLDFAST_APP": shop.APP})
        assert answer("db", "info", env=here)["letters"] == 3


def test_a_database_without_tables_says_how_to_make_them(run: Run) -> None:
    from tests.services import postgres

    here: dict[str, str | None] = {"HOLDFAST_URL": postgres.server().fresh_database()}
    error = run("letters", "list", env=here, code=ExitCode.NO_STORE).stderr
    assert "run: holdfast db upgrade" in error
    run("db", "check", env=here, code=ExitCode.NO_STORE)
    assert "upgraded from revision none to" in run("db", "upgrade", env=here).stdout
    run("db", "check", env=here)
    assert run("letters", "list", env=here).stderr == "no letters match\n"
