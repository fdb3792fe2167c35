"""What the verbs need of a database: to ask, to change at once, and to change after a look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, TypeVar

from holdfast.backends.sql.dialect import Dialect
from holdfast.backends.sql.plans import Plans, Write
from holdfast.backends.sql.statement import Statement

T = TypeVar("T")
Row = tuple[Any, ...]


class Taken(Exception):  # a condition, and never seen outside
    """A unique value is taken."""


class Lost(Exception):  # as above
    """Some row of some step was not there, or a unique value was taken; nothing was changed."""


class Step(NamedTuple):
    """A change of rows, all of which must be there."""

    write: Write
    rows: list[Any]


class Link(Protocol):
    """A transaction under way."""

    holds: bool
    """Whether rows that it has read stay as they are until its end."""

    def rows(self, statement: Statement, values: Sequence[Any]) -> list[Row]: ...

    def count(self, statement: Statement, values: Sequence[Any]) -> int:
        """How many rows the statement changed.

        Raises Taken.
        """
        ...

    def make(self, steps: Sequence[Step]) -> set[str]:
        """Do the steps; the ids of rows that were not there.

        Raises Taken.
        """
        ...

    def savepoint(self) -> AbstractContextManager[None]:
        """What is done inside is undone when it raises."""
        ...


class Database(Protocol):
    @property
    def dialect(self) -> Dialect: ...

    def prepare(self, plans: Plans, *, joining: bool = False) -> None:
        """See that the tables of a kind are there. `joining`: for a transaction of the caller's, which may block us.

        Raises SchemaError.
        """
        ...

    def create(self, plans: Sequence[Plans]) -> None:
        """Make the tables that are missing."""
        ...

    def query(self, statement: Statement, values: Sequence[Any]) -> list[Row]: ...

    def change(self, statement: Statement, values: Sequence[Any]) -> int:
        """Run one statement; how many rows it changed.

        Raises Taken.
        """
        ...

    def run(self, steps: Sequence[Step], wake: str | None) -> None:
        """Do all the steps, or none.

        Raises Lost.
        """
        ...

    def transact(self, work: Callable[[Link], T], wake: str | None = None) -> T:
        """Do the work in a transaction of its own, which is undone when it raises. It may be done again."""
        ...

    def claim(self, work: Callable[[Link], T]) -> T:
        """Do the work of a claim. Where the link does not hold what it reads, the work may find it changed."""
        ...

    def note_changes(self, plans: Plans, number: int) -> None:
        """Told after changes, for what must be tidied up now and then."""
        ...

    def tidy(self, plans: Plans) -> None:
        """Fold the counters."""
        ...

    def announce(self, link: Link, topic: str) -> None:
        """Wake subscribers when the caller's transaction ends."""
        ...

    def now(self) -> int: ...

    def watch(self) -> None:
        """Call the topics' listeners for what other processes do."""
        ...

    def ping(self) -> None: ...

    def close(self) -> None: ...
