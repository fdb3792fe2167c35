"""Steps that wait without anybody waiting: for a time, or for a signal."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

from holdfast.core.check import check_wait
from holdfast.errors import WorkflowDefinitionError
from holdfast.machine.run import Wait
from holdfast.machine.workflow import WorkflowStatus
from holdfast.workflows.effects import Effect
from holdfast.workflows.functions import task


@task(name="holdfast.sleep", effect=Effect.PURE)
def sleep(seconds: float | timedelta) -> Any:
    """Go on after so many seconds, which may be months."""
    return Wait(None, _seconds("sleep", seconds))


@task(name="holdfast.wait_signal", effect=Effect.PURE)
def wait_signal(
    name: str, timeout: float | timedelta | None = None, on_timeout: Literal["fail", "continue"] = "fail"
) -> Any:
    """Go on with the value of the first signal of that name; `hold.workflows.signal(id, name, value)` sends one.

    After `timeout` seconds without one the step fails, or goes on with None.
    """
    _check_name(name)
    if on_timeout not in ("fail", "continue"):
        story = f"wait_signal.on_timeout must be fail or continue, got {on_timeout!r}"
        raise WorkflowDefinitionError("bad_arguments", story)
    end = WorkflowStatus.TERMINAL if on_timeout == "fail" else None
    return Wait(name, None if timeout is None else _seconds("wait_signal.timeout", timeout), on_timeout=end)


sleep.refuses_early = wait_signal.refuses_early = True


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name:
        raise WorkflowDefinitionError("bad_arguments", f"wait_signal.name must be a text, got {name!r}")


def _seconds(what: str, value: float | timedelta) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if seconds:
        check_wait(what, seconds, "give seconds or a timedelta")
    return float(seconds)
