"""What a store promises to many users at once: wake-ups, changes that lose nothing, leases, and a second way in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest

from holdfast.errors import Conflict
from holdfast.store import lease
from holdfast.store.change import change, remove
from holdfast.store.port import Insert, Store, Swap
from holdfast.store.query import equal
from holdfast.store.record import evolve
from holdfast.testing.store.kinds import ITEM, Item, everything, fill, item
from holdfast.testing.store.threads import at_once, repeatedly

_TOPICS = ("topic", "a.b:c/d", "Grün 🙂 'quoted' \"twice\"", "long" * 60)


def up(found: Item | None) -> Item:
    return item("count", size=1) if found is None else evolve(found, size=found.size + 1)


def woken(event: threading.Event, poke: Callable[[], object]) -> bool:
    """Whether the event is set after poking; again and again, as a wake-up may be missed."""
    for _ in range(100):
        poke()
        if event.wait(0.1):
            return True
    return False


def touch(store: Store, topic: str) -> Callable[[], object]:
    return partial(change, store, ITEM, "count", up, wake=lambda before, after: topic)


class SharingConformance:
    @pytest.fixture
    def second_store(self) -> Store | None:
        """Another store object at the same place; override it where there can be one."""
        return None

    @pytest.mark.parametrize("topic", _TOPICS, ids=ascii)
    def test_a_subscriber_hears_of_a_commit(self, store: Store, topic: str) -> None:
        heard = threading.Event()
        subscription = store.subscribe(topic, heard.set)
        assert woken(heard, touch(store, topic))
        subscription.close()
        subscription.close()
        touch(store, topic)()

    def test_a_subscription_of_a_closed_store_or_a_slow_one_does_not_say_that_it_is_prompt(self, store: Store) -> None:
        subscription = store.subscribe("a", lambda: None)
        assert subscription.is_prompt in (True, False)
        store.close()
        if not store.url.startswith("memory"):
            assert not subscription.is_prompt
        subscription.close()

    def test_every_subscriber_hears(self, store: Store) -> None:
        first, second, other = threading.Event(), threading.Event(), threading.Event()
        subscriptions = [store.subscribe(*one) for one in (("a", first.set), ("a", second.set), ("b", other.set))]
        assert woken(first, touch(store, "a"))
        assert woken(second, touch(store, "a"))
        assert woken(other, touch(store, "b"))
        subscriptions[0].close()
        second.clear()
        assert woken(second, touch(store, "a"))
        for subscription in subscriptions:
            subscription.close()

    def test_a_subscriber_that_fails_hurts_nobody(self, store: Store) -> None:
        heard = threading.Event()
        subscriptions = [store.subscribe("a", lambda: 1 / 0), store.subscribe("a", heard.set)]
        assert woken(heard, touch(store, "a"))
        heard.clear()
        assert woken(heard, touch(store, "a"))
        for subscription in subscriptions:
            subscription.close()

    def test_closing_ends_all_that_subscribers_who_came_at_once_have_started(self, store: Store) -> None:
        before = set(threading.enumerate())
        at_once([lambda: store.subscribe("a", lambda: None)] * 8)
        store.close()
        for thread in set(threading.enumerate()) - before:
            thread.join(5)
            assert not thread.is_alive(), thread.name

    def test_a_subscriber_of_a_second_store_hears_as_well(self, store: Store, second_store: Store | None) -> None:
        if second_store is None:
            pytest.skip("no second store at this place")
        heard = threading.Event()
        subscription = second_store.subscribe("a", heard.set)
        assert woken(heard, touch(store, "a"))
        subscription.close()

    def test_a_second_store_sees_what_the_first_has_done(self, store: Store, second_store: Store | None) -> None:
        if second_store is None:
            pytest.skip("no second store at this place")
        (a,) = fill(store, [item("a", token="t")])
        assert second_store.get(ITEM, ("a",)) == [a]
        second_store.commit([Swap(ITEM, a, evolve(a, state="old"))])
        assert store.page(ITEM, equal(state="old")) == [evolve(a, state="old")]
        assert store.tally(ITEM, ("state",)) == {("old",): 1}
        with pytest.raises(Conflict):
            store.commit([Swap(ITEM, a, evolve(a))])
        with pytest.raises(Conflict):
            second_store.commit([Insert(ITEM, item("b", token="t"))])
        assert abs(store.now() - second_store.now()) < 5_000_000

    def test_two_stores_at_one_place_lose_nothing(self, store: Store, second_store: Store | None) -> None:
        if second_store is None:
            pytest.skip("no second store at this place")
        both = (store, second_store)
        at_once([repeatedly(15, partial(change, both[n % 2], ITEM, "count", up)) for n in range(4)])
        assert [one.size for one in everything(store)] == [60]

    def test_changes_by_many_threads_lose_nothing(self, store: Store) -> None:
        at_once([repeatedly(25, partial(change, store, ITEM, "count", up)) for _ in range(8)])
        assert [(one.size, one.version) for one in everything(store)] == [(200, 200)]

    def test_a_change_gives_the_record_before_and_after(self, store: Store) -> None:
        made = item("a")
        assert change(store, ITEM, "a", lambda _: None) == (None, None)
        assert change(store, ITEM, "a", lambda _: made) == (None, made)
        assert change(store, ITEM, "a", lambda _: None) == (made, None)
        assert remove(store, ITEM, "a") == made
        assert remove(store, ITEM, "a") is None

    def test_a_lease_has_one_holder(self, store: Store) -> None:
        token = lease.acquire(store, "drain", 3600)
        assert token is not None
        assert lease.acquire(store, "drain", 3600) is None
        assert lease.acquire(store, "another", 3600) is not None
        assert lease.extend(store, "drain", token, 3600)
        assert lease.release(store, "drain", token)
        assert lease.acquire(store, "drain", 3600) is not None

    def test_a_lease_ends_by_the_stores_clock(self, store: Store) -> None:
        stale = lease.acquire(store, "drain", 0)
        fresh = lease.acquire(store, "drain", 3600)
        assert stale is not None
        assert fresh is not None
        assert not lease.extend(store, "drain", stale, 3600)
        assert not lease.release(store, "drain", stale)
        assert lease.acquire(store, "drain", 3600) is None
        assert lease.extend(store, "drain", fresh, 3600)

    def test_of_many_who_want_a_lease_one_gets_it(self, store: Store) -> None:
        for _ in range(5):
            tokens = [token for token in at_once([partial(lease.acquire, store, "drain", 3600)] * 8) if token]
            assert len(tokens) == 1
            assert lease.release(store, "drain", tokens[0])

    def test_the_stores_time_moves_on(self, store: Store) -> None:
        first = store.now()
        assert isinstance(first, int)
        assert store.now() >= first

    def test_a_store_that_can_be_reached_answers(self, store: Store) -> None:
        store.ping()

    def test_the_address_of_a_store_is_a_text(self, store: Store) -> None:
        assert "://" in store.url

    def test_a_closed_store_can_be_used_again(self, store: Store) -> None:
        fill(store, [item("a")])
        store.close()
        assert everything(store) == [item("a")]
        store.close()
        store.close()
        fill(store, [item("b")])
        assert store.tally(ITEM) == {(): 2}

    def test_a_subscription_outlives_or_ends_with_a_close_without_harm(self, store: Store) -> None:
        subscription = store.subscribe("a", lambda: None)
        store.close()
        subscription.close()
        touch(store, "a")()
