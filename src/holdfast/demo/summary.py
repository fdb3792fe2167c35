"""What the story came to, as the store and the books outside tell it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from holdfast.demo.stage import Stage
from holdfast.demo.standing import sagas, standing


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures. `charged_twice` and `never_charged` are orders, by the bank's book."""

    seconds: float
    orders: int
    lost: int
    charged: int
    charged_twice: int
    never_charged: int
    letters: Mapping[str, int]
    entries: Mapping[str, int]
    sagas: Mapping[str, int]
    workflows: Mapping[str, int]
    breakers: Mapping[str, str]

    def rows(self) -> list[tuple[str, str]]:
        """The summary, line by line."""
        return [
            ("orders that customers placed", f"{self.orders}"),
            ("charged by the bank / twice / never", f"{self.charged} / {self.charged_twice} / {self.never_charged}"),
            ("lost", f"{self.lost}"),
            ("dead letters", _counts(self.letters)),
            ("entries of the outbox", _counts(self.entries)),
            ("sagas", _counts(self.sagas)),
            ("workflows", _counts(self.workflows)),
            ("breakers", ", ".join(f"{name} {state}" for name, state in sorted(self.breakers.items()))),
        ]

    def document(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def summed_up(stage: Stage, seconds: float) -> Summary:
    """The figures as they are now."""
    hold, placed = stage.shop.hold, stage.customers.placed
    stands, charged = standing(hold), stage.shop.outside.times_done("charge")
    return Summary(
        seconds=round(seconds, 1),
        orders=len(placed),
        lost=len(stage.customers.lost),
        charged=len(charged),
        charged_twice=sum(times > 1 for times in charged.values()),
        never_charged=len(placed - set(charged)),
        letters=dict(stands.letters),
        entries={status: number for status, number in stands.entries.items() if number},
        sagas=dict(sagas(hold)),
        workflows=dict(stands.workflows),
        breakers=dict(stands.breakers),
    )


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {status.lower()}" for status, number in sorted(counts.items()) if number) or "none"
