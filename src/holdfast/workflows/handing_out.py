"""Having items done that are ours: some are calls, of some it is known at once what follows from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from holdfast.errors import StoreError, TaskError
from holdfast.machine.restart import retry
from holdfast.machine.run import Advance, Work
from holdfast.machine.workflow import COMPLETE, WorkflowStatus
from holdfast.store.port import Store
from holdfast.workflows.burial import MESSAGES
from holdfast.workflows.calling import Call
from holdfast.workflows.children import joining
from holdfast.workflows.cleaning import Cleaning
from holdfast.workflows.following import CANCEL, CONTROL, JOIN
from holdfast.workflows.hands import Hands
from holdfast.workflows.items import HELD
from holdfast.workflows.preparing import Settlement
from holdfast.workflows.presence import MOST_CRASHES
from holdfast.workflows.readying import Readying
from holdfast.workflows.records import FINALIZE, ItemRecord
from holdfast.workflows.run import Run
from holdfast.workflows.runs import Runs
from holdfast.workflows.settling import Settling, refs_of, unreadable
from holdfast.workflows.story import described


class HandingOut:
    """`attend` comes first: those who have items done are who it gets some from, too. `deliver` does what a message
    asks for."""

    _settling: Settling
    _hands: Hands
    _cleaning: Cleaning

    def __init__(self, store: Store, runs: Runs, readying: Readying, deliver: Callable[[ItemRecord], None]) -> None:
        self._store = store
        self._runs = runs
        self._readying = readying
        self._deliver = deliver
        self.postponed: list[ItemRecord] = []
        """What could not be read when it was to begin."""

    def attend(self, settling: Settling, hands: Hands, cleaning: Cleaning) -> None:
        self._settling, self._hands, self._cleaning = settling, hands, cleaning

    def begin_postponed(self) -> None:
        if self.postponed:
            items, self.postponed = self.postponed, []
            self.begin(items)

    def begin(self, items: list[ItemRecord]) -> None:
        """Read what is needed for items that we hold, and have them done."""
        self._handle([item for item in items if item.kind == MESSAGES])
        items = [item for item in items if item.kind != MESSAGES]
        if not items:
            return
        items.reverse()
        known: list[tuple[ItemRecord, Run]] = []
        try:
            with self._settling.writing:
                self._runs.refresh(item.workflow for item in items)
                self._runs.meet(refs_of(filter(self._is_known, items)).items())
                while items:
                    run = self._runs.get(items[-1].workflow)
                    if run is None or not self._is_known(items[-1]):
                        self._settling.put_aside(
                            items[-1], unreadable(items[-1].workflow, "" if run is None else items[-1].ref)
                        )
                        self._hands.at_hand.let_go((items[-1],))
                    else:
                        run.goes_on = True
                        known.append((items[-1], run))
                    items.pop()
                self.hand_out(known)
                known = []
        finally:
            self.postponed += items
            self.postponed += [item for item, _ in known]
            if self._settling.waits:
                self._hands.nudge()

    def _is_known(self, item: ItemRecord) -> bool:
        """Whether it is of a workflow that is here, and of a stage that this one has."""
        run = self._runs.get(item.workflow)
        return run is not None and (not item.ref or run.blueprint.has(item.ref))

    def _handle(self, items: list[ItemRecord]) -> None:
        """Do what messages ask for."""
        try:
            while items:
                self._deliver(items[0])
                self._hands.at_hand.let_go((items.pop(0),))
        finally:
            self.postponed += items

    def hand_out(self, items: Sequence[tuple[ItemRecord, Run]]) -> None:
        """Called by whoever writes: nobody else changes runs meanwhile."""
        self._hands.at_hand.hold([item for item, _ in items])
        calls: list[Call] = []
        for item, run in items:
            if item.kind in CONTROL:
                self._settling.put(Settlement(item, _cancel if item.kind == CANCEL else _revive))
                continue
            if item.kind == FINALIZE:
                self._cleaning.take(item)
                continue
            if run.state.status in HELD:
                self._settling.put(Settlement(item, partial(_wait_on, item)))
                continue
            if item.kind not in ("run", JOIN):
                self._settling.put(Settlement(item, partial(_fire, item)))
                continue
            try:
                if item.kind == JOIN:
                    run.read(self._store, (item.ref,))
                    ends = joining(self._store, self._runs.blueprints, item.ref, str(run.stage(item.ref).child))
                    self._settling.put(Settlement(item, ends))
                    continue
                if item.crashes >= MOST_CRASHES:
                    raise TaskError(f"{item.crashes} workers died while they ran it")
                calls.append(self._readying.call(item, run))
            except StoreError:
                self.postponed.append(item)
            except Exception as error:
                story = described(error)
                self._settling.put(Settlement(item, partial(_fail, item.ref, story)))
        self._hands.take(calls)


def _wait_on(item: ItemRecord, step: Advance) -> None:
    """Freed while its workflow was paused: it is held like the others."""
    waits = item.kind != "run"
    step.work.append(Work(item.ref, item.at, costs=0, waits=waits, what=item.kind if waits else "wait"))


def _cancel(step: Advance) -> None:
    step.cancel("the stage that has started it does not wait for it any more", "parent")


def _revive(step: Advance) -> None:
    """Go on where it failed; one that cannot tells its parent so."""
    if step.run.status in COMPLETE and step.run.status is not WorkflowStatus.CANCELED:
        retry(step, "parent")


def _fire(item: ItemRecord, step: Advance) -> None:
    step.fire(item.kind, item.ref)


def _fail(ref: str, story: dict[str, Any], step: Advance) -> None:
    step.fail(ref, story)
