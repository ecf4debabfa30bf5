"""The pool: which sessions can be leased and which are, as two sets of `<uuid>:<port>` ids.

A session enters `available` once, when its browser context is ready, moves to `in_use` in one step
and leaves for good when it is released: the next tenant of the slot gets a new id. The embedded
pool here and the one in Redis pass the same contract tests.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from omniboxes.common.wire import InstanceId


class PoolState(NamedTuple):
    """Both sets at one moment."""

    available: frozenset[InstanceId]
    in_use: frozenset[InstanceId]


class Pool(Protocol):
    """Where the two sets live; a call raises PoolUnavailable when that place is out of reach."""

    check_s: float | None
    """How often `is_ours` must be asked, None when nobody else can change the sets."""

    async def open(self) -> None:
        """Claim the pool and empty it; raises SetupError when that is impossible."""

    async def aclose(self) -> None:
        """Leave nothing behind; never raises when the pool is out of reach."""

    async def is_ours(self) -> bool:
        """Keep the claim alive; False when the sets were lost and must be rebuilt."""

    async def add(self, instance_id: InstanceId) -> None:
        """Make a session available; one that is in use stays in use."""

    async def lease(self) -> InstanceId | None:
        """Move one session from available to in use; None when none is available."""

    async def release(self, instance_id: InstanceId) -> bool:
        """Take a session out of use; tells whether it was in use."""

    async def discard(self, instance_id: InstanceId) -> None:
        """Take a session out of both sets."""

    async def snapshot(self) -> PoolState:
        """Return both sets."""

    async def replace(self, state: PoolState) -> None:
        """Make the sets what `state` says, in one step."""


class EmbeddedPool:
    """The pool in the memory of the node; leases go out in the order sessions came in."""

    check_s: float | None = None

    def __init__(self) -> None:
        # A dict keeps the order of arrival, a set does not.
        self._available: dict[InstanceId, None] = {}
        self._in_use: set[InstanceId] = set()

    def __repr__(self) -> str:
        return f"<EmbeddedPool [{len(self._available)} available, {len(self._in_use)} in use]>"

    async def open(self) -> None:
        """Nothing to claim: no other process can reach this memory."""

    async def aclose(self) -> None:
        """Forget everything."""
        self._available.clear()
        self._in_use.clear()

    async def is_ours(self) -> bool:
        """Answer that it is."""
        return True

    async def add(self, instance_id: InstanceId) -> None:
        """Make a session available; one that is in use stays in use."""
        if instance_id not in self._in_use:
            self._available.setdefault(instance_id)

    async def lease(self) -> InstanceId | None:
        """Move the session that waited longest to in use; None when there is none."""
        if not self._available:
            return None
        instance_id = next(iter(self._available))
        del self._available[instance_id]
        self._in_use.add(instance_id)
        return instance_id

    async def release(self, instance_id: InstanceId) -> bool:
        """Take a session out of use; tells whether it was in use."""
        was_in_use = instance_id in self._in_use
        self._in_use.discard(instance_id)
        return was_in_use

    async def discard(self, instance_id: InstanceId) -> None:
        """Take a session out of both sets."""
        self._available.pop(instance_id, None)
        self._in_use.discard(instance_id)

    async def snapshot(self) -> PoolState:
        """Return both sets."""
        return PoolState(frozenset(self._available), frozenset(self._in_use))

    async def replace(self, state: PoolState) -> None:
        """Make the sets what `state` says."""
        self._available = dict.fromkeys(sorted(state.available))
        self._in_use = set(state.in_use)
