"""Everything at a glance, and its last hour."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from holdfast import Breaker, Holdfast, Retry, Saga, Step
from holdfast.errors import StoreUnavailable
from holdfast.machine.trip import consecutive
from holdfast.server.sampling import DOCTOR_FOR_S, STEP_S, Kept, Sampling
from holdfast.testing.clock import ManualClock
from holdfast.views.overview import headline, span
from tests.server.served import asking, file, kept
from tests.stores import STORES

MINUTE = 60.0
CALM = "Everything is closed and drained."


def sampled(hold: Holdfast, clock: ManualClock, steps: int) -> Sampling:
    samples = Sampling(hold, clock)
    for _ in range(steps):
        assert samples.beat()
        clock.advance(STEP_S)
    return samples


@pytest.mark.parametrize("name", STORES)
def test_an_idle_store_is_calm(tmp_path: Path, name: str) -> None:
    with kept(name, tmp_path) as hold, asking(hold) as client:
        shown = client.get("overview").json()
        if shown["doctor"]["by_severity"].get("error", 0) == 0:
            assert shown["headline"] == {"tone": "calm", "text": CALM, "parts": []}
        assert shown["letters"] == {"by_status": {}, "domains": [], "more_domains": 0, "oldest_age_s": None}
        assert shown["breakers"] == {"by_state": {}, "pinned": 0, "items": []}
        has_outbox = name in ("sqlite", "postgres", "mariadb")
        assert (shown["outbox"] is not None, shown["sagas"] is not None) == (has_outbox, has_outbox)
        assert shown["workflows"] == {"by_status": {}, "stranded": 0}


@pytest.mark.parametrize("name", STORES)
def test_letters_that_wait_are_told_by_domain_with_the_age_of_the_oldest(tmp_path: Path, name: str) -> None:
    clock = ManualClock()
    with kept(name, tmp_path, clock=clock) as hold, asking(hold) as client:
        file(hold, 2)
        clock.advance(5 * MINUTE)
        ids = file(hold, 3, "stock")
        hold.letters.update_status(ids[0], "requires_review")
        clock.advance(MINUTE)
        shown = client.get("overview").json()
        assert shown["letters"]["by_status"] == {"pending": 4, "requires_review": 1}
        ages = {one["domain"]: (one["pending"], one["oldest_age_s"]) for one in shown["letters"]["domains"]}
        assert ages == {"payments": (2, 6 * MINUTE), "stock": (2, MINUTE)}
        assert shown["letters"]["oldest_age_s"] == 6 * MINUTE
        assert {"4 letters wait", "1 letter needs a person"} <= set(shown["headline"]["parts"])


def test_breakers_that_are_not_as_they_should_be_are_named(tmp_path: Path) -> None:
    clock = ManualClock()
    with kept("sqlite", tmp_path, clock=clock) as hold, asking(hold) as client:
        hold.breakers.atomic_force_open("payments", "maintenance", "ops")
        hold.breakers.get_or_create("stock")
        own = hold.guard("mail", Retry(attempts=1), Breaker(consecutive(1)), shared=False)
        with pytest.raises(ConnectionError):
            own(_refused)()
        clock.advance(2 * MINUTE)
        shown = client.get("overview").json()
        found = {one["name"]: one for one in shown["breakers"]["items"]}
        assert found.keys() == {"payments", "mail"}
        assert (found["payments"]["pinned"], found["payments"]["by"], found["payments"]["shared"]) == (
            True,
            "ops",
            True,
        )
        assert (found["mail"]["state"], found["mail"]["shared"]) == ("open", False)
        assert shown["breakers"]["by_state"] == {"open": 2, "closed": 1}
        assert shown["headline"]["tone"] == "trouble"
        assert shown["headline"]["text"].startswith("payments has been open for 2 m and held so by an operator")


@pytest.mark.parametrize("name", ["sqlite", "postgres"])
def test_the_outbox_and_sagas_are_told_where_there_are_some(tmp_path: Path, name: str) -> None:
    with kept(name, tmp_path) as hold:

        @hold.operation("charge")
        def charge(order_id: str) -> None: ...

        hold.saga(Saga("order", [Step("pay", "charge")]))
        with hold.sessions.begin() as session:
            hold.outbox.put(session, "charge", {"order_id": "o1"}, target="bank")
            hold.sagas.start(session, "order", {"order_id": "o2"})
        hold.outbox.pause("mail", by="ops", reason="the provider is down")
        with asking(hold) as client:
            shown = client.get("overview").json()
        assert shown["outbox"]["by_status"]["pending"] == 2
        assert "succeeded" not in shown["outbox"]["by_status"]
        assert [one["queue"] for one in shown["outbox"]["paused"]] == ["mail"]
        assert shown["sagas"]["by_state"] == {"running": 1, "compensating": 0, "stuck": 0}
        assert "1 outbox queue is paused (mail)" in shown["headline"]["parts"]


def test_the_recent_events_of_this_process_are_in_it(hold: Holdfast, client: TestClient) -> None:
    hold.letters.pause("payments", by="ops", reason="a test")
    events = client.get("overview").json()["events"]
    assert events[0]["operation_key"] == "payments"


def test_a_store_that_is_away_is_a_503_that_says_so(hold: Holdfast, client: TestClient) -> None:
    hold.store.tally = _away  # type: ignore[method-assign]
    answer = client.get("overview")
    assert (answer.status_code, answer.json()["error"]) == (503, "store_away")


def test_a_curve_has_a_value_for_every_step(tmp_path: Path) -> None:
    clock = ManualClock()
    with kept("sqlite", tmp_path, clock=clock) as hold:
        samples = sampled(hold, clock, 2)
        file(hold, 3)
        assert samples.beat()
        found = samples.since(60)
        assert [later - before for before, later in zip(found.times, found.times[1:], strict=False)] == [STEP_S] * 2
        assert found.series["letters_pending"] == [0, 0, 3]
        assert found.series["outbox_waiting"] == [0, 0, 0]
        assert not samples.beat()  # the one of this step is there


def test_an_hour_is_kept_and_no_more(tmp_path: Path) -> None:
    clock = ManualClock()
    with kept("memory", tmp_path, clock=clock) as hold:
        samples = sampled(hold, clock, 725)
        found = samples.since(60)
        assert len(found.times) <= 720
        assert len(samples.since(1).times) <= 12
        assert "outbox_waiting" not in found.series


def test_while_the_store_is_away_the_curves_have_a_gap_and_say_since_when(tmp_path: Path) -> None:
    clock = ManualClock()
    with kept("memory", tmp_path, clock=clock) as hold:
        samples = sampled(hold, clock, 1)
        went, tally = clock.wall(), hold.store.tally
        hold.store.tally = _away  # type: ignore[method-assign]
        for _ in range(2):
            assert not samples.beat()
            clock.advance(STEP_S)
        found = samples.since(60)
        assert found.away_since == went
        assert "StoreUnavailable" in found.away
        assert found.series["letters_pending"][0] == 0
        assert set(found.series["letters_pending"][1:]) == {None}
        hold.store.tally = tally  # type: ignore[method-assign]
        assert samples.beat()
        found = samples.since(60)
        assert found.away_since is None
        assert found.series["letters_pending"] == [0, None, None, 0]


def test_only_one_sample_is_taken_at_a_time(tmp_path: Path) -> None:
    clock = ManualClock()
    with kept("memory", tmp_path, clock=clock) as hold:
        samples, tally = Sampling(hold, clock), hold.store.tally
        began, go_on = threading.Event(), threading.Event()

        def slow(*args: Any, **options: Any) -> Any:
            began.set()
            assert go_on.wait(10)
            return tally(*args, **options)

        hold.store.tally = slow  # type: ignore[method-assign]
        thread = threading.Thread(target=samples.beat)
        thread.start()
        assert began.wait(10)
        assert not samples.beat()
        go_on.set()
        thread.join(10)
        assert len(samples.since(60).times) == 1


def test_what_is_slow_to_count_is_counted_again_only_after_a_while(tmp_path: Path) -> None:
    clock = ManualClock()
    with kept("memory", tmp_path, clock=clock) as hold:
        samples = Sampling(hold, clock)
        first, doctor = samples.slow(), samples.doctor()
        assert samples.slow() is first
        clock.advance(DOCTOR_FOR_S + 1)
        assert samples.slow() is not first
        assert samples.doctor() is not doctor


def test_what_takes_long_to_count_is_counted_seldom() -> None:
    clock, asked = ManualClock(), []

    def find() -> dict[str, Any]:
        asked.append(clock.monotonic())
        clock.advance(1.0)
        return {}

    kept = Kept(find, clock)
    for _ in range(60):
        kept.get(5.0)
        clock.advance(1.0)
    assert len(asked) == 3
    assert asked[1] - asked[0] > 20


def test_the_server_samples_while_it_runs_and_stops_with_it(hold: Holdfast) -> None:
    with asking(hold) as client:
        found: dict[str, Any] = {"series": {}}
        while not found["series"]:  # the first one is being taken since the server has begun
            found = client.get("overview/series", params={"minutes": 1}).json()
        assert found["step_s"] == STEP_S
        assert found["series"]["letters_pending"][-1] == 0
        assert found["away_since"] is None
        for minutes in (0, 61, "many"):
            assert client.get("overview/series", params={"minutes": minutes}).status_code == 422


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0 s"), (59.9, "59 s"), (60, "1 m"), (7199, "1 h"), (86_400 * 3, "3 d"), (-5, "0 s")]
)
def test_a_span_is_said_in_one_unit(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_a_headline_names_the_worst_first_and_stays_short() -> None:
    clock = ManualClock()
    shut = {"state": "open", "since": clock.wall(), "pinned": False}
    quick = {
        "at": clock.wall(),
        "letters": {"by_status": {"pending": 1204, "requires_review": 1}},
        "breakers": {"items": [{"name": name, **shut} for name in "abc"]},
    }
    outbox = {"by_status": {"abandoned": 2}, "lag_s": 400.0, "paused": []}
    slow = {"sagas": {"by_state": {"stuck": 1}}, "stranded": 100, "outbox": outbox}
    said = headline(quick, slow, {"by_severity": {"error": 1}})
    assert said["tone"] == "trouble"
    assert said["text"] == (
        "a has been open for 0 s, b has been open for 0 s, 1 more breaker is not closed, 1 saga is stuck, and 6 more."
    )
    assert said["parts"][4:] == [
        "100 or more tasks are stranded, as no worker can take them", "the outbox is 6 m behind",
        "the doctor has found 1 error", "1,204 letters wait", "1 letter needs a person",
        "2 outbox entries were given up",
    ]  # fmt: skip


def _away(*args: Any, **options: Any) -> Any:
    raise StoreUnavailable("the store is away for a test")


def _refused() -> None:
    raise ConnectionError("refused")
