"""A step of one workflow, before it is stored: what settlements come to, and who does what follows from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from holdfast.machine.run import Advance, Entry, Missing, Work
from holdfast.machine.workflow import COMPLETE, WorkflowStatus
from holdfast.store.codec import from_json
from holdfast.store.ids import new_record_id
from holdfast.store.paging import every
from holdfast.store.port import Change, Delete, Insert, Store, Swap
from holdfast.store.query import equal
from holdfast.workflows.beginning import First
from holdfast.workflows.ending import end_all
from holdfast.workflows.following import CONTROL, RETRY, concerns_others
from holdfast.workflows.items import HELD, dropped_items, made_items
from holdfast.workflows.lines import hold_back
from holdfast.workflows.records import ITEM, SIGNAL, ItemRecord, WorkflowRecord, meant_for
from holdfast.workflows.run import Rows, Run
from holdfast.workflows.runs import Runs

BUFFERED: Final = WorkflowStatus.BUFFERED
Ending = Callable[[Run, Advance], list[Change]]
"""What is to be stored together with the end of a workflow."""


class Settlement(NamedTuple):
    """What a step of the machine is to do about an item that we own."""

    item: ItemRecord
    act: Callable[[Advance], None]


class Success(NamedTuple):
    """A settlement, too: the item's task has answered, as nearly all do. It needs no function of its own."""

    item: ItemRecord
    left: dict[str, Any]

    def act(self, step: Advance) -> None:
        step.succeed(self.item.ref, self.left, {})


Settles = Settlement | Success


class Prepared(NamedTuple):
    """A step of one workflow, before it is stored."""

    run: Run
    step: Advance | None
    """Only where it means something to other workflows: Python's search for cycles looks at all that waits for the
    commit."""
    events: list[Entry]
    changes: list[Change]
    record: WorkflowRecord
    rows: Rows
    kept: list[ItemRecord]
    shared: bool
    over: bool


class Rooms(dict[str, int]):
    """How many more items of a type we want, as it is when what is written together begins to be made."""

    def __init__(self, room: Callable[[str], int], owner: str) -> None:
        self._room = room
        self.owner = owner

    def __missing__(self, type: str) -> int:
        room = self[type] = self._room(type)
        return room


class Preparing:
    """`may_own` says whether what is new may be ours, `ending` what is stored with the end of a workflow."""

    def __init__(self, store: Store, runs: Runs, *, may_own: Callable[[], bool], ending: Ending) -> None:
        self._store = store
        self._runs = runs
        self._may_own = may_own
        self._ending = ending

    def prepare(self, run: Run, group: Sequence[Settles], now: int, rooms: Rooms) -> Prepared:
        """What settlements of one workflow come to. Its run may be read anew."""
        needed: dict[str, None] = {}
        while True:
            step = run.advance(now)
            changes: list[Change] = []
            kept: list[ItemRecord] = []
            shared = False
            try:
                for one in group:
                    item, before = one.item, len(step.work)
                    if _is_over(run, item) or _is_stale(item, step):
                        changes.append(Delete(ITEM, item))
                        continue
                    if item.kind == "run":
                        step.stage(item.ref).tasks[item.at].attempt = item.attempt
                    one.act(step)
                    if run.record.pipeline is not None:
                        hold_back(self._store, run, step)
                    if len(step.work) > before and step.work[-1].waits:
                        changes += self._early_signal(run, step, before)
                    works = step.wanted(before) if step.dropped else step.work[before:]
                    shared |= self._items(run, item, works, now, changes, kept, rooms)
                if step.cancels:  # nothing goes on
                    spared = {one.item.id for one in group}
                    changes = [Delete(ITEM, one.item) for one in group] + end_all(self._store, run, step, spared)
                    kept, shared = [], False
                elif step.dropped:
                    # What one of them has left to do, another one may have ended.
                    changes = [kept_change for change in changes for kept_change in _unless_stale(change, step)]
                    kept = [item for item in kept if not _is_stale(item, step)]
                    changes += dropped_items(self._store, run, step.dropped, {one.item.id for one in group})
            except Missing as missing:
                needed = needed or dict.fromkeys(one.item.ref for one in group if one.item.kind not in CONTROL)
                if missing.ref in needed and not run.lacks((missing.ref,)):
                    raise RuntimeError(f"stage {missing.ref!r} is missed and there") from missing
                needed |= dict.fromkeys(missing.refs)
                self._runs.forget((run.id,))
                found = self._runs.read_with(run.id, needed)
                if found is None:
                    raise
                run = found
                continue
            over = run.state.status in COMPLETE
            if over:
                changes += self._ending(run, step)
            more, record, rows = run.changes(step, fenced=True)
            shared |= bool(step.cleanups)
            others = step if concerns_others(run, step) else None
            return Prepared(run, others, step.events, more + changes, record, rows, kept, shared, over)

    def _items(
        self,
        run: Run,
        item: ItemRecord,
        works: Sequence[Work],
        now: int,
        changes: list[Change],
        kept: list[ItemRecord],
        rooms: Rooms,
    ) -> bool:
        """The items of what is to be done next: the first one continues this one, the others are new. Whether some of
        them are for anybody."""
        if not works:
            changes.append(Delete(ITEM, item))
            return False
        shared, held = False, run.state.status in HELD
        taken = {item.type: -1}  # the one that is settled makes room
        for one in kept:
            taken[one.type] = taken.get(one.type, 0) + 1
        for number, (ref, at, delay, costs, waits, what) in enumerate(works):
            type = "" if waits else run.blueprint.plan.stages[ref].tasks[at].type
            had = taken.get(type, 0)
            mine = not held and delay is not None and delay <= 0 and rooms[type] > had
            due = None if mine or delay is None else now + round(delay * 1e6)
            taken[type] = had + mine
            shared |= not mine
            again = number == 0 and ref == item.ref and at == item.at
            next = ITEM.make((
                item.id if number == 0 else new_record_id(now), item.version + 1 if number == 0 else 1,
                None if held else due, item.queue, item.priority, what if waits else "run", type,
                rooms.owner if mine else None, item.workflow, ref, run.stage(ref).incarnation, at,
                item.attempt + costs if again else 1, 0, due if held else None, item.code,
            ))  # fmt: skip
            changes.append(Swap(ITEM, item, next) if number == 0 else Insert(ITEM, next))
            if mine:
                kept.append(next)
        return shared

    def _early_signal(self, run: Run, step: Advance, before: int) -> list[Change]:
        """A stage that has begun to wait goes on at once if what it waits for is here already."""
        stage = run.stage(step.work[-1].ref)
        wait = stage.wait
        if wait is None or wait.signal is None:
            return []
        for signal in every(self._store, SIGNAL, equal(workflow=run.id)):
            if wait.takes(signal.name) and meant_for(signal) in (None, stage.plan.ref):
                del step.work[before:]
                step.resume(stage.plan.ref, signal.name, from_json(signal.value))
                return [Delete(SIGNAL, signal)]
        return []

    def firsts(self, firsts: Iterable[First], rooms: Rooms) -> list[Prepared]:
        """The first steps of new workflows. We take what we have room for."""
        taken, may_own = Counter[str](), self._may_own()
        return [self._first(run, step, rooms if may_own else None, taken) for run, step in firsts]

    def _first(self, run: Run, step: Advance, rooms: Rooms | None, taken: Counter[str]) -> Prepared:
        kept: list[ItemRecord] = []
        changes: list[Change] = []
        for item in made_items(run, step):
            is_due = item.due_at is not None and item.due_at <= step.now
            if rooms is not None and is_due and rooms[item.type] > taken[item.type]:
                taken[item.type] += 1
                item = ITEM.changed(item, {"owner": rooms.owner, "due_at": None})
                kept.append(item)
            changes.append(Insert(ITEM, item))
        more, record, rows = run.changes(step)
        shared = len(kept) < len(changes)
        others = step if concerns_others(run, step) else None
        over = run.state.status in COMPLETE
        return Prepared(run, others, step.events, more + changes, record, rows, kept, shared, over)


def _is_over(run: Run, item: ItemRecord) -> bool:
    """Whether there is nothing to do any more in its workflow."""
    return run.state.status in COMPLETE and item.kind != RETRY


def _is_stale(item: ItemRecord, step: Advance) -> bool:
    """Whether the stage has ended, or begun anew, since the item was made; or begun, where the item waits for that."""
    if item.kind in CONTROL:
        return False
    stage = step.stage(item.ref)
    if item.kind == "start" and stage.status is not BUFFERED:
        return True
    return stage.incarnation != item.incarnation or stage.status in COMPLETE


def _unless_stale(change: Change, step: Advance) -> list[Change]:
    """A change of an item, or what is left of it if its stage has ended or begun anew since."""
    new = change.new if isinstance(change, Swap) else change.record if isinstance(change, Insert) else None
    if not isinstance(new, ItemRecord) or not _is_stale(new, step):
        return [change]
    return [Delete(ITEM, change.old)] if isinstance(change, Swap) else []
