"""How things stand, as the store tells it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.app import Holdfast
from holdfast.machine.outbox_entry import OutboxStatus

_WAITING: Final = (OutboxStatus.PENDING, OutboxStatus.IN_FLIGHT, OutboxStatus.FAILED, OutboxStatus.SCHEDULED)
_UNFINISHED: Final = ("pending", "replaying")
_MOST_SAGAS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Standing:
    """Breakers by name; letters, entries of the outbox, and workflows by status."""

    breakers: Mapping[str, str]
    letters: Mapping[str, int]
    entries: Mapping[str, int]
    workflows: Mapping[str, int]

    @property
    def letters_waiting(self) -> int:
        return sum(self.letters.get(status, 0) for status in _UNFINISHED)

    @property
    def letters_kept(self) -> int:
        return sum(self.letters.values())

    @property
    def entries_waiting(self) -> int:
        return sum(self.entries.get(status, 0) for status in _WAITING)

    @property
    def entries_done(self) -> int:
        return self.entries.get(OutboxStatus.SUCCEEDED, 0)


def standing(hold: Holdfast) -> Standing:
    """As the store has it now."""
    return Standing(
        {one.service_name: str(one.state) for one in hold.breakers.get_all_states()},
        hold.letters.get_facet_counts()["by_status"],
        {str(status): number for status, number in hold.outbox.status_counts().items()},
        {str(status): number for status, number in hold.workflows.counts().items()},
    )


def sagas(hold: Holdfast) -> Mapping[str, int]:
    """How many sagas there are of each state."""
    return Counter(str(saga.state) for saga in hold.sagas.find(limit=_MOST_SAGAS))
