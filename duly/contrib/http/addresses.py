"""Which IP addresses may be connected to: those of the public Internet, and networks allowed by name.

Refused is what IANA's registries of special addresses
(https://www.iana.org/assignments/iana-ipv4-special-registry,
https://www.iana.org/assignments/iana-ipv6-special-registry) do not call globally reachable, and
what carries an IPv4 address in IPv6, by which a translator might reach the inside. Of IPv6 only
global unicast addresses (2000::/3) are public at all.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

Network = IPv4Network | IPv6Network

_REFUSED: Final = {
    "an address of this host": ("0.0.0.0/8", "::/128"),
    "a private address": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"),
    "a shared address (CGNAT)": ("100.64.0.0/10",),
    "a loopback address": ("127.0.0.0/8", "::1/128"),
    # 169.254.169.254 is where clouds keep metadata, and so is fe80::a9fe:a9fe.
    "a link-local address": ("169.254.0.0/16", "fe80::/10"),
    "an address of a cloud's own services": ("168.63.129.16/32",),  # Azure; public by its number
    "a multicast address": ("224.0.0.0/4", "ff00::/8"),
    "an address for protocols": ("192.0.0.0/24", "2001::/23"),  # with Teredo, ORCHID, NAT64 probes
    "an address for documentation": (
        "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20",
    ),
    "an address for benchmarks": ("198.18.0.0/15",),
    "a 6to4 address": ("192.88.99.0/24", "2002::/16"),
    "a reserved address": ("240.0.0.0/4",),
    "an IPv4-mapped address": ("::ffff:0:0/96",),
    "a NAT64 address": ("64:ff9b::/96", "64:ff9b:1::/48"),
}  # fmt: skip

_KINDS: Final = [
    (ip_network(network), kind) for kind, networks in _REFUSED.items() for network in networks
]
_PUBLIC_V6: Final = ip_network("2000::/3")
_MAPPED: Final = ip_network("::ffff:0:0/96")
_NAT64: Final = ip_network("64:ff9b::/96")
_SIX_TO_FOUR: Final = ip_network("2002::/16")


def why_refused(text: str, allowed: Sequence[Network] = ()) -> str | None:
    """What kind of address it is that must not be connected to; None: it may be.

    `allowed`: networks that are no reason to refuse. An address that carries an IPv4 address
    (mapped, NAT64, 6to4) needs both to be allowed.
    """
    try:
        address = ip_address(text)
    except ValueError:
        return "not an address in its usual form"
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        return "an address with a zone"
    inner = _carried(address)
    if any(address in network for network in allowed):
        return None if inner is None else why_refused(str(inner), allowed)
    for network, kind in _KINDS:
        if address in network:
            return kind
    if isinstance(address, IPv6Address) and address not in _PUBLIC_V6:
        return "not a public address"
    return None


def _carried(address: IPv4Address | IPv6Address) -> IPv4Address | None:
    if address in _MAPPED or address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    if address in _SIX_TO_FOUR:
        return IPv4Address(int(address) >> 80 & 0xFFFF_FFFF)
    return None
