"""What Prometheus is told, and who may ask for it."""

from __future__ import annotations

from holdfast import Holdfast, Hub, Retry
from tests.server.clients import app_of, client_of, holding

METRICS = "http://127.0.0.1:8400/metrics"


def test_figures_of_the_store_and_of_this_process_are_scraped(hold, ask):
    client = ask(hold)
    hold.letters.create(domain="mail", failure_type="X")
    hold.guard("pay", Retry(attempts=2)).call(lambda: 1)
    answer = client.get(METRICS)
    assert answer.headers["content-type"].startswith("text/plain")
    assert 'letter_entries{domain="mail",status="pending"} 1.0' in answer.text
    assert 'guard_calls_total{operation="pay",outcome="success"} 1.0' in answer.text
    assert "store_up 1.0" in answer.text


def test_figures_of_a_store_without_an_outbox_are_scraped_too(ask):
    with Holdfast("memory://", background=False, telemetry=Hub()) as hold:
        assert "outbox_entries" not in ask(hold).get(METRICS).text


def test_who_may_read_nothing_is_told_no_figures(tmp_path):
    with holding(tmp_path) as hold:
        _, reader = hold.access.create_token("prometheus", ["system:read"])
        _, other = hold.access.create_token("other", ["letters:read"])
        app = app_of(hold, required=True)
        assert client_of(app).get(METRICS).status_code == 401
        assert client_of(app, token=other).get(METRICS).status_code == 403
        assert client_of(app, token=reader).get(METRICS).status_code == 200


def test_a_collector_is_let_go_when_the_server_stops(hold):
    with client_of(app_of(hold)) as client:
        client.get(METRICS)
        assert hold.telemetry.listeners
    assert not [one for one in hold.telemetry.listeners if type(one).__name__ == "PrometheusCollector"]
