"""A worker in a process of its own, to be killed: `python -m tests.workflows.finalized_process URL JOURNAL ROLE`."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

from holdfast.backends.open import open_store
from holdfast.workflows.finalizers import get_finalizer_registry
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.records import KINDS
from holdfast.workflows.task_context import current_task
from holdfast.workflows.workflows import Workflows

JOURNAL = sys.argv[2] if len(sys.argv) > 2 else os.devnull
ROLE = sys.argv[3] if len(sys.argv) > 3 else ""


def say(*words: object) -> None:
    journal = os.open(JOURNAL, os.O_WRONLY | os.O_APPEND)
    os.write(journal, (" ".join(map(str, words)) + "\n").encode())
    os.close(journal)


@task
def borrow(hangs: bool) -> None:
    """The first process registers what is to be given back, and never comes to its end."""
    if ROLE == "first":
        here = current_task()
        assert here is not None
        here.finalize("give_back", what="tools")
        get_finalizer_registry().register(here.stage_id, "close", lambda: say("callback"))
        say("borrowed")
        if hangs:
            threading.Event().wait()


@workflow
def errand(hangs: bool) -> Any:
    return borrow(hangs)


def give_back(what: str) -> None:
    if ROLE == "first":
        say("dies")
        os.kill(os.getpid(), signal.SIGKILL)
    say("gave back", what)


def flows_at(url: str) -> Workflows:
    flows = Workflows(open_store(url, kinds=KINDS))
    flows.register(borrow)
    flows.finalizers.add(give_back)
    flows.finalizers.add(lambda stage_id: say("stands in"), "close")
    return flows


if __name__ == "__main__":
    flows_at(sys.argv[1]).worker(ttl_s=2).run()
