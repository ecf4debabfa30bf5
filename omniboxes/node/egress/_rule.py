"""One entry of OMNIBOX_EGRESS_ALLOW: a host, an address, a CIDR or host:port."""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Network, ip_network

from omniboxes.node.egress._address import (
    IPAddress,
    IPNetwork,
    canonical_host,
    ends_in_number,
    parse_literal,
)

SETTING = "OMNIBOX_EGRESS_ALLOW"

_LABEL = "[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*")
_MAPPED = IPv6Network("::ffff:0:0/96")


def is_name(host: str) -> bool:
    """Return whether canonical `host` is a well-formed name, as opposed to an address."""
    return _NAME.fullmatch(host) is not None and not ends_in_number(host)


@dataclass(frozen=True, slots=True)
class AllowRule:
    """Allows a name or a network, on one port or on all."""

    target: str | IPNetwork
    port: int | None = None

    def matches_name(self, host: str, port: int) -> bool:
        """Return whether this rule names canonical `host`."""
        return self.target == host and self.port in (None, port)

    def matches_address(self, address: IPAddress, port: int) -> bool:
        """Return whether this rule's network holds `address`."""
        if isinstance(self.target, str):
            return False
        return address in self.target and self.port in (None, port)

    @classmethod
    def parse(cls, entry: str) -> "AllowRule":
        """Parse one entry; a malformed one is a ValueError of one sentence."""
        if "%" in entry:
            raise _malformed(entry, "a scope id has no meaning here")
        if "/" in entry:
            return cls(_network(entry))
        host, port = _split_port(entry)
        literal = parse_literal(host)
        if isinstance(literal, IPv4Address) and host != str(literal):
            # 010.0.0.1 is 8.0.0.1 to a resolver and hardly to its author.
            raise _malformed(entry, f"write the address as {literal}")
        if literal is not None:
            return cls(_network(str(literal)), port)
        try:
            # Chromium asks for the ASCII form of an international name.
            name = canonical_host(host.encode("idna").decode("ascii"))
        except UnicodeError:
            raise _malformed(entry) from None
        if not is_name(name):
            raise _malformed(entry)
        return cls(name, port)


def _split_port(entry: str) -> tuple[str, int | None]:
    """Split `host:port`, `[v6]:port`, `[v6]` or a lone host or address."""
    if entry.startswith("["):
        host, bracket, rest = entry[1:].partition("]")
        literal = parse_literal(host)
        if not bracket or literal is None or literal.version != 6:
            raise _malformed(entry, "brackets hold an IPv6 address")
        if not rest:
            return host, None
        if not rest.startswith(":"):
            raise _malformed(entry)
        return host, _port(rest[1:], entry)
    if entry.count(":") == 1:
        host, _, port = entry.partition(":")
        return host, _port(port, entry)
    return entry, None


def _port(text: str, entry: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 65535):
        raise _malformed(entry, "a port is a number from 1 to 65535")
    return int(text)


def _network(text: str) -> IPNetwork:
    try:
        network = ip_network(text)
    except ValueError:
        raise _malformed(text) from None
    # Addresses are compared unwrapped, so a mapped rule must be too or it would match nothing.
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        mapped = network.network_address.ipv4_mapped
        return ip_network(f"{mapped}/{network.prefixlen - 96}")
    return network


def _malformed(entry: str, hint: str = "") -> ValueError:
    wanted = "a host, an address, a CIDR (without host bits) or host:port"
    return ValueError(f"{SETTING}: {entry!r} is not {wanted}{hint and f' ({hint})'}.")
