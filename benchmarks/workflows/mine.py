"""The contenders of our environment: Holdfast, Holdfast with more and more of everything, and the floors."""

from functools import partial

from benchmarks.bench import Makers
from benchmarks.workflows.floor import FLOORS, GroupFloor
from benchmarks.workflows.grown import Fan, Kept
from benchmarks.workflows.ours import Ours
from benchmarks.workflows.setup import Setup, label


def contenders(setup: Setup, store: str) -> Makers:
    made: Makers = {store: {}}
    made[store]["ours"] = partial(Ours, setup, store)
    made[store]["floor"] = partial(FLOORS[store], setup, store)
    made[store]["group floor"] = partial(GroupFloor, setup, store)
    made[store] |= {f"{label(size)} wide": partial(Fan, setup, store, size) for size in setup.fans}
    made[store] |= {f"{label(size)} kept": partial(Kept, setup, store, size) for size in setup.kept}
    return made
