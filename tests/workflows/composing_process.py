"""A worker in a process of its own, to be killed, whose workflows start others:
`python -m tests.workflows.composing_process URL`."""

from __future__ import annotations

import sys
from typing import Any

from holdfast.backends.open import open_store
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.records import KINDS
from holdfast.workflows.workflows import Workflows

LIMIT = 4


@task
def step(number: int) -> int:
    return number + 1


@task
def add(*numbers: int) -> int:
    return sum(numbers)


@workflow(limit=LIMIT)
def inner(number: int) -> Any:
    return step(step(number))


@workflow
def outer(number: int) -> Any:
    """Two workflows side by side, a third one after them."""
    left, right = inner(number), inner(number)
    return inner(add(left, right))


@workflow
def tick() -> Any:
    return step(0)


def flows_at(url: str) -> Workflows:
    flows = Workflows(open_store(url, kinds=KINDS))
    flows.register(step, add)
    for one in (inner, outer, tick):
        flows.add(one)
    return flows


if __name__ == "__main__":
    flows_at(sys.argv[1]).worker(ttl_s=2).run()
