"""The guards of the process, in a browser."""

from __future__ import annotations

from playwright.sync_api import expect

from holdfast import Breaker, Holdfast, RateLimit, Retry, Timeout
from holdfast.machine.trip import consecutive
from tests.console.visiting import NARROW, sticks_out
from tests.server.running import server_of


def fail() -> None:
    raise ConnectionError("no route")


def payments(hold: Holdfast):
    return hold.guard(
        "payments", Retry(attempts=1), Breaker(consecutive(2), open_for=600), Timeout(total=10, attempt=2),
        RateLimit(100, burst=100), dead_letter=True,
    )  # fmt: skip


def test_guards_are_listed_with_what_their_calls_came_to(hold, visit):
    guard = payments(hold)
    hold.guard("search", Timeout(total=2))
    page = visit("/guards")
    for _ in range(3):
        guard.run(int)
    for _ in range(2):
        guard.run(fail)
    page.reload()
    row = page.get_by_role("row", name="payments")
    expect(row).to_contain_text("open")
    expect(row).to_contain_text("40.0 %")
    expect(row.get_by_role("img", name="5 calls in the last 30 minutes")).to_be_visible()
    expect(page.get_by_role("row", name="search")).to_contain_text("1 call, 2.0 s")


def test_guards_are_found_by_a_part_of_their_name(hold, visit):
    payments(hold)
    hold.guard("search", Timeout(total=2))
    page = visit("/guards?search=PAY")
    expect(page.get_by_role("row", name="payments")).to_be_visible()
    expect(page.get_by_role("row", name="search")).to_have_count(0)
    page.goto(visit.url + "/guards?search=nobody")
    expect(page.get_by_text("No such guard")).to_be_visible()


def test_a_guard_is_drawn_as_layers_in_each_other_with_the_call_inside(hold, visit):
    payments(hold)
    page = visit("/guards")
    page.get_by_role("link", name="payments").click()
    expect(page).to_have_url(visit.url + "/guards/payments")
    page.locator(".guards-call").wait_for()
    kinds = page.eval_on_selector_all(".guards-layer", "layers => layers.map(layer => layer.dataset.kind)")
    assert kinds == ["dead_letter", "timeout", "rate_limit", "retry", "breaker", "attempt_timeout"]
    nested = page.locator(".guards-layer " * len(kinds) + ".guards-call")
    expect(nested).to_have_text("the call")


def test_a_guard_says_why_it_refuses_and_when_a_call_would_pass(hold, visit):
    guard = payments(hold)
    page = visit("/guards/payments")
    expect(page.get_by_text("Why it refuses calls now")).to_have_count(0)
    for _ in range(4):
        guard.run(fail)
    page.reload()
    why = page.get_by_role("region", name="Why it refuses calls now")
    expect(why).to_contain_text("as a probe")
    expect(why).to_contain_text("ConnectionError: no route")
    expect(why).to_contain_text("consecutive(2)")
    expect(page.get_by_role("region", name="Refusals")).to_contain_text("2 calls")
    expect(page.get_by_role("region", name="Dead letters kept")).to_contain_text("4 pending")
    page.get_by_role("link", name="All processes, and what can be done").click()
    expect(page).to_have_url(visit.url + "/breakers/payments")


def test_warnings_lead_to_the_doctor(hold, visit):
    hold.guard("loose", Retry(attempts=None))
    page = visit("/guards/loose")
    warnings = page.get_by_role("region", name="Perhaps meant otherwise")
    expect(warnings).to_contain_text("for ever")
    warnings.get_by_role("link", name="Doctor").click()
    expect(page).to_have_url(visit.url + "/doctor")


def test_without_guards_the_page_says_how_they_come_to_be(hold, visit):
    expect(visit("/guards").get_by_text('hold.guard("payments", Retry(), Breaker())')).to_be_visible()


def test_without_a_program_the_page_says_how_to_serve_one(hold, visit, browser):
    with server_of(hold, has_program=False) as url:
        page = visit.window()
        page.goto(url + "/guards")
        expect(page.get_by_text("holdfast serve --app shop:hold")).to_be_visible()
        page.close()


def test_a_guard_that_is_not_there_says_so(hold, visit):
    visit.allows(404)
    expect(visit("/guards/nobody").get_by_text("there is no guard 'nobody'")).to_be_visible()


def test_nothing_sticks_out_where_there_is_little_room(hold, visit):
    guard = payments(hold)
    for _ in range(4):
        guard.run(fail)
    for path in ("/guards", "/guards/payments"):
        page = visit(path, viewport=NARROW)
        page.locator(".card").first.wait_for()
        assert sticks_out(page) == 0
