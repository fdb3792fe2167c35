"""Exceptions that cross from one process to another, as JSON.

Nothing is imported to make one again: a class is used if this process has loaded it, and if what comes out says the
same as the original. Otherwise the exception comes back as TransientError or as IsolatedError, whichever it was worth;
as MaybeDoneError if it was no TransientError, and only declared to be worth another try.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Final

from holdfast.errors import PermanentError, TransientError
from holdfast.store.codec import plain
from holdfast.workflows.faults import Fault, Judgement, MaybeDoneError
from holdfast.workflows.story import said_by

_DEEPEST: Final = 8
_LONGEST: Final = 20_000
Document = dict[str, Any]


class IsolatedError(PermanentError):
    """An exception of another process, of a class that is not known in this one: `type_name` is the class's."""

    def __init__(self, type_name: str, message: str) -> None:
        super().__init__(type_name, message)
        self.type_name = type_name
        self.message = message

    def __str__(self) -> str:
        return f"{self.type_name}: {self.message}" if self.message else self.type_name


def error_document(error: BaseException, judge: Callable[[BaseException], Judgement], depth: int = 0) -> Document:
    """All that is known of an exception, and of those that it was raised from."""
    kind, verdict = type(error), judge(error)
    cause = error.__cause__
    return {
        "module": kind.__module__,
        "type": kind.__qualname__,
        "message": said_by(error),
        "args": [_json_or_text(arg) for arg in error.args],
        "fields": {key: value for key, value in vars(error).items() if _is_json(value) and key != "__notes__"},
        "is_transient": verdict.fault is Fault.TRANSIENT,
        "nothing_happened": verdict.nothing_happened,
        "retry_after": verdict.retry_after,
        "context_update": verdict.context_update if _is_json(verdict.context_update) else None,
        "cause": None if cause is None or depth == _DEEPEST else error_document(cause, judge, depth + 1),
        "trace": "".join(traceback.format_exception(error))[-_LONGEST:] if depth == 0 else "",
    }


def error_of(document: Mapping[str, Any]) -> Exception:
    """The exception again, with the other process's traceback as a note."""
    error = _remade(document) or _stand_in(document)
    if document["cause"] is not None:
        error.__cause__ = error_of(document["cause"])
    if document["trace"]:
        error.add_note(f"in the task's own process:\n{document['trace']}")
    return error


def _remade(document: Mapping[str, Any]) -> Exception | None:
    found: Any = sys.modules.get(document["module"])
    for name in document["type"].split("."):
        found = getattr(found, name, None)
    # A SystemExit of the other process is an error of the task; whoever calls this here would leave the program.
    if not isinstance(found, type) or not issubclass(found, Exception):
        return None
    try:
        # Not by calling the class: its constructor may want other arguments than those it has handed on.
        error: Exception = found.__new__(found, *document["args"])
        error.__dict__.update(document["fields"])
        return error if str(error) == document["message"] else None
    except Exception:  # a class of the application that cannot be made like this
        return None


def _stand_in(document: Mapping[str, Any]) -> Exception:
    if not document["is_transient"]:
        return IsolatedError(document["type"], document["message"])
    kind = TransientError if document["nothing_happened"] else MaybeDoneError
    update = document["context_update"]
    return kind(
        f"{document['type']}: {document['message']}", retry_after=document["retry_after"], context_update=update
    )


def _is_json(value: Any) -> bool:
    try:
        plain(value)
    except (TypeError, ValueError):
        return False
    return True


def _json_or_text(value: Any) -> Any:
    return value if _is_json(value) else said_by(value)
