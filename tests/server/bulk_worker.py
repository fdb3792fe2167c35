"""A worker that carries bulk operations on until none is left, or until it is killed: for test_bulk.py.

    python -m tests.server.bulk_worker <store url> <effects file>

It appends the order of every letter that it replays to the file, and prints it.
"""

from __future__ import annotations

import os
import sys

from holdfast import Holdfast, Retry
from holdfast.letters.bulk import Bulk

LEASE_S = 0.5


def main(url: str, path: str) -> None:
    effects = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with Holdfast(url, background=False) as hold:

        @hold.guard("payments", Retry(attempts=1)).replayable(name="charge")
        def charge(order_id: str) -> None:
            os.write(effects, f"{order_id}\n".encode())
            os.write(1, f"{order_id}\n".encode())

        bulk = Bulk(hold.letters.replayer, concurrency=2, lease_s=LEASE_S)
        while not all(one.is_over for one in bulk.find()):
            hold.letters.release_stale_replaying(0)  # those of a worker that was killed
            bulk.run_due()


if __name__ == "__main__":
    main(*sys.argv[1:])
