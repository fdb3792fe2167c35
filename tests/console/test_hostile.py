"""Texts from anywhere, everywhere: none of them runs, and none breaks a page."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from tests.console.hostile import MARK, NUMBER, hostile
from tests.console.registry import SCREENS
from tests.console.seeding import Seeds
from tests.console.visiting import NARROW, WIDE, Visit, settled, sticks_out

FOREIGN = (
    "script, iframe, object, embed, form[action], base, link, meta, img, style, marquee, "
    "[onerror], [onload], [onclick], [onfocus], [onmouseover], [ontoggle]"
)
"""What only markup out of a text could have made."""
FEWEST = {"letters": 200, "guards": 150, "pools": 150, "outbox": 150, "tokens": 100, "trail": 150, "workflows": 50}


def test_there_are_two_hundred_of_them():
    texts = hostile()
    assert len(set(texts)) == NUMBER
    assert sum(MARK in text for text in texts) > 50


@pytest.mark.timeout(600)
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_no_text_runs_and_none_breaks_a_page(hold, visit_open: Visit, size):
    made = Seeds(hold, hostile()).everything()
    assert {name: made[name] for name in FEWEST if made[name] < FEWEST[name]} == {}
    page = visit_open.window(viewport=size)
    for screen in SCREENS:
        page.goto(f"{visit_open.url}/{screen.name}")
        settled(page)
        _unharmed(page, screen.name)
        links = page.locator(f"main a[href*='/{screen.name}/']").evaluate_all("all => all.map((one) => one.href)")
        for address in dict.fromkeys(links[:: max(1, len(links) // 12)]):
            page.goto(address)
            settled(page)
            _unharmed(page, address)


def _unharmed(page: Page, where: str) -> None:
    assert page.evaluate(f"window.{MARK}") is None, where
    assert sticks_out(page) == 0, where
    foreign = page.locator("main").locator(FOREIGN).evaluate_all("all => all.map((one) => one.outerHTML)")
    assert foreign == [], where
    addresses = page.locator("a").evaluate_all("all => all.map((one) => one.href)")
    assert [address for address in addresses if not address.startswith(("http://127.0.0.1:", "https://"))] == [], where
