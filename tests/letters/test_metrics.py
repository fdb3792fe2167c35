"""What metrics sinks tell of dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest

from holdfast import Capacity, DeadLetter, Holdfast, Hub, PolicyError, Retry
from holdfast.errors import StoreUnavailable
from holdfast.letters.metrics import letter_readings
from holdfast.store.port import Store
from holdfast.telemetry.otel import OtelListener
from holdfast.telemetry.prometheus import PrometheusCollector
from holdfast.testing.clock import ManualClock

AGE_S = 5.0


class Shop:
    """A Holdfast, its function that fails as it is told, and what a scrape shows."""

    def __init__(self, store: Store | str, clock: ManualClock, **options: Any) -> None:
        self.clock = clock
        self.hold = Holdfast(store, clock=clock, telemetry=Hub(), background=False, **options)
        self.down = True
        self.registry = CollectorRegistry()
        readings = letter_readings(self.hold.letters, self.hold.breakers, max_age=AGE_S, clock=clock)
        PrometheusCollector(hub=self.hold.telemetry, registry=self.registry, readings=readings)
        pay = self.hold.guard("payments", Retry(attempts=1), dead_letter=True)
        self.charge = pay.replayable(self._charge)

    def _charge(self, order_id: str) -> str:
        if self.down:
            raise ConnectionError("refused")
        return order_id

    def fail(self) -> None:
        with pytest.raises(ConnectionError):
            self.charge("o1")

    def shown(self, metric: str, /, **labels: str) -> float | None:
        return self.registry.get_sample_value(metric, labels)


@pytest.fixture
def shop(clock: ManualClock) -> Iterator[Shop]:
    shop = Shop("memory://", clock)
    with shop.hold:
        yield shop


def test_letters_are_counted_by_domain_and_status_on_every_store(store: Store, clock: ManualClock) -> None:
    shop = Shop(store, clock)
    for _ in range(3):
        shop.fail()
    stock = shop.hold.letters.create("stock", "NEGATIVE")
    shop.hold.letters.mark_as_resolved(stock.id, "manual_fix")
    assert shop.shown("letter_entries", domain="payments", status="pending") == 3
    assert shop.shown("letter_entries", domain="stock", status="resolved") == 1
    assert shop.shown("letter_created_total", domain="payments") == 3
    shop.hold.letters.delete(stock.id)
    clock.advance(AGE_S)
    assert shop.shown("letter_entries", domain="stock", status="resolved") is None
    assert shop.shown("letter_created_total", domain="stock") == 1  # counters never go down


def test_what_became_of_failures_is_counted(clock: ManualClock) -> None:
    shop = Shop("memory://", clock, capacity=Capacity(per_domain=2, overflow="reject"))
    for _ in range(3):
        shop.fail()
    assert shop.shown("letter_kept_total", domain="payments", how="stored") == 2
    assert shop.shown("letter_kept_total", domain="payments", how="rejected") == 1


def test_evicted_letters_are_counted(clock: ManualClock) -> None:
    shop = Shop("memory://", clock, capacity=Capacity(per_domain=2))
    for _ in range(5):
        shop.fail()
    assert shop.shown("letter_evicted_total") == 3


def test_replays_are_counted_and_timed_by_their_outcome(shop: Shop) -> None:
    shop.fail()
    (letter,) = shop.hold.letters.find()
    shop.hold.letters.replay(letter.id)
    shop.down = False
    shop.clock.advance(3600)
    shop.hold.letters.replay(letter.id)
    for outcome in ("failed", "succeeded"):
        assert shop.shown("letter_replay_total", domain="payments", outcome=outcome) == 1
        assert shop.shown("letter_replay_duration_seconds_count", domain="payments", outcome=outcome) == 1


def test_letters_that_wait_in_the_buffer_are_counted(shop: Shop) -> None:
    slow = shop.hold.guard("slow", dead_letter=DeadLetter(buffered=True))
    assert shop.shown("letter_buffered") == 0
    shop.hold.letters.box.buffer._delay = 600.0
    slow.run(lambda: 1 / 0)
    assert shop.shown("letter_buffered") == 1
    assert shop.shown("letter_kept_total", domain="slow", how="stored") is None
    shop.hold.letters.box.flush()
    assert shop.shown("letter_buffered") == 0
    assert shop.shown("letter_kept_total", domain="slow", how="stored") == 1


def test_breakers_of_the_store_show_their_state(shop: Shop) -> None:
    shop.hold.breakers.atomic_force_open("payments", "provider is down")
    shop.hold.breakers.get_or_create("stock")
    assert shop.shown("breaker_state", name="payments") == 2
    assert shop.shown("breaker_state", name="stock") == 0


def test_the_store_is_asked_only_when_scraped_and_not_at_every_scrape(shop: Shop) -> None:
    asked = []
    tally = shop.hold.store.tally

    def counted(*args: Any, **options: Any) -> Any:
        asked.append(options)
        return tally(*args, **options)

    shop.fail()  # looks whether there is room, and remembers
    shop.hold.store.tally = counted  # type: ignore[method-assign]
    shop.fail()
    assert asked == []
    generate_latest(shop.registry)
    generate_latest(shop.registry)
    assert len(asked) == 2  # the standing, and the arrivals
    shop.clock.advance(AGE_S)
    generate_latest(shop.registry)
    assert len(asked) == 4


def test_a_store_that_is_away_costs_its_own_numbers_only(shop: Shop) -> None:
    shop.fail()

    def away(*args: Any, **options: Any) -> Any:
        raise StoreUnavailable("memory:// is away")

    shop.hold.store.tally = away  # type: ignore[method-assign]
    assert shop.shown("letter_entries", domain="payments", status="pending") is None
    assert shop.shown("letter_kept_total", domain="payments", how="stored") == 1


def test_domains_made_of_user_data_do_not_become_a_leak(shop: Shop) -> None:
    shop.hold.letters.create_many([{"domain": f"d{number}", "failure_type": "X"} for number in range(1100)])
    assert shop.shown("letter_entries", domain="other", status="pending") == 100
    assert shop.shown("letter_created_total", domain="other") == 100


def test_open_telemetry_tells_the_same(shop: Shop) -> None:
    reader = InMemoryMetricReader()
    readings = letter_readings(shop.hold.letters, shop.hold.breakers, clock=shop.clock)
    listener = OtelListener(meter_provider=MeterProvider([reader]), attempts=False, readings=readings)
    shop.hold.telemetry.register(listener)
    shop.fail()
    shop.hold.letters.replay(shop.hold.letters.find()[0].id)
    data = reader.get_metrics_data()
    assert data is not None
    names = {m.name for r in data.resource_metrics for scope in r.scope_metrics for m in scope.metrics}
    assert {"letter.kept", "letter.replay", "letter.replay.duration", "letter.entries", "letter.created"} <= names


def test_an_impossible_age_is_refused(shop: Shop) -> None:
    with pytest.raises(PolicyError, match="max_age"):
        letter_readings(shop.hold.letters, max_age=0)
