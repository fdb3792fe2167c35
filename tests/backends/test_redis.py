"""What is special to the Redis store; what it shares with the others is in the conformance suite."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.backends.redis.layout import NUMBER, TEXT, order
from holdfast.backends.redis.store import RedisStore
from holdfast.errors import Conflict, MissingExtra, SchemaError, StoreError
from holdfast.store.port import Delete, Insert, Swap
from holdfast.store.query import ANY, Condition, Cursor, among, equal
from holdfast.store.record import Index, Kind, evolve
from holdfast.testing.store import ITEM, Item, item
from tests.services import redis as service

WILD = st.text(st.characters() | st.sampled_from('\0\1"\\\n\x7f\ud800\udfff\uffff'), max_size=6)


class Note(NamedTuple):
    id: str
    version: int
    due_at: int | None
    topic: str
    place: int
    text: str


NOTE = Kind("note", Note, indexes=(Index(("topic",), "place"), Index((), "text"), Index((), "place")))


def note(number: int, topic: str = "a", text: str = "") -> Note:
    return Note(f"{number:05}", 1, None, topic, number, text)


@pytest.fixture
def url() -> str:
    return service.server().fresh()


@pytest.fixture
def store(url: str) -> Iterator[RedisStore]:
    store = RedisStore(url)
    yield store
    store.close()


def commands(store: RedisStore, act: Callable[[], object]) -> dict[str, int]:
    """What an act made the server do."""
    with service.server().client() as client:
        client.config_resetstat()
        act()
        stats = client.info("commandstats")
    known = {name.removeprefix("cmdstat_"): told["calls"] for name, told in stats.items()}
    return {name: number for name, number in known.items() if name not in ("config|resetstat", "config", "info")}


def fill(store: RedisStore, number: int) -> None:
    for first in range(0, number, 1000):
        store.commit([Insert(NOTE, note(n, "ab"[n % 2])) for n in range(first, min(first + 1000, number))])


@given(st.lists(st.integers() | st.integers(-(2**63), 2**63), min_size=2))
def test_numbers_of_any_size_have_bytes_that_sort_like_them(numbers):
    assert sorted(numbers) == sorted(numbers, key=lambda number: order(number, NUMBER))


@given(st.lists(st.tuples(WILD, WILD), min_size=2))
def test_texts_of_any_kind_have_bytes_that_sort_like_them(pairs):
    def key(pair: tuple[str, str]) -> bytes:
        return order(pair[0], TEXT) + pair[1].encode("utf-8", "surrogatepass")

    assert sorted(pairs) == sorted(pairs, key=key)


@given(texts=st.lists(WILD, min_size=1, max_size=12), limit=st.integers(1, 5))
def test_pages_by_text_have_the_order_that_python_gives(texts, limit):
    store = RedisStore(service.server().fresh())
    notes = [note(number, text=text) for number, text in enumerate(texts)]
    store.commit([Insert(NOTE, one) for one in notes])
    expected = sorted(notes, key=lambda one: (one.text, one.id))
    assert store.page(NOTE, by="text") == expected
    assert store.page(NOTE, by="text", descending=True) == expected[::-1]
    found, after = [], None
    while page := store.page(NOTE, by="text", after=after, limit=limit):
        found += page
        after = Cursor(page[-1].text, page[-1].id)
    assert found == expected
    middle = texts[0]
    for operator, holds in (("<", str.__lt__), ("<=", str.__le__), (">", str.__gt__), (">=", str.__ge__)):
        matching = [one for one in expected if holds(one.text, middle)]
        assert store.page(NOTE, (Condition("text", operator, middle),), by="text") == matching
        assert {*store.page(NOTE, (Condition("text", operator, middle),), by="id")} == {*matching}
    store.close()


@given(ids=st.lists(WILD, min_size=1, max_size=12, unique=True))
def test_any_text_can_be_an_id(ids):
    store = RedisStore(service.server().fresh())
    store.commit([Insert(NOTE, note(1)._replace(id=id)) for id in ids])
    assert [one.id for one in store.page(NOTE)] == sorted(ids)
    assert [one.id for one in store.page(NOTE, by="place")] == sorted(ids)
    assert [one.id for one in store.get(NOTE, ids) if one] == ids
    assert store.sweep(NOTE, ANY) == len(ids)
    assert store.page(NOTE) == []
    store.close()


def test_a_change_is_one_round_trip(store):
    a = item("a")
    store.commit([Insert(ITEM, a)])
    told = commands(store, lambda: store.commit([Swap(ITEM, a, evolve(a, state="old"))]))
    assert told.pop("evalsha") == 1
    assert not {"eval", "script", "multi", "scan", "keys"} & told.keys()


@pytest.mark.parametrize(
    "act",
    [
        lambda store: store.page(NOTE, equal(topic="a"), by="place", limit=50),
        lambda store: store.page(NOTE, (among("topic", ("a", "b")),), by="place", descending=True, limit=50),
        lambda store: store.page(NOTE, by="place", offset=40, limit=10),
        lambda store: store.tally(NOTE, ("topic",), (among("topic", ("a", "b")),)),
        lambda store: store.tally(NOTE, (), (Condition("place", ">=", 3),)),
        lambda store: store.tally(ITEM, ("state",)),
        lambda store: store.get(NOTE, [f"{n:05}" for n in range(50)]),
        lambda store: store.claim(NOTE, equal(topic="a"), evolve, by="place", limit=1),
        lambda store: store.commit([Insert(NOTE, note(99_999))]),
    ],
)
def test_the_work_does_not_grow_with_the_number_of_records(act, store):
    told = []
    for number in (100, 3000):
        store.sweep(NOTE, ANY)
        fill(store, number)
        act(store)
        store.commit([Delete(NOTE, one) for one in store.get(NOTE, ["99999"]) if one])
        told.append(commands(store, partial(act, store)))
    assert told[0] == told[1]
    assert sum(told[0].get(name, 0) for name in ("evalsha", "eval")) <= 2
    assert told[0].get("get", 0) <= 1


def test_the_keyspace_is_never_searched(store):
    fill(store, 50)

    def everything() -> None:
        store.page(NOTE, equal(text=""), by="due_at")
        store.tally(NOTE, ("text",))
        store.sweep(NOTE, equal(text=""), {"text": "x"})
        store.sweep(NOTE, ANY)

    assert not {"keys", "scan", "zscan", "hscan", "sscan"} & commands(store, everything).keys()


def test_long_walks_are_made_in_steps_and_miss_nothing(store):
    fill(store, 5000)
    odd = (Condition("version", "=", 1), Condition("due_at", "is null"))
    assert [one.place for one in store.page(NOTE, odd, by="place", limit=10_000)] == list(range(5000))
    assert [one.place for one in store.page(NOTE, (*odd, equal(id="04999")[0]), by="place")] == [4999]
    assert [one.place for one in store.page(NOTE, odd, by="place", descending=True, offset=4990)] == [*range(9, -1, -1)]
    assert [one.place for one in store.page(NOTE, by="place", offset=4990)] == list(range(4990, 5000))
    assert store.tally(NOTE, ("topic",), odd) == {("a",): 2500, ("b",): 2500}
    assert store.sweep(NOTE, (*odd, *equal(topic="a")), {"text": "x"}) == 2500
    assert store.sweep(NOTE, odd, {"topic": "c"}, by="place", limit=2400) == 2400
    assert store.tally(NOTE, ("topic", "text")) == {("c", ""): 2400, ("b", ""): 100, ("a", "x"): 2500}


def test_a_sweep_along_the_field_that_it_changes_meets_each_record_once(store):
    fill(store, 3000)
    assert store.sweep(NOTE, ANY, {"place": 5000}, by="place") == 3000
    assert store.tally(NOTE, ("place", "version")) == {(5000, 2): 3000}
    assert store.sweep(NOTE, equal(topic="a"), {"place": 6000}, by="place", limit=7) == 7
    assert store.tally(NOTE, ("place", "version")) == {(5000, 2): 2993, (6000, 3): 7}


def test_a_script_that_the_server_forgot_is_sent_again(store, url):
    a = item("a")
    store.commit([Insert(ITEM, a)])
    with service.server().client(url) as client:
        client.script_flush()
    store.commit([Swap(ITEM, a, evolve(a, size=1))])
    assert store.page(ITEM) == [evolve(a, size=1)]


def test_a_long_text_that_stays_is_not_sent_again(store):
    a = item("a", body="x" * 200_000, label="y" * 2000)
    store.commit([Insert(ITEM, a)])
    with service.server().client() as client:
        before = client.info("stats")["total_net_input_bytes"]
        b = evolve(a, state="old", label="z" * 2000)
        store.commit([Swap(ITEM, a, b)])
        assert client.info("stats")["total_net_input_bytes"] - before < 20_000
    assert store.get(ITEM, ("a",)) == [b]


def test_whoever_is_wrong_about_the_old_record_but_not_its_version_still_swaps_all_of_it(store):
    store.commit([Insert(ITEM, item("a", state="old", size=5, token="t", label="x"))])
    guess = item("a", size=7)
    store.commit([Swap(ITEM, guess, evolve(guess, lane="right"))])
    assert store.page(ITEM, equal(lane="right", state="new"), by="size") == [evolve(guess, lane="right")]
    assert store.tally(ITEM, ("state", "lane")) == {("new", "right"): 1}
    assert store.page(ITEM, equal(state="old"), by="due_at") == []
    store.commit([Insert(ITEM, item("b", token="t"))])


def test_a_swap_cannot_change_the_id(store):
    store.commit([Insert(ITEM, item("a"))])
    with pytest.raises(ValueError, match="keeps the id"):
        store.commit([Swap(ITEM, item("a"), evolve(item("b")))])


def test_a_value_that_is_no_text_and_no_number_is_refused_and_nothing_is_written(store):
    with pytest.raises(TypeError, match="cannot be stored"):
        store.commit([Insert(ITEM, item("a")), Insert(ITEM, item("b", body=b"bytes"))])
    assert store.page(ITEM) == []


def test_the_callers_transaction_cannot_be_joined(store):
    with pytest.raises(TypeError, match="no transactions to join"):
        store.commit([Insert(ITEM, item("a"))], connection=object())


def test_stores_with_other_prefixes_do_not_see_each_other(store, url):
    other = RedisStore(url, prefix="other")
    store.commit([Insert(ITEM, item("a"))])
    other.commit([Insert(ITEM, item("a", size=1))])
    assert store.get(ITEM, ("a",)) == [item("a")]
    with service.server().client(url) as client:
        assert {key.split(b":")[0] for key in client.scan_iter()} == {b"{holdfast}", b"{other}"}
    other.close()


def test_a_deleted_record_leaves_nothing_behind(store, url):
    a = item("a", token="t", number=1, rank=1, label="x")
    store.commit([Insert(ITEM, a)])
    store.commit([Delete(ITEM, a)])
    with service.server().client(url) as client:
        assert set(client.keys()) == {b"{holdfast}:kinds", b"{holdfast}:conformance_item:arrivals"}


def test_a_field_that_was_added_is_none_in_older_records(store):
    class Wider(NamedTuple):
        id: str
        version: int
        due_at: int | None
        added: int | None
        topic: str
        place: int
        text: str

    wider = Kind("note", Wider, indexes=NOTE.indexes)
    fill(store, 2)
    newer = RedisStore(store.url)
    old = newer.page(wider, by="place")
    assert [(one.place, one.added) for one in old] == [(0, None), (1, None)]
    newer.sweep(wider, equal(place=0), {"added": 7})
    newer.commit([Swap(wider, old[1], evolve(old[1], added=8))])
    assert [(one.place, one.added) for one in newer.page(wider, by="place")] == [(0, 7), (1, 8)]
    with pytest.raises(SchemaError, match="'added'"):
        RedisStore(store.url).page(NOTE)
    newer.close()


def test_records_that_were_indexed_for_another_version_are_refused_until_they_are_indexed_anew(store):
    fill(store, 3)
    other = Kind(
        "note", Note, indexes=(Index(("text",), "place"), Index((), "text")), tally=("topic",), unique=("place",)
    )
    newer = RedisStore(store.url)
    with pytest.raises(SchemaError, match="reindex"):
        newer.page(other)
    assert newer.reindex(other) == 3
    assert [one.place for one in newer.page(other, equal(text=""), by="place")] == [0, 1, 2]
    assert newer.tally(other, ("topic",)) == {("a",): 2, ("b",): 1}
    with pytest.raises(Conflict):
        newer.commit([Insert(other, note(9)._replace(place=1))])
    newer.sweep(other, ANY)
    with service.server().client(store.url) as client:
        assert client.keys() == [b"{holdfast}:kinds"]
    newer.close()


def test_a_full_server_refuses_a_commit_as_a_whole():
    server = service.private_server("--maxmemory", "4mb", "--appendonly", "no")
    store = RedisStore(server.url)
    number = 0
    with pytest.raises(StoreError, match="maxmemory"):
        while number < 10_000:
            store.commit([Insert(ITEM, item(f"{number + n}", body="x" * 500)) for n in range(10)])
            number += 10
    assert 0 < number < 10_000
    assert store.tally(ITEM) == {(): number}
    assert store.tally(ITEM, (), (Condition("version", "=", 1),)) == {(): number}
    assert store.tally(ITEM, (), equal(body="x" * 500)) == {(): number}
    assert "maxmemory" not in " ".join(store.durability().warnings)
    store.close()
    server.stop()


def test_settings_that_lose_records_are_warned_of():
    server = service.private_server("--appendfsync", "always")
    store = RedisStore(server.url)
    assert store.durability() == (True, "always", "noeviction", ())
    with server.client() as client:
        client.config_set("appendonly", "no")
        client.config_set("maxmemory-policy", "allkeys-lru")
        client.config_set("maxmemory", "100mb")
    told = store.durability()
    assert not told.appendonly
    assert [warning.split()[0] for warning in told.warnings] == ["appendonly", "maxmemory-policy"]
    store.close()
    server.stop()


def test_without_the_package_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(MissingExtra, match=r"pip install 'holdfast\[redis\]'"):
        RedisStore("redis://localhost")


def test_the_new_versions_of_a_claim_are_the_stored_ones(store):
    store.commit([Insert(ITEM, item(f"{n}", due_at=n)) for n in range(20)])

    def decide(found: Item) -> Item | None:
        return evolve(found, state="taken") if int(found.id) % 5 == 4 else None

    claimed = store.claim(ITEM, equal(state="new"), decide, limit=3)
    assert [one.id for one in claimed] == ["4", "9", "14"]
    assert store.get(ITEM, ["4", "9", "14"]) == claimed
