"""Every screen of the registry: it opens, fits its window, and can be used by everybody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.console.building import CONSOLE
from tests.console.holding import both
from tests.console.registry import SCREENS, Screen
from tests.console.seeding import Seeds
from tests.console.visiting import NARROW, SHADES, WIDE, Visit, settled, sticks_out

AXE: Path = CONSOLE / "node_modules" / "axe-core" / "axe.min.js"
SERIOUS = ("serious", "critical")


def findings(page: Page) -> list[str]:
    """What axe finds that keeps somebody from using the page."""
    found: dict[str, Any] = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{one['id']} ({one['impact']}): {one['help']}: {node['html'][:200]} {node.get('failureSummary', '')}"
        for one in found["violations"]
        if one["impact"] in SERIOUS
        for node in one["nodes"][:3]
    ]


@both
def test_every_screen_opens_on_an_empty_store(hold, visit_open):
    page = visit_open("/overview")
    for screen in SCREENS:
        page.goto(f"{visit_open.url}/{screen.name}")
        expect(page).to_have_title(f"{screen.title} · Holdfast")
        settled(page)
        assert page.get_by_role("alert").count() == 0, (screen.name, page.get_by_role("alert").all_inner_texts())


@both
@pytest.mark.timeout(300)
def test_every_screen_opens_with_something_of_everything_in_the_store(hold, visit_open):
    Seeds(hold).everything()
    page = visit_open("/overview")
    for screen in SCREENS:
        page.goto(f"{visit_open.url}/{screen.name}")
        settled(page)
        assert page.get_by_role("alert").count() == 0, (screen.name, page.get_by_role("alert").all_inner_texts())
        for size in (NARROW, WIDE):
            page.set_viewport_size(size)
            assert sticks_out(page) == 0, (screen.name, size)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("shade", SHADES)
def test_nothing_keeps_anybody_from_using_a_screen(hold, visit_open, shade):
    Seeds(hold).everything()
    page = _looked_at(visit_open, shade)
    found = []
    for screen in SCREENS:
        for path in _paths(page, visit_open, screen):
            page.goto(visit_open.url + path)
            settled(page)
            found += [f"{path}: {one}" for one in findings(page)]
    assert not found, "\n".join(found)


def test_nothing_keeps_anybody_from_signing_in(hold, visit):
    Seeds(hold).access()
    page = _looked_at(visit)
    page.goto(f"{visit.url}/access")
    expect(page.get_by_role("heading", name="Sign in to Holdfast")).to_be_visible()
    assert findings(page) == []


def test_nothing_keeps_anybody_from_answering_a_question(visit):
    page = _looked_at(visit)
    page.goto(f"{visit.url}/access")
    page.get_by_role("button", name="Add user").click()
    assert findings(page) == []
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    assert findings(page) == []
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert findings(page) == []


def test_the_pages_stay_the_same_when_nobody_may_do_anything(hold, visit_open):
    Seeds(hold).everything()
    page = visit_open("/overview")
    page.route("**/api/v1/session", lambda route: route.fulfill(json=_reader(route.fetch().json())))
    for screen in SCREENS:
        page.goto(f"{visit_open.url}/{screen.name}")
        settled(page)
        assert page.get_by_role("alert").count() == 0, screen.name


def _looked_at(visit: Visit, shade: str = "light") -> Page:
    """A window in which axe is. The policy would refuse it; what it looks at is the same."""
    page = visit.window(shade=shade, bypass_csp=True)
    page.add_init_script(path=AXE)
    return page


def _reader(session: dict[str, Any]) -> dict[str, Any]:
    return {**session, "rights": [right for right in session["rights"] if right.endswith(":read")]}


def _paths(page: Page, visit: Visit, screen: Screen) -> list[str]:
    """The screen, and the first thing that it leads to."""
    page.goto(f"{visit.url}/{screen.name}")
    settled(page)
    links = page.locator(f"main a[href*='/{screen.name}/']")
    first = [links.first.get_attribute("href") or ""] if links.count() else []
    return [f"/{screen.name}", *first]
