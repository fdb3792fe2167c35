"""`python -m benchmarks.server.bulk_worker URL EFFECTS`: carries bulk operations on to their end.

It appends the order of every letter that it replays to the file.
"""

import os
import sys

from benchmarks.server.setup import BULK_DOMAIN
from holdfast import Holdfast, Retry
from holdfast.letters.bulk import Bulk

LEASE_S = 2.0


def main(url: str, path: str) -> None:
    effects = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with Holdfast(url, background=False) as hold:

        @hold.guard(BULK_DOMAIN, Retry(attempts=1)).replayable(name="charge")
        def charge(order_id: str) -> None:
            os.write(effects, f"{order_id}\n".encode())

        bulk = Bulk(hold.letters.replayer, lease_s=LEASE_S)
        while not all(one.is_over for one in bulk.find()):
            hold.letters.release_stale_replaying(0)  # those of a worker that was killed
            bulk.run_due()


if __name__ == "__main__":
    main(*sys.argv[1:])
