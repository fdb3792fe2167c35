"""Rights: `resource:act`. Roles and the scopes of tokens are patterns of them, and what no pattern grants is denied."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from holdfast.errors import PolicyError

READ, OPERATE, REVEAL, ADMIN = "read", "operate", "reveal", "admin"
ACTS: Final = (READ, OPERATE, REVEAL, ADMIN)
"""READ looks; OPERATE replays, retries, steers; REVEAL sees what is masked; ADMIN decides about others and deletes."""
RESOURCES: Final = (
    "system", "guards", "breakers", "pools", "letters", "bulk", "outbox", "sagas", "workflows", "workers", "audit",
    "access",
)  # fmt: skip
ANY: Final = "*"
_PATTERN: Final = re.compile(r"([a-z]+|\*):([a-z]+|\*)")


class Role(StrEnum):
    """What a person may do: look, also operate, or everything."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


ROLES: Final[Mapping[Role, frozenset[str]]] = {
    Role.VIEWER: frozenset({"*:read"}),
    Role.OPERATOR: frozenset({"*:read", "*:operate"}),
    Role.ADMIN: frozenset({"*:*"}),
}


@dataclass(frozen=True, slots=True)
class Identity:
    """Somebody who asks: a name for the audit trail, what they may do, and how they are known.

    `via` is `session`, `token`, `loopback` (nobody had to say who they are) or `hook` (the program says so).
    """

    name: str
    scopes: frozenset[str]
    via: str

    def may(self, right: str) -> bool:
        """Whether a scope grants the right."""
        return grants(self.scopes, right)

    def rights(self) -> list[str]:
        """All that they may do, in order."""
        return [right for right in RIGHTS if self.may(right)]


RIGHTS: Final = tuple(f"{resource}:{act}" for resource in RESOURCES for act in ACTS)


def grants(scopes: Iterable[str], right: str) -> bool:
    """Whether one of the patterns grants the right."""
    resource, _, act = right.partition(":")
    return any(_fits(scope, resource, act) for scope in scopes)


def covers(scopes: Iterable[str], scope: str) -> bool:
    """Whether one of the patterns grants all that `scope` does, also of what is still to be invented."""
    resource, _, act = scope.partition(":")
    return any(_fits(held, resource, act) for held in scopes)


def check_scopes(scopes: Iterable[str]) -> frozenset[str]:
    """The patterns, if each can grant something. Raises PolicyError."""
    checked = frozenset(scopes)
    for scope in checked:
        match = _PATTERN.fullmatch(scope)
        if match is None or match[1] not in (*RESOURCES, ANY) or match[2] not in (*ACTS, ANY):
            raise PolicyError(
                f"{scope!r} is no scope; write resource:act with a resource of {', '.join(RESOURCES)} or *, "
                f"and an act of {', '.join(ACTS)} or *"
            )
    if not checked:
        raise PolicyError("no scope is given, so nothing would be allowed; for instance *:read")
    return checked


def _fits(scope: str, resource: str, act: str) -> bool:
    on, _, what = scope.partition(":")
    return on in (resource, ANY) and what in (act, ANY)
