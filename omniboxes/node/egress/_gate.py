"""Resolve a host and let through only the addresses that the policy permits."""

import asyncio
import errno
import socket
from ipaddress import IPv4Address

from omniboxes.node.egress._address import IPAddress
from omniboxes.node.egress._dial import ConnectFailure, DialError
from omniboxes.node.egress._resolver import Resolver
from omniboxes.node.egress._socks import Target
from omniboxes.node.egress.policy import EgressPolicy, Refusal

# A node behind a proxy may have no DNS at all; then every name would cost the whole time budget.
_UPSTREAM_LOOKUP_S = 2.0


def is_local_address(address: IPAddress) -> bool:
    """Return whether `address` is one of this machine's: only those can be bound."""
    if address.is_loopback:
        return True
    family = socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError as exc:
        # Any other error says nothing about the address, so it stays guarded.
        return exc.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
    return True


class Gate:
    """The policy applied to what names resolve to; DialError says why a target is shut."""

    def __init__(self, policy: EgressPolicy, resolver: Resolver) -> None:
        self.policy = policy
        self._resolver = resolver

    async def permitted(self, target: Target, deadline: float) -> list[IPAddress]:
        """Return the addresses of `target` that may be dialled, at least one."""
        try:
            async with asyncio.timeout_at(deadline):
                addresses = await self._resolver.resolve(target.host)
        except OSError as exc:
            raise DialError(ConnectFailure(*target, "net::ERR_NAME_NOT_RESOLVED")) from exc
        verdicts = [(address, self._check(target, address)) for address in addresses]
        permitted = [address for address, refusal in verdicts if refusal is None]
        refusals = [refusal for _, refusal in verdicts if refusal is not None]
        if not permitted:
            raise DialError(refusals[0])
        return permitted

    async def named(self, target: Target) -> Target:
        """Return `target` as the user's own proxy may be asked for it.

        That proxy resolves the name again and may see another address. What it can reach is its
        owner's business, except for the guarded ports: there it gets the checked address.
        """
        try:
            async with asyncio.timeout(_UPSTREAM_LOOKUP_S):
                addresses = await self._resolver.resolve(target.host)
        except OSError as exc:
            if (refusal := self.policy.check_unresolved(*target)) is not None:
                raise DialError(refusal) from exc
            return target
        for address in addresses:
            if (refusal := self._check(target, address)) is not None:
                raise DialError(refusal)
        if self.policy.guards_port(target.port):
            return Target(str(addresses[0]), target.port)
        return target

    def _check(self, target: Target, address: IPAddress) -> Refusal | None:
        return self.policy.check(*target, address, is_local=is_local_address)
