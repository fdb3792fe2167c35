"""The contenders of our environment: Holdfast, and the floor."""

from functools import partial
from typing import Any

from benchmarks.store.floor_redis import RedisFloor
from benchmarks.store.floor_sql import BareTable, RawRows, SqlFloor
from benchmarks.store.ours import Ours, Unshared
from benchmarks.store.rows import TITLES
from benchmarks.store.setup import Setup


def contenders(setup: Setup) -> dict[str, dict[str, "partial[Any]"]]:
    made: dict[str, dict[str, partial[Any]]] = {}
    for store in TITLES:
        made[store] = {"ours": partial(Ours, setup, store)}
        if store != "memory":
            made[store]["floor"] = partial(RedisFloor if store == "redis" else SqlFloor, setup, store)
            if store != "redis":
                made[store]["raw"] = partial(RawRows, setup, store)
            if store.startswith("postgres"):
                made[store]["bare"] = partial(BareTable, setup, store)
            made[store]["grown"] = partial(Ours, setup, store, "grown")
            made[store]["unshared"] = partial(Unshared, setup, store)
    return made
