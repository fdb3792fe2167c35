"""What can be done in the console: every change that its sources can send, and the mark of the tests that do it.

    @acts("POST /letters/{id}/replay")
    def test_a_letter_is_replayed(hold, visit): ...

Such a test runs on SQLite and on PostgreSQL. It fails if the browser did not send what it names, with success.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

import pytest

from tests.console.building import CONSOLE
from tests.console.holding import both

BASE: Final = "/api/v1"
MARK: Final = "acts"
_CALL: Final = re.compile(r"\bapi\s*\.\s*(post|put|patch|delete)\s*\(\s*([\"`])(.*?)\2", re.DOTALL)
_BEGINS: Final = re.compile(r"\bapi\s*\.\s*(?:post|put|patch|delete)\b")
_COMMENT: Final = re.compile(r"/\*.*?\*/|^\s*//[^\n]*", re.DOTALL | re.MULTILINE)
_HOLE: Final = re.compile(r"\$\{\w+\}")

Mark = Callable[[Any], Any]


def acts(*routes: str) -> Mark:
    """The test does all of these, on both stores: `POST /letters/{id}/replay`, as the API's document has them."""

    def mark(test: Any) -> Any:
        return both(pytest.mark.acts(*routes)(test))

    return mark


def named(item: Any) -> frozenset[str]:
    """What a test, or what pytest has made of it, says that it does."""
    marks = item.iter_markers(MARK) if isinstance(item, pytest.Item) else getattr(item, "pytestmark", ())
    return frozenset(route for one in marks if one.name == MARK for route in one.args)


@cache
def offered() -> frozenset[str]:
    """Every change that the API's document describes."""
    paths = json.loads((CONSOLE / "openapi.json").read_text())["paths"]
    return frozenset(
        f"{method.upper()} {path.removeprefix(BASE)}"
        for path, methods in paths.items()
        for method in methods
        if method != "get"
    )


def sendable() -> frozenset[str]:
    """Every change that the console's sources can send."""
    return frozenset(route for text in _sources() for route in _sent(text))


def unread() -> list[str]:
    """Calls in the sources that this file cannot read; none of them may be."""
    return [
        text[found.start() : found.start() + 80]
        for text in _sources()
        for found in _BEGINS.finditer(text)
        if _CALL.match(text, found.start()) is None
    ]


def route_of(method: str, path: str) -> str | None:
    """Which of the offered changes a request is; None for something else."""
    fitting = [route for route in offered() if _pattern(route).fullmatch(f"{method} {path.removeprefix(BASE)}")]
    return min(fitting, key=lambda route: route.count("{"), default=None)


def _sources() -> Iterator[str]:
    for path in sorted((CONSOLE / "src").rglob("*.ts*")):
        if path.name != "schema.ts":
            yield _COMMENT.sub("", path.read_text())


def _sent(text: str) -> Iterator[str]:
    """A path with a hole in it, `/letters/{id}/${verb}`, is every route that fits."""
    for method, _, path in _CALL.findall(text):
        route = f"{method.upper()} {path.removeprefix(BASE)}"
        pattern = re.compile("[^/{}]+".join(re.escape(part) for part in _HOLE.split(route)))
        yield from (one for one in offered() if pattern.fullmatch(one))


@cache
def _pattern(route: str) -> re.Pattern[str]:
    return re.compile("[^/]+".join(re.escape(part) for part in re.split(r"\{\w+\}", route)))
