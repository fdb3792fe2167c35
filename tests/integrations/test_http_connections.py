"""Connections come back, clients are thin, and a missing library says what to install."""

from __future__ import annotations

import importlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.core.clock import SYSTEM_CLOCK
from holdfast.guard.guard import Guard
from holdfast.machine.retry import Retry
from holdfast.telemetry.hub import Hub
from tests.integrations.clients import CLIENTS, LIBRARIES
from tests.integrations.servers import Broken, Drop, Reply

THRICE = Retry(attempts=3, base=0)
BIG = b"x" * 100_000


def test_a_retried_response_leaves_its_connection_for_the_next_attempt(server, client_of, guard_of):
    server.script(Reply(503, b"small"), Reply(503, b"small"))
    client = client_of(guard_of(THRICE))
    assert client.get(server.url()).status == 200
    assert len({request.connection for request in server.requests}) == 1
    assert (client.lent, client.kept) == (0, 1)


def test_no_connection_is_lost_whatever_goes_wrong(server, client_of, guard_of):
    server.script(Reply(503, BIG), Drop(), Reply(503, b"small"), Broken(503, b"half"), Reply(502, BIG), Reply(503, BIG))
    client = client_of(guard_of(Retry(attempts=7, base=0)))
    assert client.get(server.url()).status == 200
    assert len(server.requests) == 7
    assert client.lent == 0


@pytest.mark.parametrize("name", sorted(LIBRARIES))
def test_a_small_pool_is_not_exhausted_by_responses_that_nobody_reads(server, guard_of, name):
    library, integration = LIBRARIES[name]
    wrapped = library.HTTPTransport(limits=library.Limits(max_connections=1))
    with library.Client(transport=integration.GuardTransport(guard_of(THRICE), wrapped=wrapped), timeout=5) as client:
        for _ in range(3):
            server.script(Reply(503, BIG), Reply(503, BIG))
            assert client.get(server.url()).status_code == 200


def test_a_streaming_client_gets_an_open_response_and_closes_it_himself(server, guard_of):
    client = CLIENTS["httpx"](guard_of(THRICE))
    server.script(Reply(503), Reply(200, BIG))
    with client.client.stream("GET", server.url()) as answer:
        assert client.lent == 1
        assert b"".join(answer.iter_bytes()) == BIG
    assert (client.lent, client.kept) == (0, 1)
    client.close()


def test_one_client_serves_many_threads(server):
    guard = Guard("threads", Retry(attempts=None, base=0), clock=SYSTEM_CLOCK, telemetry=Hub())
    for kind in ("httpx", "httpx2", "requests"):
        client = CLIENTS[kind](guard)
        server.script(*[Reply(503), Drop()] * 5)
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda _: client.get(server.url()).status, range(24)))  # noqa: B023  # used at once
        assert set(answers) == {200}
        assert client.lent == 0
        client.close()


def test_a_client_inside_a_retried_call_leaves_the_retrying_to_it(server, client_of, guard_of, clock):
    server.script(*[Reply(503)] * 4)
    client = client_of(guard_of(THRICE))
    outer = Guard("outer", Retry(attempts=2, base=0), clock=clock, telemetry=Hub())

    def fetch():
        if client.get(server.url()).status == 503:
            raise ConnectionError("not yet")

    with pytest.raises(ConnectionError):
        outer.call(fetch)
    assert len(server.requests) == 2


@pytest.mark.parametrize("name", ["httpx", "httpx2", "requests"])
def test_a_missing_library_names_the_line_that_installs_it(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"holdfast.integrations.{name}", raising=False)
    with pytest.raises(ImportError, match=rf"pip install 'holdfast\[{name}\]'"):
        importlib.import_module(f"holdfast.integrations.{name}")


@pytest.mark.parametrize(("name", "others"), [("httpx", ["httpx2", "requests"]), ("requests", ["httpx", "httpx2"])])
def test_an_integration_loads_its_own_library_only(name, others):
    unwanted = [*others, "pydantic"]
    code = f"import sys, holdfast.integrations.{name}; print(*(one for one in {unwanted} if one in sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == []
