"""What parts of a Holdfast elsewhere have in common: they say what they have not got, and make objects of documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from datetime import datetime
from typing import Any, Final, NoReturn, TypeVar

import click

from holdfast.cli.exits import WrongUsage
from holdfast.cli.remote import Remote

T = TypeVar("T")
NEEDS_STORE: Final = (
    "{} is a server, and this command needs the store itself: --url of the database, or --app; "
    "the documentation of the command line says what can be asked of a server"
)
MOST: Final = 10_000
"""How many things are fetched at most where a server has them in another order than the command."""
_BY_COMMAND: Final = "asked for on the command line"
_TIMES: Final = frozenset({
    "start_time", "end_time", "at", "since", "pause_time", "resume_time", "next_tick", "last_tick", "created_from",
    "created_to",
})  # fmt: skip


class Part:
    """A part of a Holdfast that is elsewhere. What it has not got says what to do."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    def __getattr__(self, name: str) -> NoReturn:
        raise self._needs_store()

    def _needs_store(self) -> WrongUsage:
        return WrongUsage(NEEDS_STORE.format(self._remote.url))

    def _all(self, path: str, **asked: Any) -> list[dict[str, Any]]:
        """Everything at a path, the newest first. Raises WrongUsage where that is too much."""
        found = self._remote.pages(path, MOST, **asked)
        if found["next"] is not None:
            raise WrongUsage(f"there are more than {MOST:,} of them; ask the store itself, or for fewer of them")
        return list(found["items"])

    def _delete(self, path: str, expected: int, **what: Any) -> Iterator[int]:
        """Has a server delete as many as were counted: how many went, with each request that it takes."""
        body = {**what, "reason": why(), "expected": expected}
        while body["expected"]:
            done = self._remote.post(path, body)
            yield done["deleted"]
            body |= {"expected": done["left"], "goes_on": True}


def why() -> str:
    """The reason that the command was given, for a server, which always wants one."""
    return click.get_current_context().params.get("reason") or _BY_COMMAND


def made(kind: type[T], document: dict[str, Any], **known: Any) -> T:
    """The object that a document tells of; what its kind does not know is left out. `known` goes first."""
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]  # every kind here is a dataclass
    given = {**document, **known}
    return kind(**{name: parsed(name, value) for name, value in given.items() if name in names})


def tuple_of(kind: type[T], document: dict[str, Any], **known: Any) -> T:
    """The same for a NamedTuple."""
    names: Iterable[str] = kind._fields  # type: ignore[attr-defined]  # every kind here is a NamedTuple
    given = {**document, **known}
    return kind(**{name: parsed(name, given[name]) for name in names if name in given})


def parsed(name: str, value: Any) -> Any:
    """A value of a document; by its name it may be a time."""
    is_time = isinstance(value, str) and (name.endswith("_at") or name in _TIMES)
    return datetime.fromisoformat(value) if is_time else value
