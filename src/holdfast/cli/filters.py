"""The options that say which letters are meant."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Any, Final

import click

from holdfast.cli.times import MOMENT, stamp
from holdfast.machine.dead_letter import FailedOperationStatus
from holdfast.views.letters import user_of

STATUSES: Final = [status.value for status in FailedOperationStatus]
_NAMES: Final = (
    "status", "domain", "failure_type", "entity_type", "entity_id", "user_id", "created_from", "created_to",
)  # fmt: skip

_TIME: Final = "2026-01-31T12:00 (UTC), or 2h for two hours ago."
_OPTIONS: Final = (
    click.option("--status", type=click.Choice(STATUSES), metavar="STATUS", help="One of the ten statuses."),
    click.option("--domain", metavar="NAME"),
    click.option("--failure-type", metavar="TYPE", help="For instance CIRCUIT_BREAKER_OPEN."),
    click.option("--entity-type", metavar="TYPE"),
    click.option("--entity", "entity_id", metavar="ID", help="The id of what it is about."),
    click.option("--user", "user_id", metavar="ID", help='A number, or a text; "7" in double quotes is a text.'),
    click.option("--since", "created_from", type=MOMENT, metavar="TIME", help=_TIME),
    click.option("--until", "created_to", type=MOMENT, metavar="TIME", help="As --since."),
)


def letter_filters(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give the command an argument `where`: the arguments of `find` and `count` that were asked for."""

    @wraps(command)
    def filtered(*args: Any, **values: Any) -> Any:
        given = {name: values.pop(name) for name in _NAMES}
        if given["user_id"] is not None:
            given["user_id"] = user_of(given["user_id"])
        return command(*args, where={name: value for name, value in given.items() if value is not None}, **values)

    made: Callable[..., Any] = filtered
    for option in reversed(_OPTIONS):
        made = option(made)
    return made


def words(where: dict[str, Any]) -> str:
    """The filter as a person would say it."""
    said = (f"{name.replace('_', ' ')} {_word(value)}" for name, value in where.items())
    return ", ".join(said) or "no filter"


def _word(value: Any) -> str:
    return stamp(value) if isinstance(value, datetime) else str(value)


def os_user() -> str:
    """Who runs the command; empty where the system does not know."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""


by_option: Final = click.option("--by", default=os_user, metavar="WHO", help="Who did it; by default the OS user.")
json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
