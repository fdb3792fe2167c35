"""One change of many entries: some at a time, and where one of them is refused, those one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from holdfast.errors import ConfigurationError
from holdfast.outbox.entry import OutboxEntry

AT_A_TIME: Final = 500
Act = Callable[[Sequence[UUID]], Sequence[OutboxEntry]]
"""`requeue`, `cancel` or `verify_again` of an outbox."""


@dataclass(slots=True)
class Outcome:
    """How far a change of many entries came."""

    matched: int
    changed: int = 0
    refused: dict[UUID, str] = field(default_factory=dict)
    is_interrupted: bool = False

    @property
    def passed_over(self) -> int:
        """Those that were in another status when it was their turn."""
        return self.matched - self.changed - len(self.refused)


def change_many(
    act: Act, ids: Sequence[UUID], outcome: Outcome, *, told: Callable[[int], object] = lambda number: None
) -> Outcome:
    """Do it to all of them; what is refused does not keep the rest. `told` how many were seen, after each part."""
    for start in range(0, len(ids), AT_A_TIME):
        some = ids[start : start + AT_A_TIME]
        try:
            outcome.changed += len(act(some))
        except ConfigurationError:
            _change_singly(act, some, outcome)
        told(start + len(some))
    return outcome


def _change_singly(act: Act, ids: Sequence[UUID], outcome: Outcome) -> None:
    for id in ids:
        try:
            outcome.changed += len(act([id]))
        except ConfigurationError as error:
            outcome.refused[id] = str(error)
