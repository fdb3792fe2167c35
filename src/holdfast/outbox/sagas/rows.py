"""Between sagas and their rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from holdfast.audit.sessions import dialect_of
from holdfast.machine.saga import SagaRecord, SagaState, StepRecord, StepState
from holdfast.outbox.rows import in_utc

COLUMNS: Final = (
    "saga_id", "definition", "version", "state", "subject_id", "data", "steps", "reason",
    "started_at", "changed_at", "deadline_at",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SagaRun:
    """One saga that was started. `data` is gone once a saga with sensitive operations has ended."""

    saga_id: UUID
    definition: str
    version: int
    state: SagaState
    subject_id: str
    data: Any
    steps: tuple[StepRecord, ...]
    reason: str | None
    started_at: datetime
    changed_at: datetime
    deadline_at: datetime | None = None

    @property
    def record(self) -> SagaRecord:
        """As the machine sees it."""
        return SagaRecord(self.state, self.steps, self.reason)


def run_of(row: Sequence[Any]) -> SagaRun:
    """The saga of a row of `COLUMNS`.

    Raises ValueError for a state that nobody knows.
    """
    values = dict(zip(COLUMNS, row, strict=True))
    for name in ("started_at", "changed_at", "deadline_at"):
        values[name] = in_utc(values[name])
    values["state"] = SagaState(values["state"])
    values["steps"] = tuple(StepRecord(**{**step, "state": StepState(step["state"])}) for step in values["steps"])
    return SagaRun(**values)


def steps_to_json(steps: Iterable[StepRecord]) -> list[dict[str, Any]]:
    """What differs from a step that nobody has touched."""
    fresh = StepRecord("")._asdict()
    return [
        {key: value for key, value in step._asdict().items() if key in ("name", "state") or value != fresh[key]}
        for step in steps
    ]


def select_sagas(sagas: sa.Table) -> Any:
    return sa.select(*(sagas.c[name] for name in COLUMNS))


def insert_once(session: Session, sagas: sa.Table, row: dict[str, Any]) -> bool:
    """Insert a saga; False if its id is there already."""
    match dialect_of(session):
        case "postgresql":
            from sqlalchemy.dialects.postgresql import insert as postgresql_insert

            once: Any = postgresql_insert(sagas).on_conflict_do_nothing(index_elements=[sagas.c.saga_id])
        case "sqlite":
            from sqlalchemy.dialects.sqlite import insert as sqlite_insert

            once = sqlite_insert(sagas).on_conflict_do_nothing(index_elements=[sagas.c.saga_id])
        case _:
            done: Any = session.execute(sagas.insert().prefix_with("IGNORE").values(row))
            return bool(done.rowcount)
    return session.execute(once.values(row).returning(sagas.c.saga_id)).scalar() is not None
