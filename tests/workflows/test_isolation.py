"""Tasks in processes of their own: what goes in, what comes back, and that nothing survives its time."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast.core.context import deadline
from holdfast.errors import (
    ConfigurationError,
    PermanentError,
    TaskError,
    TaskNotFoundError,
    TaskTimeoutError,
    TransientError,
)
from holdfast.testing.clock import ManualClock
from holdfast.workflows.error_document import IsolatedError
from holdfast.workflows.faults import Fault, Faults
from holdfast.workflows.isolation import ProcessIsolation
from holdfast.workflows.stage import StageExecution
from tests.workflows.gates import PATIENCE_S, Pending, made, until
from tests.workflows.isolated_tasks import Busy, OutOfStock

TASKS = "tests.workflows.isolated_tasks:tasks"
REGISTRY = "tests.workflows.isolated_tasks:registry"


@pytest.fixture(scope="module")
def isolation():
    return ProcessIsolation(TASKS)


def raised(isolation, name, *args):
    try:
        return pytest.fail(f"answered {isolation.run(name, args)!r}")
    except Exception as error:
        return error


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # One whose parent has not looked yet, or never will, is as dead.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


class Hanging:
    """A task that hangs, and the processes that it consists of."""

    def __init__(self, folder):
        self.file = folder / "pids"

    def pids(self):
        until(lambda: self.file.exists() and self.file.read_text().endswith("\n"))
        return [int(pid) for pid in self.file.read_text().split()]

    def is_gone(self):
        return not any(is_alive(pid) for pid in self.pids())


def test_arguments_and_results_cross_as_json(isolation):
    assert isolation.run("add", [1], {"b": 2}) == 3
    assert isolation.run("add", [["a", {"b": None}], ["c"]]) == ["a", {"b": None}, "c"]


def test_an_async_function_is_awaited(isolation):
    assert isolation.run("later", [5]) == 5


def test_what_a_task_prints_is_no_answer(isolation, capfd):
    assert isolation.run("chat", ["quiet"]) == "quiet"
    out, err = capfd.readouterr()
    assert out == ""
    assert "printed by a task" in err
    assert "written by a task" in err


def test_what_is_not_json_is_named(isolation):
    with pytest.raises(TypeError, match=r"args\[0\]\.key is a set"):
        isolation.run("add", [{"key": {1}}])
    error = raised(isolation, "not_json")
    assert type(error) is TypeError
    assert "result.found[1].at is a object" in str(error)


def test_a_transient_error_stays_transient_with_what_it_carries(isolation):
    error = raised(isolation, "busy")
    assert type(error) is TransientError
    assert (str(error), error.retry_after, error.context_update) == ("come back", 7, {"page": 3})
    own = raised(isolation, "busy", True)
    assert type(own) is Busy
    assert (own.retry_after, own.context_update) == (7, {"page": 3})


def test_an_error_whose_class_is_known_here_comes_back_as_itself(isolation):
    assert type(raised(isolation, "fail", "PermanentError")) is PermanentError
    assert type(raised(isolation, "fail", "ConnectionError")) is ConnectionError
    assert raised(isolation, "fail", "KeyError", "id").args == ("id",)
    error = raised(isolation, "sold_out")
    assert type(error) is OutOfStock
    assert (error.order, error.item) == (7, "anchors")
    assert "in sold_out" in error.__notes__[0], "with the traceback of the other process"


def test_an_error_that_nobody_knows_here_comes_back_by_name(isolation):
    error = raised(isolation, "unknown")
    assert type(error) is IsolatedError
    assert isinstance(error, PermanentError)
    assert error.type_name.endswith("Local")
    assert "of here" in str(error)
    transient = raised(isolation, "unknown", True)
    assert type(transient) is TransientError
    assert transient.retry_after == 2
    assert "Local" in str(transient)


def test_an_error_that_cannot_say_what_it_is_comes_back_all_the_same(isolation):
    error = raised(isolation, "mute")
    assert type(error) is IsolatedError
    assert error.type_name.endswith("Mute")


def test_an_error_means_the_same_on_both_sides(isolation):
    """By its cause, too: the one that nobody has declared is judged by the one it was raised from."""
    error = raised(isolation, "wrapped")
    assert type(error) is RuntimeError
    assert type(error.__cause__) is ConnectionError
    assert Faults().classify(error) is Fault.TRANSIENT
    assert Faults().classify(raised(isolation, "fail", "KeyError")) is Fault.PERMANENT


def test_a_task_that_leaves_the_interpreter_has_failed_and_the_worker_lives(isolation):
    error = raised(isolation, "leave", 3)
    assert type(error) is IsolatedError
    assert error.type_name == "SystemExit"
    assert raised(isolation, "leave", 0).type_name == "SystemExit", "no success either"


def test_a_process_that_dies_without_an_answer_is_told(isolation):
    error = raised(isolation, "crash", "exit")
    assert type(error) is TaskError
    assert "ended with code 9" in str(error)
    assert "signal 11" in str(raised(isolation, "crash", "signal"))


def test_a_task_that_leaves_a_thread_behind_has_answered_all_the_same(isolation):
    assert isolation.run("leave_a_thread") == "done"


def test_an_unknown_name_says_what_there_is(isolation):
    with pytest.raises(TaskNotFoundError, match="no task named 'nope'; there are add, busy"):
        isolation.run("nope")


@pytest.mark.parametrize("application", ["shop", "shop:", ":tasks", "shop.tasks:a b", "__main__:tasks", "os;x:y"])
def test_an_application_that_cannot_be_imported_is_refused_at_once(application):
    with pytest.raises(ConfigurationError, match="must name a module"):
        ProcessIsolation(application)


def test_a_module_that_is_not_there_is_told():
    with pytest.raises(ModuleNotFoundError, match="no_such_shop"):
        ProcessIsolation("no_such_shop:tasks").run("add")


def test_a_task_for_a_stage_gets_the_stage_and_returns_its_result():
    isolation = ProcessIsolation(REGISTRY)
    stage = StageExecution(ref_id="hello", type="greet", name="Greet", context={"name": "Ada", "deep": {"list": [1]}})
    result = isolation.execute("greet", stage)
    assert result.status == "SUCCEEDED"
    assert result.outputs == {"greeting": "hello Ada", "ref": "hello"}
    assert isolation.execute("echo", stage).outputs["echo"]["deep"] == {"list": [1]}
    stage.context["name"] = "nobody"
    with pytest.raises(OutOfStock):
        isolation.execute("greet", stage)


def test_a_task_reads_how_much_time_it_has(isolation):
    with deadline(50.0):
        assert 0 < isolation.run("left") < 50.0
        assert 0 < isolation.run("left", timeout=40.0) < 40.0


def test_a_task_that_hangs_is_killed_with_all_it_has_started(tmp_path):
    clock, hanging, caught = ManualClock(auto=False), Hanging(tmp_path), []

    def call():
        try:
            ProcessIsolation(TASKS, clock=clock).run("hang", [str(hanging.file)], timeout=5.0)
        except TaskTimeoutError as error:
            caught.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    assert not hanging.is_gone()
    clock.advance(5.0)
    thread.join(PATIENCE_S)
    assert "was killed: not done within 5 s" in str(caught[0])
    until(hanging.is_gone)


def test_the_time_limit_of_the_bulkhead_kills_the_process_and_frees_the_slot(tmp_path):
    clock, hanging = ManualClock(auto=False), Hanging(tmp_path)
    manager = made(clock, http=(1, 0, 5.0))
    pending = Pending(manager, "http", ProcessIsolation(TASKS, clock=clock).run, "hang", [str(hanging.file)])
    assert not hanging.is_gone()
    clock.advance(5.0)
    assert pending.result().timed_out
    until(lambda: manager.free_slots("http") == 1)
    until(hanging.is_gone)
    assert manager.get_all_stats()["http"]["abandoned"] == 0


def test_cancelling_a_task_kills_its_process(tmp_path):
    manager, hanging = made(), Hanging(tmp_path)
    pending = Pending(manager, "http", ProcessIsolation(TASKS).run, "hang", [str(hanging.file)])
    assert not hanging.is_gone()
    pending.call.cancel("the workflow was cancelled")
    assert isinstance(pending.result().error, asyncio.CancelledError)
    until(hanging.is_gone)
    assert manager.shutdown()


def test_a_process_does_not_outlive_its_worker(tmp_path):
    hanging = Hanging(tmp_path)
    program = (
        "from holdfast.workflows.isolation import ProcessIsolation\n"
        f"ProcessIsolation({TASKS!r}).run('hang', [{str(hanging.file)!r}])\n"
    )
    path = os.pathsep.join(folder for folder in sys.path if folder)
    worker = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path})
    assert not hanging.is_gone()
    worker.send_signal(signal.SIGKILL)
    worker.wait(PATIENCE_S)
    until(hanging.is_gone)
