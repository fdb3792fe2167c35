"""`console/build.py`, which is no module of a package."""

from __future__ import annotations

import importlib.util
import os
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final

CONSOLE: Final = Path(__file__).parents[2] / "console"


@cache
def builder() -> ModuleType:
    """The module."""
    spec = importlib.util.spec_from_file_location("holdfast_console_build", CONSOLE / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def build() -> Path:
    """Build the console if its sources have changed; where it is.

    HOLDFAST_TEST_CONSOLE names a folder with another build, which is taken as it is.
    """
    if given := os.environ.get("HOLDFAST_TEST_CONSOLE"):
        return Path(given)
    builder().build()
    static: Path = builder().STATIC
    return static
