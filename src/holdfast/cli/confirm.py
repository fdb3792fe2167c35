"""Before something is done to many: what it would be, and a yes."""

from __future__ import annotations

import sys
from typing import Final

import click

from holdfast.cli.exits import Declined
from holdfast.cli.output import note

yes_option: Final = click.option("--yes", is_flag=True, help="Do it, without asking.")
dry_run_option: Final = click.option("--dry-run", is_flag=True, help="Only show what it would be, and ask nothing.")


def agreed(question: str, *, yes: bool, dry_run: bool) -> bool:
    """Whether to go on: `--yes`, or a person who was asked. Nobody is there to ask in a pipe: it stays a dry run.

    Raises Declined when the person says no.
    """
    if yes and not dry_run:
        return True
    if not dry_run and is_somebody_there():
        if click.confirm(question, err=True):
            return True
        raise Declined("nothing was done")
    note("dry run: nothing was done; --yes does it")
    return False


def is_somebody_there() -> bool:
    """Whether there is a person who could be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def counted(number: int, what: str = "letter") -> str:
    """`1 letter`, `1,204 letters`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
