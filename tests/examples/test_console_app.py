"""The shop of `examples/console_app.py`: the console is inside it, and only for its own people."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from examples.console_app import BACK_OFFICE, Bank, make_app
from holdfast import Holdfast

API = "/holdfast/api/v1"
ANN = {BACK_OFFICE: "ann"}


@pytest.fixture
def bank() -> Bank:
    return Bank()


@pytest.fixture
def shop(tmp_path: Path, bank: Bank) -> Iterator[TestClient]:
    app = make_app(Holdfast(f"sqlite:///{tmp_path / 'shop.db'}"), bank)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client


def test_an_order_that_the_bank_cannot_take_is_kept_and_replayed_in_the_console(shop: TestClient, bank: Bank) -> None:
    bank.is_down = True
    assert shop.post("/orders/o-1").json() == {"order": "o-1", "receipt": "will follow"}
    [letter] = shop.get(f"{API}/letters", headers=ANN).json()["items"]
    assert (letter["domain"], letter["entity_id"]) == ("payments", "o-1")
    bank.is_down = False
    csrf = shop.get(f"{API}/session", headers=ANN).json()["csrf"]
    headers = {**ANN, "X-Holdfast-CSRF": csrf}
    replayed = shop.post(f"{API}/letters/{letter['id']}/replay", json={}, headers=headers).json()
    assert replayed["outcome"] == "succeeded"
    assert bank.charged == ["o-1"]
    assert shop.post("/orders/o-2").json() == {"order": "o-2", "receipt": "receipt of o-2"}


def test_the_shops_people_are_operators_and_nobody_else_is_let_in(shop: TestClient) -> None:
    assert shop.get(f"{API}/letters").status_code == 401
    who = shop.get(f"{API}/session", headers=ANN).json()
    assert (who["name"], who["via"]) == ("ann", "hook")
    assert "letters:operate" in who["rights"]
    assert "access:admin" not in who["rights"]


def test_the_console_is_live_though_it_is_mounted(shop: TestClient, bank: Bank) -> None:
    bank.is_down = True
    shop.post("/orders/o-1")
    told = [one["event"] for one in shop.get(f"{API}/events/recent", headers=ANN).json()["items"]]
    assert "letter.kept" in told
