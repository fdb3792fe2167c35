"""The dead letters of a store: every method, written once over the verbs of `store/port.py`."""

from __future__ import annotations

from holdfast.letters.attempts import Attempts
from holdfast.letters.filing import Filing
from holdfast.letters.retention import Retention
from holdfast.letters.searching import Searching
from holdfast.letters.statistics import Statistics
from holdfast.letters.summaries import Summaries


class FailedOperationRepository(Filing, Attempts, Retention, Summaries, Statistics, Searching):
    """Dead letters on any store, with the same semantics on each.

    Every change is one transaction. Ids that are not stored, of whatever type, give None, False or 0. What is handed in
    and out are copies. `clock` replaces the store's own time, for tests. A store that cannot be reached raises
    StoreUnavailable.
    """
