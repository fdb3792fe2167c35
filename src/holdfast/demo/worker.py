"""The shop's worker, a process of its own: `python -m holdfast.demo.worker FOLDER DATABASE`.

It ends when its standard input does: however the demo ends, the worker does not stay behind.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, Final

from holdfast.demo.shop import open_shop

_GRACE_S: Final = 3.0


def main(folder: str, database: str) -> None:
    """Work until the standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the demo, which then ends this process
    shop = open_shop(Path(folder), Path(database))
    worker = shop.worker()
    threading.Thread(target=_stop_at_the_end, args=(worker,), daemon=True).start()
    print("ready", flush=True)
    worker.run()
    shop.hold.close()


def _stop_at_the_end(worker: Any) -> None:
    sys.stdin.buffer.read()
    hurry = threading.Timer(_GRACE_S, os._exit, [0])  # what it has begun is another worker's, once its lease is over
    hurry.daemon = True
    hurry.start()
    worker.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
