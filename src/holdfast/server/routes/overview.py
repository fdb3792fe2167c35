"""The state of everything at a glance, and its last hour."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import Query, Request
from pydantic import BaseModel

from holdfast.server.routing import Asking, Routes
from holdfast.server.sampling import MOST_MINUTES, STEP_S, sampling, sampling_of
from holdfast.views.overview import headline, quick_figures

routes: Final = Routes("system", prefix="/overview")
routes.lifespan_context = sampling
_EVENTS: Final = 20


class Headline(BaseModel):
    """One line for all of it. `tone` is calm, attention (somebody should look in today) or trouble (now)."""

    tone: str
    text: str
    parts: list[str]


class WaitingDomain(BaseModel):
    """A domain whose letters wait, and since when the oldest does."""

    domain: str
    pending: int
    oldest_at: datetime | None
    oldest_age_s: float | None


class LettersAtAGlance(BaseModel):
    """Letters by status, and the domains with the most that wait."""

    by_status: dict[str, int]
    domains: list[WaitingDomain]
    more_domains: int
    oldest_age_s: float | None


class BreakerAtAGlance(BaseModel):
    """A breaker that is not closed, or that an operator holds. `shared` ones are in the store, others only here."""

    name: str
    state: str
    since: datetime | None
    pinned: bool
    by: str | None
    reason: str
    until: datetime | None
    shared: bool


class BreakersAtAGlance(BaseModel):
    """Breakers by state, and those that are not as they should be."""

    by_state: dict[str, int]
    pinned: int
    items: list[BreakerAtAGlance]


class PausedQueueAtAGlance(BaseModel):
    """A queue from which nothing is claimed."""

    queue: str
    paused_at: datetime
    paused_by: str | None
    reason: str | None


class OutboxAtAGlance(BaseModel):
    """Entries that are not done, and how far behind their calls are. Those that succeeded are not counted here."""

    by_status: dict[str, int]
    by_queue: dict[str, int]
    oldest_due_at: datetime | None
    lag_s: float
    paused: list[PausedQueueAtAGlance]


class SagasAtAGlance(BaseModel):
    """Sagas that are not over."""

    by_state: dict[str, int]


class WorkflowsAtAGlance(BaseModel):
    """Workflows by status, and how many tasks no worker can take (100: or more)."""

    by_status: dict[str, int]
    stranded: int


class WorkersAtAGlance(BaseModel):
    """Workers of workflows that show that they live."""

    alive: int
    by_state: dict[str, int]


class DoctorAtAGlance(BaseModel):
    """What the doctor has found, by severity, and the worst of it."""

    by_severity: dict[str, int]
    worst: list[dict[str, Any]]


class BulkAtAGlance(BaseModel):
    """Bulk operations that are not over."""

    active: int


class Overview(BaseModel):
    """Everything at a glance. `outbox` and `sagas` are null where the store has none; they, workers, stranded tasks and
    the doctor are as of `slow_at`, a few seconds ago."""

    at: datetime
    slow_at: datetime
    store: str
    headline: Headline
    letters: LettersAtAGlance
    breakers: BreakersAtAGlance
    outbox: OutboxAtAGlance | None
    sagas: SagasAtAGlance | None
    workflows: WorkflowsAtAGlance
    workers: WorkersAtAGlance
    bulk: BulkAtAGlance
    doctor: DoctorAtAGlance
    events: list[dict[str, Any]]


class SeriesShown(BaseModel):
    """Curves: `times` are seconds since 1970, `step_s` apart, and each name has a value for each of them, or null where
    none was taken. While the store is away `away_since` says since when, and `away` why."""

    step_s: int
    times: list[int]
    series: dict[str, list[float | None]]
    away_since: datetime | None
    away: str


@routes.reads(response_model=Overview)
def overview(asked: Asking, request: Request) -> Any:
    """Everything at a glance."""
    samples = sampling_of(request)
    quick, slow, doctor = quick_figures(asked.hold), samples.slow(), samples.doctor()
    workflows = {**quick["workflows"], "stranded": slow["stranded"]}
    return {
        **slow,
        **quick,
        "workflows": workflows,
        "slow_at": slow["at"],
        "store": asked.hold.store.url,
        "headline": headline(quick, slow, doctor),
        "doctor": doctor,
        "events": request.app.state.live.recent(_EVENTS),
    }


@routes.reads("/series", response_model=SeriesShown)
def series(asked: Asking, request: Request, minutes: Annotated[int, Query(ge=1, le=MOST_MINUTES)] = 60) -> Any:
    """How it was over the last minutes, since the server began."""
    samples = sampling_of(request)
    samples.beat()
    return {"step_s": STEP_S, **samples.since(minutes)._asdict()}
