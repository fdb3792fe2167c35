"""Pipelines of which only so many workflows run at once: who begins, and who waits in line.

A pipeline's record says how many of its workflows run. Whoever starts or ends one swaps it in the same transaction, so
its version is the lock, and what it says is right whatever is killed. Who has to wait gets a ticket; whoever makes room
lets the first in line begin, in the transaction that made the room.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from holdfast.errors import Conflict, WorkflowNotFoundError
from holdfast.machine import pipeline as machine
from holdfast.machine.run import Advance
from holdfast.machine.workflow import S
from holdfast.store.codec import from_json
from holdfast.store.port import Change, Delete, Insert, Store, Swap
from holdfast.store.query import Condition, Cursor, equal
from holdfast.workflows.beginning import EXPIRES, LIMIT, ends_at_once
from holdfast.workflows.ending import end_all
from holdfast.workflows.items import new_items, released_items
from holdfast.workflows.messages import StartWorkflow
from holdfast.workflows.records import PIPELINE, WAITING, WORKFLOW, PipelineRecord, WaitingRecord, WorkflowRecord
from holdfast.workflows.run import Run
from holdfast.workflows.runs import Blueprints
from holdfast.workflows.sending import sent

_PAGE: Final = 1000
_log: Final = logging.getLogger("holdfast")


@dataclass(slots=True)
class _Line:
    """A pipeline as it will be."""

    old: PipelineRecord | None
    most: int
    running: int = 0
    tickets: int = 0
    keeps: bool = True
    gone: set[str] = field(default_factory=set)
    """Those who wait no longer, by what this transaction does."""

    @property
    def free(self) -> int:
        return max(0, self.most - self.running)


class Lines:
    """The pipelines that one transaction has to do with."""

    def __init__(self, store: Store, blueprints: Blueprints, now: int) -> None:
        self._store = store
        self._blueprints = blueprints
        self._now = now
        self._lines: dict[str, _Line] = {}
        self.changes: list[Change] = []

    def enter(self, pipeline: str, id: str, most: int, keeps: bool) -> bool:
        """Whether a new workflow may begin; otherwise it is in line."""
        line = self._line(pipeline, most)
        line.most, line.keeps = most, keeps
        # Whoever waits already has the first right to what is free, if the limit has just been raised.
        if len(self._waiting(pipeline, line, line.free)) < line.free:
            line.running += 1
            return True
        self._wait(pipeline, line, id)
        return False

    def follow(self, run: Run) -> None:
        """What a step of a workflow means to its pipeline. Raises Conflict if it was decided by what is no more so."""
        about, pipeline = from_json(run.about), run.record.pipeline
        before, after = S(run.record.status), run.state.status
        if pipeline is None or before is after or LIMIT not in about:
            return
        had, has = machine.has_slot(before), machine.has_slot(after)
        line = self._line(pipeline, about[LIMIT])
        line.running += has - had
        if before is S.BUFFERED and after is not S.BUFFERED:
            line.gone.add(run.id)
            self.changes += [Delete(WAITING, one) for one in self._store.get(WAITING, [run.id]) if one is not None]
        elif after is S.BUFFERED and before is not S.BUFFERED:
            if line.free:
                raise Conflict(f"there is room in pipeline {pipeline!r} by now", ())
            self._wait(pipeline, line, run.id)
        if has > had and line.running > line.most:
            raise Conflict(f"pipeline {pipeline!r} is full by now", ())

    def open(self, pipeline: str, most: int | None) -> None:
        """Look whether somebody who waits can begin, by another limit if one is given."""
        if self._store.get(PIPELINE, [pipeline])[0] is None:
            raise WorkflowNotFoundError(f"no workflow of a pipeline {pipeline!r} has had a limit so far")
        line = self._line(pipeline, 0)
        line.most = most or line.most

    def admit(self) -> Iterator[tuple[Run, Advance]]:
        """Those who begin, or are cancelled because a newer one does, with what is stored of that in `changes`."""
        for pipeline, line in self._lines.items():
            for row, chosen in self._next(pipeline, line):
                line.gone.add(row.id)
                found = self._admitted(row) if chosen else self._turned_away(row)
                if found is not None:
                    line.running += machine.has_slot(found[0].state.status)
                    yield found

    def records(self) -> list[Change]:
        """The pipelines themselves, once everything else is decided."""
        made: list[Change] = []
        for id, line in self._lines.items():
            facts = (line.most, line.running, line.tickets, int(line.keeps))
            old = line.old
            if old is None:
                made.append(Insert(PIPELINE, PipelineRecord(id, 1, None, *facts)))
            elif old[3:] != facts or line.gone:
                made.append(Swap(PIPELINE, old, PipelineRecord(id, old.version + 1, None, *facts)))
        return made

    def _line(self, pipeline: str, most: int) -> _Line:
        line = self._lines.get(pipeline)
        if line is None:
            old = self._store.get(PIPELINE, [pipeline])[0]
            line = _Line(None, most) if old is None else _Line(old, old.most, old.running, old.tickets, bool(old.keeps))
            self._lines[pipeline] = line
        return line

    def _wait(self, pipeline: str, line: _Line, id: str) -> None:
        line.tickets += 1
        self.changes.append(Insert(WAITING, WaitingRecord(id, 1, None, pipeline, line.tickets)))

    def _next(self, pipeline: str, line: _Line) -> Iterator[tuple[WaitingRecord, bool]]:
        """Who leaves the line, one by one while there is room; False: turned away."""
        while line.free:
            found = self._waiting(pipeline, line, line.free if line.keeps else None)
            if not found:
                return
            chosen = found if line.keeps else found[-line.free :]
            for row in found:
                yield row, row in chosen

    def _waiting(self, pipeline: str, line: _Line, number: int | None) -> list[WaitingRecord]:
        """The first ones in line, or all of them."""
        found: list[WaitingRecord] = []
        after: Cursor | None = None
        while number is None or len(found) < number:
            limit = _PAGE if number is None else number + len(line.gone)
            page = self._store.page(WAITING, equal(pipeline=pipeline), by="ticket", after=after, limit=limit)
            found += [row for row in page if row.id not in line.gone]
            if len(page) < limit:
                break
            after = Cursor(page[-1].ticket, page[-1].id)
        return found[:number]

    def _admitted(self, row: WaitingRecord) -> tuple[Run, Advance] | None:
        run = self._run(row)
        if run is None:
            return None
        step = run.advance(self._now)
        expires = from_json(run.about).get(EXPIRES)
        machine.admit(step, too_late=expires is not None and expires < self._now)
        if step.cancels:
            return self._begins_later(run)
        items = new_items(run, step) if run.record.started_at is None else released_items(self._store, run)
        self.changes += [*run.changes(step)[0], *items]
        return run, step

    def _begins_later(self, run: Run) -> tuple[Run, Advance]:
        """One that fails as soon as it begins, which means more than is known here."""
        run = Run(run.record, run.blueprint, run.seq)
        step = run.advance(self._now)
        machine.leave_line(step)
        start = sent(StartWorkflow(execution_id=run.id), self._now, self._now, run.record.queue)
        self.changes += [*run.changes(step)[0], *start]
        return run, step

    def _turned_away(self, row: WaitingRecord) -> tuple[Run, Advance] | None:
        run = self._run(row)
        if run is None:
            return None
        step = run.advance(self._now)
        step.cancel("a newer one of its pipeline goes first", "pipeline")
        ends = end_all(self._store, run, step, ())
        self.changes += [*run.changes(step)[0], *ends]
        return run, step

    def _run(self, row: WaitingRecord) -> Run | None:
        """The workflow with all its stages; to those of one that was only started nothing has happened."""
        record = self._store.get(WORKFLOW, [row.id])[0]
        if record is None or record.status != S.BUFFERED:
            self.changes.append(Delete(WAITING, row))
            return None
        blueprint = self._blueprints.of([record.definition]).get(record.definition)
        if blueprint is None:  # those behind it need not wait for it
            _log.error("workflow %s cannot begin: its definition cannot be read", row.id)
            return None
        self.changes.append(Delete(WAITING, row))
        run = Run(record, blueprint, record.version)  # nothing happens to the stages of one that waits
        refs: Sequence[str] = tuple(blueprint.plan.stages)
        if record.version == 1 and record.started_at is None:
            run.add(refs, [None] * len(refs))
        else:
            run.read(self._store, refs)
        return run


def waits_in_line(store: Store, run: Run, step: Advance) -> bool:
    """Whether a workflow that was stored and is to begin waits in line, since its pipeline is full. Nothing of it has
    begun then: no time runs out before its turn comes."""
    pipeline = run.record.pipeline
    if pipeline is None or not _is_full(store, pipeline, run) or ends_at_once(run, step.now):
        return False
    machine.buffer(step, pipeline)
    return True


def hold_back(store: Store, run: Run, step: Advance) -> None:
    """A workflow that had ended and runs again waits in line if its pipeline is full."""
    pipeline = run.record.pipeline
    if pipeline is None or machine.has_slot(S(run.record.status)) or not machine.has_slot(run.state.status):
        return
    if _is_full(store, pipeline, run):
        machine.buffer(step, pipeline)


def _is_full(store: Store, pipeline: str, run: Run) -> bool:
    line = store.get(PIPELINE, [pipeline])[0]
    return line is not None and line.running >= line.most and LIMIT in from_json(run.about)


def line_of(store: Store, record: WorkflowRecord) -> tuple[str | None, int | None, bool]:
    """A workflow's pipeline, how many of it run at once by now if it is among those that are counted, and whether all
    who wait are kept."""
    line = None if record.pipeline is None else store.get(PIPELINE, [record.pipeline])[0]
    if line is None or LIMIT not in from_json(record.about):
        return record.pipeline, None, True
    return record.pipeline, line.most, bool(line.keeps)


def place_of(store: Store, id: str) -> int | None:
    """How far a workflow is from the head of its line: 1 is next; None for one that does not wait."""
    own = store.get(WAITING, [id])[0]
    if own is None:
        return None
    before = (*equal(pipeline=own.pipeline), Condition("ticket", "<=", own.ticket))
    return sum(store.tally(WAITING, (), before).values())
