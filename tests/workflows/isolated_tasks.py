"""An application whose tasks run in processes of their own. The tests name it; only the processes import it whole."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from holdfast.core.context import remaining_time
from holdfast.errors import PermanentError, TransientError
from holdfast.workflows.registry import TaskRegistry
from holdfast.workflows.result import TaskResult
from holdfast.workflows.task import Task
from holdfast.workflows.task_context import current_task


class Busy(TransientError):
    """A class that the tests have loaded too."""


class OutOfStock(Exception):
    def __init__(self, order: int, item: str) -> None:
        super().__init__(order, item)
        self.order = order
        self.item = item

    def __str__(self) -> str:
        return f"order {self.order}: no {self.item} left"


def fail(kind, message="no"):
    known = {"ConnectionError": ConnectionError, "KeyError": KeyError, "PermanentError": PermanentError}
    raise known[kind](message)


def busy(own=False):
    kind = Busy if own else TransientError
    raise kind("come back", retry_after=7, context_update={"page": 3})


def sold_out():
    raise OutOfStock(7, "anchors")


def unknown(is_transient=False):
    class Local(TransientError if is_transient else Exception):
        """Nobody else has it."""

    raise Local("of here", **({"retry_after": 2} if is_transient else {}))


def mute():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    raise Mute(1, Mute(2))


def wrapped():
    try:
        fail("ConnectionError", "reset")
    except ConnectionError as error:
        raise RuntimeError("could not send") from error


def leave(code):
    sys.exit(code)


def crash(how):
    if how == "exit":
        os._exit(9)
    os.kill(os.getpid(), signal.SIGSEGV)


async def later(value):
    await asyncio.sleep(0)
    return value


def chat(value):
    sys.stdout.write("printed by a task\n")
    os.write(1, b"written by a task\n")
    assert sys.stdin.read() == ""
    return value


def hang(pids):
    """With a child of its own, both of which are told by their ids."""
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    Path(pids).write_text(f"{os.getpid()} {child.pid}\n")
    signal.pause()


def leave_a_thread():
    threading.Thread(target=threading.Event().wait, args=(0.01,)).start()
    return "done"


def key():
    here = current_task()
    return None if here is None else here.idempotency_key


tasks = {
    "key": key,
    "add": lambda a, b=0: a + b,
    "fail": fail,
    "busy": busy,
    "sold_out": sold_out,
    "unknown": unknown,
    "mute": mute,
    "wrapped": wrapped,
    "leave": leave,
    "crash": crash,
    "later": later,
    "chat": chat,
    "hang": hang,
    "leave_a_thread": leave_a_thread,
    "not_json": lambda: {"found": [1, {"at": object()}]},
    "left": remaining_time,
}


class Greet(Task):
    def execute(self, stage):
        if stage.context["name"] == "nobody":
            raise OutOfStock(1, "names")
        return TaskResult.success(outputs={"greeting": f"hello {stage.context['name']}", "ref": stage.ref_id})


registry = TaskRegistry()
registry.register("greet", Greet)
registry.register("echo", lambda stage: {"echo": dict(stage.context)})
