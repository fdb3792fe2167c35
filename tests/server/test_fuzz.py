"""Every route, asked by every role what nobody would ask: no failure of the server, and answers as the document says.

The document decides what is sent (schemathesis), the same each time; most ids lead to something that is there, and
whoever has the right gets as far as it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle, pairwise
from typing import Any, Final, NamedTuple

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
from holdfast.access.rights import ROLES, Role, grants
from holdfast.failover.endpoint import Endpoint
from holdfast.failover.rotation import ProxyRotator
from holdfast.letters.scope import LetterFilter
from holdfast.server.api import create_app
from holdfast.server.openapi import document
from holdfast.server.routing import PUBLIC, RIGHT
from holdfast.server.shields import Limits
from tests.server.calls import Calls
from tests.server.clients import API, PASSWORD, client_of, holding
from tests.server.orders import Shop
from tests.server.served import file, program

EXAMPLES: Final = 8
MANY: Final = 20
STREAMS: Final = ("GET /api/v1/events",)
REMOVES: Final = ("/delete", "/remove", "/discard", "/revoke", "/purge", "/prune")
NAMES: Final[dict[str, dict[str, Any]]] = {
    "GET /api/v1/workflows/describe": {"name": "greet"},
    "POST /api/v1/workflows": {"name": "greet", "input": {"name": "moon"}},
    "POST /api/v1/schedules": {"workflow": "greet", "cron": "0 3 * * *", "timezone": "UTC", "input": {}},
    "POST /api/v1/sagas/{id}/resolve": {"step": "ship"},
    "POST /api/v1/session": {"name": "n0", "password": PASSWORD},
}
"""What is named in the query or the body, and not in the path."""
BARRED: Final = {401, 403, 404, 422}
"""Answers that come before a route has looked at what it is asked about, or instead of it."""
CHECKS: Final = (
    not_a_server_error, status_code_conformance, content_type_conformance, response_headers_conformance,
    response_schema_conformance,
)  # fmt: skip
PLENTY: Final = Limits(reads=(1e6, 1_000_000), changes=(1e6, 1_000_000), address=(1e6, 1_000_000))


def seeded(hold: Holdfast) -> dict[str, list[str]]:
    """Something of everything, and plenty of what can be removed; the ids, by the part of a path that they stand after.

    What only a running server makes, the `asked` fixture adds.
    """
    charged = program(hold)
    assert charged == []
    letters = file(hold, MANY)
    hold.guard("search", Breaker(), Retry(attempts=2))
    hold.breakers.get_or_create("search")
    rotator = hold.add_pool("proxies", ProxyRotator([Endpoint("a"), Endpoint("b")], choose="first"))
    rotator.request(lambda endpoint: endpoint.id)
    shop, calls = Shop(hold), Calls(hold)
    orders = [shop.order(), shop.order(8, works=False)]
    spooled = shop.spool()
    names = [f"n{at}" for at in range(MANY)]
    shop.bury(*names, "a/b")
    entry, saga = str(calls.put()), str(calls.start())
    bulk = [hold.letters.bulk.start(LetterFilter(domain=name), "resolve").id for name in ("payments", "stock")]
    for name in names:
        hold.workflows.schedule(name, "greet", {"name": "moon"}, cron="0 3 * * *")
        hold.access.add_user(name, PASSWORD, "viewer")
    worker = hold.workflows.worker(ttl_s=3600)
    worker.look()
    return {
        "letters": letters, "guards": ["payments", "search"], "breakers": ["search"], "pools": ["proxies"],
        "members": ["a"], "circuit-breakers": ["a"], "workflows": orders, "at": ["1", "2"],
        "stages": ["charge", "reserve"], "schedules": names, "outbox": [entry], "sagas": [saga], "users": names,
        "tokens": [hold.access.create_token(name, role="viewer")[0].id for name in names], "bulk": bulk,
        "dead": [*names, "a/b"], "finalizers": [one.id for one in hold.workflows.finalizers.find(spooled)],
        "workers": [worker.presence.id],
    }  # fmt: skip


class Asked(NamedTuple):
    """Somebody of each role, on one store, and the ids of what is there, in turn. Who may do less asks first."""

    clients: dict[str, TestClient]
    ids: dict[str, Iterator[str]]


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
            known["verify"] = [clients["admin"].post(f"{API}/audit/verify", json={}).json()["id"]]
            yield Asked({"nobody": nobody, **clients}, {part: cycle(ids) for part, ids in known.items()})


SCHEMA: Final[OpenApiSchema] = schemathesis.openapi.from_dict(document())
OPERATIONS: Final = {
    f"{found.ok().method.upper()} {found.ok().path}": found.ok() for found in SCHEMA.get_all_operations()
}


def order_of(route: str) -> tuple[bool, bool]:
    """Reads first, and last what removes: it leaves less to ask about."""
    return not route.startswith("GET "), route.endswith(REMOVES) or route.startswith("DELETE ")


ROUTES: Final = sorted((route for route in OPERATIONS if route not in STREAMS), key=order_of)


def test_there_is_something_behind_every_id_of_a_path(asked: Asked) -> None:
    parts = {before for route in ROUTES for before, part in pairwise(route.split("/")) if part.startswith("{")}
    assert parts == asked.ids.keys()


@pytest.mark.parametrize("route", ROUTES)
def test_no_question_makes_the_server_fail_or_answer_what_the_document_does_not_say(asked: Asked, route: str) -> None:
    operation = OPERATIONS[route]
    fitting, other = (operation.as_strategy(generation_mode=mode) for mode in GenerationMode)
    answers: dict[str, set[int]] = {who: set() for who in asked.clients}

    def ask(case: Any, leads: bool) -> None:
        for who, client in asked.clients.items():
            if leads:
                lead_somewhere(case, asked.ids, route)
            answer = send(client, case)
            answers[who].add(answer.status_code)
            case.validate_response(answer, checks=list(CHECKS))

    # Half of the questions lead to what is there, as the document describes them; the others may be anything.
    _drawn(given(case=fitting, leads=st.just(True))(ask))
    _drawn(given(case=st.one_of(fitting, other), leads=st.booleans())(ask))
    right = operation.definition.raw[RIGHT]
    may = [role for role in Role if right == PUBLIC or grants(ROLES[role], right)]
    assert [who for who in may if answers[who] <= BARRED] == [], "nobody got as far as what is behind the id"


def _drawn(ask: Callable[[], None]) -> None:
    settings(
        max_examples=EXAMPLES // 2, derandomize=True, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )(ask)()  # fmt: skip


def lead_somewhere(case: Any, ids: dict[str, Iterator[str]], route: str) -> None:
    """Let it name what is there. Each who asks is led to the next thing: the one before may have removed theirs."""
    for before, part in pairwise(case.path.split("/")):
        if part.startswith("{"):
            case.path_parameters[part.strip("{}")] = next(ids[before])
    if route.startswith("GET "):
        case.query = {**(case.query or {}), **NAMES.get(route, {})}
    elif isinstance(case.body, dict):
        case.body = {**case.body, **NAMES.get(route, {})}


def send(client: TestClient, case: Any) -> Any:
    asked = case.as_transport_kwargs(base_url="http://127.0.0.1:8400")
    asked["headers"].pop("User-Agent", None)
    if "data" in asked:
        asked["content"] = asked.pop("data")
    client.cookies.clear()
    client.cookies.update(asked.pop("cookies", None) or {})
    return client.request(**asked)
