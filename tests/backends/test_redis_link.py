"""The Redis store and its connections: servers that are away, restarted or in a cluster, forks, time and wake-ups."""

from __future__ import annotations

import os
import socket
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
import redis

from holdfast.backends.redis.link import Link, public_url
from holdfast.backends.redis.server_time import ServerTime
from holdfast.backends.redis.store import RedisStore
from holdfast.errors import StoreUnavailable
from holdfast.store.change import change
from holdfast.store.port import Insert, Swap
from holdfast.store.query import ANY
from holdfast.store.record import evolve
from holdfast.testing.clock import ManualClock
from holdfast.testing.store import ITEM, item
from tests.services import redis as service


class Wire:
    """Stands between client and server, and cuts the connection before or after a command reaches the server."""

    def __init__(self, url: str) -> None:
        target = urlsplit(url)
        self._target = (target.hostname, target.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = target._replace(netloc=f"127.0.0.1:{self._listener.getsockname()[1]}").geturl()
        self.cut: Callable[[bytes], bool] = lambda _: False
        self._sockets: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                server = socket.create_connection(self._target)
                self._sockets += (client, server)
                threading.Thread(target=self._carry, args=(client, server), daemon=True).start()

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while asked := client.recv(1 << 20):
                cut = self.cut(asked)
                server.sendall(asked)
                answer = server.recv(1 << 20)
                if cut:
                    break
                client.sendall(answer)
        client.close()
        server.close()

    def close(self) -> None:
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire(service.server().fresh())
    yield wire
    wire.close()


def listening() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("holdfast-redis")]


@pytest.fixture(scope="module")
def own_server() -> Iterator[service.Server]:
    server = service.private_server("--appendfsync", "always")
    yield server
    server.stop()


def wait_for_cluster(client: redis.Redis) -> None:
    """Until the node knows where the keys of the prefix are."""
    while True:
        try:
            client.execute_command("EXISTS", "{holdfast}")
        except redis.ResponseError as error:
            if not isinstance(error, redis.exceptions.MovedError) and "MOVED" not in str(error):
                continue
        return


def once(word: bytes) -> Callable[[bytes], bool]:
    """Cut at the first message that holds the word."""
    left = [True]

    def cut(message: bytes) -> bool:
        return word in message and bool(left) and left.pop()

    return cut


def test_a_write_whose_answer_was_lost_is_not_repeated(wire):
    store = RedisStore(wire.url)
    a = item("a")
    store.commit([Insert(ITEM, a)])
    wire.cut = once(b"EVALSHA")
    with pytest.raises(StoreUnavailable, match="may have been made"):
        store.commit([Swap(ITEM, a, evolve(a, size=1))])
    assert store.get(ITEM, ("a",)) == [evolve(a, size=1)]
    store.close()


def test_a_read_whose_answer_was_lost_is_repeated_once(wire):
    store = RedisStore(wire.url)
    store.commit([Insert(ITEM, item("a"))])
    wire.cut = once(b"MGET")
    assert store.get(ITEM, ("a",)) == [item("a")]
    wire.cut = once(b"EVALSHA")
    assert store.page(ITEM) == [item("a")]
    wire.cut = lambda message: b"MGET" in message
    with pytest.raises(StoreUnavailable):
        store.get(ITEM, ("a",))
    store.close()


def test_a_connection_that_the_server_closed_is_noticed_before_a_write(own_server):
    store = RedisStore(own_server.fresh())
    store.commit([Insert(ITEM, item("a"))])
    with own_server.client() as client:
        client.client_kill_filter(_type="normal", skipme=True)
    store.commit([Insert(ITEM, item("b"))])
    assert [one.id for one in store.page(ITEM)] == ["a", "b"]
    store.close()


@pytest.mark.parametrize("crash", [False, True])
def test_a_store_works_on_after_a_restart_and_nothing_is_lost(own_server, crash):
    store = RedisStore(own_server.fresh())
    items = [item(f"{n}", token=f"{n}") for n in range(10)]
    store.commit([Insert(ITEM, one) for one in items])
    own_server.stop(crash=crash)
    with pytest.raises(StoreUnavailable, match="check the address, and that the server runs"):
        store.get(ITEM, ("1",))
    with pytest.raises(StoreUnavailable):
        store.commit([Insert(ITEM, item("x"))])
    own_server.start()
    store.commit([Insert(ITEM, item("y"))])
    assert store.page(ITEM) == [*items, item("y")]
    store.close()


def test_changes_under_restarts_are_all_there_or_known_to_be_unknown(own_server):
    store = RedisStore(own_server.fresh())
    store.commit([Insert(ITEM, item("a"))])
    stop = threading.Event()
    done, unknown = [0] * 4, [0] * 4

    def work(me: int) -> None:
        while not stop.is_set():
            try:
                change(store, ITEM, "a", lambda found: evolve(found, size=found.size + 1))
                done[me] += 1
            except StoreUnavailable as error:
                unknown[me] += "may have been made" in str(error)

    threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        before = sum(done)
        own_server.restart(crash=True)
        while sum(done) < before + 50:
            stop.wait(0.005)
    stop.set()
    for thread in threads:
        thread.join()
    (a,) = store.get(ITEM, ("a",))
    assert a is not None
    assert sum(done) <= a.size <= sum(done) + sum(unknown)
    store.close()


@pytest.mark.parametrize(
    ("url", "story"),
    [
        ("redis://:hush@127.0.0.1:1/0", "cannot use redis://127.0.0.1:1/0"),
        ("redis://user:hush@no-such-host.invalid", "cannot use redis://no-such-host.invalid"),
        ("unix:///no/such/socket?db=1&password=hush", "cannot use unix:///no/such/socket?db=1"),
    ],
)
def test_a_server_that_cannot_be_reached_is_named_in_one_line_without_its_password(url, story):
    store = RedisStore(url)
    for act in (store.ping, store.now, lambda: store.page(ITEM), lambda: store.commit([Insert(ITEM, item("a"))])):
        with pytest.raises(StoreUnavailable) as caught:
            act()
        assert str(caught.value).startswith(story)
        assert "\n" not in str(caught.value)
        assert "hush" not in str(caught.value)


def test_a_wrong_password_is_said_to_be_wrong(own_server):
    with own_server.client() as client:
        client.config_set("requirepass", "right")
    try:
        for url in (own_server.url, own_server.url.replace("//", "//:wrong@")):
            with pytest.raises(StoreUnavailable, match=r"(?i)auth|password"):
                RedisStore(url).ping()
        RedisStore(own_server.url.replace("//", "//:right@")).ping()
    finally:
        with own_server.client(own_server.url.replace("//", "//:right@")) as client:
            client.config_set("requirepass", "")


@pytest.mark.parametrize(
    ("url", "public"),
    [
        ("redis://h:1/2", "redis://h:1/2"),
        ("redis://:pw@h:1/2", "redis://h:1/2"),
        ("rediss://me:pw@h/2?socket_timeout=3&password=pw", "rediss://h/2?socket_timeout=3"),
        ("redis://:p/w@h:1/2", "redis://***@h:1/2"),
        ("redis://:p%40w@h:1/2", "redis://h:1/2"),
    ],
)
def test_the_url_that_is_shown_has_no_password(url, public):
    assert public_url(url) == public


@pytest.mark.parametrize(
    ("url", "story"),
    [
        ("http://localhost", "redis://"),
        ("redis://localhost/shop", "'shop' is no database number"),
        ("redis://localhost?no_such_option=1", "no_such_option"),
        ("redis://:p/w@localhost:1/0", r"^redis://\*\*\*@localhost:1/0: the path is no database number"),
        ("redis://:pw@localhost:shop/0", r"^redis://localhost:shop/0: the port is no number .*; write"),
    ],
)
def test_an_address_that_cannot_be_one_is_refused_at_once(url, story):
    with pytest.raises(ValueError, match=story):
        RedisStore(url)


@pytest.mark.parametrize("prefix", ["", "{a}", "a}b"])
def test_a_prefix_that_would_break_the_hash_tag_is_refused(prefix):
    with pytest.raises(ValueError, match="prefix"):
        RedisStore("redis://localhost", prefix=prefix)


def test_a_store_is_made_without_touching_the_network_or_starting_a_thread(begun_threads):
    RedisStore("redis://127.0.0.1:1")
    assert not begun_threads()


def test_a_closed_store_can_be_used_again():
    store = RedisStore(service.server().fresh())
    store.commit([Insert(ITEM, item("a"))])
    store.close()
    store.close()
    assert store.page(ITEM) == [item("a")]
    store.close()


def test_a_forked_child_and_its_parent_do_not_disturb_each_other():
    store = RedisStore(service.server().fresh())
    store.commit([Insert(ITEM, item("a"))])

    def count_up() -> None:
        for _ in range(50):
            change(store, ITEM, "a", lambda found: evolve(found, size=found.size + 1))

    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            try:
                count_up()
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        children.append(child)
    count_up()
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    assert [one.size for one in store.page(ITEM)] == [150]
    store.close()


def test_a_node_of_a_cluster_needs_nothing_but_the_slot_of_the_prefix():
    server = service.private_server("--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")
    with server.client() as client:
        slot = client.execute_command("CLUSTER", "KEYSLOT", "{holdfast}")
        client.execute_command("CLUSTER", "ADDSLOTS", slot)
        wait_for_cluster(client)
    store = RedisStore(server.url)
    items = [item(f"{n}", token=f"{n}", label="x") for n in range(20)]
    store.commit([Insert(ITEM, one) for one in items])
    assert store.page(ITEM, by="label") == sorted(items)
    assert store.sweep(ITEM, ANY, {"state": "old"}) == 20
    assert store.tally(ITEM, ("state",)) == {("old",): 20}
    assert len(store.claim(ITEM, ANY, lambda found: evolve(found, state="new"), limit=5)) == 5
    store.close()
    server.stop()


def test_a_cluster_leads_the_way_to_the_node_that_has_the_keys():
    nodes = [
        service.private_server("--cluster-enabled", "yes", "--cluster-require-full-coverage", "no") for _ in range(2)
    ]
    first, second = nodes
    with first.client() as client, second.client() as other:
        slot = client.execute_command("CLUSTER", "KEYSLOT", "{holdfast}")
        other.execute_command("CLUSTER", "ADDSLOTS", slot)
        client.execute_command("CLUSTER", "MEET", "127.0.0.1", urlsplit(second.url).port)
        wait_for_cluster(client)
        wait_for_cluster(other)
    store = RedisStore(first.url)
    store.commit([Insert(ITEM, item("a"))])
    assert store.page(ITEM) == [item("a")]
    with second.client() as other:
        assert other.execute_command("DBSIZE") > 0
    store.close()
    for node in nodes:
        node.stop()


def test_the_time_is_the_servers_and_costs_no_round_trip():
    server = service.server()
    store = RedisStore(server.fresh())
    with server.client() as client:
        client.config_resetstat()
        seconds, micros = client.time()
        earlier = seconds * 1_000_000 + micros
        times = [store.now() for _ in range(100)]
        seconds, micros = client.time()
        assert earlier - 100_000 <= times[0] <= times[-1] <= seconds * 1_000_000 + micros + 100_000
        assert client.info("commandstats")["cmdstat_time"]["calls"] <= 2 + 4
    store.close()


def test_the_time_goes_on_without_the_server_and_is_measured_again_after_a_minute(own_server):
    clock = ManualClock()
    time = ServerTime(Link(own_server.url), clock.monotonic)

    def measured() -> int:
        with own_server.client() as client:
            return client.info("commandstats").get("cmdstat_time", {}).get("calls", 0)

    before = measured()
    first = time.now()
    clock.advance(59)
    assert time.now() - first == 59_000_000
    assert measured() == before + 1
    clock.advance(2)
    assert time.now() - first < 30_000_000
    assert measured() == before + 2
    own_server.stop()
    clock.advance(61)
    later = time.now()
    clock.advance(5)
    assert time.now() - later == 5_000_000
    own_server.start()


def test_an_injected_clock_wins():
    clock = ManualClock()
    store = RedisStore("redis://127.0.0.1:1", clock=clock)
    before = store.now()
    clock.advance(1.5)
    assert store.now() - before == 1_500_000


def test_subscribers_are_told_by_other_stores_and_again_after_a_restart(own_server):
    url = own_server.fresh()
    listening, telling = RedisStore(url), RedisStore(url)
    told, other = threading.Event(), threading.Event()
    listening.subscribe("letters", told.set)
    listening.subscribe("breakers", other.set)
    telling.commit([], wake="letters")
    assert told.wait(5)
    assert not other.is_set()
    own_server.restart()
    assert told.wait(5)  # once on its own, because something may have been missed
    told.clear()
    while not told.wait(0.05):
        telling.commit([], wake="letters")
    listening.close()
    telling.close()


def test_the_stores_own_subscribers_are_told_once_and_at_once():
    store, other = (RedisStore(url) for url in [service.server().fresh()] * 2)
    told: list[str] = []
    heard = threading.Event()
    store.subscribe("letters", lambda: told.append("!"))
    store.subscribe("end", heard.set)
    store.commit([], wake="letters")
    assert told == ["!"]
    other.commit([], wake="end")
    assert heard.wait(5)
    assert told == ["!"]
    store.close()
    other.close()


def test_a_closed_subscription_is_not_told():
    store = RedisStore(service.server().fresh())
    told, gone = threading.Event(), threading.Event()
    subscription = store.subscribe("letters", gone.set)
    store.subscribe("letters", told.set)
    subscription.close()
    subscription.close()
    store.commit([Insert(ITEM, item("a"))], wake="letters")
    assert told.wait(5)
    assert not gone.is_set()
    store.close()


def test_a_commit_that_conflicts_wakes_nobody():
    store = RedisStore(service.server().fresh())
    store.commit([Insert(ITEM, item("a"))])
    told, end = threading.Event(), threading.Event()
    store.subscribe("letters", told.set)
    store.subscribe("end", end.set)
    with pytest.raises(Exception, match="is there already"):
        store.commit([Insert(ITEM, item("a"))], wake="letters")
    store.commit([], wake="end")
    assert end.wait(5)
    assert not told.is_set()
    store.close()


def test_subscribers_are_told_after_close_when_the_store_is_used_again():
    store, other = (RedisStore(url) for url in [service.server().fresh()] * 2)
    told = threading.Event()
    store.subscribe("letters", told.set)
    store.close()
    assert not listening()
    other.commit([], wake="letters")
    assert not told.is_set()
    store.ping()
    while not told.wait(0.05):
        other.commit([], wake="letters")
    store.close()
    other.close()


def test_a_closed_store_stays_closed_though_its_last_word_took_a_new_connection(monkeypatch):
    store, other = (RedisStore(url) for url in [service.server().fresh()] * 2)
    store.subscribe("letters", lambda: None)
    (listener,) = listening()
    store._link.close()
    connect = store._link.connect

    def connect_late():
        other.commit([], wake="letters")
        listener.join(5)
        return connect()

    monkeypatch.setattr(store._link, "connect", connect_late)
    store.close()
    assert not listening()
    other.close()


def test_a_failing_callback_does_not_stop_the_others(caplog):
    store = RedisStore(service.server().fresh())
    told = threading.Event()

    def fail() -> None:
        raise RuntimeError("my own")

    store.subscribe("letters", fail)
    store.subscribe("letters", told.set)
    store.commit([], wake="letters")
    assert told.wait(5)
    assert "my own" in caplog.text
    store.close()


def test_a_subscription_can_be_made_while_the_server_is_away():
    server = service.private_server()
    url = server.url
    server.stop()
    store, other = RedisStore(url), RedisStore(url)
    told = threading.Event()
    store.subscribe("letters", told.set)
    server.start()
    while not told.wait(0.05):
        other.commit([], wake="letters")
    store.close()
    other.close()
    server.stop()
