"""A walk through the console: wherever a screen leads to, whatever is in the store."""

from __future__ import annotations

from collections.abc import Iterator

from playwright.sync_api import Page, expect

from tests.console.registry import Screen
from tests.console.visiting import comes_true, settled


def walk(page: Page, url: str, screen: Screen, *, things: int = 1, turns: int = 0) -> Iterator[str]:
    """Stop at the screen, at so many further pages of its list, at its tabs, and at so many things with their tabs.

    Gives the address of each stop, when the page shows it.
    """
    page.goto(f"{url}/{screen.name}")
    settled(page)
    yield page.url
    addresses = _addresses(page, screen)
    for _ in range(turns):
        if not _turned(page):
            break
        yield page.url
    yield from _tabs(page)
    step = max(1, len(addresses) // things) if things else 1
    for address in addresses[::step][:things]:
        page.goto(address)
        settled(page)
        yield page.url
        yield from _tabs(page)


def _addresses(page: Page, screen: Screen) -> list[str]:
    found = page.locator(f"main a[href*='/{screen.name}/']").evaluate_all("all => all.map((one) => one.href)")
    return list(dict.fromkeys(found))


def _turned(page: Page) -> bool:
    """Go to the next page of the list, if there is one."""
    button = page.get_by_role("navigation", name="Pages").get_by_role("button", name="Next")
    if button.count() == 0 or button.get_attribute("aria-disabled") == "true":
        return False
    before = page.url
    button.click()
    comes_true(page, lambda: page.url != before)
    expect(page.locator("main [aria-busy=true]")).to_have_count(0)
    settled(page)
    return True


def _tabs(page: Page) -> Iterator[str]:
    tabs = page.locator("main").get_by_role("tab")
    for at in range(1, tabs.count()):
        tabs.nth(at).click()
        expect(tabs.nth(at)).to_have_attribute("aria-selected", "true")
        settled(page)
        yield page.url
