"""What an address stands for, who can reach it, and what it is counted by."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest

from holdfast.core.addresses import inner, is_loopback, is_public, neighbourhood

# https://www.iana.org/assignments/iana-ipv4-special-registry and iana-ipv6-special-registry; multicast has others.
SPECIAL = (
    "0.0.0.0/8", "0.0.0.0/32", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
    "192.0.0.0/24", "192.0.0.0/29", "192.0.0.8/32", "192.0.0.9/32", "192.0.0.10/32", "192.0.0.170/32", "192.0.0.171/32",
    "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
    "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4", "255.255.255.255/32", "224.0.0.0/4",
    "::1/128", "::/128", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001::/23", "2001::/32", "2001:1::1/128",
    "2001:1::2/128", "2001:1::3/128", "2001:2::/48", "2001:3::/32", "2001:4:112::/48", "2001:10::/28", "2001:20::/28",
    "2001:30::/28", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20", "5f00::/16", "fc00::/7",
    "fe80::/10", "fec0::/10", "ff00::/8", "::/96", "::ffff:0:0:0/96",
)  # fmt: skip


@pytest.mark.parametrize("network", SPECIAL)
def test_no_special_purpose_range_is_public_from_its_first_address_to_its_last(network: str) -> None:
    found = ip_network(network)
    assert not is_public(found[0])
    assert not is_public(found[-1])


@pytest.mark.parametrize("network", [one for one in SPECIAL if ":" not in one])
def test_nor_is_it_in_the_clothes_of_ipv6(network: str) -> None:
    for address in (ip_network(network)[0], ip_network(network)[-1]):
        assert not is_public(IPv6Address(f"::ffff:{address}"))
        assert not is_public(IPv6Address(int(IPv6Address("64:ff9b::")) + int(address)))
        assert not is_public(IPv6Address(int(IPv6Address("2002::")) + (int(address) << 80)))


@pytest.mark.parametrize(
    "address",
    [
        "8.8.8.8", "93.184.216.34", "1.0.0.0", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0",
        "126.255.255.255", "128.0.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255", "192.169.0.0",
        "198.17.255.255", "198.20.0.0", "223.255.255.255", "2606:2800:220:1::1", "2001:200::", "2a00:1450:4001::1",
        "2000::", "3ffe:ffff::", "2003::", "::ffff:8.8.8.8", "64:ff9b::808:808",
    ],
)  # fmt: skip
def test_what_lies_beside_those_ranges_is_public(address: str) -> None:
    assert is_public(ip_address(address))


def test_an_ipv4_address_is_found_in_the_ipv6_one_that_stands_for_it() -> None:
    assert inner(ip_address("::ffff:10.1.2.3")) == inner(ip_address("64:ff9b::a01:203")) == IPv4Address("10.1.2.3")
    assert inner(ip_address("2606:2800::1")) == ip_address("2606:2800::1")


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True), ("0.0.0.0", False),
        ("::", False), ("10.0.0.1", False), ("::ffff:10.0.0.1", False), ("64:ff9b::7f00:1", False),
        ("localhost", False), ("", False), ("127.0.0.1.example", False),
    ],
)  # fmt: skip
def test_only_loopback_addresses_are_this_machines_alone(host: str, is_ours: bool) -> None:
    assert is_loopback(host) is is_ours


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ("203.0.113.7", "203.0.113.7"), ("::ffff:203.0.113.7", "203.0.113.7"), ("64:ff9b::cb00:7107", "203.0.113.7"),
        ("2606:2800:220:1::1", "2606:2800:220:1::/64"), ("2606:2800:220:1:ffff:1:2:3", "2606:2800:220:1::/64"),
        ("2606:2800:220:2::1", "2606:2800:220:2::/64"), ("fe80::1%eth0", "fe80::/64"), ("testclient", "testclient"),
        ("", ""),
    ],
)  # fmt: skip
def test_ipv6_is_counted_by_the_network_that_one_customer_has(text: str, counted: str) -> None:
    assert neighbourhood(text) == counted
