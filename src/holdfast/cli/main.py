"""`holdfast`: the program. It needs the extra `cli`, and says so when that is missing."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from io import TextIOWrapper

INSTALL = "holdfast's commands need the extra cli: pip install 'holdfast[cli]'"


def main() -> None:
    """Run the command that the arguments name, and exit with its code."""
    if find_spec("click") is None or find_spec("rich") is None:
        print(INSTALL, file=sys.stderr)
        sys.exit(1)
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets its number, not a traceback.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    from holdfast.cli.root import root

    root.main(prog_name="holdfast")
