"""Schedules in a browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from holdfast import Holdfast
from tests.console.acts import acts
from tests.console.test_workflows import confirm, press, sideways
from tests.console.visiting import NARROW, Visit, sticks_out
from tests.server.orders import SECRET, Shop


@pytest.fixture
def shop(hold: Holdfast) -> Shop:
    return Shop(hold)


def test_without_schedules_the_list_says_how_one_is_made(visit: Visit) -> None:
    page = visit("/schedules")
    expect(page.get_by_role("heading", name="No schedules")).to_be_visible()
    expect(page.get_by_role("button", name="New schedule")).to_have_attribute("title", re.compile("serve with --app"))


@acts("POST /schedules", *(f"POST /schedules/{{name}}/{verb}" for verb in ("pause", "resume", "run", "remove")))
def test_a_schedule_is_made_run_held_changed_and_removed(shop: Shop, visit: Visit) -> None:
    page = visit("/schedules")
    press(page, "New schedule")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Workflow").select_option("greet")
    confirm(
        page, "Make", "for the moon", Name="nightly/1", Cron="0 3 * * *", Time_zone="Europe/Berlin",
        Input='{"name": "moon"}',
    )  # fmt: skip
    expect(page).to_have_url(f"{visit.url}/schedules/nightly%2F1")
    expect(page.get_by_role("list", name="Next ticks").locator("li")).to_have_count(5)
    expect(page.get_by_role("list", name="Next ticks")).to_contain_text("03:00:00")
    press(page, "Pause")
    confirm(page, "Pause", None)
    expect(page.locator(".head .badge")).to_have_text("paused")
    press(page, "Resume")
    confirm(page, "Resume", None)
    expect(page.locator(".head .badge")).to_have_text("active")
    press(page, "Change")
    confirm(page, "Change", None, Cron="30 4 * * *")
    expect(page.get_by_role("list", name="Next ticks")).to_contain_text("04:30:00")
    press(page, "Run now")
    confirm(page, "Run now", None)
    expect(page).to_have_url(re.compile(r"/workflows/\w{24}$"))
    expect(page.locator("h1")).to_have_text("greet")
    page = visit("/schedules/nightly%2F1")
    press(page, "Remove")
    confirm(page, "Remove", "no moon any more")
    expect(page.get_by_role("heading", name="No schedules")).to_be_visible()
    assert shop.hold.workflows.schedules.all() == []


def test_a_cron_that_cannot_be_says_why(shop: Shop, visit: Visit) -> None:
    visit.allows(422)
    page = visit("/schedules")
    press(page, "New schedule")
    confirm(page, "Make", None, Name="never", Cron="0 0 30 2 *")
    expect(page.locator(".toast")).to_contain_text("bad day-of-month")


@acts("POST /schedules/{name}/reveal")
def test_the_input_is_masked_until_somebody_says_why(shop: Shop, visit: Visit) -> None:
    order = {"order": {"id": 1, "password": SECRET}}
    shop.hold.workflows.schedules.add("daily", "fulfil", order, cron="@daily")
    page = visit("/schedules")
    page.get_by_role("link", name="daily").click()
    shown = page.get_by_role("group", name="Input")
    expect(shown).to_contain_text("***")
    press(page, "Reveal")
    confirm(page, "Reveal")
    expect(shown).to_contain_text(SECRET)


def test_nothing_sticks_out_where_there_is_little_room(shop: Shop, visit: Visit) -> None:
    shop.hold.workflows.schedules.add("x" * 100, "greet", {"name": "y" * 300}, cron="@daily")
    for path in ("/schedules", f"/schedules/{'x' * 100}"):
        page = visit(path, viewport=NARROW, shade="dark")
        page.locator(".card").first.wait_for()
        assert sticks_out(page) == 0, path


def test_an_unknown_schedule_is_said_to_be_none(visit: Visit) -> None:
    visit.allows(404)
    expect(visit("/schedules/nothing").get_by_text("there is no schedule 'nothing'")).to_be_visible()


def test_every_column_of_a_narrow_window_is_in_sight(shop: Shop, visit: Visit) -> None:
    shop.hold.workflows.schedules.add("a schedule with a long name", "greet", cron="59 23 28-31 12 *")
    page = visit("/schedules", viewport=NARROW)
    page.get_by_role("columnheader", name="Next").wait_for()
    assert sideways(page) == 0
