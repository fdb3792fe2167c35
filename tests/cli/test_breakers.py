"""Seeing and controlling shared breakers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import CircuitStateChanged, GuardEvent, Hub, register_listener, unregister_listener
from holdfast.app import Holdfast
from holdfast.cli.exits import ExitCode
from holdfast.cli.filters import os_user
from tests.cli.conftest import Run, lines

Answer = Callable[..., Any]


def test_breakers_are_listed_by_name(run: Run, hold: Holdfast) -> None:
    assert run("breakers", "list").stderr == "no breaker is stored yet\n"
    hold.breakers.record_failure("stock")
    hold.breakers.atomic_force_open("payments", "provider is down", "ann", 90)
    assert lines(run("breakers", "list")) == [
        "NAME      STATE   FAILURES  OPEN FOR  PINNED    BY   REASON",
        "payments  open           0        0s  89m left  ann  provider is down",
        "stock     closed         1",
    ]
    assert run("breakers", "list", "--open").stdout.count("\n") == 2


def test_a_list_of_long_words_still_fits(run: Run, hold: Holdfast) -> None:
    hold.breakers.atomic_force_open("s" * 90, "r" * 300, "b" * 90, 90)
    assert max(len(line) for line in run("breakers", "list").stdout.splitlines()) <= 80


def test_a_breaker_is_held_open_for_90_minutes_by_the_os_user(
    run: Run, answer: Answer, url: str, hold: Holdfast
) -> None:
    said = run("breakers", "force-open", "payments", "--reason", "provider is down").stdout
    assert said == f"payments is held open for 90 min, in every process on {url}\n"
    shown = answer("breakers", "show", "payments")
    assert (shown["state"], shown["pin_active"], shown["controlled_by_id"]) == ("open", True, os_user() or None)
    assert shown["control_reason"] == "provider is down"
    state = hold.breakers.get_by_service_name("payments")
    assert state is not None
    assert (state.manual_override_expires_at - state.opened_at).total_seconds() == 90 * 60  # type: ignore[operator]


def test_a_breaker_held_closed_lifts_itself_too(answer: Answer, hold: Holdfast) -> None:
    said = answer("breakers", "force-close", "payments", "--reason", "false alarm", "--ttl", "5", "--by", "ann")
    assert (said["state"], said["pin_active"], said["controlled_by_id"]) == ("closed", True, "ann")
    assert said["manual_override_expires_at"] is not None


def test_a_pin_can_be_cleared_and_a_breaker_reset(answer: Answer, hold: Holdfast) -> None:
    hold.breakers.atomic_force_open("payments", "why", "ann", 90)
    cleared = answer("breakers", "clear", "payments")
    assert (cleared["state"], cleared["pin_active"]) == ("open", False)
    reset = answer("breakers", "reset", "payments", "--reason", "provider is back")
    assert (reset["state"], reset["opened_at"], reset["control_reason"]) == ("closed", None, "provider is back")


@pytest.mark.parametrize("command", ["force-open", "force-close"])
def test_forcing_needs_a_reason(run: Run, hold: Holdfast, command: str) -> None:
    assert "--reason" in run("breakers", command, "payments", code=ExitCode.USAGE).stderr
    run("breakers", command, "payments", "--reason", "x", "--ttl", "0", code=ExitCode.USAGE)
    run("breakers", command, "payments", "--reason", "x", "--ttl", "1441", code=ExitCode.USAGE)


@pytest.mark.parametrize("command", ["show", "reset", "clear"])
def test_an_unknown_breaker_is_code_3(run: Run, hold: Holdfast, command: str) -> None:
    assert "there is no breaker 'nope'" in run("breakers", command, "nope", code=ExitCode.NOT_FOUND).stderr


def test_a_breaker_is_shown_with_what_it_was_told(run: Run, hold: Holdfast) -> None:
    hold.breakers.atomic_force_open("payments", "provider is down", "ann", None)
    shown = run("breakers", "show", "payments").stdout
    assert "pinned      until cleared\n" in shown
    assert "reason      provider is down\n" in shown


@pytest.fixture
def heard() -> Iterator[list[tuple[str, str, str, str | None]]]:
    """What the process-wide hub, which the commands' Holdfast uses, tells of circuits."""
    told: list[tuple[str, str, str, str | None]] = []

    def listen(event: GuardEvent) -> None:
        if isinstance(event, CircuitStateChanged):
            told.append((event.name, event.from_state, event.to_state, event.cause))

    register_listener(listen)
    yield told
    unregister_listener(listen)


def test_listeners_hear_of_what_an_operator_does(run: Run, url: str, heard: list[Any]) -> None:
    with Holdfast(url, telemetry=Hub()) as hold:
        hold.breakers.get_or_create("payments")
    run("breakers", "force-open", "payments", "--reason", "provider is down")
    run("breakers", "force-close", "payments", "--reason", "false alarm")
    run("breakers", "force-open", "payments", "--reason", "it was none")
    run("breakers", "clear", "payments")
    run("breakers", "reset", "payments")
    assert heard == [
        ("payments", "closed", "open", "isolated"),
        ("payments", "open", "closed", "closed_by_hand"),
        ("payments", "closed", "open", "isolated"),
        ("payments", "open", "closed", "reset"),
    ]


def test_nothing_is_told_where_nothing_changed(run: Run, hold: Holdfast, heard: list[Any]) -> None:
    hold.breakers.get_or_create("payments")
    run("breakers", "force-close", "payments", "--reason", "just in case")
    run("breakers", "reset", "payments")
    run("breakers", "reset", "nope", code=ExitCode.NOT_FOUND)
    assert heard == []


def test_an_apps_own_circuit_follows_and_tells_of_it_once(run: Run, hold: Holdfast, heard: list[Any]) -> None:
    app = {"HOLDFAST_APP": "tests.cli.shop:guarded", "HOLDFAST_URL": None}
    run("breakers", "force-open", "stock", "--reason", "provider is down", env=app)
    assert heard == [("stock", "closed", "open", "fleet_opened")]
    run("breakers", "reset", "stock", env=app)
    assert heard[1:] == [("stock", "closed", "open", "fleet_opened"), ("stock", "open", "closed", "fleet_closed")]
