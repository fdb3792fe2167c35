"""Writing down what came of tasks: many workflows in one transaction.

Whoever has something to settle puts it here. The first one to come writes, for all who come meanwhile: so a commit
under way collects the next one, and nobody waits for a commit of his own.

What cannot be written in common is written workflow by workflow, then one by one. A settlement that cannot be written
at all fails its task; if not even that can be written, its item is put among the dead ones, and holds up nobody else.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from holdfast.core.redact import redact
from holdfast.errors import Conflict, StoreError
from holdfast.machine.run import Advance, Missing, Work
from holdfast.machine.workflow import COMPLETE
from holdfast.store.codec import from_json
from holdfast.store.ids import new_record_id
from holdfast.store.port import Change, Delete, Insert, Store, Swap
from holdfast.store.query import equal
from holdfast.workflows.beginning import First
from holdfast.workflows.burial import buried
from holdfast.workflows.ending import end_all
from holdfast.workflows.following import CONTROL, NOTHING, RETRY, Following, concerns_others, follow
from holdfast.workflows.items import HELD, dropped_items, made_items
from holdfast.workflows.lines import hold_back
from holdfast.workflows.records import ITEM, SIGNAL, WORKFLOW, ItemRecord, StageRecord, WorkflowRecord, meant_for
from holdfast.workflows.run import Run
from holdfast.workflows.runs import Runs

WAKE: Final = "workflows"
"""Told when there is something to do for whoever has time."""
ENDED: Final = "workflows.ended"
"""Told when a workflow has ended, and there is nothing to do."""
_TURN_S: Final = 0.1
_log: Final = logging.getLogger("holdfast")


class Settlement(NamedTuple):
    """What a step of the machine is to do about an item that we own."""

    item: ItemRecord
    act: Callable[[Advance], None]


class Prepared(NamedTuple):
    """A step of one workflow, before it is stored."""

    run: Run
    step: Advance | None
    """Only where it means something to other workflows: Python's search for cycles looks at all that waits for the
    commit."""
    events: list[dict[str, Any]]
    changes: list[Change]
    record: WorkflowRecord
    records: dict[str, StageRecord]
    kept: list[ItemRecord]
    shared: bool
    over: bool


Groups = dict[str, list[Settlement]]
Stored = Callable[[Run, list[dict[str, Any]]], None]
Ending = Callable[[Run, Advance], list[Change]]
"""What is to be stored together with the end of a workflow."""


class _Rooms(dict[str, int]):
    """How many more items of a type we want, as it is when what is written together begins to be made."""

    def __init__(self, room: Callable[[str], int], owner: str) -> None:
        self._room = room
        self.owner = owner

    def __missing__(self, type: str) -> int:
        room = self[type] = self._room(type)
        return room


class Beginning:
    """New workflows that are to be stored. `written` is locked until they are, or cannot be."""

    __slots__ = ("error", "firsts", "is_stored", "written")

    def __init__(self, firsts: Sequence[First]) -> None:
        self.firsts = firsts
        self.is_stored = False
        self.error: Exception | None = None
        self.written = threading.Lock()
        self.written.acquire()

    def close(self, *, is_stored: bool = False, error: Exception | None = None) -> None:
        self.is_stored, self.error = is_stored, error
        self.written.release()


class Settling:
    """`room` says how many more items of a task type we want, `may_own` whether what is new may be ours. `hand_out`
    gets the items that go on with us; `settled` hears which ones are done with, `told` of workflows that have ended. A
    workflow that others change at the same time is read and written again `retries` times before it has to wait.
    `ending` says what is stored with their end; `stored` hears what logs say."""

    def __init__(
        self,
        store: Store,
        runs: Runs,
        *,
        owner: Callable[[], str],
        room: Callable[[str], int],
        may_own: Callable[[], bool],
        hand_out: Callable[[Sequence[tuple[ItemRecord, Run]]], None],
        settled: Callable[[Sequence[ItemRecord]], None],
        told: Callable[[WorkflowRecord], None],
        ending: Ending = lambda run, step: [],
        retries: int = 3,
        stored: Stored = lambda run, events: None,
    ) -> None:
        self._store = store
        self._runs = runs
        self._tries = retries + 1
        self._owner = owner
        self._room = room
        self._may_own = may_own
        self._hand_out = hand_out
        self._settled = settled
        self._told = told
        self._report = stored
        self._ending = ending
        self._waiting: deque[Settlement] = deque()
        self._new: deque[Beginning] = deque()
        self._later: list[Settlement] = []
        self._changed: deque[str] = deque()
        self._over: list[WorkflowRecord] = []
        self._stored: list[tuple[Run, list[dict[str, Any]]]] = []
        self.writing = threading.Lock()
        """Whoever holds it may look at runs and change them."""

    def put(self, settlement: Settlement) -> None:
        """Have it settled by whoever flushes next."""
        self._waiting.append(settlement)

    def begin(self, firsts: Sequence[First], again: Callable[[], bool]) -> bool:
        """Store new workflows, together with what else is to be written, and take up what comes first of them.

        False: nothing is stored, for one of them is there already. Raises StoreError. `again` as for `flush`.
        """
        new = Beginning(firsts)
        self._new.append(new)
        while True:
            try:
                self.flush(again)
            except StoreError:
                if new.error is None:
                    raise
            # Whoever writes for us may have to give up before it is our turn: then we write.
            if new.written.acquire(timeout=_TURN_S):
                break
        if new.error is not None:
            raise new.error
        return new.is_stored

    def heard(self, workflow: str) -> None:
        """Somebody else in this process has changed a workflow: it is read before it is written again."""
        self._changed.append(workflow)

    def __len__(self) -> int:
        """How many settlements wait."""
        return len(self._waiting)

    @property
    def waits(self) -> bool:
        """Whether there is something to write."""
        return bool(self._waiting or self._later or self._new)

    def take_up(self) -> None:
        """Try again what others were in the way of."""
        with self.writing:
            self._waiting.extend(self._later)
            self._later.clear()

    def flush(self, again: Callable[[], bool] = lambda: True) -> None:
        """Write what waits, unless somebody else does. `again` is asked before what came meanwhile is written, too:
        False leaves it to others.

        Raises StoreError; what could not be written waits on.
        """
        # Who finds the lock taken may go: its holder looks again after he has let go.
        began = False
        while (self._waiting or self._new) and not (began and not again()) and self.writing.acquire(blocking=False):
            began = True
            try:
                self._write_all()
            finally:
                over, self._over = self._over, []
                stored, self._stored = self._stored, []
                self.writing.release()
                for run, events in stored:
                    self._report(run, events)
                for record in over:  # tasks that are asked to stop may do something about it: not under our lock
                    self._told(record)

    def _write_all(self) -> None:
        while self._changed:
            self._runs.forget((self._changed.popleft(),))
        batch: list[Settlement] = []
        while self._waiting:
            batch.append(self._waiting.popleft())
        new: list[Beginning] = []
        while self._new:
            new.append(self._new.popleft())
        groups = _by_workflow(batch)
        try:
            self._write(groups, new)
        except BaseException as error:
            # Memory may be ahead of what is stored.
            self._runs.forget(groups)
            self._waiting.extendleft(reversed([one for group in groups.values() for one in group]))
            for one in new:
                one.close(error=error if isinstance(error, Exception) else StoreError("the one who wrote was stopped"))
            raise

    def _write(self, groups: Groups, new: list[Beginning]) -> None:
        """Takes out of `groups` and `new` what is done with."""
        try:
            self._runs.read(groups)
            self._runs.meet(refs_of(one.item for group in groups.values() for one in group).items())
            now, rooms = self._store.now(), _Rooms(self._room, self._owner())
            steps = [self._prepare(self._present(id), group, now, rooms) for id, group in groups.items()]
            taken: Counter[str] = Counter()
            steps += [self._first(*first, taken) for one in new for first in one.firsts]
            self._commit(steps)
        except StoreError:
            raise
        except Exception:
            # One of them is in the way: somebody else has changed it, or it cannot be. From what is stored, each for
            # itself.
            while new:
                new.pop().close()
            self._runs.forget(groups)
            for id in list(groups):
                self._later += self._write_alone(id, groups[id])
                del groups[id]
            return
        done = [one.item for group in groups.values() for one in group]
        groups.clear()
        while new:
            new.pop().close(is_stored=True)
        self._settled(done)

    def _first(self, run: Run, step: Advance, taken: Counter[str]) -> Prepared:
        """The first step of a new workflow. We take what we have room for, besides what was taken before."""
        kept, may_own = list[ItemRecord](), self._may_own()
        changes: list[Change] = []
        for item in made_items(run, step):
            is_due = item.due_at is not None and item.due_at <= step.now
            if may_own and is_due and self._room(item.type) > taken[item.type]:
                taken[item.type] += 1
                item = item._replace(owner=self._owner(), due_at=None)
                kept.append(item)
            changes.append(Insert(ITEM, item))
        more, record, records = run.changes(step)
        shared = len(kept) < len(changes)
        others = step if concerns_others(run, step) else None
        over = run.state.status in COMPLETE
        return Prepared(run, others, step.events, changes + more, record, records, kept, shared, over)

    def _write_alone(self, id: str, group: list[Settlement]) -> list[Settlement]:
        """Gives what has to wait."""
        for _ in range(self._tries):
            group = self._still_ours(group)
            if not group:
                return []
            self._runs.forget((id,))
            self._runs.read((id,))
            try:
                self._commit([self._alone(id, group)])
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
            self._commit([self._alone(id, [one._replace(act=lambda step: step.fail(ref, story))])])
        except Conflict:
            return [one]
        except StoreError:
            raise
        except Exception as worse:
            self._runs.forget((id,))
            _log.exception("workflow %s, stage %s: put aside", id, ref, exc_info=worse)
            self.put_aside(one.item, worse)
        self._settled([one.item])
        return []

    def write_within(self, connection: Any, one: Settlement) -> Prepared:
        """Write one settlement in a transaction of the caller's; what goes on is for anybody.

        Raises Conflict if the item is somebody else's by now, or others change the workflow all the time.
        """
        acted: list[Advance] = []

        def act(step: Advance) -> None:
            acted.append(step)
            one.act(step)

        id, tries = one.item.workflow, 0
        while self._store.get(ITEM, [one.item.id])[0] == one.item:
            self._runs.forget((id,))
            self._runs.read((id,))
            acted.clear()
            prepared = self._alone(id, [one._replace(act=act)])
            if not acted:
                break  # the stage has ended or begun anew, and wants nothing of it
            try:
                following = self._following((prepared,))
                self._store.commit([*prepared.changes, *following.changes], wake=WAKE, connection=connection)
            except Conflict:
                tries += 1
                if tries == self._tries:
                    raise
                continue
            return prepared
        raise Conflict(f"item {one.item.id} of workflow {id} is not ours any more")

    def put_aside(self, item: ItemRecord, error: Exception) -> None:
        """Nothing can be done with an item: of a workflow that is gone it goes, too; otherwise somebody has to look."""
        gone = self._store.get(WORKFLOW, [item.workflow])[0] is None
        try:
            self._store.commit([Delete(ITEM, item)] if gone else buried(item, error, self._store.now()))
        except Conflict:
            pass  # it is somebody else's by now

    def _present(self, id: str) -> Run:
        run = self._runs.get(id)
        if run is None:
            raise unreadable(id)
        return run

    def _alone(self, id: str, group: list[Settlement]) -> Prepared:
        return self._prepare(self._present(id), group, self._store.now(), _Rooms(self._room, self._owner()))

    def _prepare(self, run: Run, group: list[Settlement], now: int, rooms: _Rooms) -> Prepared:
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
                    shared |= self._items(run, item, step.work[before:], now, changes, kept, rooms)
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
            more, record, records = run.changes(step)
            shared |= bool(step.cleanups)
            others = step if concerns_others(run, step) else None
            return Prepared(run, others, step.events, changes + more, record, records, kept, shared, over)

    def _items(
        self,
        run: Run,
        item: ItemRecord,
        works: Sequence[Work],
        now: int,
        changes: list[Change],
        kept: list[ItemRecord],
        rooms: _Rooms,
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
        for number, work in enumerate(works):
            ref, at, delay = work.ref, work.at, work.delay
            type = "" if work.waits else run.blueprint.plan.stages[ref].tasks[at].type
            had = taken.get(type, 0)
            mine = not held and delay is not None and delay <= 0 and rooms[type] > had
            due = None if mine or delay is None else now + round(delay * 1e6)
            taken[type] = had + mine
            shared |= not mine
            again = number == 0 and ref == item.ref and at == item.at
            next = ITEM.make((
                item.id if number == 0 else new_record_id(now), item.version + 1 if number == 0 else 1,
                None if held else due, item.queue, item.priority, work.kind, type, rooms.owner if mine else None,
                item.workflow, ref, run.stage(ref).incarnation, at, item.attempt + work.costs if again else 1, 0,
                due if held else None, item.code,
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
        for signal in self._store.page(SIGNAL, equal(workflow=run.id), by="id", limit=1000):
            if wait.takes(signal.name) and meant_for(signal) in (None, stage.plan.ref):
                del step.work[before:]
                step.resume(stage.plan.ref, signal.name, from_json(signal.value))
                return [Delete(SIGNAL, signal)]
        return []

    def _following(self, steps: Iterable[Prepared]) -> Following:
        """What steps mean to other workflows. Raises Conflict as `follow` does."""
        others = [(one.run, one.step) for one in steps if one.step is not None]
        return follow(self._store, self._runs.blueprints, others, self._store.now()) if others else NOTHING

    def _commit(self, steps: list[Prepared]) -> None:
        changes = [change for step in steps for change in step.changes]
        if not changes:
            return
        following = self._following(steps)
        changes += following.changes
        shared = following.changes or any(step.shared for step in steps)
        wake = WAKE if shared else ENDED if any(step.over for step in steps) else None
        self._store.commit(in_order(changes), wake=wake)
        for blueprint in following.blueprints:
            self._runs.blueprints.add(blueprint)
        handed: list[tuple[ItemRecord, Run]] = []
        for step in steps:
            step.run.stored(step.record, step.records)
            self._stored.append((step.run, step.events))
            if step.over:
                self._runs.forget((step.run.id,))
                self._over.append(step.record)
            elif step.kept:
                self._runs.add(step.run)
            handed += [(item, step.run) for item in step.kept]
        self._hand_out(handed)


def unreadable(id: str) -> LookupError:
    return LookupError(f"workflow {id}, or its definition, cannot be read")


def in_order(changes: list[Change]) -> list[Change]:
    """Changes of several workflows by their form: what is of one form goes in one statement."""
    forms: defaultdict[tuple[str, type[Change]], list[Change]] = defaultdict(list)
    for change in changes:
        forms[change.kind.name, type(change)].append(change)
    return [change for form in sorted(forms, key=_form) for change in forms[form]]


def _form(form: tuple[str, type[Change]]) -> tuple[str, str]:
    return form[0], form[1].__name__


def _is_over(run: Run, item: ItemRecord) -> bool:
    """Whether there is nothing to do any more in its workflow."""
    return run.state.status in COMPLETE and item.kind != RETRY


def _is_stale(item: ItemRecord, step: Advance) -> bool:
    """Whether the stage has ended, or begun anew, since the item was made."""
    if item.kind in CONTROL:
        return False
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


def refs_of(items: Iterable[ItemRecord]) -> dict[str, list[str]]:
    """The stages that items are of, by workflow; some are of a workflow as a whole."""
    found: dict[str, list[str]] = {}
    for item in items:
        refs = found.setdefault(item.workflow, [])
        if item.ref:
            refs.append(item.ref)
    return found
