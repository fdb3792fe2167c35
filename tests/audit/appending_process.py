"""A process that appends: `python -m tests.audit.appending_process NAME URL FIRST NUMBER SUBJECTS`."""

from __future__ import annotations

import random
import sys

from tests.audit.trail import event, sink_on
from tests.databases import open_database


def append(name: str, url: str, first: int, number: int, subjects: int) -> None:
    """So many events, alone and in batches of transactions of their own."""
    database = open_database(name, url)
    sink = sink_on(database, streams=4)
    rng = random.Random(first)
    at, last = first, first + number
    while at < last:
        size = min(rng.choice((1, 1, 5, 20)), last - at)
        batch = [event(n, f"subject-{rng.randrange(subjects)}") for n in range(at, at + size)]
        if size == 1:
            sink.append(batch[0])
        else:
            sink.run(lambda session, batch=batch: sink.append_in(session, batch))
        at += size
    database.engine.dispose()


if __name__ == "__main__":
    append(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
