"""What is kept of an exception."""

from __future__ import annotations

import traceback
from itertools import islice
from typing import Any, Final

from holdfast.core.redact import redact
from holdfast.store.codec import clean_text

LONGEST: Final = 2_000
_MOST_MEMBERS: Final = 20
"""Of a group, for a text."""


def described(error: BaseException) -> dict[str, Any]:
    """The type and what it says, masked, cut, and so that every store can hold it."""
    return {"type": type(error).__name__, "message": redact(said_by(error), LONGEST)}


def named(error: BaseException) -> str:
    """The same as one text."""
    return redact(f"{type(error).__name__}: {said_by(error)}", LONGEST)


def traced(error: BaseException) -> str:
    """Where it comes from, masked. It is logged, and stored nowhere."""
    try:
        text = "".join(traceback.format_exception(error))
    except Exception:  # of what Python itself raises it takes the fields for granted, as the place of a SyntaxError
        text = named(error)
    return redact(text, None)


def said_by(error: object) -> str:
    """What it says, or something in it does, as every store can hold it. A group by itself only says how many there
    are, so its members are asked, too."""
    try:
        said = clean_text(str(error))
    except Exception:
        return "it cannot say what it is"
    if not isinstance(error, BaseExceptionGroup):
        return said
    members = [f"{type(one).__name__}: {said_by(one)}" for one in islice(error.exceptions, _MOST_MEMBERS)]
    return f"{said}: {'; '.join(members)}"
