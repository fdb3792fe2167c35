"""The contenders of our environment: Holdfast, Holdfast with much in its tables, and the floor."""

from functools import partial

from benchmarks.bench import Makers
from benchmarks.outbox.floor import FLOORS, SessionFloor
from benchmarks.outbox.grown import Grown
from benchmarks.outbox.ours import Ours
from benchmarks.outbox.rows import GROWING, SERVERS, TITLES
from benchmarks.outbox.setup import Setup


def contenders(setup: Setup) -> Makers:
    made: Makers = {}
    for store in TITLES:
        made[store] = {"ours": partial(Ours, setup, store), "floor": partial(FLOORS[store], setup, store)}
        if store in SERVERS:
            made[store]["session"] = partial(SessionFloor, setup, store)
        if store in GROWING:
            made[store] |= {label(size): partial(Grown, setup, store, size) for size in setup.sizes}
    return made


def label(size: int) -> str:
    return f"{size:,}"
