"""Guards over HTTP: what they are made of, what their calls came to, why they refuse."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from holdfast import Breaker, Bulkhead, Holdfast, Hub, RateLimit, Retry, Throttle, Timeout
from holdfast.access.rights import ROLES, Identity, Role
from holdfast.core.outcome import OutcomeKind
from holdfast.errors import CircuitOpen, RateLimited
from holdfast.failover.failover import Failover
from holdfast.failover.pool import EndpointPool
from holdfast.machine.trip import consecutive
from holdfast.server.figures import MOST_GUARDS, MOST_REASONS, Figures
from holdfast.server.routes.guards import guard_row, letters_by
from holdfast.server.routing import Asked
from holdfast.server.trail import Trail
from holdfast.server.watch import Watch
from holdfast.telemetry.events import CallCompleted, LoadShed
from holdfast.testing.clock import ManualClock
from tests.server.clients import API, app_of, client_of, holding


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def hold(tmp_path: Path, clock: ManualClock) -> Iterator[Holdfast]:
    with holding(tmp_path, clock) as made:
        yield made


def fail() -> None:
    raise ConnectionError("password=hunter2 was refused")


def call(guard, fn, times: int = 1) -> None:
    for _ in range(times):
        guard.run(fn)


def test_a_server_without_guards_says_so(hold: Holdfast, ask) -> None:
    shown = ask(hold, has_program=False).get("guards").json()
    assert shown["items"] == []
    assert shown["has_program"] is False


def test_a_guard_is_shown_with_its_layers_outermost_first(hold: Holdfast, client: TestClient) -> None:
    hold.guard("pay", Breaker(), Retry(attempts=3, base=0.1), Timeout(total=10, attempt=2), dead_letter=True)
    shown = client.get("guards/pay").json()
    kinds = [layer["kind"] for layer in shown["layers"]]
    assert kinds == ["dead_letter", "timeout", "retry", "breaker", "attempt_timeout"]
    assert shown["order"] == [layer["line"] for layer in shown["layers"]]
    assert (shown["max_calls"], shown["max_seconds"]) == (3, pytest.approx(6.3))
    assert shown["circuit"]["state"] == "closed"
    assert shown["circuit"]["shared"] is True
    assert shown["keeps_letters"] is True


def test_without_a_limit_the_worst_case_is_null_and_warned_of(hold: Holdfast, client: TestClient) -> None:
    hold.guard("loose", Retry(attempts=None))
    shown = client.get("guards/loose").json()
    assert shown["max_calls"] is None
    assert shown["max_seconds"] is None
    assert any("for ever" in warning for warning in shown["warnings"])


def test_outcomes_and_latencies_of_calls_are_counted(hold: Holdfast, client: TestClient, clock: ManualClock) -> None:
    guard = hold.guard("pay", Timeout(total=30))
    for seconds in (0.1, 0.2, 0.3, 4.0):
        call(guard, lambda seconds=seconds: clock.advance(seconds))
    call(guard, fail)
    shown = client.get("guards/pay").json()
    assert shown["outcomes"] == {"success": 4, "transient_failure": 1}
    latency = shown["latency"]
    assert latency["calls"] == 5
    assert latency["p50"] == pytest.approx(0.2)
    assert latency["longest"] == pytest.approx(4.0)
    assert (sum(shown["minutes"]["calls"]), sum(shown["minutes"]["failures"])) == (5, 1)


def test_calls_before_anybody_asked_are_counted_from_the_servers_start(hold: Holdfast, ask) -> None:
    client = ask(hold)
    guard = hold.guard("pay", Timeout(total=5))
    call(guard, int, 7)
    assert client.get("guards").json()["items"][0]["outcomes"] == {"success": 7}


def test_an_open_breaker_is_explained_with_numbers_and_when_a_call_would_pass(
    hold: Holdfast, client: TestClient, clock: ManualClock
) -> None:
    guard = hold.guard("pay", Breaker(consecutive(2), open_for=30))
    call(guard, fail, 2)
    clock.advance(10)
    with pytest.raises(CircuitOpen):
        guard.call(int)
    shown = client.get("guards/pay").json()
    (refusing,) = shown["refusing"]
    assert refusing["reason"] == "circuit_open"
    assert refusing["passes"] == "in 20 s, as a probe"
    assert refusing["numbers"]["remaining_open"] == pytest.approx(20)
    assert refusing["retry_after"] == pytest.approx(20)
    assert "ConnectionError" in refusing["cause"]
    assert "hunter2" not in client.get("guards/pay").text
    (refusal,) = shown["refusals"]
    assert (refusal["by"], refusal["reason"], refusal["count"]) == ("pay", "circuit_open", 1)
    assert "in 20 s" in refusal["explained"]["passes"]
    assert shown["circuit"]["opened_by"].startswith("ConnectionError")


def test_a_guard_that_admits_calls_refuses_nothing(hold: Holdfast, client: TestClient) -> None:
    hold.guard("pay", Breaker(), Bulkhead(1), RateLimit(5), Throttle())
    shown = client.get("guards/pay").json()
    assert shown["refusing"] == []
    assert shown["refusals"] == []
    assert {layer["kind"]: layer["numbers"] for layer in shown["layers"]}["bulkhead"] == {
        "limit": 1, "running": 0, "waiting": 0,
    }  # fmt: skip


def test_an_empty_rate_limit_says_when_the_next_token_comes(
    hold: Holdfast, client: TestClient, clock: ManualClock
) -> None:
    guard = hold.guard("mail", RateLimit(0.5))
    guard.call(int)
    with pytest.raises(RateLimited):
        guard.call(int)
    (refusing,) = client.get("guards/mail").json()["refusing"]
    assert refusing["reason"] == "rate_limited"
    assert refusing["retry_after"] == pytest.approx(2)
    clock.advance(2)
    assert client.get("guards/mail").json()["refusing"] == []
    guard.call(int)  # looking took nothing


def test_a_full_bulkhead_is_explained(hold: Holdfast, client: TestClient) -> None:
    guard = hold.guard("stock", Bulkhead(1, queue=0))
    entered, leave = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        leave.wait(10)

    thread = threading.Thread(target=guard.call, args=(hang,))
    thread.start()
    try:
        assert entered.wait(10)
        (refusing,) = client.get("guards/stock").json()["refusing"]
    finally:
        leave.set()
        thread.join()
    assert refusing["reason"] == "bulkhead_full"
    assert refusing["numbers"] == {"limit": 1, "running": 1, "waiting": 0}


def test_a_pool_with_nobody_left_is_explained(hold: Holdfast, client: TestClient, clock: ManualClock) -> None:
    pool = EndpointPool(["a", "b"], clock=clock)
    hold.guard("fetch", Retry(attempts=2), Failover(pool))
    for name in ("a", "b"):
        pool.circuit(name).command("isolate")
    shown = client.get("guards/fetch").json()
    assert [one["reason"] for one in shown["refusing"]] == ["pool_exhausted"]
    assert {"endpoints": 2, "available": 0} in [layer["numbers"] for layer in shown["layers"]]


def test_dead_letters_of_a_guard_are_counted(hold: Holdfast, client: TestClient) -> None:
    guard = hold.guard("pay", Timeout(total=5), dead_letter=True)
    hold.guard("mail", Timeout(total=5))
    call(guard, fail, 3)
    rows = {row["name"]: row for row in client.get("guards").json()["items"]}
    assert rows["pay"]["letters"] == 3
    assert rows["mail"]["letters"] is None
    assert client.get("guards/pay").json()["letters_by_status"] == {"pending": 3}


def test_while_the_store_is_away_letters_are_not_counted_and_guards_are_shown() -> None:
    with Holdfast("postgresql://nobody@127.0.0.1:1/nowhere", background=False, telemetry=Hub()) as hold:
        guard = hold.guard("pay", Breaker(), dead_letter=True)
        asked = Asked(hold, Identity("ada", ROLES[Role.VIEWER], "hook"), Trail(hold))
        kept = letters_by(asked)
        assert kept is None
        assert guard_row(guard, Watch(hold), kept)["letters"] is None


def test_guards_are_listed_by_name_a_page_at_a_time(hold: Holdfast, client: TestClient) -> None:
    names = [f"guard-{number}" for number in range(5)]
    for name in reversed(names):
        hold.guard(name, Timeout(total=5))
    seen, after = [], None
    while True:
        page = client.get("guards", params={"limit": 2, **({"after": after} if after else {})}).json()
        seen += [row["name"] for row in page["items"]]
        after = page["next"]
        if after is None:
            break
    assert seen == names
    assert [row["name"] for row in client.get("guards?search=D-3").json()["items"]] == ["guard-3"]


@pytest.mark.parametrize("name", ["a/b", "snow ☃ man", "<script>alert(1)</script>", "100%", "a?b#c", "find"])
def test_a_guard_may_have_any_name(hold: Holdfast, client: TestClient, name: str) -> None:
    hold.guard(name, Timeout(total=5))
    assert client.get(f"guards/{quote(name, safe='')}").json()["name"] == name


def test_a_guard_that_is_not_there_is_404(client: TestClient) -> None:
    answer = client.get("guards/nobody")
    assert (answer.status_code, answer.json()["error"]) == (404, "guard_not_found")


def test_a_mounted_app_counts_from_the_first_question_on(hold: Holdfast) -> None:
    client = client_of(app_of(hold))  # not entered: nobody starts it
    guard = hold.guard("pay", Timeout(total=5))
    client.get(f"{API}/guards")
    call(guard, int, 3)
    assert client.get(f"{API}/guards").json()["items"][0]["outcomes"] == {"success": 3}


def test_minutes_without_calls_are_shown_as_such() -> None:
    clock = ManualClock()
    figures = Figures(clock)
    figures.on_calls("pay", OutcomeKind.SUCCESS, [0.1, 0.1])
    clock.advance(180)
    figures.on_calls("pay", OutcomeKind.REJECTED, [0.0])
    seen = figures.minutes("pay", 5)
    assert (seen.calls, seen.refused) == ([0, 2, 0, 0, 1], [0, 0, 0, 0, 1])
    assert clock.wall() - seen.begins < timedelta(minutes=5)
    assert figures.latency("pay").calls == 2  # one that was refused took no time, and says nothing


def test_what_no_meter_counts_is_counted_by_its_event() -> None:
    figures = Figures(ManualClock())
    figures.on_event(CallCompleted("seam", "", 0.5, OutcomeKind.TIMEOUT))
    figures.on_event(LoadShed("seam", "", "limiter", "rate_limited"))
    assert figures.outcomes("seam") == {"timeout": 1}
    assert [(one.name, one.number) for one in figures.refusals("seam")] == [("limiter", 1)]


def test_names_made_of_user_data_do_not_fill_the_memory() -> None:
    figures = Figures(ManualClock())
    for number in range(MOST_GUARDS + 10):
        figures.on_calls(f"guard-{number}", OutcomeKind.SUCCESS, [0.1])
    assert figures.outcomes("other") == {"success": 10}
    for number in range(MOST_REASONS + 10):
        figures.on_shed("guard-1", f"name-{number}", "rate_limited", 1)
    assert len(figures.refusals("guard-1")) == MOST_REASONS + 1
