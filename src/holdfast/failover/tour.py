"""One call's way through a pool: where it has been, and which endpoints its next attempt may go to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

M = TypeVar("M")


class Tour(Generic[M]):
    """A call makes `per_endpoint` attempts at an endpoint, then goes to one it has visited least.

    So every endpoint has its turn before one is visited again. At most `limit` different ones are used (None: all).
    """

    __slots__ = ("__weakref__", "_per_endpoint", "_stayed", "current", "limit", "recorded", "rounds", "visits")

    def __init__(self, per_endpoint: int = 1, limit: int | None = None) -> None:
        self.limit = limit
        self.visits: dict[M, int] = {}
        self.current: M | None = None
        self.rounds = 0  # visits begun; the first attempt's is round 0
        self.recorded = 0  # attempts told to whoever keeps records
        self._per_endpoint = per_endpoint
        self._stayed = 0

    @property
    def fresh(self) -> bool:
        """Whether the call has made no attempt yet."""
        return self.rounds == 0

    @property
    def stays(self) -> bool:
        """Whether the next attempt is for the same endpoint, if that may be called."""
        return self.current is not None and self._stayed < self._per_endpoint

    def allowed(self, members: Sequence[M]) -> Sequence[M]:
        """The members that this call may use."""
        if self.limit is None or len(self.visits) < self.limit:
            return members
        return [member for member in members if member in self.visits]

    def least_visited(self, members: Iterable[M]) -> set[M]:
        """Those whose turn it is; the one just left is among them only if there is no other."""
        usable = list(members)
        fewest = min((self.visits.get(member, 0) for member in usable), default=0)
        turn = {member for member in usable if self.visits.get(member, 0) == fewest}
        return turn - {self.current} or turn

    def arrive(self, member: M) -> None:
        """Note where the next attempt goes."""
        if member is self.current and self.stays:
            self._stayed += 1
            return
        self.visits[member] = self.visits.get(member, 0) + 1
        self.current = member
        self.rounds += 1
        self._stayed = 1
