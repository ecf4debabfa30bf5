"""The node's Prometheus metrics: sessions by state, leases, crashes, refusals, latency by route."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Receive, Scope, Send

from omniboxes.node.desk import Desk
from omniboxes.node.leases import Ledger
from omniboxes.node.supervisor import Supervisor

LEAKED_AFTER_S = 60.0
_LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_OTHER = "other"


class Metrics:
    """One registry of its own, so that several nodes can live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.granted = self._counter("leases_granted", "Leases granted")
        self.released = self._counter("leases_released", "Leases released by their clients")
        self.expired = self._counter("leases_expired", "Leases that nobody used or released")
        self.crashed = self._counter("leases_crashed", "Leases ended by a crash of the browser")
        self.egress_refused = self._counter(
            "egress_refused", "Connections of pages refused by the egress policy"
        )
        self.latency = Histogram(
            "omnibox_node_request_seconds",
            "Time to answer, body included",
            ["route"],
            buckets=_LATENCY_BUCKETS,
            registry=self.registry,
        )

    def _counter(self, name: str, meaning: str) -> Counter:
        return Counter(f"omnibox_node_{name}", meaning, registry=self.registry)

    def render(self) -> bytes:
        """Return all metrics as Prometheus reads them."""
        return generate_latest(self.registry)


class SessionCollector(Collector):
    """The sessions as they are at the moment of the scrape."""

    def __init__(self, ledger: Ledger, desk: Desk, supervisor: Supervisor) -> None:
        self._ledger = ledger
        self._desk = desk
        self._supervisor = supervisor

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges of the sessions and the restarts of their servers."""
        counts = self._ledger.counts()
        leaked = sum(self._ledger.overdue(LEAKED_AFTER_S).values())
        gauges = (
            ("sessions_alive", "Sessions that are up", counts.capacity),
            ("sessions_available", "Sessions that can be leased", counts.ready),
            ("sessions_leased", "Sessions in use", counts.leased),
            ("sessions_recycling", "Sessions being prepared for the next tenant", counts.recycling),
            ("sessions_leaked", "Sessions that did not come back after their release", leaked),
            ("requests_under_way", "Requests that sessions work on", self._ledger.in_flight()),
            ("requests_waiting", "Requests that wait for a session", self._desk.waiting),
        )
        for name, meaning, value in gauges:
            yield GaugeMetricFamily(f"omnibox_node_{name}", meaning, value=value)
        yield CounterMetricFamily(
            "omnibox_node_instance_restarts",
            "Instance servers started again after they ended",
            value=self._supervisor.restarts,
        )


class Stopwatch:
    """ASGI middleware that times every request, refused ones too."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, paths: Iterable[str]) -> None:
        self._app = app
        # Labels come from our routes only: a scanner's paths must not become series.
        self._by_path = {path: metrics.latency.labels(path) for path in paths}
        self._other = metrics.latency.labels(_OTHER)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.monotonic()
        try:
            await self._app(scope, receive, send)
        finally:
            watch = self._by_path.get(scope["path"], self._other)
            watch.observe(time.monotonic() - started)
