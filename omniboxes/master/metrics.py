"""The master's Prometheus metrics: requests by route and status, latency, nodes, sessions."""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from omniboxes.master.node_manager import NodeManager

_LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_OTHER = "other"


class Metrics:
    """One registry of its own, so that several applications can live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "omnibox_master_requests",
            "Requests answered",
            ["route", "status"],
            registry=self.registry,
        )
        self._latency = Histogram(
            "omnibox_master_request_seconds",
            "Time to answer, body included",
            ["route"],
            buckets=_LATENCY_BUCKETS,
            registry=self.registry,
        )

    def observe(self, route: str, status: int, elapsed_s: float) -> None:
        """Count one answered request."""
        self._requests.labels(route, str(status)).inc()
        self._latency.labels(route).observe(elapsed_s)

    def render(self) -> bytes:
        """Return all metrics as Prometheus reads them."""
        return generate_latest(self.registry)


class NodeCollector(Collector):
    """The nodes as seen at the moment of the scrape; a node that left leaves no series behind."""

    def __init__(self, manager: NodeManager) -> None:
        self._manager = manager

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of nodes and registry."""
        nodes = list(self._manager.table)
        health = Tally("healthy" if node.healthy else "unhealthy" for node in nodes)
        count = GaugeMetricFamily("omnibox_master_nodes", "Nodes by health", labels=["state"])
        for state in ("healthy", "unhealthy"):
            count.add_metric([state], health[state])
        yield count
        sessions = GaugeMetricFamily(
            "omnibox_master_node_sessions", "Sessions as last seen", labels=["node", "state"]
        )
        for node in nodes:
            sessions.add_metric([node.id, "available"], node.reported)
            sessions.add_metric([node.id, "in_use"], len(node.instances))
            sessions.add_metric([node.id, "capacity"], node.capacity)
        yield sessions
        yield from self._registry_metrics()

    def _registry_metrics(self) -> Iterator[Metric]:
        if self._manager.registry_is_up is None:
            return
        yield GaugeMetricFamily(
            "omnibox_master_registry_up",
            "Whether the registry's Redis answered last time",
            value=float(self._manager.registry_is_up),
        )
        yield CounterMetricFamily(
            "omnibox_master_registry_failures",
            "Refreshes that the registry's Redis did not answer",
            value=self._manager.registry_failures,
        )


class MetricsMiddleware:
    """Count and time every request, refused ones too."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, paths: Iterable[str]) -> None:
        self._app = app
        self._metrics = metrics
        # Labels come from our routes only: a scanner's paths must not become series.
        self._paths = frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.monotonic()
        status = 500

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        finally:
            path = scope["path"]
            route = path if path in self._paths else _OTHER
            self._metrics.observe(route, status, time.monotonic() - started)
