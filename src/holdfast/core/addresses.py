"""What an IP address is: whose it stands for, who can reach it, and whom it is one of many addresses of.

`is_public` does not ask `ipaddress.is_global`: what that says of some ranges has changed between releases of Python.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

Address = IPv4Address | IPv6Address

_NAT64: Final = IPv6Network("64:ff9b::/96")
_ALLOCATED: Final = IPv6Network("2000::/3")
"""All of IPv6 that is given out as global unicast; what is outside is local, multicast, or nobody's."""
_SPECIAL_4: Final = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network; Linux connects 0.0.0.0 to itself
            "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16",  # private
            "100.64.0.0/10",  # a carrier's own
            "127.0.0.0/8",  # this machine
            "169.254.0.0/16",  # link-local, and where clouds answer with credentials
            "192.0.0.0/24",  # protocols: DS-Lite, NAT64 discovery, PCP, TURN
            "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24",  # examples
            "192.31.196.0/24", "192.175.48.0/24",  # AS112: a sink near whoever asks
            "192.52.193.0/24",  # multicast relays
            "192.88.99.0/24",  # relays of 6to4
            "198.18.0.0/15",  # benchmarks
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
        ),
    )
)  # fmt: skip
"""IANA's registry of special-purpose addresses, and multicast."""
_SPECIAL_6: Final = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocols: Teredo, benchmarks, multicast relays, AS112, ORCHID, DRIP
            "2001:db8::/32", "3fff::/20",  # examples
            "2002::/16",  # 6to4, which leads to an IPv4 address by a tunnel
            "2620:4f:8000::/48",  # AS112
        ),
    )
)  # fmt: skip
"""The same within `_ALLOCATED`."""


def parse(text: str) -> Address | None:
    """The address; None for what is none."""
    try:
        return ip_address(text)
    except ValueError:
        return None


def inner(address: Address) -> Address:
    """The IPv4 address that an IPv6 one stands for, where it does: mapped, or translated on the way (NAT64)."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def is_public(address: Address) -> bool:
    """Whether it is an ordinary address of the internet: in no range that IANA lists as special, no tunnel, no
    multicast."""
    found = inner(address)
    if isinstance(found, IPv4Address):
        return not any(found in network for network in _SPECIAL_4)
    return found in _ALLOCATED and not any(found in network for network in _SPECIAL_6)


@lru_cache(maxsize=1024)
def is_loopback(text: str) -> bool:
    """Whether the address can only be one of this machine; False for what is no address."""
    address = parse(text)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback if address is not None else False


@lru_cache(maxsize=1024)
def neighbourhood(text: str) -> str:
    """What to count an address by: an IPv4 address by itself, an IPv6 one by its /64, since whoever has one address of
    a /64 has all of them. What is no address stays as it is."""
    address = parse(text)
    if address is None:
        return text
    found = inner(address)
    return str(found) if isinstance(found, IPv4Address) else f"{IPv6Address(int(found) >> 64 << 64)}/64"
