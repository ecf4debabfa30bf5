"""How instance servers are started: which ports and slots, the command, the environment."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from omniboxes.common.settings import Settings
from omniboxes.errors import SetupError

PORTS_VARIABLE = "OMNIBOX_GUARDED_PORTS"
ENDPOINTS_VARIABLE = "OMNIBOX_GUARDED_ENDPOINTS"
KEY_VARIABLE = "OMNIBOX_INSTANCE_KEY"
# An instance server has its own key and no pool; pages run below it, so it learns no other secret.
WITHHELD = frozenset({"api_key", "api_key_file", "node_key", "redis_url", "redis_prefix"})


class ServerSpec(NamedTuple):
    """One instance server."""

    port: int
    slots: int


@dataclass(frozen=True, slots=True)
class Launch:
    """The instance servers of a node and what each of them is started with."""

    servers: tuple[ServerSpec, ...]
    command: tuple[str, ...]
    environment: Mapping[str, str]

    def argv(self, spec: ServerSpec) -> tuple[str, ...]:
        """Return the command line of one server."""
        return (*self.command, "--port", str(spec.port), "--slots", str(spec.slots))

    def environ(self, directory: Path) -> dict[str, str]:
        """Return the environment of one life of a server."""
        return {**self.environment, "TMPDIR": str(directory)}


INSTANCE_SERVER = (
    sys.executable,
    *(("-P",) if sys.flags.safe_path else ()),
    *("-m", "omniboxes.node.instance_server", "--end-with-parent"),
)


def plan(instances: int, slots_per_browser: int, start_port: int) -> tuple[ServerSpec, ...]:
    """Spread the sessions evenly over as few instance servers as hold them."""
    servers = -(-instances // slots_per_browser)
    if start_port + servers - 1 > 65535:
        raise SetupError(f"{servers} instance servers do not fit above port {start_port}.")
    share, rest = divmod(instances, servers)
    return tuple(ServerSpec(start_port + n, share + (n < rest)) for n in range(servers))


def environment(
    settings: Settings, *, instance_key: str, guarded_ports: Iterable[int]
) -> dict[str, str]:
    """Return the environment of all instance servers, settings given as flags included.

    The tier's own addresses go along, so that no page ever reaches them: those the deployer put in
    the environment, `guarded_ports`, and the Redis of the settings.
    """
    names = {f"OMNIBOX_{name}".upper() for name in Settings.model_fields}
    inherited = {name: value for name, value in os.environ.items() if name.upper() not in names}
    values = settings.model_dump(mode="json", exclude=set(WITHHELD), exclude_none=True)
    own = {f"OMNIBOX_{name}".upper(): _text(value) for name, value in values.items()}
    ports, endpoints = _redis_addresses(settings.redis_url)
    return {
        **inherited,
        **own,
        KEY_VARIABLE: instance_key,
        PORTS_VARIABLE: _joined(PORTS_VARIABLE, map(str, (*guarded_ports, *ports))),
        ENDPOINTS_VARIABLE: _joined(ENDPOINTS_VARIABLE, endpoints),
    }


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _joined(variable: str, more: Iterable[str]) -> str:
    given = (entry.strip() for entry in os.environ.get(variable, "").split(","))
    return ",".join(dict.fromkeys(entry for entry in (*given, *more) if entry))


def _redis_addresses(url: str | None) -> tuple[list[int], list[str]]:
    """Return the Redis as a port of this machine, or as `ip:port` endpoints elsewhere."""
    parts = urlsplit(url or "")
    if parts.scheme not in {"redis", "rediss"}:
        return [], []
    port = parts.port or 6379
    try:
        found = socket.getaddrinfo(parts.hostname or "localhost", port, type=socket.SOCK_STREAM)
    except OSError as exc:
        raise SetupError(
            f"Redis connection refused: the host {parts.hostname} is not known ({exc.strerror}); "
            f"check it with `redis-cli ping` (add `-h {parts.hostname} -p {port}`)."
        ) from exc
    addresses = {str(entry[4][0]) for entry in found}
    local = {address for address in addresses if _is_local(address)}
    remote = sorted(addresses - local)
    return [port] if local else [], [
        f"[{address}]:{port}" if ":" in address else f"{address}:{port}" for address in remote
    ]


def _is_local(address: str) -> bool:
    """Tell whether an address is one of this machine's: only those can be bound."""
    if ip_address(address.partition("%")[0]).is_loopback:
        return True
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True
