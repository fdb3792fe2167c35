"""What lives in processes, and is asked of their servers: guards, pools, retry policies; workers; the server itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.app import Holdfast
from holdfast.cli.exits import ExitCode
from holdfast.core.outcome import Evidence
from holdfast.errors import CircuitOpen
from holdfast.failover.pool import EndpointPool
from holdfast.failover.rotation import ProxyRotator
from holdfast.views.guards import circuit_of
from tests.cli import shop
from tests.cli.conftest import Run, lines
from tests.cli.served import served
from tests.workflows.gates import until

Answer = Callable[..., Any]
APP: dict[str, str | None] = {"HOLDFAST_APP": shop.WHOLE, "HOLDFAST_URL": None, "COLUMNS": "160"}
WIDE: dict[str, str | None] = {"COLUMNS": "160"}


@pytest.fixture
def own(run: Run) -> Iterator[Holdfast]:
    """The whole shop: a program with guards and pools of its own."""
    with shop.whole() as own:
        own.store.ping()
        yield own


@pytest.fixture
def at(own: Holdfast) -> Iterator[str]:
    with served(own) as url:
        yield url


def isolate(own: Holdfast) -> None:
    """Hold the breaker of the stock open, in this process."""
    circuit = circuit_of(own.guard("stock"))
    assert circuit is not None
    circuit.command("isolate")


def test_guards_are_shown_as_the_program_makes_them(run: Run, answer: Answer) -> None:
    title, *rows = lines(run("guards", "list", env=APP))
    assert title.split() == ["NAME", "BREAKER", "LAYERS", "WORST", "CASE", "CALLS", "P99", "LETTERS", "NOTE"]
    assert [row.split()[0] for row in rows] == ["payments", "stock"]
    assert rows[1].split()[1:3] == ["closed", "breaker"]
    page = answer("guards", "list", "--search", "PAY", env=APP)
    assert [one["name"] for one in page["items"]] == ["payments"]
    shown = run("guards", "show", "stock", env=APP).stdout
    assert "layers, outermost first" in shown
    assert "worst case  1 call, without end" in shown
    assert "opens by" in shown
    assert answer("guards", "show", "payments", env=APP)["keeps_letters"] is True
    run("guards", "show", "none", env=APP, code=ExitCode.NOT_FOUND)


def test_guards_of_a_server_are_shown_with_what_their_calls_came_to(
    run: Run, answer: Answer, own: Holdfast, at: str
) -> None:
    run("guards", "list", "--url", at)  # from now on it counts
    for _ in range(3):
        own.guard("stock").call(lambda: "there")
    isolate(own)
    with pytest.raises(CircuitOpen):
        own.guard("stock").call(lambda: "there")
    [row] = answer("guards", "list", "--search", "stock", "--url", at)["items"]
    assert row["outcomes"]["success"] == 3
    shown = run("guards", "show", "stock", "--url", at, env=WIDE).stdout
    assert "a call would be refused now" in shown
    assert "refused since" in shown
    assert "isolated" in shown


def test_a_store_has_no_guards_and_no_pools_and_says_where_they_are(run: Run, own: Holdfast) -> None:
    assert "they live in the program" in run("guards", "list").stderr
    assert "hold.add_pool" in run("pools", "list").stderr


def test_pools_are_shown_with_their_endpoints(run: Run, answer: Answer, own: Holdfast, at: str) -> None:
    pool = own.pools["cdn"]
    assert isinstance(pool, EndpointPool)
    pool.settle(pool.admit(), Evidence.SUCCESS)
    for where in ({}, {"env": APP}):
        args = [] if where else ["--url", at]
        assert [one.split()[0] for one in lines(run("pools", "list", *args, **where))] == ["NAME", "cdn", "proxies"]  # type: ignore[arg-type]
    shown = run("pools", "show", "cdn", "--url", at, env=WIDE).stdout
    assert "available  2 of 2" in shown
    assert "100%" in shown
    assert "`holdfast retry` shows its policy" in run("pools", "show", "proxies", "--url", at).stdout
    assert answer("pools", "show", "cdn", env=APP)["members"][0]["calls"] == 0
    run("pools", "show", "none", "--url", at, code=ExitCode.NOT_FOUND)


def test_an_endpoint_is_drained_enabled_and_reset_where_it_is(run: Run, answer: Answer, own: Holdfast, at: str) -> None:
    assert (
        "lives" not in run("pools", "drain", "cdn", "a", "--url", at, code=ExitCode.USAGE).stderr
    )  # a reason is missing
    said = run("pools", "drain", "cdn", "a", "--reason", "maintenance", "--url", at).stdout
    assert said == "a gets no more calls, in the process that was asked\n"
    pool: Any = own.pools["cdn"]
    assert pool.circuit("a").control.value == "isolated"
    assert "isolated" in run("pools", "show", "cdn", "--url", at).stdout
    after = answer("pools", "enable", "cdn", "a", "--url", at)
    assert {one["id"]: one["control"] for one in after["members"]}["a"] == "auto"
    assert "is not drained" in run("pools", "enable", "cdn", "a", "--url", at, code=ExitCode.FAILED).stderr
    assert run("pools", "reset", "cdn", "a", "--url", at).stdout.startswith("a is closed")
    run("pools", "reset", "cdn", "z", "--url", at, code=ExitCode.NOT_FOUND)
    told = own.audit.newest(limit=10).events
    assert [one.event.payload["reason"] for one in told if one.event.payload.get("act") == "pools.drain"] == [
        "maintenance"
    ]


@pytest.mark.parametrize(
    "command",
    ["pools drain cdn a --reason x", "pools enable cdn a", "retry set --max-attempts 2", "retry reset p-1"],
)
def test_what_would_end_with_the_command_is_refused(run: Run, own: Holdfast, command: str) -> None:
    error = run(*command.split(), env=APP, code=ExitCode.USAGE).stderr
    assert "ask the server of the program, --url http://…" in error


def test_the_policy_of_a_rotator_is_shown_and_changed(run: Run, answer: Answer, own: Holdfast, at: str) -> None:
    rotator = own.pools["proxies"]
    assert isinstance(rotator, ProxyRotator)
    assert "max attempts    3" in run("retry", "policy", env=APP).stdout
    assert lines(run("retry", "policy", "--url", at))[0] == "max attempts    3"
    changed = answer("retry", "set", "--max-attempts", "5", "--timeout", "8", "--no-jitter", "--status", "503",
                     "--version", "1", "--reason", "they ask for patience", "--url", at)  # fmt: skip
    assert (changed["max_attempts"], changed["timeout"], changed["jitter"]) == (5, 8.0, False)
    assert (rotator.policy.max_attempts, list(rotator.policy.retry_status_codes)) == (5, [503])
    assert "none" in run("retry", "set", "--no-timeout", "--url", at).stdout
    late = run("retry", "set", "--max-attempts", "4", "--version", "1", "--url", at, code=ExitCode.FAILED).stderr
    assert "version" in late
    assert "max_attempts" in run("retry", "set", "--max-attempts", "99", "--url", at, code=ExitCode.USAGE).stderr
    assert "say what to change" in run("retry", "set", "--url", at, code=ExitCode.USAGE).stderr
    run("retry", "set", "--timeout", "1", "--no-timeout", "--url", at, code=ExitCode.USAGE)
    run("retry", "policy", "--pool", "cdn", "--url", at, code=ExitCode.NOT_FOUND)


def test_attempts_and_breakers_of_a_rotator_are_shown(run: Run, answer: Answer, own: Holdfast, at: str) -> None:
    assert run("retry", "breakers", "--url", at).stderr == "no endpoint was used yet\n"
    rotator: Any = own.pools["proxies"]
    for _ in range(4):
        rotator.request(lambda endpoint: "ok")
    assert "requests        4" in run("retry", "metrics", "--url", at).stdout
    assert answer("retry", "metrics", "--url", at)["total_requests"] == 4
    for command in ("hourly", "endpoints", "breakers"):
        title, *rows = lines(run("retry", command, "--url", at, env=WIDE))
        assert title.split()[0] in ("HOUR", "ENDPOINT")
        assert rows
        assert answer("retry", command, "--url", at)
    assert run("retry", "moves", "--url", at).stderr.startswith("no breaker moved since")
    assert answer("retry", "moves", "--hours", "2", "--url", at)["hours"] == 2
    used = answer("retry", "breakers", "--url", at)["circuit_breakers"][0]["proxy_id"]
    assert f"endpoint  {used}" in run("retry", "breaker", used, "--url", at).stdout
    assert answer("retry", "breaker", used, "--url", at)["state"] == "closed"
    assert run("retry", "reset", used, "--url", at).stdout == f"{used} is closed, in the process that was asked\n"
    run("retry", "reset", "nowhere", "--url", at, code=ExitCode.NOT_FOUND)


def test_workers_are_shown_with_what_they_have_in_hand(run: Run, answer: Answer, own: Holdfast, at: str) -> None:
    assert "no worker is alive" in run("workers", "list").stderr
    worker = own.workflows.worker()
    worker.start()
    try:
        until(lambda: answer("workers", "list")["workers"])  # it says that it is there in a thread of its own
        for where in ([], ["--url", at]):
            [one] = answer("workers", "list", *where)["workers"]
            assert one["state"] in ("idle", "busy")
            assert lines(run("workers", "list", *where, env=WIDE))[0].split()[:3] == ["ID", "STATE", "HOST"]
            assert f"id            {one['id']}" in run("workers", "show", one["id"], *where, env=WIDE).stdout
            assert answer("workers", "show", one["id"], *where)["items"] == []
    finally:
        worker.stop()
        worker.close()
    run("workers", "show", "nobody", code=ExitCode.NOT_FOUND)


def test_a_server_says_what_it_is_and_whom_it_takes_one_for(run: Run, answer: Answer, own: Holdfast, at: str) -> None:
    assert "version" in run("server", "status", "--url", at).stdout
    assert answer("server", "status", "--url", at)["has_program"] is True
    assert run("server", "ready", "--url", at).stdout == f"{at} is ready\n"
    assert answer("server", "ready", "--url", at) == {"status": "ready"}
    who = answer("server", "whoami", "--url", at)
    assert who["name"] == "local"
    assert "csrf" not in who
    assert "letters:read" in run("server", "whoami", "--url", at).stdout
    assert "/api/v1/letters" in run("server", "openapi", "--url", at).stdout
    assert "give its address" in run("server", "status", code=ExitCode.USAGE).stderr


def test_a_server_says_what_has_happened_lately(run: Run, answer: Answer, own: Holdfast, at: str) -> None:
    isolate(own)
    own.telemetry.flush()
    found = answer("server", "events", "--url", at)["items"]
    assert "guard.circuit_state_changed" in {one["event"] for one in found}
    assert "stock" in run("server", "events", "--limit", "5", "--url", at, env=WIDE).stdout
    while not (series := answer("server", "series", "--minutes", "5", "--url", at)["series"]):
        pass  # the first look at the figures is still to come
    assert "letters_pending" in series
    assert lines(run("server", "series", "--url", at))[0].split() == ["FIGURE", "FIRST", "LEAST", "MOST", "LAST"]


def test_a_server_that_is_not_there_is_not_ready(run: Run) -> None:
    run("server", "ready", "--url", "http://127.0.0.1:1", code=ExitCode.NO_STORE)
