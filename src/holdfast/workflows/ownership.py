"""What is a worker's own, here and in the store: either may have changed without the other, and the store is right."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from holdfast.errors import Conflict
from holdfast.store.paging import every
from holdfast.store.port import Store, Swap
from holdfast.store.query import equal
from holdfast.store.record import evolve
from holdfast.workflows.claiming import MOST_CLAIMED
from holdfast.workflows.cleaning import Cleaning
from holdfast.workflows.handing_out import HandingOut
from holdfast.workflows.hands import Hands
from holdfast.workflows.presence import Presence
from holdfast.workflows.records import ITEM, ItemRecord
from holdfast.workflows.settling import WAKE, Settling

LONG_S: Final = 1.0
"""A call that runs longer is asked about: it may be cancelled, or not be ours any more."""
_log: Final = logging.getLogger("holdfast")


class Ownership:
    """Of one worker. What it has is in its `hands`, was postponed by `handing_out`, or waits in `cleaning`."""

    def __init__(
        self,
        store: Store,
        presence: Presence,
        settling: Settling,
        hands: Hands,
        handing_out: HandingOut,
        cleaning: Cleaning,
    ) -> None:
        self._store = store
        self._presence = presence
        self._settling = settling
        self._hands = hands
        self._at_hand = hands.at_hand
        self._handing_out = handing_out
        self._cleaning = cleaning
        self.in_doubt = False
        """Whether something may be ours that is not here: the store could not say what it did."""

    def renew(self, *, only_if_due: bool = False) -> bool:
        """Show that we live. Who was declared dead drops everything that he has, and goes on as somebody else."""
        before = self._presence.id
        if self._presence.be_there() if only_if_due else self._presence.show():
            return True
        with self._settling.writing:
            lost = self._at_hand.lose()
            self._handing_out.postponed.clear()
            self._cleaning.drop_waiting()
            # What was written under the old name since it was taken from us.
            self._presence.take_from(before, crashed=False)
        self._hands.cut("another worker has it", lost)
        _log.warning("workflows: worker %s was declared dead; %s items are somebody else's now", before, len(lost))
        return False

    def find_lost(self) -> None:
        """A claim or a commit may have been made without our hearing of it: what is ours in the store, is it here?"""
        with self._settling.writing:
            ours = every(self._store, ITEM, equal(owner=self._presence.id))
            lost = [item for item in ours if not self._at_hand.holds(item)]
            self._at_hand.hold(lost)
            self._handing_out.postponed += lost
        self.in_doubt = False

    def cut_lost(self, at: float) -> None:
        """Tasks that have run for a while and are not wanted any more: cancelled by somebody, or not ours."""
        self.cut_gone(self._at_hand.running_since(at - LONG_S)[:MOST_CLAIMED], "its workflow goes on without it")

    def cut_gone(self, items: Sequence[ItemRecord], reason: str) -> None:
        """Ask the tasks of these items to stop, where the store has other items now, or none."""
        if items:
            found = self._store.get(ITEM, [item.id for item in items])
            self._hands.cut(reason, [item for item, one in zip(items, found, strict=True) if one != item])

    def give_back(self) -> None:
        """What has not begun is anybody's."""
        items = [*self._at_hand.drop_waiting(), *self._cleaning.drop_waiting(), *self._handing_out.postponed]
        self._handing_out.postponed = []
        while items:
            item = items[-1]
            try:
                free = evolve(item, owner=None, due_at=self._store.now())
                self._store.commit([Swap(ITEM, item, free)], wake=WAKE)
            except Conflict:
                pass  # it is somebody else's by now
            except BaseException:
                self._handing_out.postponed += items
                raise
            self._at_hand.let_go((items.pop(),))
