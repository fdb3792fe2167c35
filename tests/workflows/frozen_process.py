"""A worker in a process of its own, to be frozen: `python -m tests.workflows.frozen_process URL FOLDER`.

Its tasks wait for a file `open`, so that it is frozen while they run, and not in the middle of a transaction that would
hold up everybody.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from holdfast.backends.open import open_store
from holdfast.core.clock import SYSTEM_CLOCK
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.records import KINDS
from holdfast.workflows.task_context import current_task
from holdfast.workflows.workflows import Workflows


@task
def held(folder: str) -> int:
    """Says who ran it."""
    here = current_task()
    assert here is not None
    journal = os.open(Path(folder, "journal"), os.O_WRONLY | os.O_APPEND)
    os.write(journal, f"{os.getpid()} {here.idempotency_key}\n".encode())
    os.close(journal)
    while not Path(folder, "open").exists():
        SYSTEM_CLOCK.sleep(0.005)
    return os.getpid()


@workflow
def pair(folder: str) -> Any:
    return [held(folder), held(folder)]


def flows_at(url: str) -> Workflows:
    flows = Workflows(open_store(url, kinds=KINDS))
    flows.register(held)
    return flows


if __name__ == "__main__":
    flows_at(sys.argv[1]).worker(beat_s=0.1, ttl_s=0.5).run()
