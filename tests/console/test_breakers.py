"""Shared breakers, in a browser: their states, their moves, and an operator's word on them."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from holdfast import Breaker, Holdfast
from holdfast.access.rights import Role
from holdfast.errors import CircuitOpen
from holdfast.machine.trip import consecutive
from tests.console.acts import acts
from tests.console.holding import PASSWORD
from tests.console.visiting import NARROW, sticks_out


def fail() -> None:
    raise ConnectionError("no route")


def confirm(page: Page, button: str, reason: str, *, ttl: str | None = None) -> None:
    """Fill in the dialog that is open, and press its button."""
    dialog = page.get_by_role("dialog")
    if ttl is not None:
        dialog.get_by_label("For").select_option(ttl)
    dialog.get_by_label("Reason").fill(reason)
    dialog.get_by_role("button", name=button).click()
    expect(dialog).to_have_count(0)


@acts("POST /breakers/{name}/force-open", "POST /breakers/{name}/clear")
def test_a_breaker_is_held_open_and_left_to_itself_again(hold: Holdfast, visit):
    guard = hold.guard("payments", Breaker())
    page = visit("/breakers/payments")
    page.get_by_role("button", name="Hold open").click()
    expect(page.get_by_role("dialog")).to_contain_text("Every process on the store refuses its calls at once")
    confirm(page, "Hold open", "the provider is down", ttl="15")
    expect(page.get_by_text("payments is held open")).to_be_visible()
    expect(page.get_by_text("held by hand")).to_be_visible()
    expect(page.get_by_role("region", name="What is stored")).to_contain_text("the provider is down")
    with pytest.raises(CircuitOpen):
        guard.call(int)
    page.get_by_role("button", name="Leave to itself").click()
    confirm(page, "Leave to itself", "it is back")
    expect(page.get_by_text("held by hand")).to_have_count(0)
    stored = hold.breakers.get_by_service_name("payments")
    assert stored is not None
    assert not stored.manually_controlled


@acts("POST /breakers/{name}/force-close")
def test_a_breaker_is_held_closed(hold: Holdfast, visit):
    hold.breakers.get_or_create("mail")
    page = visit("/breakers/mail")
    page.get_by_role("button", name="Hold closed").click()
    confirm(page, "Hold closed", "the breaker is wrong")
    expect(page.get_by_text("never trips")).to_be_visible()
    stored = hold.breakers.get_by_service_name("mail")
    assert stored is not None
    assert (stored.state, stored.manually_controlled, stored.controlled_by_id) == ("closed", True, "local")


@acts("POST /breakers/{name}/reset")
def test_a_breaker_is_reset(hold: Holdfast, visit):
    guard = hold.guard("payments", Breaker(consecutive(1), open_for=600))
    guard.run(fail)
    hold.breakers.sharing.sync()
    page = visit("/breakers/payments")
    expect(page.get_by_role("heading", name="payments").locator("..")).to_contain_text("open")
    page.get_by_role("button", name="Reset").click()
    confirm(page, "Reset", "checked by hand")
    expect(page.get_by_text("payments is closed, and its counts are 0")).to_be_visible()
    assert guard.call(int) == 0


def test_nothing_is_done_without_a_reason(hold: Holdfast, visit):
    hold.breakers.get_or_create("mail")
    page = visit("/breakers/mail")
    page.get_by_role("button", name="Hold open").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Hold open").click()
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert not hold.breakers.get_open_states()


def test_a_breaker_that_never_moved_cannot_be_reset_and_says_why(hold: Holdfast, visit):
    hold.guard("payments", Breaker())
    page = visit("/breakers")
    expect(page.get_by_role("row", name="payments")).to_contain_text("never moved")
    page.get_by_role("link", name="payments").click()
    reset = page.get_by_role("button", name="Reset")
    expect(reset).to_have_attribute("aria-disabled", "true")
    expect(reset).to_have_attribute("title", "It never moved, so there is nothing to reset.")


def test_the_moves_are_drawn_and_listed_with_what_they_cover(hold: Holdfast, visit):
    guard = hold.guard("payments", Breaker(consecutive(1), open_for=600))
    page = visit("/breakers/payments")
    guard.run(fail)
    hold.breakers.sharing.sync()
    moves = page.get_by_role("table", name="Moves")
    expect(moves).to_contain_text("tripped")  # by itself: the page listens
    expect(page.get_by_role("img", name="State over time: 1 moves, now open")).to_be_visible()
    expect(page.get_by_text("Earlier moves are not kept")).to_be_visible()


def test_open_ones_come_first_and_can_be_asked_for_alone(hold: Holdfast, visit):
    for name in ("alpha", "beta"):
        hold.breakers.get_or_create(name)
    hold.breakers.atomic_force_open("omega", "maintenance", "ada")
    page = visit("/breakers")
    first = page.get_by_role("row").nth(1)
    expect(first).to_contain_text("omega")
    expect(first).to_contain_text("held")
    page.goto(visit.url + "/breakers?state=open")
    expect(page.get_by_role("table", name="Breakers").get_by_role("row")).to_have_count(2)
    page.goto(visit.url + "/breakers?state=half_open")
    expect(page.get_by_text("No breaker is half-open")).to_be_visible()


def test_a_breaker_may_have_any_name(hold: Holdfast, visit):
    name = 'a/b?c#d "<script>alert(1)</script>" ☃'
    hold.breakers.atomic_force_open(name, "<b>why</b>")
    page = visit("/breakers")
    page.get_by_role("link", name="a/b?c#d").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(name)
    page.get_by_role("button", name="Reset").click()
    confirm(page, "Reset", "done")
    expect(page.get_by_text("Calls go through.")).to_be_visible()


def test_without_breakers_the_page_says_how_they_come_to_be(hold: Holdfast, visit):
    expect(visit("/breakers").get_by_text('hold.guard("payments", Breaker())')).to_be_visible()


def test_a_viewer_sees_why_nothing_can_be_done(hold: Holdfast, visit):
    hold.breakers.get_or_create("mail")
    hold.access.add_user("vera", PASSWORD, Role.VIEWER)
    page = visit("/breakers/mail")
    page.get_by_label("Name").fill("vera")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    visit.allows(401)
    for act in ("Hold open", "Hold closed", "Reset"):
        button = page.get_by_role("button", name=act)
        expect(button).to_have_attribute("aria-disabled", "true")
        assert "breakers:operate" in (button.get_attribute("title") or "")


def test_nothing_sticks_out_where_there_is_little_room(hold: Holdfast, visit):
    hold.breakers.atomic_force_open("omega-" + "x" * 150, "w" * 400, "ada")
    for path in ("/breakers", "/breakers/omega-" + "x" * 150):
        page = visit(path, viewport=NARROW)
        page.locator(".card").first.wait_for()
        assert sticks_out(page) == 0
