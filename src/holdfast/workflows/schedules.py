"""`hold.workflows.schedules`: workflows that are started again and again, by cron."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from holdfast.errors import ConfigurationError, Conflict, WorkflowNotFoundError
from holdfast.store.codec import from_json, instant, to_json
from holdfast.store.paging import every
from holdfast.store.port import Change, Delete, Insert, Store, Swap
from holdfast.store.query import Condition, equal
from holdfast.store.record import evolve
from holdfast.workflows.cron import Cron
from holdfast.workflows.history import LogEntry, entries_of
from holdfast.workflows.records import EVENT, SCHEDULE, ScheduleRecord
from holdfast.workflows.runs import Blueprints
from holdfast.workflows.schedule import (
    Overlap,
    WorkflowSchedule,
    check_catch_up,
    check_overlap,
    log_id,
    next_entry,
    schedule_of,
    split_input,
)
from holdfast.workflows.settling import WAKE
from holdfast.workflows.ticking import Starter, Ticking

_LONGEST: Final = 100
_FACTS: Final = ("workflow", "input", "cron", "timezone", "overlap", "catch_up", "paused")


class Schedules:
    """The schedules of one store. Workers fire them; a worker knows the workflows that its program has added."""

    def __init__(self, store: Store, blueprints: Blueprints, flows: Starter) -> None:
        self._store = store
        self._flows = flows
        self.ticking = Ticking(store, blueprints, flows)

    def add(
        self,
        name: str,
        workflow: Any,
        input: Any = None,
        *,
        cron: str,
        timezone: str = "UTC",
        overlap: Overlap | str = Overlap.SKIP,
        catch_up: int = 1,
        paused: bool | None = None,
        by: str = "anonymous",
    ) -> WorkflowSchedule:
        """Have a workflow started whenever `cron` says so in that time zone. The same again changes nothing, so a
        program may say it whenever it begins; with other values the schedule is changed.

        `workflow` is a `@workflow`, a function that makes a `Workflow`, or the name of one that was added; `input` a
        dict by name or a list by place. `paused` of None leaves that as it is. Raises ConfigurationError and
        WorkflowDefinitionError.
        """
        _check_name(name)
        clock = Cron(cron, timezone)
        args, kwargs = split_input(input)
        if not isinstance(workflow, str):
            self._flows.add(workflow)
        called = workflow if isinstance(workflow, str) else _name_of(self._flows.known, workflow)
        self._flows.wanted(called, args, kwargs)  # what cannot be started is refused now
        facts: dict[str, Any] = {
            "workflow": called, "input": to_json({"args": args, "kwargs": kwargs}), "cron": cron, "timezone": timezone,
            "overlap": check_overlap(overlap).value, "catch_up": check_catch_up(catch_up),
        }  # fmt: skip

        def decide(old: ScheduleRecord | None, now: int) -> tuple[ScheduleRecord, str] | None:
            if old is None:
                is_paused = bool(paused)
                due = None if is_paused else clock.after(now)
                return ScheduleRecord(name, 1, due, **facts, paused=is_paused, created_at=now), "schedule_made"
            is_paused = bool(old.paused if paused is None else paused)
            same_time = (old.cron, old.timezone, old.paused) == (cron, timezone, is_paused)
            due = old.due_at if same_time else None if is_paused else clock.after(now)
            new = evolve(old, due_at=due, **facts, paused=int(is_paused))
            return None if _facts(new) == _facts(old) else (new, "schedule_changed")

        return self._change(name, decide, by=by)

    def all(self) -> list[WorkflowSchedule]:
        """All schedules, by name."""
        return [schedule_of(one) for one in every(self._store, SCHEDULE)]

    def get(self, name: str) -> WorkflowSchedule:
        """Raises WorkflowNotFoundError."""
        return schedule_of(self._record(name))

    def next(self, name: str, number: int = 5) -> list[datetime]:
        """When it ticks next, as if it were not paused. Raises WorkflowNotFoundError."""
        record = self._record(name)
        return [instant(at) for at in Cron(record.cron, record.timezone).next(self._store.now(), number)]

    def pause(self, name: str, *, by: str = "anonymous") -> WorkflowSchedule:
        """Let it tick no more. What it has started goes on. Raises WorkflowNotFoundError."""

        def decide(old: ScheduleRecord | None, now: int) -> tuple[ScheduleRecord, str] | None:
            record = _there(old, name)
            return None if record.paused else (evolve(record, paused=1, due_at=None), "schedule_paused")

        return self._change(name, decide, by=by)

    def resume(self, name: str, *, by: str = "anonymous") -> WorkflowSchedule:
        """Let it tick again, from now on. Raises WorkflowNotFoundError."""

        def decide(old: ScheduleRecord | None, now: int) -> tuple[ScheduleRecord, str] | None:
            record = _there(old, name)
            due = Cron(record.cron, record.timezone).after(now)
            return (evolve(record, paused=0, due_at=due), "schedule_resumed") if record.paused else None

        return self._change(name, decide, by=by)

    def delete(self, name: str, *, by: str = "anonymous") -> None:
        """Take it away. What it has started goes on, and its log stays. Raises WorkflowNotFoundError."""
        while True:
            record, now = self._record(name), self._store.now()
            entry = next_entry(self._store, name, now, {"type": "schedule_deleted", "by": by})
            try:
                self._store.commit([Delete(SCHEDULE, record), entry])
            except Conflict:
                continue
            return

    def run(self, name: str, *, by: str = "anonymous") -> str:
        """Start its workflow now, whether or not it is paused; its id.

        Raises WorkflowNotFoundError, and TaskError if the run before has not ended and `overlap` is skip.
        """
        return self.ticking.run_now(self._record(name), by)

    def log(self, name: str, *, after: int = 0, limit: int = 100) -> list[LogEntry]:
        """What happened to it, the first first: the next `limit` entries beyond the one numbered `after`."""
        where = (*equal(workflow=log_id(name)), Condition("id", ">", log_id(name, after)))
        return [entry for one in self._store.page(EVENT, where, by="id", limit=limit) for entry in entries_of(one)]

    def lately(self, name: str, number: int = 10) -> list[LogEntry]:
        """The last `number` entries of its log, the first first."""
        found = self._store.page(EVENT, equal(workflow=log_id(name)), by="id", descending=True, limit=number)
        return [entry for one in reversed(found) for entry in entries_of(one)]

    def _record(self, name: str) -> ScheduleRecord:
        return _there(self._store.get(SCHEDULE, [name])[0], name)

    def _change(
        self, name: str, decide: Callable[[ScheduleRecord | None, int], tuple[ScheduleRecord, str] | None], *, by: str
    ) -> WorkflowSchedule:
        while True:
            old, now = self._store.get(SCHEDULE, [name])[0], self._store.now()
            made = decide(old, now)
            if made is None:
                return schedule_of(_there(old, name))
            new, word = made
            step: Change = Insert(SCHEDULE, new) if old is None else Swap(SCHEDULE, old, new)
            told = {"type": word, "by": by, **_facts(new)} if word in ("schedule_made", "schedule_changed") else {}
            entry = next_entry(self._store, name, now, told or {"type": word, "by": by})
            try:
                self._store.commit([step, entry], wake=WAKE)
            except Conflict:
                continue
            return schedule_of(new)


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name or len(name) > _LONGEST or not name.isprintable():
        raise ConfigurationError(f"a schedule's name is a text of 1 to {_LONGEST} characters, got {name!r}")


def _name_of(known: Mapping[str, Any], workflow: Any) -> str:
    return next(name for name, one in known.items() if one is workflow)


def _facts(record: ScheduleRecord) -> dict[str, Any]:
    facts = {name: getattr(record, name) for name in _FACTS}
    return {**facts, "input": from_json(record.input), "paused": bool(record.paused)}


def _there(record: ScheduleRecord | None, name: str) -> ScheduleRecord:
    if record is None:
        raise WorkflowNotFoundError(f"there is no schedule {name!r}")
    return record
