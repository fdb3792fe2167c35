"""The doctor, in a browser."""

from __future__ import annotations

from playwright.sync_api import expect

from holdfast import Retry
from holdfast.doctor.rules import RULES
from tests.console.visiting import NARROW, sticks_out
from tests.server.running import server_of


def test_findings_are_grouped_by_how_bad_they_are_with_what_to_do(hold, visit):
    hold.guard("loose", Retry(attempts=None))
    page = visit("/doctor")
    expect(page.get_by_text("unhealthy")).to_be_visible()
    errors = page.get_by_role("region", name="Errors")
    expect(errors).to_contain_text("HF102")
    expect(errors).to_contain_text("guard 'loose'")
    expect(errors).to_contain_text("add Timeout(total=...)")
    expect(page.get_by_role("region", name="Hints")).to_contain_text("HF405")


def test_each_heading_can_be_understood_without_the_others(hold, visit):
    hold.guard("endless", Retry(attempts=3))  # without a timeout
    page = visit("/doctor")
    expect(
        page.get_by_role("heading", name="Warnings: work or calls may be lost under load or failure")
    ).to_be_visible()
    expect(page.get_by_placeholder("Filter by rules to leave out")).to_be_visible()


def test_a_fresh_look_sees_what_is_new(hold, visit):
    page = visit("/doctor")
    expect(page.get_by_role("region", name="Hints")).to_be_visible()
    expect(page.get_by_role("region", name="Errors")).to_have_count(0)
    hold.guard("loose", Retry(attempts=None))
    page.get_by_role("button", name="Look again").click()
    expect(page.get_by_role("region", name="Errors")).to_contain_text("HF102")


def test_a_rule_is_left_out_and_the_address_says_so(hold, visit):
    hold.guard("loose", Retry(attempts=None))
    page = visit("/doctor")
    page.get_by_role("button", name="Leave out HF102").click()
    expect(page).to_have_url(visit.url + "/doctor?ignore=HF102")
    expect(page.get_by_role("region", name="Errors")).to_have_count(0)
    page.go_back()
    expect(page.get_by_role("region", name="Errors")).to_be_visible()


def test_with_everything_left_out_nothing_is_found(hold, visit):
    page = visit("/doctor?" + "&".join(f"ignore={rule.id}" for rule in RULES))
    expect(page.get_by_text("Nothing found")).to_be_visible()


def test_every_rule_is_listed(hold, visit):
    page = visit("/doctor")
    page.get_by_role("tab", name="Rules").click()
    expect(page).to_have_url(visit.url + "/doctor?tab=rules")
    expect(page.get_by_role("table", name="Rules").get_by_role("row")).to_have_count(len(RULES) + 1)


def test_what_was_not_looked_at_is_said(hold, visit):
    with server_of(hold, has_program=False) as url:
        page = visit.window()
        page.goto(url + "/doctor")
        expect(page.get_by_text("this server has no program")).to_be_visible()
        page.close()


def test_nothing_sticks_out_where_there_is_little_room(hold, visit):
    hold.guard("loose-" + "x" * 150, Retry(attempts=None))
    for path in ("/doctor", "/doctor?tab=rules"):
        page = visit(path, viewport=NARROW)
        page.locator(".card").first.wait_for()
        assert sticks_out(page) == 0
