"""Puts the built console into wheels and source archives: hatchling runs this before it collects the files."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ConsoleBuildHook(BuildHookInterface):  # type: ignore[type-arg]  # its parameter is hatchling's own affair
    """Builds the console when what is built is missing or older than its sources."""

    def dependencies(self) -> list[str]:
        """The package with Node, where a build is due and the machine has no Node."""
        console = _console(Path(self.root))
        if console is None or _is_for_editable() or console.is_current() or console.find_node() is not None:
            return []
        return [console.NODE_PACKAGE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build. An editable install needs no console: `make console` builds it where it is looked for."""
        console = _console(Path(self.root))
        if version != "editable" and console is not None:
            console.build()


def _console(root: Path) -> ModuleType | None:
    """`console/build.py`; None in a source archive that was made without it."""
    path = root / "console" / "build.py"
    if not path.exists():
        return None
    spec = importlib.util.spec_from_file_location("holdfast_console_build", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _is_for_editable() -> bool:
    # Hatchling asks hooks for their dependencies without saying for which kind of build.
    return any(frame.function == "get_requires_for_build_editable" for frame in inspect.stack(0))
