"""What a worker has: the items that are its own, and the calls of them, which wait for a slot or run."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count

from holdfast.workflows.calling import Call
from holdfast.workflows.execution import BulkheadLimits
from holdfast.workflows.records import ItemRecord


class AtHand:
    """`held` has the types of the items that are ours, `ready` the calls that wait, `running` those that have begun;
    whoever changes one of these holds the lock."""

    def __init__(self, limits: BulkheadLimits) -> None:
        self._limits = limits
        self.lock = threading.Lock()
        self._quiet = threading.Condition(self.lock)
        self.held: dict[tuple[str, int], str] = {}
        self._reservations = count()
        self.count: Counter[str] = Counter()
        self._suspects: Counter[str] = Counter()
        self.ready: dict[str, deque[Call]] = {}
        self.running: dict[tuple[str, int], Call] = {}
        self.broken: list[ItemRecord] = []
        """What an interrupt has broken off."""
        self.is_closed = False
        """Whether nothing more is to begin."""

    @property
    def busy(self) -> int:
        """How many items are here: running, waiting, or not written down yet."""
        return len(self.held)

    def suspicion(self, item: ItemRecord) -> int:
        """How much room an item takes of what there is for those that dead workers had. When a worker dies, all that it
        has count as crashed; the more often one has, the fewer others are beside it, until it is alone: so a task that
        kills its workers is found out, and takes nobody along."""
        if not item.crashes or not item.type:
            return 0
        return min(self._limits.get_bulkhead(item.type).max_concurrent, 1 << 2 * (item.crashes - 1))

    def suspects_room(self, type: str) -> int:
        """How much of that room is free."""
        return self._limits.get_bulkhead(type).max_concurrent - self._suspects[type] if type else 0

    def holds(self, item: ItemRecord) -> bool:
        return (item.id, item.version) in self.held

    def hold(self, items: Iterable[ItemRecord]) -> None:
        """These are ours now."""
        with self.lock:
            for item in items:
                key = (item.id, item.version)
                if key not in self.held:
                    self.held[key] = item.type
                    self.count[item.type] += 1
                    if item.crashes:
                        self._suspects[item.type] += self.suspicion(item)

    @contextmanager
    def reserved(self) -> Iterator[None]:
        """Something is about to be ours: nobody takes us for idle meanwhile."""
        key = ("", next(self._reservations))
        with self.lock:
            self.held[key] = ""
        try:
            yield
        finally:
            with self.lock:
                del self.held[key]
                if not self.held:
                    self._quiet.notify_all()

    def let_go(self, items: Iterable[ItemRecord]) -> None:
        """These are not ours any more: settled, given back, or lost."""
        with self.lock:
            for item in items:
                type = self.held.pop((item.id, item.version), None)
                if type is not None:
                    self.count[type] -= 1
                    if item.crashes:
                        self._suspects[type] -= self.suspicion(item)
            if not self.held:
                self._quiet.notify_all()

    def running_since(self, at: float) -> list[ItemRecord]:
        """The items whose calls began before that."""
        with self.lock:
            return [call.item for call in self.running.values() if call.began_at <= at]

    def running_for(self, workflow: str) -> list[ItemRecord]:
        """The items of a workflow whose calls have begun."""
        with self.lock:
            return [call.item for call in self.running.values() if call.item.workflow == workflow]

    def lose(self) -> list[ItemRecord]:
        """Nothing that is here is ours any more; gives what ran, or waited to. What runs is not asked to stop yet."""
        with self.lock:
            lost = [call.item for call in self.running.values()]
            lost += [call.item for waiting in self.ready.values() for call in waiting]
            self.ready.clear()
            self.held = {key: type for key, type in self.held.items() if not key[0]}
            self.count.clear()
            self._suspects.clear()
            self._quiet.notify_all()
        return lost

    def drop_waiting(self) -> list[ItemRecord]:
        """Take back what has not begun, and what an interrupt has broken off; they are still held."""
        with self.lock:
            dropped = [call.item for waiting in self.ready.values() for call in waiting] + self.broken
            self.ready.clear()
            self.broken = []
        return dropped

    def wait_idle(self, timeout: float) -> bool:
        """Wait until nothing is here; False when it takes longer, in real seconds."""
        with self._quiet:
            return self._quiet.wait_for(lambda: not self.held, timeout)
