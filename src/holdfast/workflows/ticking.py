"""What is done when a schedule ticks.

Whoever starts a workflow for a tick swaps the schedule in the same transaction, so a tick is fired by one process,
whichever; the others find another version. Who was killed before that has left nothing behind: the tick is still due.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from holdfast.errors import ConfigurationError, Conflict, MissingExtra, StoreError, TaskError
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.codec import from_json, instant, to_json
from holdfast.store.ids import new_record_id
from holdfast.store.port import Change, Store, Swap
from holdfast.store.query import Condition, Where, among, equal, outside
from holdfast.store.record import evolve
from holdfast.workflows.beginning import Wanted
from holdfast.workflows.cron import Cron
from holdfast.workflows.following import follow
from holdfast.workflows.records import SCHEDULE, WORKFLOW, ScheduleRecord, WorkflowRecord
from holdfast.workflows.runs import Blueprints
from holdfast.workflows.schedule import GRACE_S, Overlap, log_id, next_entry, turn_of
from holdfast.workflows.settling import WAKE
from holdfast.workflows.story import named
from holdfast.workflows.trigger import Trigger

_BATCH: Final = 100
LATER_S: Final = 60
"""When to try again what cannot tick here."""
_log: Final = logging.getLogger("holdfast")


class Starter(Protocol):
    """What schedules need of the workflows that they start."""

    @property
    def known(self) -> Mapping[str, Any]: ...
    def add(self, function: Any, /) -> Any: ...
    def wanted(self, workflow: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Wanted: ...
    def cancel(self, id: str, reason: str = ..., *, by: str = ...) -> Any: ...


class Ticking:
    """Fires the schedules whose workflows are known here."""

    def __init__(self, store: Store, blueprints: Blueprints, flows: Starter) -> None:
        self._store = store
        self._blueprints = blueprints
        self._flows = flows
        self._unable: dict[str, int] = {}
        """The schedules that cannot be told the time of here, and when to try them again."""

    def next_due(self) -> int | None:
        """The first tick of all that can be fired here; None if there is none."""
        found = self._store.page(SCHEDULE, self._ours(), by="due_at", limit=1) if self._flows.known else []
        return found[0].due_at if found else None

    def fire_due(self) -> int:
        """Start what is due, of all schedules that can be fired here; how many ticks that were. Raises StoreError."""
        fired = 0
        while self._flows.known:
            where = (*self._ours(), Condition("due_at", "<=", self._store.now()))
            found = self._store.page(SCHEDULE, where, by="due_at", limit=_BATCH)
            if not found:
                break
            for record in found:
                fired += self._fire(record)
        return fired

    def run_now(self, record: ScheduleRecord, by: str) -> str:
        """Start a schedule's workflow whatever the time. Raises TaskError if the run before must end first."""
        while True:
            before = self._before(record)
            if before is not None and record.overlap == Overlap.SKIP:
                story = f"its last run {before.id} is {before.status}, and overlap is {record.overlap}"
                raise TaskError(f"schedule {record.id!r} cannot run now: {story}; wait for its end, or cancel it")
            now = self._store.now()
            wanted = self._ready(record, f"now:{new_record_id(now)}", now)
            id = self._start(record, evolve(record), wanted, before, now, "schedule_run", by=by)
            if id is not None:
                return id
            again = self._store.get(SCHEDULE, [record.id])[0]
            if again is None:
                raise TaskError(f"schedule {record.id!r} was deleted meanwhile")
            record = again

    def _ours(self) -> Where:
        known, unable = among("workflow", tuple(self._flows.known)), tuple(self._unable.items())
        if not unable:
            return (known,)
        now = self._store.now()
        return known, outside("id", [name for name, until in unable if until > now])

    def _fire(self, record: ScheduleRecord) -> bool:
        """One tick of a schedule that is due. False: somebody else has it."""
        now = self._store.now()
        try:
            turn = turn_of(Cron(record.cron, record.timezone), record.due_at or now, record.catch_up, now)
        except (ConfigurationError, MissingExtra) as error:  # its zone, or cronsim, is not on this host
            return self._leave(record, now, error)
        after = evolve(record, due_at=turn.next, last_tick=turn.tick or (turn.missed or [now])[-1])
        missed = _missed(turn.missed)
        if turn.tick is None:
            return self._pass(record, after, now, *missed)
        tick = instant(turn.tick).isoformat()
        before = self._before(record)
        if before is not None and record.overlap == Overlap.SKIP:
            told = {"type": "tick_skipped", "tick": tick, "run": before.id, "status": before.status}
            return self._pass(record, after, now, *missed, told)
        try:
            wanted = self._ready(record, str(turn.tick), turn.tick)
        except (StoreError, KeyboardInterrupt):
            raise
        except BaseException as error:  # the workflow's own body, or an input that no longer fits
            story = named(error)
            _log.error("schedule %s: the tick of %s starts nothing: %s", record.id, tick, story)
            return self._pass(record, after, now, *missed, {"type": "tick_failed", "tick": tick, "error": story})
        return self._start(record, after, wanted, before, now, "tick_fired", *missed, tick=tick) is not None

    def _leave(self, record: ScheduleRecord, now: int, error: Exception) -> bool:
        """The tick stays due: it is for a worker that can. If none has come for it, the log says why."""
        _log.error("schedule %s cannot tick here: %s", record.id, error)
        self._unable[record.id] = now + LATER_S * 1_000_000
        if now - (record.due_at or now) < GRACE_S * 1_000_000:
            return False
        return self._pass(record, evolve(record), now, {"type": "tick_failed", "error": str(error)})

    def _pass(self, record: ScheduleRecord, after: ScheduleRecord, now: int, *events: dict[str, Any]) -> bool:
        """Nothing is started."""
        entries = [next_entry(self._store, record.id, now, *events)] if events else []
        return self._write(Swap(SCHEDULE, record, after), *entries)

    def _start(
        self,
        record: ScheduleRecord,
        after: ScheduleRecord,
        wanted: Wanted,
        before: WorkflowRecord | None,
        now: int,
        word: str,
        *events: dict[str, Any],
        **facts: Any,
    ) -> str | None:
        """Start a workflow and note it; None: somebody else was faster."""
        if before is not None and record.overlap == Overlap.CANCEL_PREVIOUS:
            self._flows.cancel(before.id, "the next run of its schedule begins", by=log_id(record.id))
            now = self._store.now()
        same = self._store.page(WORKFLOW, equal(idempotency_key=wanted.key), limit=1)
        id = same[0].id if same else wanted.id or new_record_id(now)
        try:
            following = follow(self._store, self._blueprints, (), now, starts=() if same else ((id, wanted),))
        except Conflict:
            return None
        swap = Swap(SCHEDULE, record, evolve(after, last_run=id)._replace(version=after.version))
        entry = next_entry(self._store, record.id, now, *events, {"type": word, **facts, "run": id})
        return id if self._write(swap, entry, *following.changes) else None

    def _write(self, *changes: Change) -> bool:
        try:
            self._store.commit(changes, wake=WAKE)
        except Conflict:
            return False
        return True

    def _before(self, record: ScheduleRecord) -> WorkflowRecord | None:
        """The last run, if it has not ended."""
        found = None if record.last_run is None else self._store.get(WORKFLOW, [record.last_run])[0]
        return None if found is None or WorkflowStatus(found.status).is_complete else found

    def _ready(self, record: ScheduleRecord, key: str, at: int) -> Wanted:
        given = from_json(record.input)
        wanted = self._flows.wanted(record.workflow, given["args"], given["kwargs"])
        trigger = Trigger("cron", "schedule", {"schedule": record.id, "tick": instant(at).isoformat()})
        about = {**from_json(wanted.about), "trigger": trigger.to_document()}
        made = replace(wanted, key=f"{log_id(record.id)}:{key}", about=to_json(about))
        if record.overlap == Overlap.QUEUE and made.limit is None:
            return replace(made, pipeline=log_id(record.id), limit=1)
        return made


def _missed(ticks: Sequence[int]) -> list[dict[str, Any]]:
    if not ticks:
        return []
    first, last = instant(ticks[0]).isoformat(), instant(ticks[-1]).isoformat()
    return [{"type": "ticks_missed", "number": len(ticks), "first": first, "last": last}]
