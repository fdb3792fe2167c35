"""The API as commands ask it, wherever it is: `get`, `post`, `put`, and what its problems mean for a command.

A server answers (`remote.py`) or, on a store, this process (`here.py`). What is asked and answered is the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

from holdfast.cli.exits import Failed, NoStore, NotFound, WrongUsage
from holdfast.core.redact import redact

BASE: Final = "/api/v1"
TOKEN: Final = "HOLDFAST_TOKEN"
PAGE: Final = 500
"""How many things an answer of the API holds at most."""
_NOT_READY: Final = frozenset({502, 503, 504})


class Api(ABC):
    """Raises NoStore when there is no answer; NotFound, WrongUsage and Failed as what is answered means."""

    def get(self, path: str, **asked: Any) -> Any:
        """What is at the path; what is None is not asked for."""
        return self.send("GET", addressed(path, asked))

    def post(self, path: str, body: Mapping[str, Any] | None = None, **asked: Any) -> Any:
        """Have something changed."""
        return self.send("POST", addressed(path, asked), dict(body or {}))

    def put(self, path: str, body: Mapping[str, Any], **asked: Any) -> Any:
        """Have something replaced."""
        return self.send("PUT", addressed(path, asked), dict(body))

    def pages(self, path: str, limit: int, after: str | None = None, **asked: Any) -> dict[str, Any]:
        """As many `items` as are wanted, over as many pages as it takes, and where to go on: `next`."""
        found: list[Any] = []
        while True:
            page = self.get(path, limit=min(PAGE, limit - len(found)), after=after, **asked)
            found += page["items"]
            after = page["next"]
            if after is None or len(found) >= limit:
                return {**page, "items": found, "next": after}

    @abstractmethod
    def send(self, method: str, path: str, body: Any = None) -> Any:
        """What is answered; a text where that is no JSON."""


def addressed(path: str, asked: Mapping[str, Any]) -> str:
    """The path with its query."""
    given = {name: _said(value) for name, value in asked.items() if value is not None}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def part(id: str) -> str:
    """An id as a part of a path."""
    return quote(id, safe="")


def meant(where: str, status: int, said: Any) -> Exception:
    """What an answer that is no success means for a command; `said` is its document, if it had one."""
    try:
        code, message = str(said["error"]), redact(str(said["message"]))
    except (TypeError, KeyError):
        code, message = "", f"{where} answers with status {status}"
    match status:
        case 401:
            return WrongUsage(f"{message}; put a token into {TOKEN} or a --token-file (holdfast access create-token)")
        case 404 if code.endswith("_not_found"):
            return NotFound(message)
        case 404:
            return WrongUsage(f"there is no Holdfast at {where}, or one of another version: {message}")
        case status if status in _NOT_READY:
            return NoStore(message)
        case 400 | 422:
            return WrongUsage(message)
    return Failed(message)


def _said(value: Any) -> Any:
    """A condition as the API takes it."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple | list | set | frozenset):
        return [str(one) for one in value]
    return str(value).lower() if isinstance(value, bool) else value
