"""Which addresses may be connected to."""

from ipaddress import ip_network

import pytest

from duly.contrib.http.addresses import why_refused

PUBLIC = ["1.1.1.1", "93.184.215.14", "11.0.0.1", "172.32.0.1", "100.128.0.1", "192.0.1.1",
          "198.20.0.1", "223.255.255.255", "2606:4700::1111", "2a00:1450:4001:81b::200e",
          "2001:4860:4860::8888"]  # fmt: skip

REFUSED = {
    "0.0.0.0": "this host",
    "0.1.2.3": "this host",
    "::": "this host",
    "10.0.0.1": "private",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.168.1.1": "private",
    "fd00:ec2::254": "private",  # metadata at AWS
    "fc00::1": "private",
    "100.64.0.1": "CGNAT",
    "100.100.100.200": "CGNAT",  # metadata at Alibaba
    "100.127.255.255": "CGNAT",
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "::1": "loopback",
    "169.254.169.254": "link-local",
    "169.254.170.2": "link-local",
    "fe80::a9fe:a9fe": "link-local",
    "168.63.129.16": "cloud",
    "224.0.0.1": "multicast",
    "239.255.255.250": "multicast",
    "ff02::1": "multicast",
    "192.0.0.192": "protocols",  # metadata at Oracle
    "2001::1": "protocols",  # Teredo
    "2001:20::1": "protocols",
    "192.0.2.1": "documentation",
    "198.51.100.1": "documentation",
    "203.0.113.1": "documentation",
    "2001:db8::1": "documentation",
    "3fff::1": "documentation",
    "198.18.0.1": "benchmarks",
    "198.19.255.255": "benchmarks",
    "192.88.99.1": "6to4",
    "2002:7f00:1::": "6to4",
    "2002:a9fe:a9fe::": "6to4",
    "240.0.0.1": "reserved",
    "255.255.255.255": "reserved",
    "::ffff:127.0.0.1": "IPv4-mapped",
    "::ffff:169.254.169.254": "IPv4-mapped",
    "::ffff:1.1.1.1": "IPv4-mapped",
    "64:ff9b::7f00:1": "NAT64",
    "64:ff9b::a9fe:a9fe": "NAT64",
    "64:ff9b:1::1": "NAT64",
    "::127.0.0.1": "not a public",
    "fec0::1": "not a public",
    "100::1": "not a public",
    "4000::1": "not a public",
    "5f00::1": "not a public",
    "fe80::1%eth0": "zone",
    "2606:4700::1111%1": "zone",
    "127.1": "usual form",
    "2130706433": "usual form",
    "0x7f.0.0.1": "usual form",
    "0177.0.0.1": "usual form",
    "localhost": "usual form",
    "": "usual form",
}


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_not_refused(address: str) -> None:
    assert why_refused(address) is None


@pytest.mark.parametrize(("address", "kind"), REFUSED.items())
def test_what_is_not_public_is_refused_by_its_kind(address: str, kind: str) -> None:
    assert kind in str(why_refused(address))


def test_a_network_may_be_allowed_and_nothing_beside_it() -> None:
    allowed = [ip_network("10.1.0.0/16"), ip_network("::1/128")]
    assert why_refused("10.1.2.3", allowed) is None
    assert why_refused("::1", allowed) is None
    for address in ("10.2.0.1", "127.0.0.1", "169.254.169.254", "::ffff:10.1.2.3"):
        assert why_refused(address, allowed) is not None


@pytest.mark.parametrize(
    ("network", "public", "inside"),
    [
        ("64:ff9b::/96", "64:ff9b::101:101", "64:ff9b::a9fe:a9fe"),
        ("::ffff:0:0/96", "::ffff:1.1.1.1", "::ffff:169.254.169.254"),
        ("2002::/16", "2002:101:101::", "2002:a9fe:a9fe::"),
    ],
)
def test_an_address_within_an_address_is_looked_at_too(
    network: str, public: str, inside: str
) -> None:
    allowed = [ip_network(network)]
    assert why_refused(public, allowed) is None
    assert "link-local" in str(why_refused(inside, allowed))
    assert why_refused(inside, [*allowed, ip_network("169.254.0.0/16")]) is None
