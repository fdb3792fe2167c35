"""What is old is archived and deleted in a browser: counted first, agreed to, then said how many that were."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Locator, Route, expect

from holdfast import Holdfast
from holdfast.access.rights import Role
from holdfast.machine.dead_letter import LETTER
from holdfast.server.routes import agreeing, letter_keeping
from holdfast.store.query import equal
from tests.console.acts import acts
from tests.console.holding import PASSWORD
from tests.console.looking import in_both_shades, looked_at
from tests.console.visiting import NARROW, Visit, comes_true, settled, sticks_out
from tests.outbox.entries import enqueue, make_entry
from tests.server.orders import Shop
from tests.server.served import file

DAY_US = 86_400_000_000
WHY = "the quarter is over"
PLACES = {
    "/letters?tab=retention&old=archive": "letters:operate",
    "/letters?tab=retention&old=purge": "letters:admin",
    "/outbox?old=prune": "outbox:admin",
    "/workflows?old=prune": "workflows:admin",
}


@pytest.fixture
def two_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreeing, "AT_ONCE", 2)
    monkeypatch.setattr(letter_keeping, "AT_ONCE", 2)


def resolved(hold: Holdfast, number: int, days: int = 0) -> list[str]:
    """Letters that were resolved so many days ago."""
    ids = file(hold, number)
    for id in ids:
        hold.letters.mark_as_resolved(id, "manual")
        hold.store.sweep(LETTER, equal(id=id), {"aged_at": hold.store.now() - days * DAY_US - 1})
    return ids


def archived(hold: Holdfast, number: int) -> None:
    resolved(hold, number)
    hold.letters.archive_old_resolved(0)


def succeeded(hold: Holdfast, days: int) -> None:
    """An entry that succeeded so many days ago."""
    at = datetime.now(UTC) - timedelta(days=days, seconds=1)
    enqueue(hold.outbox, make_entry(f"s{days}", at=at, status="succeeded", last_attempt_at=at))


def older_than(dialog: Locator, days: int, matched: int) -> None:
    """Ask for another age, and wait until it is counted."""
    dialog.get_by_label("Older than, in days").fill(str(days))
    expect(dialog.locator(f'[data-matched="{matched}"]')).to_be_visible()


def agree(dialog: Locator, matched: int) -> None:
    dialog.get_by_label("Reason").fill(WHY)
    dialog.get_by_label(f"Type {matched} to confirm").fill(str(matched))


def reasons(hold: Holdfast, act: str) -> list[Any]:
    """The reasons for an act in the audit trail."""
    events = hold.audit.read("operator:local")
    return [event.payload["reason"] for event in events if event.payload["act"] == act]


@acts("POST /letters/archive")
@pytest.mark.usefixtures("two_at_a_time")
def test_resolved_letters_are_archived_of_the_age_that_is_asked_for(hold: Holdfast, visit: Visit) -> None:
    resolved(hold, 1, days=40)
    resolved(hold, 2)
    page = visit("/letters?tab=retention")
    page.get_by_role("button", name="Archive resolved").click()
    dialog = page.get_by_role("dialog")
    expect(page).to_have_url(f"{visit.url}/letters?tab=retention&old=archive")
    expect(dialog.get_by_label("Older than, in days")).to_be_focused()
    expect(dialog.get_by_label("Older than, in days")).to_have_value("30")
    expect(dialog.get_by_text("1 letter would be archived")).to_be_visible()
    older_than(dialog, 0, 3)
    dialog.get_by_role("button", name="Archive 3 letters").click()
    expect(page.get_by_text("Archived 3 letters")).to_be_visible()
    expect(dialog).to_be_hidden()
    expect(page).to_have_url(f"{visit.url}/letters?tab=retention")
    assert hold.letters.count(status="archived") == 3
    assert reasons(hold, "letters.archive") == ["", ""]


@acts("POST /letters/purge")
@pytest.mark.usefixtures("two_at_a_time")
def test_archived_letters_are_deleted_once_their_number_is_typed(hold: Holdfast, visit: Visit) -> None:
    archived(hold, 5)
    (waiting,) = file(hold)
    page = visit("/letters?tab=retention")
    page.get_by_role("button", name="Delete archived").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("0 letters would be deleted")).to_be_visible()
    delete = dialog.get_by_role("button", name=re.compile("^Delete"))
    expect(delete).to_have_attribute("title", "None is as old, so there is nothing to do.")
    older_than(dialog, 0, 5)
    expect(delete).to_have_attribute("title", "Say why first.")
    dialog.get_by_label("Reason").fill(WHY)
    expect(delete).to_have_attribute("title", "Type 5 first.")
    dialog.get_by_label("Type 5 to confirm").fill("4")
    expect(delete).to_have_attribute("aria-disabled", "true")
    agree(dialog, 5)
    dialog.get_by_role("button", name="Delete 5 letters", exact=True).click()
    expect(page.get_by_text("Deleted 5 letters")).to_be_visible()
    assert [letter.id for letter in hold.letters.find()] == [waiting]
    assert reasons(hold, "letters.purge") == [WHY] * 3


@acts("POST /outbox/prune")
def test_entries_that_succeeded_long_ago_are_deleted(hold: Holdfast, visit: Visit) -> None:
    for days in (1, 31, 45):
        succeeded(hold, days)
    page = visit("/outbox?status=succeeded")
    page.get_by_role("button", name="Delete old").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("2 entries would be deleted")).to_be_visible()
    expect(dialog.get_by_text(re.compile(r"\(before \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\)"))).to_be_visible()
    agree(dialog, 2)
    dialog.get_by_role("button", name="Delete 2 entries", exact=True).click()
    expect(page.get_by_text("Deleted 2 entries")).to_be_visible()
    expect(page).to_have_url(f"{visit.url}/outbox?status=succeeded")
    expect(page.get_by_role("table", name="Entries").locator("tbody tr")).to_have_count(1)
    assert reasons(hold, "outbox.prune") == [WHY]


@acts("POST /workflows/prune")
@pytest.mark.usefixtures("two_at_a_time")
def test_workflows_that_ended_are_deleted_and_it_is_said_which_stay(hold: Holdfast, visit: Visit) -> None:
    shop = Shop(hold)
    for id in [shop.order(works=False) for _ in range(3)]:
        hold.workflows.cancel(id)
    shop.rejects = True
    left = {shop.order()}
    left.add(shop.order(works=False))
    page = visit("/workflows")
    page.get_by_role("button", name="Delete old").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("0 workflows would be deleted")).to_be_visible()
    older_than(dialog, 0, 3)
    expect(dialog.get_by_text("1 workflow as old would stay: it has a dead letter")).to_be_visible()
    agree(dialog, 3)
    dialog.get_by_role("button", name="Delete 3 workflows", exact=True).click()
    expect(page.get_by_text("Deleted 3 workflows")).to_be_visible()
    expect(page.get_by_role("table", name="Workflows").locator("tbody tr")).to_have_count(2)
    assert {one.id for one in hold.workflows.find()} == left
    assert reasons(hold, "workflows.prune") == [WHY] * 2


def test_nothing_is_deleted_that_was_not_counted(hold: Holdfast, visit: Visit) -> None:
    visit.allows(409)
    archived(hold, 2)
    page = visit("/letters?tab=retention&old=purge")
    dialog = page.get_by_role("dialog")
    older_than(dialog, 0, 2)
    agree(dialog, 2)
    archived(hold, 1)
    dialog.get_by_role("button", name="Delete 2 letters", exact=True).click()
    expect(page.get_by_text("3 archived letters match by now, and not 2; look again, and confirm")).to_be_visible()
    expect(dialog.locator('[data-matched="3"]')).to_be_visible()
    expect(dialog.get_by_label("Type 3 to confirm")).to_have_value("")
    assert hold.letters.count(status="archived") == 3


@pytest.mark.usefixtures("two_at_a_time")
def test_deleting_many_can_be_stopped_and_says_how_many_are_gone(hold: Holdfast, visit: Visit) -> None:
    archived(hold, 5)
    page = visit("/letters?tab=retention&old=purge")
    dialog = page.get_by_role("dialog")
    older_than(dialog, 0, 5)
    agree(dialog, 5)
    under_way: list[Route] = []
    page.route("**/api/v1/letters/purge", lambda route: under_way.append(route))
    dialog.get_by_role("button", name="Delete 5 letters", exact=True).click()
    comes_true(page, lambda: len(under_way) == 1)
    expect(dialog.get_by_role("meter", name="Deleted")).to_have_attribute("aria-valuemax", "5")
    dialog.get_by_role("button", name="Stop").click()
    under_way[0].continue_()
    expect(page.get_by_text("Deleted 2 letters; 3 more were to go")).to_be_visible()
    expect(dialog).to_be_hidden()
    assert hold.letters.count(status="archived") == 3


@pytest.mark.parametrize("days", ["", "-1", "1.5", "36501"])
def test_an_age_is_a_number_of_days(hold: Holdfast, visit: Visit, days: str) -> None:
    archived(hold, 1)
    dialog = visit("/letters?tab=retention&old=purge").get_by_role("dialog")
    older_than(dialog, 0, 1)
    dialog.get_by_label("Older than, in days").fill(days)
    delete = dialog.get_by_role("button", name=re.compile("^Delete"))
    expect(delete).to_have_attribute("title", "Say how old in whole days, from 0 to 36,500.")


def test_who_may_not_is_told_which_right_is_missing(hold: Holdfast, visit: Visit) -> None:
    archived(hold, 1)
    hold.access.add_user("olga", PASSWORD, Role.OPERATOR, by="test")
    visit.allows(401)
    page = visit("/letters?tab=retention")
    page.get_by_label("Name").fill("olga")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("button", name="Archive resolved")).not_to_have_attribute("aria-disabled", "true")
    for path, right in PLACES.items():
        if right.endswith(":admin"):
            page.goto(visit.url + path)
            button = page.get_by_role("dialog").get_by_role("button", name=re.compile("^Delete"))
            words = f"olga may not do this: it needs the right {right}."
            expect(button).to_have_attribute("title", words)
            page.keyboard.press("Escape")
            expect(page.locator("main").get_by_role("button", name=re.compile("^Delete"))).to_have_attribute(
                "title", words
            )


def test_nothing_keeps_anybody_from_doing_it_and_it_fits_a_phone(hold: Holdfast, visit: Visit) -> None:
    archived(hold, 1)
    page, found = looked_at(visit), []
    for path in PLACES:
        page.goto(visit.url + path)
        settled(page)
        dialog = page.get_by_role("dialog")
        if path == "/letters?tab=retention&old=purge":
            older_than(dialog, 0, 1)
        found += in_both_shades(page, path)
        page.set_viewport_size(NARROW)
        assert sticks_out(page) == 0, path
        box = dialog.bounding_box()
        assert box is not None
        assert box["x"] >= 0, path
        assert box["x"] + box["width"] <= NARROW["width"], path
    assert not found, "\n".join(found)
