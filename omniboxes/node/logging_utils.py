"""Logging of the node process."""

from __future__ import annotations

from omniboxes.common import logs


def configure_logging(level: str) -> None:
    """Log to stderr, each line marked `node`."""
    logs.configure("node", level)
