"""The overview in a browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, expect

from holdfast import Holdfast
from holdfast.server import sampling
from tests.console.holding import both
from tests.console.visiting import NARROW, SHADES, Visit, sticks_out
from tests.server.running import server_of
from tests.server.served import file


def test_an_idle_store_is_calm(visit: Visit) -> None:
    page = visit("/overview")
    expect(page.get_by_role("heading", level=1)).to_have_text("Everything is closed and drained.")
    expect(page.locator("[data-tone=calm]")).to_be_visible()
    expect(page.get_by_role("heading", name="No letter waits")).to_be_visible()
    expect(page.get_by_role("heading", name="Every breaker is closed")).to_be_visible()


@both
def test_what_is_wrong_is_said_and_leads_to_it(hold: Holdfast, visit: Visit) -> None:
    file(hold, 3)
    hold.breakers.atomic_force_open("payments", "maintenance", "ops")
    page = visit("/overview")
    expect(page.get_by_role("heading", level=1)).to_contain_text(
        re.compile(r"payments has been open for .*, 3 letters wait")
    )
    expect(page.locator("[data-tone=trouble]")).to_be_visible()
    expect(page.get_by_text("held by ops")).to_be_visible()
    page.get_by_role("link", name="Letters waiting").click()
    expect(page).to_have_url(f"{visit.url}/letters?status=pending")
    expect(page.get_by_role("table", name="Letters").locator("tbody tr")).to_have_count(3)


def test_a_domain_leads_to_its_letters(hold: Holdfast, visit: Visit) -> None:
    file(hold, 2)
    page = visit("/overview")
    page.get_by_role("region", name="Letters that wait").get_by_role("link", name="payments").click()
    expect(page).to_have_url(f"{visit.url}/letters?domain=payments&status=pending")


def test_letters_that_come_and_events_are_shown_by_themselves(hold: Holdfast, visit: Visit) -> None:
    page = visit("/overview")
    expect(page.locator("[data-live=live]")).to_be_visible()
    hold.letters.create("payments", "TIMEOUT", wake=True)
    expect(page.get_by_role("link", name="Letters waiting")).to_contain_text("1")
    hold.letters.pause("payments", by="ops", reason="a test")
    feed = page.get_by_role("list", name="Recent events")
    expect(feed.get_by_role("listitem").first).to_contain_text("replay paused")
    expect(feed.get_by_role("listitem").first).to_contain_text("payments")


def test_the_curves_of_the_last_hour_are_drawn(
    hold: Holdfast, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "STEP_S", 1)
    file(hold, 2)
    with server_of(hold) as url:
        visit = Visit(browser, url)
        page = visit("/overview")
        for title in ("Letters", "Breakers that are not closed", "Outbox", "Workflows and sagas"):
            expect(page.get_by_role("img", name=f"{title} over the last hour").locator("canvas")).to_be_visible()
        expect(page.get_by_role("img", name="Letters waiting, last hour")).to_be_visible()
        visit.end()


@pytest.mark.parametrize("shade", SHADES)
def test_nothing_sticks_out_of_a_narrow_window(hold: Holdfast, visit: Visit, shade: str) -> None:
    file(hold, 2, "d" * 150)
    hold.breakers.atomic_force_open("b" * 150, "r" * 300, "o" * 100)
    page = visit("/overview", viewport=NARROW, shade=shade)
    expect(page.get_by_role("heading", level=1)).to_contain_text("has been open")
    assert sticks_out(page) == 0
