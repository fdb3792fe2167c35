"""What every list can do, seen on the letters."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.console.visiting import Visit
from tests.server.served import file


def filter_of(page: Page):
    return page.get_by_role("combobox", name="Filter")


def rows(page: Page):
    return page.get_by_role("table").first.locator("tbody tr")


@pytest.fixture
def page(hold, visit: Visit) -> Page:
    """Letters of two domains."""
    file(hold, 3, "payments")
    file(hold, 2, "stock")
    page = visit("/letters")
    expect(rows(page)).to_have_count(5)
    return page


def test_a_slash_filters_with_suggestions_and_the_url_has_it(page):
    page.keyboard.press("/")
    expect(filter_of(page)).to_be_focused()
    page.keyboard.type("stoc")
    expect(page.get_by_role("option", name=re.compile(r"stock")).first).to_contain_text("2")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"\?domain=stock"))
    expect(rows(page)).to_have_count(2)
    page.reload()
    expect(rows(page)).to_have_count(2)


def test_a_filter_can_be_typed_out_and_taken_away(page):
    page.keyboard.press("/")
    page.keyboard.type("domain:payments")
    page.keyboard.press("Enter")
    expect(rows(page)).to_have_count(3)
    filter_of(page).press("Backspace")
    expect(rows(page)).to_have_count(5)
    filter_of(page).fill("domain:nothing-of-that-name")
    filter_of(page).press("Enter")
    expect(page.locator(".state h2")).to_be_visible()
    page.get_by_role("button", name="Remove Domain nothing-of-that-name").click()
    expect(rows(page)).to_have_count(5)


def test_back_goes_to_the_filter_before(page):
    filter_of(page).fill("domain:stock")
    filter_of(page).press("Enter")
    expect(rows(page)).to_have_count(2)
    page.go_back()
    expect(rows(page)).to_have_count(5)


def test_j_and_k_walk_and_enter_opens(page):
    filter_of(page).press("Escape")
    for key in ("j", "j", "j", "k"):
        page.keyboard.press(key)
    expect(rows(page).nth(1)).to_have_class(re.compile(r"\bat\b"))
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/letters/[0-9a-z]+$"))


def test_pages_go_forth_and_back(hold, visit):
    file(hold, 120)
    page = visit("/letters")
    first = rows(page).first
    expect(first).to_be_visible()
    shown = rows(page).count()
    begins = page.get_by_role("table").first.inner_text()
    page.get_by_role("button", name="Next").click()
    expect(page).to_have_url(re.compile(r"after="))
    expect(page.get_by_role("table").first).not_to_have_attribute("aria-busy", "true")
    assert page.get_by_role("table").first.inner_text() != begins
    page.keyboard.press("n")
    expect(rows(page)).to_have_count(120 - 2 * shown)
    expect(page.get_by_role("button", name="Next")).to_have_attribute("aria-disabled", "true")
    page.keyboard.press("p")
    expect(rows(page)).to_have_count(shown)
    page.get_by_role("button", name="Previous").click()
    expect(page).not_to_have_url(re.compile(r"after="))
    expect(page.get_by_role("button", name="Previous")).to_have_attribute("aria-disabled", "true")


def test_a_question_begins_in_its_first_field_and_gives_the_focus_back(visit):
    page = visit("/access")
    button = page.get_by_role("button", name="Add user")
    button.click()
    expect(page.get_by_role("dialog").get_by_label("Name")).to_be_focused()
    page.keyboard.press("Escape")
    expect(button).to_be_focused()


def test_times_tick(hold, visit):
    file(hold)
    page = visit("/letters")
    time = rows(page).first.locator("time")
    before = time.inner_text()
    expect(time).not_to_have_text(before)
    expect(time).to_have_attribute("title", re.compile(r"\d{4}-\d\d-\d\dT"))
