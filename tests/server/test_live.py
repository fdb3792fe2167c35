"""The live stream over a real connection: what is told, what is caught up on, and who cannot keep up."""

from __future__ import annotations

import json
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
import pytest

from holdfast import Holdfast
from holdfast.server import live
from holdfast.telemetry.events import CircuitStateChanged
from tests.server.clients import API
from tests.server.running import server_of

PATIENCE_S = 30.0


class Told(NamedTuple):
    """One server-sent event; `key` is the operation of an event of the process."""

    topic: str
    id: str
    key: str


def happen(hold: Holdfast, *numbers: int, size: int = 1) -> None:
    """Events of the process, of so many characters; each names its number."""
    for number in numbers:
        hold.telemetry.emit(CircuitStateChanged(f"n{number}", "", "x" * size, "closed", "open", "tripped"))


def change(hold: Holdfast) -> None:
    """Something that the store tells of."""
    hold.letters.create("payments", "TIMEOUT", wake=True)


def keys(*numbers: int) -> list[str]:
    return [f"n{number}" for number in numbers]


class Listening:
    """An open stream, read a message at a time."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._lines = answer.iter_lines()

    def next(self) -> Told:
        """The next message, the beat left out."""
        fields: dict[str, str] = {}
        for line in self._lines:
            name, _, value = line.partition(": ")
            if line and name:
                fields[name] = value
            elif "event" in fields:
                return Told(fields["event"], fields["id"], _key(fields["data"]))
            else:
                fields.clear()
        raise EOFError("the server has ended the stream")

    def take(self, number: int) -> list[Told]:
        return [self.next() for _ in range(number)]

    def until(self, topic: str) -> list[Told]:
        """The messages up to one of this topic."""
        found = [self.next()]
        while found[-1].topic != topic:
            found.append(self.next())
        return found


def _key(data: str) -> str:
    return str(json.loads(data).get("operation_key", ""))


@contextmanager
def listening(url: str, last: str | None = None) -> Iterator[Listening]:
    headers = {} if last is None else {"Last-Event-ID": last}
    with httpx.stream("GET", f"{url}{API}/events", headers=headers, timeout=PATIENCE_S) as answer:
        assert answer.status_code == 200
        yield Listening(answer)


@pytest.fixture
def url(hold: Holdfast) -> Iterator[str]:
    with server_of(hold) as url:
        yield url


def test_whoever_comes_back_gets_what_was_missed_once_and_in_order(hold: Holdfast, url: str) -> None:
    with listening(url) as first:
        assert first.next().topic == "hello"
        happen(hold, 1, 2, 3)
        *_, heard = first.take(2)
    happen(hold, 4, 5)
    change(hold)
    happen(hold, 6)
    with listening(url, heard.id) as again:
        assert again.next().topic == "hello"
        assert [(one.topic, one.key) for one in again.take(5)] == [
            ("event", "n3"), ("event", "n4"), ("event", "n5"), ("letters", ""), ("event", "n6"),
        ]  # fmt: skip
        happen(hold, 7)
        assert again.next().key == "n7"


def test_a_connection_that_is_lost_again_and_again_loses_and_repeats_nothing(
    hold: Holdfast, url: str, seed: int
) -> None:
    rng, number, heard, last = random.Random(seed), 300, list[str](), None
    with listening(url) as begun:
        last = begun.next().id
    emitting = threading.Thread(target=lambda: happen(hold, *range(number)))
    emitting.start()
    while len(heard) < number:
        with listening(url, last) as again:
            assert again.next().topic == "hello"
            for one in again.take(rng.randrange(1, min(40, number - len(heard)) + 1)):
                heard.append(one.key)
                last = one.id
    emitting.join()
    assert heard == keys(*range(number))


def test_the_position_may_be_in_the_address_as_a_browser_sets_no_header(hold: Holdfast, url: str) -> None:
    with listening(url) as first:
        here = first.next().id
    happen(hold, 1)
    with httpx.stream("GET", f"{url}{API}/events", params={"last_event_id": here}, timeout=PATIENCE_S) as answer:
        assert [one.key for one in Listening(answer).take(2)] == ["", "n1"]


def test_whoever_was_away_for_too_long_is_told_so_and_goes_on_from_now(hold: Holdfast, url: str) -> None:
    with listening(url) as first:
        here = first.next().id
    happen(hold, *range(live.KEPT + 1))
    with listening(url, here) as again:
        assert again.next().topic == "reset"
        happen(hold, 9999)
        assert again.next().key == "n9999"


def test_the_position_in_another_run_of_the_server_means_nothing(hold: Holdfast) -> None:
    with server_of(hold) as url, listening(url) as first:
        here = first.next().id
    with server_of(hold) as url, listening(url, here) as again:
        assert again.next().topic == "reset"


@pytest.mark.parametrize("nonsense", ["1", "-", "x-1", "ÿ", "-5", "9" * 90])
def test_a_position_that_nobody_was_given_is_answered_with_a_reset(hold: Holdfast, url: str, nonsense: str) -> None:
    with httpx.stream(
        "GET", f"{url}{API}/events", headers={"Last-Event-ID": nonsense.encode("latin-1")}, timeout=PATIENCE_S
    ) as answer:
        assert Listening(answer).next().topic == "reset"


def test_every_change_of_the_store_is_told_to_who_has_heard_of_the_one_before(hold: Holdfast, url: str) -> None:
    with listening(url) as page:
        page.next()
        for _ in range(3):
            change(hold)
            assert page.next().topic == "letters"


def test_a_busy_store_does_not_push_out_the_events_of_the_process(
    hold: Holdfast, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "KEPT", 3)
    with listening(url) as first:
        here = first.next().id
    happen(hold, 1)
    for _ in range(live.KEPT + 1):
        change(hold)
    with listening(url, here) as again:
        assert [(one.topic, one.key) for one in again.take(3)] == [("hello", ""), ("event", "n1"), ("letters", "")]


def test_who_does_not_read_keeps_nobody_waiting_and_is_told_that_something_was_missed(
    hold: Holdfast, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "KEPT", 20)
    slow, number = _silent(url), 200  # of 100 kB each: more than any buffer on the way takes
    try:
        with listening(url) as quick:
            quick.next()
            for at in range(0, number, 10):
                happen(hold, *range(at, at + 10), size=100_000)
                assert [one.key for one in quick.take(10)] == keys(*range(at, at + 10))
        late = Listening(_Response(slow))  # type: ignore[arg-type]  # it is read alike
        hello, *events, _ = late.until("reset")
        happen(hold, number)
        assert late.next().key == f"n{number}"
    finally:
        slow.close()
    assert hello.topic == "hello"
    assert [one.key for one in events] == keys(*range(len(events)))
    assert len(events) < number


def _silent(url: str) -> socket.socket:
    """A connection that asks for the stream and reads none of it."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.settimeout(PATIENCE_S)
    place = urlsplit(url)
    made.connect((place.hostname, place.port))
    made.sendall(f"GET {API}/events HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode())
    return made


class _Response:
    """The answer on a bare connection, read as httpx reads."""

    def __init__(self, connection: socket.socket) -> None:
        self._file = connection.makefile("rb")

    def iter_lines(self) -> Iterator[str]:
        while self._file.readline().strip():
            pass  # the head
        rest = b""
        while size := int(self._file.readline(), 16):
            *lines, rest = (rest + self._file.read(size)).split(b"\n")
            self._file.readline()
            yield from (line.decode() for line in lines)


def test_only_so_many_may_listen_and_who_goes_makes_room(
    hold: Holdfast, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MOST_STREAMS", 2)
    with listening(url) as first:
        first.next()
        with listening(url) as second:
            second.next()
            refused = httpx.get(f"{url}{API}/events", timeout=PATIENCE_S)
            assert (refused.status_code, refused.json()["error"]) == (503, "too_many_streams")
            assert refused.headers["retry-after"] == "10"
        assert _let_in(hold, url)


def _let_in(hold: Holdfast, url: str) -> bool:
    """The server learns that somebody has gone when it writes to them."""
    for number in range(1000):
        happen(hold, number)
        with httpx.stream("GET", f"{url}{API}/events", timeout=PATIENCE_S) as answer:
            if answer.status_code == 200:
                return True
    return False


def test_a_server_that_stops_ends_its_streams(hold: Holdfast) -> None:
    with server_of(hold) as url:
        page: Any = httpx.stream("GET", f"{url}{API}/events", timeout=PATIENCE_S)
        answer = page.__enter__()
        stream = Listening(answer)
        assert stream.next().topic == "hello"
    with pytest.raises(EOFError):
        stream.next()
    page.__exit__(None, None, None)
