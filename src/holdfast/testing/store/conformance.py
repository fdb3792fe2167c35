"""The whole suite in one class."""

from __future__ import annotations

from holdfast.testing.store.claim import ClaimConformance
from holdfast.testing.store.commit import CommitConformance
from holdfast.testing.store.get import GetConformance
from holdfast.testing.store.page import PageConformance
from holdfast.testing.store.sharing import SharingConformance
from holdfast.testing.store.sweep import SweepConformance
from holdfast.testing.store.tally import TallyConformance


class StoreConformance(
    GetConformance,
    CommitConformance,
    ClaimConformance,
    PageConformance,
    TallyConformance,
    SweepConformance,
    SharingConformance,
):
    """What every store must do. Subclass it in a test file and provide the fixture `store`: see the package."""
