"""A worker in a process of its own, to be killed: `python -m tests.workflows.killed_process URL JOURNAL`."""

from __future__ import annotations

import os
import sys
from typing import Any

from holdfast.backends.open import open_store
from holdfast.workflows.calling import current_task
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.records import KINDS
from holdfast.workflows.workflows import Workflows

JOURNAL = sys.argv[2] if len(sys.argv) > 2 else os.devnull


@task
def step(number: int) -> int:
    here = current_task()
    assert here is not None
    journal = os.open(JOURNAL, os.O_WRONLY | os.O_APPEND)
    os.write(journal, f"{os.getpid()} {here.idempotency_key}\n".encode())
    os.close(journal)
    return number + 1


@task
async def add(*numbers: int) -> int:
    return sum(numbers)


@workflow
def diamond(number: int) -> Any:
    """Two chains of three steps, and their sum."""
    left = right = step(number)
    for _ in range(3):
        left, right = step(left), step(right)
    return add(left, right)


def flows_at(url: str) -> Workflows:
    flows = Workflows(open_store(url, kinds=KINDS))
    flows.register(step, add)
    return flows


if __name__ == "__main__":
    flows_at(sys.argv[1]).worker(ttl_s=2).run()
