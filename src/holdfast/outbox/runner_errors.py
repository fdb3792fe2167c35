"""How an error is named where it is stored."""

from __future__ import annotations

from holdfast.outbox.subject import LONGEST


def error_name(error: BaseException) -> str:
    """The name of its class: a message may hold anything, and somebody's data, too."""
    return type(error).__name__[:LONGEST]
