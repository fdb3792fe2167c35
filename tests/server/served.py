"""A Holdfast with a shop's letters, served in this process, on a store of the test's choice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from holdfast import Holdfast, Retry
from tests.server.clients import API, BASE_URL, app_of, client_of, holding
from tests.stores import fresh_url

CHARGE = {"function": "charge", "args": {"order_id": "o1"}}


@contextmanager
def kept(name: str, tmp_path: Path, url: str | None = None, **options: Any) -> Iterator[Holdfast]:
    """A Holdfast on a fresh store of this kind, or on the one at `url`."""
    with nullcontext(url) if url else fresh_url(name, tmp_path) as at:
        with holding(tmp_path, url=at, **options) as hold:
            yield hold


@contextmanager
def asking(hold: Holdfast, **options: Any) -> Iterator[TestClient]:
    """Somebody on this machine who asks a server that runs; paths are below `/api/v1`."""
    client = client_of(app_of(hold, **options), base_url=f"{BASE_URL}{API}/")
    with client:
        client.headers["X-Holdfast-CSRF"] = client.get("session").json()["csrf"]
        yield client


def program(hold: Holdfast) -> list[str]:
    """Let letters of `payments` be replayed here; the orders that are charged."""
    charged: list[str] = []

    @hold.guard("payments", Retry(attempts=1), dead_letter=True).replayable(name="charge")
    def charge(order_id: str) -> None:
        charged.append(order_id)

    return charged


def file(hold: Holdfast, number: int = 1, domain: str = "payments", **fields: Any) -> list[str]:
    """New letters; their ids, the oldest first."""
    given: dict[str, Any] = {"error_message": "ConnectionError: refused", "max_retries": 3, **fields}
    made = hold.letters.create_many(
        {
            "domain": domain, "failure_type": "MAX_RETRIES_CONNECTIONERROR", "entity_type": "order",
            "entity_id": f"o{n}", "request_data": {"function": "charge", "args": {"order_id": f"o{n}"}}, **given,
        }
        for n in range(number)
    )  # fmt: skip
    return [letter.id for letter in made]
