"""The pytest plugin: fixtures, a marker and an option.

pytest imports this in every run of every project that has Holdfast installed, so the rest of Holdfast is imported only
where it is used. That may be an old pytest, hence the old style of hook wrapper.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from holdfast.telemetry.hub import Hub
    from holdfast.testing.clock import ManualClock
    from holdfast.testing.recorder import Recorder
    from holdfast.testing.workflow_kit import WorkflowTestKit

OPTION = "--holdfast-crash-matrix"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("holdfast").addoption(
        OPTION,
        action="store_true",
        help="run each test that uses holdfast_workflows again, with a crash before and after each durable point",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "holdfast_off: every guard on the process-wide hub is a plain call during this test"
    )
    if config.getoption(OPTION):
        from holdfast.testing.matrix_plugin import CrashMatrix

        config.pluginmanager.register(CrashMatrix(), "holdfast-crash-matrix")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, None]:
    """Switches the guards off around a marked test, its fixtures included."""
    if item.get_closest_marker("holdfast_off") is None:
        yield
        return
    from holdfast.testing.switches import disable

    with disable():
        yield


@pytest.fixture
def _holdfast_unchanged() -> Iterator[None]:
    """Afterwards the process-wide hub has the listeners and the switch it had before."""
    from holdfast.testing.switches import unchanged

    with unchanged():
        yield


@pytest.fixture
def manual_clock(_holdfast_unchanged: None) -> ManualClock:
    """A clock that moves when told, for `Guard(..., clock=manual_clock)`; a sleep takes no time."""
    from holdfast.testing.clock import ManualClock

    return ManualClock()


@pytest.fixture
def holdfast_hub(request: pytest.FixtureRequest, _holdfast_unchanged: None) -> Hub:
    """A hub of the test's own, for `Guard(..., telemetry=holdfast_hub)`; on the manual clock if the test uses it."""
    from holdfast.telemetry.hub import Hub

    if "manual_clock" in request.fixturenames:
        return Hub(clock=request.getfixturevalue("manual_clock"))
    return Hub()


@pytest.fixture
def holdfast_recorder(_holdfast_unchanged: None) -> Iterator[Recorder]:
    """A Recorder of what happens on the process-wide hub during the test."""
    from holdfast.testing.recorder import recording

    with recording() as recorder:
        yield recorder


@pytest.fixture
def holdfast_disabled(_holdfast_unchanged: None) -> Iterator[Hub]:
    """Every guard on the process-wide hub is a plain call during the test."""
    from holdfast.testing.switches import disable

    with disable() as hub:
        yield hub


@pytest.fixture
def holdfast_workflows_options() -> dict[str, Any]:
    """What the kit of `holdfast_workflows` is made with; a test file or a conftest may have another one."""
    return {}


@pytest.fixture
def holdfast_workflows(
    request: pytest.FixtureRequest, _holdfast_unchanged: None, holdfast_workflows_options: dict[str, Any]
) -> Iterator[WorkflowTestKit]:
    """A WorkflowTestKit; with --holdfast-crash-matrix its workers crash at every point, one in each run of the test."""
    from holdfast.testing.matrix_plugin import kit_for

    yield from kit_for(request.node, holdfast_workflows_options)
