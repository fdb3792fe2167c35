"""The outbox in the console: every screen and every action, in a browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from holdfast import Holdfast
from holdfast.access.rights import Role
from tests.console.acts import acts
from tests.console.holding import PASSWORD
from tests.console.visiting import NARROW, SHADES, Visit
from tests.server.calls import SECRET, Calls


@pytest.fixture
def calls(hold: Holdfast) -> Calls:
    return Calls(hold, attempts=1)


def confirm(page: Page, button: str, reason: str = "", count: int | None = None) -> None:
    """Answer the dialog that is open."""
    dialog = page.get_by_role("dialog")
    if reason:
        dialog.get_by_label("Reason").fill(reason)
    if count is not None:
        dialog.get_by_label("to confirm").fill(str(count))
    dialog.get_by_role("button", name=button, exact=True).click()
    expect(dialog).to_be_hidden()


def test_an_empty_outbox_says_how_entries_come_about(visit: Visit, calls: Calls) -> None:
    page = visit("/outbox")
    expect(page.get_by_role("heading", name="Nothing in the outbox")).to_be_visible()
    expect(page.get_by_text("hold.outbox.put")).to_be_visible()


def test_entries_are_filtered_by_the_address_and_by_suggestions(visit: Visit, calls: Calls) -> None:
    calls.give_up(subject_id="ann")
    calls.put("ship", target="dock")
    page = visit("/outbox")
    rows = page.get_by_role("table", name="Entries").locator("tbody tr")
    expect(rows).to_have_count(2)
    page.get_by_role("combobox", name="Filter").fill("status:aban")
    page.get_by_role("option", name="abandoned").click()
    expect(rows).to_have_count(1)
    expect(page).to_have_url(f"{visit.url}/outbox?status=abandoned")
    page.get_by_role("button", name="Remove Status abandoned").click()
    expect(rows).to_have_count(2)
    page.goto(f"{visit.url}/outbox?operation=ship&status=abandoned")
    expect(page.get_by_role("heading", name="No entry fits")).to_be_visible()


@acts("POST /outbox/{id}/requeue")
def test_an_abandoned_entry_is_opened_and_requeued(visit: Visit, calls: Calls) -> None:
    calls.give_up(subject_id="ann", target="smtp")
    page = visit("/outbox")
    page.get_by_role("link", name="mail").click()
    expect(page.get_by_role("heading", name="mail to smtp")).to_be_visible()
    expect(page.get_by_role("region", name="Attempts").get_by_text("abandoned")).to_be_visible()
    expect(
        page.get_by_role("region", name="Audit trail").get_by_text("mail to smtp failed: ConnectionError")
    ).to_be_visible()
    expect(page.get_by_role("button", name="Give up")).to_have_attribute("aria-disabled", "true")
    page.get_by_role("button", name="Requeue").click()
    confirm(page, "Requeue", "the relay is up")
    expect(page.get_by_text("Back in its queue")).to_be_visible()
    expect(page.locator("h1 + .badge")).to_have_text("pending")
    calls.run()
    assert calls.made == ["mail"]
    expect(page.locator("h1 + .badge")).to_have_text("succeeded")


@acts("POST /outbox/{id}/cancel", "POST /outbox/{id}/reveal")
def test_a_waiting_entry_is_given_up_and_a_payload_revealed_with_a_reason(
    visit: Visit, calls: Calls, hold: Holdfast
) -> None:
    id = calls.put()
    page = visit(f"/outbox/{id}")
    expect(page.get_by_text("Called as soon as a worker has room")).to_be_visible()
    assert SECRET not in page.content()
    page.get_by_role("button", name="Reveal").click()
    page.get_by_role("dialog").get_by_role("button", name="Reveal").click()
    expect(page.get_by_role("dialog")).to_be_visible()  # it wants a reason
    confirm(page, "Reveal", "the customer asks")
    expect(page.get_by_role("group", name="Payload").get_by_text(SECRET)).to_be_visible()
    page.get_by_role("button", name="Give up").click()
    confirm(page, "Give up", "sent by hand")
    expect(page.locator("h1 + .badge")).to_have_text("abandoned")
    entry = hold.outbox.get(id)
    assert entry is not None
    assert entry.last_error == "Cancelled"
    said = [one.event.payload.get("reason") for one in hold.audit.newest(subject_ref="operator:local").events]
    assert said == ["sent by hand", "the customer asks"]


@acts("POST /outbox/{id}/verify")
def test_a_denied_success_is_verified_again(visit: Visit, calls: Calls, hold: Holdfast) -> None:
    id = calls.put()
    calls.run()
    with hold.sessions.begin() as session:
        session.execute(hold.tables.outbox.update().values(verification="failed"))
    page = visit(f"/outbox/{id}")
    page.get_by_role("button", name="Verify again").click()
    confirm(page, "Ask again")
    expect(page.get_by_text("A worker asks the target again")).to_be_visible()
    entry = hold.outbox.get(id)
    assert entry is not None
    assert entry.verification == "pending"


@acts("POST /outbox/requeue")
def test_all_abandoned_entries_of_a_filter_are_requeued_once_their_number_is_typed(
    visit: Visit, calls: Calls, hold: Holdfast
) -> None:
    for n in range(3):
        calls.give_up(subject_id=f"s{n}", target="smtp")
    calls.give_up(operation="ship")
    page = visit("/outbox?operation=mail")
    page.get_by_role("button", name="Requeue abandoned").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("3 × mail to smtp")).to_be_visible()
    dialog.get_by_label("Reason").fill("the relay is up")
    expect(dialog.get_by_role("button", name="Requeue 3")).to_have_attribute("aria-disabled", "true")
    dialog.get_by_label("to confirm").fill("3")
    dialog.get_by_role("button", name="Requeue 3").click()
    expect(page.get_by_text("Requeued 3 entries")).to_be_visible()
    assert {str(one.operation) for one in hold.outbox.find(status="abandoned")} == {"ship"}


@acts("POST /outbox/queues/pause", "POST /outbox/queues/resume")
def test_a_queue_is_paused_and_resumed(visit: Visit, calls: Calls, hold: Holdfast) -> None:
    calls.put(queue="slow")
    page = visit("/outbox")
    page.get_by_role("button", name="Pause queue slow").click()
    confirm(page, "Pause", "the dock is closed")
    expect(page.get_by_text("the dock is closed")).to_be_visible()
    assert [one.queue for one in hold.outbox.paused()] == ["slow"]
    page.get_by_role("button", name="Resume queue slow").click()
    confirm(page, "Resume")
    expect(page.get_by_role("button", name="Pause queue slow")).to_be_visible()
    assert hold.outbox.paused() == ()


def test_who_may_only_look_is_told_which_right_is_missing(visit: Visit, calls: Calls, hold: Holdfast) -> None:
    id = calls.give_up()
    hold.access.add_user("eve", PASSWORD, Role.VIEWER, by="test")
    visit.allows(401)
    page = visit(f"/outbox/{id}")
    page.get_by_label("Name").fill("eve")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    button = page.get_by_role("button", name="Requeue")
    expect(button).to_have_attribute("aria-disabled", "true")
    expect(button).to_have_attribute("title", "eve may not do this: it needs the right outbox:operate.")


@pytest.mark.parametrize("shade", SHADES)
def test_nothing_sticks_out_of_a_narrow_page(visit: Visit, calls: Calls, shade: str) -> None:
    id = calls.give_up(subject_id="x" * 255, target="y" * 200)
    calls.put(queue="q" * 64)
    for path in ("/outbox", f"/outbox/{id}"):
        page = visit(path, viewport=NARROW, shade=shade)
        expect(page.get_by_text("mail").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
