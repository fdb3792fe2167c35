"""What the doctor finds wrong with policies and store, and the rules that it knows."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, NamedTuple

from fastapi import Query, Request
from pydantic import BaseModel

from holdfast.app import Holdfast
from holdfast.core.redact import redact
from holdfast.doctor.examine import Diagnosis, examine
from holdfast.doctor.rules import RULES
from holdfast.server.problems import invalid
from holdfast.server.routing import Asking, Routes
from holdfast.server.watch import kept_in

routes: Final = Routes("system", prefix="/doctor")
FRESH_FOR: Final = timedelta(seconds=10)
NO_PROGRAM: Final = "guards, tasks and operations: this server has no program; start it with --app"


class DoctorFinding(BaseModel):
    """A rule that is broken: where, what is so, why it matters, and what to do about it."""

    rule: str
    name: str
    severity: str
    where: str
    what: str
    why: str
    fix: str


class DoctorShown(BaseModel):
    """What was found, the worst first. `unseen` was not looked at."""

    healthy: bool
    findings: list[DoctorFinding]
    unseen: list[str]
    examined_at: datetime
    fresh_for_s: float


class DoctorRule(BaseModel):
    """A rule that the doctor knows. Its id stays, whatever becomes of the words."""

    id: str
    name: str
    severity: str
    why: str


class DoctorRules(BaseModel):
    """Every rule that the doctor knows."""

    items: list[DoctorRule]


class _Examined(NamedTuple):
    diagnosis: Diagnosis
    at: datetime


class _Looks:
    """The last look, and one at a time: it costs questions to every part of the store."""

    def __init__(self) -> None:
        self._last: _Examined | None = None
        self._looking = threading.Lock()

    def look(self, hold: Holdfast, fresh: bool) -> _Examined:
        """What was found a moment ago, or is now. While somebody else looks, what was found before that."""
        last = self._last
        if last is not None and not fresh and datetime.now(UTC) - last.at <= FRESH_FOR:
            return last
        if not self._looking.acquire(blocking=last is None):
            assert last is not None
            return last
        try:
            if self._last is None or self._last is last:  # nobody has looked while we waited
                self._last = _Examined(examine(hold), datetime.now(UTC))
            return self._last
        finally:
            self._looking.release()


@routes.reads(response_model=DoctorShown)
def look(
    asked: Asking,
    request: Request,
    ignore: Annotated[list[str] | None, Query(max_length=100, description="Rules to leave out, by id or name.")] = None,
    fresh: Annotated[
        bool, Query(description="Look anew, though somebody has just looked; not while somebody is looking.")
    ] = False,
) -> Any:
    """What is wrong, and what to do. Looked at anew when the last look is older than a few seconds."""
    left_out = frozenset(ignore or ())
    for name in left_out - {name for rule in RULES for name in (rule.id, rule.name)}:
        raise invalid("unknown_rule", f"there is no rule {redact(name, 100)!r}; see /api/v1/doctor/rules")
    state = request.app.state
    seen = kept_in(request.app, "doctor_looks", _Looks).look(asked.hold, fresh)
    findings = tuple(one for one in seen.diagnosis.findings if not {one.rule.id, one.rule.name} & left_out)
    unseen = seen.diagnosis.unseen + (() if state.has_program else (NO_PROGRAM,))
    kept = Diagnosis(findings, seen.diagnosis.unseen)
    return {**kept.as_dict(), "unseen": unseen, "examined_at": seen.at, "fresh_for_s": FRESH_FOR.total_seconds()}


@routes.reads("/rules", response_model=DoctorRules)
def rules(asked: Asking) -> Any:
    """Every rule that the doctor knows."""
    return {"items": [{"id": one.id, "name": one.name, "severity": one.severity, "why": one.why} for one in RULES]}
