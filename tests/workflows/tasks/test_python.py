"""The python task: functions that the application allows, and scripts in a process of their own."""

from __future__ import annotations

import math
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.context import remaining_time
from holdfast.errors import ConfigurationError, TaskError, TaskTimeoutError
from holdfast.workflows.result import TaskResult
from holdfast.workflows.tasks.python import PythonScript, PythonTask
from tests.workflows.tasks import jobs
from tests.workflows.tasks.stages import stage


def executed(task: PythonTask, **context: Any) -> TaskResult:
    result = task.execute(stage(**context))
    assert isinstance(result, TaskResult)
    return result


def test_a_function_is_called_by_its_registered_name() -> None:
    task = PythonTask({"double": jobs.double})
    assert executed(task, function="double", inputs={"number": 4}).outputs == {"result": 8}


def test_a_mapping_is_published_as_it_is_and_nothing_as_nothing() -> None:
    task = PythonTask({"map": lambda: {"a": 1}, "none": lambda: None, "skip": TaskResult.skipped})
    assert executed(task, function="map").outputs == {"a": 1}
    assert executed(task, function="none") == TaskResult.success()
    assert executed(task, function="skip") == TaskResult.skipped()


async def test_a_coroutine_function_is_awaited() -> None:
    async def double(number: int) -> int:
        assert remaining_time() <= 5
        return number * 2

    answer = PythonTask({"double": double}).execute(stage(function="double", inputs={"number": 4}, timeout=5))
    assert isinstance(answer, Awaitable)
    assert (await answer).outputs == {"result": 8}


def test_what_a_function_calls_has_a_deadline() -> None:
    task = PythonTask({"left": remaining_time})
    assert 0 < executed(task, function="left", timeout=7).outputs["result"] <= 7
    assert 7 < executed(task, function="left").outputs["result"] <= 60
    assert remaining_time() == math.inf


def test_a_function_raises_its_own_exception() -> None:
    def fail() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        PythonTask({"fail": fail}).execute(stage(function="fail"))


def test_a_path_is_imported_only_under_an_allowed_prefix() -> None:
    task = PythonTask(prefixes=["tests.workflows.tasks"])
    assert executed(task, function="tests.workflows.tasks.jobs:double", inputs={"number": 4}).outputs == {"result": 8}


@pytest.mark.parametrize(
    "function",
    [
        "os:system",
        "tests.workflows.tasks.jobs.double",
        "tests.workflows.tasks.jobs:getcwd",
        "tests.workflows.tasks.jobs:_private",
        "tests.workflows.tasks.jobs:double.__globals__",
        "tests.workflows.tasks.jobs:__name__",
        "tests.workflows.tasks.jobs:missing",
        "tests.workflows.tasks_evil:double",
        "double",
        ":double",
    ],
)
def test_nothing_else_is_imported_because_a_stage_names_it(function: str) -> None:
    task = PythonTask({"known": jobs.double}, prefixes=["tests.workflows.tasks"])
    with pytest.raises(ConfigurationError, match=r"is allowed here; allowed are known, tests\.workflows\.tasks…"):
        task.execute(stage(function=function))


def test_without_a_prefix_no_path_is_imported() -> None:
    sys.modules.pop("this", None)
    with pytest.raises(ConfigurationError, match="allowed are none"):
        PythonTask().execute(stage(function="this:d"))
    assert "this" not in sys.modules


def test_a_script_gets_inputs_and_leaves_a_result(tmp_path: Path) -> None:
    script = "import os\nprint(os.getcwd(), os.environ['A'])\nresult = {'sum': sum(inputs['numbers'])}"
    result = executed(PythonTask(), script=script, inputs={"numbers": [1, 2]}, cwd=str(tmp_path), env={"A": "ü"})
    assert result.outputs == {"exit_code": 0, "stdout": f"{tmp_path} ü\n", "stderr": "", "result": {"sum": 3}}


def test_a_script_without_a_result_leaves_none() -> None:
    assert PythonScript(script="pass").run()["result"] is None


def test_a_script_may_end_by_itself_and_still_leaves_its_result() -> None:
    assert PythonScript(script="import sys\nresult = 7\nsys.exit(0)").run()["result"] == 7
    assert PythonScript(script="def main(): pass\nresult = 8\nraise SystemExit(main())").run()["result"] == 8
    with pytest.raises(TaskError, match="ended with code 3"):
        PythonScript(script="raise SystemExit(3)").run()
    with pytest.raises(TaskError, match=r"ended with code 1, expected 0: no money$"):
        PythonScript(script="raise SystemExit('no money')").run()


def test_a_script_that_fails_tells_how() -> None:
    with pytest.raises(
        TaskError, match=r"the script ended with code 1, expected 0: [\s\S]*<script>[\s\S]*KeyError: 'x'"
    ):
        PythonTask().execute(stage(script="inputs['x']"))
    said = "expected 0: what it left in `result` is not JSON: Object of type set is not JSON serializable$"
    with pytest.raises(TaskError, match=said):
        PythonScript(script="result = {1}").run()
    with pytest.raises(TaskError, match="left no result"):
        PythonScript(script="import os; os._exit(0)").run()


def test_a_script_has_a_time_limit_and_cannot_hurt_this_process() -> None:
    assert PythonScript(script="pass").timeout == 60
    with pytest.raises(TaskTimeoutError):
        PythonScript(script="import signal; signal.pause()", timeout=0.3).run()
    with pytest.raises(TaskError, match="killed by signal 9"):
        PythonScript(script="import os; os.kill(os.getpid(), 9)").run()


def test_scripts_can_be_forbidden() -> None:
    with pytest.raises(ConfigurationError, match="scripts are not allowed here"):
        PythonTask(scripts=False).execute(stage(script="pass"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "needs either 'function' or 'script'"),
        ({"function": "double", "script": "pass"}, "needs either 'function' or 'script'"),
        ({"function": "double", "inputs": [1]}, "inputs must be a mapping"),
        ({"script": "pass", "timeout": True}, "timeout must be a number"),
        ({"script": ""}, "script must be a text"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        PythonTask({"double": jobs.double}).execute(stage(**settings))
