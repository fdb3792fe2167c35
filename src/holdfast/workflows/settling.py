"""Writing down what came of tasks: many workflows in one transaction.

Whoever has something to settle puts it here. The first one to come writes, for all who come meanwhile: so a commit
under way collects the next one, and nobody waits for a commit of his own.

What cannot be written in common is written workflow by workflow, then one by one. A settlement that cannot be written
at all fails its task; if not even that can be written, its item is put aside as `dead`, and holds up nobody else.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from holdfast.core.redact import redact
from holdfast.errors import Conflict, StoreError
from holdfast.machine.run import Advance, Missing, Work
from holdfast.machine.workflow import COMPLETE, WorkflowStatus
from holdfast.store.codec import from_json
from holdfast.store.ids import new_record_id
from holdfast.store.port import Change, Delete, Insert, Store, Swap
from holdfast.store.query import equal
from holdfast.store.record import evolve
from holdfast.workflows.ending import end_all
from holdfast.workflows.items import dropped_items
from holdfast.workflows.records import ITEM, SIGNAL, WORKFLOW, ItemRecord, StageRecord, WorkflowRecord
from holdfast.workflows.run import Run
from holdfast.workflows.runs import Runs

WAKE: Final = "workflows"
DEAD: Final = "dead"
"""The kind of an item that nothing can be done with; `due_at` and `owner` are None."""
TRIES: Final = 5
"""How often a workflow that others change at the same time is read and written again, before it has to wait."""
_log: Final = logging.getLogger("holdfast")


class Settlement(NamedTuple):
    """What a step of the machine is to do about an item that we own."""

    item: ItemRecord
    act: Callable[[Advance], None]


class Prepared(NamedTuple):
    """A step of one workflow, before it is stored."""

    run: Run
    changes: list[Change]
    record: WorkflowRecord
    records: dict[str, StageRecord]
    kept: list[ItemRecord]
    shared: bool
    over: bool


Groups = dict[str, list[Settlement]]


class Settling:
    """`room` says how many more items of a task type we want. `hand_out` gets the items that go on with us; `settled`
    hears which ones are done with, `told` of workflows that have ended."""

    def __init__(
        self,
        store: Store,
        runs: Runs,
        *,
        owner: Callable[[], str],
        room: Callable[[str], int],
        hand_out: Callable[[Sequence[tuple[ItemRecord, Run]]], None],
        settled: Callable[[Sequence[ItemRecord]], None],
        told: Callable[[WorkflowRecord], None],
    ) -> None:
        self._store = store
        self._runs = runs
        self._owner = owner
        self._room = room
        self._hand_out = hand_out
        self._settled = settled
        self._told = told
        self._waiting: deque[Settlement] = deque()
        self._later: list[Settlement] = []
        self._over: list[WorkflowRecord] = []
        self.writing = threading.Lock()
        """Whoever holds it may look at runs and change them."""

    def put(self, settlement: Settlement) -> None:
        """Have it settled by whoever flushes next."""
        self._waiting.append(settlement)

    @property
    def waits(self) -> bool:
        """Whether there is something to write."""
        return bool(self._waiting or self._later)

    def take_up(self) -> None:
        """Try again what others were in the way of."""
        with self.writing:
            self._waiting.extend(self._later)
            self._later.clear()

    def flush(self) -> None:
        """Write what waits, unless somebody else does. Raises StoreError; what could not be written waits on."""
        # Who finds the lock taken may go: its holder looks again after he has let go.
        while self._waiting and self.writing.acquire(blocking=False):
            try:
                self._write_all()
            finally:
                over, self._over = self._over, []
                self.writing.release()
                for record in over:  # tasks that are asked to stop may do something about it: not under our lock
                    self._told(record)

    def _write_all(self) -> None:
        batch: list[Settlement] = []
        while self._waiting:
            batch.append(self._waiting.popleft())
        groups = _by_workflow(batch)
        try:
            self._write(groups)
        except BaseException:
            # Memory may be ahead of what is stored.
            self._runs.forget(groups)
            self._waiting.extendleft(reversed([one for group in groups.values() for one in group]))
            raise

    def _write(self, groups: Groups) -> None:
        """Takes out of `groups` what is done with."""
        try:
            self._runs.read(groups)
            steps = [self._prepare(self._present(id), group) for id, group in groups.items()]
            self._commit(steps)
        except StoreError:
            raise
        except Exception:
            # One of them is in the way: somebody else has changed it, or it cannot be. From what is stored, each for
            # itself.
            self._runs.forget(groups)
            for id in list(groups):
                self._later += self._write_alone(id, groups[id])
                del groups[id]
            return
        done = [one.item for group in groups.values() for one in group]
        groups.clear()
        self._settled(done)

    def _write_alone(self, id: str, group: list[Settlement]) -> list[Settlement]:
        """Gives what has to wait."""
        for _ in range(TRIES):
            group = self._still_ours(group)
            if not group:
                return []
            self._runs.forget((id,))
            self._runs.read((id,))
            try:
                self._commit([self._prepare(self._present(id), group)])
            except Conflict:
                continue
            except StoreError:
                raise
            except Exception as error:
                self._runs.forget((id,))
                if len(group) == 1:
                    return self._give_up(group[0], error)
                return [left for one in group for left in self._write_alone(id, [one])]
            self._settled([one.item for one in group])
            return []
        return group

    def _still_ours(self, group: list[Settlement]) -> list[Settlement]:
        held = self._store.get(ITEM, [one.item.id for one in group])
        lost = [one.item for one, found in zip(group, held, strict=True) if found != one.item]
        self._settled(lost)  # they are somebody else's by now, and so is what comes of them
        return [one for one, found in zip(group, held, strict=True) if found == one.item]

    def _give_up(self, one: Settlement, error: Exception) -> list[Settlement]:
        """What a task answered cannot be done: it has failed."""
        id, ref = one.item.workflow, one.item.ref
        story = {"type": type(error).__name__, "message": redact(str(error))[:2000]}
        _log.error("workflow %s, stage %s: %s: %s", id, ref, story["type"], story["message"])
        try:
            self._runs.read((id,))
            self._commit([self._prepare(self._present(id), [one._replace(act=lambda step: step.fail(ref, story))])])
        except Conflict:
            return [one]
        except StoreError:
            raise
        except Exception as worse:
            self._runs.forget((id,))
            _log.exception("workflow %s, stage %s: put aside", id, ref, exc_info=worse)
            self.put_aside(one.item)
        self._settled([one.item])
        return []

    def put_aside(self, item: ItemRecord) -> None:
        """Nothing can be done with an item: of a workflow that is gone it goes, too; otherwise somebody has to look."""
        gone = self._store.get(WORKFLOW, [item.workflow])[0] is None
        aside = evolve(item, kind=DEAD, owner=None, due_at=None)
        try:
            self._store.commit([Delete(ITEM, item) if gone else Swap(ITEM, item, aside)])
        except Conflict:
            pass  # it is somebody else's by now

    def _present(self, id: str) -> Run:
        run = self._runs.get(id)
        if run is None:
            raise LookupError(f"workflow {id}, or its definition, cannot be read")
        return run

    def _prepare(self, run: Run, group: list[Settlement]) -> Prepared:
        now = self._store.now()
        needed: dict[str, None] = dict.fromkeys(one.item.ref for one in group)
        while True:
            step = run.advance(now)
            changes: list[Change] = []
            kept: list[ItemRecord] = []
            shared = False
            try:
                for one in group:
                    before = len(step.work)
                    if run.state.status.is_complete or _is_stale(one.item, step):
                        changes.append(Delete(ITEM, one.item))
                        continue
                    if one.item.kind == "run":
                        step.stage(one.item.ref).tasks[one.item.at].attempt = one.item.attempt
                    one.act(step)
                    changes += self._early_signal(run, step, before)
                    shared |= self._items(run, one.item, step.work[before:], now, changes, kept)
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
                if missing.ref in needed and not run.lacks((missing.ref,)):
                    raise RuntimeError(f"stage {missing.ref!r} is missed and there") from missing
                needed |= dict.fromkeys(missing.refs)
                self._runs.forget((run.id,))
                found = self._runs.read_with(run.id, needed)
                if found is None:
                    raise
                run = found
                continue
            more, record, records = run.changes(step)
            return Prepared(run, changes + more, record, records, kept, shared, run.state.status.is_complete)

    def _items(
        self, run: Run, item: ItemRecord, works: Sequence[Work], now: int, changes: list[Change], kept: list[ItemRecord]
    ) -> bool:
        """The items of what is to be done next: the first one continues this one, the others are new. Whether some of
        them are for anybody."""
        if not works:
            changes.append(Delete(ITEM, item))
            return False
        shared = False
        taken = Counter(one.type for one in kept) if kept else Counter[str]()
        taken[item.type] -= 1  # the one that is settled makes room
        for number, work in enumerate(works):
            type = "" if work.waits else run.blueprint.plan.stages[work.ref].tasks[work.at].type
            held = run.state.status is WorkflowStatus.PAUSED
            mine = not held and work.delay is not None and work.delay <= 0 and self._room(type) > taken[type]
            due = None if mine or work.delay is None else now + round(work.delay * 1e6)
            taken[type] += mine
            shared |= not mine
            again = number == 0 and (work.ref, work.at) == (item.ref, item.at)
            next = ItemRecord(
                item.id if number == 0 else new_record_id(now), item.version + 1 if number == 0 else 1,
                None if held else due, item.queue, item.priority, work.kind, type, self._owner() if mine else None,
                item.workflow, work.ref, run.stage(work.ref).incarnation, work.at,
                item.attempt + work.costs if again else 1, 0, due if held else None,
            )  # fmt: skip
            changes.append(Swap(ITEM, item, next) if number == 0 else Insert(ITEM, next))
            if mine:
                kept.append(next)
        return shared

    def _early_signal(self, run: Run, step: Advance, before: int) -> list[Change]:
        """A stage that has begun to wait goes on at once if what it waits for is here already."""
        if len(step.work) == before or not step.work[-1].waits:
            return []
        stage = run.stage(step.work[-1].ref)
        wait = stage.wait
        if wait is None or wait.signal is None:
            return []
        for signal in self._store.page(SIGNAL, equal(workflow=run.id), by="id", limit=1000):
            if wait.takes(signal.name):
                del step.work[before:]
                step.resume(stage.plan.ref, signal.name, from_json(signal.value))
                return [Delete(SIGNAL, signal)]
        return []

    def _commit(self, steps: list[Prepared]) -> None:
        changes = [change for step in steps for change in step.changes]
        if not changes:
            return
        self._store.commit(changes, wake=WAKE if any(step.shared or step.over for step in steps) else None)
        handed: list[tuple[ItemRecord, Run]] = []
        for step in steps:
            step.run.stored(step.record, step.records)
            if step.over:
                self._runs.forget((step.run.id,))
                self._over.append(step.record)
            handed += [(item, step.run) for item in step.kept]
        self._hand_out(handed)


def _is_stale(item: ItemRecord, step: Advance) -> bool:
    """Whether the stage has ended, or begun anew, since the item was made."""
    stage = step.stage(item.ref)
    return stage.incarnation != item.incarnation or stage.status in COMPLETE


def _unless_stale(change: Change, step: Advance) -> list[Change]:
    """A change of an item, or what is left of it if its stage has ended or begun anew since."""
    new = change.new if isinstance(change, Swap) else change.record if isinstance(change, Insert) else None
    if not isinstance(new, ItemRecord) or not _is_stale(new, step):
        return [change]
    return [Delete(ITEM, change.old)] if isinstance(change, Swap) else []


def _by_workflow(batch: Iterable[Settlement]) -> Groups:
    groups: Groups = {}
    for one in batch:
        groups.setdefault(one.item.workflow, []).append(one)
    return groups
