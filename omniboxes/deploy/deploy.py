"""Serve a pool of browsers on one machine.

    python omniboxes/deploy/deploy.py 8 --master-port 7000

The same as `omniboxes serve 8`, by path and without installing the package. Everything is checked
here; then this process becomes the supervisor (`process_manager`), which carries none of the
libraries that the checks needed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]
if not __package__:
    # Run by path, Python looks for modules beside this file; the package is two folders up.
    sys.path[0] = str(ROOT)

import click  # noqa: E402 - after the path is right

from omniboxes.common.entry import one_sentence  # noqa: E402
from omniboxes.common.settings import Settings  # noqa: E402
from omniboxes.deploy.nginx_manager import NginxSite  # noqa: E402
from omniboxes.deploy.options import (  # noqa: E402
    deployment_options,
    environment_of,
    setting_options,
    variable,
)
from omniboxes.deploy.preflight import Deployment, check  # noqa: E402

SUPERVISOR = "omniboxes.deploy.process_manager"


def deploy(flags: Mapping[str, Any]) -> NoReturn:
    """Check the set-up and become the supervisor; raises SetupError."""
    os.environ.update(environment_of(flags))
    settings = Settings.load()
    own = {name: flags[name] for name in Deployment.__dataclass_fields__ if name in flags}
    deployment = Deployment(**own)
    check(deployment, settings)
    if deployment.nginx:
        NginxSite().install(deployment.master, max_body_bytes=settings.max_body_bytes)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, _command(deployment), _environment(settings))


def _command(deployment: Deployment) -> list[str]:
    # -P: what lies in the user's working directory must not stand in for a module.
    command = [sys.executable, "-P", "-m", SUPERVISOR, str(deployment.sessions)]
    for name in ("host", "master_port", "node_port", "instance_start_port"):
        command += ["--" + name.replace("_", "-"), str(getattr(deployment, name))]
    return command if deployment.recovery else [*command, "--disable-recovery"]


def _environment(settings: Settings) -> dict[str, str]:
    inherited = dict(os.environ)
    paths = [str(ROOT), *filter(None, [inherited.get("PYTHONPATH")])]
    environment = {**inherited, "PYTHONPATH": os.pathsep.join(paths)}
    if key := settings.resolved_api_key():
        environment[variable("api_key")] = key
    return environment


@click.command()
@deployment_options
@click.option("--redis-port", type=int, help="Keep the pool in the Redis of localhost, this port.")
@click.option("--max-parallel", type=int, hidden=True, help="Accepted; starts are paced anyway.")
@click.option("--disable-recovery", is_flag=True, help="End when a server ends; restart nothing.")
@setting_options
def main(redis_port: int | None, disable_recovery: bool, **flags: Any) -> None:
    """Serve SESSIONS browser sessions on this machine until Ctrl-C."""
    if redis_port is not None and flags["redis_url"] is None:
        flags["redis_url"] = f"redis://localhost:{redis_port}"
    with one_sentence():
        deploy({**flags, "recovery": not disable_recovery})


if __name__ == "__main__":
    main()
