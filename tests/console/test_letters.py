"""Dead letters in a browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from holdfast import Breaker, Holdfast, Retry, consecutive
from holdfast.access.rights import Role
from tests.console.acts import acts
from tests.console.holding import PASSWORD
from tests.console.visiting import NARROW, Visit, sticks_out
from tests.server.running import server_of
from tests.server.served import file, program


def confirm(page: Page, button: str, reason: str | None = "the bank is back") -> None:
    """Answer the question that is open."""
    dialog = page.get_by_role("dialog")
    if reason is not None:
        dialog.get_by_label("Reason").fill(reason)
    dialog.get_by_role("button", name=button, exact=True).click()
    expect(dialog).to_be_hidden()


def status_of(hold: Holdfast, id: str) -> str:
    letter = hold.letters.get_by_id(id)
    assert letter is not None
    return letter.status


def refuse(order_id: str) -> None:
    raise ConnectionError("refused")


def test_without_letters_the_list_says_where_they_would_come_from(visit: Visit) -> None:
    page = visit("/letters")
    expect(page.get_by_role("heading", name="No dead letters")).to_be_visible()
    expect(page.get_by_text("dead_letter=True", exact=True)).to_be_visible()


def test_filters_are_suggested_and_are_in_the_address(hold: Holdfast, visit: Visit) -> None:
    file(hold, 3)
    file(hold, 2, "stock")
    page = visit("/letters")
    rows = page.get_by_role("table", name="Letters").locator("tbody tr")
    expect(rows).to_have_count(5)
    page.keyboard.press("/")
    page.keyboard.type("sto")
    page.get_by_role("option", name="stock").click()
    expect(page).to_have_url(f"{visit.url}/letters?domain=stock")
    expect(rows).to_have_count(2)
    page.get_by_role("button", name="Remove Domain stock").click()
    expect(rows).to_have_count(5)
    page = visit("/letters?domain=nowhere")
    page.get_by_role("button", name="Show all letters").click()
    expect(page).to_have_url(f"{visit.url}/letters")


def test_pages_are_turned_by_key_and_by_button(hold: Holdfast, visit: Visit) -> None:
    file(hold, 120)
    page = visit("/letters")
    cell = page.get_by_role("table", name="Letters").locator("tbody tr").first.locator("td").nth(4)
    expect(cell).to_have_text("order o119")
    page.get_by_role("button", name="Next").click()
    expect(cell).to_have_text("order o69")
    page.keyboard.press("n")
    expect(cell).to_have_text("order o19")
    page.keyboard.press("p")
    expect(cell).to_have_text("order o69")


def test_a_letter_is_opened_by_key(hold: Holdfast, visit: Visit) -> None:
    _, newest = file(hold, 2)
    page = visit("/letters")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{visit.url}/letters/{newest}")


def test_a_new_letter_comes_by_itself(hold: Holdfast, visit: Visit) -> None:
    page = visit("/letters")
    expect(page.get_by_role("heading", name="No dead letters")).to_be_visible()
    expect(page.locator("[data-live=live]")).to_be_visible()
    hold.letters.create("payments", "TIMEOUT", error_message="late", wake=True)
    expect(page.get_by_role("link", name="payments")).to_be_visible()


@acts("POST /letters/{id}/replay")
def test_a_letter_is_replayed(hold: Holdfast, visit: Visit) -> None:
    charged = program(hold)
    (id,) = file(hold)
    page = visit(f"/letters/{id}")
    expect(page.get_by_text("This server would call it.")).to_be_visible()
    page.get_by_role("button", name="Replay").click()
    confirm(page, "Replay")
    expect(page.locator(".toast")).to_contain_text("succeeded")
    expect(page.locator(".head [data-state=resolved]")).to_be_visible()
    expect(page.get_by_role("table", name="Attempts").locator("[data-state=succeeded]")).to_have_count(1)
    assert charged == ["o0"]
    expect(page.get_by_role("button", name="Replay")).to_have_attribute("title", "it is resolved")


def test_what_cannot_be_replayed_here_is_handed_over_and_followed(hold: Holdfast, visit: Visit) -> None:
    (id,) = file(hold)
    page = visit(f"/letters/{id}")
    expect(page.get_by_text("it is handed to a worker of the program")).to_be_visible()
    page.get_by_role("button", name="Replay").click()
    confirm(page, "Replay", "")
    expect(page.get_by_role("heading", level=1)).to_have_text("Replay 1 letter")
    charged = program(hold)
    hold.letters.worker().run_once()
    expect(page.locator(".head [data-state=done]")).to_be_visible()
    assert charged == ["o0"]


@acts("POST /letters/{id}/replay")
def test_a_letter_whose_attempts_are_used_up_gets_new_ones(hold: Holdfast, visit: Visit) -> None:
    charged = program(hold)
    (id,) = file(hold)
    hold.letters.update_status(id, "requires_review")
    page = visit(f"/letters/{id}")
    page.get_by_role("button", name="Replay anew").click()
    confirm(page, "Replay")
    expect(page.locator(".head [data-state=resolved]")).to_be_visible()
    assert charged == ["o0"]


@acts(*(f"POST /letters/{{id}}/{verb}" for verb in ("resolve", "discard", "review", "reopen")))
def test_an_operators_word_is_kept_and_can_be_taken_back(hold: Holdfast, visit: Visit) -> None:
    (id,) = file(hold)
    page = visit(f"/letters/{id}")
    words = (("Resolve", "Resolve", "resolved"), ("Discard", "Discard", "rejected"), ("Review", "Take it", "reviewing"))
    for button, answer, status in words:
        page.get_by_role("button", name=button, exact=True).click()
        confirm(page, answer, f"{status} by hand")
        expect(page.locator(f".head [data-state={status}]")).to_be_visible()
        expect(page.get_by_text(f"{status} by hand")).to_be_visible()
        assert status_of(hold, id) == status
        page.get_by_role("button", name="Put back").click()
        confirm(page, "Put back")
        expect(page.locator(".head [data-state=pending]")).to_be_visible()
        assert status_of(hold, id) == "pending"


def test_nothing_is_resolved_without_a_reason(hold: Holdfast, visit: Visit) -> None:
    (id,) = file(hold)
    page = visit(f"/letters/{id}")
    page.get_by_role("button", name="Resolve").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Resolve", exact=True).click()
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name="Cancel").click()
    assert status_of(hold, id) == "pending"


@acts("POST /letters/{id}/delete")
def test_a_letter_is_deleted_for_good(hold: Holdfast, visit: Visit) -> None:
    (id,) = file(hold)
    page = visit(f"/letters/{id}")
    page.get_by_role("button", name="Delete").click()
    confirm(page, "Delete", "a test order")
    expect(page).to_have_url(f"{visit.url}/letters")
    assert hold.letters.get_by_id(id) is None


@acts("POST /letters/{id}/reveal")
def test_what_is_masked_is_revealed_with_a_reason_and_masked_again(hold: Holdfast, visit: Visit) -> None:
    (id,) = file(hold, request_data={"card": {"password": "hunter2"}})
    page = visit(f"/letters/{id}")
    json = page.get_by_role("group", name="What was asked")
    expect(json).to_contain_text("***")
    page.get_by_role("button", name="Reveal").click()
    confirm(page, "Reveal", "a customer asks")
    expect(json).to_contain_text("hunter2")
    page.get_by_role("button", name="Mask again").click()
    expect(json).not_to_contain_text("hunter2")
    acts = [event.payload["reason"] for event in hold.audit.read("operator:local")]
    assert acts == ["a customer asks"]


def test_the_breaker_that_bars_a_replay_is_named(hold: Holdfast, visit: Visit) -> None:
    guard = hold.guard("payments", Retry(attempts=1), Breaker(consecutive(1), open_for=600), dead_letter=True)
    call = guard.replayable(name="charge")(refuse)
    with pytest.raises(ConnectionError):
        call("o1")
    (letter,) = hold.letters.find()
    page = visit(f"/letters/{letter.id}")
    expect(page.get_by_text("the breaker of 'payments' is open")).to_have_count(2)  # the card, and the barred button
    expect(page.get_by_role("button", name="Replay")).to_have_attribute("aria-disabled", "true")


@acts("POST /letters/{id}/resolve")
def test_several_letters_are_ticked_and_resolved(hold: Holdfast, visit: Visit) -> None:
    file(hold, 3)
    page = visit("/letters")
    page.get_by_label("Select row 1").check()
    page.keyboard.press("Escape")
    page.get_by_label("Select row 2").check()
    chosen = page.get_by_role("group", name="Selected letters")
    expect(chosen).to_contain_text("2 letters selected")
    chosen.get_by_role("button", name="Resolve").click()
    confirm(page, "Resolve 2 letters")
    expect(chosen).to_be_hidden()
    assert hold.letters.get_facet_counts()["by_status"] == {"pending": 1, "resolved": 2}


@acts("POST /letters/{id}/replay")
def test_several_letters_are_ticked_and_replayed(hold: Holdfast, visit: Visit) -> None:
    charged = program(hold)
    file(hold, 2)
    page = visit("/letters")
    page.get_by_label("Select all on this page").check()
    page.get_by_role("group", name="Selected letters").get_by_role("button", name="Replay").click()
    confirm(page, "Replay 2 letters")
    expect(page.locator(".toast")).to_contain_text("Replayed 2 letters")
    assert sorted(charged) == ["o0", "o1"]


def test_errors_are_put_together(hold: Holdfast, visit: Visit) -> None:
    for n in range(3):
        file(hold, error_message=f"TimeoutError: order o{n} took {n}.5s")
    page = visit("/letters?tab=errors")
    expect(page.get_by_role("link", name="TimeoutError: order <id> took <n>")).to_be_visible()
    expect(page.get_by_text("These are all 3 letters that fit.")).to_be_visible()
    page.get_by_role("link", name="TimeoutError: order <id> took <n>").click()
    expect(page.get_by_role("table", name="Letters").locator("tbody tr")).to_have_count(3)


@acts("POST /letters/domains/pause", "POST /letters/domains/resume")
def test_a_domain_is_paused_and_resumed(hold: Holdfast, visit: Visit) -> None:
    file(hold)
    page = visit("/letters?tab=domains")
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("dialog").get_by_label("Minutes").fill("5")
    confirm(page, "Pause", "the bank asks for it")
    expect(page.locator("[data-state=paused]")).to_be_visible()
    record = hold.letters.replayer.gates.record("payments")
    assert record is not None
    assert (record.paused_by, record.pause_reason) == ("local", "the bank asks for it")
    assert record.paused_until is not None
    page.get_by_role("button", name="Resume").click()
    confirm(page, "Resume", None)
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    assert hold.letters.replayer.gates.standing("payments").way == "clear"


def test_retention_is_shown(hold: Holdfast, visit: Visit) -> None:
    file(hold, 2)
    page = visit("/letters?tab=retention")
    expect(page.get_by_text("30 days after they were resolved")).to_be_visible()
    expect(page.get_by_text("90 days after they were resolved")).to_be_visible()
    expect(page.get_by_text("Active letters", exact=True)).to_be_visible()


def test_who_may_only_look_sees_why_nothing_can_be_pressed(hold: Holdfast, browser: object, tmp_path: Path) -> None:
    (id,) = file(hold)
    hold.access.add_user("vera", PASSWORD, Role.VIEWER, by="test")
    with server_of(hold, required=True) as url:
        visit = Visit(browser, url)  # type: ignore[arg-type]  # a fixture
        visit.allows(401)
        page = visit.window()
        page.goto(f"{url}/letters/{id}")
        page.get_by_label("Name").fill("vera")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        for name, right in (("Replay", "letters:operate"), ("Delete", "letters:admin"), ("Reveal", "letters:reveal")):
            button = page.get_by_role("button", name=name).first
            expect(button).to_have_attribute("aria-disabled", "true")
            expect(button).to_have_attribute("title", f"vera may not do this: it needs the right {right}.")
        visit.end()


def test_an_unknown_letter_is_said_to_be_none(visit: Visit) -> None:
    visit.allows(404)
    page = visit("/letters/nothing")
    expect(page.get_by_text("there is no letter 'nothing'")).to_be_visible()


def test_every_column_of_a_narrow_window_is_in_sight(hold: Holdfast, visit: Visit) -> None:
    [id] = file(hold, domain="a domain with a long name", error_message="x" * 400, entity_id="y" * 150)
    hold.letters.update_status(id, "permanently_failed")
    page = visit("/letters", viewport=NARROW)
    page.get_by_role("columnheader", name="Since").wait_for()
    assert page.locator(".table-frame").evaluate("frame => frame.scrollWidth - frame.clientWidth") == 0
    assert page.locator("tbody td.rest").first.evaluate("cell => cell.clientWidth") >= 48


@pytest.mark.parametrize("path", ["/letters", "/letters?tab=errors", "/letters?tab=domains", "/letters?tab=retention"])
def test_nothing_sticks_out_of_a_narrow_window(hold: Holdfast, visit: Visit, path: str) -> None:
    file(hold, 3, error_message="x" * 400, entity_id="y" * 150)
    page = visit(path, viewport=NARROW)
    page.get_by_role("tabpanel").wait_for()
    page.locator(".card").first.wait_for()
    assert sticks_out(page) == 0
