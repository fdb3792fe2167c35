"""Shared breakers over HTTP: states, moves, votes and leases, and an operator's word on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from holdfast import Breaker, Holdfast, Hub
from holdfast.breakers.data import CircuitBreakerStateData
from holdfast.breakers.finding import count_breakers, find_breakers
from holdfast.errors import CircuitOpen
from holdfast.machine.trip import consecutive
from holdfast.server.transitions import KEPT, MOST_BREAKERS, Transitions
from holdfast.server.watch import Watch
from holdfast.telemetry.events import CircuitStateChanged
from holdfast.testing.clock import ManualClock
from tests.server.clients import holding
from tests.server.served import kept
from tests.stores import STORES

WHY = {"reason": "the provider is down"}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def hold(tmp_path: Path, clock: ManualClock) -> Iterator[Holdfast]:
    with holding(tmp_path, clock) as made:
        yield made


def path_of(name: str, act: str = "") -> str:
    return f"breakers/{quote(name, safe='')}{f'/{act}' if act else ''}"


def fail() -> None:
    raise ConnectionError("no route")


def shared_open(hold: Holdfast, name: str = "pay") -> Any:
    guard = hold.guard(name, Breaker(consecutive(1), open_for=30))
    guard.run(fail)
    hold.breakers.sharing.sync()
    return guard


@pytest.mark.parametrize("kind", STORES)
def test_every_act_works_on_every_store(kind: str, tmp_path: Path, ask) -> None:
    with kept(kind, tmp_path) as hold:
        client = ask(hold)
        opened = client.post(path_of("pay", "force-open"), json={**WHY, "ttl_minutes": 5}).json()
        assert (opened["state"], opened["pin_active"], opened["control_reason"]) == ("open", True, WHY["reason"])
        assert opened["controlled_by_id"] == "local"
        closed = client.post(path_of("pay", "force-close"), json=WHY).json()
        assert (closed["state"], closed["pin_active"]) == ("closed", True)
        cleared = client.post(path_of("pay", "clear"), json=WHY).json()
        assert (cleared["state"], cleared["pin_active"]) == ("closed", False)
        client.post(path_of("pay", "force-open"), json=WHY)
        reset = client.post(path_of("pay", "reset"), json=WHY).json()
        assert (reset["state"], reset["pin_active"], reset["failure_count"]) == ("closed", False, 0)
        assert [one["service_name"] for one in client.get("breakers").json()["items"]] == ["pay"]


def test_a_breaker_that_is_held_open_refuses_the_programs_calls_at_once(hold: Holdfast, client: TestClient) -> None:
    guard = hold.guard("pay", Breaker())
    client.post(path_of("pay", "force-open"), json=WHY)
    with pytest.raises(CircuitOpen):
        guard.call(int)
    client.post(path_of("pay", "reset"), json=WHY)
    assert guard.call(int) == 0


def test_a_pin_ends_by_itself(hold: Holdfast, client: TestClient, clock: ManualClock) -> None:
    client.post(path_of("pay", "force-close"), json={**WHY, "ttl_minutes": 5})
    clock.advance(5 * 60)
    assert client.get(path_of("pay")).json()["pin_active"] is False


@pytest.mark.parametrize("act", ["force-open", "force-close", "reset", "clear"])
@pytest.mark.parametrize("body", [{}, {"reason": "   "}, {"reason": "x" * 501}, {**WHY, "surprise": 1}, []])
def test_an_act_without_a_reason_is_refused(client: TestClient, act: str, body: Any) -> None:
    assert client.post(path_of("pay", act), json=body).status_code == 422


@pytest.mark.parametrize("minutes", [0, -1, 1441, 10**30, "soon", None, 1.5])
def test_a_time_that_cannot_be_is_refused(client: TestClient, hold: Holdfast, minutes: Any) -> None:
    answer = client.post(path_of("pay", "force-open"), json={**WHY, "ttl_minutes": minutes})
    assert answer.status_code == 422
    assert hold.breakers.get_all_states() == []


@pytest.mark.parametrize("act", ["reset", "clear"])
def test_what_is_not_stored_cannot_be_reset_or_cleared(client: TestClient, act: str) -> None:
    answer = client.post(path_of("nobody", act), json=WHY)
    assert (answer.status_code, answer.json()["error"]) == (404, "breaker_not_found")
    assert client.get(path_of("nobody")).status_code == 404


def test_every_act_is_in_the_audit_trail_with_who_and_why(hold: Holdfast, client: TestClient) -> None:
    client.post(path_of("pay/eu", "force-open"), json=WHY)
    client.post(path_of("nobody", "reset"), json=WHY)
    written = [event.payload for event in hold.audit.read("operator:local")]
    assert {"act": "breakers.force_open", "on_name": "pay/eu", "reason": WHY["reason"]}.items() <= written[0].items()
    assert [one["act"] for one in written[1:]] == ["breakers.reset", "breakers.reset"]


@pytest.mark.parametrize(
    "name", ["a/b", "a/reset", "facets", "<img src=x onerror=alert(1)>", "\u202egnp", "☃ 100% ?x=1#y", "x" * 191]
)
def test_a_breaker_may_have_any_name(client: TestClient, name: str) -> None:
    assert client.post(path_of(name, "force-open"), json=WHY).status_code == 200
    assert client.get(path_of(name)).json()["service_name"] == name
    assert client.post(path_of(name, "reset"), json=WHY).json()["state"] == "closed"


@pytest.mark.parametrize("name", ["x" * 192, "a\x00b"])
def test_a_name_that_no_store_holds_is_refused(hold: Holdfast, client: TestClient, name: str) -> None:
    assert client.post(path_of(name, "force-open"), json=WHY).status_code == 422
    assert hold.breakers.get_all_states() == []


@pytest.mark.parametrize("kind", STORES)
def test_pages_of_every_store_are_whole(kind: str, tmp_path: Path) -> None:
    with kept(kind, tmp_path) as hold:
        for number in range(7):
            hold.breakers.get_or_create(f"service:{number}")
        for number in (5, 1, 3):
            hold.breakers.atomic_force_open(f"service:{number}")
        for state, names in ((None, [0, 1, 2, 3, 4, 5, 6]), ("open", [5, 1, 3]), ("closed", [0, 2, 4, 6])):
            seen, after = [], None
            while page := find_breakers(hold.store, state=state, after=after, limit=2):
                seen += [one.service_name for _, one in page]
                after = page[-1][0]
            assert seen == [f"service:{number}" for number in names]
        assert count_breakers(hold.store) == {"closed": 4, "open": 3}


def test_breakers_are_listed_a_page_at_a_time(hold: Holdfast, client: TestClient) -> None:
    names = [f"service-{number}" for number in range(7)]
    for name in names:
        hold.breakers.get_or_create(name)
    seen, after = [], None
    while True:
        page = client.get("breakers", params={"limit": 3, **({"after": after} if after else {})}).json()
        seen += [one["service_name"] for one in page["items"]]
        after = page["next"]
        if after is None:
            break
    assert seen == names
    assert page["by_state"] == {"closed": 7}


def test_open_ones_come_in_the_order_in_which_they_opened(
    hold: Holdfast, client: TestClient, clock: ManualClock
) -> None:
    for name in ("c", "a", "b"):
        hold.breakers.atomic_force_open(name)
        clock.advance(1)
    hold.breakers.get_or_create("calm")
    first = client.get("breakers?state=open&limit=2").json()
    assert [one["service_name"] for one in first["items"]] == ["c", "a"]
    rest = client.get("breakers", params={"state": "open", "limit": 2, "after": first["next"]}).json()
    assert ([one["service_name"] for one in rest["items"]], rest["next"]) == (["b"], None)
    assert rest["by_state"] == {"open": 3, "closed": 1}


@pytest.mark.parametrize("query", ["state=ajar", "after=nonsense", "after=99999999999999999999:x", "limit=0"])
def test_a_question_that_cannot_be_meant_is_422(client: TestClient, query: str) -> None:
    assert client.get(f"breakers?{query}").status_code == 422


def test_a_breaker_that_never_moved_is_shown_from_this_process(hold: Holdfast, client: TestClient) -> None:
    hold.guard("pay", Breaker())
    shown = client.get("breakers").json()
    assert shown["items"] == []
    assert [(one["service_name"], one["stored"], one["guards"]) for one in shown["unmoved"]] == [
        ("pay", False, ["pay"])
    ]
    assert client.get("breakers?state=open").json()["unmoved"] == []
    one = client.get(path_of("pay")).json()
    assert (one["state"], one["stored"]) == ("closed", False)
    assert one["circuits"][0]["opens_by"]


def test_moves_of_circuits_in_this_process_are_told_in_order(
    hold: Holdfast, client: TestClient, clock: ManualClock
) -> None:
    guard = shared_open(hold)
    clock.advance(31)
    hold.breakers.sharing.sync()
    guard.run(int)  # asks for leave to probe
    hold.breakers.sharing.sync()
    guard.run(int)
    hold.breakers.sharing.sync()
    course = client.get(path_of("pay")).json()["course"]
    told = [(move["from_state"], move["to_state"], move["seen"]) for move in course["moves"]]
    assert told == [("closed", "open", "here"), ("open", "half_open", "here"), ("half_open", "closed", "here")]
    assert "Earlier moves are not kept" in course["covers"]


def test_moves_of_other_processes_are_seen_in_the_store(hold: Holdfast, client: TestClient) -> None:
    hold.breakers.get_or_create("far")
    client.get(path_of("far"))
    hold.breakers.update_state("far", "open")
    hold.breakers.update_state("far", "half_open")
    course = client.get(path_of("far")).json()["course"]
    assert [(move["from_state"], move["to_state"], move["seen"]) for move in course["moves"]] == [
        ("closed", "half_open", "store")
    ]
    assert course["skipped"] == 1


def test_moves_of_other_processes_are_seen_though_nobody_asks(hold: Holdfast) -> None:
    watch = Watch(hold)
    hold.breakers.get_or_create("far")
    watch.beat()
    hold.breakers.update_state("far", "open")
    watch.beat()
    assert [(move.from_state, move.to_state) for move in watch.transitions.of("far")[0]] == [("closed", "open")]


def test_a_watch_on_a_store_that_is_away_goes_on() -> None:
    with Holdfast("postgresql://nobody@127.0.0.1:1/nowhere", background=False, telemetry=Hub()) as hold:
        watch = Watch(hold)
        watch.open()
        hold.guard("pay", Breaker()).run(int)
        watch.beat()
        assert watch.figures.outcomes("pay") == {"success": 1}
        watch.close()
        assert hold.telemetry.listeners == ()


def test_a_breaker_that_was_open_before_the_server_began_is_shown_from_its_opening(
    hold: Holdfast, ask, clock: ManualClock
) -> None:
    hold.breakers.atomic_force_open("far")
    clock.advance(60)
    shown = ask(hold).get(path_of("far")).json()
    (move,) = shown["course"]["moves"]
    assert (move["from_state"], move["to_state"], move["at"]) == (None, "open", shown["opened_at"])


def test_votes_and_the_quorum_are_shown(tmp_path: Path, clock: ManualClock, ask) -> None:
    url = f"sqlite:///{tmp_path / 'votes.db'}"
    with Holdfast(url, quorum=2, background=False, clock=clock, telemetry=Hub()) as hold:
        shared_open(hold)
        shown = ask(hold).get(path_of("pay")).json()
        assert shown["state"] == "closed"  # one vote does not open it for the others
        assert shown["circuits"][0]["state"] == "open"
        assert len(shown["fleet"]["votes"]) == 1
        assert shown["sharing"]["quorum"] == 2


def test_leases_are_shown_without_their_tokens(hold: Holdfast, client: TestClient, clock: ManualClock) -> None:
    guard = shared_open(hold)
    clock.advance(31)
    hold.breakers.sharing.sync()
    guard.run(int)
    hold.breakers.sharing.sync()
    answer = client.get(path_of("pay"))
    shown = answer.json()
    assert shown["state"] == "half_open"
    assert list(shown["fleet"]["leases"][0]) == ["ends_at"]
    assert "token" not in answer.text


def test_the_sharing_says_whether_the_store_is_there(hold: Holdfast, client: TestClient) -> None:
    hold.guard("pay", Breaker())
    assert client.get("breakers").json()["sharing"]["is_connected"] is False
    hold.breakers.sharing.sync()
    sharing = client.get("breakers").json()["sharing"]
    assert (sharing["is_connected"], sharing["shared"], sharing["alone"]) == (True, ["pay"], [])
    assert sharing["since"] is not None


def test_metadata_of_a_breaker_is_masked(hold: Holdfast, client: TestClient) -> None:
    hold.breakers.get_or_create("pay")
    hold.breakers.update_metadata("pay", {"api_key": "sk-123", "team": "payments"})
    shown = client.get(path_of("pay")).json()["metadata"]
    assert shown["team"] == "payments"
    assert shown["api_key"] != "sk-123"


def test_the_memory_for_moves_is_bounded() -> None:
    transitions = Transitions(ManualClock())
    for number in range(KEPT + 5):
        transitions.on_event(CircuitStateChanged("a", "", "a", "closed", "open", None, number))
    moves, _ = transitions.of("a")
    assert len(moves) == KEPT
    assert moves[-1].failure_count == KEPT + 4
    transitions.look(CircuitBreakerStateData(f"b{number}") for number in range(MOST_BREAKERS))
    assert transitions.of("a") == ([], 0)


def test_the_store_is_not_believed_about_a_circuit_that_is_ahead_of_it() -> None:
    transitions = Transitions(ManualClock())
    transitions.on_event(CircuitStateChanged("a", "", "a", "closed", "open"))
    transitions.look([CircuitBreakerStateData("a", state="closed")], told={"a"})
    assert [move.to_state for move in transitions.of("a")[0]] == ["open"]
