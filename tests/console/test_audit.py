"""The audit trail in the console: reading it, verifying it, taking checkpoints, in a browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from holdfast import Holdfast
from holdfast.audit.event import AuditEvent
from tests.console.acts import acts
from tests.console.test_outbox import confirm
from tests.console.visiting import NARROW, SHADES, Visit


def fill(hold: Holdfast, number: int = 5, kind: str = "consent_granted") -> list[AuditEvent]:
    events = [AuditEvent(event_type=kind, subject_ref=f"s{n}", payload={"n": n}) for n in range(number)]
    with hold.sessions.begin() as session:
        hold.audit.append_in(session, events)
    return events


def test_an_empty_trail_says_what_will_be_in_it(visit: Visit) -> None:
    page = visit("/audit")
    expect(page.get_by_role("heading", name="The trail is empty")).to_be_visible()
    expect(page.get_by_text("never verified")).to_be_visible()


def test_who_did_what_is_read_as_a_sentence_and_opened(visit: Visit, hold: Holdfast) -> None:
    fill(hold)
    page = visit("/outbox")
    page.get_by_role("button", name="Pause queue default").click()
    confirm(page, "Pause", "storm")
    page.goto(f"{visit.url}/audit?subject=operator:local")
    link = page.get_by_role("link", name="local asked to pause")
    expect(link).to_contain_text("storm")
    link.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("group", name="Facts").get_by_text("outbox.pause")).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page).to_have_url(f"{visit.url}/audit?subject=operator%3Alocal")


def test_events_are_filtered_by_type_with_suggestions(visit: Visit, hold: Holdfast) -> None:
    fill(hold, 3)
    fill(hold, 1, "consent_withdrawn")
    page = visit("/audit")
    rows = page.get_by_role("table", name="Events").locator("tbody tr")
    expect(rows).to_have_count(4)
    page.get_by_role("combobox", name="Filter").fill("type:consent_w")
    page.get_by_role("option", name="consent_withdrawn").click()
    expect(rows).to_have_count(1)


@acts("POST /audit/verify")
def test_a_trail_in_order_is_verified_and_says_until_when_and_by_whom(visit: Visit, hold: Holdfast) -> None:
    fill(hold)
    page = visit("/audit")
    chain = page.get_by_role("region", name="The chain")
    expect(chain.get_by_text("never verified")).to_be_visible()
    chain.get_by_role("button", name="Verify").click()
    confirm(page, "Verify", "the month is over")
    expect(chain.get_by_text("In order: 6 events")).to_be_visible()
    expect(chain).to_contain_text("by local")
    expect(page.get_by_text("local found 6 events")).to_be_visible()


@acts("POST /audit/verify")
def test_a_broken_chain_is_shown_and_explained(visit: Visit, hold: Holdfast) -> None:
    events = fill(hold)
    table = hold.tables.audit_events
    with hold.sessions.begin() as session:
        session.execute(table.update().where(table.c.event_id == events[2].event_id).values(payload={"n": 77}))
    page = visit("/audit")
    page.get_by_role("button", name="Verify").click()
    confirm(page, "Verify")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("1 stream is not as written")
    expect(alert).to_contain_text(str(events[2].event_id))
    expect(alert).to_contain_text("it is not what was written")
    alert.get_by_role("link", name="What that means").click()
    expect(page.get_by_text("Do not repair it")).to_be_visible()


@acts("POST /audit/checkpoints")
def test_checkpoints_are_taken_and_saved(visit: Visit, hold: Holdfast, tmp_path: Path) -> None:
    fill(hold)
    page = visit("/audit?tab=streams")
    page.get_by_role("button", name="Take checkpoints").click()
    confirm(page, "Take checkpoints", "weekly")
    expect(page.get_by_label("Checkpoints", exact=True).last).to_contain_text("event_hash")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Save as a file").click()
    kept = tmp_path / "checkpoints.jsonl"
    waiting.value.save_as(kept)
    taken = hold.audit.import_checkpoints(kept.read_text())
    assert taken
    assert {one.stream for one in taken} <= {*hold.audit.streams()}
    expect(page.get_by_role("table", name="Streams").get_by_text("none")).to_have_count(0)


@pytest.mark.parametrize("shade", SHADES)
def test_nothing_sticks_out_of_a_narrow_page(visit: Visit, hold: Holdfast, shade: str) -> None:
    hold.audit.append(AuditEvent(event_type="consent_granted", subject_ref="x" * 255, payload={"text": "y" * 900}))
    for tab in ("events", "streams", "help"):
        page = visit(f"/audit?tab={tab}", viewport=NARROW, shade=shade)
        expect(page.get_by_role("tabpanel")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
