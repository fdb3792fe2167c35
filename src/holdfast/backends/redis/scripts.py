"""The Lua scripts, each with the digest by which the server knows it."""

from __future__ import annotations

from functools import cache
from hashlib import sha1
from pathlib import Path
from typing import Final, NamedTuple

_FOLDER: Final = Path(__file__).with_name("lua")
_PARTS: Final = {
    "commit": ("read", "write", "commit"),
    "page": ("read", "walk", "page"),
    "count": ("read", "walk", "count"),
    "sweep": ("read", "write", "walk", "sweep"),
    "reindex": ("read", "write", "walk", "reindex"),
}


class Script(NamedTuple):
    text: bytes
    digest: bytes


@cache
def script(name: str) -> Script:
    """A script, put together from the files in `lua/`."""
    text = b"".join((_FOLDER / f"{part}.lua").read_bytes() for part in _PARTS[name])
    return Script(text, sha1(text, usedforsecurity=False).hexdigest().encode())
