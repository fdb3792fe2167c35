"""`pytest --holdfast-crash-matrix`: a test that uses the fixture `holdfast_workflows` is run once to learn the durable
points of what it does, then once for each crash before and after one of them, each time with fresh fixtures."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any, Final

import pytest
from _pytest.runner import runtestprotocol

from holdfast.testing.crash_matrix import CrashReport, Observation, observe
from holdfast.testing.failpoints import Point, Side
from holdfast.testing.workflow_kit import WorkflowTestKit

FIXTURE: Final = "holdfast_workflows"
_PLAN: Final = pytest.StashKey[tuple[Point, Side] | None]()
_SEEN: Final = pytest.StashKey[Observation | None]()
_KIT: Final = pytest.StashKey[WorkflowTestKit]()


def kit_for(node: pytest.Item, options: Mapping[str, Any]) -> Iterator[WorkflowTestKit]:
    """The kit of one run of a test."""
    with WorkflowTestKit(**options) as kit:
        plan = node.stash.get(_PLAN, None)
        if plan is not None:
            kit.crash_at(plan[0].number, plan[1])
        node.stash[_KIT] = kit
        yield kit


class CrashMatrix:
    """Runs the tests that use the kit again and again."""

    def __init__(self) -> None:
        self._reports: list[CrashReport] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        if FIXTURE not in getattr(item, "fixturenames", ()):
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        reports = self._run(item, nextitem)
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, None]:
        yield
        kit = item.stash.get(_KIT, None)
        if kit is not None:  # now, while its world is there: other fixtures may end before ours
            item.stash[_SEEN] = observe(kit)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._reports:
            terminalreporter.section("holdfast crash matrix")
        for report in self._reports:
            terminalreporter.write_line(report.table())

    def _run(self, item: pytest.Item, nextitem: pytest.Item | None) -> list[pytest.TestReport]:
        first = _once(item, nextitem, None)
        plain = item.stash.get(_SEEN, None)
        if plain is None or any(report.failed or report.skipped for report in first):
            return first  # it fails, or is left out, without any crash
        matrix = CrashReport(item.nodeid, plain)
        for point, side in matrix.plans:
            reports = _once(item, nextitem, (point, side))
            seen = item.stash.get(_SEEN, None)
            failed = next((report for report in reports if report.failed), None)
            if failed is not None:
                seen = (seen or plain)._replace(error=_last_line(failed))
            matrix.add(point, side, seen or plain)
        self._reports.append(matrix)
        if not matrix.ok:
            call = next(report for report in first if report.when == "call")
            call.outcome, call.longrepr = "failed", matrix.summary()
        return first


def _once(item: pytest.Item, nextitem: pytest.Item | None, plan: tuple[Point, Side] | None) -> list[pytest.TestReport]:
    item.stash[_PLAN], item.stash[_SEEN] = plan, None
    if plan is not None:
        item._initrequest()  # type: ignore[attr-defined]  # fresh fixtures, as plugins that repeat tests have them
    return list(runtestprotocol(item, log=False, nextitem=nextitem))


def _last_line(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash is not None else report.longrepr).splitlines()[0]
