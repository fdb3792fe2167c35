"""What is measured on the stores: one row per method or situation, and the bar each has to reach."""

from dataclasses import dataclass
from typing import Any

TITLES = {
    "memory": "memory",
    "sqlite": "SQLite",
    "sqlite-nowait": "SQLite, no disk wait",
    "postgres": "PostgreSQL",
    "postgres-nowait": "PostgreSQL, no disk wait",
    "redis": "Redis",
}
WRITING = tuple(TITLES)
READING = ("memory", "sqlite", "postgres", "redis")
OUTSIDE = ("sqlite", "sqlite-nowait", "postgres", "postgres-nowait", "redis")
# The wait for the disk would hide what more records cost.
GROWING_WRITES = ("sqlite-nowait", "postgres-nowait", "redis")
GROWING_READS = ("sqlite", "postgres", "redis")

SQL_WRITE, REDIS_SHARE, READ_LIMIT, PEER_GAIN, GROWTH, SHARING, REPLAY = 0.6, 0.5, 1.2, 2.0, 1.2, 1.1, 0.8


@dataclass(frozen=True, slots=True)
class Row:
    """One method.

    `method` is what a contender must have. `most` bounds the calls of a sample. The bar: `write` is the least share of
    the floor's speed on SQL and `redis` that on Redis, `read` is how many times the floor's time it may take on SQL,
    `gain` is over the best peer on PostgreSQL. `grows` names the stores that are also measured with the done letters in
    them, `counted` those where statements or commands are counted.
    """

    key: str
    title: str
    method: str
    stores: tuple[str, ...] = WRITING
    most: int = 300
    write: float | None = None
    read: float | None = None
    redis: float | None = None
    gain: float | None = None
    grows: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()


def _hot(key: str, title: str, **more: Any) -> Row:
    return Row(
        key, title, key.replace("-", "_"), write=SQL_WRITE, redis=REDIS_SHARE, gain=PEER_GAIN, counted=COUNTED, **more
    )


COUNTED = ("sqlite", "redis")
LETTER_ROWS = (
    _hot("create", "create", grows=GROWING_WRITES),
    Row("get", "get_by_id", "get", READING, 1000, counted=COUNTED),
    _hot("acquire", "acquire, with the letter at hand"),
    _hot("acquire-by-id", "acquire, by id"),
    _hot("complete", "complete, with the letter at hand"),
    _hot("complete-by-id", "complete, by id"),
    Row(
        "claim", "claim 100", "claim", most=5, write=SQL_WRITE, redis=REDIS_SHARE,
        grows=GROWING_WRITES, counted=COUNTED,
    ),
    Row(
        "page", "page of 50", "page", READING, read=READ_LIMIT, redis=REDIS_SHARE,
        grows=GROWING_READS, counted=COUNTED,
    ),
    Row(
        "facets", "facets", "facets", READING, read=READ_LIMIT, redis=REDIS_SHARE,
        grows=GROWING_READS, counted=COUNTED,
    ),
    Row("statistics", "get_statistics", "statistics", READING, grows=GROWING_READS, counted=COUNTED),
    Row("count", "count_all", "count", READING, grows=GROWING_READS, counted=COUNTED),
)  # fmt: skip
BREAKER_ROWS = (
    Row("failure", "breaker: record_failure", "failure", redis=REDIS_SHARE, counted=COUNTED),
    Row("success", "breaker: success with close check", "success", redis=REDIS_SHARE, counted=COUNTED),
    Row("slot", "breaker: half-open slot", "slot", redis=REDIS_SHARE, counted=COUNTED),
)
CAPTURE_ROWS = (Row("capture", "a captured failure", "capture", OUTSIDE, counted=COUNTED),)
SHARED_ROWS = (
    Row("shared-sync", "guarded call, breaker shared, sync", "shared_sync", ("sqlite", "redis"), 200_000),
    Row("shared-async", "guarded call, breaker shared, async", "shared_async", ("sqlite", "redis"), 200_000),
)
REPLAY_ROWS = (Row("replay", "batch replay, per letter", "replay", most=1),)
ROWS = (*LETTER_ROWS, *BREAKER_ROWS, *CAPTURE_ROWS, *SHARED_ROWS, *REPLAY_ROWS)
BY_KEY = {row.key: row for row in ROWS}
