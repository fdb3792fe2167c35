"""Whatever can be done in the console is done by a test, in a browser, on SQLite and on PostgreSQL."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Final

from tests.console.acts import named, offered, sendable, unread

NOT_ON_A_SCREEN: Final = {
    "POST /circuit-breakers/{id}/reset",  # one endpoint under its older name; the screen resets it within its pool
}


def test_every_call_in_the_sources_is_understood() -> None:
    assert unread() == []
    assert len(sendable()) > 60


def test_whatever_can_be_done_is_done_by_a_test_on_both_stores() -> None:
    tests = [
        test
        for path in sorted(Path(__file__).parent.glob("test_*.py"))
        for test in vars(import_module(f"tests.console.{path.stem}")).values()
        if getattr(test, "__name__", "").startswith("test_")
    ]
    done = frozenset[str]().union(*map(named, tests))
    assert done - offered() == set(), "the API has no such routes"
    assert sorted(sendable() - done) == [], "no test of the console does these: mark one with @acts"


def test_whatever_the_api_can_change_is_on_a_screen() -> None:
    assert offered() - sendable() == NOT_ON_A_SCREEN
