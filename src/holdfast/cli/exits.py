"""How a command ends: its exit code, and one line on stderr when that is not 0."""

from __future__ import annotations

import sys
from enum import IntEnum
from typing import Any, Final

import click

from holdfast.core.redact import redact
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
    ExitCode.NOT_FOUND: "there is no such thing: letter, workflow, breaker, user…",
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
    return ExitCode.FAILED if _story_of(error) is None else ExitCode.NO_STORE


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
            text = _story_of(error) or f"{type(error).__name__}: {error} (--debug shows where)"
    return " ".join(text.split())


def _story_of(error: BaseException) -> str | None:
    """What SQLAlchemy raises, if it means that the database is away, or is not what it should be. Statements and their
    parameters, which may be anybody's data, are not in it.
    """
    alchemy: Any = sys.modules.get("sqlalchemy.exc")  # loading it for this would cost more than most commands
    if alchemy is None or not isinstance(error, alchemy.DBAPIError):
        return None
    driver: Any = getattr(error, "orig", None)
    cause = redact(str(driver).partition("\n")[0], 300)
    state, number = getattr(driver, "sqlstate", None), (getattr(driver, "args", None) or (None,))[0]
    if state in _NO_TABLE or number in _NO_TABLE or "no such table" in cause or "no such column" in cause:
        return f"the tables are not there, or not of this version ({cause}); run: holdfast db upgrade"
    if isinstance(error, alchemy.OperationalError | alchemy.InterfaceError):
        return f"the database does not answer: {cause}"
    return None


_NO_TABLE: Final = ("42P01", "42703", 1146, 1054)  # of PostgreSQL, then of MySQL: undefined table, undefined column
