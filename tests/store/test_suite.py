"""The public suite itself: it passes a good store as its documentation says, and each broken one fails."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

QUIET = ("-p", "no:cacheprovider", "-p", "no:asyncio")
USE = """
import pytest
from holdfast.backends.memory import MemoryStore
from holdfast.errors import Conflict
from holdfast.store.port import Delete, Insert, Swap
from holdfast.testing.store import CONFORMANCE_KINDS, StoreConformance

{store}

class TestMyStore(StoreConformance):
    @pytest.fixture
    def store(self):
        store = MyStore()
        yield store
        store.close()
"""

# The fault, a word of the tests that must notice it, and the store.
BROKEN = {
    ("makes a part of the changes", "all_changes"): """
class MyStore(MemoryStore):
    def commit(self, changes, **options):
        for change in changes:
            super().commit([change], **options)
""",
    ("takes any version", "past"): """
class MyStore(MemoryStore):
    def commit(self, changes, **options):
        now = {c: self.get(c.kind, (c.old.id,))[0] for c in changes if isinstance(c, Swap)}
        super().commit([Swap(c.kind, now[c] or c.old, c.new) if c in now else c for c in changes], **options)
""",
    ("names the first loss only", "named"): """
class MyStore(MemoryStore):
    def commit(self, changes, **options):
        try:
            super().commit(changes, **options)
        except Conflict as lost:
            raise Conflict(lost.detail, lost.lost[:1])
""",
    ("claims without holding", "many_claimers"): """
class MyStore(MemoryStore):
    def claim(self, kind, where, decide, *, by="due_at", limit):
        found = [(one, decide(one)) for one in self.page(kind, where, by=by, limit=limit)]
        for old, new in found:
            if new is not None:
                try:
                    self.commit([Swap(kind, old, new)])
                except Conflict:
                    pass
        return [new for _, new in found if new is not None]
""",
    ("sweeps without a new version", "sweep"): """
class MyStore(MemoryStore):
    def sweep(self, kind, where, change=None, *, by="id", limit=None):
        if change is None:
            return super().sweep(kind, where, by=by, limit=limit)
        found = self.page(kind, where, by=by, limit=10**9 if limit is None else limit)
        self.commit([Swap(kind, one, one._replace(**change)) for one in found])
        return len(found)
""",
    ("orders as people do", "code_points"): """
class MyStore(MemoryStore):
    def page(self, kind, where=(), *, by="id", descending=False, after=None, offset=0, limit=100):
        found = super().page(kind, where, by=by, descending=descending, after=after, offset=offset, limit=limit)
        if by != "label":
            return found
        return sorted(found, key=lambda one: (one.label.lower(), one.id), reverse=descending)
""",
    ("counts arrivals that have left", "arrivals"): """
class MyStore(MemoryStore):
    def tally(self, kind, by=(), where=(), *, arrivals=False):
        return super().tally(kind, by, where)
""",
    ("forgets when closed", "closed"): """
class MyStore(MemoryStore):
    def close(self):
        self._tables.clear()
""",
    ("confuses nothing with none", "none_is_neither"): """
class MyStore(MemoryStore):
    def get(self, kind, ids):
        return [one and kind.make([None if value == "" else value for value in one]) for one in super().get(kind, ids)]
""",
}


def test_a_good_store_passes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(USE.format(store="MyStore = MemoryStore"))
    outcomes = pytester.runpytest_inprocess("-q", *QUIET).parseoutcomes()
    assert outcomes.keys() == {"passed", "skipped"}
    assert outcomes["skipped"] == 3  # what needs a second store


@pytest.mark.parametrize(("fault", "sentence"), BROKEN, ids=[fault for fault, _ in BROKEN])
def test_a_broken_store_fails(pytester: pytest.Pytester, fault: str, sentence: str) -> None:
    pytester.makepyfile(USE.format(store=BROKEN[fault, sentence]))
    result = pytester.runpytest_inprocess("-q", "-k", sentence, *QUIET)
    assert result.parseoutcomes().get("failed", 0) >= 1
