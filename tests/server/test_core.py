"""What all routes share: rights, problems, the trail of operators, live messages, and where the server listens."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
from contextlib import suppress
from importlib import import_module
from inspect import signature
from urllib.parse import urlsplit

import pytest
from fastapi import FastAPI
from pydantic import BaseModel
from starlette.testclient import TestClient

from holdfast import Holdfast, Hub
from holdfast.audit.event import AuditEventType
from holdfast.core.outcome import OutcomeKind
from holdfast.errors import ConfigurationError, Conflict, InvalidValue, PolicyError, StoreUnavailable
from holdfast.server import problems
from holdfast.server.api import create_app
from holdfast.server.live import KEPT, Live
from holdfast.server.problems import ProblemError
from holdfast.server.routes import RESOURCES
from holdfast.server.routing import RIGHT, Asking, Routes
from holdfast.server.run import listen, serve, server, url_of
from holdfast.server.shapes import Body
from holdfast.telemetry.events import CallCompleted, CircuitStateChanged
from tests.server.clients import API, app_of, client_of, holding
from tests.server.running import server_of


def test_every_route_below_the_api_names_a_right_or_says_that_it_needs_none(hold):
    document = create_app(hold).openapi()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert RIGHT in operation, f"{method} {path}"


def test_a_route_that_names_no_right_cannot_be_served(hold, monkeypatch):
    from holdfast.server.routes import doctor

    async def open_door() -> None: ...

    monkeypatch.setattr(doctor.routes, "routes", list(doctor.routes.routes))
    doctor.routes.add_api_route("/open-door", open_door)
    with pytest.raises(TypeError, match="open-door names no right"):
        create_app(hold)


def test_a_resource_that_nobody_has_rights_to_cannot_have_routes():
    with pytest.raises(ValueError, match="there is no resource 'kitchen'"):
        Routes("kitchen")


def test_an_endpoint_that_changes_something_must_say_who_asked():
    routes = Routes("letters")

    def burn(id: str) -> None: ...

    with pytest.raises(TypeError, match=r"letters\.burn changes something"):
        routes.acts("/{id}/burn")(burn)


class Counted(BaseModel):
    number: int


@pytest.mark.parametrize(("given", "status"), [({"number": 7, "secret": "x"}, 201), ({"number": "many"}, 500)])
def test_an_answer_is_what_its_route_promises_or_the_servers_fault(hold, given, status):
    app, routes = create_app(hold), Routes("letters", prefix="/odd")

    def odd(asked: Asking) -> object:
        return given

    routes.reads(response_model=Counted, status_code=201)(odd)
    app.include_router(routes, prefix=API)
    answer = client_of(app).get(f"{API}/odd")
    assert answer.status_code == status
    assert answer.json() == {"number": 7} if status == 201 else answer.json()["error"] == "server_error"


def test_what_is_asked_for_is_in_the_trail_before_it_is_done(hold, client):
    letter = hold.letters.create(domain="mail", failure_type="X")
    answer = client.post(f"letters/{letter.id}/resolve", json={"reason": "sent by hand"})
    assert answer.status_code == 200
    (event,) = hold.audit.read("operator:local")
    assert event.event_type is AuditEventType.OPERATOR_ACTED
    assert event.payload == {
        "act": "letters.resolve", "via": "loopback", "right": "letters:operate", "reason": "sent by hand",
        "on_id": letter.id,
    }  # fmt: skip


def test_what_could_not_be_done_is_in_the_trail_too(hold, client):
    assert client.post("letters/nothing/resolve", json={"reason": "so"}).status_code == 404
    asked, failed = hold.audit.read("operator:local")
    assert (asked.event_type, failed.event_type) == ("operator_acted", "operator_act_failed")
    assert failed.payload["error"] == "ProblemError"


def test_nothing_is_done_that_the_trail_cannot_take(hold, client, monkeypatch):
    letter = hold.letters.create(domain="mail", failure_type="X")

    def away(*_: object) -> None:
        raise StoreUnavailable("the database is away")

    monkeypatch.setattr(hold.audit, "append", away)
    answer = client.post(f"letters/{letter.id}/resolve", json={"reason": "so"})
    assert (answer.status_code, answer.json()["error"]) == (503, "store_away")
    assert hold.letters.get_by_id(letter.id).status == "pending"


def test_the_trail_says_what_a_request_was_about_that_is_not_in_its_path(hold, client):
    client.post("letters/domains/pause", json={"domain": "mail", "reason": "the post office is away"})
    (event,) = hold.audit.read("operator:local")
    assert event.payload["on_domain"] == "mail"


WITHHELD = {
    "NewUser": {"password"}, "NewPassword": {"password"}, "StartRequest": {"input"}, "SignalRequest": {"value"},
    "ForkRequest": {"context"}, "ScheduleRequest": {"input"},
}  # fmt: skip


def test_the_trail_is_told_everything_that_an_act_is_asked_but_secrets_and_payloads():
    bodies = {
        parameter.annotation
        for name in RESOURCES
        for route in import_module(f"holdfast.server.routes.{name}").routes.routes
        for parameter in signature(route.endpoint, eval_str=True).parameters.values()
        if isinstance(parameter.annotation, type) and issubclass(parameter.annotation, BaseModel)
    }
    assert len(bodies) > 15
    assert all(issubclass(body, Body) for body in bodies)
    assert {body.__name__: set(body.withheld) for body in bodies if body.withheld} == WITHHELD


def test_the_trail_says_how_an_act_was_to_be_done(hold, client):
    client.post("breakers/mail/force-open", json={"reason": "outage", "ttl_minutes": 15})
    client.post("circuit-breakers/a:1/reset?pool=proxies", json={"reason": "so"})
    client.post("workflows", json={"name": "order", "input": {"card": "4111 1111"}, "reason": "so"})
    client.post("access/users/bob", json={"password": "correct horse battery", "role": "viewer", "reason": "new"})
    events = hold.audit.read("operator:local")
    told = {event.payload["act"]: event.payload for event in events if event.event_type == "operator_acted"}
    assert told["breakers.force_open"]["with_ttl_minutes"] == "15"
    assert told["pools.reset_breaker"]["with_pool"] == "proxies"
    assert told["workflows.start"]["on_name"] == "order"
    assert told["access.add_user"]["with_role"] == "viewer"
    assert "4111" not in str(events)
    assert "horse" not in str(events)


def test_a_server_without_the_key_of_the_trail_does_nothing_that_would_break_its_chain(hold, tmp_path, ask):
    with Holdfast(hold.store.url, background=False, telemetry=Hub(), audit_key=b"k" * 32) as keyed:
        letter = keyed.letters.create(domain="mail", failure_type="X")
        assert ask(keyed).post(f"letters/{letter.id}/resolve", json={"reason": "so"}).status_code == 200
        answer = ask(hold).post(f"letters/{letter.id}/discard", json={"reason": "so"})
        assert (answer.status_code, answer.json()["error"]) == (409, "another_audit_key")
        assert all(keyed.audit.verify_all())


def test_secrets_in_a_reason_do_not_get_into_the_trail(hold, client):
    letter = hold.letters.create(domain="mail", failure_type="X")
    client.post(f"letters/{letter.id}/resolve", json={"reason": "password=hunter2 was wrong"})
    assert "hunter2" not in str(hold.audit.read("operator:local"))


def test_a_store_without_a_trail_leaves_a_line_in_the_log(ask, caplog):
    with Holdfast("memory://", background=False, telemetry=Hub()) as hold:
        letter = hold.letters.create(domain="mail", failure_type="X")
        client = ask(hold)
        with caplog.at_level(logging.INFO, "holdfast.audit"):
            assert client.post(f"letters/{letter.id}/resolve", json={"reason": "by hand"}).status_code == 200
        assert "operator_acted by local" in caplog.text
        assert client.get("status").json()["audited"] == "log"


def test_the_line_is_written_also_where_nobody_has_set_logging_up(ask, monkeypatch):
    lines: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    log = logging.getLogger("holdfast.audit")
    monkeypatch.setattr(log, "handlers", [Kept()])
    monkeypatch.setattr(log, "level", logging.NOTSET)
    monkeypatch.setattr(logging.getLogger(), "level", logging.WARNING)
    log.manager._clear_cache()
    with Holdfast("memory://", background=False, telemetry=Hub()) as hold:
        letter = hold.letters.create(domain="mail", failure_type="X")
        assert ask(hold).post(f"letters/{letter.id}/resolve", json={"reason": "by hand"}).status_code == 200
    assert "operator_acted by local" in lines[0]
    log.manager._clear_cache()


def test_a_program_that_says_who_asks_lets_nobody_else_in(hold):
    stranger = client_of(app_of(hold, identify=lambda request: None))
    assert stranger.get(f"{API}/letters").status_code == 401


def test_who_is_unknown_is_not_told_what_is_wrong_with_the_store(hold):
    app = app_of(hold, required=True)

    def away(text: str) -> None:
        raise StoreUnavailable("postgresql://secret-host is away")

    hold.access.identify_token = away
    answer = client_of(app, token="hf_a_b").get(f"{API}/letters")
    assert answer.status_code == 503
    assert "secret-host" not in answer.text


@pytest.mark.parametrize(
    ("raised", "status", "error"),
    [
        (StoreUnavailable("gone"), 503, "store_away"),
        (Conflict("late"), 409, "changed_meanwhile"),
        (ConfigurationError("no outbox"), 409, "not_configured"),
        (InvalidValue("17 is odd"), 422, "invalid_value"),
        (PolicyError("17 is odd"), 422, "invalid_value"),
        (ValueError("secret plans: 17 is odd"), 500, "server_error"),
        (ProblemError(418, "teapot", "short and stout"), 418, "teapot"),
        (RuntimeError("secret plans"), 500, "server_error"),
    ],
)
def test_every_error_is_a_problem(raised, status, error):
    app = FastAPI()
    problems.install(app)

    @app.get("/")
    def fail() -> None:
        raise raised

    answer = TestClient(app, raise_server_exceptions=False).get("/")
    assert answer.headers["content-type"] == problems.MEDIA_TYPE
    assert (answer.status_code, answer.json()["error"]) == (status, error)
    assert "secret plans" not in answer.text


def test_what_nobody_expected_is_in_the_log_under_the_reference_that_the_answer_has(caplog):
    app = FastAPI()
    problems.install(app)

    @app.get("/{name}")
    def fail(name: str) -> None:
        int(name)

    with caplog.at_level(logging.ERROR, "holdfast.server"):
        answer = TestClient(app, raise_server_exceptions=False).get("/seventeen%0Aforged")
    (record,) = [one for one in caplog.records if one.name == "holdfast.server"]
    reference = answer.json()["details"]["reference"]
    assert reference in record.getMessage()
    assert reference in answer.json()["message"]
    assert "\n" not in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[0] is ValueError
    assert "seventeen" not in answer.text


def test_a_body_that_is_wrong_is_told_field_by_field(client):
    answer = client.post("letters/1/replay", json={"force": "perhaps", "speed": 3})
    assert answer.status_code == 422
    assert {one["where"] for one in answer.json()["details"]["fields"]} == {"body.force", "body.speed"}


def test_an_unknown_path_below_the_api_is_a_problem(client):
    answer = client.get("nowhere")
    assert (answer.status_code, answer.json()["error"]) == (404, "no_such_path")


def test_whether_the_store_answers_is_told_without_a_name(tmp_path):
    with holding(tmp_path) as hold:
        stranger = client_of(app_of(hold, required=True))
        assert stranger.get(f"{API}/health").json() == {"status": "ok"}
        assert stranger.get(f"{API}/ready").json() == {"status": "ready"}
        hold.store.ping = lambda: (_ for _ in ()).throw(StoreUnavailable("postgresql://secret is away"))
        answer = stranger.get(f"{API}/ready")
        assert (answer.status_code, answer.json()["error"]) == (503, "not_ready")
        assert "secret" not in answer.text


def test_the_program_may_refuse_what_rights_would_allow(hold, ask):
    client = ask(hold, authorize=lambda identity, right, request: right != "letters:operate")
    assert client.get("letters").status_code == 200
    assert client.post("letters/1/replay", json={}).status_code == 403


def test_a_page_that_comes_back_is_told_what_it_missed():
    hold = Holdfast("memory://", background=False, telemetry=Hub())
    live = Live(hold)
    live.open()
    live.tell("event", {"n": 1})

    async def first_two(last: str | None) -> list[str]:
        stream = live.stream(last)
        try:
            return [await anext(stream), await anext(stream)]
        finally:
            await stream.aclose()

    async def hello() -> str:
        stream = live.stream(None)
        try:
            return await anext(stream)
        finally:
            await stream.aclose()

    position = asyncio.run(hello()).split("id: ")[1].split("\n")[0]
    live.tell("letters", {"n": 2})
    greeting, missed = asyncio.run(first_two(position))
    assert "event: hello" in greeting
    assert "event: letters" in missed
    assert '"n": 2' in missed
    live.close()
    hold.close()


def test_a_page_that_was_away_for_too_long_is_told_to_look_anew():
    hold = Holdfast("memory://", background=False, telemetry=Hub())
    live = Live(hold)
    for number in range(KEPT + 2):
        live.tell("event", {"n": number})
    assert live.since(0) is None
    assert live._position(f"{live._run}-0") == (KEPT + 2, True)
    assert live._position("another-run-3") == (KEPT + 2, True)
    assert live._position(f"{live._run}-{KEPT + 1}") == (KEPT + 1, False)
    hold.close()


def test_calls_make_no_messages_and_changes_of_state_do():
    hub = Hub()
    hold = Holdfast("memory://", background=False, telemetry=hub)
    live = Live(hold)
    live.open()
    assert not hub.loud  # or every guarded call would pay for an open page
    hub.emit(CallCompleted("pay", "1", OutcomeKind.SUCCESS, 0.1))
    hub.emit(CircuitStateChanged("pay", "", "pay", "closed", "open", "tripped"))
    (told,) = live.recent()
    assert told["event"] == "guard.circuit_state_changed"
    live.close()
    hold.close()


def test_a_commit_in_the_store_is_told_by_its_topic():
    with Holdfast("memory://", background=False, telemetry=Hub()) as hold:
        live = Live(hold)
        live.open()
        hold.letters.create(domain="mail", failure_type="X", wake=True)
        hold.letters.create(domain="mail", failure_type="X", wake=True)
        assert [one.topic for one in live.since(0)] == ["letters"]  # who is told once and has not asked needs no more
        live.close()


def test_an_address_that_others_reach_is_refused_while_nobody_can_sign_in(hold):
    with listen("0.0.0.0", 0) as listening:
        with pytest.raises(ConfigurationError, match="make a user first: holdfast access add-user"):
            server(hold, listening)


def test_an_address_that_others_reach_is_served_once_somebody_can_sign_in(hold):
    hold.access.add_user("ann", "correct horse battery", "admin")
    with listen("0.0.0.0", 0) as listening:
        assert server(hold, listening) is not None


def test_a_port_that_is_taken_is_told_in_a_sentence(hold):
    with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        assert url_of(listening) == f"http://127.0.0.1:{port}"
        with pytest.raises(ConfigurationError, match=f"cannot listen on 127.0.0.1:{port}"):
            listen("127.0.0.1", port)


def test_an_answer_in_two_parts_does_not_wait_for_the_first_to_be_acknowledged():
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_head_without_an_end_is_not_read_for_ever(hold):
    with server_of(hold) as url, socket.create_connection(("127.0.0.1", urlsplit(url).port), timeout=30) as client:
        client.sendall(b"GET /api/v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: ")
        with suppress(ConnectionError):  # the server may close while there is more to send
            for _ in range(64):
                client.sendall(b"x" * (1 << 14))
        with suppress(ConnectionError):
            assert client.recv(1 << 14).startswith(b"HTTP/1.1 400 ")


def test_long_bodies_and_many_requests_are_no_long_head(hold):
    with server_of(hold) as url, socket.create_connection(("127.0.0.1", urlsplit(url).port), timeout=30) as client:
        answers = client.makefile("rb")
        for size in (0, 3 << 16, 0):
            head = f"POST /api/v1/session HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {size}\r\n\r\n"
            client.sendall(head.encode() + b"x" * size)
            length = 0
            assert answers.readline().startswith(b"HTTP/1.1 4")
            while (line := answers.readline()) != b"\r\n":
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            answers.read(length)


def test_while_it_serves_the_collector_does_not_look_at_what_was_there_before(hold):
    frozen: list[int] = []

    def told(url: str) -> None:
        frozen.append(gc.get_freeze_count())
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            serve(hold, port=0, told=told)
    finally:
        signal.signal(signal.SIGINT, before)
    assert frozen[0] > 10_000
    assert gc.get_freeze_count() == 0


def test_the_reason_of_any_body_is_taken():
    class Why(Body):
        reason: str

    noted: list[tuple[str, str]] = []

    class Noting:
        def acted(self, identity, act, right, target, reason, how):
            noted.append((act, reason))

    class Request:
        trail, identity, target = Noting(), None, {}

    routes = Routes("letters")

    def burn(asked: Asking, body: Why) -> str:
        return body.reason

    routes.acts("/burn")(burn)
    endpoint = routes.routes[-1].endpoint
    assert endpoint(asked=Request(), body=Why(reason="cold")) == "cold"
    assert noted == [("letters.burn", "cold")]
