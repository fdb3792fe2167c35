"""Every figure that an operator alarms on, from real stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from holdfast import (
    Breaker,
    DeadLetter,
    Holdfast,
    Hub,
    PolicyError,
    Retry,
    Saga,
    Step,
    StoreUnavailable,
    consecutive,
    task,
    workflow,
)
from holdfast.letters.events import HOWS
from holdfast.readings import expected, readings
from holdfast.store.query import ANY
from holdfast.telemetry.measure import SHARE, Fresh
from holdfast.telemetry.prometheus import PrometheusCollector
from holdfast.testing import ManualClock
from holdfast.workflows.metrics import workflow_readings
from tests.stores import SQL_STORES, STORES, fresh_url

AGE_S = 5.0


class Scraped:
    """A Holdfast, and what a scrape of its process shows."""

    def __init__(self, url: str, **options: Any) -> None:
        self.clock = ManualClock()
        self.hold = Holdfast(url, clock=self.clock, telemetry=Hub(), background=False, **options)
        self.registry = CollectorRegistry()
        found = readings(self.hold, max_age=AGE_S, clock=self.clock)
        PrometheusCollector(
            hub=self.hold.telemetry, registry=self.registry, readings=found, expected=expected(self.hold)
        )

    def __call__(self, metric: str, /, **labels: str) -> float | None:
        return self.registry.get_sample_value(metric, labels)

    def wait(self, seconds: float = AGE_S) -> None:
        self.clock.advance(seconds)


Open = Callable[..., Scraped]


@contextmanager
def opened(name: str, tmp_path: Path) -> Iterator[Open]:
    made: list[Scraped] = []
    with fresh_url(name, tmp_path) as url:

        def make(**options: Any) -> Scraped:
            made.append(Scraped(url, **options))
            return made[-1]

        yield make
        for one in made:
            one.hold.close()


@pytest.fixture(params=STORES)
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    with opened(request.param, tmp_path) as make:
        yield make


@pytest.fixture(params=SQL_STORES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    with opened(request.param, tmp_path) as make:
        yield make


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Open]:
    with opened("memory", tmp_path) as make:
        yield make


def test_letters_by_status_with_the_age_of_the_oldest_that_waits(anywhere: Open) -> None:
    shown = anywhere()
    pay = shown.hold.guard("payments", Retry(attempts=1), dead_letter=True)
    pay.run(int, "no number")
    shown.wait(40)
    pay.run(int, "no number")
    done = shown.hold.letters.create("stock", "NEGATIVE")
    shown.hold.letters.mark_as_resolved(done.id, "manual_fix")
    assert shown("letter_entries", domain="payments", status="pending") == 2
    assert shown("letter_entries", domain="stock", status="resolved") == 1
    assert shown("letter_oldest_seconds", domain="payments") == pytest.approx(40, abs=1)
    assert shown("letter_oldest_seconds", domain="stock") is None
    assert shown("letter_capacity") == shown.hold.letters.box.room.capacity.total


def test_what_a_program_has_defined_is_counted_from_0_on(anywhere: Open) -> None:
    @task
    def hello() -> None: ...

    @workflow
    def greeting() -> Any:
        return hello()

    shown = anywhere()
    assert shown("letter_kept_total", domain="payments", how="lost") is None
    pay = shown.hold.guard("payments", Retry(attempts=1), dead_letter=True)
    shown.hold.guard("search", Retry(attempts=1))
    shown.hold.workflows.add(greeting)
    for how in ("stored", "spooled", "rejected", "lost"):
        assert shown("letter_kept_total", domain="payments", how=how) == 0
        assert shown("letter_kept_total", domain="search", how=how) is None
    for status in ("SUCCEEDED", "TERMINAL", "CANCELED"):
        assert shown("workflow_moved_total", name="greeting", status=status) == 0
    pay.run(int, "no number")
    assert shown("letter_kept_total", domain="payments", how="stored") == 1
    assert shown("letter_kept_total", domain="payments", how="lost") == 0
    shown.hold.workflows.start(greeting)
    shown.hold.workflows.worker().run_once()
    assert shown("workflow_moved_total", name="greeting", status="SUCCEEDED") == 1
    assert shown("workflow_moved_total", name="greeting", status="TERMINAL") == 0


def test_a_saga_is_counted_from_0_on(database: Open) -> None:
    shown = database()

    @shown.hold.operation
    def reserve() -> None: ...

    shown.hold.saga(Saga("order", [Step("reserve", "reserve", target="stock")], deadline=timedelta(hours=1)))
    assert shown("saga_moved_total", definition="order", state="stuck") == 0


def test_all_that_can_become_of_a_letter_is_expected(memory: Open) -> None:
    assert {*HOWS, "ingested"} == set(memory().hold.letters.box.counts)


def test_a_domain_whose_replay_somebody_has_paused_is_shown_until_it_goes_on(anywhere: Open) -> None:
    shown = anywhere()
    shown.hold.letters.pause("payments", by="ann", reason="bank is closed")
    assert shown("letter_paused", domain="payments") == 1
    shown.hold.letters.resume("payments")
    shown.wait()
    assert shown("letter_paused", domain="payments") is None


def test_breakers_with_the_word_of_an_operator_and_whether_they_are_shared(anywhere: Open) -> None:
    shown = anywhere()
    hold = shown.hold
    assert shown("breaker_sharing_connected") is None  # nothing is shared
    guard = hold.guard("stock", Breaker(consecutive(1)))
    assert shown("breaker_sharing_connected") == 0
    hold.breakers.sharing.sync()
    assert shown("breaker_sharing_connected") == 1
    assert shown("breaker_alone") == 0
    guard.run(int, "no number")
    hold.breakers.sharing.sync()
    hold.breakers.atomic_force_open("payments", "provider is down", ttl_minutes=5)
    shown.wait()
    assert shown("breaker_state", name="stock") == 2
    assert shown("breaker_state", name="payments") == 2
    assert shown("breaker_pinned", name="payments") == 1
    assert shown("breaker_pinned", name="stock") is None


def test_workflows_by_status_with_work_that_nobody_can_take_and_workers_that_are_there(anywhere: Open) -> None:
    @task
    def pack(order_id: str) -> str:
        return order_id

    @workflow
    def fulfil(order_id: str) -> Any:
        return pack(order_id)

    shown = anywhere()
    flows = shown.hold.workflows
    assert shown("workflow_stranded", queue="default") == 0
    assert shown("workflow_workers", queue="default") == 0
    flows.start(fulfil, "o-1")
    shown.wait(30)
    assert shown("workflow_runs", status="RUNNING") == 1
    assert shown("workflow_stranded", queue="default") == 1
    assert shown("workflow_lag_seconds", queue="default") == pytest.approx(30, abs=1)
    flows.worker().run_once()
    shown.wait()
    assert shown("workflow_runs", status="SUCCEEDED") == 1
    assert shown("workflow_stranded", queue="default") == 0
    assert shown("workflow_lag_seconds", queue="default") == 0
    assert shown("workflow_dead") == 0
    assert shown("workflow_schedules_late_seconds") == 0


def test_a_worker_that_stays_is_counted_for_each_of_its_queues(memory: Open) -> None:
    from holdfast.workflows.serving import Serving

    shown = memory()
    serving = Serving(shown.hold.store, ["default", "slow"], None)
    serving.declare(["pack"])
    assert shown("workflow_workers", queue="default") == 1
    assert shown("workflow_workers", queue="slow") == 1
    shown.wait(3600)  # it has not been heard of since
    assert shown("workflow_workers", queue="default") == 0
    assert shown("workflow_workers", queue="slow") is None


def test_a_schedule_that_nobody_has_looked_at_is_late(memory: Open) -> None:
    shown = memory()

    @task
    def sweep() -> None: ...

    @workflow
    def nightly() -> Any:
        return sweep()

    shown.hold.workflows.schedule("nightly", nightly, cron="0 3 * * *")
    assert shown("workflow_schedules_late_seconds") == 0
    shown.wait(2 * 86_400)
    assert (shown("workflow_schedules_late_seconds") or 0) > 86_000


def test_the_outbox_by_queue_with_what_waits_and_what_was_given_up(database: Open) -> None:
    shown = database()
    hold = shown.hold

    @hold.operation(max_attempts=1)
    def greet(name: str) -> None:
        if name == "nobody":
            raise ValueError("nobody is there")

    with hold.sessions.begin() as session:
        for name in ("ann", "bob", "nobody"):
            hold.outbox.put(session, "greet", {"name": name}, target="them")
        hold.outbox.put(session, "greet", {"name": "eve"}, target="them", queue="slow")
    hold.outbox.pause("slow", by="ann")
    shown.wait(40)
    assert shown("outbox_entries", queue="default", status="pending") == 3
    assert shown("outbox_entries", queue="slow", status="pending") == 1
    assert shown("outbox_entries", queue="slow", status="abandoned") == 0
    assert shown("outbox_lag_seconds", queue="default") == pytest.approx(40, abs=1)
    assert shown("outbox_lag_seconds", queue="slow") == pytest.approx(40, abs=1)
    assert shown("outbox_paused", queue="slow") == 1
    assert shown("outbox_rows") == 4
    hold.worker().run_once()
    shown.wait()
    assert shown("outbox_entries", queue="default", status="pending") == 0
    assert shown("outbox_entries", queue="default", status="abandoned") == 1
    assert shown("outbox_entries", queue="default", status="succeeded") is None  # it may be millions
    assert shown("outbox_lag_seconds", queue="default") == 0
    assert shown("outbox_rows") == 4
    assert shown("audit_events") == 3  # two that were done, and one that was given up


def test_an_entry_that_will_be_tried_again_waits_as_failed(database: Open) -> None:
    shown = database()

    @shown.hold.operation
    def greet() -> None:
        raise ConnectionError("no answer")

    with shown.hold.sessions.begin() as session:
        shown.hold.outbox.put(session, "greet", target="them")
    shown.hold.worker().run_once()
    waiting = [shown("outbox_entries", queue="default", status=one) for one in ("pending", "failed", "scheduled")]
    assert sum(one or 0 for one in waiting) == 1


def test_sagas_by_state(database: Open) -> None:
    shown = database()
    hold = shown.hold

    @hold.operation
    def reserve() -> None: ...

    saga = hold.saga(Saga("order", [Step("reserve", "reserve", target="stock")], deadline=timedelta(hours=1)))
    with hold.sessions.begin() as session:
        hold.sagas.start(session, saga, {})
    assert shown("saga_runs", definition="order", state="running") == 1
    hold.worker().run_once()
    shown.wait()
    assert shown("saga_runs", definition="order", state="completed") == 1


def test_what_waits_in_the_spool_is_measured_in_bytes(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    shown = Scraped("memory://", spool=spool)
    guard = shown.hold.guard("payments", Retry(attempts=1), dead_letter=DeadLetter())
    assert shown("letter_spool_bytes") == 0

    def away(*args: Any, **options: Any) -> Any:
        raise StoreUnavailable("memory:// is away")

    commit, shown.hold.store.commit = shown.hold.store.commit, away  # type: ignore[method-assign]
    guard.run(int, "no number")
    assert shown("letter_spool_bytes") == spool.stat().st_size > 100
    assert shown("letter_kept_total", domain="payments", how="spooled") == 1
    shown.hold.store.commit = commit  # type: ignore[method-assign]
    guard.run(int, "no number")
    assert shown("letter_spool_bytes") == 0
    assert shown("letter_ingested_total") == 1


def test_a_store_that_is_away_is_shown_as_down_and_the_scrape_goes_on(tmp_path: Path) -> None:
    shown = Scraped(f"sqlite:///{tmp_path}/h.db")
    assert shown("store_up") == 1

    def away(*args: Any, **options: Any) -> Any:
        raise StoreUnavailable("it is away")

    for verb in ("ping", "tally", "page"):
        setattr(shown.hold.store, verb, away)
    shown.wait()
    assert shown("store_up") == 0
    assert shown("letter_entries", domain="payments", status="pending") is None
    assert shown("letter_buffered") == 0


def test_a_store_without_a_database_has_no_figures_of_the_outbox(memory: Open) -> None:
    shown = memory()
    text = generate_latest(shown.registry).decode()
    assert "outbox_entries" not in text
    assert "letter_entries" in text
    assert "workflow_runs" in text


def test_asking_takes_a_twentieth_of_the_time_at_most() -> None:
    clock, asked = ManualClock(), []

    def slow() -> int:
        asked.append(1)
        clock.advance(3.0)
        return len(asked)

    fresh = Fresh(slow, AGE_S, clock)
    assert fresh() == 1
    clock.advance(SHARE * 3.0 - 3.1)
    assert fresh() == 1
    clock.advance(0.2)
    assert fresh() == 2


def test_the_ages_come_from_the_first_row_of_an_index(memory: Open) -> None:
    shown = memory()
    for number in range(50):
        shown.hold.letters.create("payments", f"E{number}")
    asked: list[int] = []
    page = shown.hold.store.page

    def counted(kind: Any, where: Any = ANY, **options: Any) -> Any:
        found = page(kind, where, **options)
        asked.append(len(found))
        return found

    shown.hold.store.page = counted  # type: ignore[method-assign]
    generate_latest(shown.registry)
    assert max(asked) == 1


def test_an_impossible_age_is_refused(memory: Open) -> None:
    shown = memory()
    with pytest.raises(PolicyError, match=r"readings\.max_age"):
        readings(shown.hold, max_age=0)
    with pytest.raises(PolicyError, match=r"workflow_readings\.max_age"):
        workflow_readings(shown.hold.store, max_age=-1)
