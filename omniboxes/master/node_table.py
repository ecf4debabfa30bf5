"""What the master knows about its nodes, and which of them a lease is asked of.

Pure state: no I/O and no awaits, so every change is one step on the event loop. A node's `free`
count is what the node last reported less the leases being asked of it right now; a burst of
requests therefore spreads before the first answer comes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from omniboxes.common.redis_registry import node_url
from omniboxes.common.wire import NodeId, NodeInfo, NodeState
from omniboxes.errors import NodeNotFound


def node_id(url: str) -> NodeId:
    """Return the opaque name of a node that clients see: stable, and no address."""
    return NodeId(hashlib.sha256(url.encode()).hexdigest()[:16])


@dataclass(slots=True, eq=False)
class Node:
    """One node as last seen."""

    url: str
    id: NodeId
    healthy: bool = False
    capacity: int = 0
    reported: int = 0
    """Free sessions, by the node's own last word."""
    pending: int = 0
    """Leases being asked of the node now."""
    instances: tuple[str, ...] = ()
    chosen_at: int = 0
    """When the node was last chosen, counted in choices; the older one wins a tie."""

    @property
    def free(self) -> int:
        """The sessions that a further request may hope for."""
        return max(0, self.reported - self.pending)

    def state(self) -> NodeState:
        """Return the node as `/info` shows it."""
        return NodeState(
            url=self.url,
            hash=self.id,
            healthy=self.healthy,
            capacity=self.capacity,
            available=self.reported,
            instances=list(self.instances),
        )


class NodeTable:
    """The static nodes, which stay for ever, and those the registry names at present."""

    def __init__(self, static_urls: Iterable[str] = ()) -> None:
        self._nodes: dict[NodeId, Node] = {}
        self._static = frozenset(self._add(url).id for url in static_urls)
        self._choices = 0

    def __repr__(self) -> str:
        healthy = sum(node.healthy for node in self._nodes.values())
        free = sum(node.free for node in self._nodes.values())
        return f"<NodeTable [{len(self._nodes)} nodes, {healthy} healthy, {free} free]>"

    def __iter__(self) -> Iterator[Node]:
        return iter(list(self._nodes.values()))

    def _add(self, url: str) -> Node:
        spelled = node_url(url)
        node = Node(spelled, node_id(spelled))
        return self._nodes.setdefault(node.id, node)

    def find(self, name: str) -> Node:
        """Return the node of a hash or URL, healthy or not; raises NodeNotFound."""
        node = self._nodes.get(NodeId(name)) or self._nodes.get(_id_of_url(name))
        if node is None:
            raise NodeNotFound(f"Node {name} is not found")
        return node

    def sync(self, registered_urls: Iterable[str]) -> list[Node]:
        """Make the registry's nodes exactly these and return the ones that are new."""
        known = set(self._nodes)
        kept = {self._add(url).id for url in registered_urls} | self._static
        self._nodes = {name: node for name, node in self._nodes.items() if name in kept}
        return [node for name, node in self._nodes.items() if name not in known]

    @contextmanager
    def choose(self, tried: Collection[NodeId]) -> Iterator[Node | None]:
        """Choose the node to ask next and count the request on it while the block runs.

        The node with most room comes first. One that looks full comes last but is not left out:
        the count may be old. An unhealthy one is asked only when none is healthy.
        """
        left = [node for node in self._nodes.values() if node.id not in tried]
        if any(node.healthy for node in self._nodes.values()):
            left = [node for node in left if node.healthy]
        node = min(left, key=lambda n: (-n.free, n.chosen_at), default=None)
        if node is None:
            yield None
            return
        self._choices += 1
        node.chosen_at = self._choices
        node.pending += 1
        try:
            yield node
        finally:
            node.pending -= 1

    @staticmethod
    def record(node: Node, info: NodeInfo) -> None:
        """Take over what a node says about itself."""
        node.healthy = True
        node.capacity = info.capacity
        node.reported = info.available
        node.instances = tuple(info.in_use)

    @staticmethod
    def record_available(node: Node, header: str | None, *, otherwise: int | None = None) -> None:
        """Take over the count that came with an answer; without one, what is known otherwise."""
        if header is not None and header.isdecimal():
            node.reported = int(header)
        elif otherwise is not None:
            node.reported = max(0, otherwise)

    @staticmethod
    def record_failure(node: Node) -> None:
        """Note that a node does not answer; its hash stays known."""
        node.healthy = False
        node.capacity = 0
        node.reported = 0
        node.instances = ()


def _id_of_url(text: str) -> NodeId:
    try:
        return node_id(node_url(text))
    except ValueError:
        return NodeId("")
