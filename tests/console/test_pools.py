"""Endpoint pools, in a browser: who answers, taking one out of use, and a rotator's policy."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from holdfast import Breaker, Holdfast
from holdfast.core.outcome import Evidence
from holdfast.failover.pool import EndpointPool
from holdfast.failover.rotation import ProxyRotator
from holdfast.machine.trip import consecutive
from tests.console.acts import acts
from tests.console.visiting import NARROW, sticks_out
from tests.server.running import server_of


@pytest.fixture
def pool(hold: Holdfast) -> EndpointPool:
    made = EndpointPool(["a", "b"], breaker=Breaker(consecutive(1), open_for=600), telemetry=hold.telemetry)
    return hold.add_pool("cdn", made)


def break_one(pool: EndpointPool) -> str:
    ticket = pool.admit()
    pool.settle(ticket, Evidence.FAILURE, ConnectionError("refused"))
    return ticket.endpoint.id


def test_pools_are_listed_with_how_many_may_be_called(hold, visit, pool):
    break_one(pool)
    page = visit("/pools")
    row = page.get_by_role("row", name="cdn")
    expect(row).to_contain_text("degraded")
    expect(row).to_contain_text("1 of 2")
    row.get_by_role("link", name="cdn").click()
    expect(page).to_have_url(visit.url + "/pools/cdn")


@acts("POST /pools/{name}/members/{endpoint}/drain", "POST /pools/{name}/members/{endpoint}/enable")
def test_an_endpoint_is_drained_and_enabled(hold, visit, pool):
    page = visit("/pools/cdn")
    row = page.get_by_role("table", name="Endpoints").get_by_role("row").nth(1)
    row.get_by_role("button", name="Drain").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 other endpoint may be called")
    dialog.get_by_label("Reason").fill("a new disk")
    dialog.get_by_role("button", name="Drain").click()
    expect(row).to_contain_text("draining")
    assert {pool.admit().endpoint.id for _ in range(10)} == {"b"}
    row.get_by_role("button", name="Enable").click()
    page.get_by_role("dialog").get_by_role("button", name="Enable").click()
    expect(row).to_contain_text("closed")
    assert pool.circuit("a").control == "auto"


def test_the_last_endpoint_warns_before_it_is_drained(hold, visit, pool):
    pool.circuit("b").command("isolate")
    page = visit("/pools/cdn")
    page.get_by_role("button", name="Drain").click()
    expect(page.get_by_role("dialog")).to_contain_text("every call of this pool will be refused")


@acts("POST /pools/{name}/members/{endpoint}/reset")
def test_the_breaker_of_an_endpoint_is_reset(hold, visit, pool):
    broken = break_one(pool)
    page = visit("/pools/cdn")
    expect(page.get_by_text("ConnectionError: refused")).to_be_visible()
    page.get_by_role("button", name=f"Reset {broken}").click()
    page.get_by_role("dialog").get_by_role("button", name="Reset").click()
    expect(page.get_by_text(f"The breaker of {broken} is closed")).to_be_visible()
    assert pool.circuit(broken).state == "closed"


class Answer:
    status_code = 200


@acts("PUT /retry/policy")
def test_a_rotators_policy_is_shown_and_changed(hold, visit):
    rotator = hold.add_pool("proxies", ProxyRotator(["http://a:1", "http://b:2"], telemetry=hold.telemetry))
    for _ in range(3):
        rotator.request(lambda proxy: Answer())
    page = visit("/pools/proxies")
    policy = page.get_by_role("region", name="Retry policy")
    expect(policy).to_contain_text("at most 3 in all")
    expect(page.get_by_role("region", name="Attempts", exact=True)).to_contain_text("attempt 1: 3")
    expect(page.get_by_role("table", name="Attempts by endpoint")).to_contain_text("100 %")
    policy.get_by_role("button", name="Change").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Attempts in all").fill("5")
    dialog.get_by_label("Whole request").fill("8")
    dialog.get_by_role("button", name="Change").click()
    expect(policy).to_contain_text("at most 5 in all")
    expect(policy).to_contain_text("within 8.0 s")
    assert (rotator.policy.max_attempts, rotator.policy.timeout) == (5, 8.0)


def test_a_policy_that_cannot_be_is_refused_in_the_servers_words(hold, visit):
    rotator = hold.add_pool("proxies", ProxyRotator(["http://a:1"], telemetry=hold.telemetry))
    visit.allows(422)
    page = visit("/pools/proxies")
    page.get_by_role("region", name="Retry policy").get_by_role("button", name="Change").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Retried statuses").fill("404")
    dialog.get_by_role("button", name="Change").click()
    expect(page.get_by_text("retry_status_codes")).to_be_visible()
    assert rotator.policy_in_force.version == 1


def test_somebody_elses_change_is_not_overwritten(hold, visit):
    rotator = hold.add_pool("proxies", ProxyRotator(["http://a:1"], telemetry=hold.telemetry))
    visit.allows(412)
    page = visit("/pools/proxies")
    page.get_by_role("region", name="Retry policy").get_by_role("button", name="Change").click()
    rotator.revise(max_attempts=9)
    page.get_by_role("dialog").get_by_role("button", name="Change").click()
    expect(page.get_by_text("read it again")).to_be_visible()
    assert rotator.policy.max_attempts == 9


def test_without_pools_the_page_says_how_they_come_to_be(hold, visit):
    expect(visit("/pools").get_by_text('hold.add_pool("cdn"')).to_be_visible()


def test_without_a_program_the_page_says_how_to_serve_one(hold, visit):
    with server_of(hold, has_program=False) as url:
        page = visit.window()
        page.goto(url + "/pools")
        expect(page.get_by_text("holdfast serve --app shop:hold")).to_be_visible()
        page.close()


def test_nothing_sticks_out_where_there_is_little_room(hold, visit, pool):
    break_one(pool)
    hold.add_pool("proxies", ProxyRotator(["http://a:1"], telemetry=hold.telemetry))
    for path in ("/pools", "/pools/cdn", "/pools/proxies"):
        page = visit(path, viewport=NARROW)
        page.locator(".card").first.wait_for()
        assert sticks_out(page) == 0
