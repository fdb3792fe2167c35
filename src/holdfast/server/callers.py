"""By what the requests of one caller are told from those of others before anybody is looked up.

It decides who waits behind whom and nothing else: what somebody may do is found out anew for every answer.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Final

from starlette.types import Scope

from holdfast.access.rights import Identity
from holdfast.core.addresses import is_loopback, neighbourhood

MOST_PROOFS: Final = 10_000
FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
"""Headers that a proxy adds: with one of them a request is from somewhere else, whatever its address says."""
_FORWARDED: Final = frozenset(name.encode() for name in FORWARDED)
_PROOFS: Final = frozenset({b"authorization", b"cookie"})


class Callers:
    """Whose each proof was when it was last looked at: the digest of a token or a cookie, never these themselves.

    What has not proved anything yet is counted by its address. So somebody who makes proofs up has one line, and so has
    somebody who shows one and the same in many ways.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, str] = OrderedDict()

    def of(self, scope: Scope) -> str:
        """Whom to count a request by."""
        proof = _proof(scope)
        if proof is not None and (known := self._known.get(proof)) is not None:
            return known
        client = scope.get("client")
        address = "" if client is None else str(client[0])
        return f"address {neighbourhood(address)}{_program(scope, address) if proof is None else ''}"

    def note(self, scope: Scope, identity: Identity | None) -> None:
        """Remember whom a proof belongs to, or that it belongs to nobody."""
        proof = _proof(scope)
        if proof is None:
            return
        if identity is None or identity.via == "loopback":
            self._known.pop(proof, None)
            return
        self._known[proof] = f"{identity.via} {identity.name}"
        self._known.move_to_end(proof)
        if len(self._known) > MOST_PROOFS:
            self._known.popitem(last=False)


def _proof(scope: Scope) -> bytes | None:
    shown = [value for name, value in scope["headers"] if name in _PROOFS]
    return hashlib.sha256(b"\0".join(shown)).digest() if shown else None


def _program(scope: Scope, address: str) -> str:
    """Programs on this machine, which may do everything while there are no accounts, by what they call themselves."""
    if not is_loopback(address) or any(name in _FORWARDED for name, _ in scope["headers"]):
        return ""
    return "".join(f" {value!r}" for name, value in scope["headers"] if name == b"user-agent")
