"""Taking what is due: of the types that there is room for, as often as their rates allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from holdfast.core.clock import Clock
from holdfast.store.port import Store
from holdfast.store.query import Condition, among, equal
from holdfast.workflows.at_hand import AtHand
from holdfast.workflows.presence import Presence
from holdfast.workflows.rates import Rates
from holdfast.workflows.records import ITEM, ItemRecord
from holdfast.workflows.turns import Turns

PRIORITIES: Final = (1, 0, -1)
MOST_CLAIMED: Final = 500
NO_ROOM: Final = -(1 << 30)
"""Where nothing is wanted of a type, whatever ends."""


class Claiming:
    """`room` says how many more items of a type we want; `renew` shows that we live, and says whether we do."""

    def __init__(
        self,
        store: Store,
        at_hand: AtHand,
        presence: Presence,
        rates: Rates,
        *,
        queues: Sequence[str],
        versions: Sequence[str] | None,
        room: Callable[[str], int],
        renew: Callable[[], bool],
        idle_s: float,
        clock: Clock,
    ) -> None:
        self._store = store
        self._at_hand = at_hand
        self._presence = presence
        self._rates = rates
        self._turns = Turns(store, clock)
        self._queues = queues
        self._served = () if versions is None else (among("code", tuple(versions)),)
        self._room = room
        self._renew = renew
        self._idle_s = idle_s
        self.is_full = False
        """Whether something may be due that there was no room for."""
        self.was_late = False
        """Whether others have taken what was due."""

    def claim(self, known: Sequence[str]) -> tuple[list[ItemRecord], float]:
        """Take what is due, of these types. The items, and in how many seconds the next one is due."""
        rooms = {type: room for type in known if (room := self._room(type)) > 0}
        self.is_full, self.was_late = len(rooms) < len(known), False
        first, items = self._idle_s, list[ItemRecord]()
        suspects = {type: self._at_hand.suspects_room(type) for type in rooms}
        for queue in self._queues:
            wait = self._wait_for(rooms, queue, PRIORITIES)
            if wait <= 0 and self._renew():
                for priority in PRIORITIES:
                    items += self._take(rooms, suspects, queue, priority)
                # What was refused is due, and is asked for again when something has ended.
                wait = self._idle_s if self.is_full else self._wait_for(rooms, queue, PRIORITIES)
            first = min(first, max(0.001, wait))
        self.is_full |= len(rooms) < len(known)
        return items, first

    def _wait_for(self, rooms: Mapping[str, int], queue: str, priorities: Sequence[int]) -> float:
        """In how many seconds something is due that there is room for, and that its rate lets begin."""
        waits = {type: self._rates.wait(queue, type) for type in rooms}
        free = tuple(type for type, wait in waits.items() if not wait)
        later = min((wait for wait in waits.values() if wait), default=self._idle_s)
        if not free:
            return later
        where = (*equal(queue=queue), among("priority", priorities), among("type", free), *self._served)
        next = self._store.page(ITEM, where, by="due_at", limit=1)
        return min(later, ((next[0].due_at or 0) - self._store.now()) / 1e6) if next else later

    def _take(self, rooms: dict[str, int], suspects: dict[str, int], queue: str, priority: int) -> list[ItemRecord]:
        """Claim what is due, type by type in the order of the first that waits; `rooms` is what is left of them then.

        For all types at once a claim would read on and on past those that there is no room for."""
        taken: list[ItemRecord] = []

        def take(item: ItemRecord) -> ItemRecord | None:
            suspicion = self._at_hand.suspicion(item)
            if suspicion > suspects[item.type]:
                self.is_full = True
                return None
            suspects[item.type] -= suspicion
            return ITEM.changed(item, {"owner": self._presence.id, "due_at": None, "version": item.version + 1})

        types = [type for type in rooms if not self._rates.wait(queue, type)]
        while types:
            due = (*equal(queue=queue, priority=priority), Condition("due_at", "<=", self._store.now()), *self._served)
            next = self._store.page(ITEM, (*due, among("type", types)), by="due_at", limit=1)
            if not next:
                break
            type = next[0].type
            limit = self._rates.take(queue, type, min(MOST_CLAIMED, rooms[type]))
            if not limit:
                types.remove(type)
                continue
            where = (*due, Condition("type", "=", type))
            found = self._turns.claim((queue, priority, type), where, take, limit)
            self._rates.give_back(queue, type, limit - len(found))
            self.was_late = self.was_late or not found
            taken += found
            rooms[type] -= len(found)
            if len(found) < limit or rooms[type] <= 0:
                types.remove(type)  # there are no more of it, others are as quick, or it has no room left
            if rooms[type] <= 0:
                del rooms[type]
        return taken
