"""Asking a server instead of a store: `--url http://host:8400`, with a token where one has to say who one is."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from holdfast.cli.exits import Failed, NoStore, NotFound, WrongUsage
from holdfast.core.redact import redact

BASE: Final = "/api/v1"
TOKEN: Final = "HOLDFAST_TOKEN"
_CSRF: Final = "X-Holdfast-CSRF"
_PATIENCE_S: Final = 30.0
_NOT_READY: Final = frozenset({502, 503, 504})


class Remote:
    """The API of a server, with its problems as errors of a command.

    Raises NoStore when it does not answer, NotFound, WrongUsage and Failed as what it answers means.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        if "@" in urlsplit(url).netloc:
            raise WrongUsage(
                f"the address of a server holds no user and no password; set {TOKEN}, or give --token-file"
            )
        self.url = url.rstrip("/")
        self._token = token
        self._csrf: str | None = None
        self._opener = build_opener(_StayHere())

    def get(self, path: str, **asked: Any) -> Any:
        """What the server has at the path; what is None is not asked for."""
        given = {name: value for name, value in asked.items() if value is not None}
        return self._send("GET", f"{path}?{urlencode(given, doseq=True)}" if given else path)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Have something changed."""
        if self._token is None and self._csrf is None:
            self._csrf = self.get("/session")["csrf"]
        return self._send("POST", path, dict(body or {}))

    def _send(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Accept": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        if body is not None:
            headers |= {"Content-Type": "application/json", **({_CSRF: self._csrf} if self._csrf else {})}
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"{self.url}{BASE}{path}", data, headers, method=method)
        try:
            with self._opener.open(request, timeout=_PATIENCE_S) as answer:
                return json.load(answer)
        except HTTPError as error:
            with error:
                raise self._meant(error) from error
        except (URLError, HTTPException, OSError) as error:
            raise NoStore(f"{self.url} does not answer: {_why(error)}; is `holdfast serve` running there?") from error
        except ValueError as error:
            raise WrongUsage(f"what {self.url} answers is not Holdfast's; give the address of the console") from error

    def _meant(self, error: HTTPError) -> Exception:
        """What an answer that is no success means for a command."""
        try:
            said = json.load(error)
            code, message = str(said["error"]), redact(str(said["message"]))
        except (ValueError, TypeError, KeyError, OSError):
            code, message = "", f"{self.url} answers with status {error.code}"
        match error.code:
            case 401:
                return WrongUsage(
                    f"{message}; put a token into {TOKEN} or a --token-file (holdfast access create-token)"
                )
            case 404 if code.endswith("_not_found"):
                return NotFound(message)
            case 404:
                return WrongUsage(f"there is no Holdfast at {self.url}, or one of another version: {message}")
            case status if status in _NOT_READY:
                return NoStore(message)
            case 400 | 422:
                return WrongUsage(message)
        return Failed(message)


class _StayHere(HTTPRedirectHandler):
    """Follows nothing: a token is for the server that was named, and for no other."""

    def redirect_request(self, *args: Any, **extra: Any) -> None:
        return None


def is_remote(url: str) -> bool:
    """Whether the URL is a server's and no store's."""
    return urlsplit(url).scheme in ("http", "https")


def part(id: str) -> str:
    """An id as a part of a path."""
    return quote(id, safe="")


def _why(error: BaseException) -> str:
    reason = getattr(error, "reason", None) or error
    return "the certificate is not trusted" if isinstance(reason, ssl.SSLError) else redact(str(reason) or "no answer")
