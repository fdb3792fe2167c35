"""What the client tests share; see `servers.py` and `clients.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.guard.guard import Guard
from holdfast.integrations._exchange import http_guard
from holdfast.telemetry.hub import Hub
from holdfast.testing.clock import ManualClock
from tests.guard.colours import Recorder
from tests.integrations.clients import CLIENTS, Client
from tests.integrations.servers import Proxy, Server, running


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def server() -> Iterator[Server]:
    with running(Server()) as one:
        yield one


@pytest.fixture
def other_server() -> Iterator[Server]:
    with running(Server()) as one:
        yield one


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with running(Proxy()) as one:
        yield one


@pytest.fixture
def other_proxy() -> Iterator[Proxy]:
    with running(Proxy()) as one:
        yield one


@pytest.fixture
def guard_of(clock: ManualClock, recorder: Recorder) -> Callable[..., Guard]:
    """An HTTP guard on the manual clock that tells `recorder` everything."""

    def make(*policies: Any, **options: Any) -> Guard:
        hub = Hub()
        hub.register(recorder)
        return http_guard("api", *policies, **{"clock": clock, "telemetry": hub, "rng": lambda: 0.5, **options})

    return make


@pytest.fixture(params=sorted(CLIENTS))
def client_of(request: pytest.FixtureRequest) -> Iterator[Callable[..., Client]]:
    """Makes a guarded client: `client_of(guard)`. The test runs for each of the five kinds."""
    made: list[Client] = []

    def make(guard: Guard, **options: Any) -> Client:
        made.append(CLIENTS[request.param](guard, **options))
        return made[-1]

    yield make
    for client in made:
        client.close()
