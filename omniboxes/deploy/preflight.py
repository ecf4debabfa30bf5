"""What is checked before anything is started, so that a wrong set-up costs one sentence."""

from __future__ import annotations

from dataclasses import dataclass

from omniboxes.browser import find_browser
from omniboxes.common import serving
from omniboxes.common.settings import Settings
from omniboxes.errors import SetupError

LOOPBACK = "127.0.0.1"
EVERYWHERE = "0.0.0.0"
MAX_PORT = 65535
MAX_SESSIONS = 10_000


@dataclass(frozen=True, slots=True)
class Deployment:
    """One machine's tier: how many sessions, and where its servers listen."""

    sessions: int
    host: str = LOOPBACK
    master_port: int = 7000
    node_port: int = 8080
    instance_start_port: int = 9000
    nginx: bool = False
    recovery: bool = True
    """Whether a server that ends is started again; if not, its end is the end of all."""

    @property
    def master(self) -> str:
        """Where this machine reaches the master, as `host:port`."""
        host = {EVERYWHERE: LOOPBACK, "::": "::1"}.get(self.host, self.host)
        return f"[{host}]:{self.master_port}" if ":" in host else f"{host}:{self.master_port}"

    def instance_ports(self, slots_per_browser: int) -> range:
        """Return the ports of the instance servers, one for each Chromium."""
        servers = -(-self.sessions // slots_per_browser)
        return range(self.instance_start_port, self.instance_start_port + servers)


def check(deployment: Deployment, settings: Settings) -> None:
    """Raise SetupError for the first thing that would keep the tier from working."""
    if not 1 <= deployment.sessions <= MAX_SESSIONS:
        raise SetupError(
            f"Serve from 1 to {MAX_SESSIONS} sessions on one machine, not {deployment.sessions}."
        )
    _check_access(deployment, settings.resolved_api_key())
    instance_ports = deployment.instance_ports(settings.slots_per_browser)
    _check_ports_differ(deployment, instance_ports)
    _check_ports_are_free(deployment, instance_ports)
    find_browser(settings.browser)


def _check_access(deployment: Deployment, key: str | None) -> None:
    serving.check_bind(deployment.host, key)
    if deployment.nginx and key is None:
        raise SetupError(
            "Refusing --nginx without a key: it opens the master to the network. Set "
            "OMNIBOX_API_KEY (or OMNIBOX_API_KEY_FILE)."
        )


def _check_ports_differ(deployment: Deployment, instance_ports: range) -> None:
    named = {"master": deployment.master_port, "node": deployment.node_port}
    for port in (*named.values(), instance_ports[0], instance_ports[-1]):
        if not 1 <= port <= MAX_PORT:
            raise SetupError(f"{port} is not a port: ports go from 1 to {MAX_PORT}.")
    for name, port in named.items():
        if port in instance_ports:
            raise SetupError(
                f"The {name}'s port {port} lies among those of the instance servers "
                f"({instance_ports[0]} to {instance_ports[-1]}): change --{name}-port or "
                "--instance-start-port."
            )
    if deployment.master_port == deployment.node_port:
        raise SetupError(
            f"Master and node cannot both have port {deployment.master_port}: "
            "change --master-port or --node-port."
        )


def _check_ports_are_free(deployment: Deployment, instance_ports: range) -> None:
    serving.listen(deployment.host, deployment.master_port).close()
    for port in (deployment.node_port, *instance_ports):
        serving.listen(LOOPBACK, port).close()
