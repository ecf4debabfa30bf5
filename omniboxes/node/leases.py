"""The ledger: every session of the node and every lease on one. Pure and synchronous.

    (nothing) ──ready──► ready ──grant──► leased ──release, expire──► recycling ──ready, new id──►
                           └──────gone, down───────► lost; a leased one leaves a tombstone

The ledger is the truth about this node: each request is checked here before it is forwarded, so an
old id can never drive the next tenant's browser, and the pool's sets can be rebuilt from it.

A lease ends when it was unused for its lifetime, and in any case at its absolute maximum. While a
request is in flight it is in use. A tombstone remembers that a lease ended by a crash, so that its
client learns why, until that client releases it.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from omniboxes.common.wire import InstanceId
from omniboxes.errors import InstanceCrashed, InstanceNotFound
from omniboxes.node.pool import PoolState

NOT_IN_USE = "Instance not in use or already released"
CRASHED = "The browser of this instance crashed; release it and get another"
TOMBSTONE_S = 3600.0
MAX_TOMBSTONES = 10_000


@dataclass(slots=True, eq=False)
class Lease:
    """One granted session."""

    instance_id: InstanceId
    idle_s: float
    """How long it may stay unused."""
    ends_at: float
    """Its absolute end."""
    unused_since: float
    life: int
    """Which life of its instance server the session belongs to."""
    in_flight: int = 0
    caller: str | None = None
    """The name its client gave, for people who look at `/info`."""

    @property
    def port(self) -> int:
        """Port of the instance server that holds the session."""
        return port_of(self.instance_id)

    @property
    def uuid(self) -> str:
        """The id under which the instance server knows the session."""
        return self.instance_id.partition(":")[0]

    def expires_at(self) -> float:
        """Return when it ends if nothing happens any more."""
        if self.in_flight:
            return self.ends_at
        return min(self.unused_since + self.idle_s, self.ends_at)


class Counts(NamedTuple):
    """How many sessions are in which state."""

    size: int
    """Configured, up or not."""
    ready: int
    leased: int
    recycling: int
    """Released, not yet ready for the next tenant."""
    capacity: int
    """Up: ready, leased or recycling."""

    @property
    def leasable(self) -> int:
        """Not leased: ready now, or being recycled or started."""
        return self.size - self.leased


@dataclass(slots=True)
class _Server:
    """What the ledger knows of one instance server."""

    slots: int
    life: int = 1
    ready: set[InstanceId] = field(default_factory=set)
    leased: dict[InstanceId, Lease] = field(default_factory=dict)
    recycling: dict[InstanceId, float] = field(default_factory=dict)
    """Released ids without a successor, and since when; oldest first."""

    def up(self) -> int:
        return min(self.slots, len(self.ready) + len(self.leased) + len(self.recycling))


class Ledger:
    """State of all sessions of one node."""

    def __init__(
        self,
        servers: Iterable[tuple[int, int]],
        *,
        max_lease_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start with nothing ready; `servers` are pairs of port and number of slots."""
        self._servers = {port: _Server(slots) for port, slots in servers}
        self._size = sum(server.slots for server in self._servers.values())
        self._max_lease_s = max_lease_s
        self._clock = clock
        self._tombstones: OrderedDict[InstanceId, float] = OrderedDict()

    def __repr__(self) -> str:
        counts = self.counts()
        return (
            f"<Ledger [{counts.ready} ready, {counts.leased} leased, "
            f"{counts.recycling} recycling of {counts.size}]>"
        )

    def ready(self, instance_id: InstanceId) -> bool:
        """Record a session that can be leased; False for one that is or was known already."""
        server = self._servers[port_of(instance_id)]
        known = (server.ready, server.leased, server.recycling, self._tombstones)
        if any(instance_id in place for place in known):
            return False
        server.ready.add(instance_id)
        if server.recycling:
            del server.recycling[next(iter(server.recycling))]
        return True

    def grant(self, instance_id: InstanceId, idle_s: float) -> Lease | None:
        """Lease a ready session; None when it is not ready (any more)."""
        server = self._server_of(instance_id)
        if server is None or instance_id not in server.ready:
            return None
        server.ready.remove(instance_id)
        now = self._clock()
        lease = Lease(instance_id, idle_s, now + self._max_lease_s, now, server.life)
        server.leased[instance_id] = lease
        return lease

    def find(self, instance_id: InstanceId) -> Lease:
        """Return the live lease of an id.

        Raises InstanceCrashed when it ended by a crash and InstanceNotFound when there is none.
        """
        server = self._server_of(instance_id)
        lease = server.leased.get(instance_id) if server else None
        if lease is not None and lease.expires_at() > self._clock():
            return lease
        if self.is_buried(instance_id):
            raise InstanceCrashed(CRASHED)
        raise InstanceNotFound(NOT_IN_USE)

    def begin(self, instance_id: InstanceId) -> Lease:
        """Count a use of a lease that starts now; raises as `find`."""
        lease = self.find(instance_id)
        lease.in_flight += 1
        return lease

    def end(self, lease: Lease) -> None:
        """Count the end of a use; harmless when the lease ended before."""
        lease.in_flight -= 1
        lease.unused_since = self._clock()

    def release(self, instance_id: InstanceId) -> Lease:
        """End a lease; its session is recycled from now on. Raises as `find`."""
        lease = self.find(instance_id)
        self._end_lease(lease)
        return lease

    def expire(self) -> list[Lease]:
        """End and return the leases whose time is over."""
        now = self._clock()
        over = [lease for lease in self._leases() if lease.expires_at() <= now]
        for lease in over:
            self._end_lease(lease)
        return over

    def next_expiry(self) -> float:
        """Return when `expire` has something to do at the earliest; infinite without leases."""
        return min((lease.expires_at() for lease in self._leases()), default=math.inf)

    def gone(self, instance_id: InstanceId, *, comes_back: bool) -> Lease | None:
        """Record that a session ceased to exist; returns the lease this ended, if any.

        `comes_back` says that the slot is up and only being renewed, so it still counts.
        """
        server = self._server_of(instance_id)
        if server is None:
            return None
        if instance_id in server.ready:
            server.ready.remove(instance_id)
            if comes_back:
                server.recycling[instance_id] = self._clock()
        elif instance_id in server.recycling and not comes_back:
            del server.recycling[instance_id]
        elif (lease := server.leased.pop(instance_id, None)) is not None:
            self._bury(instance_id)
            if comes_back:
                server.recycling[instance_id] = self._clock()
            return lease
        return None

    def down(self, port: int) -> tuple[list[InstanceId], list[Lease]]:
        """Record the death of an instance server; returns its ready ids and the leases it ended."""
        server = self._servers[port]
        server.life += 1
        ready, leases = list(server.ready), list(server.leased.values())
        server.ready.clear()
        server.leased.clear()
        server.recycling.clear()
        for lease in leases:
            self._bury(lease.instance_id)
        return ready, leases

    def is_buried(self, instance_id: InstanceId) -> bool:
        """Tell whether the lease of this id ended by a crash and its client has not released it."""
        buried_at = self._tombstones.get(instance_id)
        return buried_at is not None and buried_at > self._clock() - TOMBSTONE_S

    def forget(self, instance_id: InstanceId) -> None:
        """Drop the tombstone of an id, if there is one."""
        self._tombstones.pop(instance_id, None)

    def counts(self) -> Counts:
        """Count the sessions by state."""
        servers = self._servers.values()
        return Counts(
            size=self._size,
            ready=sum(len(server.ready) for server in servers),
            leased=sum(len(server.leased) for server in servers),
            recycling=sum(len(server.recycling) for server in servers),
            capacity=sum(server.up() for server in servers),
        )

    def callers(self) -> dict[str, str]:
        """Return the names that clients gave with their leases, by instance id."""
        return {lease.instance_id: lease.caller for lease in self._leases() if lease.caller}

    def in_flight(self) -> int:
        """Count the requests that leases are used for at the moment."""
        return sum(lease.in_flight for lease in self._leases())

    def state(self) -> PoolState:
        """Return what the pool's sets must be."""
        servers = self._servers.values()
        return PoolState(
            frozenset(instance_id for server in servers for instance_id in server.ready),
            frozenset(lease.instance_id for lease in self._leases()),
        )

    def overdue(self, after_s: float) -> dict[int, int]:
        """Count, by port, the released sessions without a successor for that many seconds."""
        limit = self._clock() - after_s
        late = {
            port: sum(since <= limit for since in server.recycling.values())
            for port, server in self._servers.items()
        }
        return {port: count for port, count in late.items() if count}

    def is_outlived(self, lease: Lease) -> bool:
        """Tell whether the instance server of a lease has died since it was granted."""
        return self._servers[lease.port].life != lease.life

    def is_idle(self, port: int) -> bool:
        """Tell whether no lease lives in an instance server."""
        return not self._servers[port].leased

    def _leases(self) -> Iterable[Lease]:
        return (lease for server in self._servers.values() for lease in server.leased.values())

    def _server_of(self, instance_id: InstanceId) -> _Server | None:
        # Clients send ids, so anything may be in them.
        port = instance_id.rpartition(":")[2]
        is_port = len(port) <= 5 and port.isascii() and port.isdecimal()
        return self._servers.get(int(port)) if is_port else None

    def _end_lease(self, lease: Lease) -> None:
        server = self._servers[lease.port]
        del server.leased[lease.instance_id]
        server.recycling[lease.instance_id] = self._clock()

    def _bury(self, instance_id: InstanceId) -> None:
        now = self._clock()
        self._tombstones[instance_id] = now
        oldest_at = next(iter(self._tombstones.values()))
        if len(self._tombstones) > MAX_TOMBSTONES or oldest_at <= now - TOMBSTONE_S:
            self._tombstones.popitem(last=False)


def port_of(instance_id: InstanceId) -> int:
    """Return the port in an id that an instance server announced."""
    return int(instance_id.rpartition(":")[2])
