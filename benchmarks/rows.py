"""What is measured: one row per policy or situation, and the bar each row has to reach."""

from dataclasses import dataclass
from enum import StrEnum

BOTH = ("sync", "async")
LEAN_LIMIT = 1.5


class Shape(StrEnum):
    """How a row calls the guarded function."""

    SUCCESS = "success"
    FAILING = "failing"
    REFUSED = "refused"
    THREADS = "threads"
    TASKS = "tasks"
    STARTUP = "startup"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    `policy` names what a contender must offer: a method of its class (or an attribute, for the rows about
    start-up and memory). `gain` is how many times better than the best peer ours must be (1: just better;
    None: no such bar); `limit` is an absolute bound on ours; `peers_of` borrows the peers' figures of another
    row where no peer offers the exact policy.
    """

    key: str
    title: str
    policy: str
    shape: Shape = Shape.SUCCESS
    colours: tuple[str, ...] = BOTH
    gain: float | None = 1
    limit: float | None = None
    unit: str = "µs"
    peers_of: str | None = None

    @property
    def is_call(self) -> bool:
        return self.shape not in {Shape.STARTUP, Shape.MEMORY}


ROWS = (
    Row("retry", "retry", "retry", gain=2),
    Row("breaker", "breaker, consecutive", "breaker", gain=2),
    Row("breaker-count", "breaker, count in window", "breaker_count", gain=2, peers_of="breaker"),
    Row("breaker-ratio", "breaker, ratio over window", "breaker_ratio", gain=2),
    Row("bulkhead", "bulkhead", "bulkhead", gain=2),
    Row("rate-burst", "rate limit, from the burst", "rate_burst", gain=2),
    Row("rate-steady", "rate limit, at the rate", "rate_steady", gain=2),
    Row("timeout", "timeout", "timeout", gain=2),
    Row("retry-breaker", "retry + breaker", "retry_breaker", gain=4),
    Row("retry-breaker-timeout", "retry + breaker + timeout", "retry_breaker_timeout", gain=4),
    Row("failing", "three failing attempts", "retry", Shape.FAILING),
    Row("refusal", "refusal by an open breaker", "breaker", Shape.REFUSED, gain=1.5),
    Row("threads", "4 threads on one breaker", "breaker", Shape.THREADS, ("sync",)),
    Row("tasks", "1,000 tasks on one bulkhead of 100", "bulkhead", Shape.TASKS, ("async",)),
    Row("import", "import", "imports", Shape.STARTUP, ("sync",), 1, 20, "ms"),
    Row("first", "first sync guard", "first", Shape.STARTUP, ("sync",), None, 60, "ms"),
    Row("memory", "memory per closed breaker", "one_breaker", Shape.MEMORY, ("sync",), None, 250, "bytes"),
)
BY_KEY = {row.key: row for row in ROWS}
