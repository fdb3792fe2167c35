"""How a command ends: its exit code, and one line on stderr when that is not 0."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import click

from holdfast.errors import HoldfastError, MissingExtra, SchemaError, StoreUnavailable


class ExitCode(IntEnum):
    """What a script can go by."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    NO_STORE = 4
    ABORTED = 5


MEANINGS: Final = {
    ExitCode.OK: "ok",
    ExitCode.FAILED: "something was refused or failed, for instance a replay",
    ExitCode.USAGE: "wrong usage: nothing was done",
    ExitCode.NOT_FOUND: "no such letter, breaker or operation",
    ExitCode.NO_STORE: "the store cannot be reached, or its schema is not current",
    ExitCode.ABORTED: "a confirmation was declined, or the user interrupted",
}


class Failed(click.ClickException):
    """Something was refused or failed."""

    exit_code = ExitCode.FAILED


class WrongUsage(click.ClickException):
    """The command cannot be meant like that; a `click.UsageError` would add the usage, which does not help here."""

    exit_code = ExitCode.USAGE


class NotFound(click.ClickException):
    """There is no such thing."""

    exit_code = ExitCode.NOT_FOUND


class NoStore(click.ClickException):
    """The store is not there."""

    exit_code = ExitCode.NO_STORE


class Declined(click.ClickException):
    """The user said no."""

    exit_code = ExitCode.ABORTED


def code_of(error: BaseException) -> ExitCode:
    """The exit code that an error means."""
    match error:
        case click.exceptions.Exit() | click.ClickException():
            return ExitCode(error.exit_code)
        case click.Abort() | KeyboardInterrupt():
            return ExitCode.ABORTED
        case StoreUnavailable() | SchemaError() | MissingExtra():
            return ExitCode.NO_STORE
    return ExitCode.FAILED


def line_of(error: BaseException) -> str:
    """The error in one line."""
    match error:
        case click.ClickException():
            text = error.format_message()
        case click.Abort() | KeyboardInterrupt():
            text = "interrupted"
        case HoldfastError() | ValueError():
            text = str(error)
        case _:
            text = f"{type(error).__name__}: {error} (--debug shows where)"
    return " ".join(text.split())
