"""Install Debian packages, where the process may."""

import os
import shutil

from omniboxes._bounded import run_bounded

_TIMEOUT_S = 900.0
_WAIT_FOR_LOCK = ("-o", "DPkg::Lock::Timeout=120")


def can_install() -> bool:
    """Return whether this process is root on a machine that has apt-get."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(*packages: str) -> str:
    """Install `packages` from fresh package lists; return why that failed, or an empty string."""
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    # A failed update is no reason to stop: the lists at hand may do; if not, the install says so.
    run_bounded(["apt-get", *_WAIT_FOR_LOCK, "update", "-qq"], timeout_s=_TIMEOUT_S, env=env)
    command = ["apt-get", *_WAIT_FOR_LOCK, "install", "-y", "-qq", "--no-install-recommends"]
    return run_bounded([*command, *packages], timeout_s=_TIMEOUT_S, env=env).trouble
