"""`/metrics`: what Prometheus asks for, of this process and of the store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any, Final

from fastapi import FastAPI, Request, Response

from holdfast.readings import expected, readings
from holdfast.server.problems import ProblemError
from holdfast.server.routing import Routes
from holdfast.server.watch import kept_in

routes: Final = Routes("system", prefix="")
EXTRA: Final = "the figures need prometheus-client; run: pip install 'holdfast[prometheus]'"


@routes.reads("/metrics", include_in_schema=False)
def metrics(request: Request) -> Response:
    """Every figure, in Prometheus' own format."""
    collector = _collector_of(request.app)
    if collector is None:
        raise ProblemError(501, "extra_missing", EXTRA)
    from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

    return Response(generate_latest(collector), media_type=CONTENT_TYPE_LATEST)


@asynccontextmanager
async def _counting(app: FastAPI) -> AsyncIterator[None]:
    """Count from the start, not from the first question."""
    collector = _collector_of(app)
    try:
        yield
    finally:
        if collector is not None:
            app.state.hold.telemetry.unregister(collector)


def _collector_of(app: FastAPI) -> Any:
    """What gathers the figures; None where prometheus-client is not installed."""
    if find_spec("prometheus_client") is None:
        return None
    from holdfast.telemetry.prometheus import PrometheusCollector

    hold = app.state.hold
    return kept_in(
        app,
        "collector",
        lambda: PrometheusCollector(
            hub=hold.telemetry, registry=None, readings=readings(hold), expected=expected(hold)
        ),
    )


routes.lifespan_context = _counting
