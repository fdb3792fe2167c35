"""Sagas in the console: every screen and every action, in a browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from holdfast import Holdfast
from tests.console.acts import acts
from tests.console.test_outbox import confirm
from tests.console.visiting import NARROW, SHADES, Visit
from tests.server.calls import SECRET, Calls


@pytest.fixture
def calls(hold: Holdfast) -> Calls:
    return Calls(hold, attempts=1)


def test_without_sagas_it_says_how_one_begins(visit: Visit, calls: Calls) -> None:
    page = visit("/sagas")
    expect(page.get_by_role("heading", name="No sagas")).to_be_visible()
    expect(page.get_by_text("hold.sagas.start")).to_be_visible()


def test_sagas_are_listed_and_filtered_by_state(visit: Visit, calls: Calls) -> None:
    calls.start("o-1")
    calls.run()
    calls.start("o-2")
    page = visit("/sagas")
    rows = page.get_by_role("table", name="Sagas").locator("tbody tr")
    expect(rows).to_have_count(2)
    page.get_by_role("combobox", name="Filter").fill("state:comp")
    page.get_by_role("option", name="completed").click()
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("o-1")
    expect(page).to_have_url(f"{visit.url}/sagas?state=completed")


@acts("POST /sagas/{id}/resume")
def test_a_stuck_saga_is_resumed_and_completes(visit: Visit, calls: Calls) -> None:
    calls.down.add("ship")
    calls.start("o-1")
    calls.run()
    page = visit("/sagas")
    page.get_by_role("link", name="order").click()
    expect(page.locator("h1 + .badge")).to_have_text("stuck")
    step = page.locator('[data-step="ship"]')
    expect(step).to_contain_text("may have happened all the same")
    expect(step).to_contain_text("ConnectionError")
    expect(page.locator('[data-step="charge"]')).to_contain_text("pivot")
    expect(page.get_by_role("button", name="Undo")).to_have_attribute("aria-disabled", "true")
    calls.down.clear()
    page.get_by_role("button", name="Resume").click()
    confirm(page, "Resume", "the dock is open")
    expect(page.locator("h1 + .badge")).to_have_text("running")
    calls.run()
    expect(page.locator("h1 + .badge")).to_have_text("completed")


@acts("POST /sagas/{id}/resolve")
def test_a_step_is_said_to_be_done_by_hand(visit: Visit, calls: Calls, hold: Holdfast) -> None:
    calls.down.add("ship")
    id = calls.start()
    calls.run()
    page = visit(f"/sagas/{id}")
    page.get_by_role("button", name="Done by hand").click()
    confirm(page, "It was done", "shipped by courier")
    expect(page.get_by_text("ship is resolved; the saga is completed")).to_be_visible()
    run = hold.sagas.get(id)
    assert run is not None
    assert run.state == "completed"


@acts("POST /sagas/{id}/cancel", "POST /sagas/{id}/reveal")
def test_a_running_saga_is_undone_and_its_data_revealed(visit: Visit, calls: Calls) -> None:
    id = calls.start()
    calls.run(rounds=1)
    page = visit(f"/sagas/{id}")
    assert SECRET not in page.content()
    page.get_by_role("button", name="Reveal").click()
    confirm(page, "Reveal", "a complaint")
    expect(page.get_by_role("group", name="Data").get_by_text(SECRET)).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    confirm(page, "Undo", "the customer has cancelled")
    expect(page.locator("h1 + .badge")).to_have_text("compensating")
    expect(page.locator('[data-step="reserve"]').get_by_role("link", name="release")).to_be_visible()
    calls.run()
    expect(page.locator("h1 + .badge")).to_have_text("compensated")


def test_a_saga_leads_to_its_calls_and_back(visit: Visit, calls: Calls) -> None:
    id = calls.start()
    calls.run()
    page = visit(f"/sagas/{id}")
    page.get_by_role("link", name="entries in the outbox").click()
    expect(page.get_by_role("table", name="Entries").locator("tbody tr")).to_have_count(3)
    page.get_by_role("link", name="ship").click()
    page.get_by_role("link", name="ship (forward)").click()
    expect(page).to_have_url(f"{visit.url}/sagas/{id}")


@pytest.mark.parametrize("shade", SHADES)
def test_nothing_sticks_out_of_a_narrow_page(visit: Visit, calls: Calls, shade: str) -> None:
    calls.down.add("ship")
    id = calls.start("x" * 255)
    calls.run()
    for path in ("/sagas", f"/sagas/{id}"):
        page = visit(path, viewport=NARROW, shade=shade)
        expect(page.get_by_text("order").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
