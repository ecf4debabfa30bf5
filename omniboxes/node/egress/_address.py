"""Say what kind of address this is; pure, and the same on every Python version.

The tables stand here because `ipaddress.is_global` changed between patch releases.
"""

import re
import socket
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network

_NUMERIC_FORM = re.compile(r"[0-9a-fx.]+")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")

_NAT64 = IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST_V6 = IPv6Network("2000::/3")

# Each hands out credentials or control of the machine to whoever asks; some look private or public.
_METADATA = frozenset(
    ip_address(text)
    for text in (
        "169.254.169.254",  # AWS, Azure, Google, DigitalOcean, Hetzner, Oracle, OpenStack
        "169.254.170.2",  # AWS ECS
        "169.254.170.23",  # AWS EKS
        "fd00:ec2::254",  # AWS
        "fd00:ec2::23",  # AWS EKS
        "fd20:ce::254",  # Google
        "fd00:c1::a9fe:a9fe",  # Oracle
        "fd00:42::42",  # Scaleway
        "100.100.100.200",  # Alibaba
        "192.0.0.192",  # Oracle classic
        "168.63.129.16",  # Azure's wire server
    )
)

_NEVER = (
    ("the unspecified address", "0.0.0.0/8"),
    ("the unspecified address", "::/128"),
    ("a link-local address", "169.254.0.0/16"),
    ("a link-local address", "fe80::/10"),
    ("a multicast address", "224.0.0.0/4"),
    ("a multicast address", "ff00::/8"),
    ("the broadcast address", "255.255.255.255/32"),
    ("a reserved address", "240.0.0.0/4"),
)

_RESTRICTED = (
    ("a loopback address", "127.0.0.0/8"),
    ("a loopback address", "::1/128"),
    ("a private address", "10.0.0.0/8"),
    ("a private address", "172.16.0.0/12"),
    ("a private address", "192.168.0.0/16"),
    ("a private address", "fc00::/7"),
    ("a private address", "fec0::/10"),
    ("a carrier-grade NAT address", "100.64.0.0/10"),
    ("a special-purpose address", "192.0.0.0/24"),
    ("a special-purpose address", "198.18.0.0/15"),
    ("a special-purpose address", "2001::/23"),
    ("a special-purpose address", "2002::/16"),
    ("a documentation address", "192.0.2.0/24"),
    ("a documentation address", "198.51.100.0/24"),
    ("a documentation address", "203.0.113.0/24"),
    ("a documentation address", "2001:db8::/32"),
    ("a documentation address", "3fff::/20"),
)

_Table = tuple[tuple[str, IPNetwork], ...]


def _compiled(rows: tuple[tuple[str, str], ...]) -> _Table:
    return tuple((reason, ip_network(network)) for reason, network in rows)


_NEVER_TABLE = _compiled(_NEVER)
_RESTRICTED_TABLE = _compiled(_RESTRICTED)


def ends_in_number(host: str) -> bool:
    """Return whether URL parsers take `host` for an IPv4 address: its last label is a number."""
    return _NUMBER.fullmatch(host.rpartition(".")[2]) is not None


def parse_literal(host: str) -> IPAddress | None:
    """Return the address that `host` spells, in any form a resolver takes; None for a name.

    `2130706433`, `0x7f.1`, `0177.0.0.1` and `127.1` are all 127.0.0.1. A scope id is dropped.
    """
    try:
        address = ip_address(host)
    except ValueError:
        if not (ends_in_number(host) and _NUMERIC_FORM.fullmatch(host)):
            return None
        try:
            return IPv4Address(socket.inet_aton(host))
        except OSError:
            return None
    return IPv6Address(int(address)) if isinstance(address, IPv6Address) else address


def canonical_host(host: str) -> str:
    """Return the one spelling of `host` that rules and records are keyed by."""
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    host = host.removesuffix(".").lower()
    address = parse_literal(host)
    return host if address is None else str(address)


def layers(address: IPAddress) -> tuple[IPAddress, ...]:
    """Return every address that a packet to `address` may end at, tunnels and mappings opened."""
    if isinstance(address, IPv4Address):
        return (address,)
    address = IPv6Address(int(address))
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address in _NAT64:
        return (IPv4Address(int(address) & 0xFFFF_FFFF),)
    if address.sixtofour is not None:
        return (address, address.sixtofour)
    if address.teredo is not None:
        return (address, *address.teredo)
    return (address,)


def never_reason(address: IPAddress) -> str | None:
    """Return why no configuration can allow `address`, or None."""
    if address in _METADATA:
        return "a cloud metadata address"
    if (reason := _lookup(_NEVER_TABLE, address)) is not None:
        return reason
    # The block that Python calls reserved holds ::1 as well.
    if isinstance(address, IPv6Address) and address.is_reserved and not address.is_loopback:
        return "a reserved address"
    return None


def restricted_reason(address: IPAddress) -> str | None:
    """Return why `address` needs an allow rule, or None for a public address."""
    if (reason := _lookup(_RESTRICTED_TABLE, address)) is not None:
        return reason
    public = address.is_global and (
        isinstance(address, IPv4Address) or address in _GLOBAL_UNICAST_V6
    )
    return None if public else "not a public address"


def _lookup(table: _Table, address: IPAddress) -> str | None:
    return next((reason for reason, network in table if address in network), None)
