"""Manual clock, fault injection, switches, a recording listener and a kit for workflows, for users and for us.

Names are loaded when they are first used: pytest imports this package in every run of every project that has Holdfast
installed.
"""

from __future__ import annotations

TYPE_CHECKING = False  # what checkers take for true; importing typing would cost more than all the rest

_HOMES = {
    "testing.clock": "FakeClock ManualClock",
    "testing.crash_matrix": "CrashReport crash_matrix",
    "testing.failpoints": "Failpoints ProcessDied",
    "testing.faults": "Answer Flaky Received Slow",
    "testing.health": "assert_healthy",
    "testing.recorder": "Recorder recording",
    "guard.scope": "Scope",
    "testing.switches": "disable trip unchanged",
    "testing.tasks": "in_task",
    "testing.workflow_kit": "WorkflowTestKit",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME_OF)  # pyright: ignore[reportUnsupportedDunderAll]  # computed from the table


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'holdfast.testing' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"holdfast.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})


if TYPE_CHECKING:
    from holdfast.guard.scope import Scope as Scope
    from holdfast.testing.clock import FakeClock as FakeClock
    from holdfast.testing.clock import ManualClock as ManualClock
    from holdfast.testing.crash_matrix import CrashReport as CrashReport
    from holdfast.testing.crash_matrix import crash_matrix as crash_matrix
    from holdfast.testing.failpoints import Failpoints as Failpoints
    from holdfast.testing.failpoints import ProcessDied as ProcessDied
    from holdfast.testing.faults import Answer as Answer
    from holdfast.testing.faults import Flaky as Flaky
    from holdfast.testing.faults import Received as Received
    from holdfast.testing.faults import Slow as Slow
    from holdfast.testing.health import assert_healthy as assert_healthy
    from holdfast.testing.recorder import Recorder as Recorder
    from holdfast.testing.recorder import recording as recording
    from holdfast.testing.switches import disable as disable
    from holdfast.testing.switches import trip as trip
    from holdfast.testing.switches import unchanged as unchanged
    from holdfast.testing.tasks import in_task as in_task
    from holdfast.testing.workflow_kit import WorkflowTestKit as WorkflowTestKit
