"""Decide whether a page may connect to an address; pure, no I/O.

Three tiers: some addresses and the tier's own ports are never allowed; what is not public needs an
entry in OMNIBOX_EGRESS_ALLOW; the rest is open.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from ipaddress import ip_address

from omniboxes.node.egress._address import (
    IPAddress,
    canonical_host,
    layers,
    never_reason,
    restricted_reason,
)
from omniboxes.node.egress._rule import SETTING, AllowRule, is_name

__all__ = ["SETTING", "EgressPolicy", "IPAddress", "IsLocal", "Refusal", "canonical_host"]

IsLocal = Callable[[IPAddress], bool]

_GUARDED = "a port of the browser tier itself or of its Redis"

# Names that mean something else, or something private, wherever they are resolved.
_PRIVATE_SUFFIXES = (".localhost", ".local", ".localdomain", ".internal", ".home.arpa")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a connection was not made; `address` is None when only an upstream could resolve it."""

    host: str
    port: int
    address: str | None
    reason: str
    is_allowable: bool

    @property
    def sentence(self) -> str:
        """Say it to the person who asked for the page."""
        if self.address is None:
            endpoint = where = f"{self.host}:{self.port}"
        else:
            bare = f"[{self.address}]" if ":" in self.address else self.address
            endpoint = where = f"{bare}:{self.port}"
            if self.host != self.address:
                where = f"{endpoint} ({self.host})"
        if self.is_allowable:
            return f"Address {where} is {self.reason}; add {endpoint} to {SETTING} to allow it."
        return f"Address {where} is {self.reason} and never allowed, whatever {SETTING} says."


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """Rules for everything that the pages of one node send."""

    rules: tuple[AllowRule, ...] = ()
    guarded_ports: frozenset[int] = frozenset()
    """Refused on every address of this machine."""
    guarded_endpoints: frozenset[tuple[IPAddress, int]] = frozenset()
    """Refused wherever they are, e.g. a remote Redis."""

    @classmethod
    def parse(
        cls,
        allow: str,
        *,
        guarded_ports: Iterable[int],
        guarded_endpoints: Iterable[tuple[str, int]] = (),
    ) -> "EgressPolicy":
        """Parse the setting; a malformed entry is a ValueError that names it."""
        entries = (entry.strip() for entry in allow.split(","))
        return cls(
            rules=tuple(AllowRule.parse(entry) for entry in entries if entry),
            guarded_ports=frozenset(guarded_ports),
            guarded_endpoints=frozenset(
                (layer, port)
                for address, port in guarded_endpoints
                for layer in layers(ip_address(address))
            ),
        )

    def guarding(self, ports: Iterable[int]) -> "EgressPolicy":
        """Return this policy with more guarded ports."""
        return replace(self, guarded_ports=self.guarded_ports.union(ports))

    def guards_port(self, port: int) -> bool:
        """Return whether any address is guarded on `port`."""
        return port in self.guarded_ports or any(port == p for _, p in self.guarded_endpoints)

    def check(
        self, host: str, port: int, address: IPAddress, *, is_local: IsLocal
    ) -> Refusal | None:
        """Return why `address`, to which `host` as requested resolved, is refused, or None.

        `is_local` says whether an address belongs to this machine.
        """
        host = canonical_host(host)
        targets = layers(address)
        for target in targets:
            if (reason := never_reason(target)) is not None:
                return Refusal(host, port, str(target), reason, is_allowable=False)
            if self._is_guarded(target, port, is_local):
                return Refusal(host, port, str(target), _GUARDED, is_allowable=False)
        if self._allows_name(host, port):
            return None
        for target in targets:
            reason = restricted_reason(target)
            if reason is not None and not self._allows_address(target, port):
                return Refusal(host, port, str(target), reason, is_allowable=True)
        return None

    def check_unresolved(self, host: str, port: int) -> Refusal | None:
        """Return why a name that only the user's own proxy can resolve is refused, or None."""
        host = canonical_host(host)
        if not is_name(host):
            return Refusal(host, port, None, "malformed", is_allowable=False)
        if self.guards_port(port):
            return Refusal(host, port, None, _GUARDED, is_allowable=False)
        if self._allows_name(host, port):
            return None
        if "." not in host or host.endswith(_PRIVATE_SUFFIXES):
            return Refusal(host, port, None, "a name of a private network", is_allowable=True)
        return None

    def _is_guarded(self, address: IPAddress, port: int, is_local: IsLocal) -> bool:
        if (address, port) in self.guarded_endpoints:
            return True
        return port in self.guarded_ports and is_local(address)

    def _allows_name(self, host: str, port: int) -> bool:
        return any(rule.matches_name(host, port) for rule in self.rules)

    def _allows_address(self, address: IPAddress, port: int) -> bool:
        return any(rule.matches_address(address, port) for rule in self.rules)
