"""The pytest plugin, as a user's project meets it: in a process and a folder of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast.testing

pytest_plugins = ["pytester"]

Project = Callable[..., pytest.RunResult]

# Plugins of others that happen to be installed here and load asyncio.
OTHERS = tuple(
    word
    for name in ("asyncio", "anyio", "hypothesispytest", "schemathesis", "cacheprovider")
    for word in ("-p", f"no:{name}")
)


@pytest.fixture
def project(pytester: pytest.Pytester) -> Project:
    """Runs a test file and expects these results."""

    def run(text: str, **expected: int) -> pytest.RunResult:
        pytester.makepyfile(text)
        result = pytester.runpytest_subprocess("--strict-markers", *OTHERS)
        result.assert_outcomes(**expected)
        return result

    return run


def test_the_manual_clock_runs_a_guard_on_a_hub_of_its_own(project: Project) -> None:
    project(
        """
        from holdfast import Guard, Retry, default_hub
        from holdfast.testing import Flaky, recording

        hubs = [default_hub()]

        def test_backoff(manual_clock, holdfast_hub):
            hubs.append(holdfast_hub)
            guard = Guard("x", Retry(attempts=2, base=9, jitter="none"), clock=manual_clock, telemetry=holdfast_hub)
            assert guard.call(Flaky(OSError(), "ok")) == "ok"
            assert manual_clock.slept == [9]

        def test_the_hub_stamps_events_with_the_manual_clock(holdfast_hub, manual_clock):
            with recording(hub=holdfast_hub) as recorder:
                Guard("x", clock=manual_clock, telemetry=holdfast_hub).call(str)
            assert recorder.events[-1].at == manual_clock.wall()

        def test_another_hub(holdfast_hub):
            assert holdfast_hub not in hubs
        """,
        passed=3,
    )


def test_the_recorder_hears_the_process_wide_hub_for_one_test(project: Project) -> None:
    project(
        """
        from holdfast import CallCompleted, Guard, default_metrics, get_listeners

        guard = Guard("plugin")

        def test_recorded(holdfast_recorder):
            guard.call(str)
            assert holdfast_recorder.last(CallCompleted).operation_key == "plugin"
            assert holdfast_recorder in get_listeners()

        def test_fresh(holdfast_recorder):
            assert holdfast_recorder.events == []

        def test_gone():
            assert get_listeners() == [default_metrics()]
        """,
        passed=3,
    )


def test_guards_are_off_by_fixture_or_by_marker(project: Project) -> None:
    project(
        """
        import pytest
        from holdfast import Guard, Retry, default_hub
        from holdfast.testing import Flaky

        guard = Guard("plugin", Retry(attempts=3, base=0))

        def attempts():
            return guard.run(Flaky(OSError())).attempts

        @pytest.fixture
        def made():
            return attempts()

        def test_by_fixture(holdfast_disabled):
            assert holdfast_disabled is default_hub()
            assert attempts() == 1

        @pytest.mark.holdfast_off
        def test_by_marker(made):
            assert (made, attempts()) == (1, 1)

        @pytest.mark.holdfast_off
        class TestByClass:
            def test_marked(self, made, holdfast_recorder, holdfast_disabled):
                assert (made, attempts()) == (1, 1)

        def test_on(made):
            assert (made, attempts()) == (3, 3)
        """,
        passed=4,
    )


def test_a_marked_test_that_fails_leaves_the_guards_on(project: Project) -> None:
    project(
        """
        import pytest
        from holdfast import default_hub

        @pytest.fixture
        def broken():
            raise RuntimeError

        @pytest.mark.holdfast_off
        def test_fails():
            assert False

        @pytest.mark.holdfast_off
        def test_errs(broken):
            pass

        def test_on():
            assert not default_hub().off
        """,
        passed=1,
        failed=1,
        errors=1,
    )


def test_listeners_that_a_test_forgot_are_removed(project: Project) -> None:
    project(
        """
        import pytest
        from holdfast import default_hub, default_metrics, get_listeners, register_listener, unregister_listener

        @pytest.mark.parametrize("name", ["manual_clock", "holdfast_hub", "holdfast_recorder", "holdfast_disabled"])
        def test_leaks(request, name):
            assert request.getfixturevalue(name) is not None
            register_listener(lambda event: None)
            unregister_listener(default_metrics())
            default_hub().switch(off=not default_hub().off)

        @pytest.fixture(autouse=True)
        def intact():
            yield
            assert get_listeners() == [default_metrics()]
            assert not default_hub().off
        """,
        passed=4,
    )


def test_the_marker_and_the_fixtures_are_documented(pytester: pytest.Pytester) -> None:
    pytester.runpytest_subprocess("--markers", *OTHERS).stdout.fnmatch_lines(["@pytest.mark.holdfast_off: *"])
    shown = pytester.runpytest_subprocess("--fixtures", *OTHERS).stdout
    for name in ("manual_clock", "holdfast_hub", "holdfast_recorder", "holdfast_disabled"):
        shown.fnmatch_lines([f"{name} -- *", "    A *" if name != "holdfast_disabled" else "    Every guard *"])


def test_async_tests_use_the_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    pytester.makepyfile(
        """
        from holdfast import CallCompleted, Guard

        async def test_async(holdfast_recorder, manual_clock):
            guard = Guard("x", clock=manual_clock)
            await guard.acall(manual_clock.asleep, 60)
            assert len(await holdfast_recorder.wait_for_async(CallCompleted)) == 1
        """
    )
    pytester.runpytest_subprocess("-W", "error").assert_outcomes(passed=1)


def test_loading_the_plugin_loads_next_to_nothing() -> None:
    program = """if True:
        import sys, pytest
        before = set(sys.modules)
        import holdfast.testing.plugin
        print(sorted(set(sys.modules) - before))
    """
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "['holdfast', 'holdfast.testing', 'holdfast.testing.plugin']"


def test_a_run_that_does_not_use_us_loads_no_more_than_the_plugin(project: Project) -> None:
    project(
        """
        import sys

        def test_modules():
            ours = {name for name in sys.modules if name.partition(".")[0] == "holdfast"}
            assert ours == {"holdfast", "holdfast.testing", "holdfast.testing.plugin"}
            assert {"asyncio", "pydantic"}.isdisjoint(sys.modules)
        """,
        passed=1,
    )


@pytest.mark.parametrize("name", holdfast.testing.__all__)
def test_every_name_of_the_kit_can_be_imported(name: str) -> None:
    assert getattr(holdfast.testing, name) is not None
    assert name in dir(holdfast.testing)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = holdfast.testing.no_such_name  # type: ignore[attr-defined]


def test_what_checkers_see_is_what_is_there() -> None:
    lines = Path(str(holdfast.testing.__file__)).read_text().splitlines()
    typed = [line.rpartition(" as ")[2] for line in lines if line.startswith("    from holdfast")]
    assert sorted(typed) == holdfast.testing.__all__
