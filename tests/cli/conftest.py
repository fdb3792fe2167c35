"""A shop on a SQLite file, and the command line that looks at it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast.app import Holdfast
from holdfast.cli.root import root
from tests.cli import shop
from tests.stores import make_migrated

Run = Callable[..., Result]


def lines(result: Result) -> list[str]:
    """What a command printed, with every age 0s: a slow machine's second must not matter."""
    return re.sub(r"\b\ds\b", "0s", result.stdout).splitlines()


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Where nothing is yet."""
    return f"sqlite:///{tmp_path / 'shop.db'}"


@pytest.fixture
def tables(tmp_path: Path) -> None:
    """They are there, whatever needs them first."""
    make_migrated(tmp_path / "shop.db")


@pytest.fixture
def hold(url: str, tables: None) -> Iterator[Holdfast]:
    """The program whose store the commands look at."""
    with Holdfast(url) as hold:
        hold.store.ping()
        hold.letters.count()
        yield hold


@pytest.fixture
def run(url: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command on that store, in a terminal's width but without a terminal."""
    for name in ("HOLDFAST_APP", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(shop.URL, url)

    def run(*args: str, code: int = 0, env: dict[str, str | None] | None = None) -> Result:
        result = CliRunner().invoke(root, args, env={"HOLDFAST_URL": url, "COLUMNS": "80", **(env or {})})
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.output
        return result

    return run


@pytest.fixture
def answer(run: Run) -> Callable[..., Any]:
    """The JSON document that a command prints."""

    def answer(*args: str, code: int = 0, env: dict[str, str | None] | None = None) -> Any:
        return json.loads(run(*args, "--json", code=code, env=env).stdout)

    return answer


@pytest.fixture
def filed(hold: Holdfast) -> Callable[..., str]:
    """Files a letter of the shop; its id."""

    def filed(domain: str = "payments", failure_type: str = "MAX_RETRIES_CONNECTIONERROR", **fields: Any) -> str:
        fields.setdefault("error_message", "ConnectionError: refused")
        return hold.letters.create(domain, failure_type, **fields).id

    return filed


@pytest.fixture
def failed(url: str, hold: Holdfast, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[str]]:
    """Lets charges fail; the ids of their letters, oldest first."""

    def failed(number: int = 1) -> list[str]:
        monkeypatch.setenv(shop.DOWN, "1")
        own, charge = shop.opened(url)
        with own:
            for at in range(number):
                with pytest.raises(ConnectionError):
                    charge(f"o-{at}", 100)
        monkeypatch.delenv(shop.DOWN)
        return [letter.id for letter in reversed(hold.letters.find(limit=number))]

    return failed


@pytest.fixture
def own(url: str, tables: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Holdfast]:
    """A shop whose orders are workflows."""
    monkeypatch.setenv(shop.URL, url)
    with shop.fulfilling() as own:
        own.workflows.counts()
        yield own
