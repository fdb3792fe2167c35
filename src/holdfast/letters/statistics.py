"""Counts of letters, all from maintained counters: they cost the same for a hundred letters and a million."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from holdfast.letters.desk import Desk
from holdfast.letters.values import HOUR, sought
from holdfast.machine.dead_letter import LETTER, PENDING
from holdfast.store.codec import micros
from holdfast.store.query import Condition, equal


class Statistics(Desk):
    def get_statistics(self) -> dict[str, Any]:
        """`total`, `by_status`, `by_domain`, `pending_by_domain` and `pending_by_domain_and_failure_type`."""
        by_status: Counter[str] = Counter()
        by_domain: Counter[str] = Counter()
        pending: Counter[str] = Counter()
        detailed: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for (status, domain, failure_type), number in self.store.tally(LETTER, LETTER.tally).items():
            by_status[status] += number
            by_domain[domain] += number
            if status == PENDING:
                pending[domain] += number
                detailed[domain][failure_type] = number
        return {
            "total": by_status.total(),
            "by_status": dict(by_status),
            "by_domain": dict(by_domain),
            "pending_by_domain": dict(pending),
            "pending_by_domain_and_failure_type": dict(detailed),
        }

    def get_facet_counts(self, *, status: str | None = None, domain: str | None = None) -> dict[str, dict[str, int]]:
        """`by_status` within the domain and `by_domain` within the status: a choice keeps its own alternatives."""
        counts = self.store.tally(LETTER, ("status", "domain"))
        if status is None and domain is None:
            by_status: dict[str, int] = {}
            by_domain: dict[str, int] = {}
            for (one, other), number in counts.items():
                by_status[one] = by_status.get(one, 0) + number
                by_domain[other] = by_domain.get(other, 0) + number
            return {"by_status": by_status, "by_domain": by_domain}
        chosen_status = None if status is None else sought("status", status)
        chosen_domain = None if domain is None else sought("domain", domain)
        of_domain = {key: number for key, number in counts.items() if chosen_domain in (None, key[1])}
        of_status = {key: number for key, number in counts.items() if chosen_status in (None, key[0])}
        return {"by_status": _summed(of_domain, 0), "by_domain": _summed(of_status, 1)}

    def inflow(self, domain: str | None = None, since: datetime | None = None, until: datetime | None = None) -> int:
        """How many letters ever came in, whatever became of them; by whole hours, both ends included."""
        where = [] if domain is None else list(equal(domain=sought("domain", domain)))
        if since is not None:
            where.append(Condition("hour", ">=", micros(since) // HOUR))
        if until is not None:
            where.append(Condition("hour", "<=", micros(until) // HOUR))
        return sum(self.store.tally(LETTER, (), tuple(where), arrivals=True).values())


def _summed(counts: Mapping[tuple[Any, ...], int], at: int) -> dict[str, int]:
    """The counts by the value at this place."""
    totals: dict[str, int] = {}
    for values, number in counts.items():
        value = values[at]
        totals[value] = totals.get(value, 0) + number
    return totals
