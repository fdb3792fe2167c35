"""Whom an entry is about: the reference that an external system knows, and the group that completes together."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from holdfast.errors import InvalidValue
from holdfast.store.codec import clean_text, plain

SEPARATOR: Final = "\x1f"
_ESCAPE: Final = "\x1b"
LONGEST: Final = 255

FROZEN: Final = ConfigDict(frozen=True, extra="forbid")


def storable(text: str) -> str:
    """Raises ValueError for a text that not every database can hold."""
    if clean_text(text) != text:
        raise InvalidValue("it holds U+0000 or half of a surrogate pair, which not every database stores; leave it out")
    return text


Text = Annotated[str, AfterValidator(storable)]
# A length stands next to the `str`: after another validator pydantic would count "items".
Name = Annotated[str, Field(min_length=1, max_length=LONGEST), AfterValidator(storable)]


def utc(at: datetime) -> datetime:
    """The time in UTC; a naive one is read as UTC."""
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


Utc = Annotated[datetime, AfterValidator(utc)]


class PiiCategory(StrEnum):
    """What kind of personal data a value is."""

    CONTACT = "contact"
    IDENTITY = "identity"
    FINANCIAL = "financial"
    BEHAVIORAL = "behavioral"
    TECHNICAL = "technical"
    LOCATION = "location"
    COMMUNICATION = "communication"
    SPECIAL = "special"


class SubjectRef(BaseModel):
    """What an external system knows the subject by. It goes to the resolver whose name equals `kind`."""

    model_config = FROZEN

    kind: Name
    value: Name
    extra: dict[str, Any] = Field(default_factory=dict)

    @field_validator("extra")
    @classmethod
    def _is_json(cls, extra: dict[str, Any]) -> Any:
        return json_value("extra", extra)

    def __hash__(self) -> int:
        return hash((self.kind, self.value))


class Correction(BaseModel):
    """The right value of one category of personal data."""

    model_config = FROZEN

    category: PiiCategory
    value: str | int | float | bool = Field(union_mode="smart")

    @field_validator("value")
    @classmethod
    def _is_json(cls, value: str | float | bool) -> Any:
        return json_value("value", value)


class CompositeSubjectId(BaseModel):
    """A subject that several values name together, such as a tenant and a user."""

    model_config = FROZEN

    values: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)

    @property
    def canonical(self) -> str:
        """One text, of which `parse_canonical` makes the values again."""
        return SEPARATOR.join(
            value.replace(_ESCAPE, _ESCAPE * 2).replace(SEPARATOR, _ESCAPE + SEPARATOR) for value in self.values
        )

    def __str__(self) -> str:
        return self.canonical

    @classmethod
    def parse_canonical(cls, text: str) -> CompositeSubjectId:
        """The values of a canonical text.

        Raises ValueError for a text that no composite has.
        """
        values, value, at = [], "", 0
        while at < len(text):
            mark = text[at]
            if mark == _ESCAPE:
                if text[at + 1 : at + 2] not in (_ESCAPE, SEPARATOR):
                    raise InvalidValue(f"{text!r} is no canonical subject id: the escape at {at} escapes nothing")
                value += text[at + 1]
                at += 2
                continue
            at += 1
            if mark == SEPARATOR:
                values.append(value)
                value = ""
            else:
                value += mark
        return cls(values=(*values, value))


def _collapsed(value: Any) -> Any:
    return value.canonical if isinstance(value, CompositeSubjectId) else value


StoredSubjectId = Annotated[
    str, Field(min_length=1, max_length=LONGEST), BeforeValidator(_collapsed), AfterValidator(storable)
]
"""A subject's id as it is stored: a text, or a composite collapsed to its canonical one."""


def json_value(name: str, value: Any) -> Any:
    """The value in JSON's own types.

    Raises ValueError, of which pydantic makes a validation error, for what is not JSON or cannot be stored everywhere.
    """
    try:
        simple = plain(value, name)
    except TypeError as error:
        raise InvalidValue(str(error)) from None
    if simple != value:
        _refuse_unstorable(name, value)
    return simple


def _refuse_unstorable(way: str, value: Any) -> None:
    """`plain` puts U+FFFD for what cannot be stored; what is sent to others must not be changed silently."""
    if isinstance(value, str):
        if clean_text(value) != value:
            fix = "leave it out, or encode it"
            raise InvalidValue(
                f"{way} holds U+0000 or half of a surrogate pair, which not every database stores; {fix}"
            )
    elif isinstance(value, dict):
        for key, item in value.items():
            _refuse_unstorable(f"a key of {way}", key)
            _refuse_unstorable(f"{way}.{key}", item)
    elif isinstance(value, list | tuple):
        for at, item in enumerate(value):
            _refuse_unstorable(f"{way}[{at}]", item)
