"""A module of an application, whose functions its stages may name."""

from __future__ import annotations

from os import getcwd as getcwd


def double(number: int) -> int:
    return number * 2


def _private() -> None:
    pass
