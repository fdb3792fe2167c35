"""A server in this process, and those who ask it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.testclient import TestClient

from holdfast import Holdfast, Hub
from holdfast.access.access import Access
from holdfast.access.passwords import Passwords
from holdfast.core.clock import Clock
from holdfast.server.api import create_app
from tests.stores import make_migrated

BASE_URL = "http://127.0.0.1:8400"
HERE = ("127.0.0.1", 50_000)
ELSEWHERE = ("203.0.113.7", 50_000)
API = "/api/v1"
PASSWORD = "correct horse battery"
CHEAP = Passwords(time_cost=1, memory_kib=8, lanes=1)
"""What a password costs is no part of these tests."""


@contextmanager
def holding(tmp_path: Path, clock: Clock | None = None, url: str | None = None) -> Iterator[Holdfast]:
    """A Holdfast on an SQLite file of its own."""
    url = make_migrated(tmp_path / "holdfast.db") if url is None else url
    with Holdfast(url, background=False, clock=clock, telemetry=Hub()) as hold:
        hold._access = Access(hold.store, clock, hub=hold.telemetry, passwords=CHEAP)
        yield hold


def app_of(hold: Holdfast, **options: Any) -> FastAPI:
    """The application; `options` are those of `create_app`."""
    return create_app(hold, **options)


def client_of(app: Any, *, client: tuple[str, int] = HERE, token: str | None = None, **options: Any) -> TestClient:
    """Somebody who asks; from this machine unless `client` says otherwise."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    options.setdefault("base_url", BASE_URL)
    return TestClient(app, client=client, headers=headers, raise_server_exceptions=False, **options)


def sign_in(client: TestClient, name: str, password: str = PASSWORD) -> str:
    """Begin a session; the client keeps its cookie, and repeats what a change must repeat."""
    answer = client.post(f"{API}/session", json={"name": name, "password": password}, headers={"X-Holdfast-CSRF": "1"})
    assert answer.status_code == 200, answer.text
    csrf: str = answer.json()["csrf"]
    client.headers["X-Holdfast-CSRF"] = csrf
    return csrf
