"""The doctor over HTTP."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event, current_thread

import pytest
from starlette.testclient import TestClient

from holdfast import Holdfast, Retry
from holdfast.doctor.rules import RULES


def rules_of(shown: dict) -> list[str]:
    return [one["rule"] for one in shown["findings"]]


def test_findings_are_told_the_worst_first_with_what_to_do(hold: Holdfast, client: TestClient) -> None:
    hold.guard("loose", Retry(attempts=None))
    shown = client.get("doctor").json()
    assert rules_of(shown)[0] == "HF102"
    assert shown["findings"][0]["severity"] == "error"
    assert shown["findings"][0]["fix"]
    assert shown["healthy"] is False


def test_the_last_look_is_shown_for_a_while_unless_a_fresh_one_is_asked_for(hold: Holdfast, client: TestClient) -> None:
    before = client.get("doctor").json()
    hold.guard("loose", Retry(attempts=None))
    again = client.get("doctor").json()
    assert (again["examined_at"], rules_of(again)) == (before["examined_at"], rules_of(before))
    fresh = client.get("doctor?fresh=true").json()
    assert "HF102" in rules_of(fresh)
    assert fresh["examined_at"] > before["examined_at"]


def test_only_one_looks_at_a_time_and_others_get_what_was_found_before(
    hold: Holdfast, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = client.get("doctor").json()
    began, may_go_on, count = Event(), Event(), hold.letters.count_all

    def slow() -> int:
        if current_thread().name.startswith("AnyIO"):  # who answers a request; the server looks by itself as well
            began.set()
            assert may_go_on.wait(30)
        return count()

    monkeypatch.setattr(hold.letters, "count_all", slow)  # the store takes its time
    with ThreadPoolExecutor(1) as other:
        looking = other.submit(client.get, "doctor?fresh=true")
        assert began.wait(30)
        meanwhile = [client.get("doctor?fresh=true").json() for _ in range(5)]
        may_go_on.set()
        fresh = looking.result(30).json()
    assert {one["examined_at"] for one in meanwhile} == {before["examined_at"]}
    assert fresh["examined_at"] > before["examined_at"]
    assert client.get("doctor").json()["examined_at"] == fresh["examined_at"]


def test_rules_can_be_left_out_by_id_or_name(hold: Holdfast, client: TestClient) -> None:
    hold.guard("loose", Retry(attempts=None))
    assert {"HF101", "HF102"} <= set(rules_of(client.get("doctor").json()))
    left = rules_of(client.get("doctor?ignore=HF101&ignore=endless-retry").json())
    assert not {"HF101", "HF102"} & set(left)


def test_nothing_worse_than_a_hint_is_healthy(hold: Holdfast, client: TestClient) -> None:
    shown = client.get("doctor").json()
    assert {one["severity"] for one in shown["findings"]} <= {"hint"}
    assert shown["healthy"] is True


@pytest.mark.parametrize("ignore", ["HF999", "", "<script>", "a%00b", "x" * 5000])
def test_a_rule_that_does_not_exist_is_422(client: TestClient, ignore: str) -> None:
    answer = client.get(f"doctor?ignore={ignore}")
    assert (answer.status_code, answer.json()["error"]) == (422, "unknown_rule")


def test_a_server_without_a_program_says_what_it_could_not_look_at(hold: Holdfast, ask) -> None:
    shown = ask(hold, has_program=False).get("doctor").json()
    assert any("--app" in part for part in shown["unseen"])
    assert shown["healthy"] is True


def test_every_rule_is_in_the_catalogue(client: TestClient) -> None:
    shown = client.get("doctor/rules").json()["items"]
    assert [one["id"] for one in shown] == [rule.id for rule in RULES]
    assert all(one["why"] for one in shown)
