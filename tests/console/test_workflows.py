"""Workflows in a browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from holdfast import Holdfast, task, wait_signal, workflow
from holdfast.access.rights import Role
from holdfast.testing import ManualClock
from holdfast.workflows.records import ITEM
from tests.console.acts import acts
from tests.console.holding import PASSWORD
from tests.console.looking import in_both_shades, looked_at
from tests.console.visiting import NARROW, Visit, comes_true, settled, sticks_out
from tests.server.clients import holding as clocked
from tests.server.orders import SECRET, Shop, wide
from tests.server.running import server_of


@pytest.fixture
def shop(hold: Holdfast) -> Shop:
    return Shop(hold)


def press(page: Page, button: str) -> None:
    """Press a button of the page."""
    page.get_by_role("button", name=button, exact=True).first.click()


def confirm(page: Page, button: str, reason: str | None = "a customer asked", **fields: str) -> None:
    """Answer the question that is open."""
    dialog = page.get_by_role("dialog").last
    for label, value in fields.items():
        dialog.get_by_label(label.replace("_", " "), exact=True).fill(value)
    if reason is not None:
        dialog.get_by_label("Reason").fill(reason)
    dialog.get_by_role("button", name=button, exact=True).click()


def badge(page: Page) -> Locator:
    return page.locator(".head .badge")


def node(page: Page, ref: str) -> Locator:
    return page.locator(f'.dag-node[data-stage="{ref}"]')


def sideways(page: Page) -> int:
    """By how many pixels the table is wider than its room."""
    return int(page.locator(".table-frame").evaluate("frame => frame.scrollWidth - frame.clientWidth"))


def said(hold: Holdfast, act: str) -> list[Any]:
    """The reasons for an act in the audit trail."""
    events = hold.audit.read("operator:local")
    return [event.payload["reason"] for event in events if event.payload["act"] == f"workflows.{act}"]


def test_without_workflows_the_list_says_where_they_would_come_from(visit: Visit) -> None:
    page = visit("/workflows")
    expect(page.get_by_role("heading", name="No workflows")).to_be_visible()
    expect(page.get_by_role("button", name="Start")).to_have_attribute("title", re.compile("serve with --app"))
    page.get_by_role("tab", name="Stranded").click()
    expect(page.get_by_role("heading", name="Nothing is stranded")).to_be_visible()
    page.get_by_role("tab", name="Dead items").click()
    expect(page.get_by_role("heading", name="No dead items")).to_be_visible()


def test_workflows_are_listed_filtered_and_paged_and_the_address_says_how(shop: Shop, visit: Visit) -> None:
    shop.hold.workflows.start_many("greet", [(f"n{at}",) for at in range(60)])
    canceled = shop.order(works=False)
    shop.hold.workflows.cancel(canceled, "no stock")
    page = visit("/workflows")
    rows = page.get_by_role("table", name="Workflows").locator("tbody tr")
    expect(rows).to_have_count(50)
    page.get_by_role("button", name="Next").click()
    expect(rows).to_have_count(11)
    page = visit("/workflows")
    rows = page.get_by_role("table", name="Workflows").locator("tbody tr")
    expect(rows).to_have_count(50)
    page.get_by_role("combobox", name="Filter").press_sequentially("canc")
    page.get_by_role("option", name="canceled").click()
    expect(page).to_have_url(f"{visit.url}/workflows?status=CANCELED")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("no stock")
    page.keyboard.press("Escape")
    page.locator("h1").click()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{visit.url}/workflows/{canceled}")


def test_work_that_nobody_can_take_is_marked_and_told(shop: Shop, visit: Visit) -> None:
    id = shop.order(works=False)
    page = visit("/workflows")
    expect(page.get_by_role("table", name="Workflows")).to_contain_text("no worker is there")
    page.get_by_role("tab", name="Stranded").click()
    stranded = page.get_by_role("table", name="Stranded work")
    expect(stranded.get_by_role("columnheader", name="Since")).to_be_visible()  # the cells say "5 s ago"
    stranded.get_by_role("link").click()
    expect(page).to_have_url(f"{visit.url}/workflows/{id}?stage=reserve")
    expect(page.get_by_text("no worker is there").first).to_be_visible()


@acts("POST /workflows")
def test_a_workflow_is_started_here_and_followed_to_its_end(shop: Shop, visit: Visit) -> None:
    page = visit("/workflows")
    press(page, "Start")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Workflow").select_option("greet")
    confirm(page, "Start", "to see", Input="nonsense")
    expect(page.locator(".toast").get_by_text("The input is not JSON")).to_be_visible()
    press(page, "Start")
    dialog.get_by_label("Workflow").select_option("greet")
    confirm(page, "Start", "to see", Input='{"name": "moon"}', Idempotency_key="one")
    expect(page).to_have_url(re.compile(r"/workflows/\w{24}$"))
    expect(badge(page)).to_have_text("running")
    shop.work()
    expect(badge(page)).to_have_text("succeeded")
    expect(node(page, "hello")).to_have_attribute("data-state", "SUCCEEDED")
    assert said(shop.hold, "start") == ["to see", "to see"][:1]


@acts("POST /workflows/{id}/retry")
def test_what_has_failed_is_retried_and_the_page_shows_it_go_on(shop: Shop, visit: Visit) -> None:
    shop.rejects = True
    id = shop.order()
    page = visit(f"/workflows/{id}")
    expect(badge(page)).to_have_text("failed")
    node(page, "charge").click()
    expect(page.locator(".workflows-error")).to_have_text("PermanentError: the card is no card")
    shop.rejects = False
    press(page, "Retry")
    confirm(page, "Retry", "a new card")
    expect(badge(page)).to_have_text("running")
    shop.work()
    expect(node(page, "charge")).to_have_attribute("data-state", "SUCCEEDED")
    assert shop.charged == [7]
    assert said(shop.hold, "retry") == ["a new card"]


@acts("POST /workflows/{id}/pause", "POST /workflows/{id}/resume")
def test_a_workflow_is_held_and_goes_on(shop: Shop, visit: Visit) -> None:
    id = shop.order(works=False)
    page = visit(f"/workflows/{id}")
    press(page, "Pause")
    confirm(page, "Pause", "stocktaking")
    expect(badge(page)).to_have_text("paused")
    expect(page.get_by_text("stocktaking")).to_be_visible()
    shop.work()
    press(page, "Resume")
    confirm(page, "Resume", None)
    expect(badge(page)).to_have_text("running")
    shop.work()
    expect(node(page, "charge")).to_have_attribute("data-state", "SUCCEEDED")


@acts("POST /workflows/{id}/signal")
def test_a_signal_lets_the_waiting_stage_go_on(shop: Shop, visit: Visit) -> None:
    id = shop.order()
    page = visit(f"/workflows/{id}")
    expect(page.get_by_text("waits for signal 'approve'").first).to_be_visible()
    press(page, "Signal")
    expect(page.get_by_role("dialog").get_by_label("Name")).to_have_value("approve")
    confirm(page, "Send", Value='{"by": "ann"}')
    expect(page.get_by_text("A stage waited for it and goes on")).to_be_visible()
    shop.work()
    expect(badge(page)).to_have_text("succeeded")


@acts("POST /workflows/{id}/approve")
def test_a_yes_lets_the_waiting_stage_go_on(shop: Shop, visit: Visit) -> None:
    id = shop.order()
    page = visit(f"/workflows/{id}")
    press(page, "Approve")
    confirm(page, "Approve", None, Comment="seen and weighed")
    expect(page.get_by_text("A stage waited for it and goes on")).to_be_visible()
    shop.work()
    expect(badge(page)).to_have_text("succeeded")
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    assert said(shop.hold, "approve") == ["seen and weighed"]


@acts("POST /workflows/{id}/reject")
def test_a_no_is_told_to_the_stage_that_waits(shop: Shop, visit: Visit) -> None:
    id = shop.order()
    page = visit(f"/workflows/{id}")
    press(page, "Reject")
    confirm(page, "Reject", None, Comment="too heavy")
    expect(page.get_by_text("A stage waited for it and goes on")).to_be_visible()
    assert said(shop.hold, "reject") == ["too heavy"]


@acts("POST /workflows/{id}/cancel")
def test_a_workflow_is_canceled_for_a_reason_only(shop: Shop, visit: Visit) -> None:
    id = shop.order()
    page = visit(f"/workflows/{id}")
    press(page, "Cancel")
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Cancel the workflow").click()
    expect(dialog).to_be_visible()
    confirm(page, "Cancel the workflow", "a customer asked")
    expect(badge(page)).to_have_text("canceled")
    expect(page.get_by_text("a customer asked").first).to_be_visible()
    expect(page.get_by_role("button", name="Signal (")).to_have_attribute("title", "It has ended.")


@acts("POST /workflows/{id}/recover")
def test_what_is_missing_in_a_workflow_is_found(shop: Shop, visit: Visit) -> None:
    id = shop.order(works=False)
    page = visit(f"/workflows/{id}")
    press(page, "Recover")
    confirm(page, "Recover", None)
    expect(page.get_by_text("Nothing was missing")).to_be_visible()
    shop.hold.store.sweep(ITEM, ())
    press(page, "Recover")
    confirm(page, "Recover", None)
    expect(page.get_by_text("It is recovered")).to_be_visible()
    shop.work()
    expect(node(page, "charge")).to_have_attribute("data-state", "SUCCEEDED")


@acts("POST /workflows/{id}/stages/{stage}/skip", "POST /workflows/{id}/stages/{stage}/cancel")
def test_a_stage_is_left_out_or_canceled(shop: Shop, visit: Visit) -> None:
    for button, confirms, state in (
        ("Leave out", "Leave out", "SKIPPED"),
        ("Cancel", "Cancel the stage", "CANCELED"),
    ):
        id = shop.order()
        page = visit(f"/workflows/{id}?stage=wait_signal")
        panel = page.get_by_role("region", name="wait_signal")
        panel.get_by_role("button", name=button, exact=True).click()
        confirm(page, confirms)
        expect(node(page, "wait_signal")).to_have_attribute("data-state", state)
        expect(panel.get_by_role("button", name="Leave out")).to_have_attribute("aria-disabled", "true")


def finished(shop: Shop) -> str:
    id = shop.order()
    shop.hold.workflows.signal(id, "approve")
    shop.work()
    return id


@acts("POST /workflows/{id}/stages/{stage}/restart")
def test_a_stage_is_run_again_and_what_comes_after_it(shop: Shop, visit: Visit) -> None:
    id = finished(shop)
    page = visit(f"/workflows/{id}?stage=charge")
    press(page, "Run again")
    confirm(page, "Run again")
    expect(badge(page)).to_have_text("running")
    shop.work()
    expect(node(page, "charge")).to_have_attribute("data-state", "SUCCEEDED")
    expect(node(page, "wait_signal")).to_have_attribute("data-state", "SUSPENDED")
    assert shop.charged == [7, 7]


@acts("POST /workflows/{id}/fork")
def test_a_fork_begins_at_a_stage_with_a_changed_input(shop: Shop, visit: Visit) -> None:
    id = finished(shop)
    page = visit(f"/workflows/{id}?stage=charge")
    press(page, "Fork")
    confirm(page, "Fork", Changes_of_the_input='{"order": {"id": 8}}')
    expect(page.get_by_text("Forked from")).to_be_visible()
    shop.work()
    expect(node(page, "charge")).to_have_attribute("data-state", "SUCCEEDED")
    assert shop.charged == [7, 8]


@acts("POST /workflows/{id}/reveal")
def test_secrets_are_masked_until_somebody_says_why(shop: Shop, visit: Visit) -> None:
    id = shop.order()
    page = visit(f"/workflows/{id}?stage=reserve")
    left = page.get_by_role("group", name="What it left")
    expect(left).to_contain_text("***")
    press(page, "Reveal")
    confirm(page, "Reveal", "to find the shelf")
    expect(left).to_contain_text(SECRET)
    page = visit(f"/workflows/{id}?tab=more")
    shown = page.get_by_role("group", name="Input")
    expect(shown).to_contain_text("***")
    press(page, "Reveal")
    confirm(page, "Reveal", "to find the customer")
    expect(shown).to_contain_text(SECRET)
    assert said(shop.hold, "reveal") == ["to find the shelf", "to find the customer"]


def test_the_graph_is_moved_zoomed_and_read_by_keyboard(shop: Shop, visit: Visit) -> None:
    id = shop.order()
    page = visit(f"/workflows/{id}")
    box = node(page, "reserve").locator(".dag-box")

    def width() -> float:
        return float((box.bounding_box() or {"width": 0.0})["width"])

    expect(box).to_be_visible()
    before = width()
    page.get_by_role("button", name="Larger").click()
    comes_true(page, lambda: width() > before * 1.2)
    page.get_by_role("button", name="Fit").click()
    comes_true(page, lambda: width() == pytest.approx(before, abs=1))
    frame = page.locator(".workflows-dag-frame")
    frame.focus()
    page.keyboard.press("+")
    comes_true(page, lambda: width() > before * 1.2)
    page.keyboard.press("0")
    node(page, "ship").focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{visit.url}/workflows/{id}?stage=ship")
    expect(node(page, "ship")).to_have_attribute("aria-pressed", "true")
    press(page, "Close the stage")
    expect(page).to_have_url(f"{visit.url}/workflows/{id}")


def test_the_slider_shows_how_everything_stood(shop: Shop, visit: Visit) -> None:
    id = shop.order()
    page = visit(f"/workflows/{id}")
    expect(node(page, "charge")).to_have_attribute("data-state", "SUCCEEDED")
    page.get_by_label("As of").fill("1")
    expect(page).to_have_url(f"{visit.url}/workflows/{id}?at=1")
    expect(node(page, "reserve")).to_have_attribute("data-state", "RUNNING")
    expect(node(page, "charge")).to_have_attribute("data-state", "NOT_STARTED")
    page.get_by_role("tab", name="Log").click()
    expect(page.get_by_role("table", name="Log").locator("tbody tr")).to_have_count(2)
    press(page, "Back to now")
    expect(page.get_by_role("table", name="Log")).to_contain_text("stage suspended")


def test_the_timeline_has_a_bar_for_each_call_and_each_wait(shop: Shop, visit: Visit) -> None:
    shop.refuses = True
    id = shop.order()
    page = visit(f"/workflows/{id}?tab=timeline")
    lane = page.locator('[data-lane="charge"]')
    expect(lane.locator('[data-outcome="retried"][data-kind="run"]')).to_have_count(1)
    expect(lane.locator('[data-kind="wait"]')).to_have_attribute("title", re.compile("the bank is away"))
    lane.click()
    expect(page).to_have_url(f"{visit.url}/workflows/{id}?tab=timeline&stage=charge")
    expect(page.get_by_text("is tried again").first).to_be_visible()


def test_a_wait_says_how_long_is_left_of_it_and_the_log_how_long_it_may_take(shop: Shop, visit: Visit) -> None:
    run = shop.hold.workflows.start(workflow(name="asks")(lambda: wait_signal("go", timeout=7200)))
    shop.work()
    page = visit(f"/workflows/{run.id}?tab=log")
    expect(page.get_by_text(re.compile(r"waits for signal 'go', 1 h 5\d min left"))).to_be_visible()
    expect(page.get_by_role("table", name="Log")).to_contain_text("delay 2 h")


def test_how_long_a_stage_took_is_exact_to_the_microsecond(tmp_path: Path, browser: Browser) -> None:
    clock = ManualClock()

    @task
    def weigh() -> None:
        clock.advance(0.0032)

    @workflow
    def weighed() -> Any:
        return weigh()

    with clocked(tmp_path, clock) as hold:
        clock.advance(0.0009)  # in whole milliseconds it would seem to begin at 0 and to end at 4
        id = hold.workflows.start(weighed).id
        worker = hold.workflows.worker()
        worker.run_once()
        worker.close()
        with server_of(hold) as url:
            visit = Visit(browser, url)
            page = visit(f"/workflows/{id}?stage=weigh")
            expect(page.get_by_role("definition").filter(has_text="ms")).to_have_text(["3.2 ms", "3.2 ms"])
            expect(page.locator(".workflows-tasks .num")).to_have_text("3.2 ms")
            expect(node(page, "weigh")).to_contain_text("3.2 ms")
            page = visit(f"/workflows/{id}?tab=timeline")
            lane = page.locator('[data-lane="weigh"]')
            expect(lane.locator(".waterfall-length")).to_have_text("3.2 ms")
            expect(lane.locator('[data-kind="run"]')).to_have_attribute("title", re.compile(r", 3\.2 ms$"))
            visit.end()


def test_the_log_says_when_and_what_also_where_there_is_little_room(shop: Shop, visit: Visit) -> None:
    shop.rejects = True
    id = shop.order()
    page = visit(f"/workflows/{id}?tab=log")
    ended = page.get_by_role("table", name="Log").locator("tbody tr").filter(has_text="workflow ended")
    expect(ended.locator("td").nth(3)).to_have_text(re.compile("^failed, reason .*the card is no card"))
    expect(ended.locator("td").last).to_have_text(re.compile(r"^[\d.]+ m?s$"))
    page = visit(f"/workflows/{id}?tab=log", viewport=NARROW)
    ended = page.get_by_role("table", name="Log").locator("tbody tr").filter(has_text="workflow ended")
    expect(ended.locator("td").nth(1).get_by_text("the card is no card")).to_be_visible()
    expect(ended.locator("td").nth(3)).to_be_hidden()
    assert sideways(page) == 0
    page = visit(f"/workflows/{id}?tab=more", viewport=NARROW)
    expect(page.get_by_role("tab", name="Input, guarantees")).to_be_in_viewport(ratio=0.9)


def test_the_log_counts_from_the_start_and_not_from_when_a_workflow_began_to_wait_for_its_turn(
    tmp_path: Path, browser: Browser
) -> None:
    clock = ManualClock()

    @task
    def weigh() -> None:
        clock.advance(0.0032)

    @workflow(limit=1)
    def weighed() -> Any:
        return weigh()

    with clocked(tmp_path, clock) as hold:
        hold.workflows.start(weighed)
        id = hold.workflows.start(weighed).id
        with server_of(hold) as url:
            visit = Visit(browser, url)
            after = visit(f"/workflows/{id}?tab=log").locator(".workflows-log tbody td:last-child")
            expect(after).to_have_text([""])
            clock.advance(60)
            worker = hold.workflows.worker()
            worker.run_once()
            worker.close()
            after = visit(f"/workflows/{id}?tab=log").locator(".workflows-log tbody td:last-child")
            expect(after).to_have_text(["", *["0 s"] * 2, *["3.2 ms"] * 3])
            visit.end()


def test_a_graph_can_be_read_on_a_phone_and_begins_where_something_is_to_be_seen(shop: Shop, visit: Visit) -> None:
    id = shop.order()
    page = visit(f"/workflows/{id}", viewport=NARROW)
    waits, first = node(page, "wait_signal").locator(".dag-box"), node(page, "reserve").locator(".dag-box")

    def width() -> float:
        return float((waits.bounding_box() or {"width": 0.0})["width"])

    comes_true(page, lambda: width() >= 140)
    expect(waits).to_be_in_viewport(ratio=1)
    page.get_by_role("button", name="Fit").click()
    comes_true(page, lambda: 0 < width() < 90)
    expect(first).to_be_in_viewport(ratio=1)


def test_two_hundred_stages_are_drawn_to_fit(shop: Shop, visit: Visit) -> None:
    id = shop.hold.workflows.start(wide(200)).id
    page = visit(f"/workflows/{id}")
    expect(page.locator(".dag-node")).to_have_count(200)
    frame = page.locator(".workflows-dag-frame").bounding_box()
    last = node(page, "s199").locator(".dag-box").bounding_box()
    assert frame is not None
    assert last is not None
    assert last["x"] + last["width"] <= frame["x"] + frame["width"] + 1
    assert last["y"] + last["height"] <= frame["y"] + frame["height"] + 1


def test_two_thousand_stages_are_a_list_that_says_why(shop: Shop, visit: Visit) -> None:
    id = shop.hold.workflows.start(wide(2000)).id
    page = visit(f"/workflows/{id}")
    expect(page.get_by_text("2,000 stages are too many to draw")).to_be_visible()
    rows = page.get_by_role("table", name="Stages").locator("tbody tr")
    expect(rows).to_have_count(200)
    page.get_by_label("Find a stage").fill("s1999")
    expect(rows).to_have_count(1)
    rows.get_by_role("button").click()
    expect(page.get_by_role("region", name="s1999")).to_be_visible()


@acts("POST /workflows/dead/{item}/replay", "POST /workflows/dead/{item}/discard", "POST /workflows/dead/{item}/reveal")
def test_dead_items_are_tried_again_forgotten_and_revealed(shop: Shop, visit: Visit) -> None:
    shop.bury("m/0", "m/1")
    page = visit("/workflows?tab=dead")
    rows = page.get_by_role("table", name="Dead items").locator("tbody tr")
    expect(rows).to_have_count(2)
    rows.first.get_by_role("button").click()
    press(page, "Reveal")
    confirm(page, "Reveal")
    expect(page.get_by_role("dialog").first).to_contain_text("there is no workflow")
    page.get_by_role("dialog").get_by_role("button", name="Forget").click()
    confirm(page, "Forget")
    expect(rows).to_have_count(1)
    rows.first.get_by_role("button").click()
    page.get_by_role("dialog").get_by_role("button", name="Try again").click()
    confirm(page, "Try again", None)
    expect(page.get_by_role("heading", name="No dead items")).to_be_visible()
    assert shop.hold.workflows.queue.size() == 1


@acts("POST /workflows/finalizers/{finalizer}/run")
def test_a_finalizer_that_failed_is_run_again(shop: Shop, visit: Visit) -> None:
    id = shop.spool()
    page = visit(f"/workflows/{id}?tab=more")
    finalizers = page.get_by_role("region", name="Finalizers")
    expect(finalizers).to_contain_text("busy")
    expect(page.get_by_text("1 finalizer failed or lost")).to_be_visible()
    shop.holds_files = False
    press(page, "Run again")
    expect(page.get_by_text("A worker will run it")).to_be_visible()
    shop.work()
    expect(finalizers.locator(".badge")).to_have_text("done")
    expect(page.get_by_text("1 finalizer failed or lost")).to_have_count(0)


def test_a_workflow_links_to_those_that_it_has_started(shop: Shop, visit: Visit) -> None:
    greet = shop.hold.workflows.known["greet"]

    @workflow
    def party() -> Any:
        return greet("all")

    shop.hold.workflows.add(party)
    id = shop.hold.workflows.start("party").id
    shop.work()
    page = visit(f"/workflows/{id}?tab=more")
    page.get_by_role("table", name="Children").get_by_role("link").click()
    expect(page.get_by_text("Parent")).to_be_visible()
    expect(page.get_by_role("link", name=id)).to_be_visible()


def test_who_may_only_look_sees_why_nothing_can_be_pressed(shop: Shop, browser: Browser) -> None:
    id = shop.order()
    shop.hold.access.add_user("vera", PASSWORD, Role.VIEWER, by="test")
    with server_of(shop.hold, required=True) as url:
        visit = Visit(browser, url)
        visit.allows(401)
        page = visit.window()
        page.goto(f"{url}/workflows/{id}?stage=wait_signal")
        page.get_by_label("Name").fill("vera")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        for name in ("Pause", "Retry", "Signal", "Recover", "Run again", "Leave out", "Fork"):
            button = page.get_by_role("button", name=name).first
            expect(button).to_have_attribute("title", "vera may not do this: it needs the right workflows:operate.")
        expect(page.get_by_role("button", name="Reveal")).to_have_attribute("title", re.compile("workflows:reveal"))
        visit.end()


def test_an_unknown_workflow_is_said_to_be_none(visit: Visit) -> None:
    visit.allows(404)
    expect(visit("/workflows/nothing").get_by_text("there is no workflow 'nothing'")).to_be_visible()


@pytest.mark.parametrize("shade", ["light", "dark"])
def test_nothing_sticks_out_where_there_is_little_room(shop: Shop, visit: Visit, shade: str) -> None:
    id = shop.order()
    for path in (
        "/workflows",
        f"/workflows/{id}?stage=charge",
        f"/workflows/{id}?tab=timeline",
        f"/workflows/{id}?tab=more",
    ):
        page = visit(path, shade=shade, viewport=NARROW)
        page.locator(".card").first.wait_for()
        assert sticks_out(page) == 0, path


def test_nothing_keeps_anybody_from_using_the_pages_of_one(shop: Shop, visit: Visit) -> None:
    shop.rejects = True
    id = shop.order()
    page = looked_at(visit)
    for path in (f"/workflows/{id}?stage=charge", f"/workflows/{id}?tab=log&at=1"):
        page.goto(f"{visit.url}{path}")
        page.locator(".card").first.wait_for()
        settled(page)
        assert in_both_shades(page, path) == []
