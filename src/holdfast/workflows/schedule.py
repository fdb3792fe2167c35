"""WorkflowSchedule: when a workflow is started again and again, and what becomes of a tick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

from holdfast.errors import ConfigurationError
from holdfast.store.codec import from_json, instant, maybe_instant, plain_to_json
from holdfast.store.port import Change, Insert, Store
from holdfast.workflows.cron import Cron
from holdfast.workflows.log import entry_id, last_entry
from holdfast.workflows.records import EVENT, EventRecord, ScheduleRecord

GRACE_S: Final = 60
"""A tick that is later than that was missed."""
MOST_CATCH_UP: Final = 1000


class Overlap(StrEnum):
    """What a tick does when the run before it has not ended."""

    SKIP = "skip"
    """Nothing is started."""
    QUEUE = "queue"
    """The new run waits for it."""
    CANCEL_PREVIOUS = "cancel_previous"


@dataclass(frozen=True, slots=True)
class WorkflowSchedule:
    """When a workflow is started, and with what."""

    name: str
    workflow: str
    """The name that it is known by."""
    args: Sequence[Any]
    kwargs: dict[str, Any]
    cron: str
    timezone: str
    overlap: Overlap
    catch_up: int
    """How many ticks that were missed are made up for, the newest ones."""
    paused: bool
    created_at: datetime
    next_tick: datetime | None
    """None while it is paused."""
    last_tick: datetime | None
    last_run: str | None
    """The last workflow that it has started."""


class Turn(NamedTuple):
    """What is to be done about the ticks that are due."""

    tick: int | None
    """The one to start a workflow for; None: they were all missed."""
    missed: list[int]
    """The ones before it that are left out, or the last of them if they are very many."""
    next: int | None
    """When to look again: at the next tick, which may be due as well."""


def turn_of(cron: Cron, due_at: int, catch_up: int, now: int) -> Turn:
    """What follows at this time for a schedule whose next tick is `due_at`, which has come."""
    in_time = now - GRACE_S * 1_000_000
    due = cron.between(due_at, now, catch_up + GRACE_S + 10)
    late = [tick for tick in due if tick < in_time]
    left_out = late[: max(0, len(late) - catch_up)]
    wanted = due[len(left_out) :]
    following = wanted[1] if len(wanted) > 1 else cron.after(now)
    return Turn(wanted[0] if wanted else None, left_out, following)


def schedule_of(record: ScheduleRecord) -> WorkflowSchedule:
    given = from_json(record.input)
    return WorkflowSchedule(
        record.id, record.workflow, given["args"], given["kwargs"], record.cron, record.timezone,
        Overlap(record.overlap), record.catch_up, bool(record.paused), instant(record.created_at),
        maybe_instant(record.due_at), maybe_instant(record.last_tick), record.last_run,
    )  # fmt: skip


def check_overlap(given: str) -> Overlap:
    """Raises ConfigurationError."""
    if given not in frozenset(Overlap):
        raise ConfigurationError(f"overlap must be one of {', '.join(Overlap)}, got {given!r}")
    return Overlap(given)


def check_catch_up(given: Any) -> int:
    """Raises ConfigurationError."""
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= MOST_CATCH_UP:
        raise ConfigurationError(f"catch_up must be a whole number from 0 to {MOST_CATCH_UP}, got {given!r}")
    return given


def split_input(given: Any) -> tuple[list[Any], dict[str, Any]]:
    """What is given by place and by name. Raises ConfigurationError."""
    if given is None:
        return [], {}
    if isinstance(given, dict):
        return [], given
    if isinstance(given, list | tuple):
        return list(given), {}
    raise ConfigurationError(f"input must be a dict by name or a list by place, got {given!r}")


def log_id(name: str, seq: int | None = None) -> str:
    """What a schedule is called in the log, or one entry of it."""
    return f"schedule:{name}" if seq is None else entry_id(f"schedule:{name}", seq)


def next_entry(store: Store, name: str, now: int, *events: dict[str, Any]) -> Change:
    """The next entry in the log of a schedule, to be written with what it tells of.

    The numbers go on when a schedule of that name was deleted and made anew.
    """
    last = last_entry(store, log_id(name))
    seq = 1 if last is None else int(last.id.rpartition(".")[2]) + 1
    return Insert(EVENT, EventRecord(log_id(name, seq), 1, None, log_id(name), now, plain_to_json(list(events))))
