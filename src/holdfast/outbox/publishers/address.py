"""Which addresses a webhook, or the http task of a workflow, may go to. Whoever may name a URL could otherwise have
this program call its own network.

The address is looked up once, checked, and then connected to, so that a name cannot mean something else in between.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from ipaddress import ip_address, ip_network
from typing import Final

from holdfast.core.addresses import Address, inner, is_public
from holdfast.errors import PolicyError, ResolverError
from holdfast.outbox.publishing import PublishError

Reach = Callable[[str, Address], bool]
"""Whether a host may be called at that address."""

VARIABLE: Final = "HOLDFAST_WEBHOOK_REACH"
_PUBLIC: Final = "public"
_NO_NAME: Final = frozenset("/:@ ")


class AddressRefused(ResolverError):
    """A webhook would go to an address that it may not go to."""


def public_only(host: str, address: Address) -> bool:
    """Only what anybody on the internet could call: no loopback, private, link-local or otherwise special address."""
    return is_public(address)


def public_and(*allowed: str) -> Reach:
    """Public addresses, and these hosts, addresses or networks: `public_and("127.0.0.1", "10.0.0.0/8", "hooks.lan")`.

    A name allows whatever address it has. Raises PolicyError for what is none of these.
    """
    listed = only(*allowed)
    return lambda host, address: public_only(host, address) or listed(host, address)


def only(*allowed: str) -> Reach:
    """Nothing but these hosts, addresses or networks; a name allows whatever address it has.

    Raises PolicyError for what is none of these.
    """
    names: set[str] = set()
    networks = []
    for one in allowed:
        try:
            networks.append(ip_network(one))
        except ValueError as error:
            if not one or _NO_NAME & {*one}:
                raise PolicyError(f"{one!r} is no host, address or network that webhooks may go to: {error}") from error
            names.add(one.lower())

    def reach(host: str, address: Address) -> bool:
        found = inner(address)
        return host.lower() in names or any(found in network for network in networks)

    return reach


def bounded(reach: Reach | None, listed: Sequence[str] = ()) -> Reach | None:
    """What the program asks for, within what the operator allows: hosts, addresses and networks, and the word `public`,
    by HOLDFAST_WEBHOOK_REACH with commas between, or `listed` where that is not set. Where the program asks for nothing
    in particular, all of that.

    Raises PolicyError for what they cannot be.
    """
    words = [word.strip() for word in os.environ.get(VARIABLE, "").split(",") if word.strip()] or [*listed]
    if not words:
        return reach
    named = [word for word in words if word.lower() != _PUBLIC]
    operators = public_and(*named) if len(named) < len(words) else only(*named)
    if reach is None or reach is public_only:
        return operators
    return lambda host, address: operators(host, address) and reach(host, address)


async def resolve(host: str, port: int, reach: Reach) -> list[Address]:
    """The addresses of a host, all of which may be called.

    Raises AddressRefused if even one of its addresses may not be: such a name is no accident. Raises PublishError for a
    name that has no address now.
    """
    try:
        found = [ip_address(host.strip("[]"))]
    except ValueError:
        found = await _look_up(host, port)
    for address in found:
        if not reach(host, address):
            raise AddressRefused(
                f"{host} has the address {address}, which a webhook may not go to; see `reach` and {VARIABLE}"
            )
    return found


async def _look_up(host: str, port: int) -> list[Address]:
    try:
        rows = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        raise PublishError(f"the host {host!r} has no address") from error
    return [ip_address(str(row[4][0]).partition("%")[0]) for row in rows]
