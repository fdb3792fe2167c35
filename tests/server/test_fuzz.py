"""Every route, asked by every role what nobody would ask: no failure of the server, and answers as the document says.

The document decides what is sent (schemathesis), the same each time; half of the ids lead to something that is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.specs.openapi.schemas import OpenApiSchema
from starlette.testclient import TestClient

from holdfast import Breaker, Holdfast, Retry
from holdfast.access.rights import Role
from holdfast.failover.endpoint import Endpoint
from holdfast.failover.rotation import ProxyRotator
from holdfast.server.api import create_app
from holdfast.server.openapi import document
from holdfast.server.shields import Limits
from tests.server.calls import Calls
from tests.server.clients import API, client_of, holding
from tests.server.orders import Shop
from tests.server.served import file, program

EXAMPLES: Final = 8
STREAMS: Final = ("GET /api/v1/events",)
CHECKS: Final = (
    not_a_server_error, status_code_conformance, content_type_conformance, response_headers_conformance,
    response_schema_conformance,
)  # fmt: skip
PLENTY: Final = Limits(reads=(1e6, 1_000_000), changes=(1e6, 1_000_000), address=(1e6, 1_000_000))


def seeded(hold: Holdfast) -> dict[str, list[str]]:
    """Something of everything; the ids, by the part of a path that they stand after."""
    charged = program(hold)
    assert charged == []
    letters = file(hold, 3)
    hold.guard("search", Breaker(), Retry(attempts=2))
    rotator = hold.add_pool("proxies", ProxyRotator([Endpoint("a"), Endpoint("b")], choose="first"))
    rotator.request(lambda endpoint: endpoint.id)
    shop, calls = Shop(hold), Calls(hold)
    orders = [shop.order(), shop.order(8, works=False)]
    hold.workflows.schedule("nightly", "greet", {"name": "moon"}, cron="0 3 * * *")
    entry, saga = str(calls.put()), str(calls.start())
    for name in ("ada", "bob"):
        hold.access.add_user(name, "correct horse battery", "viewer")
    token, _ = hold.access.create_token("old", role="viewer")
    return {
        "letters": letters, "guards": ["payments", "search"], "breakers": ["search"], "pools": ["proxies"],
        "members": ["a"], "circuit-breakers": ["a"], "workflows": orders,
        "stages": ["charge", "reserve"], "schedules": ["nightly"], "outbox": [entry], "sagas": [saga],
        "users": ["ada", "bob"], "tokens": [token.id], "at": ["1", "2"],
    }  # fmt: skip


class Asked(NamedTuple):
    """Somebody of each role, on one store, and the ids of what is there. Who may do less asks first."""

    clients: dict[str, TestClient]
    known: dict[str, list[str]]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    with holding(tmp_path_factory.mktemp("fuzz")) as hold:
        known = seeded(hold)
        app = create_app(hold, required=True, limits=PLENTY)
        tokens = {role.value: hold.access.create_token("fuzz", role=role)[1] for role in Role}
        with client_of(app) as nobody:
            clients = {role: client_of(app, token=token) for role, token in tokens.items()}
            for client in clients.values():
                client.portal = nobody.portal  # one event loop, instead of a new one for every request
            yield Asked({"nobody": nobody, **clients}, known)


SCHEMA: Final[OpenApiSchema] = schemathesis.openapi.from_dict(document())
OPERATIONS: Final = {
    f"{found.ok().method.upper()} {found.ok().path}": found.ok() for found in SCHEMA.get_all_operations()
}


def test_the_ids_lead_somewhere(asked: Asked) -> None:
    """Or most questions would be answered by one 404."""
    known = asked.known
    parts = ("letters", "guards", "pools", "circuit-breakers", "workflows", "schedules", "outbox", "sagas", "users")
    for part in parts:
        path = f"{API}/{'access/' if part == 'users' else ''}{part}/{quote(known[part][0], safe='')}"
        statuses = [client.get(path).status_code for client in asked.clients.values()]
        assert statuses == [401, 200, 200, 200], part


@pytest.mark.parametrize("route", [route for route in OPERATIONS if route not in STREAMS])
def test_no_question_makes_the_server_fail_or_answer_what_the_document_does_not_say(asked: Asked, route: str) -> None:
    @settings(
        max_examples=EXAMPLES, derandomize=True, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=fitting_or_not(OPERATIONS[route]), draw=st.data())
    def ask(case: Any, draw: Any) -> None:
        lead_somewhere(case, draw, asked.known)
        for client in asked.clients.values():
            case.validate_response(send(client, case), checks=list(CHECKS))

    ask()


def fitting_or_not(operation: Any) -> st.SearchStrategy[Any]:
    """Questions as the document describes them, and others."""
    modes = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    return st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in modes))


def lead_somewhere(case: Any, draw: Any, known: dict[str, list[str]]) -> None:
    """Half of the time let the path name what is there."""
    before = ""
    for part in case.path.split("/"):
        if part.startswith("{") and before in known and draw.draw(st.booleans()):
            case.path_parameters[part.strip("{}")] = draw.draw(st.sampled_from(known[before]))
        before = part


def send(client: TestClient, case: Any) -> Any:
    asked = case.as_transport_kwargs(base_url="http://127.0.0.1:8400")
    asked["headers"].pop("User-Agent", None)
    if "data" in asked:
        asked["content"] = asked.pop("data")
    client.cookies.clear()
    client.cookies.update(asked.pop("cookies", None) or {})
    return client.request(**asked)
