"""Asking a server instead of a store: `--url http://host:8400`, with a token where one has to say who one is."""

from __future__ import annotations

import json
import ssl
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from holdfast.cli.api import BASE, TOKEN, Api, meant
from holdfast.cli.exits import NoStore, WrongUsage
from holdfast.core.redact import redact

_CSRF: Final = "X-Holdfast-CSRF"
_PATIENCE_S: Final = 30.0


class Remote(Api):
    """The API of a server."""

    def __init__(self, url: str, token: str | None = None) -> None:
        if "@" in urlsplit(url).netloc:
            raise WrongUsage(
                f"the address of a server holds no user and no password; set {TOKEN}, or give --token-file"
            )
        self.url = url.rstrip("/")
        self._token = token
        self._csrf: str | None = None
        self._opener = build_opener(_StayHere())

    def send(self, method: str, path: str, body: Any = None) -> Any:
        if body is not None and self._token is None and self._csrf is None:
            self._csrf = self.get("/session")["csrf"]
        headers = {"Accept": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        if body is not None:
            headers |= {"Content-Type": "application/json", **({_CSRF: self._csrf} if self._csrf else {})}
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"{self.url}{BASE}{path}", data, headers, method=method)
        try:
            with self._opener.open(request, timeout=_PATIENCE_S) as answer:
                is_picture = answer.headers.get_content_type() == "image/svg+xml"
                return answer.read().decode() if is_picture else json.load(answer)
        except HTTPError as error:
            with error:
                raise meant(self.url, error.code, _document(error)) from error
        except (URLError, HTTPException, OSError) as error:
            raise NoStore(f"{self.url} does not answer: {_why(error)}; is `holdfast serve` running there?") from error
        except ValueError as error:
            raise WrongUsage(f"what {self.url} answers is not Holdfast's; give the address of the console") from error


class _StayHere(HTTPRedirectHandler):
    """Follows nothing: a token is for the server that was named, and for no other."""

    def redirect_request(self, *args: Any, **extra: Any) -> None:
        return None


def is_remote(url: str) -> bool:
    """Whether the URL is a server's and no store's."""
    return urlsplit(url).scheme in ("http", "https")


def _document(error: HTTPError) -> Any:
    try:
        return json.load(error)
    except (ValueError, OSError):
        return None


def _why(error: BaseException) -> str:
    reason = getattr(error, "reason", None) or error
    return "the certificate is not trusted" if isinstance(reason, ssl.SSLError) else redact(str(reason) or "no answer")
