"""Connections that are lent out, where a server may have no more of them."""

from __future__ import annotations

import threading

import pytest

from holdfast.backends.sql import pool as pool_module
from holdfast.backends.sql.pool import Pool
from tests.workflows.gates import PATIENCE_S, until


class Line:
    """A connection."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True


class Server:
    """Has so many connections to give."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.lines: list[Line] = []

    def connect(self) -> Line:
        self.lines = [one for one in self.lines if not one.is_closed]
        if len(self.lines) >= self.most:
            raise ConnectionError("too many clients")
        self.lines.append(Line())
        return self.lines[-1]


def test_where_a_server_has_no_more_connections_those_that_there_are_are_shared() -> None:
    pool, got = Pool(Server(2).connect, 8, PATIENCE_S), list[Line]()
    lent = [pool.take(), pool.take()]
    threads = [threading.Thread(target=lambda: got.append(pool.take())) for _ in lent]
    for one in threads:
        one.start()
    until(lambda: pool._waiting == 2)
    for line in lent:
        pool.give(line)
    for one in threads:
        one.join(PATIENCE_S)
    assert set(got) == set(lent)


def test_who_waits_too_long_for_one_that_is_shared_is_told_what_the_server_said() -> None:
    pool = Pool(Server(1).connect, 8, 0.01)
    pool.take()
    with pytest.raises(ConnectionError, match="too many clients"):
        pool.take()


def test_where_a_server_has_no_connection_at_all_nobody_waits() -> None:
    server = Server(1)
    pool = Pool(server.connect, 8, PATIENCE_S)
    only = pool.take()
    server.most = 0
    refused: list[str] = []

    def ask() -> None:
        try:
            pool.take()
        except ConnectionError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for one in threads:
        one.start()
    until(lambda: pool._waiting == 5)
    pool.drop(only)  # it broke
    for one in threads:
        one.join(PATIENCE_S / 2)
    assert refused == ["too many clients"] * 5
    with pytest.raises(ConnectionError):
        pool.take()


def test_who_cannot_connect_does_not_wait_for_long_for_what_others_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "SHARED_WITHIN_S", 0.01)
    pool, refused = Pool(Server(1).connect, 8, 10 * PATIENCE_S), list[Exception]()
    pool.take()

    def ask() -> None:
        try:
            pool.take()
        except ConnectionError as error:
            refused.append(error)

    one = threading.Thread(target=ask, daemon=True)
    one.start()
    one.join(PATIENCE_S)
    assert len(refused) == 1


def test_whoever_may_connect_hears_of_a_lost_connection_beside_those_who_share() -> None:
    server, got = Server(2), list[Line]()
    pool = Pool(server.connect, 2, PATIENCE_S)
    lent = [pool.take(), pool.take()]
    threads = [threading.Thread(target=lambda: got.append(pool.take())) for _ in range(2)]
    for one in threads:
        one.start()
    until(lambda: pool._waiting == 2)
    for line in lent:
        pool.drop(line)
    for one in threads:
        one.join(PATIENCE_S / 2)
    assert len(got) == 2
