"""Every screen of the registry: it opens, fits its window, and can be used by everybody."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.console.holding import both
from tests.console.looking import findings, in_both_shades, looked_at
from tests.console.registry import SCREENS
from tests.console.seeding import Seeds
from tests.console.visiting import NARROW, WIDE, settled, sticks_out
from tests.console.walking import walk

QUESTIONS = re.compile(r"/api/v1/(?!session|status|events$)")
REFUSAL: dict[str, Any] = {
    "title": "Conflict", "status": 409, "error": "no_such_part", "message": "the store has no such part; " + "x" * 200,
}  # fmt: skip


@both
@pytest.mark.timeout(300)
def test_every_screen_opens_and_fits_with_something_of_everything_in_the_store(hold, visit_open):
    Seeds(hold).everything()
    page = visit_open.window()
    for screen in SCREENS:
        for where in walk(page, visit_open.url, screen):
            expect(page).to_have_title(f"{screen.title} · Holdfast")
            assert page.get_by_role("alert").all_inner_texts() == [], where
            for size in (NARROW, WIDE):
                page.set_viewport_size(size)
                assert sticks_out(page) == 0, (where, size)


@both
@pytest.mark.timeout(300)
def test_every_screen_opens_and_can_be_used_on_an_empty_store(hold, visit_open):
    page, found = looked_at(visit_open), []
    for screen in SCREENS:
        for where in walk(page, visit_open.url, screen):
            assert page.get_by_role("alert").all_inner_texts() == [], where
            found += in_both_shades(page, where)
    assert not found, "\n".join(found)


@pytest.mark.timeout(300)
def test_nothing_keeps_anybody_from_using_a_screen_with_something_on_it(hold, visit_open):
    Seeds(hold).everything()
    page, found = looked_at(visit_open), []
    for screen in SCREENS:
        for where in walk(page, visit_open.url, screen):
            found += in_both_shades(page, where)
    assert not found, "\n".join(found)


@pytest.mark.timeout(300)
def test_a_screen_whose_questions_fail_says_so_and_can_be_used(visit):
    visit.allows(REFUSAL["status"])
    page, found = looked_at(visit), []
    page.route(QUESTIONS, lambda route: route.fulfill(status=REFUSAL["status"], json=REFUSAL))
    for screen in SCREENS:
        for path in (f"/{screen.name}", f"/{screen.name}/something")[: 1 + screen.has_things]:
            page.goto(visit.url + path)
            settled(page)
            expect(page.get_by_role("alert").first).to_contain_text(REFUSAL["message"])
            assert sticks_out(page) == 0, path
            found += in_both_shades(page, path)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("hold", ["memory"], indirect=True)
def test_what_a_store_does_not_have_is_said_where_it_would_be(hold, visit):
    visit.allows(409)
    page = visit.window()
    for screen in SCREENS:
        page.goto(f"{visit.url}/{screen.name}")
        settled(page)
        said = page.get_by_role("alert").count() > 0
        assert said == (screen.name in ("outbox", "sagas", "audit")), screen.name


def test_nothing_keeps_anybody_from_signing_in(hold, visit):
    Seeds(hold).access()
    page = looked_at(visit)
    page.goto(f"{visit.url}/access")
    expect(page.get_by_role("heading", name="Sign in to Holdfast")).to_be_visible()
    assert findings(page) == []


def test_nothing_keeps_anybody_from_answering_a_question(visit):
    page = looked_at(visit)
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


def _reader(session: dict[str, Any]) -> dict[str, Any]:
    return {**session, "rights": [right for right in session["rights"] if right.endswith(":read")]}
