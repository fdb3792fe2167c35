"""A server over a store of the test's own, and somebody on this machine who asks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from holdfast import Holdfast
from tests.server.clients import API, app_of, client_of, holding

Ask = Callable[..., TestClient]


@pytest.fixture
def hold(tmp_path) -> Iterator[Holdfast]:
    """A Holdfast on an SQLite file."""
    with holding(tmp_path) as made:
        yield made


@pytest.fixture
def ask() -> Iterator[Ask]:
    """`ask(hold, **options of create_app)`: a client that may change things; paths are below /api/v1."""
    made: list[TestClient] = []

    def ask(hold: Holdfast, **options: Any) -> TestClient:
        client = client_of(app_of(hold, **options), base_url=f"http://127.0.0.1:8400{API}/")
        client.__enter__()
        made.append(client)
        client.headers["X-Holdfast-CSRF"] = client.get("session").json()["csrf"]
        return client

    yield ask
    for client in made:
        client.__exit__(None, None, None)


@pytest.fixture
def client(hold, ask) -> TestClient:
    """Somebody on this machine, who may do everything; paths are below /api/v1: `client.get("letters")`."""
    return ask(hold)
