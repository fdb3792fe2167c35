"""Which addresses a webhook may go to. Whoever may name a URL could otherwise have this program call its own network.

The address is looked up once, checked, and then connected to, so that a name cannot mean something else in between.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

from holdfast.errors import ResolverError
from holdfast.outbox.publishing import PublishError

Address = IPv4Address | IPv6Address
Reach = Callable[[str, Address], bool]
"""Whether a host may be called at that address."""

_TRANSLATED: Final = ip_network("64:ff9b::/96")


class AddressRefused(ResolverError):
    """A webhook would go to an address that it may not go to."""


def public_only(host: str, address: Address) -> bool:
    """Only what anybody on the internet could call: no loopback, private, link-local or otherwise reserved address."""
    inner = _inner(address)
    return inner.is_global and not inner.is_multicast


def public_and(*allowed: str) -> Reach:
    """Public addresses, and these hosts, addresses or networks: `public_and("127.0.0.1", "10.0.0.0/8", "hooks.lan")`.

    A name allows whatever address it has.
    """
    names: set[str] = set()
    networks = []
    for one in allowed:
        try:
            networks.append(ip_network(one))
        except ValueError:
            names.add(one.lower())

    def reach(host: str, address: Address) -> bool:
        if host.lower() in names or public_only(host, address):
            return True
        inner = _inner(address)
        return any(inner in network for network in networks)

    return reach


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
            raise AddressRefused(f"{host} has the address {address}, which a webhook may not go to; see `reach`")
    return found


async def _look_up(host: str, port: int) -> list[Address]:
    try:
        rows = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        raise PublishError(f"the host {host!r} has no address") from error
    return [ip_address(str(row[4][0]).partition("%")[0]) for row in rows]


def _inner(address: Address) -> Address:
    """The IPv4 address that an IPv6 one stands for, where it does."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address.sixtofour is not None:
            return address.sixtofour
        if address in _TRANSLATED:
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address
