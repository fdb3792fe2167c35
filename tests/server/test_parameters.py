"""What an address may ask for: only what its route reads, so that nothing is misspelt in silence."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI

from holdfast.server.api import create_app
from holdfast.server.routing import PUBLIC, RIGHT, Asking, Routes
from tests.server.clients import API, app_of, client_of, holding


def asked_with(app: FastAPI, query: str) -> dict[str, tuple[int, str]]:
    """What every route that needs a right answers to that query: the status, and what a program goes by."""
    client, answers = client_of(app), {}
    client.headers["X-Holdfast-CSRF"] = client.get(f"{API}/session").json()["csrf"]
    others: dict[str, dict[str, Any]] = {path: {"get": {}} for path in (f"{API}/openapi.json", "/metrics")}
    for path, methods in {**app.openapi()["paths"], **others}.items():
        for method in (name for name, one in methods.items() if one.get(RIGHT) != PUBLIC):
            where = "/".join("1" if part.startswith("{") else part for part in path.split("/"))
            answer = client.request(method, f"{where}?{query}", json=None if method == "get" else {})
            answers[f"{method} {path}"] = answer.status_code, answer.json()["error"]
    return answers


def test_no_route_takes_a_parameter_that_it_does_not_read(hold):
    answers = asked_with(app_of(hold), "statsu=failed")
    assert {route: answer for route, answer in answers.items() if answer != (422, "unknown_parameter")} == {}


@pytest.mark.parametrize(
    ("address", "unknown"),
    [("letters?statsu=failed&limit=5", ["statsu"]), ("workflows?cursor=zzz&x=", ["cursor", "x"])],
)
def test_who_misspells_a_parameter_is_told_which_there_are(client, address, unknown):
    answer = client.get(address)
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["details"]["unknown"] == unknown
    assert {"status", "after", "limit"} <= set(problem["details"]["known"])
    assert f"no parameter {unknown[0]!r}" in problem["message"]
    assert "after, " in problem["message"]


def test_what_a_route_reads_by_another_name_or_by_what_it_depends_on_is_known(client):
    assert client.get("outbox/requeue/preview?operation=ship").status_code == 200
    assert client.get("events?last_event_ids=1").json()["details"]["known"] == ["last_event_id"]
    assert client.get("overview?x=1").json()["message"].endswith("there are: none")


@pytest.mark.parametrize("probe", ["health", "ready"])
def test_a_probe_may_add_what_it_likes_to_an_address(client, probe):
    assert client.get(f"{probe}?at=1794928347").status_code == client.get(probe).status_code


def test_a_new_route_refuses_what_it_does_not_read_by_itself(hold):
    app, routes = create_app(hold), Routes("letters", prefix="/new")

    def new(asked: Asking, size: int = 0) -> int:
        return size

    routes.reads()(new)
    app.include_router(routes)
    client = client_of(app)
    assert client.get("/new?size=3").json() == 3
    assert client.get("/new?sise=3").status_code == 422


def test_who_may_not_ask_is_told_that_and_not_what_could_be_asked(tmp_path):
    with holding(tmp_path) as hold:
        assert client_of(app_of(hold, required=True)).get(f"{API}/letters?statsu=failed").status_code == 401


def test_a_page_of_the_console_may_have_any_address(client):
    page = "http://127.0.0.1:8400/letters"
    assert client.get(f"{page}?tab=domains&whatever=1").status_code == client.get(page).status_code
