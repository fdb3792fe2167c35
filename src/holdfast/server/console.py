"""The built console: its page for every address that is none of the API's, and its files.

Only files that were there when the folder was read are served, by name, so no path can lead out of it. The page says
where it is mounted; everything else in the build is relative, and the same wherever that is.
"""

from __future__ import annotations

import gzip
import hashlib
import html
import mimetypes
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

STATIC: Final = Path(__file__).with_name("static")
ASSETS: Final = "assets/"
_PAGE: Final = "index.html"
_FOREVER: Final = "public, max-age=31536000, immutable"
_ASK_AGAIN: Final = "no-cache"
_WORTH_PACKING: Final = 1024
_NOT_BUILT: Final = """\
The console is not built.

In a checkout:   make console
Installed:       pip install --force-reinstall 'holdfast[server]'

The API works without it, below api/v1, and so does everything in `holdfast --help`.
"""
# What the system's own table says about these differs from machine to machine, and `nosniff` makes it matter.
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".md": "text/plain; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    body: bytes
    packed: bytes | None
    tag: str


def install(app: FastAPI, folder: Path | None = None) -> None:
    """Let the app answer with the console where none of its own routes does."""
    app.router.default = Console(app.router.default, STATIC if folder is None else folder)


class Console:
    """Answers what is asked for the console, and leaves to `otherwise` what can only be meant for the API."""

    def __init__(self, otherwise: ASGIApp, folder: Path = STATIC) -> None:
        self._otherwise = otherwise
        self._folder = folder
        self._lock = threading.Lock()
        self._read: tuple[int, dict[str, _File]] = (0, {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            return await self._otherwise(scope, receive, send)
        root = str(scope.get("root_path", "")).rstrip("/")
        name = str(scope["path"]).removeprefix(root).lstrip("/")
        if name == "api" or name.startswith("api/") or name == "metrics":
            return await self._otherwise(scope, receive, send)
        files = self._files()
        found = files.get(name)
        if found is None and _is_file(name):
            return await self._otherwise(scope, receive, send)
        if found is None or name == _PAGE:
            response = _page(files.get(_PAGE), root, scope)
        else:
            response = _answer(found, scope, _FOREVER if name.startswith(ASSETS) else _ASK_AGAIN)
        return await response(scope, receive, send)

    def _files(self) -> dict[str, _File]:
        """The build, read again when it was built anew."""
        try:
            made = (self._folder / _PAGE).stat().st_mtime_ns
        except OSError:
            return {}
        if self._read[0] != made:
            with self._lock:
                if self._read[0] != made:
                    self._read = (made, _load(self._folder))
        return self._read[1]


def _load(folder: Path) -> dict[str, _File]:
    found = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {name: _file(name, path.read_bytes()) for path in found for name in (path.relative_to(folder).as_posix(),)}


def _file(name: str, body: bytes) -> _File:
    packed = gzip.compress(body, 6, mtime=0) if len(body) >= _WORTH_PACKING else None
    return _File(name, body, packed, hashlib.sha256(body).hexdigest()[:32])


def _is_file(name: str) -> bool:
    # Ids may have dots, but stand below their screen; a script that is gone must not be answered with a page.
    return name.startswith(ASSETS) or ("/" not in name and "." in name)


def _page(page: _File | None, root: str, scope: Scope) -> Response:
    if page is None:
        return Response(_NOT_BUILT, 503, {"Cache-Control": "no-store"}, "text/plain; charset=utf-8")
    base = html.escape(f"{quote(root)}/", quote=True)
    text = page.body.decode().replace('name="holdfast-base" content="/"', f'name="holdfast-base" content="{base}"')
    return _answer(_file(_PAGE, text.replace('="./', f'="{base}').encode()), scope, _ASK_AGAIN)


def _answer(file: _File, scope: Scope, caching: str) -> Response:
    asked = Request(scope).headers
    is_packed = file.packed is not None and "gzip" in asked.get("accept-encoding", "")
    tag = f'"{file.tag}{"-gzip" if is_packed else ""}"'
    headers = {"ETag": tag, "Cache-Control": caching, "Vary": "Accept-Encoding"}
    if tag in (one.strip().removeprefix("W/") for one in asked.get("if-none-match", "").split(",")):
        return Response(status_code=304, headers=headers)
    if is_packed:
        headers["Content-Encoding"] = "gzip"
    body = file.packed if is_packed and file.packed is not None else file.body
    return Response(body, 200, headers, _type(file.name))


def _type(name: str) -> str:
    suffix = f".{name.rpartition('.')[2]}"
    return _TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
