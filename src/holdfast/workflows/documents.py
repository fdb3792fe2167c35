"""From models to JSON documents and back.

A document names the schema that it was written with. What it does not say has its default, and what it says beyond the
fields of the model is left out, so that an older program reads what a newer one of the same schema wrote. A status, or
any other word that decides what happens next, must be known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import StrEnum
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar

from holdfast.errors import SchemaError
from holdfast.store.codec import AS_THEY_ARE, maybe_instant, maybe_micros, plain

M = TypeVar("M")
SCHEMA: Final = 1


class Form(NamedTuple):
    """How a field looks in a document. Both get the value, and the way to it for the message of an error."""

    write: Callable[[Any, str], Any]
    read: Callable[[Any, str], Any]


def one_of(words: type[StrEnum], *, strict: bool = True) -> Form:
    """One of these words, or none. Not strict: an unknown word stays as it is, for others to judge."""

    def read(value: Any, path: str) -> Any:
        if value is None:
            return None
        try:
            return words(value)
        except ValueError:
            if not strict:
                return value
            raise SchemaError(f"{path} is {value!r}, which is none of {', '.join(words)}; upgrade holdfast") from None

    return Form(lambda word, path: None if word is None else str(word), read)


AS_IS: Final = Form(plain, lambda value, path: value)
TIME: Final = Form(lambda at, path: maybe_micros(at), lambda stored, path: maybe_instant(stored))
NAMES: Final = Form(lambda names, path: sorted(names), lambda listed, path: set(listed))


def write_document(model: Any, what: str, forms: Mapping[str, Form], leave_out: tuple[str, ...] = ()) -> dict[str, Any]:
    """The document of a model. Raises TypeError or ValueError naming the way to a value that is not JSON."""
    document: dict[str, Any] = {"schema": SCHEMA}
    for name in _names(model.__class__):
        if name not in leave_out:
            value, form = getattr(model, name), forms.get(name)
            if form is None and type(value) in AS_THEY_ARE:
                document[name] = value
            else:
                document[name] = (form or AS_IS).write(value, f"{what}.{name}")
    return document


def read_document(kind: type[M], what: str, document: Mapping[str, Any], forms: Mapping[str, Form]) -> M:
    """The model of a document, which it takes over: the two share what is nested.

    Raises SchemaError for one that this program does not understand.
    """
    check_schema(what, document)
    known = (one.name for one in fields(kind) if one.init and one.name in document)  # type: ignore[arg-type]
    return kind(**{name: forms.get(name, AS_IS).read(document[name], f"{what}.{name}") for name in known})


def check_schema(what: str, document: Any) -> None:
    """Raises SchemaError for a document of a later schema, and for what is none."""
    schema = document.get("schema") if isinstance(document, Mapping) else None
    if type(schema) is not int:
        raise SchemaError(f"the document of a {what} names its schema as a number, got {schema!r}")
    if schema > SCHEMA:
        raise SchemaError(
            f"the document of a {what} has schema {schema}, this program reads 1 to {SCHEMA}; upgrade holdfast"
        )


@cache
def _names(kind: type[Any]) -> tuple[str, ...]:
    return tuple([one.name for one in fields(kind)])
