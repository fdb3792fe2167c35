"""The audit trail by the API."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from starlette.testclient import TestClient

from holdfast import Holdfast
from holdfast.audit import reading
from holdfast.audit.checkpoints import import_checkpoints
from holdfast.audit.event import AuditEvent
from holdfast.server.verifying import Verifications, VerificationState
from tests.server.served import asking, kept
from tests.stores import SQL_STORES

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
KEY = b"k3y-of-the-trail-which-nobody-sees"


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Holdfast]:
    with kept("sqlite", tmp_path) as hold:
        yield hold


@pytest.fixture
def client(hold: Holdfast) -> Iterator[TestClient]:
    with asking(hold) as client:
        yield client


def fill(hold: Holdfast, number: int, kind: str = "consent_granted", start: int = 0) -> list[str]:
    """So many events, a second apart; their ids."""
    events = [
        AuditEvent(event_type=kind, subject_ref=f"s{n % 3}", occurred_at=NOON + timedelta(seconds=n), payload={"n": n})
        for n in range(start, start + number)
    ]
    with hold.sessions.begin() as session:
        hold.audit.append_in(session, events)
    return [str(one.event_id) for one in events]


def ids(answer: Any) -> list[str]:
    return [one["event_id"] for one in answer.json()["items"]]


def ended(client: TestClient, begun: dict[str, Any]) -> dict[str, Any]:
    """The verification, once it has ended."""
    app: Any = client.app
    verifying: Verifications = app.state.verifications
    assert verifying.wait(begun["id"], 30) is not None
    found: dict[str, Any] = client.get(f"audit/verify/{begun['id']}").json()
    return found


@pytest.mark.parametrize("name", SQL_STORES)
def test_pages_follow_each_other_newest_first_and_every_event_is_on_one(tmp_path: Path, name: str) -> None:
    with kept(name, tmp_path) as hold, asking(hold) as client:
        made = fill(hold, 7)
        seen: list[str] = []
        after: str | None = None
        for _ in range(4):
            page = client.get("audit", params={"limit": 2} | ({} if after is None else {"after": after}))
            seen += ids(page)
            after = page.json()["next"]
        assert after is None
        assert seen == made[::-1]


@pytest.mark.parametrize("name", SQL_STORES)
def test_events_are_found_by_each_filter(tmp_path: Path, name: str) -> None:
    with kept(name, tmp_path) as hold, asking(hold) as client:
        made = fill(hold, 6)
        (other,) = fill(hold, 1, "consent_withdrawn", start=60)
        stream = client.get("audit").json()["items"][-1]["stream"]
        assert ids(client.get("audit", params={"subject": "s1"})) == [made[4], made[1]]
        assert ids(client.get("audit", params={"type": "consent_withdrawn"})) == [other]
        assert len(ids(client.get("audit", params={"type": ["consent_withdrawn", "consent_granted"]}))) == 7
        assert set(ids(client.get("audit", params={"stream": stream}))) >= {made[0], made[3]}
        within = {"since": "2026-03-01T12:00:01Z", "until": "2026-03-01T12:00:03+00:00"}
        assert ids(client.get("audit", params=within)) == [made[2], made[1]]
        assert ids(client.get("audit", params={"entry": str(uuid4())})) == []


def test_a_rare_type_is_searched_for_in_parts_and_found(
    hold: Holdfast, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults: Any = reading.find_newest.__kwdefaults__
    monkeypatch.setattr(reading.find_newest, "__kwdefaults__", {**defaults, "window": 3})
    (rare,) = fill(hold, 1, "consent_withdrawn")
    fill(hold, 7, start=1)
    after, pages = None, []
    while True:
        page = client.get("audit", params={"type": "consent_withdrawn"} | ({} if after is None else {"after": after}))
        pages.append(ids(page))
        after = page.json()["next"]
        if after is None:
            break
    assert pages == [[], [], [rare]]


@pytest.mark.parametrize("name", SQL_STORES)
def test_a_trail_in_order_is_verified_and_says_so_itself(tmp_path: Path, name: str) -> None:
    with kept(name, tmp_path) as hold, asking(hold) as client:
        fill(hold, 10)
        assert client.get("audit/status").json()["last_verification"] is None
        begun = client.post("audit/verify", json={"reason": "the month is over"}).json()
        found = ended(client, begun)
        assert (found["state"], found["events"], found["broken"], found["by"]) == ("verified", 11, [], "local")
        status = client.get("audit/status").json()
        assert status["last_verification"] == {
            "verified": True, "until": found["started_at"], "by": "local", "events": 11,
            "streams": found["streams"], "broken": 0,
        }  # fmt: skip
        assert (status["running"], status["keyed"]) == (None, False)
        assert status["events"] == 12
        assert ended(client, client.post("audit/verify", json={}).json())["state"] == "verified"


@pytest.mark.parametrize("name", SQL_STORES)
def test_a_changed_event_is_found_and_explained(tmp_path: Path, name: str) -> None:
    with kept(name, tmp_path) as hold, asking(hold) as client:
        made = fill(hold, 6)
        table = hold.tables.audit_events
        with hold.sessions.begin() as session:
            session.execute(table.update().where(table.c.event_id == UUID(made[3])).values(payload={}))
        found = ended(client, client.post("audit/verify", json={}).json())
        assert found["state"] == "broken"
        (broken,) = found["broken"]
        assert (broken["first_broken_event_id"], broken["reason"]) == (made[3], "hash")
        assert "not what was written" in broken["meaning"]
        last = client.get("audit/status").json()["last_verification"]
        assert (last["verified"], last["broken"]) == (False, 1)


def test_one_stream_is_verified_and_the_whole_is_not_said_to_be(hold: Holdfast, client: TestClient) -> None:
    fill(hold, 6)
    stream = client.get("audit/streams").json()["items"][0]["stream"]
    found = ended(client, client.post("audit/verify", json={"stream": stream}).json())
    assert (found["state"], found["stream"], found["streams"]) == ("verified", stream, 1)
    assert client.get("audit/status").json()["last_verification"] is None
    assert client.post("audit/verify", json={"stream": "zz"}).json()["error"] == "stream_not_found"


def test_a_second_verification_joins_the_one_that_is_under_way(hold: Holdfast, client: TestClient) -> None:
    fill(hold, 3)
    goes_on, real = threading.Event(), hold.audit.run

    def held(work: Any) -> Any:
        if threading.current_thread().name.startswith("holdfast-verify"):
            assert goes_on.wait(30)
        return real(work)

    hold.audit.run = held  # type: ignore[method-assign]
    first = client.post("audit/verify", json={}).json()
    second = client.post("audit/verify", json={}).json()
    assert client.get("audit/status").json()["running"] == first["id"]
    goes_on.set()
    assert second["id"] == first["id"]
    assert ended(client, first)["state"] == "verified"


def test_a_verification_that_is_under_way_ends_with_the_server(hold: Holdfast) -> None:
    fill(hold, 3)
    real = hold.audit.run
    with asking(hold) as client:
        client.get("audit/status")
        app: Any = client.app
        verifying: Verifications = app.state.verifications

        def held(work: Any) -> Any:
            if threading.current_thread().name.startswith("holdfast-verify"):
                assert verifying.closing.wait(30)
            return real(work)

        hold.audit.run = held  # type: ignore[method-assign]
        id = client.post("audit/verify", json={}).json()["id"]
    found = verifying.get(id)
    assert found is not None
    assert (found.state, found.error) == (VerificationState.FAILED, "the server has ended")


def test_a_server_with_another_key_says_so(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'keyed.db'}"
    with Holdfast(url, audit_key=KEY, background=False) as hold, asking(hold) as client:
        assert client.get("audit/status").json()["has_the_key"] is True
        fill(hold, 3)
        assert client.get("audit/status").json()["has_the_key"] is True
    with Holdfast(url, background=False) as hold, asking(hold) as client:
        assert client.get("audit/status").json()["has_the_key"] is False


def test_a_verification_that_fails_says_why(hold: Holdfast, client: TestClient) -> None:
    fill(hold, 3)
    real = hold.audit.run

    def failing(work: Any) -> Any:
        if threading.current_thread().name.startswith("holdfast-verify"):
            raise OSError("the disk is away")
        return real(work)

    hold.audit.run = failing  # type: ignore[method-assign]
    found = ended(client, client.post("audit/verify", json={}).json())
    assert (found["state"], found["error"]) == ("failed", "the disk is away")
    assert client.get("audit/status").json()["running"] is None


def test_streams_are_paged_with_their_last_checkpoint(hold: Holdfast, client: TestClient) -> None:
    fill(hold, 6)
    first = client.get("audit/streams", params={"limit": 1}).json()
    assert (len(first["items"]), first["items"][0]["checkpoint"]) == (1, None)
    taken = client.post("audit/checkpoints", json={"reason": "weekly"}).json()
    assert taken["signed"] is False
    (stream,) = client.get("audit/streams", params={"limit": 1}).json()["items"]
    assert stream["checkpoint"]["seq"] == stream["events"]
    rest = client.get("audit/streams", params={"after": first["next"]}).json()
    assert stream["stream"] not in [one["stream"] for one in rest["items"]]
    assert len(rest["items"]) + 1 == client.get("audit/status").json()["streams"]


def test_exported_checkpoints_are_signed_and_the_key_is_never_shown(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'keyed.db'}"
    with Holdfast(url, audit_key=KEY, background=False) as hold, asking(hold) as client:
        fill(hold, 3)
        taken = client.post("audit/checkpoints", json={}).json()
        assert taken["signed"] is True
        kept_elsewhere = import_checkpoints(taken["export"], KEY)
        assert [one.seq for one in kept_elsewhere] == [one["seq"] for one in taken["checkpoints"]]
        texts = [client.get(path).text for path in ("audit", "audit/status", "audit/streams", "status")]
        for secret in (KEY.decode(), KEY.hex()):
            assert not any(secret in text for text in [*texts, str(taken)])
        assert client.get("audit/status").json()["keyed"] is True


def test_a_checkpoint_of_a_trail_that_was_cut_is_refused(hold: Holdfast, client: TestClient) -> None:
    fill(hold, 6)
    client.post("audit/checkpoints", json={})
    with hold.sessions.begin() as session:
        session.execute(hold.tables.chain_heads.update().values(seq=0))
        session.execute(hold.tables.audit_events.delete())
    answer = client.post("audit/checkpoints", json={})
    assert (answer.status_code, answer.json()["error"]) == (409, "trail_broken")


def test_acts_of_operators_are_sentences(hold: Holdfast, client: TestClient) -> None:
    client.post("outbox/queues/pause", json={"queue": "mail", "reason": "storm"})
    client.post("letters/zz/resolve", json={"reason": "done by phone"})
    said = [one["says"] for one in client.get("audit", params={"subject": "operator:local"}).json()["items"]]
    assert "local asked to resolve letter zz: done by phone" in said
    assert "local could not resolve letter zz (ProblemError)" in said
    assert any(one.startswith("local asked to pause") and one.endswith(": storm") for one in said)


def test_types_can_be_chosen_from(client: TestClient) -> None:
    types = client.get("audit/types").json()
    assert {"operator_acted", "trail_verified", "saga_stuck"} <= {*types}


def test_what_is_not_there_is_404_and_what_cannot_be_meant_422(client: TestClient) -> None:
    assert client.get(f"audit/verify/{uuid4()}").json()["error"] == "verification_not_found"
    assert client.get("audit/verify/seven").status_code == 422
    for query in (
        {"after": "x"}, {"since": "2026-03-01T12:00:00"}, {"until": "0001-01-01T00:00:00+23:59"}, {"entry": "x"},
        {"subject": "\0"}, {"type": "\0"}, {"type": "x" * 65}, {"stream": "x" * 256},
    ):  # fmt: skip
        assert client.get("audit", params=query).status_code == 422, query


@pytest.mark.parametrize("name", SQL_STORES)
def test_hostile_filters_are_answered_and_never_an_error_of_the_server(tmp_path: Path, name: str) -> None:
    with kept(name, tmp_path) as hold, asking(hold) as client:
        for text in ("'; DROP TABLE x; --", "\u202eevil", "x" * 300, "\0", "😀", ""):
            for field in ("subject", "type", "stream", "since", "until", "after", "entry"):
                assert client.get("audit", params={field: text}).status_code in (200, 422)
            assert client.get("audit/streams", params={"after": text}).status_code in (200, 422)
            assert client.post("audit/verify", json={"stream": text}).status_code in (404, 422)
