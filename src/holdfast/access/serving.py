"""Where the server listens, what it is called, and how much of it one may ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator

from holdfast.access.throttle import Throttle
from holdfast.core.check import check_seconds
from holdfast.errors import PolicyError


def in_parts(given: Any) -> Any:
    """A text with commas as a list, which is how a variable of the environment gives one; JSON will do as well."""
    if not isinstance(given, str):
        return given
    return [part.strip(" \"'") for part in given.strip().removeprefix("[").removesuffix("]").split(",") if part.strip()]


Rate = Annotated[tuple[float, int], BeforeValidator(in_parts)]
"""So many a second, and so many at once."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much and how often. Rates are by identity, a second and at once; whoever is `local` has none.

    `address` bounds what comes from one other machine before anybody is looked up. `at_once` reads are worked on,
    `waiting` different ones wait for up to `patience_s`, and who has had least of late is next; more are told to come
    back.
    """

    body_bytes: int = 1 << 20
    reads: Rate = (200, 1000)
    changes: Rate = (50, 200)
    address: Rate = (1000, 5000)
    at_once: int = 4
    waiting: int = 64
    patience_s: float = 2.0

    def __post_init__(self) -> None:
        if self.body_bytes < 1:
            raise PolicyError(f"Limits.body_bytes must be at least 1, got {self.body_bytes}; use 1048576 for 1 MiB")
        if self.at_once < 1 or self.waiting < 0:
            raise PolicyError(
                "Limits.at_once must be at least 1 and Limits.waiting at least 0, "
                f"got {self.at_once} and {self.waiting}; use 4 and 64"
            )
        check_seconds("Limits.patience_s", self.patience_s, "use 2.0")
        for name in ("reads", "changes", "address"):
            try:
                Throttle(*getattr(self, name))
            except PolicyError as error:
                raise PolicyError(f"Limits.{name}: {error}") from error


@dataclass(frozen=True, slots=True)
class ServerPolicy:
    """Where the server listens (`host`, `port`), and the names by which it may be asked besides (`hosts`).

    `required`: everybody has to sign in; by default so once there are accounts. `https`: browsers reach it over https
    only, by a proxy; by default as each request says.
    """

    host: str = "127.0.0.1"
    port: int = 8400
    required: bool | None = None
    hosts: Annotated[tuple[str, ...], BeforeValidator(in_parts)] = ()
    https: bool | None = None
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        if not self.host:
            raise PolicyError("ServerPolicy.host must be an address, got ''; use 127.0.0.1 for this machine alone")
        if not 0 <= self.port <= 65535:
            raise PolicyError(f"ServerPolicy.port must be from 0 to 65535, got {self.port}; 0 takes a free one")
        for name in self.hosts:
            if not name or any(mark in name for mark in "/@ "):
                raise PolicyError(f"ServerPolicy.hosts must be names such as console.example.com, got {name!r}")
