"""Bulk operations in a browser."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from holdfast import Holdfast
from holdfast.letters.scope import LetterFilter
from tests.console.acts import acts
from tests.console.visiting import NARROW, Visit, sticks_out
from tests.server.served import file, program


def test_without_operations_the_list_says_how_to_start_one(visit: Visit) -> None:
    page = visit("/bulk")
    expect(page.get_by_role("heading", name="No bulk operations")).to_be_visible()
    expect(page.get_by_role("main")).not_to_contain_text("--domain payments.")  # no full stop on a line of its own
    page.get_by_role("link", name="New operation").click()
    expect(page.get_by_role("dialog", name="Act on every letter that fits")).to_be_visible()


@acts("POST /bulk/preview", "POST /bulk")
def test_every_letter_that_fits_is_replayed(hold: Holdfast, visit: Visit) -> None:
    charged = program(hold)
    file(hold, 12)
    file(hold, 1, "stock")
    page = visit("/letters?domain=payments")
    page.get_by_role("button", name="Act on all that fit…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("12 letters would be touched")).to_be_visible()
    expect(dialog.locator(".bulk-sample li")).to_have_count(5)
    begin = dialog.get_by_role("button", name="Replay 12 letters")
    expect(begin).to_have_attribute("title", "Say why first.")
    dialog.get_by_label("Reason").fill("the bank is back")
    expect(begin).to_have_attribute("title", "Type 12 first.")
    dialog.get_by_label("Type 12 to confirm").fill("12")
    begin.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Replay 12 letters")
    expect(page.locator(".head [data-state=pending]")).to_be_visible()
    hold.letters.worker().run_once()
    expect(page.locator(".head [data-state=done]")).to_be_visible()
    expect(page.get_by_text("12 of 12")).to_be_visible()
    assert len(charged) == 12
    assert hold.letters.get_facet_counts(domain="stock")["by_status"] == {"pending": 1}


@acts("POST /bulk/preview", "POST /bulk")
def test_every_letter_that_fits_is_discarded(hold: Holdfast, visit: Visit) -> None:
    file(hold, 3)
    page = visit("/letters?bulk=replay")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Discard").check()
    expect(page).to_have_url(f"{visit.url}/letters?bulk=discard")
    dialog.get_by_label("Reason").fill("test orders")
    dialog.get_by_role("button", name="Discard 3 letters").click()
    expect(page.locator(".head [data-state=done]")).to_be_visible()
    assert hold.letters.get_facet_counts()["by_status"] == {"rejected": 3}


def test_a_count_that_has_changed_starts_nothing_and_is_counted_anew(hold: Holdfast, visit: Visit) -> None:
    visit.allows(409)
    ids = file(hold, 3)
    page = visit("/letters?bulk=replay")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("the bank is back")
    expect(dialog.get_by_role("button", name="Replay 3 letters")).to_be_visible()
    hold.letters.mark_as_resolved(ids[0], "manual")
    dialog.get_by_role("button", name="Replay 3 letters").click()
    expect(dialog.get_by_role("button", name="Replay 2 letters")).to_be_visible()
    assert hold.letters.bulk.find() == []


def test_nothing_is_started_where_no_letter_fits(visit: Visit) -> None:
    page = visit("/letters?domain=nowhere&bulk=resolve")
    button = page.get_by_role("dialog").get_by_role("button", name="Resolve 0 letters")
    expect(button).to_have_attribute("title", "No letter fits, so there is nothing to do.")
    page.keyboard.press("Escape")
    expect(page).to_have_url(f"{visit.url}/letters?domain=nowhere")


@acts("POST /bulk/{id}/abort")
def test_an_operation_is_aborted_with_a_reason(hold: Holdfast, visit: Visit) -> None:
    file(hold, 3)
    begun = hold.letters.bulk.start(LetterFilter(domain="payments"), requested_by="ann", reason="the bank is back")
    page = visit("/bulk")
    page.get_by_role("link", name="Replay").click()
    expect(page).to_have_url(f"{visit.url}/bulk/{begun.id}")
    expect(page.get_by_text("the bank is back")).to_be_visible()
    page.get_by_role("button", name="Abort").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("a wrong filter")
    dialog.get_by_role("button", name="Abort").click()
    expect(page.locator(".head [data-state=aborted]")).to_be_visible()
    expect(page.get_by_role("button", name="Abort")).to_have_attribute("title", "It is aborted already.")
    found = hold.letters.bulk.progress(begun.id)
    assert found is not None
    assert found.note == "aborted by local"


def test_operations_are_filtered_by_state_and_lead_to_their_letters(hold: Holdfast, visit: Visit) -> None:
    file(hold, 2)
    hold.letters.bulk.start(LetterFilter(domain="payments"))
    gone = hold.letters.bulk.start(LetterFilter(domain="stock"))
    hold.letters.bulk.abort(gone.id)
    page = visit("/bulk?state=pending")
    rows = page.get_by_role("table", name="Bulk operations").locator("tbody tr")
    expect(rows).to_have_count(1)
    rows.first.get_by_role("link").click()
    page.get_by_role("link", name="See them").click()
    expect(page.get_by_role("table", name="Letters").locator("tbody tr")).to_have_count(2)


def test_nothing_sticks_out_of_a_narrow_window(hold: Holdfast, visit: Visit) -> None:
    file(hold, 12, error_message="x" * 400)
    begun = hold.letters.bulk.start(LetterFilter(domain="payments"), reason="y" * 300, requested_by="z" * 100)
    for path in ("/bulk", f"/bulk/{begun.id}", "/letters?bulk=replay"):
        page: Page = visit(path, viewport=NARROW)
        page.locator(".card, .bulk-preview").first.wait_for()
        assert sticks_out(page) == 0, path
