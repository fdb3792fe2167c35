"""The public surface is a reviewed text file, and importing it stays cheap."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

PUBLIC_NAMES = Path(__file__).with_name("public_names.txt")


def test_the_public_names_are_the_reviewed_ones() -> None:
    reviewed = PUBLIC_NAMES.read_text().split() if PUBLIC_NAMES.exists() else []
    added = sorted(set(holdfast.__all__) - set(reviewed))
    removed = sorted(set(reviewed) - set(holdfast.__all__))
    assert sorted(holdfast.__all__) == reviewed, (
        f"public names changed: added {added}, removed {removed}. "
        "If that is meant, run `make api` and commit tests/public_names.txt with an entry in CHANGELOG.md."
    )


def test_no_public_name_is_listed_twice() -> None:
    assert len(holdfast.__all__) == len(set(holdfast.__all__))


@pytest.mark.parametrize("name", sorted(set(holdfast.__all__)))
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(holdfast, name) is not None


def test_dir_shows_every_public_name() -> None:
    assert set(holdfast.__all__) <= set(dir(holdfast))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = holdfast.no_such_name


def test_importing_the_package_loads_neither_asyncio_nor_pydantic() -> None:
    program = "import sys, holdfast; print([m for m in ('asyncio', 'pydantic') if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


NOT_FOR_A_NAME = (
    "asyncio", "pydantic", "sqlalchemy", "logging", "socket", "hashlib", "holdfast.access", "holdfast.breakers",
    "holdfast.config", "holdfast.guard", "holdfast.letters", "holdfast.machine.run", "holdfast.outbox",
    "holdfast.workflows.records", "holdfast.workflows.run", "holdfast.workflows.worker",
)  # fmt: skip


def test_naming_tasks_and_workflows_loads_nothing_that_runs_them() -> None:
    code = f"""
import sys
from holdfast import Holdfast, task, workflow
@task
def pay(order): ...
@workflow
def buy(order): return pay(order)
print([module for module in {NOT_FOR_A_NAME} if module in sys.modules])
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_what_a_name_does_not_load_is_what_running_it_does(tmp_path: Path) -> None:
    code = f"""
import sys
from holdfast import Holdfast, Settings, task, workflow
@task
def pay(order): ...
@workflow
def buy(order): return pay(order)
hold = Holdfast("sqlite:///{tmp_path}/hold.db")
hold.access, hold.works, hold.workflows.start(buy, 1)
print([module for module in {NOT_FOR_A_NAME} if module not in sys.modules])
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_opening_a_store_and_calling_through_a_guard_loads_neither_asyncio_nor_pydantic() -> None:
    code = """
import sys
from holdfast import Holdfast, Retry
with Holdfast("memory://") as hold:
    hold.guard("bank", Retry(attempts=1), dead_letter=True).run(int, "one")
print([module for module in ("asyncio", "pydantic") if module in sys.modules])
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
