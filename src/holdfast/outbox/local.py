"""What happens to a subject's rows in the application's own tables when it is erased or corrected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from holdfast.errors import ConfigurationError
from holdfast.outbox.subject import CompositeSubjectId, PiiCategory


class ErasureStrategy(StrEnum):
    """What becomes of rows."""

    DELETE = "delete"
    ANONYMIZE = "anonymize"
    RETAIN = "retain"


@dataclass(frozen=True)
class LocalStep:
    """One table that holds data of subjects.

    `subject` names the column that holds the subject's id, or the columns of a composite one. `anonymize` gives the
    values that take the place of personal ones. `categories` says which column holds which category of data, so that
    it can be corrected. Retained rows are only counted: something obliges you to keep them.
    """

    table: sa.Table
    subject: str | tuple[str, ...]
    strategy: ErasureStrategy | str = ErasureStrategy.DELETE
    anonymize: Mapping[str, Any] = field(default_factory=dict)
    categories: Mapping[PiiCategory, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "strategy", ErasureStrategy(self.strategy))
        except ValueError:
            known = ", ".join(ErasureStrategy)
            raise ConfigurationError(
                f"table {self.name}: strategy must be one of {known}, got {self.strategy!r}"
            ) from None
        named = (*self.columns, *self.anonymize, *self.categories.values())
        if unknown := [name for name in named if name not in self.table.c]:
            raise ConfigurationError(f"table {self.name} has no column {unknown[0]!r}")
        if (self.strategy is ErasureStrategy.ANONYMIZE) != bool(self.anonymize):
            raise ConfigurationError(
                f"table {self.name}: give values to `anonymize` with if, and only if, that is meant"
            )

    @property
    def name(self) -> str:
        return str(self.table.name)

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.subject,) if isinstance(self.subject, str) else self.subject

    def erase(self, session: Session, subject: str | CompositeSubjectId) -> int:
        """Do to the subject's rows what is to be done; how many there were."""
        mine = self._mine(subject)
        match self.strategy:
            case ErasureStrategy.DELETE:
                return _count(session, self.table.delete().where(mine))
            case ErasureStrategy.ANONYMIZE:
                return _count(session, self.table.update().where(mine).values(dict(self.anonymize)))
        return self.remaining(session, subject)

    def rectify(self, session: Session, subject: str | CompositeSubjectId, category: PiiCategory, value: Any) -> int:
        """Put the right value into the subject's rows; how many there were."""
        change = self.table.update().where(self._mine(subject)).values({self.categories[category]: value})
        return _count(session, change)

    def remaining(self, session: Session, subject: str | CompositeSubjectId) -> int:
        """How many rows of the subject are there."""
        found = sa.select(sa.func.count()).select_from(self.table).where(self._mine(subject))
        return int(session.execute(found).scalar_one())

    def check(self, subject: str | CompositeSubjectId) -> None:
        """Raises ConfigurationError for an id that has not as many values as the table has columns for it."""
        number = len(_values(subject))
        if number != len(self.columns):
            story = f"is found by {len(self.columns)} columns, the subject's id has {number} values"
            raise ConfigurationError(f"table {self.name} {story}")

    def _mine(self, subject: str | CompositeSubjectId) -> Any:
        found = []
        for name, value in zip(self.columns, _values(subject), strict=True):
            column = self.table.c[name]
            # A subject's id is a text here; the application's column may well hold a number.
            given: Any = value if isinstance(column.type, sa.String) else sa.cast(value, column.type)
            if isinstance(column.type, sa.Integer):
                given = int(value) if value.lstrip("-").isdigit() else None
            found.append(column == given)
        return sa.and_(*found)


def children_first(steps: Sequence[LocalStep]) -> list[LocalStep]:
    """The steps in an order in which no row goes before those that refer to it."""
    order = {table.key: at for at, table in enumerate(sa.schema.sort_tables([step.table for step in steps]))}
    return sorted(steps, key=lambda step: -order[step.table.key])


def _values(subject: str | CompositeSubjectId) -> Sequence[str]:
    return subject.values if isinstance(subject, CompositeSubjectId) else (subject,)


def _count(session: Session, change: Any) -> int:
    done: Any = session.execute(change, execution_options={"synchronize_session": False})
    return max(0, int(done.rowcount))
