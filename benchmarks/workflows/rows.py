"""What is done with workflows, and the bar each has to reach."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

TITLES = {"postgres": "PostgreSQL", "sqlite": "SQLite"}
BOTH = tuple(TITLES)
GROWTH: Final = 1.2
STEPS: Final = 10
"""Steps of a short workflow."""


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that is done.

    `method` is what a contender must have. The bar: `share` is the least share of the floor's speed, `gains` how many
    times faster than a peer it has to be, by database; `most_ms` is how long it may take. `grows` says that more may
    cost no more than `GROWTH` for each; `limits` bounds what is counted.
    """

    key: str
    title: str
    method: str
    stores: tuple[str, ...] = BOTH
    share: float | None = None
    gains: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    most_ms: Mapping[str, float] = field(default_factory=dict)
    grows: bool = False
    counted: tuple[str, ...] = ()
    limits: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    most: int = 1


STEP_ROWS = (
    Row("chain", "a step of one long workflow", "chain", share=0.5, gains={"dbos": {"postgres": 5, "sqlite": 5}}),
    Row("crowd", "a step of 200 workflows at once", "crowd", gains={"dbos": {"postgres": 15, "sqlite": 40}}),
)
WHOLE_ROWS = (
    Row("latency", "a workflow of 10 steps", "latency", gains={"dbos": {"postgres": 5, "sqlite": 5}}),
    Row("fan", "out to 100 and in again", "fan", most_ms={"postgres": 40, "sqlite": 15}),
    Row("start", "start, one by one", "start"),
    Row("start-many", "start, 200 together", "start_many"),
)
GROWN_ROWS = (
    Row("wide", "an upstream of one join", "wide", grows=True),
    Row("kept", "a workflow, with so many done", "kept", grows=True),
)
COUNTED_ROWS = (
    Row(
        "chain-counts", "per step of one long workflow", "count_chain", counted=BOTH,
        limits={"commits": {"sqlite": 1.1}, "cpu ms": {"sqlite": 2.0}},
    ),
    Row("crowd-counts", "per step of 200 at once", "count_crowd", counted=BOTH, limits={"commits": {}, "cpu ms": {}}),
    Row(
        "memory", "bytes for each workflow that is done", "memory", counted=BOTH,
        limits={"bytes": dict.fromkeys(BOTH, 64.0)},
    ),
    Row("idle", "idle worker, per second", "idle", counted=BOTH, limits={"statements": dict.fromkeys(BOTH, 1.0)}),
    Row(
        "import", "import, in milliseconds", "importing", ("sqlite",), counted=("sqlite",),
        limits={"ms": {"sqlite": 100.0}, "ms, and opened": {}},
    ),
)  # fmt: skip
ROWS = (*STEP_ROWS, *WHOLE_ROWS, *GROWN_ROWS, *COUNTED_ROWS)
BY_KEY = {row.key: row for row in ROWS}
