"""What every test shares: reproducible examples, and the two knobs of a torture run."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable

import pytest
from hypothesis import settings

SEED = int(os.environ.get("SEED", "0"))
SIZE = int(os.environ.get("SIZE", "1"))

settings.register_profile(
    "holdfast",
    max_examples=100 * SIZE,
    deadline=None,  # a shared machine's pauses are not failures
    derandomize=bool(os.environ.get("CI")),
    print_blob=True,
)
settings.load_profile("holdfast")

Threads = Callable[[], set[threading.Thread]]

# Read by type checkers in test_typing.py, never run.
collect_ignore = ["typing"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long comes first, file by file, so that at the end no process is alone with it."""
    long = {item.path for item in items if item.get_closest_marker("torture") or item.path.name == "test_typing.py"}
    items.sort(key=lambda item: item.path not in long)


@pytest.fixture(scope="module", autouse=True)
def settled_heap() -> None:
    """What is there before a module's tests is not searched by the collector again: of twenty thousand tests and the
    packages that they load, each search takes a second, and hundreds of tests look for leaks."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def seed() -> int:
    """Where a torture test's randomness starts; `make torture SEED=…` chooses another run."""
    return SEED


@pytest.fixture
def size() -> int:
    """How many times its everyday length a torture test runs; `make torture SIZE=…` makes it longer."""
    return SIZE


@pytest.fixture
def begun_threads() -> Threads:
    """Which threads have begun since this test did. Those of earlier tests, which may end meanwhile, do not count."""
    before = set(threading.enumerate())
    return lambda: set(threading.enumerate()) - before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> object:
    """A failed torture test says how to repeat it."""
    report = yield
    if report.failed and item.get_closest_marker("torture"):
        again = f"make torture SEED={SEED} SIZE={SIZE} ARGS='-k \"{item.name}\"'"
        report.sections.append(("repeat this run", again))
    return report
