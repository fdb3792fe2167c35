"""What the server's settings promise."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.backends.redis.link import Link
from holdfast.errors import StoreError


class Durability(NamedTuple):
    """`fsync` is None where the server does not tell; `warnings` are sentences for whoever runs the server."""

    appendonly: bool
    fsync: str | None
    eviction: str
    warnings: tuple[str, ...]


def read_durability(link: Link) -> Durability:
    """Ask the server. Raises StoreUnavailable."""
    appendonly = _info(link, b"persistence").get("aof_enabled") == "1"
    memory = _info(link, b"memory")
    eviction = memory.get("maxmemory_policy", "noeviction")
    warnings = []
    if not appendonly:
        warnings.append("appendonly is off: a restart loses all since the last snapshot; CONFIG SET appendonly yes")
    if eviction.startswith("allkeys") and memory.get("maxmemory") != "0":
        warnings.append(f"maxmemory-policy {eviction} throws records away; CONFIG SET maxmemory-policy noeviction")
    return Durability(appendonly, _fsync(link), eviction, tuple(warnings))


def _info(link: Link, section: bytes) -> dict[str, str]:
    lines = link.read(b"INFO", section).decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _fsync(link: Link) -> str | None:
    try:
        answer = link.read(b"CONFIG", b"GET", b"appendfsync")
    except StoreError:
        return None  # managed servers forbid CONFIG
    return answer[1].decode() if len(answer) == 2 else None
