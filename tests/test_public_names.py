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
