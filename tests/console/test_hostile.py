"""Texts from anywhere, everywhere: none of them runs, and none breaks a page."""

from __future__ import annotations

from collections import Counter

import pytest
from playwright.sync_api import Page

from tests.console.hostile import MARK, NUMBER, hostile
from tests.console.registry import SCREENS
from tests.console.seeding import Seeds
from tests.console.visiting import NARROW, WIDE, Visit, sticks_out
from tests.console.walking import walk

FOREIGN = (
    "script, iframe, object, embed, form[action], base, link, meta, img, style, marquee, "
    "[onerror], [onload], [onclick], [onfocus], [onmouseover], [ontoggle]"
)
"""What only markup out of a text could have made."""
FEWEST = {
    "letters": 200, "guards": 150, "breakers": 150, "pools": 150, "outbox": 190, "sagas": 150, "workflows": 150,
    "workers": 190, "audit": 190, "schedules": 80, "access": 80, "bulk": 30,
}  # fmt: skip
"""How many rows of a screen are looked at, at least: a name that is refused is in none."""
TURNS = 12
THINGS = 8


def test_there_are_two_hundred_of_them() -> None:
    texts = hostile()
    assert len(set(texts)) == NUMBER
    assert sum(MARK in text for text in texts) > 50


@pytest.mark.timeout(600)
def test_no_text_runs_and_none_breaks_a_page(hold, visit_open: Visit) -> None:
    seeds = Seeds(hold, hostile())
    seeds.everything()
    seeds.crowded()
    page = visit_open.window()
    rows: Counter[str] = Counter()
    for screen in SCREENS:
        for where in walk(page, visit_open.url, screen, things=THINGS, turns=TURNS):
            rows[screen.name] += page.locator("main tbody tr").count()
            for size in (NARROW, WIDE):
                page.set_viewport_size(size)
                assert sticks_out(page) == 0, (where, size)
            _unharmed(page, where)
    assert {name: rows[name] for name in FEWEST if rows[name] < FEWEST[name]} == {}


def _unharmed(page: Page, where: str) -> None:
    assert page.evaluate(f"window.{MARK}") is None, where
    foreign = page.locator("main").locator(FOREIGN).evaluate_all("all => all.map((one) => one.outerHTML)")
    assert foreign == [], where
    addresses = page.locator("a").evaluate_all("all => all.map((one) => one.href)")
    assert [address for address in addresses if not address.startswith(("http://127.0.0.1:", "https://"))] == [], where
