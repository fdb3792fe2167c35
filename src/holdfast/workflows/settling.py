"""Writing down what came of tasks: many workflows in one transaction.

Whoever has something to settle puts it here. The first one to come writes, for all who come meanwhile: so a commit
under way collects the next one, and nobody waits for a commit of his own.

What cannot be written in common is written workflow by workflow, then one by one. A settlement that cannot be written
at all fails its task; if not even that can be written, its item is put among the dead ones, and holds up nobody else.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any, Final

from holdfast.errors import Conflict, StoreError
from holdfast.machine.run import Advance, Entry
from holdfast.store.port import Change, Delete, Insert, Store
from holdfast.workflows.beginning import First
from holdfast.workflows.burial import buried
from holdfast.workflows.following import NOTHING, Following, follow
from holdfast.workflows.preparing import Ending, Prepared, Preparing, Rooms, Settlement, Settles
from holdfast.workflows.records import EVENT, ITEM, WORKFLOW, ItemRecord
from holdfast.workflows.run import Run
from holdfast.workflows.runs import Runs
from holdfast.workflows.story import described

WAKE: Final = "workflows"
"""Told when there is something to do for whoever has time."""
ENDED: Final = "workflows.ended"
"""Told when a workflow has ended, and there is nothing to do."""
FEW: Final = 6
"""Changes of one workflow that are stored as they come: to sort them takes longer than a statement for each."""
_TURN_S: Final = 0.1
_log: Final = logging.getLogger("holdfast")


Groups = dict[str, list[Settles]]
Told = tuple[Run, list[Entry]]
"""A workflow, and what its log says of a step."""


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
        told: Callable[[Run], None],
        ending: Ending = lambda run, step: [],
        retries: int = 3,
        stored: Callable[[Iterable[Told]], None] = lambda told: None,
    ) -> None:
        self._store = store
        self._runs = runs
        self._preparing = Preparing(store, runs, may_own=may_own, ending=ending)
        self._tries = retries + 1
        self._owner = owner
        self._room = room
        self._hand_out = hand_out
        self._settled = settled
        self._told = told
        self._report = stored
        self._waiting: deque[Settles] = deque()
        self._new: deque[Beginning] = deque()
        self._later: list[Settles] = []
        self._changed: set[str] = set()
        self._over: list[Run] = []
        self.untold: set[str] = set()
        """The workflows that have ended, of which `told` has yet to hear."""
        self._stored: list[Prepared] = []
        self.writing = threading.Lock()
        """Whoever holds it may look at runs and change them."""

    def put(self, settlement: Settles) -> None:
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
        if self._runs.get(workflow) is not None:
            self._changed.add(workflow)

    def has(self, workflow: str) -> bool:
        """Whether it goes on here, as far as we know."""
        run = self._runs.get(workflow)
        return run is not None and run.goes_on and workflow not in self._changed

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
                if stored:
                    self._report((step.run, step.events) for step in stored)
                for run in over:  # tasks that are asked to stop may do something about it: not under our lock
                    # First: who begins to wait after it was told must not take it for one that will be.
                    self.untold.discard(run.id)
                    self._told(run)

    def _write_all(self) -> None:
        for changed in [*self._changed]:  # a copy, as others add to it
            self._runs.forget((changed,))
            self._changed.discard(changed)
        batch: list[Settles] = []
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
            if not self._runs.know_all(groups):
                self._runs.meet(refs_of(one.item for group in groups.values() for one in group).items())
            now, rooms = self._store.now(), Rooms(self._room, self._owner())
            steps = [self._preparing.prepare(self._present(id), group, now, rooms) for id, group in groups.items()]
            if new:
                steps += self._preparing.firsts([first for one in new for first in one.firsts], rooms)
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

    def _write_alone(self, id: str, group: list[Settles]) -> list[Settles]:
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
        self._runs.forget((id,))
        return group

    def _still_ours(self, group: list[Settles]) -> list[Settles]:
        held = self._store.get(ITEM, [one.item.id for one in group])
        lost = [one.item for one, found in zip(group, held, strict=True) if found != one.item]
        self._settled(lost)  # they are somebody else's by now, and so is what comes of them
        return [one for one, found in zip(group, held, strict=True) if found == one.item]

    def _give_up(self, one: Settles, error: Exception) -> list[Settles]:
        """What a task answered cannot be done: it has failed."""
        id, ref = one.item.workflow, one.item.ref
        story = described(error)
        _log.error("workflow %s, stage %s: %s: %s", id, ref, story["type"], story["message"])
        try:
            self._runs.read((id,))
            self._commit([self._alone(id, [Settlement(one.item, lambda step: step.fail(ref, story))])])
        except Conflict:
            self._runs.forget((id,))
            return [one]
        except StoreError:
            raise
        except Exception as worse:
            self._runs.forget((id,))
            _log.exception("workflow %s, stage %s: put aside", id, ref, exc_info=worse)
            self.put_aside(one.item, worse)
        self._settled([one.item])
        return []

    def write_within(self, connection: Any, one: Settles) -> Prepared:
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
            prepared = self._alone(id, [Settlement(one.item, act)])
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

    def _alone(self, id: str, group: list[Settles]) -> Prepared:
        return self._preparing.prepare(self._present(id), group, self._store.now(), Rooms(self._room, self._owner()))

    def _following(self, steps: Iterable[Prepared]) -> Following:
        """What steps mean to other workflows. Raises Conflict as `follow` does."""
        others = [(one.run, one.step) for one in steps if one.step is not None]
        return follow(self._store, self._runs.blueprints, others, self._store.now()) if others else NOTHING

    def _commit(self, steps: list[Prepared]) -> None:
        changes: list[Change] = []
        shared = over = concerns = False
        for step in steps:
            changes += step.changes
            shared, over, concerns = shared or step.shared, over or step.over, concerns or step.step is not None
        following = self._following(steps) if concerns else NOTHING
        changes += following.changes
        if not changes:
            return
        if len(steps) > 1 or len(changes) > FEW:
            changes = in_order(changes)
        self._store.commit(changes, wake=WAKE if shared or following.changes else ENDED if over else None)
        for blueprint in following.blueprints:
            self._runs.blueprints.add(blueprint)
        handed: list[tuple[ItemRecord, Run]] = []
        self._stored += steps
        for step in steps:
            run = step.run
            run.stored(step.record, step.rows)
            if step.over:
                self.untold.add(run.id)
                self._runs.forget((run.id,))
                self._over.append(run)
            elif step.kept:
                self._runs.add(run)
                run.goes_on = True
            elif step.shared or step.step is not None:  # what comes next is for anybody, or in another workflow
                run.goes_on = False
            handed += zip(step.kept, repeat(run), strict=False)
        if handed:
            self._hand_out(handed)


def unreadable(id: str, ref: str = "") -> LookupError:
    if ref:
        return LookupError(f"workflow {id} has no stage {ref!r}")
    return LookupError(f"workflow {id}, or its definition, cannot be read")


def in_order(changes: list[Change]) -> list[Change]:
    """Changes of several workflows by their form: what is of one form goes in one statement. Their logs come first, in
    the order of their ids: whoever waits for another one's number holds none that is waited for the other way round."""
    forms: defaultdict[tuple[str, type[Change]], list[Change]] = defaultdict(list)
    for change in changes:
        forms[change.kind.name, type(change)].append(change)
    ordered = sorted(forms.pop((EVENT.name, Insert), ()), key=attrgetter("record.id"))
    for form in sorted(forms, key=_form):
        ordered += forms[form]
    return ordered


def _form(form: tuple[str, type[Change]]) -> tuple[str, str]:
    return form[0], form[1].__name__


def _by_workflow(batch: Iterable[Settles]) -> Groups:
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
