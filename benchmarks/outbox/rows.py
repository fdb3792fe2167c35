"""What is measured on the outbox: one row per thing that is done with it, and the bar each has to reach."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

TITLES = {
    "postgres": "PostgreSQL",
    "postgres-nowait": "PostgreSQL, no disk wait",
    "sqlite": "SQLite",
    "mariadb": "MariaDB",
}
ALL = tuple(TITLES)
SERVERS = ("postgres", "postgres-nowait")
DRIVEN = (*SERVERS, "sqlite")  # where an enqueue takes the driver's own connection
# The wait for the disk would hide what more rows cost.
GROWING = ("postgres-nowait", "sqlite", "mariadb")
COUNTED = ("postgres", "sqlite")
GROWTH = 1.2
BATCH: Final = 100
MOST_EVENTS: Final = 100_000
"""More than that are not written before an append is measured: each is hashed."""


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that is done.

    `method` is what a contender must have; `most` bounds the calls of a sample. The bar, on PostgreSQL: `share` is the
    least share of the floor's speed, `session_share` that of the floor in a Session, `limit` how many times the floor's
    time it may take, `gains` how many times faster than a peer it has to be. On every database: `grows` says that more
    rows may cost no more than `GROWTH`, and `limits` bounds what is counted.
    """

    key: str
    title: str
    method: str
    stores: tuple[str, ...] = ALL
    most: int = 1
    share: float | None = None
    session_share: float | None = None
    limit: float | None = None
    gains: Mapping[str, float] = field(default_factory=dict)
    grows: bool = False
    counted: tuple[str, ...] = ()
    limits: Mapping[str, float] = field(default_factory=dict)


DRAIN_ROWS = (
    Row("drain", "drain, not audited", "drain", share=0.5, gains={"pgqueuer": 1.5}),
    Row("drain-audited", "drain, audited", "drain_audited", gains={"pgqueuer": 1.5}),
    Row("drain-erasures", "drain of erasures, audited", "drain_erasures", gains={"effaced": 10}),
)
ENQUEUE_ROWS = (
    Row("enqueue-driver", "enqueue by the driver, 1 per commit", "enqueue_by_driver", DRIVEN, most=300, share=0.5),
    Row("enqueue", "enqueue, 1 per commit", "enqueue", most=300, share=0.5, session_share=0.5),
    Row("enqueue-bulk", "enqueue, 10,000 per commit", "enqueue_bulk", gains={"pgqueuer": 2}),
)
LATENCY_ROWS = (Row("latency", "enqueue to start, median", "latency", DRIVEN, limit=1.6),)
GROWN_ROWS = (
    Row("backlog", "claim 50, with so many waiting", "claim_in_backlog", GROWING, 6, grows=True),
    Row("history", "claim 50, with so many done", "claim_in_history", GROWING, 6, grows=True),
    Row("append", "append an event, with so many there", "append", GROWING, 50, grows=True),
)
COUNTED_ROWS = (
    Row(
        "batch-50", "per entry, audited, batch 50", "batch_50", COUNTED,
        counted=COUNTED, limits={"statements": 0.2, "commits": 0.1},
    ),
    Row(
        "idle", "idle worker, per second", "idle", COUNTED, counted=COUNTED, limits={"statements": 1.0, "cpu": 0.3}
    ),
)  # fmt: skip
ROWS = (*DRAIN_ROWS, *ENQUEUE_ROWS, *LATENCY_ROWS, *GROWN_ROWS, *COUNTED_ROWS)
BY_KEY = {row.key: row for row in ROWS}
