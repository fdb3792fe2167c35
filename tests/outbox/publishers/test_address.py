"""Where a webhook may go."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from holdfast.errors import PolicyError
from holdfast.outbox.publishers.address import (
    VARIABLE,
    AddressRefused,
    bounded,
    only,
    public_and,
    public_only,
    resolve,
)


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1", "8.8.8.8"])
def test_public_addresses_may_be_called(address):
    assert public_only("x", ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.9.9.9",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fc00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
    ],
)
def test_addresses_of_ones_own_network_may_not(address):
    assert not public_only("x", ip_address(address))


def test_hosts_addresses_and_networks_can_be_allowed():
    reach = public_and("hooks.lan", "127.0.0.1", "10.0.0.0/8", "fd00::/8")
    assert reach("HOOKS.lan", ip_address("192.168.1.1"))
    assert reach("x", ip_address("127.0.0.1"))
    assert reach("x", ip_address("::ffff:10.1.2.3"))
    assert reach("x", ip_address("fd00::1"))
    assert reach("x", ip_address("8.8.8.8"))
    assert not reach("x", ip_address("127.0.0.2"))
    assert not reach("other.lan", ip_address("192.168.1.1"))


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost", "169.254.169.254"])
async def test_a_host_is_refused_by_the_address_that_it_has(host):
    with pytest.raises(AddressRefused, match="which a webhook may not go to"):
        await resolve(host, 80, public_only)


async def test_the_addresses_that_were_checked_are_the_ones_that_are_called():
    found = await resolve("localhost", 80, public_and("localhost"))
    assert all(address.is_loopback for address in found)


async def test_one_bad_address_spoils_the_name():
    with pytest.raises(AddressRefused):
        await resolve("localhost", 80, lambda host, address: False)


def test_only_what_is_listed_may_be_called():
    reach = only("hooks.example", "10.0.0.0/8")
    assert reach("hooks.example", ip_address("8.8.8.8"))
    assert reach("x", ip_address("10.1.2.3"))
    assert not reach("x", ip_address("8.8.8.8"))


@pytest.mark.parametrize("text", ["10.0.0.1/8", "https://hooks.lan", "hooks.lan/path", "user@hooks.lan", "a b", ""])
def test_what_is_no_host_address_or_network_is_refused(text):
    with pytest.raises(PolicyError, match="is no host, address or network"):
        only(text)


@pytest.mark.parametrize(
    ("listed", "public", "inside", "elsewhere"),
    [
        (None, True, False, False),
        (" ", True, False, False),
        ("public", True, False, False),
        ("PUBLIC, 10.0.0.0/8", True, True, False),
        ("10.0.0.0/8", False, True, False),
        ("hooks.lan", False, False, True),
    ],
)
def test_an_operator_decides_where_webhooks_may_go(monkeypatch, listed, public, inside, elsewhere):
    monkeypatch.delenv(VARIABLE, raising=False)
    if listed is not None:
        monkeypatch.setenv(VARIABLE, listed)
    reach = bounded(public_only)
    assert reach is not None
    assert reach("x", ip_address("8.8.8.8")) is public
    assert reach("x", ip_address("10.1.2.3")) is inside
    assert reach("hooks.lan", ip_address("192.168.1.1")) is elsewhere


def test_a_program_cannot_go_beyond_what_its_operator_allows(monkeypatch):
    monkeypatch.setenv(VARIABLE, "public")
    for own in (None, public_and("10.0.0.0/8"), only("hooks.lan")):
        reach = bounded(own)
        assert reach is not None
        assert not reach("hooks.lan", ip_address("10.1.2.3"))
    narrower = bounded(only("hooks.example"))
    assert narrower is not None
    assert narrower("hooks.example", ip_address("8.8.8.8"))
    assert not narrower("other.example", ip_address("8.8.8.8"))
